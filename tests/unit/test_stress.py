"""A load of stress-ng on this machine: its start, supervision and end, and all faults.

All tests use a stand-in. Those that a real stress-ng can pass use that, too, where it is installed.
"""

import os
import shlex
import shutil
import signal
import sys
import time
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost, end_marked_processes, marked_processes
from netbench.loads import stress_ng as module
from netbench.loads.stress_ng import StressLoad
from netbench.model.scenario import Stress
from tests.netns.watching import wait_for
from tests.unit.fakes import FakeHost
from tests.unit.stand_in_for_stress_ng import SLOW_S

RUN = f"nbt-stress-{os.getpid()}"
SMALL = "MemTotal: 999999 kB\nMemAvailable:  40000 kB\n"


class Machine(LocalHost):
    """This machine with as much memory as a test sets."""

    def __init__(self, meminfo=SMALL):
        super().__init__("here", RUN)
        self._meminfo = meminfo

    def read(self, path):
        return self._meminfo if path == "/proc/meminfo" else super().read(path)


@pytest.fixture
def stand_in(tmp_path, monkeypatch):
    """The stand-in, found before any stress-ng; call it with the fault that it is to have."""
    program = tmp_path / "bin" / "stress-ng"
    program.parent.mkdir()
    source = Path(__file__).with_name("stand_in_for_stress_ng.py")
    program.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, "-I", "-S", str(source)])} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    yield lambda manner: monkeypatch.setenv("STAND_IN", manner)
    end_marked_processes(RUN)


@pytest.fixture(params=["stand-in", "stress-ng"])
def stress_ng(request):
    """The stand-in or the real stress-ng."""
    if request.param == "stand-in":
        request.getfixturevalue("stand_in")
    elif shutil.which("stress-ng") is None:
        pytest.skip("there is no stress-ng on this machine")
    yield
    end_marked_processes(RUN)


def load(cpu=2, vm=1, meminfo=SMALL):
    return StressLoad("neighbour n1", Machine(meminfo), Stress(cpu=cpu, vm=vm))


@pytest.fixture
def started(stress_ng):
    """Two workers that compute and one with memory, at work; whatever becomes of them, stop() ends them all."""
    running = load()
    running.start()
    yield running
    running.stop()
    assert list(marked_processes(RUN)) == []


class Family:
    """The processes of a load, found by other means than netbench's own."""

    def __init__(self):
        stats = {pid: stat(pid) for pid, _ in marked_processes(RUN)}
        self.parents = {pid: int(words[1]) for pid, words in stats.items() if words is not None}
        self.sessions = {words[3] for words in stats.values() if words is not None}

    @property
    def first(self):
        (pid,) = (pid for pid, parent in self.parents.items() if parent not in self.parents)
        return pid

    @property
    def fillers(self):
        """The children of memory workers."""
        return [pid for pid, parent in self.parents.items() if self.parents.get(parent) == self.first]

    @property
    def computing(self):
        """The workers without children."""
        workers = [pid for pid, parent in self.parents.items() if parent == self.first]
        return [pid for pid in workers if pid not in self.parents.values()]


def stat(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


@pytest.mark.parametrize(("cpu", "vm"), [(2, 1), (1, 0), (0, 1)])
def test_a_load_is_at_work_once_started_and_gone_once_stopped(stress_ng, cpu, vm):
    """stress-ng itself takes 0 for a worker on each CPU."""
    running = load(cpu, vm)
    began = time.monotonic()
    running.start()
    family = Family()
    assert (len(family.parents), len(family.computing), len(family.fillers)) == (1 + cpu + 2 * vm, cpu, vm)
    assert family.sessions == {str(family.first)}, "and all of them have the mark of the run"
    first = running.cpu_s()
    wait_for(lambda: running.cpu_s() > first + 0.2)
    used, took = running.cpu_s(), time.monotonic() - began
    assert (cpu + vm) / 100 <= first < used <= took * (os.cpu_count() or 1) + 0.1
    running.stop()
    assert list(marked_processes(RUN)) == []
    running.stop()


def test_cpu_time_is_that_of_all_processes_counted_once_and_those_that_are_stopped_can_be_ended(started):
    for pid in Family().parents:
        os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: all(stat(pid)[0] == "T" for pid in Family().parents))
    total = sum(int(word) for pid in Family().parents for word in stat(pid)[11:15])
    assert started.cpu_s() == pytest.approx(total / os.sysconf("SC_CLK_TCK"))
    assert total > 0


def test_a_child_of_a_memory_worker_that_the_kernel_killed_is_replaced_and_its_time_counts(started):
    (child,) = Family().fillers
    wait_for(lambda: int(stat(child)[11]) + int(stat(child)[12]) >= 20)
    before = started.cpu_s()
    os.kill(child, signal.SIGKILL)
    wait_for(lambda: Family().fillers not in ([], [child]))
    assert started.cpu_s() >= before


@pytest.mark.parametrize(
    ("victim", "words"),
    [
        (lambda family: family.computing[0], "2 of 3 workers run"),
        (lambda family: family.parents[family.fillers[0]], "2 of 3 workers run"),
        (lambda family: family.first, "stress-ng has ended"),
    ],
    ids=["computing", "memory", "first"],
)
def test_a_load_that_lost_a_process_is_reported_and_still_ended(started, victim, words):
    lost = victim(Family())
    os.kill(lost, signal.SIGKILL)
    wait_for(lambda: (stat(lost) or "Z")[0] == "Z")
    with pytest.raises(
        TestbedError, match=f"^neighbour n1: its load `stress-ng --cpu 2 --vm 1` is incomplete: {words}"
    ):
        started.cpu_s()


def test_what_a_killed_run_leaves_is_recognised_by_the_mark(started):
    assert len(list(marked_processes(RUN))) == 5
    assert 0 < len(end_marked_processes(RUN)) <= 5, "killing one worker may end others"
    with pytest.raises(TestbedError, match="stress-ng has ended"):
        started.cpu_s()


def test_other_loads_and_other_processes_are_left_alone(stand_in):
    one, other = load(cpu=1, vm=0), load(cpu=2, vm=0)
    one.start()
    other.start()
    assert len(Family().parents) == 5
    one.stop()
    assert len(Family().parents) == 3
    assert other.cpu_s() > 0
    other.stop()
    assert Family().parents == {}


def test_without_stress_ng_it_reports_what_to_install(tmp_path, monkeypatch):
    for tool in ("sh", "setsid", "grep", "cat"):
        (tmp_path / tool).symlink_to(str(shutil.which(tool)))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TestbedError, match="neighbour n1: there is no stress-ng .* install the package stress-ng"):
        load().start()


@pytest.mark.parametrize(
    ("manner", "words", "left"),
    [
        ("refuses", "ended at once: exit code 2: stress-ng: unrecognized option", 0),
        ("ends", "ended at once: no message", 0),
        ("few", "did not start: no further worker started within 3 s: 2 of 3 workers run", 4),
    ],
)
def test_a_load_that_does_not_get_to_work_is_reported_and_still_ended(stand_in, monkeypatch, manner, words, left):
    monkeypatch.setattr(module, "_START_S", 3.0)
    stand_in(manner)
    idle = load()
    with pytest.raises(TestbedError, match=f"neighbour n1: its load `stress-ng --cpu 2 --vm 1` {words}"):
        idle.start()
    assert len(Family().parents) == left
    idle.stop()
    assert list(marked_processes(RUN)) == []


def test_a_load_is_waited_for_as_long_as_more_of_it_comes_to_work(stand_in, monkeypatch):
    monkeypatch.setattr(module, "_START_S", 4 * SLOW_S)
    stand_in("slow")
    many = load(cpu=8, vm=0)
    began = time.monotonic()
    many.start()
    assert time.monotonic() - began >= 8 * SLOW_S, "twice as long as nothing may happen"
    assert len(Family().computing) == 8
    many.stop()


@pytest.mark.parametrize(
    ("available_kib", "vm", "told_kib"),
    [(107_001, 4, 53_500), (8_000_000, 4, 4 * 262_144), (8_000_000, 1, 262_144), (8, 1, 4)],
)
def test_memory_workers_take_what_those_of_stress_take_or_half_of_what_there_is(stand_in, available_kib, vm, told_kib):
    running = load(cpu=1, vm=vm, meminfo=f"MemFree: 5 kB\nMemAvailable:   {available_kib} kB\n")
    running.start()
    words = Path(f"/proc/{Family().first}/cmdline").read_text().split("\0")
    assert words[words.index("--vm-bytes") + 1] == f"{told_kib}K"
    running.stop()


def test_a_kernel_that_does_not_tell_of_its_memory(stand_in):
    with pytest.raises(TestbedError, match="neighbour n1: its kernel does not report its available memory"):
        load(meminfo="MemTotal: 5 kB\n").start()
    load(vm=0, meminfo="").stop()


class Undying(FakeHost):
    """A guest whose processes wait for a disk for ever."""

    def __init__(self, text="77 (stress-ng) D 1 77 77 0 -1 0 0 0 0 0 5 5 0 0 20 0\n", exit_code=0):
        super().__init__()
        self._ended = Completed((), exit_code, text, "")

    def run(self, argv, *, stdin="", timeout_s=30.0):
        return self._ended if "grep" in argv[2] else Completed((), 0, "77\n", "")


def test_a_process_that_cannot_be_killed_is_reported(monkeypatch):
    monkeypatch.setattr(module, "_START_S", 0.0)
    monkeypatch.setattr(module, "_END_S", 0.1)
    stuck = StressLoad("neighbour n1", Undying(), Stress(cpu=1))
    with pytest.raises(TestbedError, match="0 of 1 workers run"):
        stuck.start()
    with pytest.raises(TestbedError, match=r"is still there 0\.1 s after SIGKILL: processes 77"):
        stuck.stop()


@pytest.mark.parametrize("answer", [("", 127), ("77 (stress-ng) D\n", 0), ("Segmentation fault\n", 0)])
def test_a_guest_that_talks_nonsense(answer):
    with pytest.raises(TestbedError, match="neighbour n1: its list of processes is invalid"):
        StressLoad("neighbour n1", Undying(*answer), Stress(cpu=1)).start()


def test_what_was_not_started():
    with pytest.raises(TestbedError, match="was not started"):
        load().cpu_s()
    load().stop()
