"""What every change is, and what it acts with."""

import shlex
from dataclasses import dataclass
from typing import Any, Self

from netbench.hosts.base import Host
from netbench.linux.netlink import Netlink


@dataclass(frozen=True, slots=True)
class Machine:
    """What a change acts with: the netlink sockets, and a host per network namespace name."""

    netlink: Netlink
    hosts: dict[str | None, Host]

    def link(self, netns: str | None, verb: str, interface: str, **settings: Any) -> None:  # noqa: ANN401 - pyroute2 is untyped
        """One `ip link` request on an interface that is there."""
        self.netlink.socket(netns).link(verb, index=self.netlink.index(netns, interface), **settings)


@dataclass(frozen=True, slots=True)
class Change:
    """One change. `inside` is the namespace it lives in; it goes with that namespace when netbench made it."""

    @property
    def inside(self) -> str | None:
        """The namespace whose removal undoes this change; None when it must be undone by itself."""
        return None

    @property
    def argv(self) -> tuple[str, ...]:
        """The command that would do the same, or does it on a machine that netbench has for itself."""
        raise NotImplementedError

    @property
    def undo_argv(self) -> tuple[str, ...]:
        """The command that takes it back, empty where it goes with something else; only where `make` uses netlink."""
        return ()

    @property
    def command(self) -> str:
        """The command that would do the same, as text."""
        return shlex.join(self.argv)

    def as_found(self, machine: Machine) -> Self:
        """This change with the value it will replace, read before anything is written to the journal."""
        return self

    def make(self, machine: Machine) -> None:
        """Make the change."""
        raise NotImplementedError

    def undo(self, machine: Machine) -> None:
        """Take it back; harmless when it was never made."""


@dataclass(frozen=True, slots=True)
class InNamespace(Change):
    """A change inside a namespace, or (None) outside all."""

    netns: str | None

    @property
    def inside(self) -> str | None:
        return self.netns


@dataclass(frozen=True, slots=True)
class ByCommand(InNamespace):
    """A change that is made by commands and files of a host, and so in the same way on every machine."""

    def found_by(self, host: Host) -> Self:
        """As `as_found`."""
        return self

    def make_by(self, host: Host) -> None:
        """As `make`."""
        raise NotImplementedError

    def undo_by(self, host: Host) -> None:
        """As `undo`."""

    def as_found(self, machine: Machine) -> Self:
        return self.found_by(machine.hosts[self.netns])

    def make(self, machine: Machine) -> None:
        self.make_by(machine.hosts[self.netns])

    def undo(self, machine: Machine) -> None:
        self.undo_by(machine.hosts[self.netns])
