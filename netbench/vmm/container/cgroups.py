"""Control groups of a container: a limit of its memory, also in the /proc/meminfo of its programs; those of libvirt."""

import re
import shlex
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.host_wrappers import confined
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import (
    USUAL_DIRECTORY,
    CpuController,
    MemoryController,
    cgroup_procs,
    find_memory_controller,
    machine_root,
)
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.linux.changes.kernel import remove_group
from netbench.linux.requirements import Facility
from netbench.model.paths import PREFIX

MEMINFO = "/proc/meminfo"
_AVAILABLE = re.compile(r"^(MemAvailable: +)(\d+)( kB)$", re.MULTILINE)


def _look(_: str) -> str:
    controller = find_memory_controller(LocalHost("local", "requirements"))
    return f"version {controller.version}, in {controller.directory}"


MEMORY_GROUPS = Facility(
    "cgroup-memory", "containers with a limit of memory", "mount -t cgroup2 cgroup2 /sys/fs/cgroup", _look
)


def _switch(directory: str) -> str:
    """Return the file that enables controllers of version 2 for the groups below a directory."""
    return f"{directory}/cgroup.subtree_control"


def _words(sign: str, controllers: Sequence[str]) -> str:
    return " ".join(f"{sign}{controller}" for controller in controllers)


def _switch_off(host: Host, directories: Sequence[str], controllers: Sequence[str], kept: str = "") -> None:
    """Disable controllers in these directories, unless groups of netbench other than `kept` are below the last."""
    listed = host.run(["ls", directories[-1]]).stdout.split()
    if {name for name in listed if name.startswith(PREFIX)} - {kept}:
        return
    with suppress(TestbedError):  # rejected if other software uses it by now
        for directory in directories:
            host.write(_switch(directory), _words("-", controllers))


@dataclass(frozen=True, slots=True)
class AddMemoryGroup(Change):
    """A control group for the processes of one container, limited to `mib` MiB of memory.

    In version 2 a process is in one group only. Therefore it is a child of `parent` there: the group that has the CPU
    shares of the container; empty without one. `directory` and `version` default to the usual ones until detected.
    `switched_on` is true if netbench had to enable the memory controller of version 2.
    """

    name: str
    mib: int
    parent: str = ""
    directory: str = USUAL_DIRECTORY
    version: int = 2
    switched_on: bool = False

    @property
    def path(self) -> str:
        """Its directory."""
        return f"{self.directory}/{self.group}"

    @property
    def group(self) -> str:
        """Its path among the groups of its version."""
        return f"{self.parent}/{self.name}" if self.parent and self.version == 2 else self.name

    @property
    def command(self) -> str:
        writes = [f"echo {text} >{self.path}/{file}" for file, text in self._settings]
        return " && ".join([shlex.join(("mkdir", self.path)), *writes])

    def with_former_state(self, state: MachineState) -> Self:
        controller = find_memory_controller(state.host)
        change = replace(self, directory=controller.directory, version=controller.version)
        if state.host.run(["test", "-e", change.path]).exit_code == 0:
            raise not_ours(f"the control group {change.path}")
        is_off = change.version == 2 and "memory" not in state.host.read(_switch(change.directory)).split()
        return replace(change, switched_on=is_off)

    def make(self, host: Host) -> None:
        try:
            for directory in self._switched:
                host.write(_switch(directory), "+memory")
        except TestbedError as error:
            raise TestbedError(
                f"the memory controller cannot be switched on ({error}): switch it on yourself, or leave memory "
                "out of the topology"
            ) from error
        run_checked(host, ["mkdir", self.path])
        (limit, text), (swap, none) = self._settings
        host.write(f"{self.path}/{limit}", text)
        with suppress(TestbedError):  # kernels without swap
            host.write(f"{self.path}/{swap}", none)

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name or "/" in self.parent:
            return
        remove_group(host, self.path)
        if self.switched_on:
            _switch_off(host, [*reversed(self._switched)], ["memory"], self.parent)

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(MemoryController(self.directory, self.version).settings(self.mib))

    @property
    def _switched(self) -> list[str]:
        """The directories that enable memory limits for the groups below, from the outermost on."""
        own = [f"{self.directory}/{self.parent}"] if self.group != self.name else []
        return [self.directory, *own] if self.switched_on else own


def cgroup_procs_files(host: Host, cpu_cgroup_procs: str, planned: AddMemoryGroup | None) -> tuple[str, ...]:
    """Return the cgroup.procs files for a container's processes: of its CPU shares (empty: none), and of its memory."""
    own = (cpu_cgroup_procs,) if cpu_cgroup_procs else ()
    if planned is None:
        return own
    controller = find_memory_controller(host)
    group = replace(planned, directory=controller.directory, version=controller.version)
    entry = cgroup_procs(host, controller, group.group)
    return (entry,) if controller.version == 2 else (*own, entry)


def with_limit(meminfo: str, mib: int) -> str:
    """Return a container's /proc/meminfo with its limit in it: the kernel shows the memory of the machine there."""
    return _AVAILABLE.sub(lambda match: f"{match[1]}{min(int(match[2]), mib << 10)}{match[3]}", meminfo)


_WANTED = ("cpu", "cpuacct", "cpuset", "devices", "memory")  # cpu for weight and limit, the others for libvirt
SWITCHED = ("cpu", "cpuset", "memory")  # those that version 2 enables per group
# Values that a group of version 1 requires before a process may enter it (cpuset(7)); copied from its parent.
_INHERITED = ("cpuset.cpus", "cpuset.mems")
_LEAF = "netbench"  # with version 2, the group of all processes outside the container
THIS_MACHINE = LocalHost("this machine", "no-run")  # used for reading only
_EMPTY_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One hierarchy of control groups: its controllers, `cpu,cpuacct` (empty: version 2), and the parent directory.

    `root` is the path at which any namespace of its machine sees that machine's own files.
    """

    controllers: str
    directory: str
    root: str = ""

    @property
    def names(self) -> set[str]:
        """Its controllers."""
        return set(self.controllers.split(","))

    @property
    def cpu(self) -> CpuController | None:
        """Its CPU controller; None if another hierarchy has it."""
        if not self.controllers:
            return CpuController(self.directory)
        return CpuController(self.directory, 1) if "cpu" in self.names else None

    def directories(self, group: str) -> list[str]:
        """Return the directories of a group and, with version 2, of the group of its processes."""
        own = f"{self.directory}/{group}"
        return [own] if self.controllers else [own, f"{own}/{_LEAF}"]

    def procs(self, group: str, *, leaf: bool = False) -> str:
        """Return the cgroup.procs file of one of these, for processes of its machine in any namespace."""
        return f"{self.root}{self.directories(group)[-1 if leaf else 0]}/cgroup.procs"


def hierarchies(machine: Host) -> list[Hierarchy]:
    """Return the hierarchies of a machine that libvirt needs, and that of the CPUs, as netbench sees them there.

    Groups are made below netbench's own. Exception: where CPUs are shared, they are beside those of other guests.
    Without any such hierarchy, the usual one is returned.
    """
    root = machine_root(machine)
    mounts = [line.split() for line in machine.read("/proc/self/mounts").splitlines()]
    at = {name: where for _, where, kind, words, *_ in mounts if kind == "cgroup" for name in words.split(",")}
    found: dict[str, Hierarchy] = {}
    for line in machine.read("/proc/self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        for controller in {*controllers.split(",")} & {*_WANTED} & {*at}:
            below = "" if "cpu" in controllers.split(",") else own.rstrip("/")
            found[controllers] = Hierarchy(controllers, at[controller] + below, root)
    if found:
        return [found[controllers] for controllers in sorted(found)]
    return [Hierarchy("", next((where for _, where, kind, *_ in mounts if kind == "cgroup2"), USUAL_DIRECTORY), root)]


def in_groups(command: Sequence[str], group: str, existing: Sequence[Hierarchy]) -> list[str]:
    """Return the command that runs another in a cgroup namespace whose root is `group`.

    With version 2 it runs in a child group: a group that contains processes cannot have controllers.
    """
    for hierarchy in existing:
        if not hierarchy.controllers:
            command = confined(command, (), hierarchy.procs(group, leaf=True))
    command = ["unshare", "--cgroup", *command]
    for hierarchy in existing:
        command = confined(command, (), hierarchy.procs(group))
    return list(command)


def cpu_cgroup_procs(group: str, existing: Sequence[Hierarchy]) -> str:
    """Return the cgroup.procs file of a group with weight and limit; empty if there are none."""
    return next((hierarchy.procs(group, leaf=True) for hierarchy in existing if hierarchy.cpu), "")


@dataclass(frozen=True, slots=True)
class AddGroups(Change):
    """A control group of netbench in each hierarchy, with a weight and a limit of CPU time as in AddCgroup.

    An undo also removes all groups that libvirt made below. with_former_state() sets `paths`, separated by blanks, and
    `switched_on`: the controllers of version 2 that netbench has to enable for them.
    """

    name: str
    weight: int | None = None
    limit: float | None = None
    paths: str = ""
    switched_on: str = ""

    @property
    def command(self) -> str:
        existing = hierarchies(THIS_MACHINE)  # a plan for another machine assumes the hierarchies of this one
        made = [path for hierarchy in existing for path in hierarchy.directories(self.name)]
        settings = (f"echo {text} >{file}" for file, text in self._settings(existing))
        return " && ".join([shlex.join(("mkdir", "-p", *made)), *settings])

    def with_former_state(self, state: MachineState) -> Self:
        existing = hierarchies(state.host)
        is_version_2 = not existing[0].controllers
        lacking = {*_WANTED[1:]}.difference(*(hierarchy.names for hierarchy in existing))
        if lacking and not is_version_2:
            raise MissingError(
                f"containers of libvirt need control groups with {', '.join(sorted(lacking))}: mount them"
            )
        paths = [hierarchy.directories(self.name)[0] for hierarchy in existing]
        for path in paths:
            if state.host.run(["test", "-e", path]).exit_code == 0:
                raise not_ours(f"the control group {path}")
        enabled = state.host.read(_switch(existing[0].directory)).split() if is_version_2 else SWITCHED
        off = [name for name in SWITCHED if name not in enabled]
        return replace(self, paths=" ".join(paths), switched_on=" ".join(off))

    def make(self, host: Host) -> None:
        existing = hierarchies(host)
        if self.switched_on:
            switch, words = _switch(existing[0].directory), _words("+", self.switched_on.split())
            try:
                host.write(switch, words)
            except TestbedError as error:
                raise TestbedError(
                    f"control groups with {self.switched_on}, which libvirt insists on, cannot be had ({error}): "
                    f"switch them on yourself (echo '{words}' >{switch}), or choose another runtime"
                ) from error
        for hierarchy in existing:
            own, *_ = directories = hierarchy.directories(self.name)
            run_checked(host, ["mkdir", "-p", *directories])
            for file in _INHERITED if "cpuset" in hierarchy.names else ():
                host.write(f"{own}/{file}", host.read(f"{hierarchy.directory}/{file}"))
        for file, text in self._settings(existing):
            host.write(file, text)

    def undo(self, host: Host) -> None:
        paths = [path for path in self.paths.split() if Path(path).name.startswith(PREFIX)]

        def removed() -> bool:
            existing = [path for path in paths if host.run(["test", "-d", path]).exit_code == 0]
            return not existing or host.run(["find", *existing, "-depth", "-type", "d", "-delete"]).exit_code == 0

        if not wait_until(removed, _EMPTY_S, _POLL_S):
            raise TestbedError(f"the control groups {', '.join(paths)} are still used by processes")
        if self.switched_on:
            _switch_off(host, [hierarchies(host)[0].directory], self.switched_on.split())

    def _settings(self, existing: Sequence[Hierarchy]) -> Iterator[tuple[str, str]]:
        for hierarchy in existing:
            if hierarchy.cpu:
                for file, text in hierarchy.cpu.settings(self.weight, self.limit):
                    yield f"{hierarchy.directories(self.name)[0]}/{file}", text
