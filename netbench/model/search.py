"""The result of a search: the highest load at which a UUT still meets a goal, and the further tests of RFC 2544.

These tests are in sections 26.2 to 26.6. Their rates are in frames/s of each stream. `refused` is the reason why a
test, or a part of it, could not be measured; it is empty if nothing is missing.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from statistics import fmean, stdev
from typing import Annotated

from pydantic import AliasChoices, Field

from netbench.model.distributions import Spread
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT, LimitCauseField, LimitKind
from netbench.model.units import LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.model.workload import TrafficField


@dataclass(frozen=True, slots=True)
class Latency:
    """One-way delays at the throughput (section 26.2): the mean of each trial's frames, in ns.

    They are those of the stream with the largest median. Trials are `trial_s` seconds long.
    """

    load_fps: float
    trial_s: float
    means_ns: tuple[float, ...]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class LossAtLoad:
    """Lost ÷ offered at one load (section 26.3), all streams together; None where `refused` is the reason why."""

    share: float  # of the highest tried load
    offered_fps: float
    loss_ratio: float | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class BackToBack:
    """The longest bursts at `rate_fps` without loss, in frames of each stream (section 26.4).

    There is one from each search of RFC 9004, section 6.3, with bursts of at most `longest_frames`. `throughput_fps` is
    that of section 26.1. If shorter bursts could not be sent, `too_long_frames` is the shortest burst with loss.
    """

    rate_fps: float
    throughput_fps: float
    longest_frames: int
    frames: tuple[int, ...]
    refused: str = ""
    too_long_frames: int | None = None

    @property
    def mean_frames(self) -> float | None:
        """Their mean, which is the benchmark; None without any."""
        return fmean(self.frames) if self.frames else None

    @property
    def deviation_frames(self) -> float | None:
        """Their standard deviation; None for fewer than two."""
        return stdev(self.frames) if len(self.frames) > 1 else None

    @property
    def is_bounded(self) -> bool:
        """Whether longer bursts lost frames in each search; otherwise the mean is a lower bound."""
        return all(frames < self.longest_frames for frames in self.frames)

    @property
    def implied_buffer_s(self) -> float | None:
        """The time to send the mean burst, in seconds: RFC 9004, section 6.4, "Implied DUT Buffer Time"."""
        mean = self.mean_frames
        return None if mean is None else mean / self.rate_fps

    @property
    def corrected_buffer_s(self) -> float | None:
        """The same without the frames that were forwarded meanwhile: "Corrected DUT Buffer Time" of that section."""
        implied = self.implied_buffer_s
        return None if implied is None else implied * (1 - self.throughput_fps / self.rate_fps)

    @property
    def corrected_buffer_frames(self) -> float | None:
        """The capacity of that buffer in frames."""
        corrected = self.corrected_buffer_s
        return None if corrected is None else corrected * self.rate_fps


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds from the end of an overload to the last lost frame (section 26.5), one for each trial.

    `overload_s` seconds at `overload_fps` were followed by `reduced_s` at `reduced_fps`. The value is 0 without loss at
    the reduced rate. It omits `unrecovered` trials, in which frames were lost to the end.
    """

    overload_fps: float
    overload_s: float
    reduced_fps: float
    reduced_s: float
    seconds: tuple[float, ...]
    unrecovered: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Reset:
    """Seconds without a frame around a reset of the UUT under a steady load (section 26.6), one for each trial.

    They are the frames of the longest loss ÷ the load (RFC 6201, the method of frame loss). They omit `dead` trials,
    in which no frame was forwarded any more.
    """

    load_fps: float
    seconds: tuple[float, ...]
    dead: int = 0
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Rfc2544Tests:
    """The results in the order of the RFC; None for a test that was not requested, or not started yet.

    `line_rate_fps` is the capacity of the link for such frames, by its rate in the topology, in frames/s.
    """

    line_rate_fps: float
    latency: Latency | None = None
    losses: tuple[LossAtLoad, ...] = ()
    back_to_back: BackToBack | None = None
    recovery: Recovery | None = None
    reset: Reset | None = None


# The lower bound is an offered load, in whole frames: it can differ from the intended load.
_ROUNDING = 1.1


class SearchState(StrEnum):
    """The progress of a search for one goal; the value is what results and reports show.

    `at-least`: the highest possible load is still below the limit. `at-most`: the limit is below the lowest tried load.
    `failed`: nothing could be measured.
    """

    SEARCHING = "searching"
    FOUND = "found"
    AT_LEAST = "at-least"
    AT_MOST = "at-most"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LoadedDelay:
    """One-way delays at a part `share` of the found load, offered at `load_fps` of each stream.

    They are those of the stream with the largest median; None if they are unknown, for the reason `refused`.
    """

    share: float
    load_fps: float
    delay: Spread | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class SearchedStream:
    """One of several streams in the same trials, `seconds` in all: its offered frames, and the lost ones among them.

    A goal is about all streams together, and does not show which of them lose frames. `reverse_of` is the stream that
    this one is the way back of, if any.
    """

    stream: str
    reverse_of: str
    offered_frames: int
    lost_frames: int
    seconds: float

    def __add__(self, other: "SearchedStream") -> "SearchedStream":
        return replace(
            self,
            offered_frames=self.offered_frames + other.offered_frames,
            lost_frames=self.lost_frames + other.lost_frames,
            seconds=self.seconds + other.seconds,
        )

    @property
    def offered_fps(self) -> float:
        """Its offered load, in frames/s."""
        return self.offered_frames / self.seconds if self.seconds else 0.0

    @property
    def forwarded_fps(self) -> float:
        """The forwarded part of the offered load, in frames/s of sending."""
        return self.offered_fps * (1 - self.loss_ratio)

    @property
    def loss_ratio(self) -> float:
        """Lost ÷ offered."""
        return self.lost_frames / self.offered_frames if self.offered_frames else 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The bounds of one goal, of one UUT in one scenario with these streams and this frame size or workload.

    Rates are of each stream, in the `unit`: frames/s, operations/s, or bit/s of payload. `lower` is the highest offered
    load at which the goal was met, below every load at which it was not. `upper` is the lowest intended load at which
    it was not met: with backpressure by a link, only its capacity is offered.
    `throughput` is the throughput at the lower bound, if it is below the load: the conditional throughput of
    RFC 9971, with the offered load. None: there is none so far. `trials` and `seconds` of traffic are those of the
    whole search, which may have had other goals. `width` is the allowed distance of the bounds at the end, as a ratio
    of the upper one. `limited_by` is the limit, if the upper bound is not due to the UUT. `unstable` describes trials
    that contradict a single limit. `why` is how the UUT failed, in all trials or at the upper bound. It may also be how
    the tester kept the bounds further apart than the width. `delays`, and the other `tests` of RFC 2544 if they were
    requested, were measured afterwards, at parts of the lower bound of the first goal. `overload_fps` is the throughput
    then above its upper bound, at `held_fps` if the sources did not sustain the intended load. `each` has the single
    streams, if there are several, in all trials at the lower bound that are conclusive about the UUT. A search that is
    `for_maxima` found the maximum that loads are a share of.
    """

    uut: str
    scenario: str
    streams: tuple[str, ...]
    kind_of_traffic: Annotated[TrafficField, Field(validation_alias=AliasChoices("kind_of_traffic", "frame_size"))]
    repetition: int  # from 1
    method: str
    goal: str
    loss_ratio: float | None  # accepted by the goal; None: any loss
    state: SearchState
    width: float
    # Results of version 0.1 have the other keys.
    lower: Annotated[float | None, Field(validation_alias=AliasChoices("lower", "lower_fps"))] = None
    upper: Annotated[float | None, Field(validation_alias=AliasChoices("upper", "upper_fps"))] = None
    throughput: Annotated[float | None, Field(validation_alias=AliasChoices("throughput", "throughput_fps"))] = None
    trials: int = 0
    seconds: float = 0.0
    limited_by: LimitCauseField = LIMITED_BY_UUT
    unstable: str = ""
    why: str = ""
    delays: tuple[LoadedDelay, ...] = ()
    tests: Rfc2544Tests | None = None
    overload_fps: float | None = None
    held_fps: float | None = None
    for_maxima: bool = False
    each: tuple[SearchedStream, ...] = ()
    unit: LoadKind = LoadKind.FRAME_RATE

    @property
    def frame_size(self) -> FrameSize:
        """The size of the frames, in bytes with FCS, of a search that is not about a workload."""
        assert isinstance(self.kind_of_traffic, FrameSize), "a search for a rate of frames"
        return self.kind_of_traffic

    @property
    def of_flows(self) -> bool:
        """Whether it searched for the highest rate of a workload instead of frames."""
        return not isinstance(self.kind_of_traffic, FrameSize)

    @property
    def is_failed(self) -> bool:
        """Whether the result contains no information about the UUT."""
        return self.state is SearchState.FAILED

    @property
    def failure(self) -> ReasonKind | None:
        """The kind of the reason for which the search failed; None if it did not fail, or for another cause."""
        with suppress(ValueError):
            return Reason.parse(self.why).kind if self.is_failed else None
        return None

    @property
    def limited_by_request(self) -> bool:
        """Whether the search ended at the highest load that the user set as a rate, and not at a limit."""
        return self.limited_by.kind is LimitKind.REQUESTED_LOAD

    @property
    def is_regular(self) -> bool:
        """Whether it is a Regular Goal Result (RFC 9971): both bounds, no further apart than the width."""
        if self.state is not SearchState.FOUND or self.lower is None or self.upper is None:
            return False
        return self.upper - self.lower <= _ROUNDING * self.width * self.upper + (0 if self.of_flows else 1)

    @property
    def key(self) -> str:
        """Its identity within its campaign."""
        streams = "+".join(self.streams)
        return f"{self.uut}/{self.scenario}/{streams}/{self.kind_of_traffic}/{self.repetition}/{self.goal}"
