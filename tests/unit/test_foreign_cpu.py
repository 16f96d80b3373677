"""CPU time of programs outside a run: counted once, whatever ends or begins between two readings."""

import os
import subprocess
import sys

import pytest

from netbench.linux.foreign_cpu import ProcessTime, foreign_cpu_s, read_foreign_cpu

CASES = {
    "one that runs on": ({1: ProcessTime(5.0)}, {1: ProcessTime(5.5)}, 0.5),
    "one that began": ({}, {1: ProcessTime(0.25)}, 0.25),
    "a child that ended, whose whole time its parent takes over": (
        {1: ProcessTime(1.0), 2: ProcessTime(30.0)},
        {1: ProcessTime(1.0, 30.2)},
        0.2,
    ),
    "a child that began and ended": ({1: ProcessTime(1.0)}, {1: ProcessTime(1.0, 0.3)}, 0.3),
    "an orphan that ended, which no process counts": (
        {1: ProcessTime(1.0), 2: ProcessTime(30.0)},
        {1: ProcessTime(1.1)},
        0.1,
    ),
    "nothing": ({1: ProcessTime(1.0)}, {1: ProcessTime(1.0)}, 0.0),
}


@pytest.mark.parametrize("name", CASES)
def test_time_is_counted_once(name):
    before, after, used_s = CASES[name]
    assert foreign_cpu_s(before, after) == pytest.approx(used_s)


def test_own_processes_are_not_foreign():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        reading = read_foreign_cpu("no such run")
        child.communicate(b"\n")
    assert not {os.getpid(), child.pid} & reading.keys()


def test_processes_of_the_run_are_not_foreign():
    """They need not be descendants: a runtime may have started them."""
    done = subprocess.run(
        ["sh", "-c", "sleep 30 >/dev/null 2>&1 & echo $!"],
        env={**os.environ, "NETBENCH_RUN": "run-1"},
        capture_output=True,
        check=True,
        text=True,
    )
    pid = int(done.stdout)
    try:
        assert pid not in read_foreign_cpu("run-1")
        assert pid in read_foreign_cpu("run-2")
    finally:
        os.kill(pid, 9)
