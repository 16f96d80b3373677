"""Counters of NICs, read in one batch a namespace: by netlink, or by `ip` (iproute2's ip/ipaddress.c)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.netlink import Netlink
from netbench.model.paths import Place

_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000
_OPERATIONAL = ("UP", "UNKNOWN")  # UNKNOWN: a driver that does not tell (operstates.rst)
_FORWARDING = 3  # BR_STATE_FORWARDING, linux/if_bridge.h


@dataclass(frozen=True, slots=True)
class NicCounters:
    """What a NIC counts, in frames since it exists, and how its link is doing.

    `rx_dropped` is what /proc/net/dev calls so: frames that the host did not process, and those for which the NIC found
    no buffer. Only the latter are not in `rx` (struct rtnl_link_stats64 in linux/if_link.h). The same
    document makes FIFO errors part of `tx_errors`, and leaves it to the driver whether they are part of `rx_errors`.
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
    links = json.loads(text)
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
        links = netlink.socket(netns).get_links()
    except OSError as error:
        raise TestbedError(f"the NICs of {netns or 'this machine'} cannot be read: {error.strerror}") from error
    return {link.get_attr("IFLA_IFNAME"): _counters_of_message(link) for link in links}


def _counters_of_message(link: Any) -> NicCounters:  # noqa: ANN401 - pyroute2 is untyped
    stats = link.get_attr("IFLA_STATS64")
    state = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE")
    return NicCounters(
        rx=stats["rx_packets"],
        tx=stats["tx_packets"],
        rx_dropped=stats["rx_dropped"] + stats["rx_missed_errors"],
        tx_dropped=stats["tx_dropped"],
        rx_errors=stats["rx_errors"],
        tx_errors=stats["tx_errors"],
        up=bool(link["flags"] & _IFF_UP and link["flags"] & _IFF_LOWER_UP),
        carrier_changes=link.get_attr("IFLA_CARRIER_CHANGES"),
        mac=link.get_attr("IFLA_ADDRESS"),
        index=link["index"],
        master=link.get_attr("IFLA_MASTER") or 0,
        forwards=link.get_attr("IFLA_OPERSTATE") in _OPERATIONAL and state in (None, _FORWARDING),
    )
