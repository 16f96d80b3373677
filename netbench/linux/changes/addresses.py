"""Addresses, neighbours and forwarding entries."""

from dataclasses import dataclass
from socket import AF_INET
from typing import Self

from netbench.linux.changes.base import InNamespace, Machine
from netbench.linux.changes.requests import ip, not_ours, tolerating_gone

_PERMANENT = 0x80  # NUD_PERMANENT, linux/neighbour.h

_STATIC = 0x40  # NUD_NOARP: what `bridge fdb … static` sets; NUD_PERMANENT would mean the bridge's own address

_BY_KERNEL = 2  # RTPROT_KERNEL, linux/rtnetlink.h: routes that come and go with their addresses

_LINK_SCOPE = 253  # RT_SCOPE_LINK, linux/rtnetlink.h

_TO_MASTER = 0x04  # NTF_MASTER, linux/neighbour.h


@dataclass(frozen=True, slots=True)
class AddAddress(InNamespace):
    """An IPv4 address on an interface."""

    interface: str
    address: str
    prefix_length: int

    @property
    def argv(self) -> tuple[str, ...]:
        return self._command("add")

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return self._command("del")

    def _command(self, verb: str) -> tuple[str, ...]:
        return *ip(self.netns), "address", verb, f"{self.address}/{self.prefix_length}", "dev", self.interface

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(self.netns, self.interface)
        for found in machine.netlink.socket(self.netns).get_addr(index=index):
            if found.get_attr("IFA_ADDRESS") == self.address:
                raise not_ours(f"the address {self.address} on {self.interface}")
        return self

    def make(self, machine: Machine) -> None:
        self._request(machine, "add")

    def undo(self, machine: Machine) -> None:
        tolerating_gone(lambda: self._request(machine, "del"))

    def _request(self, machine: Machine, verb: str) -> None:
        index = machine.netlink.index(self.netns, self.interface)
        machine.netlink.socket(self.netns).addr(verb, index=index, address=self.address, prefixlen=self.prefix_length)


@dataclass(frozen=True, slots=True)
class AddNeighbour(InNamespace):
    """A permanent neighbour, so that forwarding never waits for ARP."""

    interface: str
    address: str
    mac: str

    @property
    def argv(self) -> tuple[str, ...]:
        whom = (self.address, "lladdr", self.mac, "dev", self.interface, "nud", "permanent")
        return *ip(self.netns), "neigh", "replace", *whom

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return *ip(self.netns), "neigh", "del", self.address, "dev", self.interface

    def as_found(self, machine: Machine) -> Self:
        index = machine.netlink.index(self.netns, self.interface)
        for found in machine.netlink.socket(self.netns).get_neighbours(ifindex=index, family=AF_INET):
            if found.get_attr("NDA_DST") == self.address and found["state"] & _PERMANENT:
                raise not_ours(f"the neighbour {self.address} on {self.interface}")
        return self

    def make(self, machine: Machine) -> None:
        index = machine.netlink.index(self.netns, self.interface)
        machine.netlink.socket(self.netns).neigh(
            "replace", ifindex=index, dst=self.address, lladdr=self.mac, state=_PERMANENT
        )

    def undo(self, machine: Machine) -> None:
        def request() -> None:
            index = machine.netlink.index(self.netns, self.interface)
            machine.netlink.socket(self.netns).neigh("del", ifindex=index, dst=self.address)

        tolerating_gone(request)


@dataclass(frozen=True, slots=True)
class AddForwardingEntry(InNamespace):
    """A permanent entry in a bridge's forwarding database: it goes with the bridge."""

    interface: str
    mac: str

    @property
    def argv(self) -> tuple[str, ...]:
        bridge = ("bridge", "-n", self.netns) if self.netns else ("bridge",)
        return *bridge, "fdb", "replace", self.mac, "dev", self.interface, "master", "static"

    def make(self, machine: Machine) -> None:
        machine.netlink.socket(self.netns).fdb(
            "replace",
            ifindex=machine.netlink.index(self.netns, self.interface),
            lladdr=self.mac,
            state=_STATIC,
            flags=_TO_MASTER,
        )
