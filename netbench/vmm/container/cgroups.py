"""Limit the memory of a container: by its control group, and in the /proc/meminfo of its programs."""

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
from netbench.model.interfaces import PREFIX

MEMINFO = "/proc/meminfo"
_AVAILABLE = re.compile(r"^(MemAvailable: +)(\d+)( kB)$", re.MULTILINE)


def _look(_: str) -> str:
    found = find_memory_controller(LocalHost("local", "requirements"))
    return f"version {found.version}, in {found.directory}"


MEMORY_GROUPS = Facility(
    "cgroup-memory", "containers with a limit of memory", "mount -t cgroup2 cgroup2 /sys/fs/cgroup", _look
)


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

    def found(self, look: MachineState) -> Self:
        controller = find_memory_controller(look.host)
        change = replace(self, directory=controller.directory, version=controller.version)
        if look.host.run(["test", "-e", change.path]).exit_code == 0:
            raise not_ours(f"the control group {change.path}")
        is_off = change.version == 2 and "memory" not in look.host.read(_switch(change.directory)).split()
        return replace(change, switched_on=is_off)

    def make(self, host: Host) -> None:
        for switch in self._switches:
            try:
                host.write(switch, "+memory")
            except TestbedError as error:
                raise TestbedError(
                    f"the memory controller cannot be switched on ({error}): switch it on yourself, or leave memory "
                    "out of the topology"
                ) from error
        run_checked(host, ["mkdir", self.path])
        limit, without_swap = self._settings
        host.write(f"{self.path}/{limit[0]}", limit[1])
        with suppress(TestbedError):  # kernels without swap
            host.write(f"{self.path}/{without_swap[0]}", without_swap[1])

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name or "/" in self.parent:
            return
        remove_group(host, self.path)
        if self.switched_on:
            others = [name for name in host.run(["ls", self.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # rejected if other software uses it by now
                if not set(others) - {self.parent}:
                    for switch in reversed(list(self._switches)):
                        host.write(switch, "-memory")

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(MemoryController(self.directory, self.version).settings(self.mib))

    @property
    def _switches(self) -> Iterator[str]:
        """The files that enable memory limits for child groups, from the outermost group on."""
        if self.switched_on:
            yield _switch(self.directory)
        if self.group != self.name:
            yield _switch(f"{self.directory}/{self.parent}")


def _switch(directory: str) -> str:
    return f"{directory}/cgroup.subtree_control"


def cgroup_procs_files(host: Host, cpu_cgroup_procs: str, wanted: AddMemoryGroup | None) -> tuple[str, ...]:
    """Return the cgroup.procs files for a container's processes: of its CPU shares (empty: none), and of its memory."""
    own = (cpu_cgroup_procs,) if cpu_cgroup_procs else ()
    if wanted is None:
        return own
    controller = find_memory_controller(host)
    group = replace(wanted, directory=controller.directory, version=controller.version)
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
    def cpu(self) -> CpuController | None:
        """Its CPU controller; None if another hierarchy has it."""
        if not self.controllers:
            return CpuController(self.directory)
        return CpuController(self.directory, 1) if "cpu" in self.controllers.split(",") else None

    def procs(self, *group: str) -> str:
        """Return the cgroup.procs file of a group, for processes of its machine in any namespace."""
        return "/".join((f"{self.root}{self.directory}", *group, "cgroup.procs"))


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


def in_groups(command: Sequence[str], group: str, there: Sequence[Hierarchy]) -> list[str]:
    """Return the command that runs another in a cgroup namespace whose root is `group`.

    With version 2 it runs in a child group: a group that contains processes cannot have controllers.
    """
    for hierarchy in there:
        if not hierarchy.controllers:
            command = confined(command, (), hierarchy.procs(group, _LEAF))
    command = ["unshare", "--cgroup", *command]
    for hierarchy in there:
        command = confined(command, (), hierarchy.procs(group))
    return list(command)


def cpu_cgroup_procs(group: str, there: Sequence[Hierarchy]) -> str:
    """Return the cgroup.procs file of a group with weight and limit; empty if there are none."""
    files = (
        hierarchy.procs(group, *(() if hierarchy.controllers else (_LEAF,))) for hierarchy in there if hierarchy.cpu
    )
    return next(files, "")


@dataclass(frozen=True, slots=True)
class AddGroups(Change):
    """A control group of netbench in each hierarchy, with a weight and a limit of CPU time as in AddCgroup.

    An undo also removes all groups that libvirt made below. found() sets `paths`, separated by blanks. It also sets
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
        made = [path for hierarchy in existing for path in self._directories(hierarchy)]
        settings = (f"echo {text} >{file}" for file, text in self._settings(existing))
        return " && ".join([shlex.join(("mkdir", "-p", *made)), *settings])

    def found(self, look: MachineState) -> Self:
        existing = hierarchies(look.host)
        lacking = {*_WANTED[1:]} - {name for hierarchy in existing for name in hierarchy.controllers.split(",")}
        if existing[0].controllers and lacking:
            raise MissingError(
                f"containers of libvirt need control groups with {', '.join(sorted(lacking))}: mount them"
            )
        paths = [f"{hierarchy.directory}/{self.name}" for hierarchy in existing]
        for path in paths:
            if look.host.run(["test", "-e", path]).exit_code == 0:
                raise not_ours(f"the control group {path}")
        switches = [] if existing[0].controllers else _off(look.host, existing[0])
        return replace(self, paths=" ".join(paths), switched_on=" ".join(switches))

    def make(self, host: Host) -> None:
        existing = hierarchies(host)
        if self.switched_on:
            switch, words = _switch(existing[0].directory), " ".join(f"+{name}" for name in self.switched_on.split())
            try:
                host.write(switch, words)
            except TestbedError as error:
                raise TestbedError(
                    f"control groups with {self.switched_on}, which libvirt insists on, cannot be had ({error}): "
                    f"switch them on yourself (echo '{words}' >{switch}), or choose another runtime"
                ) from error
        for hierarchy in existing:
            run_checked(host, ["mkdir", "-p", *self._directories(hierarchy)])
            for file in _INHERITED if "cpuset" in hierarchy.controllers.split(",") else ():
                host.write(f"{hierarchy.directory}/{self.name}/{file}", host.read(f"{hierarchy.directory}/{file}"))
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
            existing = hierarchies(host)[0]
            others = [name for name in host.run(["ls", existing.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # rejected if other software uses it by now
                if not others:
                    host.write(_switch(existing.directory), " ".join(f"-{name}" for name in self.switched_on.split()))

    def _settings(self, there: Sequence[Hierarchy]) -> list[tuple[str, str]]:
        return [
            (f"{hierarchy.directory}/{self.name}/{file}", text)
            for hierarchy in there
            if hierarchy.cpu
            for file, text in hierarchy.cpu.settings(self.weight, self.limit)
        ]

    def _directories(self, one: Hierarchy) -> list[str]:
        own = f"{one.directory}/{self.name}"
        return [own] if one.controllers else [own, f"{own}/{_LEAF}"]


def _off(host: Host, hierarchy: Hierarchy) -> list[str]:
    """Return the required controllers that are not enabled for its groups."""
    enabled = host.read(_switch(hierarchy.directory)).split()
    return [name for name in SWITCHED if name not in enabled]
