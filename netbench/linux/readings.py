"""What one machine counts: from what was read there to readings.

Where each is met on the way, with no NIC counter repeating it (net/core/dev.c): a program of XDP, classifiers at
ingress and rules at ingress come after a NIC has counted a frame as received, and after a capture has seen it there,
except for XDP; rules at egress, classifiers at egress and the queueing discipline come before it counts it as sent.

Of the IPv4 layer: RFC 4293's ipSystemStatsTable, and what Linux counts beyond it (net/ipv4/proc.c). `InNoRoutes`: no
route at all. Routes of the types blackhole, unreachable and prohibit, and multicast that nobody routes, are counted
nowhere. `NoPorts` of UDP: frames for this machine itself, for which nobody waits. What counts only frames that the
machine itself wants to send (`OutDiscards`, `OutNoRoutes`: net/ipv4/ip_output.c), such as its ICMP errors, or only
protocols other than UDP (`InUnknownProtos`), is left out: no frame of a stream is among them.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from netbench.linux.nics import NicCounters
from netbench.linux.pause import PauseFrames
from netbench.linux.rules import Dropper, Hook
from netbench.model.points import ALL_RULES, OTHERHOST, CounterReading, CountingPoint, Kind, Points, Where

FORWARDED = "ForwDatagrams"
_IP_DROPS = {
    "Ip": ("InHdrErrors", "InAddrErrors", "InDiscards", "ReasmFails", "FragFails"),
    "IpExt": ("InNoRoutes", "InTruncatedPkts"),
    "TcpExt": ("IPReversePathFilter",),
    "Udp": ("NoPorts",),
}
CLASSIFIERS = ("ingress", "clsact")
_STACKS = (Kind.BRIDGE, Kind.IP_LAYER)
_ON_DEVICE = {"rx": "ingress", "tx": "egress"}
_ON_THE_WAY = ("prerouting", "forward", "postrouting")
_NO_QUEUE = ("noqueue", "noop")
# Those that only queue; one that shapes, limits or impairs is in the way.
_PLAIN_QUEUES = ("mq", "pfifo", "pfifo_fast", "fq", "fq_codel", "mqprio")


@dataclass(frozen=True, slots=True)
class Queue:
    """The root discipline of an interface, or (one of CLASSIFIERS) what is hooked in beside it; `dropped` in frames,
    None where it has no statistics.

    One put in the place of another has another `handle`, as tc(8) shows it, unless who put it there gave it the same.
    What a classful discipline counts as dropped holds the drops of all below it: each passes on its children's failures
    to enqueue (net/sched/sch_htb.c, sch_tbf.c, …) and later drops (qdisc_tree_reduce_backlog in net/sched/sch_api.c),
    and `mq` sums its queues up when asked (net/sched/sch_mq.c). So only the root of each device is read. No NIC counter
    repeats these drops.
    """

    interface: str
    kind: str
    dropped: int | None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceCounters:
    """What one network namespace counts. `rules` is None when there are some that cannot be read.

    `bridged_ip` says whether br_netfilter shows bridged frames to the IP layer; `programs` names the BPF programs of
    others by interface and direction, `ip` is what /proc/net/snmp and /proc/net/netstat say, `pause` the pause frames
    of NICs that count them, `out_of_buffers` the frames for which a NIC had no buffer, if its driver counts them,
    `generation` is as of netbench.linux.rules.Tables.
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


class Counted(NamedTuple):
    """What a machine says at one moment: its counters, and the CPU time it has used since it was started, in s."""

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
    """The points that are in a network namespace, by that; those of several streams each once."""
    found: dict[str | None, dict[CountingPoint, None]] = {}
    for along in points.values():
        for point in along:
            if point.place and point.kind not in (Kind.NOTHING, Kind.BACKLOG):
                found.setdefault(point.place.netns, {})[point] = None
    return {netns: list(there) for netns, there in found.items()}


def bridges(points: Iterable[CountingPoint]) -> bool:
    """Whether it is by a bridge that frames are forwarded there."""
    return any(point.kind is Kind.BRIDGE for point in points)


def counter_readings(
    points: Points, counted: Mapping[str | None, NamespaceCounters], softnet: str
) -> tuple[CounterReading, ...]:
    """All readings of a machine, by its namespaces and /proc/net/softnet_stat (empty: unknown).

    ValueError or LookupError for texts that make no sense.
    """
    readings: list[CounterReading] = []
    along = [(stream, point) for stream, own in points.items() for point in own if point.place]
    for netns, there in counted.items():
        here = [(stream, point) for stream, point in along if point.place and point.place.netns == netns]
        for stream, point in here:
            readings += _of_nic(stream, point, there)
        readings += _attached([_Met(stream, point) for stream, point in here if point.kind is Kind.INTERFACE], there)
        readings += _rules(here, there)
        readings += _ip_layer(_first(here, *_STACKS) or _first(here, Kind.IP_COUNTERS), there)
    backlog = _first(along, Kind.BACKLOG)
    if softnet and backlog:
        # In the rx_dropped of their NIC too (net/core/dev.c, enqueue_to_backlog).
        dropped = sum(int(line.split()[1], 16) for line in softnet.splitlines())
        readings.append(CounterReading("", backlog.name, "dropped", "repeated", dropped))
    return tuple(readings)


def _first(along: Iterable[tuple[str, CountingPoint]], *kinds: Kind) -> CountingPoint | None:
    return next((point for _, point in along if point.kind in kinds), None)


def _of_nic(stream: str, point: CountingPoint, there: NamespaceCounters) -> Iterator[CounterReading]:
    """What a NIC counts itself, what its driver tells, and what waits to leave by it; what is unknown is left out."""
    assert point.place
    interface, way = point.place.interface, point.direction
    if point.kind is Kind.NIC:
        for counter, role in ((way, "passed"), (f"{way}_dropped", "dropped"), (f"{way}_errors", "errors")):
            yield CounterReading(stream, point.name, counter, role, getattr(there.nics[interface], counter))
        if way == "rx":
            yield CounterReading(
                stream, point.name, OTHERHOST, "dropped", there.nics[interface].rx_otherhost_dropped or 0
            )
    elif point.kind is Kind.BUFFERS and interface in there.out_of_buffers:
        # Told by the driver, but the kernel never had them.
        yield CounterReading(stream, point.name, "rx_out_of_buffers", "dropped", there.out_of_buffers[interface])
    elif point.kind is Kind.QUEUE:
        for queue in there.queues:
            if queue.interface == interface and queue.kind not in CLASSIFIERS:
                handle = _handle(point, queue)
                yield CounterReading(stream, point.name, "dropped", "dropped", queue.dropped, handle=handle)


def _attached(met: Iterable[_Met], there: NamespaceCounters) -> Iterator[CounterReading]:
    for one in met:
        name, direction = one.point.name, one.point.direction
        pause = there.pause.get(one.interface)
        if pause:
            # Of either kind, those that hold this stream's frames back.
            counter, frames = ("rx_pause", pause.rx) if direction == "tx" else ("tx_pause", pause.tx)
            yield CounterReading(one.stream, name, counter, "passed", frames)
        for program in there.programs.get((one.interface, direction), ()):
            counter = f"{program} on {one.interface}"
            yield CounterReading(one.stream, name, counter, "dropped", None, attached=True)
        for queue in there.queues:
            counter = _queue_counter(queue, direction)
            if counter and queue.interface == one.interface:
                attached = queue.kind not in _PLAIN_QUEUES
                handle = _handle(one.point, queue)
                yield CounterReading(one.stream, name, counter, _role(one.point), queue.dropped, attached, handle)


def _handle(point: CountingPoint, queue: Queue) -> tuple[str, ...]:
    return str(point.place), queue.kind, queue.handle


def _queue_counter(queue: Queue, direction: str) -> str:
    """Its name where frames go this way, empty where they do not meet it."""
    if queue.kind in CLASSIFIERS:
        return "" if queue.kind == "ingress" and direction == "tx" else f"tc {_ON_DEVICE[direction]}"
    return f"qdisc {queue.kind}" if direction == "tx" and queue.kind not in _NO_QUEUE else ""


def _rules(here: Sequence[tuple[str, CountingPoint]], there: NamespaceCounters) -> Iterator[CounterReading]:
    met = [_Met(stream, point) for stream, point in here if point.kind is Kind.INTERFACE]
    stacks = [_Met(stream, point) for stream, point in here if point.kind in _STACKS]
    if there.generation is not None:
        places = {place.point.name: place for place in stacks or met}
        for name, (stream, point) in places.items():
            where = str(point.place._replace(interface="")) if point.place else ""
            handle = where, str(there.generation)
            yield CounterReading("" if stacks else stream, name, ALL_RULES, _role(point), 0, handle=handle)
    if there.rules is None:
        for one in met:
            yield CounterReading(one.stream, one.point.name, "nft rules", _role(one.point), None, attached=True)
        for name in dict.fromkeys(one.point.name for one in stacks):
            yield CounterReading("", name, "nft rules", "dropped", None, attached=True)
        return
    known = _known(here)
    interfaces = {one.interface for one in met}
    told = {f"{way} {interface}" for way in _ON_DEVICE for interface in interfaces}.union(*known.values())
    for rule in there.rules:
        hooked = [one for one in met if any(_meets(one, hook) for hook in rule.hooks)] or [
            one for one in stacks if any(_in_stack(hook, one.point.kind, there.bridged_ip) for hook in rule.hooks)
        ]
        # Whatever is not of these streams may be a name of something on the way, like a bridge, or given on the way.
        asked = [names for names in rule.only if names <= told]
        concerned = [one for one in hooked if all(names & known[one.stream] for names in asked)]
        # Of a rule that several streams come to, nobody knows whose frames it has dropped.
        streams = {one.stream for one in concerned}
        stream = streams.pop() if len(streams) == 1 else ""
        for point in {one.point.name: one.point for one in concerned}.values():
            yield _of_rule(rule, stream, point)


def _known(here: Iterable[tuple[str, CountingPoint]]) -> dict[str, set[str]]:
    """What can be told of each stream's frames: the address that they go to, and their way through interfaces."""
    known: dict[str, set[str]] = {}
    for stream, point in here:
        way = f"{point.direction} {point.place.interface}" if point.place and point.place.interface else ""
        known.setdefault(stream, set()).update({point.address, way} - {""})
    return known


def _of_rule(rule: Dropper, stream: str, point: CountingPoint) -> CounterReading:
    of_bridge = any(hook.family == "bridge" for hook in rule.hooks)
    name = f"br_netfilter: {rule.name}" if point.kind is Kind.BRIDGE and not of_bridge else rule.name
    place = str(point.place._replace(interface="")) if point.place else ""
    handle = (place, rule.table, *rule.handle)
    owner, counts = f"{place} {rule.table}", rule.frames is not None
    return CounterReading(stream, point.name, name, _role(point), rule.frames, True, handle, owner, counts)


def _meets(one: _Met, hook: Hook) -> bool:
    return hook.device == one.interface and hook.name == _ON_DEVICE[one.point.direction]


def _in_stack(hook: Hook, stack: Kind, bridged_ip: bool) -> bool:
    if hook.name not in _ON_THE_WAY:
        return False
    if hook.family == "bridge":
        return stack is Kind.BRIDGE
    return hook.family in ("ip", "inet") and (stack is Kind.IP_LAYER or bridged_ip)


def _role(point: CountingPoint) -> str:
    """Drops before a source's NIC come back to the generator as errors, so it has not counted these frames as sent.

    Those behind a sink's NIC come behind the capture.
    """
    return "repeated" if (point.where, point.direction) in ((Where.SOURCE, "tx"), (Where.SINK, "rx")) else "dropped"


def _ip_layer(stack: CountingPoint | None, there: NamespaceCounters) -> Iterator[CounterReading]:
    """The IP layer is on the way where it forwards, and where br_netfilter lets it look at what a bridge forwards."""
    if stack and (stack.kind is not Kind.BRIDGE or there.bridged_ip):
        prefix = "br_netfilter: " if stack.kind is Kind.BRIDGE else ""
        for name, role, frames in ip_counters(there.ip):
            yield CounterReading("", stack.name, f"{prefix}{name}", role, frames)


def ip_counters(text: str) -> Iterator[tuple[str, str, int]]:
    """Name, role (`passed` or `dropped`) and frames of each counter in /proc/net/snmp and, after it, netstat.

    One that this kernel does not have is left out. ValueError for what are no such files.
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
