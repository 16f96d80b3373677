"""Counters of NICs, read in one batch a namespace by netlink."""

from collections.abc import Iterable
from dataclasses import dataclass

from netbench.errors import TestbedError
from netbench.links.netlink import Netlink

_IFF_UP, _IFF_LOWER_UP = 0x1, 0x10000


@dataclass(frozen=True, slots=True)
class NicCounters:
    """What a NIC counts, in frames since it exists, and how its link is doing."""

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int
    mac: str
    index: int  # a NIC removed and made again has another
    master: int  # index of the bridge it belongs to, 0 for none


def read_nics(netlink: Netlink, nics: Iterable[tuple[str | None, str]]) -> dict[tuple[str | None, str], NicCounters]:
    """The counters of NICs given as (namespace, interface); one that is gone is left out.

    TestbedError when a whole namespace is gone.
    """
    wanted: dict[str | None, set[str]] = {}
    for netns, interface in nics:
        wanted.setdefault(netns, set()).add(interface)
    found = {}
    for netns, interfaces in wanted.items():
        try:
            links = netlink.socket(netns).get_links()
        except OSError as error:
            raise TestbedError(f"the NICs of {netns or 'this machine'} cannot be read: {error.strerror}") from error
        for link in links:
            name = link.get_attr("IFLA_IFNAME")
            if name in interfaces:
                stats = link.get_attr("IFLA_STATS64")
                found[netns, name] = NicCounters(
                    rx=stats["rx_packets"],
                    tx=stats["tx_packets"],
                    rx_dropped=stats["rx_dropped"] + stats["rx_missed_errors"],
                    tx_dropped=stats["tx_dropped"],
                    rx_errors=stats["rx_errors"],
                    tx_errors=stats["tx_errors"],
                    up=bool(link["flags"] & _IFF_UP and link["flags"] & _IFF_LOWER_UP),
                    carrier_changes=link.get_attr("IFLA_CARRIER_CHANGES") or 0,
                    mac=link.get_attr("IFLA_ADDRESS"),
                    index=link["index"],
                    master=link.get_attr("IFLA_MASTER") or 0,
                )
    return found
