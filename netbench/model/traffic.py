"""What one source is to send in one trial, and what it sent."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from netbench.model.frame_mix import FrameMix, FrameSize

# How a UUT takes in what comes over a veth pair: within the sender's call, or from a ring, by a thread of its own.
Receive = Literal["inline", "napi"]
# Scheduling policies of Linux, sched(7); `other` is that of every thread by default.
NapiPolicy = Literal["other", "rr", "fifo"]
# The fact about a UUT that names the policy, where it is another.
NAPI_POLICY = "napi_policy"

# What is overdue at the end of a trial is sent for so much longer, in seconds and as a part of the duration.
_CATCH_UP_S = 0.5  # a machine with other work to do takes its CPUs away for as long as that
_CATCH_UP_PART = 0.05
# How late the last frame may be where nothing is sent after the end: a moment's delay is no unsent frame.
_LAST_FRAME_S = 0.002

# RFC 2544, appendix C.2.2 and RFC 6890 reserve 198.18.0.0/15 for benchmarks. Sources live in 198.18.n.0/24, sinks in
# 198.19.n.0/24, n being the stream's number from 1. Not in paths.py, which takes longer to load than a short capture to
# analyse.
PREFIX_LENGTH = 24


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one source is to send in one trial.

    Addresses are text (`02:…`, `198.18.…`); `frame_size` is in bytes with FCS, or a mix. `fps` None sends as fast
    as the generator can for `duration_s` seconds; otherwise exactly round(fps × duration_s) frames are
    paced evenly. The first `warm_up_s` seconds of that fill queues and caches, and are not measured.
    `receive` is how the NIC at the other end takes frames in: what a ring (`napi`) has no room for was sent, and lost.
    `flows` UDP port pairs are drawn pseudo-randomly from `seed` and used in turn (RFC 4814, section 4).
    With `first_fps` the first `first_s` seconds have that rate, and what is left of all frames is paced evenly over the
    rest: `fps` is the mean then.
    A source that is late catches up: `catch_up` is by what part of its rate it may exceed the rate for that. Frames
    that are overdue at the end are not sent. None: it catches up as its kind does, also after the end.
    """

    stream: str
    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    frame_size: FrameSize
    fps: float | None
    duration_s: float
    flows: int
    seed: int
    warm_up_s: float = 0.0
    receive: Receive = "inline"
    first_fps: float | None = None
    first_s: float = 0.0
    catch_up: float | None = None

    @property
    def first_frames(self) -> int:
        """How many of the frames have the first rate, where that is another one; else 0."""
        return 0 if self.first_fps is None else round(self.first_fps * self.first_s)

    @property
    def later_fps(self) -> float | None:
        """The rate after the first one; of all frames where there is no other."""
        if self.first_fps is None or self.frames is None:
            return self.fps
        return (self.frames - self.first_frames) / (self.duration_s - self.first_s)

    @property
    def highest_fps(self) -> float | None:
        """The higher one of the rates."""
        return self.fps if self.first_fps is None else max(self.first_fps, self.later_fps or 0.0)

    @property
    def frames(self) -> int | None:
        """How many frames are intended; None for a source that sends as fast as it can."""
        return None if self.fps is None else max(1, round(self.fps * self.duration_s))

    @property
    def longest_s(self) -> float:
        """How long a source with a rate goes on, at most: one whose link is too slow does not make a trial longer."""
        if self.catch_up is not None:
            return self.duration_s + _LAST_FRAME_S
        return self.duration_s + max(_CATCH_UP_S, _CATCH_UP_PART * self.duration_s)


def traffic_of(plain: Mapping[str, Any]) -> Traffic:
    """What `dataclasses.asdict` made of traffic, and JSON of that, as traffic again."""
    size = plain["frame_size"]
    mix = None if isinstance(size, int) else FrameMix(size["name"], tuple(size["genome"]))
    return Traffic(**{**plain, "frame_size": mix or size})


@dataclass(frozen=True, slots=True)
class Sent:
    """What a source really sent.

    `duration_s` runs from when the first frame is due to the end of the last frame's slot (1/fps after its due time,
    or the return of the last send when that is later, or when unpaced). Times are CLOCK_REALTIME in ns.

    `link_s` and `away_s` tell why less was sent than intended: how long the link held the source up (frames refused, a
    full queue waited for, a receiver at work inside the sender's system call), and how long the source did not run
    though it had frames to send (descheduled, stopped). A source that does not tell the first claims nothing.

    Of all its threads together, None where that is unknown: `ran_s` is their CPU time while they sent, `wait_s` how
    long they waited for a CPU, `turns` how often they were given one, and `stalled_s` the sum of all pauses in which
    they did not run though they should have, whatever stopped them. `cpu` is the CPU that they are bound to, where it
    is one.
    """

    frames: int
    errors: int
    duration_s: float
    first_ns: int | None
    last_ns: int | None
    max_burst_frames: int
    max_lateness_s: float
    error: str = ""  # why it stopped early, empty when it did not
    first_sequence: int = 0  # the number its first frame bears
    stamped: bool = True  # whether each frame bears the time when it was built; else a time of 0
    stamped_early: bool = False  # a frame's stamp is made when the one before it was handed over, not when it is due
    numbered: bool = True  # whether each frame bears the next number; others can be counted, but not told apart
    in_order: bool = True  # whether frames leave in the order of their numbers; those of several threads do not
    apart_s: float = 0.0  # how far apart its threads began, or ended, whichever is more
    link_s: float | None = None
    away_s: float = 0.0
    unevenness: float = 0.0  # by what part of all its frames it was, at most, ahead of an even rate or behind
    ran_s: float | None = None
    wait_s: float | None = None
    turns: int | None = None
    stalled_s: float | None = None
    cpu: int | None = None


# Also where a source cannot tell any more: 0 frames stand for an unknown number then, and `error` says why.
NOTHING_SENT = Sent(0, 0, 0.0, None, None, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Stamps:
    """How a source stamps and numbers its frames, as `Sent` has it: known before they are sent.

    `first_sequence` is None where that is not known; else it may also number none of them.
    """

    stamped: bool = True
    stamped_early: bool = False
    first_sequence: int | None = None
