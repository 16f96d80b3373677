"""Containers of libvirt's LXC driver: their domains, and the control groups that they need."""
# Required XML elements are used unchecked: where one is missing, the test fails (`union-attr`).

import os
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.linux.changes.base import MachineState
from netbench.linux.recovery_journal import from_json, to_json
from netbench.vmm.base import GuestSpec
from netbench.vmm.container import cgroups
from netbench.vmm.container.cgroups import AddGroups, Hierarchy, cpu_cgroup_procs, hierarchies, in_groups
from netbench.vmm.container.container import Container, ContainerOptions
from netbench.vmm.container.libvirt_lxc import domain_xml, find_lxc_driver
from netbench.vmm.container.runtime import Root
from netbench.vmm.libvirt import domain
from tests.unit.fakes import FakeHost

HERE = LocalHost("here", "no-run")
SPEC = GuestSpec("g", Path("/run/netbench/vm/r-uut-g"), host_cpus=(1, 3), weight=200, limit=0.5)
APART = (
    "tmpfs /sys/fs/cgroup tmpfs rw 0 0",
    "cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0",
    "cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0",
    "cgroup /sys/fs/cgroup/devices cgroup rw,relatime,devices 0 0",
    "cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0",
    "cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0",
    "cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0",
)
OWN = ("5:memory:/user", "4:devices:/", "3:cpuset:/", "2:cpu,cpuacct:/user", "1:name=systemd:/user", "0::/user")
UNIFIED = ("cgroup2 /sys/fs/cgroup cgroup2 rw,relatime 0 0",)


def machine(mounts, own=("0::/user.slice",), test: int = 1, *, is_here: bool = False) -> FakeHost:
    """A machine with these mounts and with netbench in these groups; `test` is the exit code of that command."""
    files = {"/proc/self/mounts": "\n".join(mounts), "/proc/self/cgroup": "\n".join(own)}
    return FakeHost({"test": Completed((), test, "", "")}, files, is_here=is_here)


def found(element, path):
    """Return the first element at a path, which must exist."""
    there = element.find(path)
    assert there is not None
    return there


def test_a_domain_is_the_container_that_the_other_runtimes_start(tmp_path):
    (tmp_path / "usr").mkdir()
    (tmp_path / "bin").symlink_to("usr/bin")
    root = Root.found(HERE, tmp_path)
    domain = ElementTree.fromstring(domain_xml(SPEC, root, ["/bin/sh", "-c", "echo a&b"], HERE))
    assert (domain.get("type"), domain.findtext("name")) == ("lxc", "g")
    assert found(domain, "vcpu").get("cpuset") == "1,3"
    assert [element.text for element in domain.findall("os/initarg")][-3:] == ["/bin/sh", "-c", "echo a&b"]
    assert found(domain, "os/initenv").attrib == {"name": "NETBENCH_RUN"}
    mounted = {found(mount, "target").get("dir"): mount for mount in domain.findall("devices/filesystem")}
    assert mounted.keys() == {"/", "/usr"}
    assert (mounted["/"].find("readonly"), mounted["/usr"].find("readonly") is None) == (None, False)
    assert domain.find("devices/interface") is None
    free = ElementTree.fromstring(domain_xml(GuestSpec("g", SPEC.directory), root, ["x"], HERE))
    assert found(free, "vcpu").attrib == {}


def test_groups_are_where_netbench_is_but_for_shares_of_cpus():
    there = hierarchies(machine(APART, OWN))
    assert [replace(hierarchy, root="") for hierarchy in there] == [
        Hierarchy("cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct"),
        Hierarchy("cpuset", "/sys/fs/cgroup/cpuset"),
        Hierarchy("devices", "/sys/fs/cgroup/devices"),
        Hierarchy("memory", "/sys/fs/cgroup/memory/user"),
    ]
    assert cpu_cgroup_procs("nb-x", there) == "/proc/1/root/sys/fs/cgroup/cpu,cpuacct/nb-x/cgroup.procs", (
        "on another machine"
    )
    here = hierarchies(machine(APART, OWN, is_here=True))
    assert cpu_cgroup_procs("nb-x", here).startswith(f"/proc/{os.getpid()}/root/sys/fs/cgroup/")


def test_in_version_2_nothing_runs_in_a_group_with_groups():
    there = hierarchies(machine(UNIFIED))
    own, leaf = (f"/proc/1/root/sys/fs/cgroup/nb-x{below}/cgroup.procs" for below in ("", "/netbench"))
    words = in_groups(["libvirtd"], "nb-x", there)
    assert [words.index(own) < words.index("unshare") < words.index(leaf), words[-1]] == [True, "libvirtd"]
    assert cpu_cgroup_procs("nb-x", there) == leaf


def test_what_is_done_is_reported_and_can_be_undone_by_another_process(monkeypatch):
    monkeypatch.setattr(cgroups, "THIS_MACHINE", machine(APART, OWN))
    change = AddGroups("nb-x", 200, 0.5)
    cpu = "/sys/fs/cgroup/cpu,cpuacct/nb-x"
    others = " ".join(f"/sys/fs/cgroup/{controller}/nb-x" for controller in ("cpuset", "devices", "memory/user"))
    assert change.command == (
        f"mkdir -p {cpu} {others} && echo 2048 >{cpu}/cpu.shares && "
        f"echo 100000 >{cpu}/cpu.cfs_period_us && echo 50000 >{cpu}/cpu.cfs_quota_us"
    )
    found = change.with_former_state(MachineState(machine(APART, OWN)))
    assert found.paths == f"{cpu} {others}"
    assert from_json(to_json(found)) == found


def test_groups_of_somebody_else_are_left_alone():
    with pytest.raises(TestbedError, match="the control group .*/nb-x exists already and is not netbench's"):
        AddGroups("nb-x").with_former_state(MachineState(machine(APART, OWN, test=0)))
    host = FakeHost()
    AddGroups("mine", paths="/sys/fs/cgroup/memory/mine").undo(host)
    assert host.commands == []


def test_a_machine_without_the_groups_is_reported_which():
    without = machine([line for line in APART if "memory" not in line], OWN)
    with pytest.raises(MissingError, match="containers of libvirt need control groups with memory: mount them"):
        AddGroups("nb-x").with_former_state(MachineState(without))


def test_what_is_not_there_is_missing(monkeypatch, tmp_path):
    monkeypatch.setattr(domain, "_LIBRARIES", tmp_path)
    with pytest.raises(MissingError, match="its driver for LXC"):
        find_lxc_driver("")
    assert "libvirt-lxc" in Container(ContainerOptions(runtime="libvirt")).needs()
    assert "libvirt-lxc" not in Container(ContainerOptions()).needs()
