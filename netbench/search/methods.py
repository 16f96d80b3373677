"""Search methods, and the interface to their measurements: successive trials of a duration at a load."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, log2
from statistics import fmean

from netbench.model.distributions import Spread
from netbench.model.flow_result import Latencies
from netbench.model.limits import OVERLOAD_LOSS_RATIO
from netbench.model.search import SearchedStream

STEP = 0.1  # of the highest load, at most (RFC 2544, section 26.3: "a maximum granularity of 10%")
_CLEAN_IN_A_ROW = 2
_MORE = 1.005  # a higher load must forward more by this factor to be the new maximum


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
class MeasuredService:
    """A service in a trial with flows, as all its clients together experienced it; counts as in Measured.

    `failed` operations are errors. `in_time` operations succeeded within the measured time. So many as `on_the_way` may
    be in progress at either end of that time. `times` are the response times, or round-trip times; None if the tool has
    none.
    """

    on_the_way: int
    failed: int
    in_time: int
    times: Latencies | None = None


@dataclass(frozen=True, slots=True)
class Measured:
    """One trial: frames or operations of all streams together, loads of each stream in the unit of the search.

    With backpressure by the UUT, unsent frames count as lost: they never pass for success. `limited_by`: why the
    tester could not offer the load; the trial then does not describe the UUT. `inconclusive`: a cause that may pass, so
    the trial is worth repeating; `limited_by` is the same cause. `failed`: how the UUT failed in the trial.
    `source_fault`: why `offered_load` is no evidence of the rate of the sources. `attempts`: the runs of this trial.
    """

    duration_s: float
    load: float  # as intended
    offered_load: float
    intended: int
    offered: int
    forwarded: int
    buffered: int = 0  # forwarded frames that were in a queue when sending ended
    limited_by: str = ""
    is_short: bool = False  # `limited_by`: the sources did not offer the intended load
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
    service: MeasuredService | None = None  # of a trial with flows

    @property
    def loss_ratio(self) -> float:
        """The part of the frames that were not forwarded, 0 to 1; it is 1 if there were no frames."""
        return self.loss_ratio_beyond(inf)

    def loss_ratio_beyond(self, buffered: float) -> float:
        """Return the loss ratio; buffered frames count as lost if they exceed this part of all frames."""
        most = max(self.intended, self.offered)
        forwarded = self.forwarded - (self.buffered if self.buffered > buffered * most else 0)
        return max(0, most - forwarded) / most if most else 1.0

    def is_at(self, load: float | None) -> bool:
        """Return True if this was the intended load of the trial."""
        return load is not None and self.load == rounded(load)


def rounded(fps: float) -> float:
    """Return a rate rounded to six digits: easy to read, and no further off than the pacing of a source."""
    return float(f"{fps:.6g}")


Measure = Callable[[float, float], Measured]  # duration in seconds, load of each stream in the unit of the search


@dataclass(frozen=True, slots=True)
class Bounds:
    """Intended loads in the unit of the search: the goal was met at `lower` and missed at `upper`.

    None: not found so far. `loss_ratio` is the loss ratio at the lower bound, by the trials that count there.
    """

    lower: float | None = None
    upper: float | None = None
    loss_ratio: float = 0.0


class Method(ABC):
    """A search for all its goals between a lowest and a highest load of each stream, in the unit of the search.

    `width` is the allowed distance of the final bounds, as a part of the upper bound. Trials last `trial_s` seconds.
    """

    def __init__(self, goals: Sequence[Goal], width: float, trial_s: float) -> None:
        self.goals, self.width, self.trial_s = tuple(goals), width, trial_s
        self._bounds = Bounds()

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

    def bounds(self, goal: Goal) -> Bounds:
        """Return the present bounds of a goal, also during search() and after it was interrupted."""
        return self._bounds


class Bisection(Method):
    """Search that starts at the highest load and halves the interval; all trials have the same duration.

    A load is above the limit once `verified` trials in a row missed the goal. 1 is RFC 2544's search, which accepts the
    first result. 2 and more are TST 009's binary search with loss verification, which does not mistake a passing
    disturbance for the limit. `nearest` returns the nearest load that the tester offers.
    """

    def __init__(
        self,
        goal: Goal,
        width: float,
        *,
        trial_s: float,
        verified: int = 1,
        nearest: Callable[[float], float] = rounded,
    ) -> None:
        super().__init__((goal,), width, trial_s)
        self._verified, self._nearest = verified, nearest

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure at the highest load, then at the lowest, then halve the interval."""
        self._bounds = Bounds()
        if self._is_met(highest, measure) or not self._is_met(lowest, measure):
            return
        while True:
            lower, upper = self._bounds.lower or 0.0, self._bounds.upper or 0.0
            middle = self._nearest((lower + upper) / 2)
            if upper - lower <= self.width * upper or not lower < middle < upper:
                return
            self._is_met(middle, measure)

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True once as many trials in a row as `verified` missed the goal."""
        return bad >= self._verified

    def expected(self) -> tuple[int, float]:
        """Count both ends and the halvings until the bounds are close enough; every second load is too high."""
        loads = 2 + ceil(log2(1 / self.width))
        trials = round(loads * (1 + self._verified) / 2)
        return trials, trials * self.trial_s

    def _is_met(self, load: float, measure: Measure) -> bool:
        (goal,) = self.goals
        for _ in range(self._verified):
            measured = measure(self.trial_s, load)
            if goal.is_met_by(measured):
                self._bounds = Bounds(load, self._bounds.upper, measured.loss_ratio_beyond(goal.buffered))
                return True
        self._bounds = replace(self._bounds, upper=load)
        return False


class LossRate(Method):
    """Trials at 100 %, 90 %, 80 %, … of the highest load, until two loads in a row lose nothing.

    The results are the losses of the trials. The lower bound is the higher of those two loads, the upper bound the load
    that was measured above it.
    """

    def __init__(self, goal: Goal, *, trial_s: float) -> None:
        super().__init__((goal,), STEP, trial_s)

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure from the highest load downwards."""
        self._bounds = Bounds()
        (goal,) = self.goals
        clean = 0
        # No load below the lowest one is offered: the lowest load replaces all loads below it.
        for load in dict.fromkeys(max(lowest, highest * (1 - step * STEP)) for step in range(round(1 / STEP))):
            if goal.is_met_by(measure(self.trial_s, load)):
                clean += 1
                self._bounds = replace(self._bounds, lower=self._bounds.lower or load)
            else:
                clean = 0
                self._bounds = Bounds(None, load)
            if clean == _CLEAN_IN_A_ROW:
                return

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True: one trial with loss is enough."""
        return bad > 0

    def expected(self) -> tuple[int, float]:
        """Count all loads, which is the maximum."""
        return round(1 / STEP), round(1 / STEP) * self.trial_s


class SweepSearch(Method):
    """Trials at fixed parts of the highest load, so many at each, regardless of loss.

    The lower bound is the load with the highest forwarded rate. The upper one is the next load, or the same one if
    frames were lost.
    """

    def __init__(self, shares: Sequence[float], *, trial_s: float, times: int) -> None:
        self._shares, self._times = sorted(shares), times
        steps = zip((0.0, *self._shares), self._shares, strict=False)
        goal = Goal("maximum of the sweep", None, 0.0)
        super().__init__((goal,), max((above - below) / above for below, above in steps), trial_s)

    def search(self, lowest: float, highest: float, measure: Measure) -> None:
        """Measure all loads upwards; frames still in queues at the end do not count as forwarded at that load."""
        self._bounds = Bounds()
        (goal,) = self.goals
        best, most = None, 0.0
        for place, load in enumerate(dict.fromkeys(max(lowest, share * highest) for share in self._shares)):
            trials = [measure(self.trial_s, load) for _ in range(self._times)]
            lost = [trial.loss_ratio_beyond(goal.buffered) for trial in trials]
            out = fmean(trial.offered_load * (1 - loss) for trial, loss in zip(trials, lost, strict=True))
            if all(map(goal.is_met_by, trials)) and out > most * _MORE:
                best, most = place, out
                # If nothing is lost at the highest load, the maximum is unknown.
                self._bounds = Bounds(load, load if max(lost) > OVERLOAD_LOSS_RATIO else None, fmean(lost))
            elif best is not None and place == best + 1:
                self._bounds = replace(self._bounds, upper=load)

    def is_upper(self, bad: int, good: int) -> bool:
        """Return True: every measured load counts."""
        return True

    def expected(self) -> tuple[int, float]:
        """Return the exact number of trials and their duration."""
        trials = len(self._shares) * self._times
        return trials, trials * self.trial_s
