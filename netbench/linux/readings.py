"""Convert one machine's raw counters to readings.

Position on the path, with no NIC counter repeating it (net/core/dev.c): XDP programs, classifiers at ingress and rules
at ingress come after a NIC has counted a frame as received. Except for XDP, they also come after a capture has seen it.
Rules at egress, classifiers at egress and the queueing discipline come before the NIC counts a frame as sent.

IPv4 layer: RFC 4293's ipSystemStatsTable, and Linux's further counters (net/ipv4/proc.c). `InNoRoutes`: no route at
all. No counter includes routes of the types blackhole, unreachable and prohibit, or multicast without a router. UDP's
`NoPorts`: frames to this machine itself without a receiver. Two groups of counters are left out, because they include
no frame of a stream. They count frames that the machine itself sends, such as ICMP errors (`OutDiscards`,
`OutNoRoutes`: net/ipv4/ip_output.c), and protocols other than UDP (`InUnknownProtos`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netbench.linux.nics import NicCounters
from netbench.linux.pause import PauseFrames
from netbench.linux.rules import Dropper, NftHook
from netbench.model.points import ALL_RULES, OTHERHOST, CounterReading, CountingPoint, PathSection, PointKind, Points

FORWARDED = "ForwDatagrams"
_IP_DROPS = {
    "Ip": ("InHdrErrors", "InAddrErrors", "InDiscards", "ReasmFails", "FragFails"),
    "IpExt": ("InNoRoutes", "InTruncatedPkts"),
    "TcpExt": ("IPReversePathFilter",),
    "Udp": ("NoPorts",),
}
CLASSIFIERS = ("ingress", "clsact")
_STACKS = (PointKind.BRIDGE, PointKind.IP_LAYER)
_ON_DEVICE = {"rx": "ingress", "tx": "egress"}
_ON_THE_WAY = ("prerouting", "forward", "postrouting")
_NO_QUEUE = ("noqueue", "noop")
# Disciplines that only queue; those that shape, limit or impair interfere.
_PLAIN_QUEUES = ("mq", "pfifo", "pfifo_fast", "fq", "fq_codel", "mqprio")


@dataclass(frozen=True, slots=True)
class Queue:
    """The root discipline of an interface, or a hook beside it (one of CLASSIFIERS); `dropped` in frames, None without
    statistics.

    A discipline that replaces another has another `handle`, as tc(8) shows it, unless its creator chose the same. The
    drops of a classful discipline include those of all below it. Each passes on its children's failures to enqueue
    (net/sched/sch_htb.c, sch_tbf.c, …) and later drops (qdisc_tree_reduce_backlog in net/sched/sch_api.c). `mq` sums up
    its queues at each read (net/sched/sch_mq.c). Therefore only the root of each device is read. No NIC counter repeats
    these drops.
    """

    interface: str
    kind: str
    dropped: int | None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceCounters:
    """The raw counters of one network namespace. `rules` is None when there are some that cannot be read.

    `bridged_ip`: whether br_netfilter passes bridged frames to the IP layer. `programs` are the BPF programs of others
    by interface and direction. `ip` is the text of /proc/net/snmp and /proc/net/netstat. `pause` are the pause frames
    of NICs that count them. `out_of_buffers` are the frames for which a NIC had no buffer, if its driver counts them.
    `generation` is that of netbench.linux.rules.Tables.
    """

    queues: tuple[Queue, ...] = ()
    rules: tuple[Dropper, ...] | None = ()
    generation: int | None = None
    ip: str = ""
    bridged_ip: bool = False
    programs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    pause: Mapping[str, PauseFrames] = field(default_factory=dict)
    nics: Mapping[str, NicCounters] = field(default_factory=dict)
    out_of_buffers: Mapping[str, int] = field(default_factory=dict)


class MachineReading(NamedTuple):
    """The counters of a machine at one moment, and the CPU time it has used since its boot, in s."""

    counters: tuple[CounterReading, ...]
    cpu_s: float


class _Met(NamedTuple):
    """An interface that frames of a stream go through."""

    stream: str
    point: CountingPoint

    @property
    def interface(self) -> str:
        return self.point.place.interface if self.point.place else ""


def by_namespace(points: Points) -> dict[str | None, list[CountingPoint]]:
    """Return the points in network namespaces, by namespace; points of several streams only once."""
    found: dict[str | None, dict[CountingPoint, None]] = {}
    for along in points.values():
        for point in along:
            if point.place and point.kind not in (PointKind.NOTHING, PointKind.BACKLOG):
                found.setdefault(point.place.netns, {})[point] = None
    return {netns: list(members) for netns, members in found.items()}


def bridges(points: Iterable[CountingPoint]) -> bool:
    """Return whether a bridge forwards at these points."""
    return any(point.kind is PointKind.BRIDGE for point in points)


def counter_readings(
    points: Points, counted: Mapping[str | None, NamespaceCounters], softnet: str
) -> tuple[CounterReading, ...]:
    """Return all readings of a machine, from its namespaces and /proc/net/softnet_stat (empty: unknown).

    ValueError or LookupError for malformed texts.
    """
    readings: list[CounterReading] = []
    along = [(stream, point) for stream, own in points.items() for point in own if point.place]
    for netns, counters in counted.items():
        here = [(stream, point) for stream, point in along if point.place and point.place.netns == netns]
        for stream, point in here:
            readings += _of_nic(stream, point, counters)
        readings += _attached(
            [_Met(stream, point) for stream, point in here if point.kind is PointKind.INTERFACE], counters
        )
        readings += _rules(here, counters)
        readings += _ip_layer(_first(here, *_STACKS) or _first(here, PointKind.IP_COUNTERS), counters)
    backlog = _first(along, PointKind.BACKLOG)
    if softnet and backlog:
        # The rx_dropped of the NIC includes them too (net/core/dev.c, enqueue_to_backlog).
        dropped = sum(int(line.split()[1], 16) for line in softnet.splitlines())
        readings.append(CounterReading("", backlog.name, "dropped", "repeated", dropped))
    return tuple(readings)


def _first(along: Iterable[tuple[str, CountingPoint]], *kinds: PointKind) -> CountingPoint | None:
    return next((point for _, point in along if point.kind in kinds), None)


def _of_nic(stream: str, point: CountingPoint, there: NamespaceCounters) -> Iterator[CounterReading]:
    """Yield the counters of a NIC, of its driver, and of its egress queue; unknown ones are left out."""
    assert point.place
    interface, way = point.place.interface, point.direction
    if point.kind is PointKind.NIC:
        for counter, role in ((way, "passed"), (f"{way}_dropped", "dropped"), (f"{way}_errors", "errors")):
            yield CounterReading(stream, point.name, counter, role, getattr(there.nics[interface], counter))
        if way == "rx":
            yield CounterReading(
                stream, point.name, OTHERHOST, "dropped", there.nics[interface].rx_otherhost_dropped or 0
            )
    elif point.kind is PointKind.BUFFERS and interface in there.out_of_buffers:
        # Reported by the driver; the kernel never had these frames.
        yield CounterReading(stream, point.name, "rx_out_of_buffers", "dropped", there.out_of_buffers[interface])
    elif point.kind is PointKind.QUEUE:
        for queue in there.queues:
            if queue.interface == interface and queue.kind not in CLASSIFIERS:
                handle = _handle(point, queue)
                yield CounterReading(stream, point.name, "dropped", "dropped", queue.dropped, handle=handle)


def _attached(met: Iterable[_Met], there: NamespaceCounters) -> Iterator[CounterReading]:
    for hop in met:
        name, direction = hop.point.name, hop.point.direction
        pause = there.pause.get(hop.interface)
        if pause:
            # The kind of pause frame that delays this stream's frames.
            counter, frames = ("rx_pause", pause.rx) if direction == "tx" else ("tx_pause", pause.tx)
            yield CounterReading(hop.stream, name, counter, "passed", frames)
        for program in there.programs.get((hop.interface, direction), ()):
            counter = f"{program} on {hop.interface}"
            yield CounterReading(hop.stream, name, counter, "dropped", None, attached=True)
        for queue in there.queues:
            counter = _queue_counter(queue, direction)
            if counter and queue.interface == hop.interface:
                attached = queue.kind not in _PLAIN_QUEUES
                handle = _handle(hop.point, queue)
                yield CounterReading(hop.stream, name, counter, _role(hop.point), queue.dropped, attached, handle)


def _handle(point: CountingPoint, queue: Queue) -> tuple[str, ...]:
    return str(point.place), queue.kind, queue.handle


def _queue_counter(queue: Queue, direction: str) -> str:
    """Return the counter name of a queue for this direction; empty if these frames do not pass it."""
    if queue.kind in CLASSIFIERS:
        return "" if queue.kind == "ingress" and direction == "tx" else f"tc {_ON_DEVICE[direction]}"
    return f"qdisc {queue.kind}" if direction == "tx" and queue.kind not in _NO_QUEUE else ""


def _rules(here: Sequence[tuple[str, CountingPoint]], there: NamespaceCounters) -> Iterator[CounterReading]:
    met = [_Met(stream, point) for stream, point in here if point.kind is PointKind.INTERFACE]
    stacks = [_Met(stream, point) for stream, point in here if point.kind in _STACKS]
    if there.generation is not None:
        places = {place.point.name: place for place in stacks or met}
        for name, (stream, point) in places.items():
            where = str(point.place._replace(interface="")) if point.place else ""
            handle = where, str(there.generation)
            yield CounterReading("" if stacks else stream, name, ALL_RULES, _role(point), 0, handle=handle)
    if there.rules is None:
        for hop in met:
            yield CounterReading(hop.stream, hop.point.name, "nft rules", _role(hop.point), None, attached=True)
        for name in dict.fromkeys(layer.point.name for layer in stacks):
            yield CounterReading("", name, "nft rules", "dropped", None, attached=True)
        return
    known = _known(here)
    interfaces = {hop.interface for hop in met}
    directed = {f"{way} {interface}" for way in _ON_DEVICE for interface in interfaces}.union(*known.values())
    for rule in there.rules:
        hooked = [hop for hop in met if any(_meets(hop, hook) for hook in rule.hooks)] or [
            layer for layer in stacks if any(_in_stack(hook, layer.point.kind, there.bridged_ip) for hook in rule.hooks)
        ]
        # Other names may belong to something on the path, like a bridge, or may be assigned on the path.
        asked = [names for names in rule.only if names <= directed]
        concerned = [hop for hop in hooked if all(names & known[hop.stream] for names in asked)]
        # If several streams pass a rule, it is unknown whose frames it has dropped.
        streams = {hop.stream for hop in concerned}
        stream = streams.pop() if len(streams) == 1 else ""
        for point in {hop.point.name: hop.point for hop in concerned}.values():
            yield _of_rule(rule, stream, point)


def _known(here: Iterable[tuple[str, CountingPoint]]) -> dict[str, set[str]]:
    """Return the properties of each stream's frames: destination address, and direction at each interface."""
    known: dict[str, set[str]] = {}
    for stream, point in here:
        way = f"{point.direction} {point.place.interface}" if point.place and point.place.interface else ""
        known.setdefault(stream, set()).update({point.address, way} - {""})
    return known


def _of_rule(rule: Dropper, stream: str, point: CountingPoint) -> CounterReading:
    of_bridge = any(hook.family == "bridge" for hook in rule.hooks)
    name = f"br_netfilter: {rule.name}" if point.kind is PointKind.BRIDGE and not of_bridge else rule.name
    place = str(point.place._replace(interface="")) if point.place else ""
    handle = (place, rule.table, *rule.handle)
    owner, counts = f"{place} {rule.table}", rule.frames is not None
    return CounterReading(stream, point.name, name, _role(point), rule.frames, True, handle, owner, counts)


def _meets(one: _Met, hook: NftHook) -> bool:
    return hook.device == one.interface and hook.name == _ON_DEVICE[one.point.direction]


def _in_stack(hook: NftHook, stack: PointKind, bridged_ip: bool) -> bool:
    if hook.name not in _ON_THE_WAY:
        return False
    if hook.family == "bridge":
        return stack is PointKind.BRIDGE
    return hook.family in ("ip", "inet") and (stack is PointKind.IP_LAYER or bridged_ip)


def _role(point: CountingPoint) -> str:
    """Return `repeated` where other counters include the drops, else `dropped`.

    Drops before a source's NIC are reported to the generator as errors: it does not count these frames as sent. Drops
    behind a sink's NIC come after the capture.
    """
    return (
        "repeated"
        if (point.where, point.direction) in ((PathSection.SOURCE, "tx"), (PathSection.SINK, "rx"))
        else "dropped"
    )


def _ip_layer(stack: CountingPoint | None, there: NamespaceCounters) -> Iterator[CounterReading]:
    """Yield the IP layer's counters if it forwards, or if br_netfilter passes it the frames of a bridge."""
    if stack and (stack.kind is not PointKind.BRIDGE or there.bridged_ip):
        prefix = "br_netfilter: " if stack.kind is PointKind.BRIDGE else ""
        for name, role, frames in ip_counters(there.ip):
            yield CounterReading("", stack.name, f"{prefix}{name}", role, frames)


def ip_counters(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield name, role (`passed` or `dropped`) and frames of each counter in /proc/net/snmp and, after it, netstat.

    Counters that this kernel lacks are left out. ValueError for other texts.
    """
    counted: dict[tuple[str, str], int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group, *columns = names.split()
        for name, value in zip(columns, values.split()[1:], strict=True):
            counted[group.removesuffix(":"), name] = int(value)
    if ("Ip", FORWARDED) in counted:
        yield FORWARDED, "passed", counted["Ip", FORWARDED]
    for group, drops in _IP_DROPS.items():
        for name in drops:
            if (group, name) in counted:
                yield f"UDP {name}" if group == "Udp" else name, "dropped", counted[group, name]
