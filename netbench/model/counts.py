"""What a trial counted. Frames are integers; every ratio and rate is derived from them."""

from dataclasses import dataclass

from netbench.model.units import l1_bits, l2_bits


@dataclass(frozen=True, slots=True)
class HopCount:
    """One counter of one hop over one trial: how much it grew.

    `grew` is None where the counter could not be read or went backwards: unknown is not 0.
    `role` says what it counts, in frames: `passed`, `dropped`, `errors`, or `repeated` (drops that another counter
    holds too).
    """

    hop: str
    counter: str
    role: str
    grew: int | None


@dataclass(frozen=True, slots=True)
class HopLoss:
    """Frames that died between two places whose counters bound it (or in a counter of that place)."""

    hop: str
    frames: int


@dataclass(frozen=True, slots=True)
class StreamCounts:
    """What one stream of one trial counted.

    Frames are integers; `None` means unknown. `duration_s` is the time the generator really took: from
    its first send to the end of the last frame's slot. Received frames are distinct ones of this
    stream; further copies are duplicates. `lost_at` places the loss; what no counter explains is
    `unexplained_frames`. Frames the capture itself dropped are the tester's loss, not the UUT's. Delays are one-way,
    from source to sink; None where the two share no clock, or the stamps in the frames cannot be used.
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
    delay_min_ns: int | None = None
    delay_median_ns: int | None = None
    delay_max_ns: int | None = None
    lost_at: tuple[HopLoss, ...] = ()
    hops: tuple[HopCount, ...] = ()

    @property
    def unsent_frames(self) -> int | None:
        """Intended − sent, in frames; None for a `max` load, which intends no number."""
        return None if self.intended_frames is None else self.intended_frames - self.sent_frames

    @property
    def lost_frames(self) -> int | None:
        """Offered − received, the frames the tester's own capture dropped not counted as lost."""
        if self.received_frames is None:
            return None
        return self.sent_frames - self.received_frames - (self.capture_dropped_frames or 0)

    @property
    def loss_ratio(self) -> float | None:
        """Lost ÷ offered; None where nothing was sent or nothing is known."""
        lost = self.lost_frames
        return None if lost is None or self.sent_frames == 0 else lost / self.sent_frames

    @property
    def offered_fps(self) -> float | None:
        """Frames per second really put on the link."""
        return self.sent_frames / self.duration_s if self.duration_s > 0 else None

    @property
    def throughput_fps(self) -> float | None:
        """Frames per second received, over the same time as the offered load."""
        if self.received_frames is None or self.duration_s <= 0:
            return None
        return self.received_frames / self.duration_s


def l1_mbps(fps: float | None, frame_size: int) -> float | None:
    """Mbit/s on the wire (L1) of `fps` frames of `frame_size` bytes."""
    return None if fps is None else fps * l1_bits(frame_size) / 1e6


def l2_mbps(fps: float | None, frame_size: int) -> float | None:
    """Mbit/s of frames alone (L2) of `fps` frames of `frame_size` bytes."""
    return None if fps is None else fps * l2_bits(frame_size) / 1e6
