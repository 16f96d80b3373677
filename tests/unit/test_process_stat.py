"""What /proc/PID/stat says of processes."""

import os

import pytest

from netbench.linux.process_stat import ProcessStat, all_processes, parse_process, read_process

# As of Linux 6.18, but for a name that holds what divides the fields.
LINE = "813 (a) S 1 (b) S 7 813 813 0 -1 4194560 1 2 3 4 50 6 70 8 20 -5 1 0 900 10000 200 18446744073709551615\n"


def test_a_line_whatever_the_name():
    assert parse_process(LINE) == ProcessStat(813, "a) S 1 (b", "S", 7, 50 + 6, 70 + 8, -5)


@pytest.mark.parametrize("text", ["", "no line of it", LINE.replace("813 (", "x ("), LINE[:40]])
def test_another_text_is_refused(text):
    with pytest.raises((ValueError, IndexError)):
        parse_process(text)


def test_this_process_is_among_all():
    own = read_process("self")
    assert (own.pid, own.parent, own.nice) == (os.getpid(), os.getppid(), os.getpriority(os.PRIO_PROCESS, 0))
    assert (own.pid, own.name, own.parent) in [(one.pid, one.name, one.parent) for one in all_processes()]


def test_one_that_is_gone():
    with pytest.raises(OSError, match="No such file"):
        read_process(0)
