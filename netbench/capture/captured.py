"""Which frames of a capture can be a stream's own, and what a capture holds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from netbench.capture.arrival_times import ArrivalTimes
from netbench.capture.pcap import NO_ODDITIES, Oddities
from netbench.model.distributions import ClockOffset, Extent, LossRuns, Spread
from netbench.model.frame_mix import FrameSize
from netbench.model.units import WIRE_OVERHEAD_BYTES

# How far a frame's time stamp may lie outside the time its source says it sent in.
STAMP_TOLERANCE_NS = 2_000_000
ANY_NUMBER = 1 << 62
_NEVER_NS = 1 << 62  # later than any time stamp can tell


@dataclass(frozen=True, slots=True)
class Expected:
    """What a trial knows about one stream: which frames can be its own.

    `frame_size` is in bytes with FCS; that of a frame of a mix depends on its number. Sequence numbers are
    `sent_frames` consecutive ones from `first_sequence` on, which frames bear modulo 2³². The times are CLOCK_REALTIME
    of the source in ns, which stamped every frame between them, give or take STAMP_TOLERANCE_NS, or with 0; early
    stamps are those of EarlyStamps. Before all of it is sent, any number may be its own, and any later time.
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

    @property
    def sequence(self) -> range:
        """The sequence numbers that were sent."""
        return range(self.first_sequence, self.first_sequence + self.sent_frames)

    @property
    def stamps_us(self) -> range:
        """The time stamps that its frames can bear, in microseconds since 1970."""
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
    """Some frames of a file: how many, how large with FCS, and when captured; None for what is not known.

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
        """Rate of `frames` frames of this mean size, captured in this time; None where a time is unknown.

        (n - 1) ÷ (last - first), as n frames have n - 1 intervals between them.
        """
        if self.first_ns is None or self.last_ns is None or self.last_ns <= self.first_ns or self.untimed_frames:
            return None
        fps = (frames - 1) / (self.last_ns - self.first_ns) * 1e9
        mean_bytes = self.total_bytes / self.frames
        return Rate(fps, fps * 8 * (mean_bytes + WIRE_OVERHEAD_BYTES) / 1e6, fps * 8 * mean_bytes / 1e6)


Clock = Literal["capture", "source", ""]


class ClockStep(NamedTuple):
    """A clock was set by so many ns, forward or back (negative), while a stream was captured; empty: either clock."""

    clock: Clock
    by_ns: int


class ClockCheck(NamedTuple):
    """What speaks against the times of a stream's frames, first copies only.

    `unstamped` frames bear no time stamp, `invalid_stamps` one whose fraction is a second or more. Where
    `frozen_stamps`, time stamps do not advance; they advance only every `stamp_resolution_ns` where that is not 0.

    Of the capture times of frames in order, `back_ns` is by how much they go back. The lengths of gaps: `gap_ns` is
    explained by nothing, `pause_ns` is in time stamps as well, and `held_ns` is in time stamps too, but later. 0 is for
    none. `late_back_ns` is by how much capture times go back at late frames because the clock was set. `apart_ns` is
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
        """The steps of these clocks, the largest one first."""
        return sorted((step for step in self.steps if step.clock in clocks), key=lambda step: -abs(step.by_ns))


class NumberCheck(NamedTuple):
    """What speaks against the sequence numbers of a stream's frames; 0 for nothing.

    `disorder_ns` is by how much frames with lower numbers than before were captured before these as well: they are not
    reordered, but the file is. `jump` is how far numbers go on, or back below all others, without the time to send so
    many. `resent` frames were sent after frames with higher numbers: they are neither copies nor reordered.
    """

    disorder_ns: int = 0
    jump: int = 0
    resent: int = 0


@dataclass(frozen=True, slots=True)
class StreamCapture:
    """What arrived of one stream.

    `received` counts distinct sequence numbers and `duplicates` further copies, so that `span.frames` is
    their sum; its times are those of first copies. `reordered` follows RFC 4737, section 3.3. Delay (capture time -
    time stamp in the frame, whatever clocks they are from) and its variation are of first copies. `missing`, the last
    of them and the loss runs lie within the numbers sent for an expected stream, else between the lowest and the
    highest number seen: which is beyond 2³² where the numbers in the frames began at 0 again.
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
    arrived_by_size: Mapping[int, ArrivalTimes] = field(compare=False, default_factory=dict)  # of a mix: of each size
    interface: int = 0  # a place in CaptureCounts.interfaces
    clocks: ClockCheck = field(compare=False, default=ClockCheck())
    numbers: NumberCheck = field(compare=False, default=NumberCheck())

    @property
    def first_ns(self) -> int | None:
        """Earliest capture time, since 1970."""
        return self.span.first_ns

    @property
    def last_ns(self) -> int | None:
        """Latest capture time, since 1970."""
        return self.span.last_ns

    @property
    def rate(self) -> Rate | None:
        """Rate of the distinct frames between the first and the last one."""
        return self.span.rate(self.received)


class AcrossInterfaces(NamedTuple):
    """A stream that was captured on several interfaces: distinct numbers on any of them, and those on none."""

    src_ip: str
    dst_ip: str
    interfaces: int
    received: int
    missing: int


class InterfaceCapture(NamedTuple):
    """The frames of one interface: of one in the file, of one machine's interfaces, or of one direction.

    `name` is empty where the file has no name for it. `back_ns` is by how much its capture times go back at most, where
    that makes its rate wrong, and `gap_ns` the length of an unusual gap where there are no streams; 0 for nothing.
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
    """What a capture file holds. Every frame of the file is a stream's, late, foreign, a control or a flush frame.

    `late_from` are those of earlier trials of an expected stream, by their source's address; `control_frames` those by
    which bridges and others on a link talk to each other: link-local ones (IEEE 802.1Q, table 8-1) and LLDP.
    `clock_offset` is what flush frames tell of the capture's clock, None where they tell nothing. `too_short_frames`
    are those foreign ones whose captured bytes end before a pktgen header could.
    `odd_length_frames` were captured neither whole nor up to the snap length, which a capture tool does
    not do: another tool cut them, or the file is damaged. `leftover_bytes` follow the last whole frame
    of a truncated file. From `damaged_at` on, a byte offset or None where nobody can tell, the file makes no sense
    (`damage` says why) and was not read; counts are those of the frames before.

    Without known streams: `interfaces` that have frames, and streams that several of them have (`across_interfaces`).
    `other_protocols` counts foreign frames by protocol, `undecoded` those that may hold a stream's but are not decoded,
    and `encapsulated` a stream's by the headers around IP. `oddities` counts records that break the format's rules.
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

    @property
    def late_frames(self) -> int:
        """Frames of earlier trials."""
        return sum(self.late_from.values())

    @property
    def frames(self) -> int:
        """All whole frames of the file."""
        return self.span.frames

    @property
    def pktgen_frames(self) -> int:
        """Frames of all streams, every copy counted."""
        return sum(stream.span.frames for stream in self.streams)

    @property
    def truncated(self) -> bool:
        """Whether the file ends within a frame."""
        return self.leftover_bytes > 0
