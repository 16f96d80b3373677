"""This machine's counters, a batch per namespace: by netlink, /proc, and nft if there are rules of others.

netbench encodes the requests itself: pyroute2 0.9 has neither pause frames nor `rx_otherhost_dropped`, and takes at
least ten times as long, which disturbs trials. Formats: linux/rtnetlink.h, linux/if_link.h, linux/if_bridge.h,
linux/pkt_sched.h, linux/gen_stats.h, linux/ethtool.h, linux/ethtool_netlink.h, linux/sockios.h.
"""

import ctypes
import fcntl
import socket
import struct
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.counters.counting_points import (
    NamespaceCounters,
    NicCounters,
    PauseFrames,
    Queue,
    by_namespace,
    parse_ip_counters,
    parse_softnet_drops,
    readings_at_points,
)
from netbench.linux.netlink import (
    Link,
    Netlink,
    attribute,
    attributes,
    generic_netlink,
    nested,
    number,
    request,
    request_links,
    route_socket,
    text,
)
from netbench.linux.netns import within_each
from netbench.linux.nft_rules import LIST_CHAINS, LIST_RULES, Dropper, Tables, parse_droppers, read_tables
from netbench.linux.safety.foreign_hooks import foreign_tcx_programs, foreign_xdp_programs
from netbench.model.foreign_text import encoded
from netbench.model.points import CounterReading, CountingPoint, PointKind, Points

_PROC_NET = Path("/proc/thread-self/net")
_BRIDGED_IP = Path("/proc/sys/net/bridge/bridge-nf-call-iptables")
_RTM_GETQDISC = 38

_IFLA_ADDRESS, _IFLA_IFNAME, _IFLA_MASTER, _IFLA_OPERSTATE, _IFLA_LINKINFO = 1, 3, 10, 16, 18
_IFLA_STATS64, _IFLA_CARRIER_CHANGES = 23, 35
_IFLA_INFO_DATA, _IFLA_BR_NF_CALL_IPTABLES = 2, 36
_IFLA_INFO_SLAVE_KIND, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE = 4, 5, 1
_IN_OPERATION = (6, 0)  # IF_OPER_UP and IF_OPER_UNKNOWN, linux/if.h
_FORWARDING = 3  # BR_STATE_FORWARDING, linux/if_bridge.h
_STATS = struct.Struct("=16Q")  # rtnl_link_stats64 up to rx_missed_errors
_OTHERHOST = struct.Struct("=192xQ")  # its rx_otherhost_dropped, the last one

_QDISC = struct.Struct("=BxxxiII4x")  # tcmsg: family, index, handle, parent, references
_TC_H_ROOT, _TC_H_INGRESS = 0xFFFFFFFF, 0xFFFFFFF1
_TCA_KIND, _TCA_STATS2, _TCA_STATS_QUEUE = 1, 7, 3
_QUEUE = struct.Struct("=8xI")  # gnet_stats_queue: length, backlog, drops, …

_ETHTOOL_MSG_PAUSE_GET = 21
_PAUSE_HEADER, _PAUSE_STATS = 1, 5
_HEADER_DEV_NAME, _HEADER_FLAGS = 2, 3
_NESTED, _FLAG_STATS = 0x8000, 1 << 2
_TX_FRAMES, _RX_FRAMES = 2, 3

_SIOCETHTOOL = 0x8946
_GCOALESCE, _GSTATS, _GSSET_INFO = 0x0E, 0x1D, 0x37
_ETH_SS_STATS = 1
_SSET_INFO = struct.Struct("=IIQI")  # command, reserved, requested sets, and the size of the first one
_DRIVER_STATS = struct.Struct("=II")  # command, number of counters; 64 bits for each follow
_COALESCE = struct.Struct("=23I")  # ethtool_coalesce
_STATS_BLOCK_USECS = 9  # the index of stats_block_coalesce_usecs
_IFREQ = struct.Struct("@16sP16x")  # ifreq: name, address
LONGEST_REFRESH_S = 5.0  # larger intervals reported by a driver are reduced to this


class _Inside(NamedTuple):
    """Values that can be read only from inside a namespace, for the interfaces of its points.

    `bridge_calls_ip`: whether one of their bridges enables br_netfilter (`nf_call_iptables` of ip-link(8)).
    """

    indices: dict[str, int]
    ip: str
    bridged_ip: bool
    bridge_calls_ip: bool
    tables: Tables
    pause: dict[str, PauseFrames]
    programs: dict[tuple[str, str], list[str]]


def read_nics(netlink: Netlink, netns: str | None) -> dict[str, NicCounters]:
    """Return the interfaces of a namespace by name; TestbedError when the namespace is gone."""
    try:
        return dict(nics_of(request_links(netlink.socket(netns))))
    except OSError as error:
        raise TestbedError(f"the NICs of {netns or 'this machine'} cannot be read: {error.strerror}") from error


def nics_of(links: Iterable[Link]) -> Iterator[tuple[str, NicCounters]]:
    """Yield names and counters of interfaces."""
    for interface in links:
        link = interface.attributes
        rx, tx, _, _, rx_errors, tx_errors, rx_dropped, tx_dropped, *rest = _STATS.unpack_from(link[_IFLA_STATS64])
        changes = link.get(_IFLA_CARRIER_CHANGES)
        counts_otherhost = len(link[_IFLA_STATS64]) >= _OTHERHOST.size
        bridged = text(nested(link, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_KIND)) == "bridge"
        state = nested(link, _IFLA_LINKINFO, _IFLA_INFO_SLAVE_DATA, _IFLA_BRPORT_STATE) if bridged else b""
        in_operation = number(link[_IFLA_OPERSTATE]) in _IN_OPERATION
        yield (
            text(link[_IFLA_IFNAME]),
            NicCounters(
                rx=rx,
                tx=tx,
                rx_dropped=rx_dropped + rest[-1],
                tx_dropped=tx_dropped,
                rx_errors=rx_errors,
                tx_errors=tx_errors,
                up=interface.is_up,
                carrier_changes=None if changes is None else number(changes),
                mac=link.get(_IFLA_ADDRESS, b"").hex(":"),
                index=interface.index,
                master=number(link.get(_IFLA_MASTER, b"")),
                rx_otherhost_dropped=_OTHERHOST.unpack_from(link[_IFLA_STATS64])[0] if counts_otherhost else None,
                forwards=in_operation and (not state or number(state) == _FORWARDING),
            ),
        )


def read_counters(netlink: Netlink, host: Callable[[str | None], Host], points: Points) -> tuple[CounterReading, ...]:
    """Return the counters of `Machine.count` on this machine; TestbedError when a namespace is gone."""
    by_netns = by_namespace(points)
    insides = within_each(by_netns, lambda netns: _read_inside(by_netns[netns]))
    counted = {netns: _read_outside(netlink, host(netns), netns, insides[netns]) for netns in by_netns}
    return readings_at_points(points, counted, parse_softnet_drops(Path("/proc/net/softnet_stat").read_text()))


def _read_inside(points: Collection[CountingPoint]) -> _Inside:
    interfaces = {point.place.interface for point in points if point.place and point.kind is PointKind.INTERFACE}
    indices = {}
    for interface in interfaces:
        with suppress(OSError):  # the interface is gone
            indices[interface] = socket.if_nametoindex(interface)
    with route_socket() as netlink:
        links = {name: _link(netlink, index) for name, index in indices.items()}
        bridges = {number(link.get(_IFLA_MASTER, b"")) for link in links.values()} - {0}
        bridge_calls_ip = any(point.kind is PointKind.BRIDGE for point in points) and any(
            number(nested(_link(netlink, index), _IFLA_LINKINFO, _IFLA_INFO_DATA, _IFLA_BR_NF_CALL_IPTABLES))
            for index in bridges
        )
    return _Inside(
        indices=indices,
        ip=(_PROC_NET / "snmp").read_text() + (_PROC_NET / "netstat").read_text(),
        bridged_ip=_BRIDGED_IP.exists() and _BRIDGED_IP.read_text().strip() != "0",
        bridge_calls_ip=bridge_calls_ip,
        tables=read_tables(),
        pause=read_pause_frames(interfaces),
        programs={
            (name, direction): programs
            for name, index in indices.items()
            for direction in ("rx", "tx")
            if (programs := list(_programs(index, links[name], direction)))
        },
    )


def _read_outside(netlink: Netlink, host: Host, netns: str | None, inside: _Inside) -> NamespaceCounters:
    messages = request(netlink.socket(netns), _RTM_GETQDISC, _QDISC.pack(0, 0, 0, 0), dump=True)
    try:
        queues = tuple(queues_of(messages, {index: name for name, index in inside.indices.items()}))
    except OSError as error:
        raise TestbedError(f"the counters of {netns or 'this machine'} cannot be read: {error}") from error
    return NamespaceCounters(
        queues=queues,
        rules=_rules(host) if inside.tables.has_foreign else (),
        generation=inside.tables.generation,
        ip=parse_ip_counters(inside.ip),
        bridged_ip=inside.bridged_ip or inside.bridge_calls_ip,
        pause=inside.pause,
        programs=inside.programs,
    )


def _rules(host: Host) -> tuple[Dropper, ...] | None:
    """Return the rules that may drop frames; None without a tool to list them, or if its output is malformed."""
    try:
        return parse_droppers(run_checked(host, LIST_RULES), run_checked(host, LIST_CHAINS))
    except (MissingError, TestbedError):
        return None


def queues_of(messages: Iterable[bytes], names: Mapping[int, str]) -> Iterator[Queue]:
    """Yield the queues of some interfaces, by index, from messages about queueing disciplines."""
    for message in messages:
        _, index, handle, parent = _QDISC.unpack_from(message)
        if index in names and parent in (_TC_H_ROOT, _TC_H_INGRESS):
            qdisc = attributes(message[_QDISC.size :])
            stats = nested(qdisc, _TCA_STATS2, _TCA_STATS_QUEUE)
            dropped = _QUEUE.unpack_from(stats)[0] if stats else None
            yield Queue(names[index], text(qdisc[_TCA_KIND]), dropped, f"{handle >> 16:x}:")


def _programs(index: int, link: dict[int, bytes], direction: str) -> Iterator[str]:
    """Yield the names of the programs of others at an interface that may take frames in this direction."""
    if direction == "rx":
        yield from (f"XDP program {program}" for program in foreign_xdp_programs(link))
    hook = "ingress" if direction == "rx" else "egress"
    yield from (f"tcx {hook} program {program}" for program in foreign_tcx_programs(index, hook))


def _link(netlink: socket.socket, index: int) -> dict[int, bytes]:
    try:
        (link,) = request_links(netlink, index)
    except OSError:
        return {}  # the interface is gone
    return link.attributes


def read_pause_frames(interfaces: Iterable[str]) -> dict[str, PauseFrames]:
    """Return pause frames by interface; without interfaces that do not count them, such as all virtual ones."""
    frames = {}
    flags = attribute(_HEADER_FLAGS, struct.pack("=I", _FLAG_STATS))
    with suppress(OSError), generic_netlink("ethtool") as ethtool:  # missing before Linux 5.6
        for name in interfaces:
            header = attribute(_HEADER_DEV_NAME, encoded(name) + b"\0") + flags
            with suppress(OSError):  # its driver does not support pause frames
                answer = ethtool(_ETHTOOL_MSG_PAUSE_GET, attribute(_PAUSE_HEADER | _NESTED, header))
                stats = attributes(answer.get(_PAUSE_STATS, b""))
                if _RX_FRAMES in stats and _TX_FRAMES in stats:
                    frames[name] = PauseFrames(number(stats[_RX_FRAMES]), number(stats[_TX_FRAMES]))
    return frames


def refresh_driver_counters(interfaces: Mapping[str | None, Collection[str]]) -> None:
    """Return once the counters of interfaces, by namespace, include all that the NICs have counted until now.

    Some drivers read their NIC, or receive its counts, only every second or two. Most update them at once when their
    own statistics are requested (e1000 does). Drivers that receive counts from the NIC report how often
    (`stats-block-usecs` of ethtool(8)). MachineGoneError when a namespace is gone.
    """
    if any(interfaces.values()):
        lags_s = within_each(interfaces, lambda netns: max(map(_lag_s, interfaces[netns]), default=0.0))
        time.sleep(min(max(lags_s.values()), LONGEST_REFRESH_S))


def _lag_s(interface: str) -> float:
    """Return how long a NIC's counters may lag after its driver was queried, in s; 0 if no value is reported."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control, suppress(OSError):  # gone, or not supported
        with suppress(OSError):  # a driver without its own statistics
            answer = _ethtool(control, interface, _SSET_INFO.pack(_GSSET_INFO, 0, 1 << _ETH_SS_STATS, 0))
            *_, count = _SSET_INFO.unpack(answer)
            _ethtool(control, interface, _DRIVER_STATS.pack(_GSTATS, count) + bytes(8 * count))
        coalesce = _ethtool(control, interface, struct.pack("=I", _GCOALESCE).ljust(_COALESCE.size, b"\0"))
        return float(_COALESCE.unpack(coalesce)[_STATS_BLOCK_USECS] / 1e6)
    return 0.0


def _ethtool(control: socket.socket, interface: str, structure: bytes) -> bytes:
    """Return a structure that the kernel filled in; OSError when the driver does not support the request."""
    buffer = ctypes.create_string_buffer(structure, len(structure))
    fcntl.ioctl(control, _SIOCETHTOOL, _IFREQ.pack(encoded(interface), ctypes.addressof(buffer)))
    return buffer.raw
