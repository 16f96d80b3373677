"""How much memory a container may take, put in force: a control group of its own, and what its programs are told."""

import re
import shlex
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import USUAL_DIRECTORY, MemoryController, door, find_memory_controller
from netbench.linux.changes import Change, Look
from netbench.linux.changes.base import not_ours
from netbench.linux.changes.kernel import remove_group
from netbench.linux.needs import Facility
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
    """A control group of netbench's own for the processes of one container, which take so many `mib` at most.

    A process is in one group of version 2 only, so that there it is part of `parent`, the group that has the shares of
    the container; empty where it has none. Until they are found, `directory` and `version` are those of most machines.
    `switched_on` says that groups of version 2 had no memory controller there before.
    """

    name: str
    mib: int
    parent: str = ""
    directory: str = USUAL_DIRECTORY
    version: int = 2
    switched_on: bool = False

    @property
    def path(self) -> str:
        """Its own directory."""
        return f"{self.directory}/{self.group}"

    @property
    def group(self) -> str:
        """Its place among the groups of its version."""
        return f"{self.parent}/{self.name}" if self.parent and self.version == 2 else self.name

    @property
    def command(self) -> str:
        told = [f"echo {text} >{self.path}/{file}" for file, text in self._settings]
        return " && ".join([shlex.join(("mkdir", self.path)), *told])

    def found(self, look: Look) -> Self:
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
        with suppress(TestbedError):  # a kernel without swap
            host.write(f"{self.path}/{without_swap[0]}", without_swap[1])

    def undo(self, host: Host) -> None:
        if not self.name.startswith(PREFIX) or "/" in self.name or "/" in self.parent:
            return
        remove_group(host, self.path)
        if self.switched_on:
            others = [name for name in host.run(["ls", self.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # refused where somebody else has come to use it
                if not set(others) - {self.parent}:
                    for switch in reversed(list(self._switches)):
                        host.write(switch, "-memory")

    @property
    def _settings(self) -> list[tuple[str, str]]:
        return list(MemoryController(self.directory, self.version).settings(self.mib))

    @property
    def _switches(self) -> Iterator[str]:
        """What has to be told that groups have limits of memory, from the outermost on."""
        if self.switched_on:
            yield _switch(self.directory)
        if self.group != self.name:
            yield _switch(f"{self.directory}/{self.parent}")


def _switch(directory: str) -> str:
    return f"{directory}/cgroup.subtree_control"


def doors(host: Host, cpu_door: str, wanted: AddMemoryGroup | None) -> tuple[str, ...]:
    """The files by which a container's processes enter its groups: that of its shares (empty: none), of its memory."""
    own = (cpu_door,) if cpu_door else ()
    if wanted is None:
        return own
    controller = find_memory_controller(host)
    there = replace(wanted, directory=controller.directory, version=controller.version)
    entry = door(host, controller, there.group)
    return (entry,) if controller.version == 2 else (*own, entry)


def with_limit(meminfo: str, mib: int) -> str:
    """What /proc/meminfo says in a container, whose kernel tells there what its machine has."""
    return _AVAILABLE.sub(lambda found: f"{found[1]}{min(int(found[2]), mib << 10)}{found[3]}", meminfo)
