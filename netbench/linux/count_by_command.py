"""Read all counters of a VM or a guest by one command, because it answers and starts programs slowly."""

import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.errors import TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.nics import list_command, parse_links
from netbench.linux.proc import busy_s
from netbench.linux.readings import (
    CLASSIFIERS,
    FORWARDED,
    MachineReading,
    NamespaceCounters,
    Queue,
    by_namespace,
    counter_readings,
)
from netbench.linux.rules import LIST_CHAINS, LIST_RULES, Dropper, droppers, own_tables
from netbench.model.points import CountingPoint, PointKind, Points

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
    "links": (frozenset({PointKind.NIC}), f"{' '.join(list_command())} || exit"),
    "ip": (
        frozenset({PointKind.BRIDGE, PointKind.IP_LAYER, PointKind.IP_COUNTERS}),
        "cat /proc/net/snmp /proc/net/netstat || exit",
    ),
    # Either file enables br_netfilter, for all bridges or for one.
    "asked": (
        frozenset({PointKind.BRIDGE}),
        """
for asks in /proc/sys/net/bridge/bridge-nf-call-iptables /sys/class/net/*/bridge/nf_call_iptables; do
    [ ! -r "$asks" ] || { read -r answer < "$asks"; echo "$answer"; }
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


def count_by_command(host: Host, points: Points) -> MachineReading:
    """Return the counts of `Machine.count`, by one command at nearly one moment.

    `host` is the machine outside all namespaces. XDP programs and pause frames are not read: netbench alone uses the
    NICs of its VM, and none is real.
    """
    by_netns = by_namespace(points)
    printed = run_checked(host, _command(by_netns))
    try:
        *looks, softnet, stat = printed.split(_NEXT)
        counted = {netns: _counters(look, by_netns[netns]) for netns, look in zip(by_netns, looks, strict=True)}
        for netns, point in ((netns, point) for netns, here in by_netns.items() for point in here):
            if point.kind is PointKind.NIC and point.place and point.place.interface not in counted[netns].nics:
                raise TestbedError(f"{host}: its NIC {point.place.interface} is gone")
        return MachineReading(counter_readings(points, counted, softnet), busy_s(stat))
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise TestbedError(f"{host}: its counters make no sense: {error}") from error


def _command(there: Mapping[str | None, Sequence[CountingPoint]]) -> list[str]:
    arguments = []
    own = shlex.quote(f"| |{'|'.join(map(' '.join, sorted(own_tables)))}|")
    for netns, points in there.items():
        scripts = (f"{_PARTS[part][1]}\necho {_MARK.strip()}" for part in _wanted(points))
        arguments += [netns or _OUTSIDE, "\n".join((f"own={own}", *scripts))]
    return ["sh", "-c", _SCRIPT, "sh", *arguments]


def _wanted(points: Iterable[CountingPoint]) -> list[str]:
    kinds = {point.kind for point in points}
    return [part for part, (for_kinds, _) in _PARTS.items() if kinds & for_kinds]


def _counters(look: str, points: Sequence[CountingPoint]) -> NamespaceCounters:
    *printed, _ = look.split(_MARK)
    output = dict(zip(_wanted(points), printed, strict=True))
    if "ip" in output and FORWARDED not in output["ip"]:
        raise ValueError("nothing is said of forwarding")
    drivers = dict(_driver(block) for block in output.get("drivers", "").split(_NIC)[1:])
    return NamespaceCounters(
        queues=tuple(_queues(output.get("queues", ""))),
        rules=_rules(output.get("rules", ""), output.get("chains", "")),
        ip=output.get("ip", ""),
        bridged_ip=any(answer not in ("", "0") for answer in output.get("asked", "").split()),
        nics=parse_links(output["links"]) if "links" in output else {},
        out_of_buffers={name: sum(counted) for name, counted in drivers.items() if counted},
    )


def _queues(text: str) -> Iterator[Queue]:
    """Yield the queues of all interfaces, from the output of `tc -s -j qdisc show`."""
    for qdisc in json.loads(text or "[]"):
        if qdisc.get("root") or qdisc["kind"] in CLASSIFIERS:
            yield Queue(qdisc["dev"], qdisc["kind"], qdisc.get("drops"), qdisc.get("handle", ""))


def _driver(block: str) -> tuple[str, list[int]]:
    name, _, statistics = block.partition("\n")
    return name, list(map(int, _OUT_OF_BUFFERS.findall(statistics)))


def _rules(rules: str, chains: str) -> tuple[Dropper, ...] | None:
    try:
        return tuple(droppers(rules, chains)) if rules else ()
    except (ValueError, LookupError, TypeError):
        return None
