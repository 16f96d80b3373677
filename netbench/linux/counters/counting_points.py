"""The raw counters of one machine, and their assignment to the counting points of streams.

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

from netbench.linux.nft_rules import Dropper, NftHook
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
_HOOK_OF_DIRECTION = {"rx": "ingress", "tx": "egress"}
_STACK_HOOKS = ("prerouting", "forward", "postrouting")
_NO_QUEUE = ("noqueue", "noop")
# Disciplines that only queue; those that shape, limit or impair interfere.
_PLAIN_QUEUES = ("mq", "pfifo", "pfifo_fast", "fq", "fq_codel", "mqprio")


@dataclass(frozen=True, slots=True)
class NicCounters:
    """Frame counters of a NIC since its creation, and the state of its link.

    `rx_dropped` is the column of this name in /proc/net/dev: frames that the host did not process, and frames for which
    the NIC found no buffer. Only the latter are not in `rx` (struct rtnl_link_stats64 in linux/if_link.h). The same
    document makes FIFO errors part of `tx_errors`, and leaves it to the driver whether they are part of `rx_errors`.
    `rx_otherhost_dropped` are frames to another MAC address, which are in `rx` and which the IP layer dropped. It is
    None before Linux 5.19; `ip` omits it while it is 0 as well.
    """

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int | None  # None before Linux 3.15, which does not count them
    mac: str
    index: int  # changes when a NIC is removed and made again
    master: int  # index of the bridge it belongs to, 0 for none
    rx_otherhost_dropped: int | None = None
    forwards: bool = True  # in operation, and not blocked as a bridge port: up to a second later than `up`


class PauseFrames(NamedTuple):
    """Pause frames (IEEE 802.3, annex 31B) that a NIC has received and sent: they make the link partner wait."""

    rx: int
    tx: int


class IpCounter(NamedTuple):
    """A counter of the IP layer; `role` is `passed` or `dropped`."""

    name: str
    role: str
    frames: int


@dataclass(frozen=True, slots=True)
class Queue:
    """The root discipline of an interface, or a hook beside it (one of CLASSIFIERS).

    `dropped` are frames, None without statistics. A discipline that replaces another has another `handle`, as tc(8)
    shows it, unless its creator chose the same. The drops of a classful discipline include those of all below it. Each
    passes on its children's failures to enqueue (net/sched/sch_htb.c, sch_tbf.c, …) and later drops
    (qdisc_tree_reduce_backlog in net/sched/sch_api.c). `mq` sums up its queues at each read (net/sched/sch_mq.c).
    Therefore only the root of each device is read. No NIC counter repeats these drops.
    """

    interface: str
    kind: str
    dropped: int | None
    handle: str = ""


@dataclass(frozen=True, slots=True)
class NamespaceCounters:
    """The raw counters of one network namespace. `rules` is None when there are some that cannot be read.

    `bridged_ip`: whether br_netfilter passes bridged frames to the IP layer. `programs` are the BPF programs of others
    by interface and direction. `pause` are the pause frames of NICs that count them. `out_of_buffers` are the frames
    for which a NIC had no buffer, if its driver counts them. `generation` is that of `nft_rules.Tables`.
    """

    queues: tuple[Queue, ...] = ()
    rules: tuple[Dropper, ...] | None = ()
    generation: int | None = None
    ip: tuple[IpCounter, ...] = ()
    bridged_ip: bool = False
    programs: Mapping[tuple[str, str], Sequence[str]] = field(default_factory=dict)
    pause: Mapping[str, PauseFrames] = field(default_factory=dict)
    nics: Mapping[str, NicCounters] = field(default_factory=dict)
    out_of_buffers: Mapping[str, int] = field(default_factory=dict)


class MachineReading(NamedTuple):
    """The counters of a machine at one moment, and the CPU time it has used since its boot, in s."""

    counters: tuple[CounterReading, ...]
    cpu_s: float


class _Hop(NamedTuple):
    """A point with an interface, or in a forwarding stack, on the path of a stream."""

    stream: str
    point: CountingPoint

    @property
    def interface(self) -> str:
        return self.point.place.interface if self.point.place else ""

    @property
    def netns(self) -> str:
        """The text of the point's namespace, for handles of counters."""
        return str(self.point.place._replace(interface="")) if self.point.place else ""

    @property
    def role(self) -> str:
        """`repeated` where other counters include the drops, else `dropped`.

        Drops before a source's NIC are reported to the generator as errors: it does not count these frames as sent.
        Drops behind a sink's NIC come after the capture.
        """
        end = self.point.where, self.point.direction
        return "repeated" if end in ((PathSection.SOURCE, "tx"), (PathSection.SINK, "rx")) else "dropped"


def by_namespace(points: Points) -> dict[str | None, list[CountingPoint]]:
    """Return the points in network namespaces, by namespace; points of several streams only once."""
    members: dict[str | None, dict[CountingPoint, None]] = {}
    for along in points.values():
        for point in along:
            if point.place and point.kind not in (PointKind.NOTHING, PointKind.BACKLOG):
                members.setdefault(point.place.netns, {})[point] = None
    return {netns: list(points_there) for netns, points_there in members.items()}


def readings_at_points(
    points: Points, counted: Mapping[str | None, NamespaceCounters], softnet_drops: int | None
) -> tuple[CounterReading, ...]:
    """Return all readings of a machine, from its namespaces and its backlog's drops (None: unknown)."""
    readings: list[CounterReading] = []
    along = [_Hop(stream, point) for stream, members in points.items() for point in members if point.place]
    for netns, counters in counted.items():
        hops = [hop for hop in along if hop.point.place and hop.point.place.netns == netns]
        for hop in hops:
            readings += _nic_readings(hop, counters)
        readings += _interface_readings([hop for hop in hops if hop.point.kind is PointKind.INTERFACE], counters)
        readings += _rule_readings(hops, counters)
        readings += _ip_readings(_first(hops, *_STACKS) or _first(hops, PointKind.IP_COUNTERS), counters)
    backlog = _first(along, PointKind.BACKLOG)
    if softnet_drops is not None and backlog:
        # The rx_dropped of the NIC includes them too (net/core/dev.c, enqueue_to_backlog).
        readings.append(CounterReading("", backlog.name, "dropped", "repeated", softnet_drops))
    return tuple(readings)


def parse_softnet_drops(softnet_stat: str) -> int:
    """Return the drops of all CPUs' backlogs, from /proc/net/softnet_stat; ValueError, IndexError for other texts."""
    return sum(int(line.split()[1], 16) for line in softnet_stat.splitlines())


def parse_ip_counters(text: str) -> tuple[IpCounter, ...]:
    """Return the IP layer's counters in /proc/net/snmp and, after it, netstat.

    Counters that this kernel lacks are left out. ValueError for other texts.
    """
    counted: dict[tuple[str, str], int] = {}
    lines = text.splitlines()
    for names, values in zip(lines[::2], lines[1::2], strict=True):
        group, *columns = names.split()
        for name, value in zip(columns, values.split()[1:], strict=True):
            counted[group.removesuffix(":"), name] = int(value)
    passed = counted.get(("Ip", FORWARDED))
    drops = [
        IpCounter(f"UDP {name}" if group == "Udp" else name, "dropped", counted[group, name])
        for group, names in _IP_DROPS.items()
        for name in names
        if (group, name) in counted
    ]
    return tuple(drops if passed is None else [IpCounter(FORWARDED, "passed", passed), *drops])


def _first(hops: Iterable[_Hop], *kinds: PointKind) -> CountingPoint | None:
    return next((hop.point for hop in hops if hop.point.kind in kinds), None)


def _nic_readings(hop: _Hop, counters: NamespaceCounters) -> Iterator[CounterReading]:
    """Yield the counters of a NIC, of its driver, and of its egress queue; unknown ones are left out."""
    stream, point = hop
    interface, direction = hop.interface, point.direction
    if point.kind is PointKind.NIC:
        nic = counters.nics[interface]
        roles = {direction: "passed", f"{direction}_dropped": "dropped", f"{direction}_errors": "errors"}
        for counter, role in roles.items():
            yield CounterReading(stream, point.name, counter, role, getattr(nic, counter))
        if direction == "rx":
            yield CounterReading(stream, point.name, OTHERHOST, "dropped", nic.rx_otherhost_dropped or 0)
    elif point.kind is PointKind.BUFFERS and interface in counters.out_of_buffers:
        # Reported by the driver; the kernel never had these frames.
        frames = counters.out_of_buffers[interface]
        yield CounterReading(stream, point.name, "rx_out_of_buffers", "dropped", frames)
    elif point.kind is PointKind.QUEUE:
        for queue in counters.queues:
            if queue.interface == interface and queue.kind not in CLASSIFIERS:
                handle = _queue_handle(point, queue)
                yield CounterReading(stream, point.name, "dropped", "dropped", queue.dropped, handle=handle)


def _interface_readings(hops: Iterable[_Hop], counters: NamespaceCounters) -> Iterator[CounterReading]:
    """Yield the counters of pause frames, BPF programs and queues at interfaces."""
    for hop in hops:
        name, direction = hop.point.name, hop.point.direction
        pause = counters.pause.get(hop.interface)
        if pause:
            # The kind of pause frame that delays this stream's frames.
            counter, frames = ("rx_pause", pause.rx) if direction == "tx" else ("tx_pause", pause.tx)
            yield CounterReading(hop.stream, name, counter, "passed", frames)
        for program in counters.programs.get((hop.interface, direction), ()):
            counter = f"{program} on {hop.interface}"
            yield CounterReading(hop.stream, name, counter, "dropped", None, attached=True, is_foreign_program=True)
        for queue in counters.queues:
            counter = _queue_counter(queue, direction)
            if counter and queue.interface == hop.interface:
                attached, handle = queue.kind not in _PLAIN_QUEUES, _queue_handle(hop.point, queue)
                yield CounterReading(hop.stream, name, counter, hop.role, queue.dropped, attached, handle)


def _queue_handle(point: CountingPoint, queue: Queue) -> tuple[str, ...]:
    return str(point.place), queue.kind, queue.handle


def _queue_counter(queue: Queue, direction: str) -> str:
    """Return the counter name of a queue for this direction; empty if these frames do not pass it."""
    if queue.kind in CLASSIFIERS:
        return "" if queue.kind == "ingress" and direction == "tx" else f"tc {_HOOK_OF_DIRECTION[direction]}"
    return f"qdisc {queue.kind}" if direction == "tx" and queue.kind not in _NO_QUEUE else ""


def _rule_readings(hops: Sequence[_Hop], counters: NamespaceCounters) -> Iterator[CounterReading]:
    at_interfaces = [hop for hop in hops if hop.point.kind is PointKind.INTERFACE]
    stacks = [hop for hop in hops if hop.point.kind in _STACKS]
    if counters.generation is not None:
        for name, hop in {hop.point.name: hop for hop in stacks or at_interfaces}.items():
            handle = hop.netns, str(counters.generation)
            yield CounterReading("" if stacks else hop.stream, name, ALL_RULES, hop.role, 0, handle=handle)
    if counters.rules is None:
        for hop in at_interfaces:
            yield CounterReading(hop.stream, hop.point.name, "nft rules", hop.role, None, attached=True)
        for name in dict.fromkeys(hop.point.name for hop in stacks):
            yield CounterReading("", name, "nft rules", "dropped", None, attached=True)
        return
    properties = _stream_properties(hops)
    interfaces = {hop.interface for hop in at_interfaces}
    known = {f"{direction} {name}" for direction in _HOOK_OF_DIRECTION for name in interfaces}
    known = known.union(*properties.values())
    for rule in counters.rules:
        hooked = [hop for hop in at_interfaces if any(_passes(hop, hook) for hook in rule.hooks)] or [
            hop for hop in stacks if any(_in_stack(hook, hop.point.kind, counters.bridged_ip) for hook in rule.hooks)
        ]
        # Other names may belong to something on the path, like a bridge, or may be assigned on the path.
        conditions = [names for names in rule.only if names <= known]
        concerned = [hop for hop in hooked if all(names & properties[hop.stream] for names in conditions)]
        # If several streams pass a rule, it is unknown whose frames it has dropped.
        streams = {hop.stream for hop in concerned}
        stream = streams.pop() if len(streams) == 1 else ""
        for hop in {hop.point.name: hop for hop in concerned}.values():
            yield _rule_reading(rule, stream, hop)


def _stream_properties(hops: Iterable[_Hop]) -> dict[str, set[str]]:
    """Return the properties of each stream's frames: destination address, and direction at each interface."""
    properties: dict[str, set[str]] = {}
    for hop in hops:
        passed = f"{hop.point.direction} {hop.interface}" if hop.interface else ""
        properties.setdefault(hop.stream, set()).update({hop.point.address, passed} - {""})
    return properties


def _rule_reading(rule: Dropper, stream: str, hop: _Hop) -> CounterReading:
    of_bridge = any(hook.family == "bridge" for hook in rule.hooks)
    name = f"br_netfilter: {rule.name}" if hop.point.kind is PointKind.BRIDGE and not of_bridge else rule.name
    handle, owner = (hop.netns, rule.table, *rule.handle), f"{hop.netns} {rule.table}"
    counts = rule.frames is not None
    return CounterReading(stream, hop.point.name, name, hop.role, rule.frames, True, handle, owner, counts)


def _passes(hop: _Hop, hook: NftHook) -> bool:
    return hook.device == hop.interface and hook.name == _HOOK_OF_DIRECTION[hop.point.direction]


def _in_stack(hook: NftHook, stack: PointKind, bridged_ip: bool) -> bool:
    if hook.name not in _STACK_HOOKS:
        return False
    if hook.family == "bridge":
        return stack is PointKind.BRIDGE
    return hook.family in ("ip", "inet") and (stack is PointKind.IP_LAYER or bridged_ip)


def _ip_readings(stack: CountingPoint | None, counters: NamespaceCounters) -> Iterator[CounterReading]:
    """Yield the IP layer's counters if it forwards, or if br_netfilter passes it the frames of a bridge."""
    if stack and (stack.kind is not PointKind.BRIDGE or counters.bridged_ip):
        prefix = "br_netfilter: " if stack.kind is PointKind.BRIDGE else ""
        for name, role, frames in counters.ip:
            yield CounterReading("", stack.name, f"{prefix}{name}", role, frames)
