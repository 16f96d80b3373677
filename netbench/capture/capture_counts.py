"""Criteria for the frames of an expected stream, and the counts of a capture."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from netbench.capture.pcap import NO_ODDITIES, Oddities
from netbench.model.distributions import ClockOffset, Extent, LossRuns, Spread
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet_counts import PacketCounts
from netbench.model.units import WIRE_OVERHEAD_BYTES

# How far a frame's time stamp may lie outside the sending time that its source reports.
STAMP_TOLERANCE_NS = 2_000_000
ANY_NUMBER = 1 << 62
_NEVER_NS = 1 << 62  # later than any possible time stamp
# Up to this many arrival times all are kept; of more, every second one, every fourth …
_MOST_KEPT = 1 << 16


@dataclass(frozen=True, slots=True)
class Expected:
    """The properties by which a trial recognises the frames of one stream.

    `frame_size` is in bytes with FCS; in a mix it depends on the frame's number. Sequence numbers are `sent_frames`
    consecutive ones from `first_sequence` on; frames contain them modulo 2³². The times are CLOCK_REALTIME of the
    source in ns. Every frame is stamped between them, ± STAMP_TOLERANCE_NS, or with 0; early stamps are those of
    EarlyStamps. Until sending has ended, any number and any later time are accepted. With `headers`, frames are
    recognised and compared by these, not by addresses; `frame_size` is that of the sent frames.
    """

    stream: str
    src_ip: str
    dst_ip: str
    frame_size: FrameSize
    sent_frames: int = ANY_NUMBER
    sent_from_ns: int = 0
    sent_until_ns: int = _NEVER_NS
    first_sequence: int = 0
    stamped: bool = True
    stamped_early: bool = False
    headers: ExpectedHeaders | None = None

    @classmethod
    def from_json(cls, document: Mapping[str, Any], frame_size: FrameSize) -> Self:
        """Return the expectation that `to_json` has converted; the frame size is that of the traffic."""
        headers = document["headers"]
        return cls(
            **{
                **document,
                "frame_size": frame_size,
                "headers": None if headers is None else ExpectedHeaders.from_json(headers),
            }
        )

    def to_json(self) -> dict[str, Any]:
        """Return it as data for JSON."""
        headers = None if self.headers is None else self.headers.to_json()
        return {**asdict(replace(self, headers=None)), "headers": headers}

    @property
    def sequence(self) -> range:
        """The range of sequence numbers that were sent."""
        return range(self.first_sequence, self.first_sequence + self.sent_frames)

    @property
    def stamps_us(self) -> range:
        """The range of possible time stamps of its frames, in microseconds since 1970."""
        if not self.stamped:
            return range(1)
        earliest = (self.sent_from_ns - STAMP_TOLERANCE_NS) // 1000
        return range(earliest, (self.sent_until_ns + STAMP_TOLERANCE_NS) // 1000 + 1)


@dataclass(frozen=True, slots=True)
class Rate:
    """Frames per second, and Mbit/s with (L1) and without (L2) the 20 bytes of preamble and gap."""

    fps: float
    l1_mbps: float
    l2_mbps: float


@dataclass(frozen=True, slots=True)
class Span:
    """Some frames of a file: number, sizes with FCS, and capture times; None for unknown values.

    `untimed_frames` of them have no capture time.
    """

    frames: int
    total_bytes: int
    smallest: int | None
    largest: int | None
    first_ns: int | None  # earliest and latest capture time, since 1970
    last_ns: int | None
    untimed_frames: int = 0

    def rate(self, frames: int) -> Rate | None:
        """Return the rate of `frames` frames of this mean size, captured in this time; None where a time is unknown.

        (n - 1) ÷ (last - first), because n frames have n - 1 intervals between them.
        """
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns or self.untimed_frames:
            return None
        fps = (frames - 1) / (self.last_ns - self.first_ns) * 1e9
        mean_bytes = self.total_bytes / self.frames
        return Rate(fps, fps * 8 * (mean_bytes + WIRE_OVERHEAD_BYTES) / 1e6, fps * 8 * mean_bytes / 1e6)


Clock = Literal["capture", "source", ""]


class ClockStep(NamedTuple):
    """A step of a clock by `by_ns` (negative: back) during the capture of a stream; empty: either clock."""

    clock: Clock
    by_ns: int


class ClockCheck(NamedTuple):
    """Faults in the times of a stream's frames, first copies only.

    `unstamped` frames have no time stamp, `invalid_stamps` have a fraction of a second or more. With `frozen_stamps`,
    time stamps do not advance; they advance only every `stamp_resolution_ns` where that is not 0.

    `back_ns` is how far the capture times of frames in order go back. The following are lengths of gaps, 0 for none:
    `gap_ns` of an unexplained gap, `pause_ns` of a gap that time stamps have too, `held_ns` of a gap that time stamps
    have later. `late_back_ns` is how far capture times go back at late frames because the clock was set. `apart_ns` is
    the time between the same two frames by the capture and by time stamps, None where these agree.
    """

    unstamped: int = 0
    invalid_stamps: int = 0
    frozen_stamps: bool = False
    stamp_resolution_ns: float = 0
    steps: tuple[ClockStep, ...] = ()
    back_ns: int = 0
    late_back_ns: int = 0
    gap_ns: int = 0
    pause_ns: int = 0
    held_ns: int = 0
    apart_ns: tuple[int, int] | None = None

    def steps_of(self, *clocks: Clock) -> list[ClockStep]:
        """Return the steps of these clocks, the largest one first."""
        return sorted((step for step in self.steps if step.clock in clocks), key=lambda step: -abs(step.by_ns))


class NumberCheck(NamedTuple):
    """Faults in the sequence numbers of a stream's frames; 0 for none.

    `disorder_ns` is how much earlier late frames were captured than the frames before them: the file is out of order,
    not the frames. `jump` is how far numbers skip ahead, or back below all others, without the time to send that many
    frames. `resent` frames were sent after frames with higher numbers: they are neither copies nor reordered.
    """

    disorder_ns: int = 0
    jump: int = 0
    resent: int = 0


class ArrivalTimes:
    """The number of frames of a stream that had arrived by any time, once all have been added.

    Exact for up to 65,536 frames; for more, within one 32,768th of them.
    """

    def __init__(self) -> None:
        self.frames = 0
        self._step = 1  # the time of every `_step`-th frame is kept
        self._kept = np.empty(0, np.int64)

    @classmethod
    def of(cls, frames: int, step: int, times_ns: NDArray[np.int64]) -> "ArrivalTimes":
        """Return the arrival times of `frames` frames, from the times of the first and every `step`-th one after it."""
        known = cls()
        known.frames, known._step, known._kept = frames, step, times_ns
        return known

    def add(self, times_ns: NDArray[np.int64]) -> None:
        """Add the next frames, of shape (n,), roughly in the order of their times."""
        self._kept = np.concatenate((self._kept, times_ns[-self.frames % self._step :: self._step]))
        self.frames += len(times_ns)
        while len(self._kept) > _MOST_KEPT:
            self._kept = self._kept[::2]
            self._step *= 2

    def before(self, time_ns: int) -> int:
        """Return how many frames arrived before a time."""
        return min(int(np.count_nonzero(self._kept < time_ns)) * self._step, self.frames)


@dataclass(frozen=True, slots=True)
class StreamCapture:
    """The frames of one stream that arrived; an address is `*` if it varies from frame to frame.

    `received` counts distinct sequence numbers and `duplicates` further copies; `span.frames` is their sum, and its
    times are those of first copies. `reordered` follows RFC 4737, section 3.3. Delay (capture time - time stamp in the
    frame, from any clocks) and its variation are of first copies. `missing`, the last missing number and the loss runs
    refer to the numbers sent for an expected stream, else to those between the lowest and the highest number seen. The
    highest is beyond 2³² where the numbers in the frames wrapped.
    """

    stream: str | None
    src_ip: str
    dst_ip: str
    received: int
    duplicates: int
    reordered: int
    reordering_extent: Extent | None
    missing: int
    loss_runs: int
    longest_loss_run: int
    loss_run_lengths: tuple[LossRuns, ...]
    last_missing: int | None
    min_seq: int | None
    max_seq: int | None
    span: Span
    delay: Spread | None
    ipdv: Spread | None
    arrived: ArrivalTimes = field(compare=False)  # of first copies
    arrived_by_size: Mapping[int, ArrivalTimes] = field(compare=False, default_factory=dict)  # of a mix: by size
    interface: int = 0  # an index of CaptureCounts.interfaces
    clocks: ClockCheck = field(compare=False, default=ClockCheck())
    numbers: NumberCheck = field(compare=False, default=NumberCheck())
    packet: PacketCounts | None = None  # of frames with described headers

    @property
    def first_ns(self) -> int | None:
        """The earliest capture time in ns since 1970."""
        return self.span.first_ns

    @property
    def last_ns(self) -> int | None:
        """The latest capture time in ns since 1970."""
        return self.span.last_ns

    @property
    def rate(self) -> Rate | None:
        """The rate of the distinct frames between the first and the last one."""
        return self.span.rate(self.received)


class AcrossInterfaces(NamedTuple):
    """A stream captured on several interfaces: the distinct numbers on any of them, and the numbers on none."""

    src_ip: str
    dst_ip: str
    interfaces: int
    received: int
    missing: int


class InterfaceCapture(NamedTuple):
    """The frames of one interface of the file or machine, or of one direction.

    `name` is empty where the file has none. `back_ns` is how far its capture times go back at most, where that makes
    its rate wrong; `gap_ns` is the length of an unusual gap where there are no streams. 0 means none.
    """

    name: str
    link_type: str
    snap_length: int | None
    resolution_ns: float
    span: Span
    back_ns: int = 0
    gap_ns: int = 0


@dataclass(frozen=True, slots=True)
class CaptureCounts:
    """The counts of a capture file. Every frame is a stream's, late, foreign, a control or a flush frame.

    `late_from` counts frames of earlier trials of an expected stream, by source address, and `late_without_address`
    those with described headers, in which addresses are not considered. `control_frames` are frames
    between bridges and other devices on a link: link-local ones (IEEE 802.1Q, table 8-1) and LLDP. `clock_offset` is
    the offset of the capture's clock from flush frames, None where they do not show it. `too_short_frames` are foreign
    frames whose captured bytes end before the end of a pktgen header.
    `odd_length_frames` were captured neither completely nor up to the snap length, which no capture tool does:
    another tool cut them, or the file is damaged. `leftover_bytes` follow the last complete frame of a truncated file.
    From `damaged_at` on, a byte offset or None where it is unknown, the file is damaged (`damage` is the reason) and
    was not read; counts are those of the frames before.

    Without known streams: `interfaces` with frames, and streams on several of them (`across_interfaces`).
    `other_protocols` counts foreign frames by protocol, `undecoded` those that may be a stream's but are not decoded,
    and `encapsulated` a stream's by the headers around IP. `oddities` counts records that violate the format.
    """

    flavour: str
    link_type: str
    snap_length: int | None
    span: Span
    foreign_frames: int
    late_from: Mapping[str, int]
    control_frames: int
    flush_frames: int
    clock_offset: ClockOffset | None
    too_short_frames: int
    odd_length_frames: int
    leftover_bytes: int
    damaged_at: int | None
    damage: str
    streams: tuple[StreamCapture, ...]
    interfaces: tuple[InterfaceCapture, ...] = ()
    across_interfaces: tuple[AcrossInterfaces, ...] = ()
    other_protocols: Mapping[str, int] = field(default_factory=dict)
    undecoded: Mapping[str, int] = field(default_factory=dict)
    encapsulated: Mapping[tuple[str, ...], int] = field(default_factory=dict)
    oddities: Oddities = NO_ODDITIES
    late_without_address: int = 0

    @property
    def late_frames(self) -> int:
        """The number of frames of earlier trials."""
        return sum(self.late_from.values()) + self.late_without_address

    @property
    def frames(self) -> int:
        """The number of complete frames in the file."""
        return self.span.frames

    @property
    def pktgen_frames(self) -> int:
        """The number of frames of all streams, including copies."""
        return sum(stream.span.frames for stream in self.streams)

    @property
    def truncated(self) -> bool:
        """Whether the file ends within a frame."""
        return self.leftover_bytes > 0
