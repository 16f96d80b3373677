"""The seam between a way to search and what it measures with: trials of a duration at a load, one after the other."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from netbench.model.distributions import Spread
from netbench.model.search import OneOfSeveral


class GivenUpError(Exception):
    """Nothing can be measured; the text says why."""


@dataclass(frozen=True, slots=True)
class Goal:
    """What a trial must do to count as good: lose no more than this part of its frames; None: whatever it loses.

    Frames that waited in some queue when sending ended are not lost, but were not forwarded at that load either: with
    more than the part `buffered` of all a trial is not good. In a longer one they would have been lost.
    """

    name: str
    loss_ratio: float | None
    buffered: float

    def is_met_by(self, measured: "Measured") -> bool:
        """Whether a trial was good."""
        return not (measured.limited_by or measured.failed) and (
            self.loss_ratio is None or measured.loss_ratio_beyond(self.buffered) <= self.loss_ratio
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One trial: frames are those of all streams together, loads in frames/s of each.

    What was not sent counts as lost where the UUT was in the way of it, so that it never passes for success. With
    `limited_by` the trial tells nothing of the UUT but only that the tester cannot do this: why. With `inconclusive` it
    is worth repeating, as the cause may pass: `limited_by` has the same cause. With `failed` the UUT came to an end in
    it: how. `source_fault` says why `offered_fps` is no evidence of what the sources can offer. The runner made
    so many `attempts`.
    """

    duration_s: float
    load_fps: float  # as intended
    offered_fps: float
    intended: int
    offered: int
    forwarded: int
    buffered: int = 0  # of those that were forwarded: they were in a queue when sending ended
    limited_by: str = ""
    inconclusive: str = ""
    source_fault: str = ""
    failed: str = ""
    attempts: int = 1
    delay: Spread | None = None
    delay_refused: str = ""
    last_missing: int | None = None  # the last frame that never arrived, of those of a stream, counted from 0
    longest_missing: int | None = None  # of one stream, one after the other
    silent_s: float | None = None  # at the end of sending, until when nothing had arrived of a stream
    throughput_fps: float | None = None  # within the measuring window, of each stream
    each: tuple[OneOfSeveral, ...] = ()  # stream by stream, where there are several

    @property
    def loss_ratio(self) -> float:
        """The part of the frames that did not come out, 0 to 1; of none, all are lost."""
        return self._missing(self.forwarded)

    def loss_ratio_beyond(self, buffered: float) -> float:
        """The same, without those that were buffered, where these are more than this part of all."""
        few = self.buffered <= buffered * max(self.intended, self.offered)
        return self._missing(self.forwarded if few else self.forwarded - self.buffered)

    def is_at(self, load_fps: float) -> bool:
        """Whether this load was meant by it."""
        return self.load_fps == rounded(load_fps)

    def _missing(self, forwarded: int) -> float:
        most = max(self.intended, self.offered)
        return max(0, most - forwarded) / most if most else 1.0


def rounded(fps: float) -> float:
    """Six digits: a load that people can read, and no further from the other than a source can be paced."""
    return float(f"{fps:.6g}")


Measure = Callable[[float, float], Measured]  # so many seconds, so many frames/s of each stream


@dataclass(frozen=True, slots=True)
class Bounds:
    """Loads in frames/s, as intended: the goal was met at `lower`, and was not at `upper`; None: at none so far.

    `loss_ratio` is what may be lost at the lower bound, of those trials that count there.
    """

    lower: float | None = None
    upper: float | None = None
    loss_ratio: float = 0.0


class Method(ABC):
    """One search for all of its goals between a lowest and a highest load, in frames/s of each stream."""

    goals: tuple[Goal, ...]
    width: float  # how far apart bounds may be at the end, as a part of the upper one

    @abstractmethod
    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure until the bounds of all goals are narrow enough; raises whatever `measure` raises.

        What is measured next depends on nothing but what was measured before.
        """

    @abstractmethod
    def is_upper(self, bad: int, good: int) -> bool:
        """Whether so many trials at a load are enough to say that it is above the limit."""

    @abstractmethod
    def expected(self) -> tuple[int, float]:
        """How many trials it will take, and how many seconds of traffic, about."""

    @abstractmethod
    def bounds(self, goal: Goal) -> Bounds:
        """What is known by now, also while search() is measuring and once it was broken off."""
