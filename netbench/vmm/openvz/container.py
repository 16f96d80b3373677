"""OpenVZ containers: the commands of its tools by their manual pages, and the changes they make.

None was ever run against OpenVZ. `vzctl` is that of OpenVZ 6 (vzctl(8), vzlist(8), version 4.11). `prlctl` is that of
Virtuozzo and OpenVZ 7 and later (prlctl(8)). Those have a vzctl(8) too: only it has an option for the name of the
machine's end of a NIC.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX

OpenVzTool = Literal["vzctl", "prlctl"]

_CREATE_S = 900.0  # a template may have to be downloaded and unpacked
_CHANGE_S = 300.0  # `vzctl stop` alone waits up to 120 s for a container to shut down
# The default of both is 1000, the range 8 to 500000. netbench's usual weight is 100, its minimum 1.
_UNITS_OF_WEIGHT = 10


@dataclass(frozen=True, slots=True)
class OpenVzContainer:
    """A container, identified by its number (`vzctl`, which also accepts names) or its name (`prlctl`).

    Most methods return the command that does what they describe.
    """

    tool: OpenVzTool
    ident: str

    @property
    def needs(self) -> frozenset[str]:
        """The required tools."""
        return frozenset({self.tool, "vzctl"})

    @property
    def lister(self) -> str:
        """The command that lists all containers."""
        return "vzlist --all" if self.tool == "vzctl" else "prlctl list --all"

    def create(self, name: str, template: str) -> list[str]:
        """Create it from an OS template; without one, from the default in vz.conf(5)."""
        source = ["--ostemplate", template] if template else []
        if self.tool == "vzctl":
            return ["vzctl", "create", self.ident, *source, "--name", name]
        return ["prlctl", "create", name, *source, "--vmtype", "ct"]

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        """Set its memory, its CPU shares and its kernel features permanently, before its start."""
        switched_on = ["--features", ",".join(f"{feature}:on" for feature in features)] if features else []
        if self.tool == "vzctl":
            memory = ["--ram", f"{memory_mib}M", "--swap", "0"]  # "you must only set --ram and --swap"
            return ["vzctl", "set", self.ident, "--onboot", "no", *memory, *shares, *switched_on, "--save"]
        memory = ["--memsize", f"{memory_mib}M"]
        return ["prlctl", "set", self.ident, "--autostart", "off", *memory, *shares, *switched_on]

    def start(self) -> list[str]:
        """Start it; it need not run commands yet."""
        return [self.tool, "start", self.ident]

    def stop(self, *, at_once: bool) -> list[str]:
        """Stop it: by a shutdown, or at once."""
        return [self.tool, "stop", self.ident, *(["--fast" if self.tool == "vzctl" else "--kill"] if at_once else [])]

    def destroy(self) -> list[str]:
        """Delete it once it is stopped."""
        return [self.tool, "destroy" if self.tool == "vzctl" else "delete", self.ident]

    def run(self, argv: Sequence[str]) -> list[str]:
        """Run a command in it, and return that command's exit code: both tools pass one string to its shell."""
        return [self.tool, "exec2" if self.tool == "vzctl" else "exec", self.ident, shlex.join(argv)]

    def status(self, host: Host) -> tuple[bool, bool]:
        """Return whether the container exists, and whether it runs; TestbedError for unexpected output.

        The output is one line: `CTID 101 exist mounted running` (vzctl(8), "status"), `CT name exist running` (prlctl).
        """
        output = run_checked(host, [self.tool, "status", self.ident], timeout_s=60.0).strip()
        words = output.split()[2:]  # a container may be called `running`
        if not {"exist", "deleted"} & set(words):
            raise TestbedError(f"`{self.tool} status {self.ident}` printed an unknown status: {output or 'nothing'}")
        return "exist" in words, "exist" in words and "running" in words

    def name(self, host: Host) -> str:
        """Return its name on this machine; empty without a name (yet)."""
        if self.tool == "prlctl":
            return self.ident
        output = run_checked(host, ["vzlist", "-a", "-H", "-t", "-o", "name", self.ident]).strip()
        return "" if output == "-" else output


def cpu_options(weight: int | None, limit: float | None, cpus: Sequence[int]) -> list[str]:
    """Return both tools' options for CPU shares (100 is the usual weight; 1.0 is one CPU, i.e. 100 percent)."""
    options = ["--cpuunits", str(weight * _UNITS_OF_WEIGHT)] if weight is not None else []
    options += ["--cpulimit", str(round(limit * 100))] if limit is not None else []
    return options + (["--cpumask", ",".join(map(str, cpus))] if cpus else [])


@dataclass(frozen=True, slots=True)
class OpenVzChange(Change):
    """A change to one container, by its name or number in `tool`."""

    tool: OpenVzTool
    ident: str

    @property
    def _container(self) -> OpenVzContainer:
        return OpenVzContainer(self.tool, self.ident)

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        raise NotImplementedError

    @property
    def command(self) -> str:
        return " && ".join(map(shlex.join, self._commands))

    def make(self, host: Host) -> None:
        for command in self._commands:
            run_checked(host, command, timeout_s=_CREATE_S)


@dataclass(frozen=True, slots=True)
class AddContainer(OpenVzChange):
    """A container of netbench, made from a template; undo stops and destroys it."""

    name: str
    template: str
    memory_mib: int
    shares: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        made = self._container.create(self.name, self.template)
        return [made, self._container.configure(self.memory_mib, self.shares, self.features)]

    def found(self, look: MachineState) -> Self:
        if self._container.status(look.host)[0]:
            raise not_ours(f"the container {self.ident}")
        return self

    def undo(self, host: Host) -> None:
        exists, runs = self._container.status(host)
        # A container with another name was made by somebody else meanwhile. One that is half made has no name yet.
        if not exists or not self.name.startswith(PREFIX) or self._container.name(host) not in ("", self.name):
            return
        if runs:
            run_checked(host, self._container.stop(at_once=True), timeout_s=_CHANGE_S)
        run_checked(host, self._container.destroy(), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class StartContainer(OpenVzChange):
    """Start a container; one that `ran` before is left unchanged. Undo stops netbench's `own` containers at once."""

    own: bool
    ran: bool = False

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return [] if self.ran else [self._container.start()]

    def found(self, look: MachineState) -> Self:
        exists, runs = self._container.status(look.host)
        if not exists:
            raise TestbedError(f"there is no container {self.ident}: name one that `{self._container.lister}` lists")
        return replace(self, ran=runs)

    def undo(self, host: Host) -> None:
        if not self.ran and self._container.status(host)[1]:
            run_checked(host, self._container.stop(at_once=self.own), timeout_s=_CHANGE_S)


@dataclass(frozen=True, slots=True)
class AddContainerNic(OpenVzChange):
    """A NIC of a running container: a pair of virtual Ethernet interfaces, both ends named `nic`.

    The filter of MAC addresses, on by default, goes off. Nothing is saved (no --save): the NIC is removed when the
    container stops.
    """

    nic: str
    mac: str
    host_mac: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        change = ["vzctl", "set", self.ident]
        return [
            [*change, "--netif_add", f"{self.nic},{self.mac},{self.nic},{self.host_mac}"],
            [*change, "--ifname", self.nic, "--mac_filter", "off"],
        ]

    def found(self, look: MachineState) -> Self:
        look.refuse_existing(None, self.nic)
        return self

    def undo(self, host: Host) -> None:
        # It is gone if the container has stopped, and may never have been made.
        if self._container.status(host)[1] and host.run(["ip", "link", "show", "dev", self.nic]).exit_code == 0:
            run_checked(host, ["vzctl", "set", self.ident, "--netif_del", self.nic], timeout_s=_CHANGE_S)
