"""The interface between a search method and its measurements: successive trials of a duration at a load."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from netbench.model.distributions import Spread
from netbench.model.search import SearchedStream


class GivenUpError(Exception):
    """Nothing can be measured; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Goal:
    """The condition that a trial must meet: a loss of at most this part of its frames; None: any loss.

    Frames in queues at the end of sending are not lost, but were not forwarded at that load either. If they exceed the
    part `buffered` of all frames, they count as lost. In a longer trial they would have been lost.
    """

    name: str
    loss_ratio: float | None
    buffered: float

    def is_met_by(self, measured: "Measured") -> bool:
        """Return True if a trial met the goal."""
        return not (measured.limited_by or measured.failed) and (
            self.loss_ratio is None or measured.loss_ratio_beyond(self.buffered) <= self.loss_ratio
        )


@dataclass(frozen=True, slots=True)
class Measured:
    """One trial: frames of all streams together, loads in frames/s of each stream.

    Unsent frames count as lost if the UUT pushed back, so that they never pass for success. `limited_by`: why the
    tester could not offer the load; the trial then does not describe the UUT. `inconclusive`: a cause that may pass, so
    the trial is worth repeating; `limited_by` is the same cause. `failed`: how the UUT failed in the trial.
    `source_fault`: why `offered_fps` is no evidence of the rate of the sources. `attempts`: the runs of this trial.
    """

    duration_s: float
    load_fps: float  # as intended
    offered_fps: float
    intended: int
    offered: int
    forwarded: int
    buffered: int = 0  # forwarded frames that were in a queue when sending ended
    limited_by: str = ""
    inconclusive: str = ""
    source_fault: str = ""
    failed: str = ""
    attempts: int = 1
    delay: Spread | None = None
    delay_refused: str = ""
    last_missing: int | None = None  # number of the last frame of a stream that never arrived, counted from 0
    longest_missing: int | None = None  # the most successive missing frames of one stream
    silent_s: float | None = None  # how long before the end of sending the last frame of a stream arrived
    throughput_fps: float | None = None  # within the measuring window, of each stream
    each: tuple[SearchedStream, ...] = ()  # stream by stream, if there are several

    @property
    def loss_ratio(self) -> float:
        """The part of the frames that were not forwarded, 0 to 1; it is 1 if there were no frames."""
        return self._missing(self.forwarded)

    def loss_ratio_beyond(self, buffered: float) -> float:
        """Return the loss ratio; buffered frames count as lost if they exceed this part of all frames."""
        few = self.buffered <= buffered * max(self.intended, self.offered)
        return self._missing(self.forwarded if few else self.forwarded - self.buffered)

    def is_at(self, load_fps: float) -> bool:
        """Return True if this was the intended load of the trial."""
        return self.load_fps == rounded(load_fps)

    def _missing(self, forwarded: int) -> float:
        most = max(self.intended, self.offered)
        return max(0, most - forwarded) / most if most else 1.0


def rounded(fps: float) -> float:
    """Return a rate rounded to six digits: easy to read, and no further off than the pacing of a source."""
    return float(f"{fps:.6g}")


Measure = Callable[[float, float], Measured]  # duration in seconds, load in frames/s of each stream


@dataclass(frozen=True, slots=True)
class Bounds:
    """Intended loads in frames/s: the goal was met at `lower` and missed at `upper`; None: not found so far.

    `loss_ratio` is the loss ratio at the lower bound, by the trials that count there.
    """

    lower: float | None = None
    upper: float | None = None
    loss_ratio: float = 0.0


class Method(ABC):
    """A search for all its goals between a lowest and a highest load, in frames/s of each stream."""

    goals: tuple[Goal, ...]
    width: float  # the allowed distance of the final bounds, as a part of the upper bound

    @abstractmethod
    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure until the bounds of all goals are narrow enough; exceptions of `measure` are passed on.

        The next measurement depends only on the previous ones.
        """

    @abstractmethod
    def is_upper(self, bad: int, good: int) -> bool:
        """Return True if so many bad and good trials at a load prove that it is above the limit."""

    @abstractmethod
    def expected(self) -> tuple[int, float]:
        """Return an estimate of the number of trials and of the seconds of traffic."""

    @abstractmethod
    def bounds(self, goal: Goal) -> Bounds:
        """Return the present bounds, also during search() and after it was interrupted."""
