"""What is done with links that are there: moved, set up, made ports of a bridge."""

from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from netbench.errors import TestbedError, UsageError
from netbench.linux.changes.addresses import _BY_KERNEL, _LINK_SCOPE, _PERMANENT
from netbench.linux.changes.base import Change, InNamespace, Machine
from netbench.linux.changes.requests import ip, is_up, tolerant_link, tolerating_gone


@dataclass(frozen=True, slots=True)
class MovePort(Change):
    """A port of the machine, lent to a namespace.

    The kernel takes it down and its addresses away on the move: `was_up` and `addresses` (with prefix
    length) are how it was found, and how it comes back.
    """

    interface: str
    netns: str
    was_up: bool = False
    addresses: tuple[str, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        return "ip", "link", "set", self.interface, "netns", self.netns

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(None, self.interface)
        socket = machine.netlink.socket(None)
        lost = [route for route in socket.get_routes(oif=index) if route["proto"] != _BY_KERNEL]
        lost += [found for found in socket.get_neighbours(ifindex=index) if found["state"] & _PERMANENT]
        if lost:
            raise UsageError(
                f"port {self.interface} has {len(lost)} static routes or neighbours, which would be lost while it is "
                f"lent to a namespace: remove them first (`ip route show dev {self.interface}`, and `ip neigh …`)"
            )
        addresses = [
            f"{found.get_attr('IFA_ADDRESS')}/{found['prefixlen']}"
            for found in socket.get_addr(index=index)
            if found["scope"] != _LINK_SCOPE  # the kernel gives the interface a new one of those by itself
        ]
        return replace(self, was_up=is_up(machine, None, self.interface), addresses=tuple(addresses))

    def make(self, machine: Machine) -> None:
        machine.link(None, "set", self.interface, net_ns_fd=f"/run/netns/{self.netns}")

    def undo(self, machine: Machine) -> None:
        if (Path("/run/netns") / self.netns).exists():
            # A port that never got there is still at home: TestbedError, and nothing to bring back.
            with suppress(TestbedError):
                machine.link(self.netns, "set", self.interface, net_ns_fd="/proc/self/ns/net")
        if self.was_up:
            tolerant_link(machine, None, self.interface, state="up")
        tolerating_gone(lambda: self._restore_addresses(machine))

    def _restore_addresses(self, machine: Machine) -> None:
        index = machine.netlink.index(None, self.interface)
        for address in self.addresses:
            plain, _, length = address.partition("/")
            machine.netlink.socket(None).addr("replace", index=index, address=plain, prefixlen=int(length))


@dataclass(frozen=True, slots=True)
class SetUp(InNamespace):
    """An interface brought up; `was_up` is how it was found."""

    interface: str
    was_up: bool | None = None

    @property
    def argv(self) -> tuple[str, ...]:
        return *ip(self.netns), "link", "set", self.interface, "up"

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *ip(self.netns), "link", "set", self.interface, "down"

    def as_found(self, machine: Machine) -> Self:
        return replace(self, was_up=is_up(machine, self.netns, self.interface))

    def make(self, machine: Machine) -> None:
        machine.link(self.netns, "set", self.interface, state="up")

    def undo(self, machine: Machine) -> None:
        if self.was_up is False:
            tolerant_link(machine, self.netns, self.interface, state="down")


@dataclass(frozen=True, slots=True)
class Enslave(InNamespace):
    """An interface made a port of a bridge."""

    interface: str
    bridge: str

    @property
    def argv(self) -> tuple[str, ...]:
        return *ip(self.netns), "link", "set", self.interface, "master", self.bridge

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *ip(self.netns), "link", "set", self.interface, "nomaster"

    def make(self, machine: Machine) -> None:
        machine.link(self.netns, "set", self.interface, master=machine.netlink.index(self.netns, self.bridge))

    def undo(self, machine: Machine) -> None:
        tolerant_link(machine, self.netns, self.interface, master=0)
