"""One search of a campaign, computed again from the stored results: the next missing trial and the present bounds."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from functools import reduce
from operator import add
from statistics import fmean

from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.search import SearchedStream, SearchResult, SearchState
from netbench.model.trial import TrialSpec
from netbench.model.units import LoadKind
from netbench.plan.schedule import CampaignPlan
from netbench.search.contradictions import above_upper, contradiction
from netbench.search.methods import GivenUpError, Goal, Measure, Measured, Method, rounded
from netbench.search.search_trials import TIMES_SUSTAINED, MissingTrialError, SearchCell, SearchTrials
from netbench.statistics.groups import grouped

# The most runs of a search. It is repeated if trials above its upper bound contradict the bound, and new trials at the
# bound meet the goal. It is also repeated if all trials at the bound were disturbed, but at most this part of all
# trials: more disturbed trials suggest a lasting disturbance.
_MOST_SEARCHES, _PASSING_PART = 2, 1 / 3
# An upper bound is useless if it is more than so many times the lower bound.
_FARTHEST = 3


class TooHighError(Exception):
    """The tester does not offer the highest load; the search begins again at the load `instead`."""

    def __init__(self, instead: float) -> None:
        super().__init__(f"the highest load is {instead:g}")
        self.instead = instead


class CellSearch(ABC):
    """One search, computed from its first trial on; call `follow` first, and only once.

    `method_name` is that of the results. Rates are of each stream, in the `unit`.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        cell: SearchCell,
        method: Method,
        trials: SearchTrials,
        *,
        method_name: str,
        unit: LoadKind = LoadKind.FRAME_RATE,
    ) -> None:
        self._plan, self._cell, self._method, self._trials = plan, cell, method, trials
        self._trial_s = plan.profile.duration
        self._method_name, self._unit = method_name, unit
        self._highest: float | None = None
        self._refuted: list[Measured] = []  # trials of a search that was repeated
        self._why = ""
        self._is_done = False

    def follow(self) -> TrialSpec | None:
        """Return the missing trial; None if the search is over."""
        try:
            highest = self._search(self._highest_load())
            self._measure_afterwards(self._result(self._method.goals[0], is_over=True), highest)
        except MissingTrialError as missing:
            return missing.spec
        except GivenUpError as why:
            self._why = str(why)
        self._is_done = True
        return None

    def results(self) -> tuple[SearchResult, ...]:
        """Return the present result for each goal."""
        return tuple(map(self._result, self._method.goals))

    # The parts that depend on the kind of traffic.

    @abstractmethod
    def _highest_load(self) -> float:
        """Return the highest load of the search; GivenUpError if there is none."""

    @abstractmethod
    def _lowest_load(self, highest: float) -> float:
        """Return the lowest load of the search, which is below the highest."""

    @abstractmethod
    def _limit_at_highest(self) -> LimitCause:
        """Return why no load above the lower bound was tried, if the UUT met the goal at the highest load."""

    def _measure_up_to(self, highest: float) -> Measure:
        """Return a function that measures loads; TooHighError if the tester does not offer the load `highest`."""
        return self._trials.steady

    def _measure_afterwards(self, result: SearchResult, highest: float) -> None:
        """Measure what follows the search, at the `result` for the first goal; usually nothing."""
        return

    # The search itself.

    def _search(self, highest: float) -> float:
        """Search up to this load, or up to the highest that the tester offers if that is lower; return it.

        If trials above an upper bound contradict it, the bound is measured again. If it then meets the goal, the search
        is repeated. It is also repeated if the tester was disturbed at an upper bound.
        """
        searches = 0
        while True:
            self._highest = highest
            lowest = self._lowest_load(highest)
            try:
                self._method.search(lowest, highest, self._measure_up_to(highest))
            except TooHighError as error:
                self._trials.counted.clear()
                highest = error.instead
                continue
            searches += 1
            if searches == _MOST_SEARCHES or not (self._is_refuted() or self._is_disturbed()):
                return highest
            self._refuted += self._trials.counted
            self._trials.counted.clear()

    def _is_refuted(self) -> bool:
        """Return True if trials contradict an upper bound, and new trials at that bound meet the goal."""
        for goal in self._method.goals:
            bounds = self._method.bounds(goal)
            if bounds.upper is not None and above_upper(self._trials.counted, goal, self._method.width, bounds):
                again = [self._trials.steady(self._trial_s, bounds.upper) for _ in range(TIMES_SUSTAINED)]
                if all(map(goal.is_met_by, again)):
                    return True
        return False

    def _is_disturbed(self) -> bool:
        """Return True if the tester was disturbed in all trials at an upper bound, but in few others."""
        counted = self._trials.counted
        if sum(bool(trial.inconclusive) for trial in counted) > _PASSING_PART * len(counted):
            return False
        uppers = (self._method.bounds(goal).upper for goal in self._method.goals)
        at_upper = [[trial for trial in counted if trial.is_at(upper)] for upper in uppers if upper is not None]
        return any(all(trial.inconclusive for trial in trials) for trials in at_upper)

    # The result.

    def _result(self, goal: Goal, *, is_over: bool = False) -> SearchResult:
        """Return the result for a goal; `is_over`: the search is over, although trials after it may be missing."""
        bounds, width, counted = self._method.bounds(goal), self._method.width, self._trials.counted
        at_lower = [trial for trial in counted if trial.is_at(bounds.lower)]
        at_upper = [trial for trial in counted if trial.is_at(bounds.upper)]
        conclusive = [trial for trial in at_lower if not trial.limited_by]
        lower = fmean(trial.offered_load for trial in conclusive) if conclusive else None
        upper = None if bounds.upper is None else max(rounded(bounds.upper), lower or 0.0)
        # Among trials of several durations the longest ones decide, even if the tester was the limit in all of them.
        longest_s = max((trial.duration_s for trial in at_upper), default=0.0)
        valid = [goal.is_met_by(trial) for trial in at_upper if not trial.limited_by and trial.duration_s == longest_s]
        decisive = at_upper if at_upper or lower is not None else counted
        limited_by, wide = LIMITED_BY_UUT, ""
        reason = next((trial.limited_by for trial in decisive if trial.limited_by), "")
        if reason and not self._method.is_upper(valid.count(False), valid.count(True)):
            missed = None if lower is None else self._missed_above(goal, lower)
            if missed is None:
                limited_by = LimitCause(LimitKind.TRIAL_REASON, detail=reason)
            else:
                upper, wide = missed, f"the tester keeps the bounds apart: {reason}"
        state = self._state(lower, upper, limited_by) if is_over or self._is_done else SearchState.SEARCHING
        if state is SearchState.AT_LEAST and limited_by.is_uut:
            limited_by = self._limit_at_highest()
        failure = next((trial.failed for trial in at_upper if trial.failed), "")
        cell = self._cell
        return SearchResult(
            uut=cell.uut,
            scenario=cell.scenario,
            streams=self._plan.streams[: cell.sources],
            kind_of_traffic=cell.traffic,
            repetition=cell.repetition,
            method=self._method_name,
            goal=goal.name,
            loss_ratio=goal.loss_ratio,
            state=state,
            width=width,
            lower=lower,
            upper=upper,
            throughput=None if lower is None else lower * (1 - bounds.loss_ratio),
            trials=len(counted) + len(self._refuted),
            seconds=sum(trial.duration_s for trial in (*self._refuted, *counted)),
            limited_by=limited_by,
            unstable=contradiction(counted, goal, width, bounds, self._unit),
            why=self._why or (failure and f"at the upper bound: {failure}") or wide,
            each=_added_up(trial for trial in conclusive if not trial.failed),
            unit=self._unit,
        )

    def _missed_above(self, goal: Goal, lower: float) -> float | None:
        """Return the load up to which the UUT missed the goal above the lower bound in two or more trials, or None."""
        above = (trial for trial in self._trials.counted if lower < trial.load <= _FARTHEST * lower)
        loads = grouped((trial for trial in above if not trial.limited_by), lambda trial: trial.load)
        times = 0
        for load in sorted(loads):
            good = sum(map(goal.is_met_by, loads[load]))
            bad = len(loads[load]) - good
            if self._method.is_upper(bad, good):
                times += bad
            if times >= TIMES_SUSTAINED:
                return load
        return None

    def _state(self, lower: float | None, upper: float | None, limited_by: LimitCause) -> SearchState:
        is_bounded = upper is not None and limited_by.is_uut
        if self._why or (lower is None and not is_bounded):
            return SearchState.FAILED
        if lower is None:
            return SearchState.AT_MOST
        return SearchState.FOUND if is_bounded else SearchState.AT_LEAST


def _added_up(trials: Iterable[Measured]) -> tuple[SearchedStream, ...]:
    """Return the sums of each stream over trials of the same streams."""
    by_stream = zip(*(trial.each for trial in trials), strict=True)
    return tuple(reduce(add, same) for same in by_stream)
