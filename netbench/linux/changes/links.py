"""Network namespaces and links: made, lent, brought up, made ports of a bridge, their offloads switched off."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import (
    InNamespace,
    Look,
    Request,
    RequestInNamespace,
    is_gone,
    not_ours,
    within,
)
from netbench.model.units import USUAL_MTU

# What would make one frame on the wire differ from one frame counted: the names of `ethtool -K` and `-k`.
_OFFLOADS = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}
# What would keep the VLAN tag of a frame beside it, over a veth pair too: there no XDP program sees it.
_TAGGING = {name: name for name in ("tx-vlan-offload", "tx-vlan-stag-hw-insert")}


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
    mtu: int = USUAL_MTU

    @property
    def inside(self) -> str | None:
        # The kernel takes its time with what a removed namespace had: an end that is in none is removed for itself.
        return self.netns if self.peer_netns else None

    @property
    def line(self) -> tuple[str, ...]:
        one, other = _in_netns(self.netns), _in_netns(self.peer_netns)
        mtu = ("mtu", str(self.mtu)) if self.mtu != USUAL_MTU else ()
        peer = ("type", "veth", "peer", self.peer, *other, "address", self.peer_mac, *mtu)
        return "link", "add", self.interface, *one, "address", self.mac, *mtu, *peer

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
class AddLink(RequestInNamespace):
    """An interface of netbench's own, which is undone by removing it."""

    interface: str

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, look: Look) -> Self:
        look.refuse_existing(self.netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class AddBridge(AddLink):
    """A bridge that only forwards: no multicast snooping, no netfilter detour, and no spanning tree.

    Unless that has a forward delay, `stp_s`: for twice as long after its link came up, a port forwards nothing.
    """

    stp_s: float | None = None

    @property
    def line(self) -> tuple[str, ...]:
        stp, delay_cs = ("0", 0) if self.stp_s is None else ("1", round(100 * self.stp_s))
        quiet = ("stp_state", stp, "mcast_snooping", "0", "forward_delay", str(delay_cs))
        return "link", "add", self.interface, "type", "bridge", *quiet


@dataclass(frozen=True, slots=True)
class AddTap(AddLink):
    """A tap for a NIC of a guest; each frame on it has room for a virtio header (tuntap.rst, IFF_VNET_HDR)."""

    queues: int = 1

    @property
    def line(self) -> tuple[str, ...]:
        several = ("multi_queue",) if self.queues > 1 else ()
        return "tuntap", "add", "dev", self.interface, "mode", "tap", "vnet_hdr", *several


@dataclass(frozen=True, slots=True)
class AddMacvtap(AddLink):
    """A tap over a NIC, which takes in all that comes there, whomever it is for (mode passthru, macvlan.c)."""

    nic: str

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "add", "link", self.nic, "name", self.interface, "type", "macvtap", "mode", "passthru"


@dataclass(frozen=True, slots=True)
class SetUp(RequestInNamespace):
    """An interface brought up; `was_up` is how it was found, None where it was made by the same command."""

    interface: str
    was_up: bool | None = None

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "up"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("link", "set", "dev", self.interface, "down") if self.was_up is False else ()

    def found(self, look: Look) -> Self:
        link = look.links(self.netns).get(self.interface)
        return replace(self, was_up=None if link is None else "UP" in link.get("flags", ()))


@dataclass(frozen=True, slots=True)
class SetPromiscuous(RequestInNamespace):
    """An interface that takes frames for whomever; `was` is how it was found."""

    interface: str
    was: bool = False

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "promisc", "on"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return () if self.was else ("link", "set", "dev", self.interface, "promisc", "off")

    def found(self, look: Look) -> Self:
        return replace(self, was="PROMISC" in look.links(self.netns).get(self.interface, {}).get("flags", ()))


@dataclass(frozen=True, slots=True)
class Enslave(RequestInNamespace):
    """An interface made a port of a bridge."""

    interface: str
    bridge: str

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "master", self.bridge

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "nomaster"


@dataclass(frozen=True, slots=True)
class OffloadsOff(InNamespace):
    """GRO, GSO, TSO and LRO switched off and verified; `old` are all that go with them, as they were wanted: `gro on`.

    To switch TSO on is to switch on all of its kinds, of which some may have been off. With `tagging`, VLAN
    tags are put into frames as well, where all can see them.
    """

    interface: str
    old: tuple[str, ...] = ()
    tagging: bool = False

    @property
    def command(self) -> str:
        words = (word for name in self._names for word in (name, "off"))
        return shlex.join(self._argv("ethtool", "-K", self.interface, *words))

    def found(self, look: Look) -> Self:
        return replace(self, old=tuple(self._wanted(look.host)))

    def make(self, host: Host) -> None:
        on = [name for name, state in self._states(host).items() if state == "on"]
        self._set(host, [f"{name} off" for name in on])
        still_on = [name for name, state in self._states(host).items() if state in ("on", "on [fixed]")]
        if still_on:
            raise TestbedError(
                f"{self.interface}: {', '.join(still_on)} cannot be switched off; frames would be merged or split "
                "on the way and not be counted one by one"
            )

    def undo(self, host: Host) -> None:
        try:
            now = self._wanted(host)
        except TestbedError as error:
            if is_gone(str(error)):
                return  # the interface was removed
            raise
        self._set(host, [one for one in self.old if one not in now])

    def _set(self, host: Host, told: Sequence[str]) -> None:
        if told:
            words = [word for one in told for word in one.split()]
            run_checked(self._within(host), ["ethtool", "-K", self.interface, *words])

    @property
    def _names(self) -> dict[str, str]:
        return {**_OFFLOADS, **(_TAGGING if self.tagging else {})}

    def _states(self, host: Host) -> dict[str, str]:
        """The state of each: `on`, `off`, `off [fixed]`, …"""
        states = {name.strip(): state for name, state in self._listed(host)}
        return {short: states[long] for short, long in self._names.items() if long in states}

    def _wanted(self, host: Host) -> list[str]:
        """What is wanted of each that can be switched, and of the kinds of TSO instead of TSO itself."""
        wanted, group = [], ""
        short = {long: name for name, long in self._names.items()}
        for name, state in self._listed(host):
            if not name.startswith("\t"):
                group = name
            is_kind = name.startswith("\t") and short.get(group) == "tso"
            if (is_kind or short.get(name, "tso") != "tso") and "[fixed]" not in state:
                on = "requested on" in state or (state.startswith("on") and "requested off" not in state)
                wanted.append(f"{short.get(name, name.strip())} {'on' if on else 'off'}")
        return wanted

    def _listed(self, host: Host) -> list[tuple[str, str]]:
        return listed_features(self._within(host), self.interface)


def listed_features(host: Host, interface: str) -> list[tuple[str, str]]:
    """What `ethtool -k` lists, by name, and its state; a tab before those that belong to the one above."""
    text = run_checked(host, ["ethtool", "-k", interface])
    return [(name, state.strip()) for name, _, state in (line.partition(": ") for line in text.splitlines()) if state]


def _in_netns(netns: str | None) -> tuple[str, ...]:
    return ("netns", netns) if netns else ()
