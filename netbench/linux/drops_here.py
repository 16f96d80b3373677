"""What this machine counts beyond its NICs, a batch a namespace: by netlink, /proc, and nft where there are rules."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from socket import if_nametoindex
from typing import NamedTuple

from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.attached import Attached, read_attached
from netbench.linux.drops import NamespaceCounters, bridges, by_namespace, counter_readings
from netbench.linux.netlink import Netlink
from netbench.linux.netns import within_each
from netbench.linux.pause import PauseFrames, read_pause_frames
from netbench.linux.queues import read_queues
from netbench.linux.rules import LIST_CHAINS, LIST_RULES, Dropper, droppers, has_foreign_tables
from netbench.model.points import CounterReading, CountingPoint, Kind, Points

_PROC_NET = Path("/proc/thread-self/net")
_BRIDGED_IP = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")


class _Inside(NamedTuple):
    """What can be seen from inside a namespace only."""

    indices: dict[str, int]
    ip: str
    bridged_ip: bool
    has_rules: bool
    pause: dict[str, PauseFrames]
    attached: Attached


def read_local_counters(
    netlink: Netlink, host: Callable[[str | None], Host], points: Points
) -> tuple[CounterReading, ...]:
    """The counters of `Machine.count`, on this machine; TestbedError when a namespace is gone."""
    by_netns = by_namespace(points)
    insides = within_each(by_netns, lambda netns: _look(by_netns[netns]))
    counted = {netns: _read(netlink, host(netns), netns, here, insides[netns]) for netns, here in by_netns.items()}
    return counter_readings(points, counted, Path("/proc/net/softnet_stat").read_text())


def _read(
    netlink: Netlink,
    host: Host,
    netns: str | None,
    points: Sequence[CountingPoint],
    inside: _Inside,
) -> NamespaceCounters:
    socket = netlink.socket(netns)
    try:
        queues = tuple(read_queues(socket, {index: name for name, index in inside.indices.items()}))
    except (NetlinkError, OSError) as error:
        raise TestbedError(f"the counters of {netns or 'this machine'} cannot be read: {error}") from error
    return NamespaceCounters(
        queues=queues,
        rules=_rules(host) if inside.has_rules else (),
        ip=inside.ip,
        bridged_ip=inside.bridged_ip or (bridges(points) and inside.attached.bridged_ip),
        pause=inside.pause,
        xdp=inside.attached.xdp,
    )


def _look(points: Sequence[CountingPoint]) -> _Inside:
    indices = dict(_indices(points))
    entries = _interfaces(point for point in points if point.direction == "rx")
    return _Inside(
        indices=indices,
        ip=(_PROC_NET / "snmp").read_text() + (_PROC_NET / "netstat").read_text(),
        bridged_ip=_BRIDGED_IP.exists() and _BRIDGED_IP.read_text().strip() != "0",
        has_rules=has_foreign_tables(),
        pause=read_pause_frames(_interfaces(points)),
        attached=read_attached({name: index for name, index in indices.items() if name in entries}),
    )


def _indices(points: Iterable[CountingPoint]) -> Iterator[tuple[str, int]]:
    """Of each interface, by name; one that is gone is left out."""
    for interface in _interfaces(points):
        with suppress(OSError):  # gone: there is nothing to ask of it
            yield interface, if_nametoindex(interface)


def _interfaces(points: Iterable[CountingPoint]) -> set[str]:
    return {point.place.interface for point in points if point.place and point.kind is Kind.INTERFACE}


def _rules(host: Host) -> tuple[Dropper, ...] | None:
    """None when there is nothing to ask with."""
    try:
        return tuple(droppers(run_checked(host, LIST_RULES), run_checked(host, LIST_CHAINS)))
    except (MissingError, TestbedError, ValueError, LookupError, TypeError):
        return None
