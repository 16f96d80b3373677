"""Network namespaces and links: create them, bring them up, make them bridge ports, switch offloads off."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes.base import (
    InNamespace,
    KernelRequest,
    MachineState,
    RequestInNamespace,
    is_gone,
    not_ours,
    tool_in,
)
from netbench.model.units import USUAL_MTU

# Offloads that merge or split frames on the wire before they are counted: the names of `ethtool -K` and `-k`.
_OFFLOADS = {
    "gro": "generic-receive-offload",
    "gso": "generic-segmentation-offload",
    "tso": "tcp-segmentation-offload",
    "lro": "large-receive-offload",
}
# Offloads that keep the VLAN tag of a frame beside it, also on a veth pair: there XDP programs do not see the tag.
_TAGGING = {name: name for name in ("tx-vlan-offload", "tx-vlan-stag-hw-insert")}


@dataclass(frozen=True, slots=True)
class AddNamespace(KernelRequest):
    """A named network namespace."""

    name: str

    @property
    def line(self) -> tuple[str, ...]:
        return "netns", "add", self.name

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "netns", "del", self.name

    def found(self, state: MachineState) -> Self:
        if self.name in state.namespaces():
            raise not_ours(f"the network namespace {self.name}")
        return self


@dataclass(frozen=True, slots=True)
class AddVeth(KernelRequest):
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
        # The kernel removes links of a removed namespace late: an end outside namespaces is removed separately.
        return self.netns if self.peer_netns else None

    @property
    def line(self) -> tuple[str, ...]:
        netns_words, peer_netns_words = _in_netns(self.netns), _in_netns(self.peer_netns)
        mtu = ("mtu", str(self.mtu)) if self.mtu != USUAL_MTU else ()
        peer = ("type", "veth", "peer", self.peer, *peer_netns_words, "address", self.peer_mac, *mtu)
        return "link", "add", self.interface, *netns_words, "address", self.mac, *mtu, *peer

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, state: MachineState) -> Self:
        state.refuse_existing(self.netns, self.interface)
        state.refuse_existing(self.peer_netns, self.peer)
        return self

    @property
    def undo_tool(self) -> tuple[str, ...]:
        return tool_in("ip", self.netns)


@dataclass(frozen=True, slots=True)
class AddLink(RequestInNamespace):
    """An interface of netbench; undo removes it."""

    interface: str

    @property
    def undo_line(self) -> tuple[str, ...]:
        return "link", "del", self.interface

    def found(self, state: MachineState) -> Self:
        state.refuse_existing(self.netns, self.interface)
        return self


@dataclass(frozen=True, slots=True)
class AddBridge(AddLink):
    """A bridge that only forwards: no multicast snooping, no netfilter, and no spanning tree.

    With the forward delay `stp_s` it has spanning tree: then a port blocks for twice that time after its link came up.
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
    """A tap on a NIC that receives all frames of that NIC, with any address (mode passthru, macvlan.c)."""

    nic: str

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "add", "link", self.nic, "name", self.interface, "type", "macvtap", "mode", "passthru"


@dataclass(frozen=True, slots=True)
class SetUp(RequestInNamespace):
    """Bring an interface up; `was_up` is its former state, None where the same command creates it."""

    interface: str
    was_up: bool | None = None

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "up"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return ("link", "set", "dev", self.interface, "down") if self.was_up is False else ()

    def found(self, state: MachineState) -> Self:
        link = state.links(self.netns).get(self.interface)
        return replace(self, was_up=None if link is None else "UP" in link.get("flags", ()))


@dataclass(frozen=True, slots=True)
class SetPromiscuous(RequestInNamespace):
    """Make an interface receive frames with any address; `was` is its former state."""

    interface: str
    was: bool = False

    @property
    def line(self) -> tuple[str, ...]:
        return "link", "set", "dev", self.interface, "promisc", "on"

    @property
    def undo_line(self) -> tuple[str, ...]:
        return () if self.was else ("link", "set", "dev", self.interface, "promisc", "off")

    def found(self, state: MachineState) -> Self:
        return replace(self, was="PROMISC" in state.links(self.netns).get(self.interface, {}).get("flags", ()))


@dataclass(frozen=True, slots=True)
class Enslave(RequestInNamespace):
    """Make an interface a port of a bridge."""

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
    """Switch GRO, GSO, TSO and LRO off and verify it; `old` are the affected features as requested before: `gro on`.

    Switching TSO on switches on all of its kinds, some of which may have been off. With `tagging`, VLAN tags are
    put into frames as well, where every program sees them.
    """

    interface: str
    old: tuple[str, ...] = ()
    tagging: bool = False

    @property
    def command(self) -> str:
        words = (word for name in self._names for word in (name, "off"))
        return shlex.join(self._argv("ethtool", "-K", self.interface, *words))

    def found(self, state: MachineState) -> Self:
        return replace(self, old=tuple(self._wanted(state.host)))

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
        self._set(host, [setting for setting in self.old if setting not in now])

    def _set(self, host: Host, settings: Sequence[str]) -> None:
        if settings:
            words = [word for setting in settings for word in setting.split()]
            run_checked(self._within(host), ["ethtool", "-K", self.interface, *words])

    @property
    def _names(self) -> dict[str, str]:
        return {**_OFFLOADS, **(_TAGGING if self.tagging else {})}

    def _states(self, host: Host) -> dict[str, str]:
        """Return the state of each feature: `on`, `off`, `off [fixed]`, …"""
        states = {name.strip(): state for name, state in self._listed(host)}
        return {short: states[long] for short, long in self._names.items() if long in states}

    def _wanted(self, host: Host) -> list[str]:
        """Return the requested state of each switchable feature, with the kinds of TSO instead of TSO itself."""
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
    """Return name and state of each feature in `ethtool -k`; a tab marks those that belong to the one above."""
    text = run_checked(host, ["ethtool", "-k", interface])
    return [(name, state.strip()) for name, _, state in (line.partition(": ") for line in text.splitlines()) if state]


def _in_netns(netns: str | None) -> tuple[str, ...]:
    return ("netns", netns) if netns else ()
