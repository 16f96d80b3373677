"""Counters of NICs, read in one batch a namespace by netlink."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from netbench.errors import TestbedError
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
    carrier_changes: int
    mac: str
    index: int  # a NIC removed and made again has another
    master: int  # index of the bridge it belongs to, 0 for none
    forwards: bool = True  # in operation, and as port of a bridge not held back by it: comes up to a second after `up`


def read_nics(netlink: Netlink, places: Iterable[Place]) -> dict[Place, NicCounters]:
    """The counters of NICs of this machine; one that is gone is left out.

    TestbedError when a whole namespace is gone.
    """
    wanted: dict[str | None, dict[str, Place]] = {}
    for place in places:
        wanted.setdefault(place.netns, {})[place.interface] = place
    found = {}
    for netns, by_name in wanted.items():
        try:
            links = netlink.socket(netns).get_links()
        except OSError as error:
            raise TestbedError(f"the NICs of {netns or 'this machine'} cannot be read: {error.strerror}") from error
        for link in links:
            place_ = by_name.get(link.get_attr("IFLA_IFNAME"))
            if place_:
                stats = link.get_attr("IFLA_STATS64")
                found[place_] = NicCounters(
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
                    forwards=_forwards(link),
                )
    return found


def _forwards(link: Any) -> bool:  # noqa: ANN401 - pyroute2 is untyped
    state = link.get_nested("IFLA_LINKINFO", "IFLA_INFO_SLAVE_DATA", "IFLA_BRPORT_STATE")
    return link.get_attr("IFLA_OPERSTATE") in _OPERATIONAL and state in (None, _FORWARDING)
