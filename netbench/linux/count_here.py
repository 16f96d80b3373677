"""This machine's counters except those of NICs, a batch per namespace: by netlink, /proc, and nft if it has rules.

Formats: linux/rtnetlink.h, linux/if_link.h, linux/pkt_sched.h, linux/gen_stats.h.
"""

import socket
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.foreign_hooks import foreign_tcx_programs, foreign_xdp_programs
from netbench.linux.netlink import Netlink, ask, attributes, nested, number, route_socket
from netbench.linux.netns import within_each
from netbench.linux.pause import PauseFrames, read_pause_frames
from netbench.linux.readings import NamespaceCounters, Queue, bridges, by_namespace, counter_readings
from netbench.linux.rules import LIST_CHAINS, LIST_RULES, Dropper, Tables, droppers, read_tables
from netbench.model.foreign_text import decoded
from netbench.model.points import CounterReading, CountingPoint, PointKind, Points

_PROC_NET = Path("/proc/thread-self/net")
_BRIDGED_IP = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_TC_H_ROOT, _TC_H_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
_RTM_GETLINK, _RTM_GETQDISC = 18, 38
_QDISC = struct.Struct("=BxxxiII4x")  # tcmsg: family, index, handle, parent, references
_TCA_KIND, _TCA_STATS2, _TCA_STATS_QUEUE = 1, 7, 3
_QUEUE = struct.Struct("=8xI")  # gnet_stats_queue: length, backlog, drops, …
_LINK = struct.Struct("=BxHiII")  # ifinfomsg: family, type, index, flags, change
_IFLA_MASTER, _IFLA_LINKINFO = 10, 18
_IFLA_INFO_DATA, _IFLA_BR_NF_CALL_IPTABLES = 2, 36


class _Attached(NamedTuple):
    """The BPF programs of others by interface and direction, and whether a bridge of these enables br_netfilter.

    The latter is `nf_call_iptables` of ip-link(8), the bridge's own setting.
    """

    programs: dict[tuple[str, str], list[str]]
    bridged_ip: bool


class _Inside(NamedTuple):
    """Values that can be read only from inside a namespace."""

    indices: dict[str, int]
    ip: str
    bridged_ip: bool
    tables: Tables
    pause: dict[str, PauseFrames]
    attached: _Attached


def read_local_counters(
    netlink: Netlink, host: Callable[[str | None], Host], points: Points
) -> tuple[CounterReading, ...]:
    """Return the counters of `Machine.count` on this machine; TestbedError when a namespace is gone."""
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
    messages = ask(netlink.socket(netns), _RTM_GETQDISC, _QDISC.pack(0, 0, 0, 0), all_of_them=True)
    try:
        queues = tuple(_queues(messages, {index: name for name, index in inside.indices.items()}))
    except OSError as error:
        raise TestbedError(f"the counters of {netns or 'this machine'} cannot be read: {error}") from error
    return NamespaceCounters(
        queues=queues,
        rules=_rules(host) if inside.tables.has_foreign else (),
        generation=inside.tables.generation,
        ip=inside.ip,
        bridged_ip=inside.bridged_ip or (bridges(points) and inside.attached.bridged_ip),
        pause=inside.pause,
        programs=inside.attached.programs,
    )


def _look(points: Sequence[CountingPoint]) -> _Inside:
    indices = dict(_indices(points))
    return _Inside(
        indices=indices,
        ip=(_PROC_NET / "snmp").read_text() + (_PROC_NET / "netstat").read_text(),
        bridged_ip=_BRIDGED_IP.exists() and _BRIDGED_IP.read_text().strip() != "0",
        tables=read_tables(),
        pause=read_pause_frames(_interfaces(points)),
        attached=_read_attached(indices),
    )


def _indices(points: Iterable[CountingPoint]) -> Iterator[tuple[str, int]]:
    """Yield name and index of each interface that still exists."""
    for interface in _interfaces(points):
        with suppress(OSError):  # the interface is gone
            yield interface, socket.if_nametoindex(interface)


def _interfaces(points: Iterable[CountingPoint]) -> set[str]:
    return {point.place.interface for point in points if point.place and point.kind is PointKind.INTERFACE}


def _rules(host: Host) -> tuple[Dropper, ...] | None:
    """Return the rules that may drop frames; None without a tool to list them."""
    try:
        return tuple(droppers(run_checked(host, LIST_RULES), run_checked(host, LIST_CHAINS)))
    except (MissingError, TestbedError, ValueError, LookupError, TypeError):
        return None


def _queues(messages: Iterable[bytes], names: Mapping[int, str]) -> Iterator[Queue]:
    """Yield the queues of some interfaces, by index, from messages about queueing disciplines."""
    for message in messages:
        _, index, handle, parent = _QDISC.unpack_from(message)
        if index in names and parent in (_TC_H_ROOT, _TC_H_INGRESS):
            qdisc = attributes(message[_QDISC.size :])
            stats = nested(qdisc, _TCA_STATS2, _TCA_STATS_QUEUE)
            dropped = _QUEUE.unpack_from(stats)[0] if stats else None
            yield Queue(names[index], decoded(qdisc[_TCA_KIND].rstrip(b"\0")), dropped, f"{handle >> 16:x}:")


def _read_attached(indices: dict[str, int]) -> _Attached:
    """Return the programs at interfaces, given by name and index; none for an interface that is gone."""
    with route_socket() as netlink:
        links = {name: _link(netlink, index) for name, index in indices.items()}
        bridges = {number(link.get(_IFLA_MASTER, b"")) for link in links.values()} - {0}
        return _Attached(
            programs={
                (name, direction): programs
                for name, index in indices.items()
                for direction in ("rx", "tx")
                if (programs := list(_programs(index, links[name], direction)))
            },
            bridged_ip=any(_calls_iptables(_link(netlink, index)) for index in bridges),
        )


def _programs(index: int, link: dict[int, bytes], direction: str) -> Iterator[str]:
    """Yield the names of the programs at an interface that may take frames in this direction."""
    if direction == "rx":
        yield from (f"XDP program {program}" for program in foreign_xdp_programs(link))
    hook = "ingress" if direction == "rx" else "egress"
    yield from (f"tcx {hook} program {program}" for program in foreign_tcx_programs(index, hook))


def _link(asked: socket.socket, index: int) -> dict[int, bytes]:
    try:
        (answer,) = ask(asked, _RTM_GETLINK, _LINK.pack(socket.AF_UNSPEC, 0, index, 0, 0))
    except OSError:
        return {}  # the interface is gone
    return attributes(answer[_LINK.size :])


def _calls_iptables(bridge: dict[int, bytes]) -> bool:
    return number(nested(bridge, _IFLA_LINKINFO, _IFLA_INFO_DATA, _IFLA_BR_NF_CALL_IPTABLES)) != 0
