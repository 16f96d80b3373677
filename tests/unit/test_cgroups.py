"""Control groups of both versions, on a machine that has them as files."""

import os

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import CpuController, cgroup_procs, find_controller
from netbench.linux.changes import AddCgroup, MachineState, kernel
from netbench.linux.recovery_journal import from_json, to_json
from netbench.model.topology_specs import CpuShares
from netbench.uut.base import Assignment
from tests.unit.fakes import FakeHost

V1 = """proc /proc proc rw 0 0
cgroup /sys/fs/cgroup/cpuset cgroup rw,relatime,cpuset 0 0
cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0
cgroup2 /sys/fs/cgroup/unified cgroup2 rw,relatime 0 0
"""
V2 = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid,nodev 0 0\n"
# On a machine that shares no files, paths begin at the process that runs commands there.
ROOT = "/proc/1/root"
NAME = "nb-0123456789ab-u.second"
GROUP = AddCgroup(None, NAME, 50, 0.2)


class GroupHost(FakeHost):
    """A machine whose groups are made and removed as directories are; `busy` groups cannot be removed yet."""

    def __init__(self, mounts=V2, controllers="cpuset cpu memory", switched="cpu", refuses=(), writable=True) -> None:
        files = {"/proc/1/mounts": mounts}
        files |= {f"{ROOT}/sys/fs/cgroup{unified}/cgroup.controllers": controllers for unified in ("", "/unified")}
        super().__init__(files=files | {"/sys/fs/cgroup/cgroup.subtree_control": switched})
        self.groups = {"system.slice"}
        self.busy = 0
        self.written: list[tuple[str, str]] = []
        self._refuses = refuses
        self._writable = writable

    def run(self, argv, *, stdin="", timeout_s=30.0):
        if argv[0] == "sh":
            return super().run(argv)
        self.commands.append(tuple(argv))
        *command, path = argv
        name = path.rpartition("/")[2]
        match command:
            case ["test", "-w"]:
                done = self._writable
            case ["test", _]:
                done = name in self.groups
            case ["mkdir"]:
                self.groups.add(name)
                self.files |= {f"{path}/{file}": "" for file in ("cpu.weight", "cpu.max", "cpu.shares", "cgroup.procs")}
                self.files |= {f"{path}/cpu.cfs_{file}_us": "" for file in ("period", "quota")}
                done = True
            case ["rmdir"]:
                self.busy -= 1
                done = self.busy < 0
                if done:
                    self.groups.remove(name)
            case _:
                assert command == ["ls"]
                return Completed(tuple(argv), 0, "\n".join(self.groups), "")
        return Completed(tuple(argv), 0 if done else 1, "", "")

    def write(self, path, text):
        if text in self._refuses:
            raise TestbedError(f"host fake: {path} cannot be written: Device or resource busy")
        self.written.append((path, text))
        super().write(path, text)


@pytest.mark.parametrize(
    ("version", "weight", "limit", "settings"),
    [
        (2, None, 1.5, [("cpu.max", "150000 100000")]),
        (2, 10_000, None, [("cpu.weight", "10000")]),
        (1, 100, None, [("cpu.shares", "1024")]),
        (1, 1, None, [("cpu.shares", "10")]),
        (1, None, 0.01, [("cpu.cfs_period_us", "100000"), ("cpu.cfs_quota_us", "1000")]),
        (1, None, None, []),
    ],
)
def test_what_a_group_is_reported(version, weight, limit, settings):
    assert list(CpuController("/x", version).settings(weight, limit)) == settings


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (GroupHost("proc /proc proc rw 0 0\n"), "which this machine lacks"),
        (GroupHost(V2, controllers="cpuset memory"), "which this machine lacks"),
        (GroupHost(V2, writable=False), "/sys/fs/cgroup is not writable: run netbench as root and outside"),
    ],
)
def test_where_there_are_none_to_be_had(host, message):
    with pytest.raises(MissingError, match="^cpu_weight and cpu_limit need control groups") as missing:
        find_controller(host)
    assert message in str(missing.value)


@pytest.mark.parametrize(
    ("mounts", "controller", "written"),
    [
        (V2, CpuController("/sys/fs/cgroup", 2), {"cpu.weight": "50", "cpu.max": "20000 100000"}),
        (
            V1,
            CpuController("/sys/fs/cgroup/cpu,cpuacct", 1),
            {"cpu.shares": "512", "cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "20000"},
        ),
    ],
)
def test_a_group_is_made_reported_and_removed(mounts, controller, written):
    """A controller that was on stays on."""
    host = GroupHost(mounts)
    assert find_controller(host) == controller
    made = GROUP.with_former_state(MachineState(host))
    assert host.groups == {"system.slice"}
    made.make(host)
    assert host.groups == {"system.slice", NAME}
    path = f"{controller.directory}/{NAME}"
    assert host.written == [(f"{path}/{file}", text) for file, text in written.items()]
    assert made.command.startswith(f"mkdir {path} && echo ")
    again = from_json(to_json(made))
    assert again == made
    host.busy = 2
    again.undo(host)
    again.undo(host)
    assert host.groups == {"system.slice"}
    assert len(host.written) == len(written)


def test_the_controller_is_switched_on_for_groups_and_off_again_after_the_last():
    host = GroupHost(switched="memory")
    first = GROUP.with_former_state(MachineState(host))
    first.make(host)
    assert host.written[0] == ("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
    host.groups.add("nb-another")
    first.undo(host)
    assert ("/sys/fs/cgroup/cgroup.subtree_control", "-cpu") not in host.written
    host.groups.remove("nb-another")
    first.undo(host)
    assert host.written[-1] == ("/sys/fs/cgroup/cgroup.subtree_control", "-cpu")


def test_a_controller_that_cannot_be_switched_on_is_a_reason():
    host = GroupHost(switched="", refuses=("+cpu", "-cpu"))
    change = GROUP.with_former_state(MachineState(host))
    with pytest.raises(TestbedError, match="^the cpu controller cannot be switched on for control groups in /sys/fs/"):
        change.make(host)
    change.undo(host)
    assert host.groups == {"system.slice"}


def test_a_group_of_somebody_else_is_not_taken():
    host = GroupHost()
    host.groups.add(NAME)
    with pytest.raises(TestbedError, match=f"the control group /sys/fs/cgroup/{NAME} exists already"):
        GROUP.with_former_state(MachineState(host))


@pytest.mark.parametrize("name", ["system.slice", "nb-x/../system.slice"])
def test_only_groups_of_netbenchs_own_are_ever_removed(name):
    host = GroupHost()
    AddCgroup(None, name).undo(host)
    assert host.commands == []


def test_a_group_that_is_still_used_is_named_with_its_processes(monkeypatch):
    monkeypatch.setattr(kernel, "_EMPTY_S", 0.0)
    host = GroupHost()
    made = GROUP.with_former_state(MachineState(host))
    made.make(host)
    host.busy = 1000
    host.files[f"{made.path}/cgroup.procs"] = "41\n42\n"
    with pytest.raises(TestbedError, match=f"^the control group {made.path} is still used by the processes 41, 42$"):
        made.undo(host)


def test_a_command_is_bound_and_enters_its_group_before_anything_else():
    assert confined(["a", "b c"], (), "") == ["a", "b c"]
    assert confined(["a"], (1, 3), "") == ["taskset", "-c", "1,3", "a"]
    shell, flag, script, *rest = confined(["a", "b c"], (0,), "/x/cgroup.procs")
    assert (shell, flag, rest) == ("sh", "-c", ["/x/cgroup.procs", "taskset", "-c", "0", "a", "b c"])
    assert script == 'echo 0 >"$0" && exec "$@"'


def test_namespaces_see_the_groups_through_a_process_outside():
    v1 = CpuController("/sys/fs/cgroup/cpu", 1)
    assert cgroup_procs(FakeHost(), v1, "nb-x") == "/proc/1/root/sys/fs/cgroup/cpu/nb-x/cgroup.procs"
    here = LocalHost("local", "x")
    assert cgroup_procs(here, v1, "nb-x") == f"/proc/{os.getpid()}/root/sys/fs/cgroup/cpu/nb-x/cgroup.procs"


RUN = "lab-0123456789ab"


def test_a_group_is_only_made_for_a_weight_or_a_limit():
    plain = Assignment("u", cpu_shares=CpuShares((0, 1)), run_id=RUN)
    assert (plain.cgroup_changes, plain.cgroup_procs(FakeHost()), plain.planned_cgroup_procs) == ([], "", "")
    for entitlement in (CpuShares(weight=50), CpuShares(limit=0.2)):
        own = Assignment("u.second", cpu_shares=entitlement, run_id=RUN)
        (change,) = own.cgroup_changes
        assert (change.name, change.weight, change.limit) == (NAME, entitlement.weight, entitlement.limit)
        assert own.cgroup_procs(GroupHost()) == f"{ROOT}{change.path}/cgroup.procs"
        assert own.planned_cgroup_procs == f"{change.path}/cgroup.procs"
