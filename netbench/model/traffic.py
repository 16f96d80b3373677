"""The frames that one source is to send in one trial, and those it sent."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from netbench.model.frame_size import FrameSize
from netbench.model.packet import Packet

NS_PER_S = 1_000_000_000
PKTGEN_MAGIC = 0xBE9BE955  # of the kernel's packet generator: the first field of its header
# How a UUT receives frames from a veth pair: within the sender's system call, or from a ring, either by a thread of its
# own or in softirqs of the CPU that sends.
Receive = Literal["inline", "napi", "softirq"]
# Scheduling policies of Linux, sched(7); `other` is the default of every thread.
NapiPolicy = Literal["other", "rr", "fifo"]
# The fact about a UUT that names the policy, if it is not the default.
NAPI_POLICY = "napi_policy"

# How much longer overdue frames are sent after the end of a trial: in seconds and as a ratio of the duration.
_CATCH_UP_S = 0.5  # a busy machine takes CPUs away for up to this time
_CATCH_UP_PART = 0.05
# How late the last frame may be if nothing is sent after the end: a short delay must not count as an unsent frame.
_LAST_FRAME_S = 0.002

# RFC 2544, appendix C.2.2 and RFC 6890 reserve 198.18.0.0/15 for benchmarks. Sources are in 198.18.n.0/24, sinks in
# 198.19.n.0/24, n being the stream's number from 1. The constant is not in paths.py, because loading that takes longer
# than analysing a short capture.
PREFIX_LENGTH = 24
DISCARD_PORT = 9  # RFC 863, and the default of pktgen for both ports


@dataclass(frozen=True, slots=True)
class Traffic:
    """The frames that one source is to send in one trial.

    Addresses are text (`02:…`, `198.18.…`); `frame_size` is in bytes with FCS, or a mix. With `fps` None the source
    sends as fast as it can for `duration_s` seconds; otherwise exactly round(fps × duration_s) frames are
    paced evenly. The first `warm_up_s` seconds of that fill queues and caches, and are not measured.
    `receive` is how the NIC at the other end receives frames: frames that do not fit into a ring (`napi`, `softirq`)
    were sent, and are lost.
    `packet` has the headers of the frames; None is the plain one, Ethernet, IPv4 and UDP, for which
    `flows` UDP port pairs are drawn pseudo-randomly from `seed` and used in turn (RFC 4814, section 4).
    With `first_fps` the first `first_s` seconds have that rate, and the rest of all frames is paced evenly over the
    remaining time: `fps` is the mean then.
    A late source catches up: `catch_up` is the ratio by which it may exceed its rate for that. Frames that are overdue
    at the end are not sent. None: it catches up as its kind does by default, also after the end.
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
    packet: Packet | None = None
    src_ip6: str = "2001:2::2"
    dst_ip6: str = "2001:2:0:1::2"

    @property
    def first_frames(self) -> int:
        """The number of frames at the first rate; 0 without one."""
        return 0 if self.first_fps is None else round(self.first_fps * self.first_s)

    @property
    def later_fps(self) -> float | None:
        """The rate after the first one; the rate of all frames if there is only one rate."""
        if self.first_fps is None or self.frames is None:
            return self.fps
        return (self.frames - self.first_frames) / (self.duration_s - self.first_s)

    @property
    def highest_fps(self) -> float | None:
        """The highest of the rates."""
        return self.fps if self.first_fps is None else max(self.first_fps, self.later_fps or 0.0)

    @property
    def frames(self) -> int | None:
        """The number of intended frames; None for a source that sends as fast as it can."""
        return None if self.fps is None else max(1, round(self.fps * self.duration_s))

    @property
    def longest_s(self) -> float:
        """The longest time a paced source may send: a link that is too slow must not make a trial longer."""
        if self.catch_up is not None:
            return self.duration_s + _LAST_FRAME_S
        return self.duration_s + max(_CATCH_UP_S, _CATCH_UP_PART * self.duration_s)


def traffic_data(traffic: Traffic) -> dict[str, Any]:
    """Return the traffic as data for JSON, without its packet: its frames are in a template."""
    return asdict(replace(traffic, packet=None))


def traffic_of(plain: Mapping[str, Any]) -> Traffic:
    """Return the traffic from the result of `traffic_data`, or from JSON of that."""
    size = plain["frame_size"]
    return Traffic(**{**plain, "frame_size": FrameSize(**{**size, "genome": tuple(size["genome"])})})


@dataclass(frozen=True, slots=True)
class Sent:
    """The frames that a source really sent.

    `duration_s` runs from the due time of the first frame to the end of the last frame's slot. The slot ends 1/fps
    after the due time, or at the return of the last send if that is later, or if unpaced. Times are CLOCK_REALTIME in
    ns.

    `backpressure_s` and `descheduled_s` explain why less was sent than intended. `backpressure_s` is how long the link
    delayed the source (refused frames, waiting for a full queue, a receiver that runs inside the sender's system call);
    None if the source does not measure it. `descheduled_s` is how long the source did not run though it had frames to
    send (descheduled, stopped).

    These are sums over all its threads, None where unknown. `ran_s` is their CPU time while they sent. `wait_s` is how
    long they waited for a CPU. `turns` is how often they were scheduled. `stalled_s` is the sum of all pauses in which
    they did not run though they should have, for any reason. `cpu` is the CPU that they are bound to, if it is one.
    """

    frames: int
    errors: int
    duration_s: float
    first_ns: int | None
    last_ns: int | None
    max_burst_frames: int
    max_lateness_s: float
    error: str = ""  # why it stopped early; empty if it did not
    first_sequence: int = 0  # the number of its first frame
    stamped: bool = True  # whether each frame has the time when it was built; otherwise a time of 0
    stamped_early: bool = False  # frames are stamped when the previous one was handed over, not when they are due
    numbered: bool = True  # whether each frame has the next number; others can be counted, but not distinguished
    in_order: bool = True  # whether frames leave in the order of their numbers; those of several threads do not
    apart_s: float = 0.0  # the larger one of the distances between the starts, and between the ends, of its threads
    backpressure_s: float | None = None
    descheduled_s: float = 0.0
    unevenness: float = 0.0  # the largest deviation from an even rate, ahead or behind, as a ratio of all its frames
    ran_s: float | None = None
    wait_s: float | None = None
    turns: int | None = None
    stalled_s: float | None = None
    cpu: int | None = None


# Also for a source that cannot report any more: 0 frames then mean an unknown number, and `error` is the reason.
NOTHING_SENT = Sent(0, 0, 0.0, None, None, 0, 0.0)


@dataclass(frozen=True, slots=True)
class Stamps:
    """How a source stamps and numbers its frames, as in `Sent`, but known before they are sent.

    `first_sequence` is None if it is unknown; otherwise the source may also number no frames.
    """

    stamped: bool = True
    stamped_early: bool = False
    first_sequence: int | None = None
