"""Network namespaces and links: made, lent, brought up, made ports of a bridge, their offloads switched off."""

import shlex
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import (
    Change,
    InNamespace,
    Look,
    Request,
    RequestInNamespace,
    ask_ip,
    is_gone,
    not_ours,
    tell,
    within,
)

# `$$` is the shell's, which has not left its namespace; it must be there still, and not have become `ip` itself.
_SEND_HOME = 'ip -n "$0" link set "$1" netns $$; exit $?'

# What would make one frame on the wire differ from one frame counted: the names of `ethtool -K` and `-k`.
_OFFLOADS = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}


@dataclass(frozen=True, slots=True)
class AddNamespace(Request):
    """A named network namespace."""

    name: str

    @property
    def line(self) -> tuple[str, ...]:
        return "netns", "add", self.name

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "netns", "del", self.name

    def found(self, look: Look) -> Self:
        if self.name in look.namespaces():
            raise not_ours(f"the network namespace {self.name}")
        return self


@dataclass(frozen=True, slots=True)
class AddVeth(Request):
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
    def line(self) -> tuple[str, ...]:
        one, other = _in_netns(self.netns), _in_netns(self.peer_netns)
        peer = ("type", "veth", "peer", self.peer, *other, "address", self.peer_mac)
        return "link", "add", self.interface, *one, "address", self.mac, *peer

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, look: Look) -> Self:
        look.refuse_existing(self.netns, self.interface)
        look.refuse_existing(self.peer_netns, self.peer)
        return self

    @property
    def undo_tool(self) -> tuple[str, ...]:
        return within("ip", self.netns)


@dataclass(frozen=True, slots=True)
class AddBridge(RequestInNamespace):
    """A bridge that only forwards: no spanning tree, no multicast snooping, no netfilter detour."""

    interface: str

    @property
    def line(self) -> tuple[str, ...]:
        quiet = ("stp_state", "0", "mcast_snooping", "0", "forward_delay", "0")
        return "link", "add", self.interface, "type", "bridge", *quiet

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, look: Look) -> Self:
        look.refuse_existing(self.netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class AddTap(RequestInNamespace):
    """A tap for a NIC of a guest; each frame on it has room for a virtio header (tuntap.rst, IFF_VNET_HDR)."""

    interface: str
    queues: int = 1

    @property
    def line(self) -> tuple[str, ...]:
        several = ("multi_queue",) if self.queues > 1 else ()
        return "tuntap", "add", "dev", self.interface, "mode", "tap", "vnet_hdr", *several

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, look: Look) -> Self:
        look.refuse_existing(self.netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class SetUp(RequestInNamespace):
    """An interface brought up; `was_up` is how it was found, None where it was made by the same command."""

    interface: str
    was_up: bool | None = None

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", self.interface, "up"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("link", "set", self.interface, "down") if self.was_up is False else ()

    def found(self, look: Look) -> Self:
        link = look.links(self.netns).get(self.interface)
        return replace(self, was_up=None if link is None else "UP" in link.get("flags", ()))


@dataclass(frozen=True, slots=True)
class Enslave(RequestInNamespace):
    """An interface made a port of a bridge."""

    interface: str
    bridge: str

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", self.interface, "master", self.bridge

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "set", self.interface, "nomaster"


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
    def command(self) -> str:
        return f"ip link set {self.interface} netns {self.netns}"

    def found(self, look: Look) -> Self:
        link = look.links(None).get(self.interface)
        if link is None:
            raise TestbedError(f"there is no interface {self.interface} in this machine")
        routes = [
            route
            for family in ("-4", "-6")
            for route in ask_ip(look.host, None, family, "route", "show", "table", "all", "dev", self.interface)
            if route.get("protocol") != "kernel"
        ]
        lost = [*routes, *ask_ip(look.host, None, "neigh", "show", "nud", "permanent", "dev", self.interface)]
        if lost:
            raise UsageError(
                f"port {self.interface} has {len(lost)} static routes or neighbours, which would be lost while it is "
                f"lent to a namespace: remove them first (`ip route show dev {self.interface}`, and `ip neigh …`)"
            )
        # The kernel gives the interface a new address of link scope by itself.
        own = [one for one in link.get("addr_info", ()) if one["scope"] != "link"]
        addresses = tuple(f"{one['local']}/{one['prefixlen']}" for one in own)
        return replace(self, was_up="UP" in link["flags"], addresses=addresses)

    def make(self, host: Host) -> None:
        done = host.run(["ip", "link", "set", self.interface, "netns", self.netns])
        if done.exit_code != 0:
            raise TestbedError(done.stderr.strip())

    def undo(self, host: Host) -> None:
        # A port that never got there is still at home, and there is nothing to bring back.
        sent = host.run(["sh", "-c", _SEND_HOME, self.netns, self.interface])
        if sent.exit_code != 0 and not is_gone(sent.stderr):
            raise TestbedError(sent.stderr.strip())
        back = [("link", "set", self.interface, "up")] if self.was_up else []
        addresses = [("address", "replace", address, "dev", self.interface) for address in self.addresses]
        if back or addresses:
            for words in tell(host, ("ip",), [*back, *addresses], all_of_them=True).values():
                if not is_gone(words):
                    raise TestbedError(words)


@dataclass(frozen=True, slots=True)
class OffloadsOff(InNamespace):
    """GRO, GSO, TSO and LRO switched off and verified; `old` are those found on."""

    interface: str
    old: tuple[str, ...] = ()

    @property
    def command(self) -> str:
        words = (word for name in _OFFLOADS for word in (name, "off"))
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
        """The state of each: `on`, `off`, `off [fixed]`, …"""
        text = run_checked(self._within(host), ["ethtool", "-k", self.interface])
        states = dict(line.strip().split(": ", 1) for line in text.splitlines() if ": " in line)
        return {short: states[long].strip() for short, long in _OFFLOADS.items() if long in states}


def _in_netns(netns: str | None) -> tuple[str, ...]:
    return ("netns", netns) if netns else ()
