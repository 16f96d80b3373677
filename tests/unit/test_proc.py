"""Processes and CPU time from /proc, and lists of CPUs."""

import os
from pathlib import Path

import pytest

from netbench.linux.proc import (
    ProcessStat,
    all_processes,
    busy_s,
    memory_bytes,
    parse_cpu_list,
    parse_cpu_ticks,
    parse_process,
    read_process,
    softirq_s,
)

# From Linux 6.18, but with a name that contains the separators of the fields.
LINE = "813 (a) S 1 (b) S 7 813 813 0 -1 4194560 1 2 3 4 50 6 70 8 20 -5 1 0 900 10000 200 18446744073709551615\n"
STAT = "cpu  100 20 300 4000 50 6 70 800 9 10\ncpu0 100 20 300 4000 50 6 70 800 9 10\nintr 1\n"


def test_a_process_whatever_its_name():
    assert parse_process(LINE) == ProcessStat(813, "a) S 1 (b", "S", 7, 50 + 6, 70 + 8, -5, is_ending=False)
    assert parse_process(LINE.replace("4194560", str(0x400100 | 0x4))).is_ending


def test_idling_and_what_others_took_is_not_counted():
    assert busy_s(STAT) == pytest.approx((100 + 20 + 300 + 6 + 70) / 100)
    before = busy_s(Path("/proc/stat").read_text())
    sum(range(3_000_000))
    assert 0 < before <= busy_s(Path("/proc/stat").read_text())


def test_softirqs_of_one_cpu_as_far_as_they_are_more_than_usual():
    before = parse_cpu_ticks(STAT, 0)
    after = parse_cpu_ticks(STAT.replace("cpu0 100 20 300 4000 50 6 70", "cpu0 100 20 300 4000 50 6 76"), 0)
    assert softirq_s(before, after, over_s=1.0) == pytest.approx(0.06)
    assert softirq_s(before, after, over_s=1.3) == 0.0
    with pytest.raises(ValueError, match="no line 'cpu1'"):
        parse_cpu_ticks(STAT, 1)


@pytest.mark.parametrize(
    "text",
    [
        *("", "no line of it", LINE.replace("813 (", "x ("), LINE[:40]),
        *("cpu0 1 2 3 4 5 6 7 8\n", "cpu 1 2\n", "cpu a b c d e f g h\n"),
    ],
)
@pytest.mark.parametrize("parse", [parse_process, busy_s])
def test_another_text_is_refused(parse, text):
    with pytest.raises((ValueError, IndexError)):
        parse(text)


def test_this_process_is_among_all():
    own = read_process("self")
    assert (own.pid, own.parent, own.nice) == (os.getpid(), os.getppid(), os.getpriority(os.PRIO_PROCESS, 0))
    assert (own.pid, own.name, own.parent) in [(listed.pid, listed.name, listed.parent) for listed in all_processes()]
    with pytest.raises(OSError, match="No such file"):
        read_process(0)


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("", set()), ("0\n", {0}), ("0-3,8", {0, 1, 2, 3, 8}), ("0,64\n", {0, 64}), ("0-1,8-9", {0, 1, 8, 9})],
)
def test_lists_of_cpus_as_the_kernel_writes_them(text, cpus):
    assert parse_cpu_list(text) == cpus


def test_memory_is_that_of_a_process_and_its_descendants_and_unknown_without_it(tmp_path):
    for pid, kib, children in ((1, 10, "2 3"), (2, 5, "4"), (4, 7, "")):  # 3 has ended meanwhile
        task = tmp_path / str(pid) / "task" / str(pid)
        task.mkdir(parents=True)
        (task / "children").write_text(children)
        (tmp_path / str(pid) / "smaps_rollup").write_text(
            f"0-1 ---p [rollup]\nRss: 99 kB\nPss:  {kib} kB\nPss_Anon: 1 kB\n"
        )
    assert memory_bytes(1, tmp_path) == 22 * 1024
    assert memory_bytes(3, tmp_path) is None
