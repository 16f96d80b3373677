"""One search of a campaign, computed again from the stored results: the next missing trial and the present bounds."""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from operator import add
from statistics import fmean

from netbench.model.limits import LIMITED_BY_UUT, LimitCause, LimitKind
from netbench.model.search import LoadedDelay, SearchedStream, SearchResult, SearchState
from netbench.model.source_ceiling import (
    FAR_BELOW_SOURCE_RATE,
    SAMPLE_S,
    CeilingComparison,
    CeilingSample,
    SourceCeiling,
    ceiling_of,
    is_settled,
)
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import LoadKind, line_rate_fps
from netbench.plan.schedule import CampaignPlan
from netbench.search.measurement import above_upper, contradiction
from netbench.search.methods import GivenUpError, Goal, Measure, Measured, Method, rounded
from netbench.search.rfc2544_tests import BenchmarkingTests, Throughput
from netbench.search.search_options import SearchOptions
from netbench.search.search_trials import (
    MOST_RATES,
    TIMES_SUSTAINED,
    MissingTrialError,
    Progress,
    SearchCell,
    SearchTrials,
    is_too_fast,
    nearer,
)
from netbench.statistics.groups import grouped

# A source can be paced only at less than its highest rate.
_PACED_PART = 0.98
# The first rate that sources should sustain, and the next one after each miss, is this part of the offered rate:
# sources need room to catch up after moments in which they were late.
_SUSTAINED_PART = 0.8
# The same part for overload, which should be as high as possible.
_OVERLOAD_PART = 0.95
# The most runs of a search. It is repeated if trials above its upper bound contradict the bound, and new trials at the
# bound meet the goal. It is also repeated if all trials at the bound were disturbed, but at most this part of all
# trials: more disturbed trials suggest a lasting disturbance.
_MOST_SEARCHES, _PASSING_PART = 2, 1 / 3
# An upper bound is useless if it is more than so many times the lower bound.
_FARTHEST = 3


class _TooFastError(Exception):
    """The sources do not offer the highest load; `offered_fps` is the highest rate that they offered, in frames/s."""

    def __init__(self, offered_fps: float, why: str) -> None:
        super().__init__(why)
        self.offered_fps = offered_fps


class CellSearch:
    """One search, computed from its first trial on; call `follow` first, and only once.

    `result_of` and `progress` are as in SearchTrials. `ceiling` is the calibrated ceiling of the sources; None: trials
    through the UUT measure it. `elsewhere` are the ceilings of the same sources that were measured with other UUTs.
    """

    def __init__(
        self,
        plan: CampaignPlan,
        options: SearchOptions,
        cell: SearchCell,
        result_of: Callable[[str], TrialResult | None],
        progress: Progress,
        ceiling: SourceCeiling | None = None,
        elsewhere: Sequence[SourceCeiling] = (),
    ) -> None:
        self.ceiling = ceiling
        self._plan, self._options, self._cell, self._elsewhere = plan, options, cell, elsewhere
        self._trial_s = plan.profile.duration
        self._method: Method = options.method_of(self._trial_s)
        links = (plan.topology.stream_link(stream) for stream in plan.topology.own_streams[: cell.sources])
        self._link_bps = min(link.rate for link in links)
        self._highest: float | None = None
        self._trials = SearchTrials(plan, self._method, cell, result_of, progress)
        self._refuted: list[Measured] = []  # trials of a search that was repeated
        self._delays: list[LoadedDelay] = []
        self._tests: BenchmarkingTests | None = None
        self._overload_fps: float | None = None
        self._sustained_fps: float | None = None
        self._why = ""
        self._is_done = False

    def follow(self) -> TrialSpec | None:
        """Return the missing trial; None if the search is over."""
        try:
            highest = self._search(self._highest_load())
            result = self._result(self._method.goals[0], is_over=True)
            for measure in (self._measure_delays, self._measure_tests, self._measure_overload):
                with self._trials.apart():
                    measure(result, highest)
        except MissingTrialError as missing:
            return missing.spec
        except GivenUpError as why:
            self._why = str(why)
        self._is_done = True
        return None

    def results(self) -> tuple[SearchResult, ...]:
        """Return the present result for each goal."""
        return tuple(map(self._result, self._method.goals))

    # The search itself.

    def _highest_load(self) -> float:
        """Return the highest load in frames/s of each stream: the requested one, or the rate of the paced sources."""
        fps = self._options.highest.fps(self._cell.frame_size, self._link_bps)
        if fps is not None:
            return fps
        if self.ceiling is None:
            self.ceiling = self._ceiling_by_trials()
        if not self.ceiling.is_known:
            faults = (sample.reason for sample in self.ceiling.samples if sample.reason)
            raise GivenUpError(next(faults, "the sources send nothing"))
        if seconds := self._options.sustained_s(self._trial_s):
            first = rounded(self.ceiling.fps * _SUSTAINED_PART)
            return self._trials.sustained(first, seconds, _SUSTAINED_PART).load_fps
        return rounded(self.ceiling.paced_fps or self.ceiling.fps * _PACED_PART)

    def _ceiling_by_trials(self) -> SourceCeiling:
        """Return the highest rate of the sources, by trials through the UUT that are not part of the search."""
        seconds = max(SAMPLE_S, self._options.first_s(self._trial_s))
        samples: list[CeilingSample] = []
        with self._trials.apart():
            self._trials.measure(seconds, self._options.highest)  # the warm-up sample
            while not is_settled(samples):
                trial = self._trials.measure(seconds, self._options.highest)
                fault = trial.source_fault or trial.failed
                samples.append(CeilingSample(trial.offered_fps, seconds, accepted=not fault, reason=fault))
        cell, known = self._cell, [ceiling for ceiling in self._elsewhere if ceiling.is_known]
        others = [CeilingComparison(f"trials with UUT {ceiling.uut}", ceiling.fps) for ceiling in known]
        kind = self._plan.profile.generator.kind
        return ceiling_of(kind, cell.sources, cell.frame_size, samples, uut=cell.uut, compared_with=others)

    def _search(self, highest: float) -> float:
        """Search up to this load, or up to the rate of the sources if that is lower; return the highest load.

        If trials above an upper bound contradict it, the bound is measured again. If it then meets the goal, the search
        is repeated. It is also repeated if the tester was disturbed at an upper bound.
        """
        rates = searches = 0
        while True:
            self._highest = highest
            lowest = self._options.lowest_of(highest, self._cell.frame_size, self._link_bps, self._trial_s)
            is_requested = self._options.highest.kind is not LoadKind.MAX
            measure = self._trials.steady if is_requested else self._measure_up_to(highest)
            try:
                self._method.search(lowest, highest, measure)
            except _TooFastError as why:
                if (rates := rates + 1) == MOST_RATES:
                    raise GivenUpError(str(why)) from why
                self._trials.counted.clear()
                highest = rounded(_PACED_PART * min(highest, why.offered_fps))
                continue
            searches += 1
            if searches == _MOST_SEARCHES or not (self._is_refuted() or self._is_disturbed()):
                return highest
            self._refuted += self._trials.counted
            self._trials.counted.clear()

    def _measure_up_to(self, highest: float) -> Measure:
        """Return a function that measures loads; _TooFastError if the sources do not offer the load `highest`."""

        def measure(seconds: float, fps: float) -> Measured:
            trial = self._trials.steady(seconds, fps)
            if trial.is_at(highest) and is_too_fast(trial):
                trial = nearer(trial, self._trials.steady(seconds, fps))
                if is_too_fast(trial) and 1 <= trial.offered_fps < highest:
                    raise _TooFastError(trial.offered_fps, trial.limited_by)
            return trial

        return measure

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

    # What follows the search, at the `result` for the first goal.

    def _measure_delays(self, result: SearchResult, highest: float) -> None:
        """Measure delays at parts of the lower bound."""
        if result.lower_fps is None:
            return
        for share in self._options.delay_at:
            fps = share * result.lower_fps
            try:
                trial = self._trials.steady(self._trial_s, fps)
            except GivenUpError as why:
                self._delays.append(LoadedDelay(share, fps, None, str(why)))
                break
            refused = trial.failed or trial.limited_by or trial.delay_refused
            self._delays.append(LoadedDelay(share, trial.offered_fps, None if refused else trial.delay, refused))

    def _measure_tests(self, result: SearchResult, highest: float) -> None:
        """Run the other tests of RFC 2544 at the lower bound."""
        if not self._options.tests or (result.lower_fps is None and result.state is not SearchState.AT_MOST):
            return
        size, state, limit = self._cell.frame_size, result.state, result.limited_by.stored
        line_rate = line_rate_fps(self._link_bps, size.mean_bytes)
        throughput = Throughput(result.lower_fps or 0.0, highest, line_rate, state, size, limit)
        self._tests = BenchmarkingTests(self._options, self._plan.profile, throughput, self._trials)
        self._tests.measure()

    def _measure_overload(self, result: SearchResult, highest: float) -> None:
        """Measure above the upper bound if the UUT set it, at a load that the sources sustain."""
        factor = self._options.overload
        if factor is None or result.upper_fps is None or not result.limited_by.is_uut:
            return
        overload = rounded(factor * result.upper_fps)
        try:
            trial = self._trials.sustained(min(overload, highest), self._trial_s, _OVERLOAD_PART)
        except GivenUpError:
            return  # the result of the search remains valid
        if not (trial.limited_by or trial.failed):
            self._overload_fps = trial.throughput_fps
            self._sustained_fps = max(trial.load_fps, result.lower_fps or 0.0) if trial.load_fps < overload else None

    # The result.

    def _result(self, goal: Goal, *, is_over: bool = False) -> SearchResult:
        """Return the result for a goal; `is_over`: the search is over, although trials after it may be missing."""
        bounds, width, counted = self._method.bounds(goal), self._method.width, self._trials.counted
        at_lower = [trial for trial in counted if trial.is_at(bounds.lower)]
        at_upper = [trial for trial in counted if trial.is_at(bounds.upper)]
        conclusive = [trial for trial in at_lower if not trial.limited_by]
        lower = fmean(trial.offered_fps for trial in conclusive) if conclusive else None
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
            limited_by = self._limit_of_sources()
        failure = next((trial.failed for trial in at_upper if trial.failed), "")
        is_first = goal == self._method.goals[0]
        cell = self._cell
        return SearchResult(
            uut=cell.uut,
            scenario=cell.scenario,
            streams=self._plan.streams[: cell.sources],
            frame_size=cell.frame_size,
            repetition=cell.repetition,
            method=self._options.method,
            goal=goal.name,
            loss_ratio=goal.loss_ratio,
            state=state,
            width=width,
            lower_fps=lower,
            upper_fps=upper,
            throughput_fps=None if lower is None else lower * (1 - bounds.loss_ratio),
            trials=len(counted) + len(self._refuted),
            seconds=sum(trial.duration_s for trial in (*self._refuted, *counted)),
            limited_by=limited_by,
            unstable=contradiction(counted, goal, width, bounds),
            why=self._why or (failure and f"at the upper bound: {failure}") or wide,
            delays=tuple(self._delays) if is_first else (),
            tests=self._tests.results if self._tests and is_first else None,
            overload_fps=self._overload_fps if is_first else None,
            held_fps=self._sustained_fps if is_first else None,
            each=_added_up(trial for trial in conclusive if not trial.failed),
        )

    def _missed_above(self, goal: Goal, lower: float) -> float | None:
        """Return the load up to which the UUT missed the goal above the lower bound in two or more trials, or None."""
        above = (trial for trial in self._trials.counted if lower < trial.load_fps <= _FARTHEST * lower)
        loads = grouped((trial for trial in above if not trial.limited_by), lambda trial: trial.load_fps)
        times = 0
        for load in sorted(loads):
            good = sum(map(goal.is_met_by, loads[load]))
            bad = len(loads[load]) - good
            if self._method.is_upper(bad, good):
                times += bad
            if times >= TIMES_SUSTAINED:
                return load
        return None

    def _limit_of_sources(self) -> LimitCause:
        """Return why no load above the lower bound was tried, and the sign that the sources can do more, if any."""
        if self._options.highest.kind is not LoadKind.MAX:
            return LimitCause(LimitKind.REQUESTED_LOAD)
        highest, ceiling = self._highest or 0.0, self.ceiling
        doubt = ceiling.doubt if ceiling else ""
        if ceiling and not doubt and highest < FAR_BELOW_SOURCE_RATE * (ceiling.paced_fps or ceiling.fps * _PACED_PART):
            doubt = f"without a rate to keep it offers {ceiling.fps:,.0f} frames/s"
        return LimitCause(LimitKind.SOURCE, paced_fps=highest, doubt=doubt)

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
