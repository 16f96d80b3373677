"""The result of a search: the highest load at which a UUT still meets a goal."""

from dataclasses import dataclass, replace
from enum import StrEnum

from netbench.model.distributions import Spread
from netbench.model.frame_mix import FrameSize
from netbench.model.rfc2544 import Rfc2544Tests

# Why a search ended at the highest load that it may try, if the user set that load as a rate.
THE_HIGHEST_ASKED = "the highest load asked for"


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
class OneOfSeveral:
    """One of several streams in the same trials, `seconds` in all: its offered frames, and the lost ones among them.

    A goal is about all streams together, and does not show which of them lose frames. `reverse_of` is the stream that
    this one is the way back of, if any.
    """

    stream: str
    reverse_of: str
    offered_frames: int
    lost_frames: int
    seconds: float

    def __add__(self, other: "OneOfSeveral") -> "OneOfSeveral":
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
    """The bounds of one goal, of one UUT in one scenario with these streams and frame size.

    Rates are in frames/s of each stream. `lower_fps` is the highest offered load at which the goal was met, below every
    load at which it was not. `upper_fps` is the lowest intended load at which it was not met: if a link pushes back,
    only its capacity is offered.
    `throughput_fps` is the throughput at the lower bound, if it is below the load: the conditional throughput of
    RFC 9971, with the offered load. None: there is none so far. `trials` and `seconds` of traffic are those of the
    whole search, which may have had other goals. `width` is the allowed distance of the bounds at the end, as a ratio
    of the upper one. `limited_by` is the reason if the upper bound is not due to the UUT. `unstable` describes trials
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
    frame_size: FrameSize  # bytes with FCS
    repetition: int  # from 1
    method: str
    goal: str
    loss_ratio: float | None  # accepted by the goal; None: any loss
    state: SearchState
    width: float
    lower_fps: float | None = None
    upper_fps: float | None = None
    throughput_fps: float | None = None
    trials: int = 0
    seconds: float = 0.0
    limited_by: str = ""
    unstable: str = ""
    why: str = ""
    delays: tuple[LoadedDelay, ...] = ()
    tests: Rfc2544Tests | None = None
    overload_fps: float | None = None
    held_fps: float | None = None
    for_maxima: bool = False
    each: tuple[OneOfSeveral, ...] = ()

    @property
    def is_failed(self) -> bool:
        """Whether the result contains no information about the UUT."""
        return self.state is SearchState.FAILED

    @property
    def is_regular(self) -> bool:
        """Whether it is a Regular Goal Result (RFC 9971): both bounds, no further apart than the width."""
        if self.state is not SearchState.FOUND or self.lower_fps is None or self.upper_fps is None:
            return False
        return self.upper_fps - self.lower_fps <= _ROUNDING * self.width * self.upper_fps + 1

    @property
    def key(self) -> str:
        """Its identity within its campaign."""
        streams = "+".join(self.streams)
        return f"{self.uut}/{self.scenario}/{streams}/{self.frame_size}/{self.repetition}/{self.goal}"
