"""What one trial knows about one stream: what was sent and caught, and how every counter on its path grew."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from netbench.linux.nics import NicCounters
from netbench.model.counts import PointCount
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.paths import StreamPath
from netbench.model.points import CountingPoint, Where
from netbench.model.received import Received
from netbench.model.traffic import Sent, Traffic

UNCOUNTED = "which does not count"
REMOVED = "which was removed meanwhile"
RESET = "whose counter was reset meanwhile"
REPLACED = "which was replaced meanwhile"
CHANGED = "which were changed during the trial"

# No counter of 64 bits is ever full. Some are of 32, whatever they are shown as.
_NARROW = 1 << 32


def growth(before: int | None, after: int | None) -> int | None:
    """By how much a counter grew; None when that cannot be known.

    A counter that is lower than before has either wrapped or been reset. It has wrapped when it fitted into 32 bits,
    filled more than half of them, and grew by less than half (as RFC 1982, section 3.2, compares numbers).
    """
    if before is None or after is None:
        return None
    if after >= before:
        return after - before
    wrapped = after - before + _NARROW
    return wrapped if _NARROW // 2 <= before < _NARROW and wrapped < _NARROW // 2 else None


@dataclass(frozen=True, slots=True)
class Growth:
    """How one counter at a point grew over a trial, in frames; None when unknown. `role` as of CounterReading.

    `shared` when it counts the frames of other streams of the trial as well; `silent` says why nobody knows how many
    frames it has dropped, when it may have dropped some: UNCOUNTED, REMOVED, RESET, REPLACED or CHANGED. One that is
    `indiscriminate` counts whatever comes its way, frames of others than the trial too. Growths of one `identity` are
    those of one counter, which frames meet at several points or on several paths. `went_back`: its second reading is
    lower than the first, though it did not wrap. `resettable` is as of CounterReading.
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

    @property
    def exact(self) -> bool:
        """Whether it counts frames of one stream alone."""
        return not (self.shared or self.indiscriminate)

    @property
    def count(self) -> PointCount:
        """It as a trial's result has it."""
        return PointCount(self.point.name, self.point.where, self.point.order, self.counter, self.role, self.frames)


@dataclass(frozen=True, slots=True)
class NicDelta:
    """How the counters of one NIC grew over a trial, in frames, and whether its link held.

    `trustworthy` when these are the counters of one NIC that was not reset. `rx_otherhost_dropped` is as of
    NicCounters. `changed_mac` holds the MAC address when the UUT became ready and the present one, where they differ.
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
    """As if so many of the frames that it dropped had left it."""
    return replace(nic, tx=nic.tx + frames, tx_dropped=nic.tx_dropped - frames)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything one trial knows about one stream.

    `nics` holds the growth by role (source, ingress, egress, sink); None for a NIC that could not be read.
    `points` are all those of its way, in order; `growths` those of all other counters, along it.
    `clock_set_ns` is by how much the clock of the source, or of the captures, was set during the trial. `sink_sends`:
    whether a source of the trial sends from the sink's NIC, that of the way back. The clocks are CLOCK_REALTIME of
    their machines less that of this one, None where nobody knows.
    """

    path: StreamPath
    traffic: Traffic
    sent: Sent
    received: Received
    nics: Mapping[str, NicDelta | None]
    points: tuple[CountingPoint, ...]
    growths: tuple[Growth, ...] = ()
    clock_set_ns: int = 0
    sink_sends: bool = False
    source_clock: ClockDifference | None = SAME_CLOCK
    sink_clock: ClockDifference | None = SAME_CLOCK

    def trusted(self, role: str) -> NicDelta | None:
        """The growth at a NIC of the path, if it can be believed.

        On a veth pair what the receiving end has no room for is a drop of the sending end. Of a path with a ring it has
        left the sender here and was dropped by the receiver, as with a cable between NICs: by the ring that the source
        sends to (the kernel tells that end only of XDP frames), by the backlog at a sink behind a UUT (it tells both).
        So it is with what a sink that has a ring had no room for, unless nothing came in at all: no ring is as small as
        that.
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
        if role == "egress" and self.path.receive == "napi":
            return _handed_over(nic, min(nic.tx_dropped, sink.rx_dropped))
        return nic

    def has_ring(self, role: str) -> bool:
        """Whether the NIC of this role receives from a ring."""
        return role in (receiver for _, receiver in self._rings)

    @property
    def _rings(self) -> Iterator[tuple[str, str]]:
        """The links that end in a ring, by the roles of the NICs at their ends."""
        if self.path.receive == "napi":
            yield "source", self.path.receiver[0]
        sink = self._known("sink")
        if self.received.by_ring and sink and sink.rx:
            yield "egress" if self.path.egress else "source", "sink"

    def _known(self, role: str) -> NicDelta | None:
        nic = self.nics.get(role)
        return nic if nic is not None and nic.trustworthy else None

    def point(self, name: str) -> CountingPoint:
        """The point of this name on the way."""
        return next(one for one in self.points if one.name == name)

    def nic(self, where: Where) -> CountingPoint:
        """The NIC at one end of the way, or of the UUT."""
        return next(one for one in self.points if one.where is where and one.passing)

    @property
    def arrived(self) -> int | None:
        """Frames of the stream that the sink counted, further copies included."""
        received = self.received
        return None if received.frames is None else received.frames + (received.duplicates or 0)

    @property
    def dropped_by_sink(self) -> int | None:
        """Frames of ours that the sink itself dropped: at most as many as are missing, and came to its NIC."""
        received, nic = self.received, self.trusted("sink")
        if received.frames is None or self.arrived is None or received.dropped is None:
            return None
        missing = max(0, self.sent.frames - received.frames)
        came = missing if nic is None else max(0, nic.rx - self.arrived)
        return min(received.dropped, missing, came)

    @property
    def extra_at_sink(self) -> int:
        """Frames the sink NIC counted beyond ours: those that the sink did not count, nor say it dropped.

        None that can be told when something between the two may drop frames without counting them.
        """
        nic = self.trusted("sink")
        if (
            nic is None
            or self.arrived is None
            or any(one.silent and one.point.where is Where.SINK and one.role == "dropped" for one in self.growths)
        ):
            return 0
        return max(0, nic.rx - self.arrived - (self.dropped_by_sink or 0))

    @property
    def outward(self) -> int:
        """Frames that left the sink's NIC, which sends nothing while it listens; what a source there sends is its own.

        Of what that NIC sent beyond it the account of the way back tells.
        """
        nic = self.trusted("sink")
        return nic.tx if nic and not self.sink_sends else 0

    @property
    def counters_known(self) -> bool:
        """Whether all NICs of the path could be read and believed."""
        return all(nic is not None and nic.trustworthy for nic in self.nics.values())
