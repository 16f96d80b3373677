"""What `ip -j -d -s -s link` tells of the interfaces inside a guest (iproute2's ip/ipaddress.c)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.nics import NicCounters
from netbench.model.paths import Place

_OPERATIONAL = ("UP", "UNKNOWN")  # UNKNOWN: a driver that does not tell (operstates.rst)


def read_links(host: Host, places: Iterable[Place]) -> dict[Place, NicCounters]:
    """The counters of NICs of a machine; one that is gone is left out. TestbedError when it cannot be asked."""
    wanted: dict[str | None, list[Place]] = {}
    for place in places:
        wanted.setdefault(place.netns, []).append(place)
    found: dict[Place, NicCounters] = {}
    for netns, there in wanted.items():
        text = run_checked(host, list_command(netns))
        try:
            links = parse_links(text)
        except (ValueError, LookupError, TypeError) as error:
            raise TestbedError(f"{host}: its list of links makes no sense; it needs iproute2") from error
        found |= {place: links[place.interface] for place in there if place.interface in links}
    return found


def list_command(netns: str | None = None) -> list[str]:
    """The command; -s twice for the errors by kind as well."""
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
        carrier_changes=tx["carrier_changes"],
        mac=link.get("address", ""),
        index=link["ifindex"],
        master=indices.get(link.get("master", ""), 0),
        forwards=link["operstate"] in _OPERATIONAL and port.get("state", "forwarding") == "forwarding",
    )
