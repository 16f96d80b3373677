"""Counters of NICs, read in one batch per namespace: by netlink, or by `ip` (iproute2's ip/ipaddress.c)."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.netlink import Netlink, ask, attributes, nested, number
from netbench.model.foreign_text import decoded
from netbench.model.interfaces import InterfaceRef

_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_OPERATIONAL = ("UP", "UNKNOWN")  # UNKNOWN: a driver that does not report its state (operstates.rst)
_IN_OPERATION = (6, 0)  # IF_OPER_UP and IF_OPER_UNKNOWN, linux/if.h
_FORWARDING = 3  # BR_STATE_FORWARDING, linux/if_bridge.h
_RTM_GETLINK = 18
_LINK = struct.Struct("=BxxxiI4x")  # ifinfomsg: family, type, index, flags, change
_STATS = struct.Struct("=16Q")  # rtnl_link_stats64 up to rx_missed_errors
_OTHERHOST = struct.Struct("=192xQ")  # its rx_otherhost_dropped, the last one
_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_OPERSTATE, _IFLA_LINKINFO = 1, 3, 10, 16, 18
_IFLA_STATS64, _IFLA_CARRIER_CHANGES = 23, 35
_IFLA_INFO_SLAVE_KIND, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE = 4, 5, 1


@dataclass(frozen=True, slots=True)
class NicCounters:
    """Frame counters of a NIC since its creation, and the state of its link.

    `rx_dropped` is the column of this name in /proc/net/dev: frames that the host did not process, and frames for which
    the NIC found no buffer. Only the latter are not in `rx` (struct rtnl_link_stats64 in linux/if_link.h). The same
    document makes FIFO errors part of `tx_errors`, and leaves it to the driver whether they are part of `rx_errors`.
    `rx_otherhost_dropped` are frames to another MAC address, which are in `rx` and which the IP layer dropped. It is
    None before Linux 5.19; `ip` omits it while it is 0 as well.
    """

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int | None  # None before Linux 3.15, which does not count them
    mac: str
    index: int  # changes when a NIC is removed and made again
    master: int  # index of the bridge it belongs to, 0 for none
    rx_otherhost_dropped: int | None = None
    forwards: bool = True  # in operation, and not blocked as a bridge port: up to a second later than `up`


def read_nics(host: Host, netlink: Netlink | None, places: Iterable[InterfaceRef]) -> dict[InterfaceRef, NicCounters]:
    """Return the counters of NICs of a machine, by netlink if it is this one; without NICs that are gone.

    TestbedError when the machine does not answer, or a whole namespace is gone.
    """
    wanted: dict[str | None, list[InterfaceRef]] = {}
    for place in places:
        wanted.setdefault(place.netns, []).append(place)
    found: dict[InterfaceRef, NicCounters] = {}
    for netns, members in wanted.items():
        links = _ask_netlink(netlink, netns) if netlink else _ask_ip(host, netns)
        found |= {place: links[place.interface] for place in members if place.interface in links}
    return found


def list_command(netns: str | None = None) -> list[str]:
    """Return the command that lists NICs; -s twice for the errors by kind as well."""
    return ["ip", *(("-n", netns) if netns else ()), "-j", "-d", "-s", "-s", "link", "show"]


def parse_links(text: str) -> dict[str, NicCounters]:
    """Return the interfaces by name; ValueError, LookupError or TypeError for other texts."""
    links = json.loads(text, strict=False)  # iproute2 writes control characters of names as they are
    indices = {link["ifname"]: link["ifindex"] for link in links}
    return {link["ifname"]: _counters(link, indices) for link in links}


def _counters(link: Mapping[str, Any], indices: Mapping[str, int]) -> NicCounters:
    rx, tx = link["stats64"]["rx"], link["stats64"]["tx"]
    port = link.get("linkinfo", {}).get("info_slave_data", {})
    return NicCounters(
        rx=rx["packets"],
        tx=tx["packets"],
        rx_dropped=rx["dropped"] + rx["missed_errors"],
        tx_dropped=tx["dropped"],
        rx_errors=rx["errors"],
        tx_errors=tx["errors"],
        up={"UP", "LOWER_UP"} <= set(link["flags"]),
        carrier_changes=tx.get("carrier_changes"),
        mac=link.get("address", ""),
        index=link["ifindex"],
        master=indices.get(link.get("master", ""), 0),
        rx_otherhost_dropped=rx.get("otherhost"),
        forwards=link["operstate"] in _OPERATIONAL and port.get("state", "forwarding") == "forwarding",
    )


def _ask_ip(host: Host, netns: str | None) -> dict[str, NicCounters]:
    text = run_checked(host, list_command(netns))
    try:
        return parse_links(text)
    except (ValueError, LookupError, TypeError) as error:
        raise TestbedError(f"{host}: its list of links makes no sense; it needs iproute2") from error


def _ask_netlink(netlink: Netlink, netns: str | None) -> dict[str, NicCounters]:
    try:
        return dict(links_of(ask(netlink.socket(netns), _RTM_GETLINK, _LINK.pack(0, 0, 0), all_of_them=True)))
    except OSError as error:
        raise TestbedError(f"the NICs of {netns or 'this machine'} cannot be read: {error.strerror}") from error


def links_of(messages: Iterable[bytes]) -> Iterator[tuple[str, NicCounters]]:
    """Yield names and interfaces from messages about links (linux/if_link.h: ifinfomsg, rtnl_link_stats64)."""
    for message in messages:
        _, index, flags = _LINK.unpack_from(message)
        link = attributes(message[_LINK.size :])
        rx, tx, _, _, rx_errors, tx_errors, rx_dropped, tx_dropped, *rest = _STATS.unpack_from(link[_IFLA_STATS64])
        changes = link.get(_IFLA_CARRIER_CHANGES)
        counts_otherhost = len(link[_IFLA_STATS64]) >= _OTHERHOST.size
        bridged = nested(link, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_KIND).rstrip(b"\0") == b"bridge"
        state = nested(link, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE) if bridged else b""
        yield (
            decoded(link[_IFLA_IFNAME].rstrip(b"\0")),
            NicCounters(
                rx=rx,
                tx=tx,
                rx_dropped=rx_dropped + rest[-1],
                tx_dropped=tx_dropped,
                rx_errors=rx_errors,
                tx_errors=tx_errors,
                up=bool(flags & _IFF_UP and flags & _IFF_LOWER_UP),
                carrier_changes=None if changes is None else number(changes),
                mac=link.get(_IFLA_ADDRESS, b"").hex(":"),
                index=index,
                master=number(link.get(_IFLA_MASTER, b"")),
                rx_otherhost_dropped=_OTHERHOST.unpack_from(link[_IFLA_STATS64])[0] if counts_otherhost else None,
                forwards=number(link[_IFLA_OPERSTATE]) in _IN_OPERATION and (not state or number(state) == _FORWARDING),
            ),
        )
