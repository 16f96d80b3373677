"""Sysctls and offloads."""

from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import ByCommand
from netbench.linux.changes.requests import inside_of

# What would make one frame on the wire differ from one frame counted (ethtool -K names).
OFFLOADS = ("gro", "gso", "tso", "lro")

_LONG_NAMES = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}


@dataclass(frozen=True, slots=True)
class SetSysctl(ByCommand):
    """A kernel setting; `old` is what it was. One that this kernel does not have is left alone if `optional`."""

    key: str
    value: str
    optional: bool = False
    old: str | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        return *inside_of(self.netns), "sysctl", "-w", f"{self.key}={self.value}"

    @property
    def _path(self) -> str:
        return "/proc/sys/" + self.key.replace(".", "/")

    def found_by(self, host: Host) -> Self:
        try:
            return replace(self, old=host.read(self._path).strip())
        except TestbedError:
            if self.optional:
                return self
            raise

    def make_by(self, host: Host) -> None:
        if self.old is not None and self.old != self.value:
            host.write(self._path, self.value)

    def undo_by(self, host: Host) -> None:
        if self.old is None or self.old == self.value:
            return
        try:
            host.read(self._path)
        except TestbedError:
            return  # the interface it belonged to is gone
        host.write(self._path, self.old)


@dataclass(frozen=True, slots=True)
class OffloadsOff(ByCommand):
    """GRO, GSO, TSO and LRO switched off and verified; `old` are those found on."""

    interface: str
    old: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        words = (word for name in OFFLOADS for word in (name, "off"))
        return *inside_of(self.netns), "ethtool", "-K", self.interface, *words

    def found_by(self, host: Host) -> Self:
        return replace(self, old=tuple(name for name, state in self._read(host).items() if state == "on"))

    def make_by(self, host: Host) -> None:
        if self.old:
            self._set(host, "off")
        still_on = [name for name, state in self._read(host).items() if state in ("on", "on [fixed]")]
        if still_on:
            raise TestbedError(
                f"{self.interface}: {', '.join(still_on)} cannot be switched off; frames would be merged or split "
                "on the way and not be counted one by one"
            )

    def undo_by(self, host: Host) -> None:
        if not self.old:
            return
        try:
            self._read(host)
        except TestbedError:
            return  # the interface is gone
        self._set(host, "on")

    def _set(self, host: Host, state: str) -> None:
        words = [word for name in self.old for word in (name, state)]
        run_checked(host, ["ethtool", "-K", self.interface, *words])

    def _read(self, host: Host) -> dict[str, str]:
        return read_offloads(host, self.interface)


def read_offloads(host: Host, interface: str) -> dict[str, str]:
    """The state of each of OFFLOADS on an interface: `on`, `off`, `off [fixed]`, …; TestbedError when unknown."""
    text = run_checked(host, ["ethtool", "-k", interface])
    states = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
    return {short: states[long].strip() for short, long in _LONG_NAMES.items() if long in states}
