"""Limit the memory of a container: by a control group of its own, and in the /proc/meminfo of its programs."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import USUAL_DIRECTORY, MemoryController, cgroup_procs, find_memory_controller
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


def doors(host: Host, cpu_door: str, wanted: AddMemoryGroup | None) -> tuple[str, ...]:
    """Return the cgroup.procs files for a container's processes: of its CPU shares (empty: none), and of its memory."""
    own = (cpu_door,) if cpu_door else ()
    if wanted is None:
        return own
    controller = find_memory_controller(host)
    group = replace(wanted, directory=controller.directory, version=controller.version)
    entry = cgroup_procs(host, controller, group.group)
    return (entry,) if controller.version == 2 else (*own, entry)


def with_limit(meminfo: str, mib: int) -> str:
    """Return a container's /proc/meminfo with its limit in it: the kernel shows the memory of the machine there."""
    return _AVAILABLE.sub(lambda match: f"{match[1]}{min(int(match[2]), mib << 10)}{match[3]}", meminfo)
