"""The memory of a container: the control group that limits it, on machines that have groups as files."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from netbench.errors import MissingError, TestbedError
from netbench.linux.cgroups import MemoryController, find_memory_controller
from netbench.linux.changes import MachineState
from netbench.linux.recovery_journal import from_json, to_json
from netbench.vmm.base import GuestSpec
from netbench.vmm.container.cgroups import AddMemoryGroup, cgroup_procs_files, with_limit
from netbench.vmm.container.container import Container, ContainerOptions
from tests.unit.test_cgroups import ROOT, V1, V2, GroupHost

V1_WITH_MEMORY = f"{V1}cgroup /sys/fs/cgroup/memory cgroup rw,relatime,memory 0 0\n"
SHARES = "nb-0123456789ab-u"
NAME = "nb-0123456789ab-uut-u"
CPU_PROCS = f"/proc/1/root/sys/fs/cgroup/{SHARES}/cgroup.procs"
SWITCH = "/sys/fs/cgroup/cgroup.subtree_control"


class MemoryHost(GroupHost):
    """Groups have files of the memory controller too; `swap`: the kernel supports swap."""

    def __init__(self, mounts=V2, *, swap=True, **more):
        # Controllers that have groups of version 1 have none of version 2.
        super().__init__(mounts, **({} if mounts == V2 else {"controllers": ""}), **more)
        self._files = ["memory.max", "memory.limit_in_bytes", "cgroup.subtree_control"]
        self._files += ["memory.swap.max", "memory.swappiness"] if swap else []

    def run(self, argv, *, stdin="", timeout_s=30.0):
        if argv[0] == "mkdir":
            self.files |= {f"{argv[-1]}/{file}": "" for file in self._files}
        return super().run(argv, stdin=stdin, timeout_s=timeout_s)


@pytest.mark.parametrize("swap", [True, False])
@pytest.mark.parametrize(
    ("mounts", "directory", "written"),
    [
        (V2, "/sys/fs/cgroup", {"memory.max": "67108864", "memory.swap.max": "0"}),
        (V1_WITH_MEMORY, "/sys/fs/cgroup/memory", {"memory.limit_in_bytes": "67108864", "memory.swappiness": "0"}),
    ],
)
def test_a_group_is_made_reported_and_removed(mounts, directory, written, swap):
    host = MemoryHost(mounts, swap=swap, switched="cpu memory")
    made = AddMemoryGroup(NAME, 64).with_former_state(MachineState(host))
    assert host.groups == {"system.slice"}
    made.make(host)
    assert host.groups == {"system.slice", NAME}
    wrote = [(f"{directory}/{NAME}/{file}", text) for file, text in written.items()]
    assert [entry for entry in host.written if not entry[0].endswith(("swap.max", "swappiness"))] == wrote[:1]
    assert (host.files.get(wrote[1][0]) == "0") == swap
    assert made.command.startswith(f"mkdir {directory}/{NAME} && echo 67108864 >")
    assert from_json(to_json(made)) == made
    made.undo(host)
    made.undo(host)
    assert host.groups == {"system.slice"}


def test_beside_shares_it_is_part_of_their_group_where_a_process_can_be_in_one_only():
    host = MemoryHost(switched="cpu")
    host.run(["mkdir", f"/sys/fs/cgroup/{SHARES}"])
    made = AddMemoryGroup(NAME, 64, SHARES).with_former_state(MachineState(host))
    made.make(host)
    path = f"/sys/fs/cgroup/{SHARES}/{NAME}"
    assert host.written[:3] == [
        (SWITCH, "+memory"),
        (f"/sys/fs/cgroup/{SHARES}/cgroup.subtree_control", "+memory"),
        (f"{path}/memory.max", "67108864"),
    ]
    assert cgroup_procs_files(host, CPU_PROCS, made) == (f"{ROOT}{path}/cgroup.procs",)
    made.undo(host)
    within = f"/sys/fs/cgroup/{SHARES}/cgroup.subtree_control"
    assert host.written[-2:] == [(within, "-memory"), (SWITCH, "-memory")], "from the innermost on"


def test_beside_shares_it_is_another_group_where_each_controller_has_its_own():
    host = MemoryHost(V1_WITH_MEMORY)
    wanted = AddMemoryGroup(NAME, 64, SHARES)
    own = f"{ROOT}/sys/fs/cgroup/memory/{NAME}/cgroup.procs"
    assert cgroup_procs_files(host, CPU_PROCS, wanted) == (CPU_PROCS, own)
    assert cgroup_procs_files(host, "", wanted) == (own,)
    assert (cgroup_procs_files(host, CPU_PROCS, None), cgroup_procs_files(host, "", None)) == ((CPU_PROCS,), ())


def test_what_cannot_be_done_is_reported():
    with pytest.raises(MissingError, match="^memory of a container needs control groups with the memory controller"):
        find_memory_controller(MemoryHost(V1))
    host = MemoryHost(switched="", refuses=("+memory",))
    change = AddMemoryGroup(NAME, 64).with_former_state(MachineState(host))
    with pytest.raises(TestbedError, match="^the memory controller cannot be switched on .* leave memory out"):
        change.make(host)
    host.groups.add(NAME)
    with pytest.raises(TestbedError, match=f"the control group /sys/fs/cgroup/{NAME} exists already"):
        AddMemoryGroup(NAME, 64).with_former_state(MachineState(host))
    assert find_memory_controller(MemoryHost(V1_WITH_MEMORY)) == MemoryController("/sys/fs/cgroup/memory", 1)


@pytest.mark.parametrize(("name", "parent"), [("system.slice", ""), ("nb-x/../y", ""), (NAME, "../system.slice")])
def test_only_groups_of_netbenchs_own_are_ever_removed(name, parent):
    host = MemoryHost()
    AddMemoryGroup(name, 64, parent).undo(host)
    assert host.commands == []


def test_a_container_is_reported_what_it_may_take():
    assert with_limit("MemFree: 9 kB\nMemAvailable:   8000000 kB\n", 64) == "MemFree: 9 kB\nMemAvailable:   65536 kB\n"
    assert with_limit("MemAvailable:   8000 kB\n", 64) == "MemAvailable:   8000 kB\n"


def test_a_plan_has_the_group_and_the_way_into_it():
    limited = Container(ContainerOptions.model_validate({"memory": "64M"}))
    spec = GuestSpec("u", Path(f"/run/netbench/vm/{NAME.removeprefix('nb-')}"))
    (group,) = (change for change in limited.changes(spec) if isinstance(change, AddMemoryGroup))
    assert (group.name, group.mib, group.parent) == (NAME, 64, "")
    assert f"/sys/fs/cgroup/{NAME}/cgroup.procs" in limited.command(spec)
    assert "cgroup-memory" in limited.needs()
    plain = Container(ContainerOptions())
    assert not any(isinstance(change, AddMemoryGroup) for change in plain.changes(spec))
    assert "cgroup-memory" not in plain.needs()
    with pytest.raises(ValidationError, match="needs a unit"):
        ContainerOptions.model_validate({"memory": 64})


def test_containers_of_libvirt_have_no_limit():
    with pytest.raises(ValidationError, match="memory: libvirt makes its own control groups"):
        ContainerOptions.model_validate({"runtime": "libvirt", "memory": "64M"})
