"""The counts of a trial. Frames are integers; every ratio and rate is derived from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from netbench.model.distributions import SAME_CLOCK, ClockDifference, Spread
from netbench.model.frame_size import FrameSize
from netbench.model.packet_counts import SentPacket
from netbench.model.points import PathSection
from netbench.model.received import Received
from netbench.model.traffic import Sent
from netbench.model.units import l1_bits, l2_bits

USUAL_QUEUE = 1000  # frames: the default queue of a NIC or a tap in Linux (txqueuelen)


@dataclass(frozen=True, slots=True)
class PointCount:
    """The growth of one counter at one counting point over one trial. `where` and `order` are the point's.

    `grew` is None where the counter could not be read or went backwards: unknown is not 0.
    `role` is the kind of the counted frames: `passed`, `dropped`, `errors`, or `repeated` (drops that another counter
    counts too).
    """

    point: str
    where: PathSection
    order: int
    counter: str
    role: str
    grew: int | None


class DropKind(Enum):
    """What dropped frames for certain: a NIC, its receive ring, or what the one counter counts that `cause` names."""

    NIC = "NIC"
    RING = "ring"
    COUNTER = "counter"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Loss:
    """Frames lost at a counting point, or in the segment of that name. `where` and `order` are the point's.

    `cause` is text for readers: a counter of drops, the points between which no counter counted them, or what may have
    dropped them; empty where the point alone identifies it. `counters` are all drop counters that counted the frames or
    may belong to what dropped them, also those that `cause` omits.
    """

    point: str
    cause: str
    where: PathSection
    order: int
    frames: int
    counters: tuple[str, ...] = field(default=(), compare=False)
    dropper: DropKind = field(default=DropKind.UNKNOWN, compare=False)  # so in results of earlier versions

    @property
    def place(self) -> str:
        """Point and cause as results and reports show them: `ingress NIC (nft rule 4)`."""
        return f"{self.point} ({self.cause})" if self.cause else self.point


@dataclass(frozen=True, slots=True)
class SizeCounts:
    """The frames of one size, in bytes with FCS, of a stream that carries a mix: of the whole trial, and its window.

    Frames are integers; None means unknown. Received ones are distinct. The sizes of frames that a capture dropped are
    unknown: then the lost frames are unknown too.
    """

    size: int
    sent_frames: int
    received_frames: int | None
    lost_frames: int | None
    window_frames: int | None


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """The counts of one stream of one trial.

    Frames are integers; `None` means unknown. Of `sent` and `received`, only the stored fields are set (see
    `stored_counts.py`). In these, delays and order that do not describe the UUT are unknown: `received.no_delay` and
    `order_refused` are the reasons. `received.last_missing` counts from 0, the first frame of the trial.

    Throughput is that of the window; all else is of the whole trial, warm-up included. `lost_at` locates the loss;
    `unexplained_frames` are those that no counter explains. `capture_dropped_frames` are frames of the stream that the
    capture itself dropped: the tester's loss, not the UUT's. `foreign_frames` are frames on its path that are neither
    its own, nor late, nor protocol frames. `overcounted_frames` is by how much counters of drops exceed the loss: they
    counted foreign frames as well. `by_size` exists for mixes only, the smallest size first. `source_clock` is the
    clock of the source's machine, by which it sent, minus the controller's; None is unknown. `packet` is the described
    packet of its frames; None is the plain one.
    """

    stream: str
    intended_fps: float | None
    intended_frames: int | None
    sent: Sent
    received: Received
    foreign_frames: int | None
    capture_dropped_frames: int | None
    unexplained_frames: int | None
    order_refused: str = ""
    source_address: str = ""
    reverse_of: str = ""  # the stream that this one is the way back of, over the same NICs
    source_clock: ClockDifference | None = SAME_CLOCK
    by_size: tuple[SizeCounts, ...] = ()
    lost_at: tuple[Loss, ...] = ()
    counters: tuple[PointCount, ...] = ()
    overcounted_frames: int = 0
    packet: SentPacket | None = None

    @property
    def pdv(self) -> Spread | None:
        """Delay variation: each frame's delay − the smallest of the stream's (RFC 5481, section 4.2)."""
        return None if self.received.delay is None else self.received.delay.above_smallest

    @property
    def unsent_frames(self) -> int | None:
        """Intended − sent, in frames; None for a `max` load, which has no intended number."""
        return None if self.intended_frames is None else self.intended_frames - self.sent.frames

    @property
    def lost_frames(self) -> int | None:
        """Offered − received, without the frames that the tester's own capture dropped.

        None if frames are missing and the number of capture drops is unknown.
        """
        if self.received.frames is None:
            return None
        missing = self.sent.frames - self.received.frames
        if self.capture_dropped_frames is None and missing > 0:
            return None
        return missing - (self.capture_dropped_frames or 0)

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered; None where nothing was sent or the loss is unknown."""
        lost = self.lost_frames
        return None if lost is None or self.sent.frames == 0 else lost / self.sent.frames

    @property
    def reordered_ratio(self) -> float | None:
        """Reordered ÷ received (RFC 4737, section 4.1); None where nothing was received or the order is unknown."""
        if self.received.reordered is None or not self.received.frames:
            return None
        return self.received.reordered / self.received.frames

    @property
    def offered_fps(self) -> float | None:
        """Frames per second that were really put on the link."""
        return self.sent.frames / self.sent.duration_s if self.sent.duration_s > 0 else None

    def offered_bytes(self, frame_size: FrameSize) -> float:
        """Return the mean size of the sent frames, with FCS; `frame_size` is that of the trial."""
        return _mean_bytes(frame_size, {counts.size: counts.sent_frames for counts in self.by_size})

    def throughput_bytes(self, frame_size: FrameSize) -> float:
        """Return the mean size of the frames that throughput counts: those received, in the window if there is one.

        If their sizes are unknown, it is the mean of the genome.
        """
        in_window = self.received.window is not None
        return _mean_bytes(
            frame_size,
            {counts.size: counts.window_frames if in_window else counts.received_frames for counts in self.by_size},
        )

    @property
    def throughput_fps(self) -> float | None:
        """Frames per second received within the measuring window.

        Without a window it is the received frames ÷ the time of sending, or of arrival where that is longer.
        """
        if self.received.frames is None or self.sent.duration_s <= 0:
            return None
        if self.received.window is not None:
            return self.received.window.frames / self.received.window.seconds
        arrived_s = ((self.received.last_ns or 0) - (self.received.first_ns or 0)) / 1e9
        return self.received.frames / max(self.sent.duration_s, arrived_s)


def _mean_bytes(frame_size: FrameSize, frames: Mapping[int, int | None]) -> float:
    """Return the mean size of these numbers of frames by size; if unknown or zero, that of the frame size itself."""
    known = {size: count for size, count in frames.items() if count is not None}
    total = sum(known.values())
    if not frame_size.is_mix or len(known) < len(frames) or total == 0:
        return frame_size.mean_bytes
    return sum(size * count for size, count in known.items()) / total


def l1_mbps(fps: float | None, frame_bytes: float) -> float | None:
    """Mbit/s on the wire (L1) of `fps` frames of so many bytes."""
    return None if fps is None else fps * l1_bits(frame_bytes) / 1e6


def l2_mbps(fps: float | None, frame_bytes: float) -> float | None:
    """Mbit/s of frames alone (L2) of `fps` frames of so many bytes."""
    return None if fps is None else fps * l2_bits(frame_bytes) / 1e6
