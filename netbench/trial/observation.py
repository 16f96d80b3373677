"""The evidence of one trial about one stream: frames sent and captured, and the growth of all counters on its path."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from netbench.linux.counters.counting_points import NicCounters
from netbench.model.counts import PointCount
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.packet import IP_LAYERS, TAGS
from netbench.model.paths import StreamPath
from netbench.model.points import CountingPoint, PathSection
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic

UNCOUNTED = "which does not count"
REMOVED = "which was removed meanwhile"
RESET = "whose counter was reset meanwhile"
REPLACED = "which was replaced meanwhile"
CHANGED = "which were changed during the trial"

# Counters of 64 bits never wrap. Some counters have 32 bits, although they are displayed as 64.
_NARROW = 1 << 32


def growth(before: int | None, after: int | None) -> int | None:
    """Return by how much a counter grew; None if that is unknown.

    A counter that is lower than before has either wrapped or been reset. It has wrapped if it was between 2³¹ and 2³²
    and grew by less than 2³¹ (RFC 1982, section 3.2, compares numbers in this way).
    """
    if before is None or after is None:
        return None
    if after >= before:
        return after - before
    wrapped = after - before + _NARROW
    return wrapped if _NARROW // 2 <= before < _NARROW and wrapped < _NARROW // 2 else None


@dataclass(frozen=True, slots=True)
class CounterDelta:
    """The growth of one counter at a point over a trial, in frames; None if unknown. `role` is as in CounterReading.

    `shared`: it also counts frames of other streams of the trial. `silent` is the reason why the number of frames that
    it dropped is unknown, although it may have dropped some: UNCOUNTED, REMOVED, RESET, REPLACED or CHANGED.
    `indiscriminate`: it counts all frames that pass, including foreign ones. Growths with the same `identity` belong
    to one counter, which frames pass at several points or on several paths. `went_back`: its second reading is lower
    than the first, although it did not wrap. `resettable` and `is_foreign_program` are as in CounterReading.
    """

    point: CountingPoint
    counter: str
    role: str
    frames: int | None
    shared: bool = False
    silent: str = ""
    indiscriminate: bool = False
    identity: tuple[str, ...] = ()
    went_back: bool = False
    resettable: bool = False
    is_foreign_program: bool = False

    @property
    def exact(self) -> bool:
        """True if it counts frames of one stream only."""
        return not (self.shared or self.indiscriminate)

    @property
    def count(self) -> PointCount:
        """The growth in the form of a trial's result."""
        return PointCount(self.point.name, self.point.where, self.point.order, self.counter, self.role, self.frames)


@dataclass(frozen=True, slots=True)
class NicDelta:
    """The growth of the counters of one NIC over a trial, in frames, and the state of its link.

    `trustworthy`: both readings are from the same NIC, and it was not reset. `rx_otherhost_dropped` is as in
    NicCounters. `changed_mac`: the MAC address when the UUT became ready and the present one, if they differ.
    """

    rx: int
    tx: int
    rx_dropped: int
    tx_dropped: int
    rx_errors: int
    tx_errors: int
    up: bool
    carrier_changes: int | None  # unknown where the kernel does not count them
    trustworthy: bool = True
    rx_otherhost_dropped: int | None = None
    changed_mac: tuple[str, str] | None = None

    @classmethod
    def between(cls, before: NicCounters, after: NicCounters, ready_mac: str = "") -> "NicDelta":
        """Return the growth from `before` to `after`; `ready_mac` is the MAC address at readiness, empty if unknown."""
        names = ("rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors")
        grown = {name: growth(getattr(before, name), getattr(after, name)) for name in names}
        same_nic = (before.index, before.mac, before.master) == (after.index, after.mac, after.master)
        return cls(
            **{name: frames or 0 for name, frames in grown.items()},
            up=before.up and after.up,
            carrier_changes=(
                None
                if before.carrier_changes is None or after.carrier_changes is None
                else after.carrier_changes - before.carrier_changes
            ),
            trustworthy=same_nic and None not in grown.values(),
            rx_otherhost_dropped=growth(before.rx_otherhost_dropped or 0, after.rx_otherhost_dropped),
            changed_mac=(ready_mac, after.mac) if ready_mac not in ("", after.mac) else None,
        )


def _handed_over(nic: NicDelta, frames: int) -> NicDelta:
    """Return the growth with so many dropped frames counted as sent."""
    return replace(nic, tx=nic.tx + frames, tx_dropped=nic.tx_dropped - frames)


@dataclass(frozen=True, slots=True)
class StreamObservation:
    """All evidence of one trial about one stream.

    `nics` is the growth by role (source, ingress, egress, sink); None for a NIC that could not be read.
    `points` are all counting points of its path, in order. `growths` are those of all other counters on the path.
    `clock_set_ns` is by how much the clock of the source, or of the captures, was set during the trial. `sink_sends`:
    the source of the reverse stream sends from the sink's NIC. The clocks are CLOCK_REALTIME of their machines minus
    that of this machine; None if unknown.
    """

    path: StreamPath
    traffic: Traffic
    sent: Sent
    received: Received
    nics: Mapping[str, NicDelta | None]
    points: tuple[CountingPoint, ...]
    growths: tuple[CounterDelta, ...] = ()
    clock_set_ns: int = 0
    sink_sends: bool = False
    source_clock: ClockDifference | None = SAME_CLOCK
    sink_clock: ClockDifference | None = SAME_CLOCK

    def trusted(self, role: str) -> NicDelta | None:
        """Return the growth at a NIC of the path; None if it is not trustworthy.

        On a veth pair, the kernel counts frames that do not fit into the receiving end as drops of the sending end.
        On a path with a ring they count here as sent by the sender and dropped by the receiver, as on a cable between
        NICs. The receiver is the ring that the source sends to, or the backlog at a sink behind a UUT. The kernel
        counts only XDP frames at that ring, but at both ends of the backlog's link. The same applies to frames that did
        not fit into the ring of a sink, unless the sink received nothing at all: no ring is that small.
        """
        nic, source, sink = self._known(role), self._known("source"), self._known("sink")
        if nic is None or source is None or sink is None:
            return nic
        for sender, receiver in self._rings:
            given = self._known(sender)
            if role == sender:
                return _handed_over(nic, nic.tx_dropped)
            if role == receiver and given is not None:
                return replace(nic, rx_dropped=max(nic.rx_dropped, given.tx_dropped))
        if role == "egress" and self.path.receive != "inline":
            return _handed_over(nic, min(nic.tx_dropped, sink.rx_dropped))
        return nic

    def has_ring(self, role: str) -> bool:
        """Return True if the NIC of this role receives from a ring."""
        return role in (receiver for _, receiver in self._rings)

    @property
    def _rings(self) -> Iterator[tuple[str, str]]:
        """The links that end in a ring, as the roles of sender and receiver."""
        if self.path.receive != "inline":
            yield "source", self.path.receiver[0]
        sink = self._known("sink")
        if self.received.by_ring and sink and sink.rx:
            yield "egress" if self.path.egress else "source", "sink"

    def _known(self, role: str) -> NicDelta | None:
        nic = self.nics.get(role)
        return nic if nic is not None and nic.trustworthy else None

    def point(self, name: str) -> CountingPoint:
        """Return the point of this name on the path."""
        return next(point for point in self.points if point.name == name)

    def nic(self, where: PathSection) -> CountingPoint:
        """Return the NIC at one end of the path, or at one end of the UUT."""
        return next(point for point in self.points if point.where is where and point.passing)

    @property
    def arrived(self) -> int | None:
        """Frames of the stream that the sink counted, including duplicates; None if unknown."""
        received = self.received
        return None if received.frames is None else received.frames + (received.duplicates or 0)

    @property
    def dropped_by_sink(self) -> int | None:
        """Frames of the stream that the sink itself dropped; None if unknown.

        They are at most as many as are missing, and at most as many as reached its NIC.
        """
        received, nic = self.received, self.trusted("sink")
        if received.frames is None or self.arrived is None or received.dropped is None:
            return None
        missing = max(0, self.sent.frames - received.frames)
        came = missing if nic is None else max(0, nic.rx - self.arrived)
        return min(received.dropped, missing, came)

    @property
    def extra_at_sink(self) -> int:
        """Frames that the sink's NIC counted, but that the sink neither counted nor reported as dropped.

        0 if something between the two may drop frames without counting them.
        """
        nic = self.trusted("sink")
        if (
            nic is None
            or self.arrived is None
            or any(
                drop.silent and drop.point.where is PathSection.SINK and drop.role == "dropped" for drop in self.growths
            )
        ):
            return 0
        return max(0, nic.rx - self.arrived - (self.dropped_by_sink or 0))

    @property
    def unprocessed_at_sink(self) -> int:
        """Frames at the sink's NIC that its kernel may have counted as dropped behind the sink's capture.

        It processes no frames with another tag, or MPLS, behind a tag (net/core/dev.c, __netif_receive_skb_core). It
        does not count other unknown frames as dropped if they were captured.
        """
        nic, packet = self.trusted("sink"), self.traffic.packet
        if nic is None or packet is None or not self.received.by_tap:
            return 0
        match [layer.name for layer in packet.expect or packet.layers]:
            case [_, tag, inside, *_] if tag in TAGS and inside not in IP_LAYERS:
                return nic.rx
        return 0

    @property
    def outward(self) -> int:
        """Frames that left the sink's NIC, which sends nothing while it captures.

        0 if a source sends from that NIC: the account of the reverse stream then covers all frames that the NIC sent.
        """
        nic = self.trusted("sink")
        return nic.tx if nic and not self.sink_sends else 0

    @property
    def counters_known(self) -> bool:
        """True if all NICs of the path could be read and are trustworthy."""
        return all(nic is not None and nic.trustworthy for nic in self.nics.values())
