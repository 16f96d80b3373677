"""The paper's loads inside a real guest of the smallest size: 1 vCPU, 256 MiB, emulated."""

import tempfile
import time
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import run_checked
from netbench.loads.stress_ng import StressLoad
from netbench.model.host_spec import VmSpec
from netbench.model.scenario import Stress
from netbench.testbed.virtual_machines import running_vm
from tests.netns.watching import wait_for
from tests.vm.lab import UnmarkedHost

pytestmark = pytest.mark.vm


@pytest.fixture(scope="module")
def guest():
    with tempfile.TemporaryDirectory(prefix="nbt-") as directory:
        spec = VmSpec(cpus=1, memory=256)
        with running_vm("small", spec, UnmarkedHost("here", "nbt-stress"), Path(directory)) as vm:
            yield vm.host()


def do(guest, script, *words):
    return run_checked(guest, ["sh", "-c", script, "sh", *map(str, words)])


def stress_processes(guest):
    """Pid, state and parent of each process that has the name of stress-ng."""
    found = do(guest, "grep -hs '(stress-ng)' /proc/[0-9]*/stat; true")
    lines = [line.partition(")") for line in found.splitlines()]
    return [(int(start.split()[0]), rest.split()[0], int(rest.split()[1])) for start, _, rest in lines]


def busy_s(guest):
    """CPU time of the guest's kernel, all but idle."""
    words = do(guest, "cat /proc/stat").split()
    return sum(map(int, (*words[1:4], *words[6:8]))) / 100


def test_the_papers_loads_run_are_watched_and_are_gone_after(guest):
    """One after the other: files unpacked on first use stay, and nothing is added to them."""
    before = None
    for workers, processes in ((Stress(cpu=1), 2), (Stress(cpu=8, vm=4), 17), (Stress(cpu=8, vm=4), 17)):
        load = StressLoad("guest small", guest, workers)
        load.start()
        assert len(stress_processes(guest)) == processes
        first, busy_first = load.cpu_s(), busy_s(guest)
        time.sleep(2)
        busy_then, then = busy_s(guest), load.cpu_s()
        # The load has nearly all of the CPU, by the guest's count of both.
        assert 0.5 * (busy_then - busy_first) < then - first
        assert then - first > 0.5
        load.stop()
        assert [state for _, state, _ in stress_processes(guest) if state != "Z"] == []
        assert "killed process" not in do(guest, "dmesg").lower(), "for want of memory"
        left = (do(guest, "ls /tmp /usr/lib/netbench"), do(guest, "du -s /usr").split()[0])
        assert left == (before or left)
        before = left


def test_a_worker_that_dies_in_the_guest_is_noticed_one_that_is_replaced_is_not(guest):
    load = StressLoad("guest small", guest, Stress(cpu=1, vm=1))
    load.start()
    found = stress_processes(guest)
    parents = {parent for _, _, parent in found}
    (filler,) = (pid for pid, _, parent in found if pid not in parents and parent in {p for p, _, _ in found[1:]})
    before = load.cpu_s()
    do(guest, "kill -9 $1", filler)
    wait_for(lambda: len([state for _, state, _ in stress_processes(guest) if state != "Z"]) == len(found))
    assert load.cpu_s() >= before
    (computing,) = (pid for pid, _, parent in found if parent == found[0][0] and pid not in parents)
    do(guest, "kill -9 $1", computing)
    with pytest.raises(TestbedError, match="^guest small: its load .* 1 of 2 workers run"):
        load.cpu_s()
    load.stop()
    assert [state for _, state, _ in stress_processes(guest) if state != "Z"] == []


def test_a_guest_without_stress_ng_reports_so(guest):
    do(guest, "mv /usr/bin/stress-ng /tmp/aside")
    with pytest.raises(TestbedError, match="^guest small: there is no stress-ng for its load; install the package"):
        StressLoad("guest small", guest, Stress(cpu=1)).start()
    do(guest, "mv /tmp/aside /usr/bin/stress-ng")
