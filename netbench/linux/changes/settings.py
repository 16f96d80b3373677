"""Settings of the kernel and of NICs, tables of nftables, and directories of a run."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import Change, InNamespace, Look, not_ours
from netbench.linux.state import STATE_DIRECTORY

# What would make one frame on the wire differ from one frame counted (ethtool -K names).
OFFLOADS = ("gro", "gso", "tso", "lro")

_LONG_NAMES = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}


@dataclass(frozen=True, slots=True)
class SetSysctl(InNamespace):
    """A kernel setting; `old` is what it was. One that this kernel does not have is left alone if `optional`."""

    key: str
    value: str
    optional: bool = False
    old: str | None = None

    @property
    def command(self) -> str:
        return shlex.join(self._argv("sysctl", "-w", f"{self.key}={self.value}"))

    @property
    def _path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")

    def found(self, look: Look) -> Self:
        try:
            return replace(self, old=self._within(look.host).read(self._path).strip())
        except TestbedError:
            if self.optional:
                return self
            raise

    def make(self, host: Host) -> None:
        if self.old is not None and self.old != self.value:
            self._within(host).write(self._path, self.value)

    def undo(self, host: Host) -> None:
        if self.old is None or self.old == self.value:
            return
        host = self._within(host)
        try:
            host.read(self._path)
        except TestbedError:
            return  # the interface it belonged to is gone
        host.write(self._path, self.old)


@dataclass(frozen=True, slots=True)
class OffloadsOff(InNamespace):
    """GRO, GSO, TSO and LRO switched off and verified; `old` are those found on."""

    interface: str
    old: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        words = (word for name in OFFLOADS for word in (name, "off"))
        return shlex.join(self._argv("ethtool", "-K", self.interface, *words))

    def found(self, look: Look) -> Self:
        return replace(self, old=tuple(name for name, state in self._read(look.host).items() if state == "on"))

    def make(self, host: Host) -> None:
        if self.old:
            self._set(host, "off")
        still_on = [name for name, state in self._read(host).items() if state in ("on", "on [fixed]")]
        if still_on:
            raise TestbedError(
                f"{self.interface}: {', '.join(still_on)} cannot be switched off; frames would be merged or split "
                "on the way and not be counted one by one"
            )

    def undo(self, host: Host) -> None:
        if not self.old:
            return
        try:
            self._read(host)
        except TestbedError:
            return  # the interface is gone
        self._set(host, "on")

    def _set(self, host: Host, state: str) -> None:
        words = [word for name in self.old for word in (name, state)]
        run_checked(self._within(host), ["ethtool", "-K", self.interface, *words])

    def _read(self, host: Host) -> dict[str, str]:
        return read_offloads(self._within(host), self.interface)


@dataclass(frozen=True, slots=True)
class AddTable(InNamespace):
    """An nftables table of netbench's own; `rules` are a script for `nft -f` that makes it, also where it is there."""

    family: str
    table: str
    rules: str

    @property
    def command(self) -> str:
        return f"{shlex.join(self._argv('nft', '-f', '-'))} <<'END'\n{self.rules}END"

    def found(self, look: Look) -> Self:
        if self._within(look.host).run(["nft", "list", "table", self.family, self.table]).exit_code == 0:
            raise not_ours(f"the nftables table {self.family} {self.table}")
        return self

    def make(self, host: Host) -> None:
        run_checked(self._within(host), ["nft", "-f", "-"], stdin=self.rules)

    def undo(self, host: Host) -> None:
        # Adding first makes deleting succeed whether or not it was there.
        script = f"add table {self.family} {self.table}\ndelete table {self.family} {self.table}\n"
        run_checked(self._within(host), ["nft", "-f", "-"], stdin=script)


@dataclass(frozen=True, slots=True)
class AddRunDirectory(Change):
    """A directory of netbench's own under its state directory, for the sockets and the console of a guest."""

    path: str

    @property
    def command(self) -> str:
        return shlex.join(self._argv)

    @property
    def _argv(self) -> tuple[str, ...]:
        return "mkdir", "-p", "-m", "700", self.path

    def make(self, host: Host) -> None:
        run_checked(host, self._argv)

    def undo(self, host: Host) -> None:
        if Path(self.path).is_relative_to(STATE_DIRECTORY):
            run_checked(host, ["rm", "-rf", self.path])


def read_offloads(host: Host, interface: str) -> dict[str, str]:
    """The state of each of OFFLOADS on an interface: `on`, `off`, `off [fixed]`, …; TestbedError when unknown."""
    text = run_checked(host, ["ethtool", "-k", interface])
    states = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {short: states[long].strip() for short, long in _LONG_NAMES.items() if long in states}
