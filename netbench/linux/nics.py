"""Counters of NICs, read in one batch a namespace: by netlink, or by `ip` (iproute2's ip/ipaddress.c)."""

import json
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.netlink import Netlink, ask, attributes, nested, number
from netbench.model.foreign_text import decoded
from netbench.model.interfaces import Place

_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_OPERATIONAL = ("UP", "UNKNOWN")  # UNKNOWN: a driver that does not tell (operstates.rst)
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
    """What a NIC counts, in frames since it exists, and how its link is doing.

    `rx_dropped` is what /proc/net/dev calls so: frames that the host did not process, and those for which the NIC found
    no buffer. Only the latter are not in `rx` (struct rtnl_link_stats64 in linux/if_link.h). The same
    document makes FIFO errors part of `tx_errors`, and leaves it to the driver whether they are part of `rx_errors`.
    `rx_otherhost_dropped` are frames for another MAC address, which are in `rx` and which the IP layer dropped. It is
    None before Linux 5.19; `ip` omits it while it is 0 as well.
    """

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int | None  # None where the kernel does not count them: before 3.15
    mac: str
    index: int  # a NIC removed and made again has another
    master: int  # index of the bridge it belongs to, 0 for none
    rx_otherhost_dropped: int | None = None
    forwards: bool = True  # in operation, and as port of a bridge not held back by it: comes up to a second after `up`


def read_nics(host: Host, netlink: Netlink | None, places: Iterable[Place]) -> dict[Place, NicCounters]:
    """The counters of NICs of a machine, by netlink where it is this one; one that is gone is left out.

    TestbedError when the machine cannot be asked, or a whole namespace is gone.
    """
    wanted: dict[str | None, list[Place]] = {}
    for place in places:
        wanted.setdefault(place.netns, []).append(place)
    found: dict[Place, NicCounters] = {}
    for netns, there in wanted.items():
        links = _ask_netlink(netlink, netns) if netlink else _ask_ip(host, netns)
        found |= {place: links[place.interface] for place in there if place.interface in links}
    return found


def list_command(netns: str | None = None) -> list[str]:
    """The command that lists NICs; -s twice for the errors by kind as well."""
    return ["ip", *(("-n", netns) if netns else ()), "-j", "-d", "-s", "-s", "link", "show"]


def parse_links(text: str) -> dict[str, NicCounters]:
    """The interfaces by name; ValueError, LookupError or TypeError for what is no such listing."""
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
    """Interfaces and their names, of messages about links (linux/if_link.h: ifinfomsg, rtnl_link_stats64)."""
    for message in messages:
        _, index, flags = _LINK.unpack_from(message)
        told = attributes(message[_LINK.size :])
        rx, tx, _, _, rx_errors, tx_errors, rx_dropped, tx_dropped, *rest = _STATS.unpack_from(told[_IFLA_STATS64])
        changes = told.get(_IFLA_CARRIER_CHANGES)
        counts_otherhost = len(told[_IFLA_STATS64]) >= _OTHERHOST.size
        bridged = nested(told, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_KIND).rstrip(b"\0") == b"bridge"
        state = nested(told, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE) if bridged else b""
        yield (
            decoded(told[_IFLA_IFNAME].rstrip(b"\0")),
            NicCounters(
                rx=rx,
                tx=tx,
                rx_dropped=rx_dropped + rest[-1],
                tx_dropped=tx_dropped,
                rx_errors=rx_errors,
                tx_errors=tx_errors,
                up=bool(flags & _IFF_UP and flags & _IFF_LOWER_UP),
                carrier_changes=None if changes is None else number(changes),
                mac=told.get(_IFLA_ADDRESS, b"").hex(":"),
                index=index,
                master=number(told.get(_IFLA_MASTER, b"")),
                rx_otherhost_dropped=_OTHERHOST.unpack_from(told[_IFLA_STATS64])[0] if counts_otherhost else None,
                forwards=number(told[_IFLA_OPERSTATE]) in _IN_OPERATION and (not state or number(state) == _FORWARDING),
            ),
        )
