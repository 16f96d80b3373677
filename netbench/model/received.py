"""What a sink received in a trial, for every kind of sink. It imports next to nothing, because other hosts load it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netbench.model.distributions import ClockOffset, Extent, LossRuns, SoftwareDelay, Spread
from netbench.model.packet_counts import PacketCounts


@dataclass(frozen=True, slots=True)
class MeasuringWindow:
    """Distinct frames of a stream that arrived in the measuring window: after its warm-up, by the sink's clock.

    `seconds` is the length of the window. `buffered_frames` arrived after the time at which the last frame would have
    arrived with the smallest delay of all: they were still in queues when sending ended.
    """

    frames: int
    seconds: float
    buffered_frames: int


class OfSize(NamedTuple):
    """Distinct frames of one size of a mix: all that were received, and those in the window (None: there is none)."""

    frames: int
    window_frames: int | None


@dataclass(frozen=True, slots=True)
class Received:
    """The frames of one stream that a sink received in one trial, for every kind of sink. None is unknown, not 0.

    `frames` are distinct ones of the stream, or all of them where its source does not number them. They are unknown
    unless the sink is sure of every one, because a partial count would be taken for loss. `late` ones were sent in an
    earlier trial (`late_from`: by their source addresses, where these are known).
    `control` ones are protocol frames of bridges and other devices on the link; all other frames are `foreign`.
    `matched` ones passed the sink's filter. `dropped` ones were dropped by the sink itself: the tester's own loss.
    `window` is None for a sink without arrival times of single frames: then throughput is that of all received frames.
    `by_size` has the sizes of a mix, empty where they are unknown.
    Loss runs lie within the sent numbers, as does `last_missing`, the highest that never arrived. Reordering is that of
    RFC 4737. `delay` is one-way, of each frame's first copy. `ipdv` is the magnitude of the difference between the
    delays of two frames with consecutive numbers that both arrived (RFC 5481, section 4.1). `clock_offset` is the error
    that the sink's clock adds to each delay, and `no_delay` is the reason if delays are unknown. `software_delay` is
    the coarse measurement of some frames by a tester's own software instead.

    `by_ring`: at the end of a veth pair, the sink makes its NIC receive from a ring. Frames that do not fit into the
    ring are the tester's loss as well; the kernel counts them as dropped by the other end. `by_tap`: the kernel of the
    sink's host processes the counted frames afterwards, and counts those that it cannot process as dropped by the NIC.

    `error` is the reason if nothing is known. `no_room` describes a full disk as the cause, and the remedy.
    `unsettled` is why the last frames to arrive may not have been counted. `counted_by` names the counting program, for
    messages. `packet` has the counts that exist for described packets only; None for plain ones.
    """

    frames: int | None = None
    duplicates: int | None = None
    reordered: int | None = None
    foreign: int | None = None
    late: int | None = None
    late_from: Mapping[str, int] = field(default_factory=dict)
    control: int | None = None
    matched: int | None = None
    dropped: int | None = None
    loss_runs: int | None = None
    longest_loss_run: int | None = None
    loss_run_lengths: tuple[LossRuns, ...] = ()
    last_missing: int | None = None
    reordering_extent: Extent | None = None
    first_ns: int | None = None
    last_ns: int | None = None
    window: MeasuringWindow | None = None
    by_size: Mapping[int, OfSize] = field(default_factory=dict)
    delay: Spread | None = None
    ipdv: Spread | None = None
    clock_offset: ClockOffset | None = None
    software_delay: SoftwareDelay | None = None
    no_delay: str = "the sink measures none"
    error: str = ""
    no_room: str = ""
    unsettled: str = ""
    counted_by: str = "the sink"
    by_ring: bool = False
    by_tap: bool = False
    packet: PacketCounts | None = None
