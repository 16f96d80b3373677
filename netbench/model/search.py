"""What a search found: the highest load at which a UUT still does what a goal asks for."""

from dataclasses import dataclass, replace
from enum import StrEnum

from netbench.model.distributions import Spread
from netbench.model.frame_mix import FrameSize
from netbench.model.rfc2544 import Rfc2544Tests

# Why a search ended at the highest load that it may try, where that is a rate which somebody wrote.
THE_HIGHEST_ASKED = "the highest load asked for"


# The lower bound is a load as it was offered, in whole frames: it is apart from the load that was intended.
_ROUNDING = 1.1


class SearchState(StrEnum):
    """How far a search for one goal has come; the value is what results and reports show.

    `at-least`: the highest load that could be asked for is still below the limit. `at-most`: the limit is below the
    lowest load that is tried. `failed`: nothing could be measured.
    """

    SEARCHING = "searching"
    FOUND = "found"
    AT_LEAST = "at-least"
    AT_MOST = "at-most"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class LoadedDelay:
    """One-way delays at a part `share` of the load that was found, offered at `load_fps` of each stream.

    Those of the stream for which they are longest in the median; None where they could not be told, of which `refused`
    says why.
    """

    share: float
    load_fps: float
    delay: Spread | None
    refused: str = ""


@dataclass(frozen=True, slots=True)
class OneOfSeveral:
    """One stream of several in the same trials, `seconds` in all: what of it was offered, and what was lost of that.

    A goal is about all streams together, and does not tell one that loses from one that does not. `reverse_of` is the
    stream whose way back it is, if it is any.
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
        """In frames/s."""
        return self.offered_frames / self.seconds if self.seconds else 0.0

    @property
    def forwarded_fps(self) -> float:
        """Of what was offered, in frames/s of sending."""
        return self.offered_fps * (1 - self.loss_ratio)

    @property
    def loss_ratio(self) -> float:
        """Lost ÷ offered."""
        return self.lost_frames / self.offered_frames if self.offered_frames else 0.0


@dataclass(frozen=True, slots=True)
class SearchResult:
    """The bounds of one goal, of one UUT in one scenario with these streams and frame size.

    Rates are in frames/s of each stream. `lower_fps` is the highest load at which the goal was met, below every one at
    which it was not, as it was offered; `upper_fps` the lowest one at which it was not, as it was asked for: where a
    link pushes back, more than it takes is not offered.
    `throughput_fps` is what came out at the lower bound, where that says less than the load: the conditional throughput
    of RFC 9971, with the load as it was offered. None: there is none, so far. `trials` and `seconds` of traffic are
    those of the whole search, which may have had other goals. `width` is how far apart the bounds may be at its end, as
    a part of the upper one. `limited_by` says why the upper bound is not the UUT's doing, where it is not; `unstable`
    what in the trials contradicts that there is one limit; `why` how the UUT failed, in all trials or at the upper
    bound, or how the tester kept the bounds further apart than the width. `delays` were measured afterwards, at parts
    of the lower bound of the first goal, as were the other `tests` of RFC 2544, where they were asked for, and
    `overload_fps` came out then above its upper bound, at `held_fps` where the sources did not hold all that was asked
    of them. `each` has the streams one by one, where there are several, in all trials at the lower bound that are
    conclusive about the UUT. One that is `for_maxima` found what loads are a share of.
    """

    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: FrameSize  # bytes with FCS
    repetition: int  # from 1
    method: str
    goal: str
    loss_ratio: float | None  # that the goal accepts; None: whatever is lost
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
        """Whether it says nothing of the UUT."""
        return self.state is SearchState.FAILED

    @property
    def is_regular(self) -> bool:
        """Whether it is a Regular Goal Result (RFC 9971): both bounds, no further apart than the width."""
        if self.state is not SearchState.FOUND or self.lower_fps is None or self.upper_fps is None:
            return False
        return self.upper_fps - self.lower_fps <= _ROUNDING * self.width * self.upper_fps + 1

    @property
    def key(self) -> str:
        """What identifies it within its campaign."""
        streams = "+".join(self.streams)
        return f"{self.uut}/{self.scenario}/{streams}/{self.frame_size}/{self.repetition}/{self.goal}"
