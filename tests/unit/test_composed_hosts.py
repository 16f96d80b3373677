"""Hosts made of other hosts: real commands and how they are bound, and how a machine died."""

import os
from typing import Any

import pytest

from netbench.errors import TestbedError
from netbench.hosts.host_wrappers import ConfinedHost
from netbench.hosts.local import LocalHost
from netbench.linux.counters.counting_points import NicCounters
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import CpuShares
from netbench.uut.base import Assignment, Site
from netbench.uut.raw import Raw, RawOptions
from tests.unit.fakes import FakeHost
from tests.unit.inputs import topology

HERE = LocalHost("uut", "netbench-composed-test")
FIRST = min(os.sched_getaffinity(0))


def test_a_command_and_all_it_starts_are_bound_to_cpus():
    reported = ConfinedHost(HERE, [FIRST]).run(["sh", "-c", "grep Cpus_allowed_list /proc/self/status | cat"])
    assert reported.argv[0] == "sh"
    assert reported.stdout.split() == ["Cpus_allowed_list:", str(FIRST)]
    process = ConfinedHost(HERE, [FIRST]).spawn(["grep", "Cpus_allowed_list", "/proc/self/status"])
    assert process.communicate(timeout=20)[0].split()[1] == str(FIRST)


def test_a_command_that_cannot_enter_its_group_does_not_run(tmp_path):
    done = ConfinedHost(HERE, (), f"{tmp_path}/gone/cgroup.procs").run(["touch", str(tmp_path / "ran")])
    assert done.exit_code != 0
    assert "gone/cgroup.procs" in done.stderr
    assert not (tmp_path / "ran").exists()


class Nothing:
    """A kernel that records requests for changes, and makes none."""

    def make(self, changes):
        self.asked = list(changes)

    def read_nics(self, places):
        return dict.fromkeys(places, NicCounters(0, 0, 0, 0, 0, 0, True, 0, "", 1, 0))


@pytest.mark.parametrize("paths", [stream_paths(topology()), ()], ids=["with streams", "without"])
def test_what_is_run_inside_a_kernel_is_run_on_its_host_within_what_it_may_take(paths):
    uut, host = Raw(RawOptions()), HERE
    kernel: Any = Nothing()
    hosts: Any = {"uut": host, "source": FakeHost()}
    uut.provision(Site(Assignment("u", paths, CpuShares((FIRST,)), "uut", "x"), kernel, hosts))
    ready = uut.ready()
    assert ready.inside
    reported = ready.inside.run(["grep", "Cpus_allowed_list", "/proc/self/status"])
    assert reported.stdout.split()[1] == str(FIRST)
    assert ready.facts == {"forward": "bridge", "host_cpus": str(FIRST)}
    uut.destroy()
    with pytest.raises(TestbedError, match="is not provisioned"):
        uut.ready()
