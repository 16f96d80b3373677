"""The hops of one machine outside guests, beyond the counters of NICs: from what was read there to readings.

Where each is met on the way, with no NIC counter repeating it (net/core/dev.c): a program of XDP, classifiers at
ingress and rules at ingress come after a NIC has counted a frame as received, and after tcpdump has seen it there,
except for XDP; rules at egress, classifiers at egress and the queueing discipline come before it counts it as sent.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netbench.linux.ip_layer import ip_counters
from netbench.linux.pause import PauseFrames
from netbench.linux.queues import CLASSIFIERS, Queue
from netbench.linux.rules import Dropper, Hook
from netbench.model.points import INSIDE, HopPoint, HopReading

BRIDGE, IP_LAYER = "bridge", "IP layer"

_ON_DEVICE = {"rx": "ingress", "tx": "egress"}
_ON_THE_WAY = ("prerouting", "forward", "postrouting")
_NO_QUEUE = ("noqueue", "noop")


@dataclass(frozen=True, slots=True)
class NamespaceCounters:
    """What one network namespace counts. `rules` is None when there are some that cannot be read.

    `bridged_ip` says whether br_netfilter shows bridged frames to the IP layer; `xdp` are the interfaces with a program
    attached, `ip` what /proc/net/snmp and /proc/net/netstat say, `pause` the pause frames of NICs that count them.
    """

    queues: tuple[Queue, ...] = ()
    rules: tuple[Dropper, ...] | None = ()
    ip: str = ""
    bridged_ip: bool = False
    xdp: frozenset[str] = frozenset()
    pause: Mapping[str, PauseFrames] = field(default_factory=dict)


def namespaces_of(points: Iterable[HopPoint], forwarding: Iterable[str | None]) -> tuple[str | None, ...]:
    """Those in which there is something to read, each once."""
    return tuple(dict.fromkeys([*(point.place.netns for point in points), *forwarding]))


def hop_readings(
    points: Sequence[HopPoint],
    forwarding: Mapping[str | None, str],
    counted: Mapping[str | None, NamespaceCounters],
    softnet: str,
) -> tuple[HopReading, ...]:
    """All readings of a machine, by its namespaces and /proc/net/softnet_stat (empty: unknown).

    ValueError or LookupError for texts that make no sense.
    """
    readings: list[HopReading] = []
    for netns, there in counted.items():
        here = [point for point in points if point.place.netns == netns]
        stack = forwarding.get(netns, "")
        readings += _attached(here, there)
        readings += _rules(here, stack, there)
        readings += _ip_layer(stack, there)
    if softnet:
        # In the rx_dropped of their NIC too (net/core/dev.c, enqueue_to_backlog).
        dropped = sum(int(line.split()[1], 16) for line in softnet.splitlines())
        readings.append(HopReading("", "softnet backlog", "dropped", "repeated", dropped))
    return tuple(readings)


def _attached(points: Iterable[HopPoint], there: NamespaceCounters) -> Iterator[HopReading]:
    for point in points:
        pause = there.pause.get(point.place.interface)
        if pause:
            # Of either kind, those that hold this stream's frames back.
            counter, frames = ("rx_pause", pause.rx) if point.direction == "tx" else ("tx_pause", pause.tx)
            yield HopReading(point.stream, point.hop, counter, "passed", frames)
        if point.place.interface in there.xdp and point.direction == "rx":
            yield HopReading(point.stream, point.hop, "XDP program", "dropped", None)
        for queue in there.queues:
            counter = _queue_counter(queue, point.direction)
            if counter and queue.interface == point.place.interface:
                yield HopReading(point.stream, point.hop, counter, _role(point), queue.dropped)


def _queue_counter(queue: Queue, direction: str) -> str:
    """Its name where frames go this way, empty where they do not meet it."""
    if queue.kind in CLASSIFIERS:
        return "" if queue.kind == "ingress" and direction == "tx" else f"tc {_ON_DEVICE[direction]}"
    return f"qdisc {queue.kind}" if direction == "tx" and queue.kind not in _NO_QUEUE else ""


def _rules(points: Sequence[HopPoint], stack: str, there: NamespaceCounters) -> Iterator[HopReading]:
    if there.rules is None:
        yield from (HopReading(one.stream, one.hop, "nft rules", _role(one), None) for one in points)
        if stack:
            yield HopReading("", stack, "nft rules", "dropped", None)
        return
    for rule in there.rules:
        met = [point for point in points if any(_meets(point, hook) for hook in rule.hooks)]
        if met:
            # Of a chain on several devices, nobody knows whose frames a rule has dropped.
            stream = met[0].stream if len({point.stream for point in met}) == 1 else ""
            hops = list(dict.fromkeys(point.hop for point in met))
            if len(hops) == 1:
                yield HopReading(stream, hops[0], rule.name, _role(met[0]), rule.frames)
            else:
                yield HopReading(stream, INSIDE, f"{' or '.join(hops)}: {rule.name}", "dropped", rule.frames)
        elif stack and any(_in_stack(hook, stack, there.bridged_ip) for hook in rule.hooks):
            own = rule.name if stack == IP_LAYER or _in_stack_of_bridge(rule) else f"br_netfilter: {rule.name}"
            yield HopReading("", stack, own, "dropped", rule.frames)


def _meets(point: HopPoint, hook: Hook) -> bool:
    return hook.device == point.place.interface and hook.name == _ON_DEVICE[point.direction]


def _in_stack(hook: Hook, stack: str, bridged_ip: bool) -> bool:
    if hook.name not in _ON_THE_WAY:
        return False
    if hook.family == "bridge":
        return stack == BRIDGE
    return hook.family in ("ip", "inet") and (stack == IP_LAYER or bridged_ip)


def _in_stack_of_bridge(rule: Dropper) -> bool:
    return any(hook.family == "bridge" for hook in rule.hooks)


def _role(point: HopPoint) -> str:
    """Drops before a source's NIC come back to the generator as errors, so it has not counted these frames as sent.

    Those behind a sink's NIC come behind the capture.
    """
    return "repeated" if (point.hop, point.direction) in (("source NIC", "tx"), ("sink NIC", "rx")) else "dropped"


def _ip_layer(stack: str, there: NamespaceCounters) -> Iterator[HopReading]:
    """The IP layer is on the way where it forwards, and where br_netfilter lets it look at what a bridge forwards."""
    if stack == IP_LAYER or (stack == BRIDGE and there.bridged_ip):
        prefix = "br_netfilter: " if stack == BRIDGE else ""
        for name, role, frames in ip_counters(there.ip):
            yield HopReading("", stack, f"{prefix}{name}", role, frames)
