"""What a sink received in a trial, whatever it counts with. Loads next to nothing, as it does on other hosts."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from netbench.model.counts import Window
from netbench.model.distributions import ClockOffset, Extent, LossRuns, SoftwareDelay, Spread


class OfSize(NamedTuple):
    """Distinct frames of one size of a mix: all that were received, and those in the window (None: there is none)."""

    frames: int
    window_frames: int | None


@dataclass(frozen=True, slots=True)
class Received:
    """What a sink received of one stream in one trial, whatever it counts with. None is unknown, which is not 0.

    `frames` are distinct ones of the stream, and all of them where its source does not number them; unknown unless the
    sink is sure of every one, as part of a count would look like loss. `late` ones were sent in an earlier trial
    (`late_from`: by the addresses they were sent from, where these are known),
    `control` ones are what bridges and others on the link say to each other; all else that came in is `foreign`.
    `matched` is what the sink's filter let through. `dropped` the sink itself dropped: the tester's own loss.
    `window` is None for a sink that cannot tell when single frames arrived: then throughput is what it received in all.
    `by_size` is of the sizes of a mix, empty where they are not known.
    Loss runs lie within the numbers sent, as does `last_missing`, the highest that never arrived; reordering is that of
    RFC 4737, delay and its variation are as of StreamCounts, `clock_offset` is what the sink's clock adds to each
    delay, and `no_delay` says why they are unknown. `software_delay` is what a tester's own software measured instead.

    `by_ring`: at the end of a veth pair, it makes its NIC receive from a ring; what that has no room for, which the
    kernel counts as dropped by the other end, is the tester's loss as well.

    `error` says why nothing is known, `no_room` that a full disk is to blame, and what to do; `unsettled` why the last
    frames to arrive may not have been counted. `counted_by` names what counted, for messages.
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
    window: Window | None = None
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
