"""Control groups for a container of libvirt's, whose LXC driver does not start one without."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.composed import confined
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import USUAL_DIRECTORY, CpuController, machine_root
from netbench.linux.changes import Change, Look
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX

_WANTED = ("cpu", "cpuacct", "cpuset", "devices", "memory")  # cpu for weight and limit, the others for libvirt
SWITCHED = ("cpu", "cpuset", "memory")  # those of them that version 2 has switches for
# What a group of version 1 must have before a process may enter (cpuset(7)): here, what the one above has.
_INHERITED = ("cpuset.cpus", "cpuset.mems")
_LEAF = "netbench"  # with version 2, the group of all processes that are not the container's
THIS_MACHINE = LocalHost("this machine", "no-run")  # on which nothing is run by it
_EMPTY_S = 5.0
_POLL_S = 0.05


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """One hierarchy of control groups: its controllers, `cpu,cpuacct` (empty: version 2), and where groups are made.

    `root` is where its machine's own files are seen from any namespace of that.
    """

    controllers: str
    directory: str
    root: str = ""

    @property
    def cpu(self) -> CpuController | None:
        """What shares CPUs there; None where that is another one's."""
        if not self.controllers:
            return CpuController(self.directory)
        return CpuController(self.directory, 1) if "cpu" in self.controllers.split(",") else None

    def door(self, *group: str) -> str:
        """The file by which processes of its machine, in whatever namespace, enter a group."""
        return "/".join((f"{self.root}{self.directory}", *group, "cgroup.procs"))


def hierarchies(machine: Host) -> list[Hierarchy]:
    """Those of a machine that libvirt needs, and that of the CPUs, as netbench sees them there.

    Groups are made below netbench's own, but where CPUs are shared: there, beside those of other guests. Where the
    machine has none: as on most machines.
    """
    root = machine_root(machine)
    mounts = [line.split() for line in machine.read("/proc/self/mounts").splitlines()]
    at = {one: where for _, where, kind, words, *_ in mounts if kind == "cgroup" for one in words.split(",")}
    found: dict[str, Hierarchy] = {}
    for line in machine.read("/proc/self/cgroup").splitlines():
        _, controllers, own = line.split(":", 2)
        for one in {*controllers.split(",")} & {*_WANTED} & {*at}:
            below = "" if "cpu" in controllers.split(",") else own.rstrip("/")
            found[controllers] = Hierarchy(controllers, at[one] + below, root)
    if found:
        return [found[controllers] for controllers in sorted(found)]
    return [Hierarchy("", next((where for _, where, kind, *_ in mounts if kind == "cgroup2"), USUAL_DIRECTORY), root)]


def in_groups(command: Sequence[str], group: str, there: Sequence[Hierarchy]) -> list[str]:
    """The command that runs another in a namespace of control groups in which `group` is the root of all.

    With version 2 it runs in one of its own in there: a group with processes has none with controllers.
    """
    for one in there:
        if not one.controllers:
            command = confined(command, (), one.door(group, _LEAF))
    command = ["unshare", "--cgroup", *command]
    for one in there:
        command = confined(command, (), one.door(group))
    return list(command)


def cpu_door(group: str, there: Sequence[Hierarchy]) -> str:
    """The file by which processes come under the weight and limit of a group; empty where there are none."""
    found = (one.door(group, *(() if one.controllers else (_LEAF,))) for one in there if one.cpu)
    return next(found, "")


@dataclass(frozen=True, slots=True)
class AddGroups(Change):
    """A control group of netbench's own in each hierarchy, with a weight and a limit of CPU time as AddCgroup has them.

    They are undone with all groups that libvirt has made in them. `paths`, one a word, are known once they are found,
    and so is what was `switched_on` for them: controllers that groups of version 2 did not have there.
    """

    name: str
    weight: int | None = None
    limit: float | None = None
    paths: str = ""
    switched_on: str = ""

    @property
    def command(self) -> str:
        there = hierarchies(THIS_MACHINE)  # a plan for another machine says what it would be on this one
        made = [path for one in there for path in self._directories(one)]
        settings = (f"echo {text} >{file}" for file, text in self._settings(there))
        return " && ".join([shlex.join(("mkdir", "-p", *made)), *settings])

    def found(self, look: Look) -> Self:
        there = hierarchies(look.host)
        lacking = {*_WANTED[1:]} - {name for one in there for name in one.controllers.split(",")}
        if there[0].controllers and lacking:
            raise MissingError(
                f"containers of libvirt need control groups with {', '.join(sorted(lacking))}: mount them"
            )
        paths = [f"{one.directory}/{self.name}" for one in there]
        for path in paths:
            if look.host.run(["test", "-e", path]).exit_code == 0:
                raise not_ours(f"the control group {path}")
        switches = [] if there[0].controllers else _off(look.host, there[0])
        return replace(self, paths=" ".join(paths), switched_on=" ".join(switches))

    def make(self, host: Host) -> None:
        there = hierarchies(host)
        if self.switched_on:
            switch, told = _switch(there[0]), " ".join(f"+{one}" for one in self.switched_on.split())
            try:
                host.write(switch, told)
            except TestbedError as error:
                raise TestbedError(
                    f"control groups with {self.switched_on}, which libvirt insists on, cannot be had ({error}): "
                    f"switch them on yourself (echo '{told}' >{switch}), or choose another runtime"
                ) from error
        for one in there:
            run_checked(host, ["mkdir", "-p", *self._directories(one)])
            for file in _INHERITED if "cpuset" in one.controllers.split(",") else ():
                host.write(f"{one.directory}/{self.name}/{file}", host.read(f"{one.directory}/{file}"))
        for file, text in self._settings(there):
            host.write(file, text)

    def undo(self, host: Host) -> None:
        paths = [path for path in self.paths.split() if Path(path).name.startswith(PREFIX)]

        def removed() -> bool:
            there = [path for path in paths if host.run(["test", "-d", path]).exit_code == 0]
            return not there or host.run(["find", *there, "-depth", "-type", "d", "-delete"]).exit_code == 0

        if not wait_until(removed, _EMPTY_S, _POLL_S):
            raise TestbedError(f"the control groups {', '.join(paths)} are still used by processes")
        if self.switched_on:
            there = hierarchies(host)[0]
            others = [name for name in host.run(["ls", there.directory]).stdout.split() if name.startswith(PREFIX)]
            with suppress(TestbedError):  # refused where somebody else has come to use it
                if not others:
                    host.write(_switch(there), " ".join(f"-{one}" for one in self.switched_on.split()))

    def _settings(self, there: Sequence[Hierarchy]) -> list[tuple[str, str]]:
        return [
            (f"{one.directory}/{self.name}/{file}", text)
            for one in there
            if one.cpu
            for file, text in one.cpu.settings(self.weight, self.limit)
        ]

    def _directories(self, one: Hierarchy) -> list[str]:
        own = f"{one.directory}/{self.name}"
        return [own] if one.controllers else [own, f"{own}/{_LEAF}"]


def _switch(hierarchy: Hierarchy) -> str:
    return f"{hierarchy.directory}/cgroup.subtree_control"


def _off(host: Host, hierarchy: Hierarchy) -> list[str]:
    """What its groups have not, of the controllers that they need."""
    there = host.read(_switch(hierarchy)).split()
    return [one for one in SWITCHED if one not in there]
