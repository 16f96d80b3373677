"""Links that netbench makes: veth pairs, bridges, taps."""

from dataclasses import dataclass
from typing import Self

from netbench.hosts.base import run_checked
from netbench.linux.changes.base import Change, InNamespace, Machine
from netbench.linux.changes.requests import delete_argv, delete_link, in_netns, inside_of, ip, refuse_existing


@dataclass(frozen=True, slots=True)
class AddVeth(Change):
    """A veth pair, each end with a fixed MAC address, in its own namespace."""

    netns: str | None
    interface: str
    mac: str
    peer_netns: str | None
    peer: str
    peer_mac: str

    @property
    def inside(self) -> str | None:
        return self.netns or self.peer_netns

    @property
    def argv(self) -> tuple[str, ...]:
        one = (self.interface, *in_netns(self.netns), "address", self.mac)
        other = (self.peer, *in_netns(self.peer_netns), "address", self.peer_mac)
        return "ip", "link", "add", *one, "type", "veth", "peer", *other

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return delete_argv(self.netns, self.interface)

    def as_found(self, machine: Machine) -> Self:
        refuse_existing(machine, self.netns, self.interface)
        refuse_existing(machine, self.peer_netns, self.peer)
        return self

    def make(self, machine: Machine) -> None:
        peer: dict[str, object] = {"ifname": self.peer, "address": self.peer_mac}
        peer["net_ns_fd"] = f"/run/netns/{self.peer_netns}" if self.peer_netns else "/proc/self/ns/net"
        machine.netlink.socket(self.netns).link("add", ifname=self.interface, kind="veth", address=self.mac, peer=peer)

    def undo(self, machine: Machine) -> None:
        delete_link(machine, self.netns, self.interface)


@dataclass(frozen=True, slots=True)
class AddBridge(InNamespace):
    """A bridge that only forwards: no spanning tree, no multicast snooping, no netfilter detour."""

    interface: str

    @property
    def argv(self) -> tuple[str, ...]:
        quiet = ("stp_state", "0", "mcast_snooping", "0", "forward_delay", "0")
        return *ip(self.netns), "link", "add", self.interface, "type", "bridge", *quiet

    @property
    def undo_argv(self) -> tuple[str, ...]:
        return delete_argv(self.netns, self.interface)

    def make(self, machine: Machine) -> None:
        machine.netlink.socket(self.netns).link(
            "add",
            ifname=self.interface,
            kind="bridge",
            br_stp_state=0,
            br_mcast_snooping=0,
            br_forward_delay=0,
        )

    def undo(self, machine: Machine) -> None:
        delete_link(machine, self.netns, self.interface)


@dataclass(frozen=True, slots=True)
class AddTap(InNamespace):
    """A tap for a NIC of a guest; each frame on it has room for a virtio header (tuntap.rst, IFF_VNET_HDR)."""

    interface: str
    queues: int = 1

    @property
    def argv(self) -> tuple[str, ...]:
        return *inside_of(self.netns), *self._request()

    def as_found(self, machine: Machine) -> Self:
        refuse_existing(machine, self.netns, self.interface)
        return self

    def make(self, machine: Machine) -> None:
        run_checked(machine.hosts[self.netns], self._request())

    def undo(self, machine: Machine) -> None:
        delete_link(machine, self.netns, self.interface)

    def _request(self) -> list[str]:
        several = ["multi_queue"] if self.queues > 1 else []
        return ["ip", "tuntap", "add", "dev", self.interface, "mode", "tap", "vnet_hdr", *several]
