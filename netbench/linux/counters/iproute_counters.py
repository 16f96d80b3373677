"""The counters of another machine by the JSON of iproute2, `ethtool`, `nft` and /proc.

One command reads all of them, because VMs and guests answer and start programs slowly. XDP programs and pause frames
are not read: netbench alone uses the NICs of its VM, and none is real.
"""

import json
import re
import shlex
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.counters.counting_points import (
    CLASSIFIERS,
    FORWARDED,
    MachineReading,
    NamespaceCounters,
    NicCounters,
    Queue,
    by_namespace,
    parse_ip_counters,
    parse_softnet_drops,
    readings_at_points,
)
from netbench.linux.counters.netlink_counters import LONGEST_REFRESH_S
from netbench.linux.nft_rules import LIST_CHAINS, LIST_RULES, own_tables, parse_droppers
from netbench.linux.proc import busy_s
from netbench.model.points import CountingPoint, PointKind, Points

LIST_LINKS = ("ip", "-j", "-d", "-s", "-s", "link", "show")  # -s twice for the errors by kind as well
_OPERATIONAL = ("UP", "UNKNOWN")  # UNKNOWN: a driver that does not report its state (operstates.rst)
_MARK, _NEXT, _NIC = "--netbench--\n", "--next--\n", "--nic--"
_OUTSIDE = "."  # not a valid name of a namespace

_WITH_RULES = frozenset({PointKind.INTERFACE, PointKind.BRIDGE, PointKind.IP_LAYER})
# The commands for a namespace, each with the kinds of points that need it; a missing tool prints nothing.
_PARTS: Mapping[str, tuple[frozenset[PointKind], str]] = {
    # First, because it makes drivers read their NIC now that otherwise do so every other second (e1000).
    "drivers": (
        frozenset({PointKind.NIC, PointKind.BUFFERS}),
        f"""
for nic in /sys/class/net/*; do
    if [ -e "$nic/device" ]; then echo "{_NIC}${{nic##*/}}"; ethtool -S "${{nic##*/}}"; fi
done 2>/dev/null""",
    ),
    "links": (frozenset({PointKind.NIC}), f"{' '.join(LIST_LINKS)} || exit"),
    "ip": (
        frozenset({PointKind.BRIDGE, PointKind.IP_LAYER, PointKind.IP_COUNTERS}),
        "cat /proc/net/snmp /proc/net/netstat || exit",
    ),
    # Either file enables br_netfilter, for all bridges or for one.
    "bridged_ip": (
        frozenset({PointKind.BRIDGE}),
        """
for setting in /proc/sys/net/bridge/bridge-nf-call-iptables /sys/class/net/*/bridge/nf_call_iptables; do
    [ ! -r "$setting" ] || { read -r value < "$setting"; echo "$value"; }
done""",
    ),
    "queues": (frozenset({PointKind.INTERFACE, PointKind.QUEUE}), "tc -s -j qdisc show 2>/dev/null"),
    "rules": (
        _WITH_RULES,
        f"""
foreign=
while read -r word family table; do
    case $own in *"|$family $table|"*) ;; *) foreign=yes;; esac
done <<END
$(nft list tables 2>/dev/null)
END
[ -z "$foreign" ] || {" ".join(LIST_RULES)}""",
    ),
    "chains": (_WITH_RULES, f'[ -z "$foreign" ] || {" ".join(LIST_CHAINS)}'),
}
_SCRIPT = f"""
while [ $# -gt 0 ]; do
    if [ "$1" = {_OUTSIDE} ]; then eval "$2"; else ip netns exec "$1" sh -c "$2"; fi || exit
    echo {_NEXT.strip()}; shift 2
done
cat /proc/net/softnet_stat && echo {_NEXT.strip()} && cat /proc/stat
"""
# vmxnet3's counter of frames without a buffer; no other counter includes them.
_OUT_OF_BUFFERS = re.compile(r"^ *pkts rx OOB: (\d+)$", re.MULTILINE)
_REFRESH = 'for port; do ethtool -S "$port" >/dev/null 2>&1; ethtool -c "$port" 2>/dev/null; done'
_REFRESH_INTERVAL = re.compile(r"^stats-block-usecs:\s+(\d+)$", re.MULTILINE)


def read_nics(host: Host, netns: str | None = None) -> dict[str, NicCounters]:
    """Return the interfaces of a host, or of a namespace there, by name; TestbedError for a malformed answer."""
    text = run_checked(host, [LIST_LINKS[0], *(("-n", netns) if netns else ()), *LIST_LINKS[1:]])
    try:
        return parse_links(text)
    except ValueError as error:
        raise TestbedError(
            f"{host}: the output of `ip -j link` is malformed ({error}); install iproute2 there"
        ) from error


def count(host: Host, points: Points) -> MachineReading:
    """Return the counts of `Machine.count`, by one command at nearly one moment.

    `host` is the machine outside all namespaces.
    """
    by_netns = by_namespace(points)
    printed = run_checked(host, _command(by_netns))
    try:
        *blocks, softnet, stat = printed.split(_NEXT)
        counted = {
            netns: _parse_counters(block, _parts(by_netns[netns]))
            for netns, block in zip(by_netns, blocks, strict=True)
        }
        softnet_drops = parse_softnet_drops(softnet) if softnet else None
        cpu_s = busy_s(stat)
    except (ValueError, IndexError) as error:
        raise TestbedError(f"{host}: its counters are malformed: {error}") from error
    for netns, members in by_netns.items():
        for point in members:
            if point.kind is PointKind.NIC and point.place and point.place.interface not in counted[netns].nics:
                raise TestbedError(f"{host}: its NIC {point.place.interface} is gone")
    return MachineReading(readings_at_points(points, counted, softnet_drops), cpu_s)


def parse_links(text: str) -> dict[str, NicCounters]:
    """Return the interfaces by name from the output of LIST_LINKS; ValueError for other texts."""
    links = _objects(text)
    indices = {_get(link, str, "ifname"): _get(link, int, "ifindex") for link in links}
    return {link["ifname"]: _nic_counters(link, indices) for link in links}


def refresh_driver_counters_on(host: Host, interfaces: Collection[str]) -> None:
    """Return once the counters of a host's interfaces include all that the NICs have counted until now.

    It does the same as `netlink_counters.refresh_driver_counters`, by ethtool(8). TestbedError without an answer.
    """
    text = host.run(["sh", "-c", _REFRESH, "netbench", *interfaces]).stdout
    lags_us = map(int, _REFRESH_INTERVAL.findall(text))
    time.sleep(min(max(lags_us, default=0) / 1e6, LONGEST_REFRESH_S))


def _nic_counters(link: Mapping[str, Any], indices: Mapping[str, int]) -> NicCounters:
    rx, tx = _get(link, dict, "stats64", "rx"), _get(link, dict, "stats64", "tx")
    flags, state = _get(link, list, "flags"), _get(link, str, "operstate")
    port_state = _get(link, str, "linkinfo", "info_slave_data", "state", default="forwarding")
    return NicCounters(
        rx=_get(rx, int, "packets"),
        tx=_get(tx, int, "packets"),
        rx_dropped=_get(rx, int, "dropped") + _get(rx, int, "missed_errors"),
        tx_dropped=_get(tx, int, "dropped"),
        rx_errors=_get(rx, int, "errors"),
        tx_errors=_get(tx, int, "errors"),
        up="UP" in flags and "LOWER_UP" in flags,
        carrier_changes=_get(tx, int, "carrier_changes", default=None),
        mac=_get(link, str, "address", default=""),
        index=link["ifindex"],
        master=indices.get(_get(link, str, "master", default=""), 0),
        rx_otherhost_dropped=_get(rx, int, "otherhost", default=None),
        forwards=state in _OPERATIONAL and port_state == "forwarding",
    )


def _objects(text: str) -> list[dict[str, Any]]:
    """Return a list of JSON objects; ValueError for other texts."""
    objects = json.loads(text, strict=False)  # iproute2 does not escape control characters in names
    if not isinstance(objects, list) or not all(isinstance(entry, dict) for entry in objects):
        raise ValueError("no list of objects")
    return objects


def _get(data: Mapping[str, Any], kind: type, *path: str, default: object = ...) -> Any:  # noqa: ANN401 - of `kind`
    """Return a value of JSON objects within each other, or the default; ValueError for one of another type."""
    value: Any = data
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    if value is None and default is not ...:
        return default
    if not isinstance(value, kind):
        raise ValueError(f"{'.'.join(path)} is {value!r}")
    return value


def _command(by_netns: Mapping[str | None, Sequence[CountingPoint]]) -> list[str]:
    arguments = []
    own = shlex.quote(f"| |{'|'.join(map(' '.join, sorted(own_tables)))}|")
    for netns, points in by_netns.items():
        scripts = (f"{_PARTS[part][1]}\necho {_MARK.strip()}" for part in _parts(points))
        arguments += [netns or _OUTSIDE, "\n".join((f"own={own}", *scripts))]
    return ["sh", "-c", _SCRIPT, "sh", *arguments]


def _parts(points: Iterable[CountingPoint]) -> list[str]:
    """Return the names of the commands that these points need."""
    kinds = {point.kind for point in points}
    return [part for part, (for_kinds, _) in _PARTS.items() if kinds & for_kinds]


def _parse_counters(block: str, parts: Iterable[str]) -> NamespaceCounters:
    *printed, _ = block.split(_MARK)
    output = dict(zip(parts, printed, strict=True))
    if "ip" in output and FORWARDED not in output["ip"]:
        raise ValueError(f"/proc/net/snmp has no {FORWARDED}")
    drivers = dict(_parse_driver(driver) for driver in output.get("drivers", "").split(_NIC)[1:])
    rules = output.get("rules", "")
    return NamespaceCounters(
        queues=tuple(_parse_queues(output.get("queues", ""))),
        rules=parse_droppers(rules, output.get("chains", "")) if rules else (),
        ip=parse_ip_counters(output.get("ip", "")),
        bridged_ip=any(value != "0" for value in output.get("bridged_ip", "").split()),
        nics=parse_links(output["links"]) if "links" in output else {},
        out_of_buffers={name: sum(counted) for name, counted in drivers.items() if counted},
    )


def _parse_queues(text: str) -> Iterator[Queue]:
    """Yield the queues of all interfaces, from the output of `tc -s -j qdisc show`."""
    for qdisc in _objects(text or "[]"):
        kind = _get(qdisc, str, "kind")
        if qdisc.get("root") or kind in CLASSIFIERS:
            dropped = _get(qdisc, int, "drops", default=None)
            yield Queue(_get(qdisc, str, "dev"), kind, dropped, _get(qdisc, str, "handle", default=""))


def _parse_driver(block: str) -> tuple[str, list[int]]:
    name, _, statistics = block.partition("\n")
    return name, list(map(int, _OUT_OF_BUFFERS.findall(statistics)))
