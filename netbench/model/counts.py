"""The counts of a trial. Frames are integers; every ratio and rate is derived from them."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from netbench.model.distributions import SAME_CLOCK, ClockDifference, ClockOffset, LossRuns, SoftwareDelay, Spread
from netbench.model.frame_mix import FrameSize
from netbench.model.points import PathSection
from netbench.model.received import MeasuringWindow
from netbench.model.units import l1_bits, l2_bits


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

    Frames are integers; `None` means unknown. `duration_s` is the time the generator really took: from
    its first send to the end of the last frame's slot. Received frames are distinct ones of this
    stream; further copies are duplicates. Late frames were sent in an earlier trial. Control frames are protocol frames
    of bridges and other devices on the sink's link. All others are foreign. Throughput is that of the `window`; all
    else is of the whole trial, warm-up included. `lost_at` locates the loss; `unexplained_frames` are those that no
    counter explains. Frames the capture itself dropped are the tester's loss, not the UUT's. `overcounted_frames` is by
    how much counters of drops exceed the loss: they counted foreign frames as well.

    `delay` is one-way, from source to sink, of each frame's first copy; `ipdv` the magnitude of the difference
    between the delays of two frames with consecutive numbers that both arrived (RFC 5481, section 4.1). Both are None
    where `delay_refused` is the reason why. `clock_offset` is the error that the clock of the captures adds to each
    delay; None is unknown, not 0. `loss_run_lengths` omits classes without runs. `last_missing_frame` is the last of
    the sent frames, counted from 0, that never arrived. The extent of a reordered frame is the number of frames by
    which it came after the first one with a higher number (RFC 4737, section 4.2); None where no frame was reordered.
    The order is unknown where `order_refused` is the reason why. `link_s` and `away_s` are reported by the source, as
    in Sent. `by_size` exists for mixes only, the smallest size first. `software_delay` is no `delay`, but a coarse
    measurement of some frames by a tester's own software. `source_clock` is the clock of the source's machine, by which
    it sent, minus the controller's; None is unknown.
    """

    stream: str
    intended_fps: float | None
    intended_frames: int | None
    sent_frames: int
    generator_errors: int
    duration_s: float
    first_sent_ns: int | None
    last_sent_ns: int | None
    max_burst_frames: int
    max_lateness_s: float
    received_frames: int | None
    duplicate_frames: int | None
    reordered_frames: int | None
    foreign_frames: int | None
    capture_dropped_frames: int | None
    unexplained_frames: int | None
    longest_loss_run_frames: int | None
    loss_runs: int | None
    first_received_ns: int | None
    last_received_ns: int | None
    window: MeasuringWindow | None = None
    delay: Spread | None = None
    ipdv: Spread | None = None
    clock_offset: ClockOffset | None = None
    delay_refused: str = ""
    order_refused: str = ""
    loss_run_lengths: tuple[LossRuns, ...] = ()
    last_missing_frame: int | None = None
    reordering_extent_median_frames: int | None = None
    reordering_extent_mean_frames: float | None = None
    reordering_extent_max_frames: int | None = None
    late_frames: int | None = None
    late_from: dict[str, int] = field(default_factory=dict)  # late frames by their `source_address`
    source_address: str = ""
    control_frames: int | None = None
    link_s: float | None = None
    away_s: float = 0.0
    reverse_of: str = ""  # the stream that this one is the way back of, over the same NICs
    source_clock: ClockDifference | None = SAME_CLOCK
    by_size: tuple[SizeCounts, ...] = ()
    software_delay: SoftwareDelay | None = None
    lost_at: tuple[Loss, ...] = ()
    counters: tuple[PointCount, ...] = ()
    overcounted_frames: int = 0

    @property
    def pdv(self) -> Spread | None:
        """Delay variation: each frame's delay − the smallest of the stream's (RFC 5481, section 4.2)."""
        return None if self.delay is None else self.delay.above_smallest

    @property
    def unsent_frames(self) -> int | None:
        """Intended − sent, in frames; None for a `max` load, which has no intended number."""
        return None if self.intended_frames is None else self.intended_frames - self.sent_frames

    @property
    def lost_frames(self) -> int | None:
        """Offered − received, without the frames that the tester's own capture dropped.

        None if frames are missing and the number of capture drops is unknown.
        """
        if self.received_frames is None:
            return None
        missing = self.sent_frames - self.received_frames
        if self.capture_dropped_frames is None and missing > 0:
            return None
        return missing - (self.capture_dropped_frames or 0)

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered; None where nothing was sent or the loss is unknown."""
        lost = self.lost_frames
        return None if lost is None or self.sent_frames == 0 else lost / self.sent_frames

    @property
    def reordered_ratio(self) -> float | None:
        """Reordered ÷ received (RFC 4737, section 4.1); None where nothing was received or the order is unknown."""
        if self.reordered_frames is None or not self.received_frames:
            return None
        return self.reordered_frames / self.received_frames

    @property
    def offered_fps(self) -> float | None:
        """Frames per second that were really put on the link."""
        return self.sent_frames / self.duration_s if self.duration_s > 0 else None

    def offered_bytes(self, frame_size: FrameSize) -> float:
        """Return the mean size of the sent frames, with FCS; `frame_size` is that of the trial."""
        return _mean_bytes(frame_size, {counts.size: counts.sent_frames for counts in self.by_size})

    def throughput_bytes(self, frame_size: FrameSize) -> float:
        """Return the mean size of the frames that throughput counts: those received, in the window if there is one.

        If their sizes are unknown, it is the mean of the genome.
        """
        in_window = self.window is not None
        return _mean_bytes(
            frame_size,
            {counts.size: counts.window_frames if in_window else counts.received_frames for counts in self.by_size},
        )

    @property
    def buffered_frames(self) -> int | None:
        """Frames that were in queues when sending ended; None where the sink does not record arrival times."""
        return None if self.window is None else self.window.buffered_frames

    @property
    def throughput_fps(self) -> float | None:
        """Frames per second received within the measuring window.

        Without a window it is the received frames ÷ the time of sending, or of arrival where that is longer.
        """
        if self.received_frames is None or self.duration_s <= 0:
            return None
        if self.window is not None:
            return self.window.frames / self.window.seconds
        arrived_s = ((self.last_received_ns or 0) - (self.first_received_ns or 0)) / 1e9
        return self.received_frames / max(self.duration_s, arrived_s)


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
