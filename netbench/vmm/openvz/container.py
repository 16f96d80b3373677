"""The changes that netbench makes on a machine with OpenVZ: containers, their start, and their NICs."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import Change, MachineState
from netbench.linux.changes.base import not_ours
from netbench.model.interfaces import PREFIX

Tool = Literal["vzctl", "prlctl"]

# The default of both is 1000, the range 8 to 500000. netbench's usual weight is 100, its minimum 1.
_UNITS_OF_WEIGHT = 10


@dataclass(frozen=True, slots=True)
class OpenVzContainer:
    """A container, identified by its number (`vzctl`, which also accepts names) or its name (`prlctl`).

    Most methods return the command that does what they describe.
    """

    ident: str

    tool: ClassVar[Tool]
    needs: ClassVar[frozenset[str]]
    lister: ClassVar[str]  # the command that lists all containers

    def create(self, name: str, template: str) -> list[str]:
        """Create it from an OS template; without one, from the default in vz.conf(5)."""
        raise NotImplementedError

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        """Set its memory, its CPU shares and its kernel features permanently, before its start."""
        raise NotImplementedError

    def start(self) -> list[str]:
        """Start it; it need not run commands yet."""
        return [self.tool, "start", self.ident]

    def stop(self, *, at_once: bool) -> list[str]:
        """Stop it: by a shutdown, or at once."""
        raise NotImplementedError

    def destroy(self) -> list[str]:
        """Delete it once it is stopped."""
        raise NotImplementedError

    def run(self, argv: Sequence[str]) -> list[str]:
        """Run a command in it, and return that command's exit code: both tools pass one string to its shell."""
        raise NotImplementedError

    def add_nic(self, nic: str, mac: str, host_mac: str) -> list[list[str]]:
        """Add a NIC while it runs; both ends have the same name. The filter of MAC addresses, on by default, goes off.

        Nothing is saved (no --save): the NIC is removed when the container stops.
        """
        change = ["vzctl", "set", self.ident]
        return [
            [*change, "--netif_add", f"{nic},{mac},{nic},{host_mac}"],
            [*change, "--ifname", nic, "--mac_filter", "off"],
        ]

    def remove_nic(self, nic: str) -> list[str]:
        """Remove a NIC while it runs."""
        return ["vzctl", "set", self.ident, "--netif_del", nic]

    def status(self, host: Host) -> tuple[bool, bool]:
        """Return whether the container exists, and whether it runs; TestbedError for unexpected output.

        The output is one line: `CTID 101 exist mounted running` (vzctl(8), "status"), `CT name exist running` (prlctl).
        """
        output = run_checked(host, [self.tool, "status", self.ident], timeout_s=60.0).strip()
        words = output.split()[2:]  # a container may be called `running`
        if not {"exist", "deleted"} & set(words):
            raise TestbedError(f"`{self.tool} status {self.ident}` makes no sense: {output or 'no output'}")
        return "exist" in words, "exist" in words and "running" in words

    def name(self, host: Host) -> str:
        """Return its name on this machine; empty without a name (yet)."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Vzctl(OpenVzContainer):
    """A container of OpenVZ 6."""

    tool: ClassVar[Tool] = "vzctl"
    needs: ClassVar[frozenset[str]] = frozenset({"vzctl"})
    lister: ClassVar[str] = "vzlist --all"

    def create(self, name: str, template: str) -> list[str]:
        return ["vzctl", "create", self.ident, *(["--ostemplate", template] if template else []), "--name", name]

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        memory = ["--ram", f"{memory_mib}M", "--swap", "0"]  # "you must only set --ram and --swap"
        return ["vzctl", "set", self.ident, "--onboot", "no", *memory, *shares, *_switched_on(features), "--save"]

    def stop(self, *, at_once: bool) -> list[str]:
        return ["vzctl", "stop", self.ident, *(["--fast"] if at_once else [])]

    def destroy(self) -> list[str]:
        return ["vzctl", "destroy", self.ident]

    def run(self, argv: Sequence[str]) -> list[str]:
        return ["vzctl", "exec2", self.ident, shlex.join(argv)]

    def name(self, host: Host) -> str:
        output = run_checked(host, ["vzlist", "-a", "-H", "-t", "-o", "name", self.ident]).strip()
        return "" if output == "-" else output


@dataclass(frozen=True, slots=True)
class Prlctl(OpenVzContainer):
    """A container of Virtuozzo or OpenVZ 7."""

    tool: ClassVar[Tool] = "prlctl"
    needs: ClassVar[frozenset[str]] = frozenset({"prlctl", "vzctl"})
    lister: ClassVar[str] = "prlctl list --all"

    def create(self, name: str, template: str) -> list[str]:
        return ["prlctl", "create", name, *(["--ostemplate", template] if template else []), "--vmtype", "ct"]

    def configure(self, memory_mib: int, shares: Sequence[str], features: Sequence[str]) -> list[str]:
        memory = ["--memsize", f"{memory_mib}M"]
        return ["prlctl", "set", self.ident, "--autostart", "off", *memory, *shares, *_switched_on(features)]

    def stop(self, *, at_once: bool) -> list[str]:
        return ["prlctl", "stop", self.ident, *(["--kill"] if at_once else [])]

    def destroy(self) -> list[str]:
        return ["prlctl", "delete", self.ident]

    def run(self, argv: Sequence[str]) -> list[str]:
        return ["prlctl", "exec", self.ident, shlex.join(argv)]

    def name(self, host: Host) -> str:
        return self.ident


def box(tool: str, ident: str) -> OpenVzContainer:
    """Return the container for one of the two tools."""
    return {"vzctl": Vzctl, "prlctl": Prlctl}[tool](ident)


def shares(weight: int | None, limit: float | None, cpus: Sequence[int]) -> list[str]:
    """Return both tools' options for a CPU entitlement (100 is the usual weight; 1.0 is one CPU, i.e. 100 percent)."""
    options = ["--cpuunits", str(weight * _UNITS_OF_WEIGHT)] if weight is not None else []
    options += ["--cpulimit", str(round(limit * 100))] if limit is not None else []
    return options + (["--cpumask", ",".join(map(str, cpus))] if cpus else [])


def _switched_on(features: Sequence[str]) -> list[str]:
    return ["--features", ",".join(f"{feature}:on" for feature in features)] if features else []


_CREATE_S = 900.0  # a template may have to be downloaded and unpacked
_OTHERWISE_S = 300.0  # `vzctl stop` alone waits up to 120 s for a container to shut down


@dataclass(frozen=True, slots=True)
class OfContainer(Change):
    """A change to one container, by its name or number in `tool`."""

    tool: str
    ident: str

    @property
    def _box(self) -> OpenVzContainer:
        return box(self.tool, self.ident)

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
class AddContainer(OfContainer):
    """A container of netbench, made from a template; undo stops and destroys it."""

    name: str
    template: str
    memory_mib: int
    shares: tuple[str, ...] = ()
    features: tuple[str, ...] = ()

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        made = self._box.create(self.name, self.template)
        return [made, self._box.configure(self.memory_mib, self.shares, self.features)]

    def found(self, look: MachineState) -> Self:
        exists, _ = self._box.status(look.host)
        if exists:
            raise not_ours(f"the container {self.ident}")
        return self

    def undo(self, host: Host) -> None:
        exists, runs = self._box.status(host)
        # A container with another name was made by somebody else meanwhile. One that is half made has no name yet.
        if not exists or not self.name.startswith(PREFIX) or self._box.name(host) not in ("", self.name):
            return
        if runs:
            run_checked(host, self._box.stop(at_once=True), timeout_s=_OTHERWISE_S)
        run_checked(host, self._box.destroy(), timeout_s=_OTHERWISE_S)


@dataclass(frozen=True, slots=True)
class StartContainer(OfContainer):
    """Start a container; one that `ran` before is left unchanged. Undo stops netbench's `own` containers at once."""

    own: bool
    ran: bool = False

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return [] if self.ran else [self._box.start()]

    def found(self, look: MachineState) -> Self:
        exists, runs = self._box.status(look.host)
        if not exists:
            raise TestbedError(f"there is no container {self.ident}: name one that `{self._box.lister}` lists")
        return replace(self, ran=runs)

    def undo(self, host: Host) -> None:
        if not self.ran and self._box.status(host)[1]:
            run_checked(host, self._box.stop(at_once=self.own), timeout_s=_OTHERWISE_S)


@dataclass(frozen=True, slots=True)
class AddContainerNic(OfContainer):
    """A NIC of a running container: a pair of virtual Ethernet interfaces, both ends named `nic`."""

    nic: str
    mac: str
    host_mac: str

    @property
    def _commands(self) -> Sequence[Sequence[str]]:
        return self._box.add_nic(self.nic, self.mac, self.host_mac)

    def found(self, look: MachineState) -> Self:
        look.refuse_existing(None, self.nic)
        return self

    def undo(self, host: Host) -> None:
        # It is gone if the container has stopped, and may never have been made.
        if self._box.status(host)[1] and host.run(["ip", "link", "show", "dev", self.nic]).exit_code == 0:
            run_checked(host, self._box.remove_nic(self.nic), timeout_s=_OTHERWISE_S)
