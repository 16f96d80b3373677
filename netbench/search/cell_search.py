"""One search of a campaign, computed again from the stored results: the next missing trial and the present bounds."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import reduce
from operator import add
from statistics import fmean

from netbench.model.frame_size import FrameSize
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
from netbench.model.units import Load, LoadKind, line_rate_fps
from netbench.model.verdict import ReasonKind
from netbench.plan.schedule import CampaignPlan
from netbench.search.measurement import above_upper, contradiction, measurement_of, unmeasured
from netbench.search.methods import GivenUpError, Goal, Measure, Measured, Method, rounded
from netbench.search.rfc2544_tests import BenchmarkingTests, Throughput
from netbench.search.search_options import BACK_TO_BACK, RESET, SYSTEM_RECOVERY, SearchOptions
from netbench.statistics.groups import grouped

# A source can be paced only at less than its highest rate.
_PACED_PART = 0.98
# A rate is sustained if the sources sustain it twice in a row. The first rate, and the next one after each miss, is
# this part of the offered rate: sources need room to catch up after moments in which they were late.
_SUSTAINED_PART, TIMES_SUSTAINED, _MOST_RATES = 0.8, 2, 8
# The same part for overload, which should be as high as possible.
_OVERLOAD_PART = 0.95
# A trial that the tester disturbed is run so many times in all. After that its load counts as limited by the tester.
# After so many such loads in a row the search is given up.
_MOST_INCONCLUSIVE, _MOST_LIMITED = 3, 12
# The most runs of a search. It is repeated if trials above its upper bound contradict the bound, and new trials at the
# bound meet the goal. It is also repeated if all trials at the bound were disturbed, but at most this part of all
# trials: more disturbed trials suggest a lasting disturbance.
_MOST_SEARCHES, _PASSING_PART = 2, 1 / 3
# An upper bound is useless if it is more than so many times the lower bound.
_FARTHEST = 3
# After so many trials without counts in a row a search is given up: the UUT does not come up, or dies each time.
_MOST_UNMEASURED = 3


@dataclass(frozen=True, slots=True)
class SearchCell:
    """The parameters of one search."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize
    repetition: int


@dataclass(slots=True)
class Progress:
    """The trials so far: their number, the number at each load, and the number in which the UUT failed."""

    trials: int = 0
    times: Counter[str] = field(default_factory=Counter)
    failures: int = 0


class _TooFastError(Exception):
    """The sources do not offer the highest load; `offered_fps` is the highest rate that they offered, in frames/s."""

    def __init__(self, offered_fps: float, why: str) -> None:
        super().__init__(why)
        self.offered_fps = offered_fps


class _MissingTrialError(Exception):
    """The trial `spec` has no result yet; it is next."""

    def __init__(self, spec: TrialSpec) -> None:
        super().__init__(spec.key)
        self.spec = spec


class CellSearch:
    """One search, computed from its first trial on; call `follow` first, and only once.

    `result_of` returns the result of a trial by its key; None if it is missing. `progress` is that before this search,
    and is advanced. `ceiling` is the calibrated ceiling of the sources; None: trials through the UUT measure it.
    `elsewhere` are the ceilings of the same sources that were measured with other UUTs.
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
        self.progress, self.ceiling = progress, ceiling
        self._plan, self._options, self._cell, self._result_of = plan, options, cell, result_of
        self._elsewhere = elsewhere
        self._trial_s = plan.profile.duration
        self._method: Method = options.method_of(self._trial_s)
        links = (plan.topology.stream_link(stream) for stream in plan.topology.own_streams[: cell.sources])
        self._link_bps = min(link.rate for link in links)
        self._highest: float | None = None
        self._trials: list[Measured] = []
        self._refuted: list[Measured] = []  # trials of a search that was repeated
        self._limited: set[float] = set()  # successive loads at which the tester was the limit
        self._unmeasured = 0
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
                with self._trials_apart():
                    measure(result, highest)
        except _MissingTrialError as missing:
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
            return self._sustained(rounded(self.ceiling.fps * _SUSTAINED_PART), seconds, _SUSTAINED_PART).load_fps
        return rounded(self.ceiling.paced_fps or self.ceiling.fps * _PACED_PART)

    def _ceiling_by_trials(self) -> SourceCeiling:
        """Return the highest rate of the sources, by trials through the UUT that are not part of the search."""
        seconds = max(SAMPLE_S, self._options.first_s(self._trial_s))
        samples: list[CeilingSample] = []
        with self._trials_apart():
            self._measure(seconds, self._options.highest)  # the warm-up sample
            while not is_settled(samples):
                trial = self._measure(seconds, self._options.highest)
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
            try:
                self._method.search(lowest, highest, self.steady if is_requested else self._measure_up_to(highest))
            except _TooFastError as why:
                if (rates := rates + 1) == _MOST_RATES:
                    raise GivenUpError(str(why)) from why
                self._trials.clear()
                highest = rounded(_PACED_PART * min(highest, why.offered_fps))
                continue
            searches += 1
            if searches == _MOST_SEARCHES or not (self._is_refuted() or self._is_disturbed()):
                return highest
            self._refuted += self._trials
            self._trials.clear()

    def _measure_up_to(self, highest: float) -> Measure:
        """Return a function that measures loads; _TooFastError if the sources do not offer the load `highest`."""

        def measure(seconds: float, fps: float) -> Measured:
            trial = self.steady(seconds, fps)
            if trial.is_at(highest) and _is_too_fast(trial):
                trial = _nearer(trial, self.steady(seconds, fps))
                if _is_too_fast(trial) and 1 <= trial.offered_fps < highest:
                    raise _TooFastError(trial.offered_fps, trial.limited_by)
            return trial

        return measure

    def _is_refuted(self) -> bool:
        """Return True if trials contradict an upper bound, and new trials at that bound meet the goal."""
        for goal in self._method.goals:
            bounds = self._method.bounds(goal)
            if bounds.upper is not None and above_upper(self._trials, goal, self._method.width, bounds):
                again = [self.steady(self._trial_s, bounds.upper) for _ in range(TIMES_SUSTAINED)]
                if all(map(goal.is_met_by, again)):
                    return True
        return False

    def _is_disturbed(self) -> bool:
        """Return True if the tester was disturbed in all trials at an upper bound, but in few others."""
        if sum(bool(trial.inconclusive) for trial in self._trials) > _PASSING_PART * len(self._trials):
            return False
        uppers = (self._method.bounds(goal).upper for goal in self._method.goals)
        at_upper = [[trial for trial in self._trials if trial.is_at(upper)] for upper in uppers if upper is not None]
        return any(all(trial.inconclusive for trial in trials) for trials in at_upper)

    def _sustained(self, fps: float, seconds: float, part: float) -> Measured:
        """Return a trial at this rate, or at the highest lower rate that the sources sustain for so many seconds.

        Each miss reduces the rate to `part` of the offered rate. These trials are not part of the search. GivenUpError
        if the sources sustain none of several rates.
        """
        times = rates = 0
        with self._trials_apart():
            while times < TIMES_SUSTAINED:
                trial = self._repeated(seconds, fps)
                if _is_too_fast(trial):
                    trial = _nearer(trial, self._repeated(seconds, fps))
                if not trial.is_short:
                    times += 1
                elif (rates := rates + 1) < _MOST_RATES:
                    times, fps = 0, rounded(part * min(fps, trial.offered_fps))
                else:
                    raise GivenUpError(f"the sources sustain no rate for {seconds:g} s: {trial.limited_by}")
        return trial

    # What follows the search, at the `result` for the first goal.

    @contextmanager
    def _trials_apart(self) -> Iterator[None]:
        """Keep the trials of the block out of the search."""
        searched = list(self._trials)
        try:
            yield
        finally:
            self._trials = searched

    def _measure_delays(self, result: SearchResult, highest: float) -> None:
        """Measure delays at parts of the lower bound."""
        if result.lower_fps is None:
            return
        for share in self._options.delay_at:
            fps = share * result.lower_fps
            try:
                trial = self.steady(self._trial_s, fps)
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
        self._tests = BenchmarkingTests(self._options, self._plan.profile, throughput, self)
        self._tests.measure()

    def _measure_overload(self, result: SearchResult, highest: float) -> None:
        """Measure above the upper bound if the UUT set it, at a load that the sources sustain."""
        factor = self._options.overload
        if factor is None or result.upper_fps is None or not result.limited_by.is_uut:
            return
        overload = rounded(factor * result.upper_fps)
        try:
            trial = self._sustained(min(overload, highest), self._trial_s, _OVERLOAD_PART)
        except GivenUpError:
            return  # the result of the search remains valid
        if not (trial.limited_by or trial.failed):
            self._overload_fps = trial.throughput_fps
            self._sustained_fps = max(trial.load_fps, result.lower_fps or 0.0) if trial.load_fps < overload else None

    # Single trials.

    def steady(self, seconds: float, fps: float) -> Measured:
        """Return a trial at one load; inconclusive trials are repeated, and after several the tester is the limit.

        GivenUpError after several loads in a row at which the tester was the limit.
        """
        trial = self._repeated(seconds, fps)
        self._limited = self._limited | {trial.load_fps} if trial.limited_by else set()
        if len(self._limited) == _MOST_LIMITED:
            raise GivenUpError(f"the tester limits the search: {trial.limited_by}")
        return trial

    def burst(self, frames: int, fps: float) -> Measured:
        """Send exactly so many frames of each stream at one rate."""
        fps = rounded(fps)
        return self._measure(frames / fps, Load.of_fps(fps), benchmark=BACK_TO_BACK)

    def reduced(self, first: tuple[float, float], then: tuple[float, float]) -> Measured:
        """Send at one rate, in frames/s, for so many seconds, and immediately afterwards at another rate."""
        frames, seconds = round(first[0] * first[1]) + round(then[0] * then[1]), first[1] + then[1]
        return self._measure(seconds, Load.of_fps(rounded(frames / seconds)), first=first, benchmark=SYSTEM_RECOVERY)

    def restarted(self, seconds: float, fps: float, restart_at_s: float) -> Measured:
        """Send at a steady load and restart the UUT after so many seconds."""
        return self._measure(seconds, Load.of_fps(rounded(fps)), benchmark=RESET, restart_at_s=restart_at_s)

    def _repeated(self, seconds: float, fps: float) -> Measured:
        """Return a trial at one load, repeated while it is inconclusive; discarded attempts count as repetitions."""
        attempts = 0
        while True:
            trial = self._measure(seconds, Load.of_fps(rounded(fps)))
            attempts += trial.attempts
            if not trial.inconclusive or attempts >= _MOST_INCONCLUSIVE:
                return trial

    def _measure(
        self,
        seconds: float,
        load: Load,
        *,
        first: tuple[float, float] | None = None,
        benchmark: str = "",
        restart_at_s: float | None = None,
    ) -> Measured:
        """Return a trial from the results; _MissingTrialError with the trial to run if it is missing."""
        # Late sources may exceed the rate by no more than the goals tolerate.
        catch_up = max(self._method.width / 2, *(goal.loss_ratio or 0.0 for goal in self._method.goals))
        progress = self.progress
        while True:
            progress.times[str(load)] += 1
            spec = self._plan.trial(
                self._cell.uut,
                self._plan.profile.scenario(self._cell.scenario),
                self._cell.frame_size,
                load,
                progress.times[str(load)],
                index=progress.trials,
                sources=self._cell.sources,
                boot=progress.failures + 1,  # a failed UUT is started again, without a limit
                duration_s=seconds,
                first=first,
                benchmark=benchmark,
                restart_at_s=restart_at_s,
                catch_up=None if benchmark or load.kind is LoadKind.MAX else catch_up,
            )
            result = self._result_of(spec.key)
            if result is None:
                raise _MissingTrialError(spec)
            progress.trials += 1
            progress.failures += any(reason.kind is ReasonKind.UUT_FAILED for reason in result.reasons)
            why = unmeasured(result)
            if not why:
                self._unmeasured = 0
                self._trials.append(measurement_of(result, self._method.width, self._method.goals))
                return self._trials[-1]
            self._unmeasured += 1
            if self._unmeasured == _MOST_UNMEASURED:
                raise GivenUpError(why)

    # The result.

    def _result(self, goal: Goal, *, is_over: bool = False) -> SearchResult:
        """Return the result for a goal; `is_over`: the search is over, although trials after it may be missing."""
        bounds, width = self._method.bounds(goal), self._method.width
        at_lower = [trial for trial in self._trials if trial.is_at(bounds.lower)]
        at_upper = [trial for trial in self._trials if trial.is_at(bounds.upper)]
        conclusive = [trial for trial in at_lower if not trial.limited_by]
        lower = fmean(trial.offered_fps for trial in conclusive) if conclusive else None
        upper = None if bounds.upper is None else max(rounded(bounds.upper), lower or 0.0)
        # Among trials of several durations the longest ones decide, even if the tester was the limit in all of them.
        longest_s = max((trial.duration_s for trial in at_upper), default=0.0)
        valid = [goal.is_met_by(trial) for trial in at_upper if not trial.limited_by and trial.duration_s == longest_s]
        decisive = at_upper if at_upper or lower is not None else self._trials
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
            trials=len(self._trials) + len(self._refuted),
            seconds=sum(trial.duration_s for trial in (*self._refuted, *self._trials)),
            limited_by=limited_by,
            unstable=contradiction(self._trials, goal, width, bounds),
            why=self._why or (failure and f"at the upper bound: {failure}") or wide,
            delays=tuple(self._delays) if is_first else (),
            tests=self._tests.results if self._tests and is_first else None,
            overload_fps=self._overload_fps if is_first else None,
            held_fps=self._sustained_fps if is_first else None,
            each=_added_up(trial for trial in conclusive if not trial.failed),
        )

    def _missed_above(self, goal: Goal, lower: float) -> float | None:
        """Return the load up to which the UUT missed the goal above the lower bound in two or more trials, or None."""
        above = (trial for trial in self._trials if lower < trial.load_fps <= _FARTHEST * lower)
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


def _is_too_fast(trial: Measured) -> bool:
    """Return True if the sources did not offer the load although nothing disturbed them."""
    return trial.is_short and not trial.inconclusive


def _nearer(trial: Measured, other: Measured) -> Measured:
    """Return the one of two trials at one load whose sources offered more of it."""
    return max(trial, other, key=lambda attempt: (not attempt.limited_by, attempt.offered_fps))


def _added_up(trials: Iterable[Measured]) -> tuple[SearchedStream, ...]:
    """Return the sums of each stream over trials of the same streams."""
    by_stream = zip(*(trial.each for trial in trials), strict=True)
    return tuple(reduce(add, same) for same in by_stream)
