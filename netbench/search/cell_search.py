"""One search of a campaign, computed again from the stored results: the next missing trial and the present bounds."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import fmean

from netbench.model.frame_mix import FrameMix, FrameSize, rising
from netbench.model.profile import Profile
from netbench.model.search import (
    HIGHEST_REQUESTED_LOAD,
    LoadedDelay,
    Rfc2544Tests,
    SearchedStream,
    SearchResult,
    SearchState,
)
from netbench.model.source_ceiling import (
    FAR_BELOW,
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
from netbench.search.contradictions import above_upper, contradiction
from netbench.search.measurement import measurement_of, unmeasured
from netbench.search.methods import GivenUpError, Goal, Measure, Measured, Method, rounded
from netbench.search.rfc2544_tests import Throughput, measure_tests
from netbench.search.search_options import BACK_TO_BACK, RESET, SYSTEM_RECOVERY, SearchOptions

# A source can be paced only at less than its highest rate.
_PACED_PART = 0.98
# A rate is sustained if the sources held it twice in a row. The first rate, and the next one after each miss, is this
# part of the offered rate: sources need room to catch up after moments in which they were late.
_HELD_PART, TIMES_HELD, _MOST_TRIED = 0.8, 2, 8
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

    def is_smallest_of(self, profile: Profile) -> bool:
        """Return True if its frame size is the smallest of the profile."""
        return self.frame_size == min(profile.frame_sizes, key=rising)


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


class OneSearch:
    """One search, computed from its first trial on; call `follow` first, and only once."""

    def __init__(
        self,
        plan: CampaignPlan,
        options: SearchOptions,
        cell: SearchCell,
        result_of: Callable[[str], TrialResult | None],
        index: int,
        times: Counter[str],
        failures: int,
        ceiling: SourceCeiling | None = None,
        elsewhere: Sequence[SourceCeiling] = (),
    ) -> None:
        """`result_of` returns the result of a trial by its key; None if it is missing.

        Before this search there were `index` trials, `times` by load, and `failures` of the UUT. `ceiling` is the
        calibrated ceiling of the sources; None: trials through the UUT measure it. `elsewhere` are the ceilings of the
        same sources that were measured with other UUTs.
        """
        self._plan, self._options, self._cell, self._result_of = plan, options, cell, result_of
        self.index, self.times, self.failures = index, times, failures
        self._method: Method = options.method_of(plan.profile.duration)
        self._trials: list[Measured] = []
        self._delays: list[LoadedDelay] = []
        self._tests: Rfc2544Tests | None = None
        self._overload_fps: float | None = None
        self._held_fps: float | None = None
        self._unmeasured = 0
        self._limited: set[float] = set()  # successive loads at which the tester was the limit
        self._refuted: list[Measured] = []  # trials of a search that was repeated
        self.ceiling, self._elsewhere = ceiling, elsewhere
        self._why = ""
        self._highest: float | None = None
        self._is_done = False

    def follow(self) -> TrialSpec | None:
        """Return the missing trial; None if the search is over."""
        try:
            highest = self._search(self._highest_load())
            self._measure_delays()
            self._measure_tests(highest)
            self._measure_overload(highest)
        except _MissingTrialError as missing:
            return missing.spec
        except GivenUpError as why:
            self._why = str(why)
        self._is_done = True
        return None

    def found(self) -> tuple[SearchResult, ...]:
        """Return the present result for each goal."""
        return tuple(map(self._found_for, self._method.goals))

    @property
    def _catch_up(self) -> float:
        """The part by which late sources may exceed the rate: no more than the goals tolerate."""
        return max(self._method.width / 2, *(goal.loss_ratio or 0.0 for goal in self._method.goals))

    @property
    def _link_bps(self) -> float:
        topology = self._plan.topology
        return min(topology.stream_link(stream).rate for stream in topology.own_streams[: self._cell.sources])

    def _highest_load(self) -> float:
        """Return the highest load in frames/s of each stream: the requested one, or the rate of the paced sources."""
        options, trial_s = self._options, self._plan.profile.duration
        highest = options.highest
        fps = highest.fps(self._cell.frame_size, self._link_bps)
        if fps is not None:
            return fps
        if self.ceiling is None:
            self.ceiling = self._ceiling_by_trials()
        if not self.ceiling.is_known:
            faults = (sample.reason for sample in self.ceiling.samples if sample.reason)
            raise GivenUpError(next(faults, "the sources send nothing"))
        if held_s := options.held_s(trial_s):
            return self._held(rounded(self.ceiling.fps * _HELD_PART), held_s, _HELD_PART).load_fps
        return rounded(self.ceiling.paced_fps or self.ceiling.fps * _PACED_PART)

    def _ceiling_by_trials(self) -> SourceCeiling:
        """Return the highest rate of the sources, by trials through the UUT that are not part of the search."""
        seconds = max(SAMPLE_S, self._options.first_s(self._plan.profile.duration))
        samples: list[CeilingSample] = []
        self._measure(seconds, self._options.highest)  # the warm-up sample
        while not is_settled(samples):
            trial = self._measure(seconds, self._options.highest)
            fault = trial.source_fault or trial.failed
            samples.append(CeilingSample(trial.offered_fps, seconds, accepted=not fault, reason=fault))
        self._trials.clear()
        cell = self._cell
        others = [
            CeilingComparison(f"trials with UUT {ceiling.uut}", ceiling.fps)
            for ceiling in self._elsewhere
            if ceiling.is_known
        ]
        kind = self._plan.profile.generator.kind
        return ceiling_of(kind, cell.sources, cell.frame_size, samples, uut=cell.uut, compared_with=others)

    def _search(self, highest: float) -> float:
        """Search up to this load, or up to the rate of the sources if that is lower; return the highest load.

        If trials above an upper bound contradict it, the bound is measured again. If it then meets the goal, the search
        is repeated. It is also repeated if the tester was disturbed at an upper bound.
        """
        options, trial_s = self._options, self._plan.profile.duration
        tried = searches = 0
        while True:
            self._highest = highest
            lowest = options.lowest_of(highest, self._cell.frame_size, self._link_bps, trial_s)
            measure = self._measure_at if options.highest.kind is not LoadKind.MAX else self._measure_up_to(highest)
            try:
                self._method.search(lowest, highest, measure)
            except _TooFastError as why:
                if (tried := tried + 1) == _MOST_TRIED:
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
            trial = self._measure_at(seconds, fps)
            if trial.is_at(highest) and _is_too_fast(trial):
                again = self._measure_at(seconds, fps)
                trial = max(trial, again, key=lambda attempt: (not attempt.limited_by, attempt.offered_fps))
                if _is_too_fast(trial) and 1 <= trial.offered_fps < highest:
                    raise _TooFastError(trial.offered_fps, trial.limited_by)
            return trial

        return measure

    def _is_refuted(self) -> bool:
        """Return True if trials contradict an upper bound, and new trials at that bound meet the goal."""
        for goal in self._method.goals:
            bounds, width = self._method.bounds(goal), self._method.width
            if bounds.upper is None or not above_upper(self._trials, goal, width, bounds):
                continue
            again = [self._measure_at(self._plan.profile.duration, bounds.upper) for _ in range(TIMES_HELD)]
            if all(map(goal.is_met_by, again)):
                return True
        return False

    def _is_disturbed(self) -> bool:
        """Return True if the tester was disturbed in all trials at an upper bound, but in few others."""
        if sum(bool(trial.inconclusive) for trial in self._trials) > _PASSING_PART * len(self._trials):
            return False
        uppers = (self._method.bounds(goal).upper for goal in self._method.goals)
        return any(
            all(trial.inconclusive for trial in self._trials if trial.is_at(upper))
            for upper in uppers
            if upper is not None
        )

    def _held(self, fps: float, seconds: float, part: float) -> Measured:
        """Return a trial at this rate, or at the highest lower rate that the sources sustain for so many seconds.

        Each miss reduces the rate to `part` of the offered rate. These trials are not part of the search. GivenUpError
        if the sources sustain none of several rates.
        """
        times = tried = 0
        while times < TIMES_HELD:
            trial = self._repeated(seconds, fps)
            if _is_too_fast(trial):
                trial = max(
                    trial,
                    self._repeated(seconds, fps),
                    key=lambda attempt: (not attempt.limited_by, attempt.offered_fps),
                )
            self._trials.clear()
            if not trial.is_short:
                times += 1
            elif (tried := tried + 1) < _MOST_TRIED:
                times, fps = 0, rounded(part * min(fps, trial.offered_fps))
            else:
                raise GivenUpError(f"the sources hold no rate for {seconds:g} s: {trial.limited_by}")
        return trial

    def _measure_delays(self) -> None:
        """Measure delays at parts of the load found for the first goal; these trials are not part of the search."""
        limit_fps, searched = self._found_for(self._method.goals[0]).lower_fps, list(self._trials)
        for share in self._options.delay_at if limit_fps is not None else ():
            try:
                trial = self._measure_at(self._plan.profile.duration, share * (limit_fps or 0.0))
                refused = trial.failed or trial.limited_by or trial.delay_refused
                self._delays.append(LoadedDelay(share, trial.offered_fps, None if refused else trial.delay, refused))
            except GivenUpError as why:
                self._delays.append(LoadedDelay(share, share * (limit_fps or 0.0), None, str(why)))
                break
            finally:
                self._trials = list(searched)

    def _measure_tests(self, highest: float) -> None:
        """Run the other tests of RFC 2544 at the load of the first goal; these trials are not part of the search."""
        result = self._found_for(self._method.goals[0], is_done=True)
        if not self._options.tests or (result.lower_fps is None and result.state is not SearchState.AT_MOST):
            return

        def keep(tests: Rfc2544Tests) -> None:
            self._tests = tests

        searched = list(self._trials)
        try:
            line_rate = line_rate_fps(self._link_bps, self._cell.frame_size)
            is_smallest = self._cell.is_smallest_of(self._plan.profile)
            throughput = Throughput(
                result.lower_fps or 0.0,
                highest,
                line_rate,
                result.state,
                is_smallest,
                is_mix=isinstance(self._cell.frame_size, FrameMix),
                limited_by=result.limited_by,
            )
            measure_tests(self._options, self._plan.profile, throughput, self, keep)
        finally:
            self._trials = searched

    def steady(self, seconds: float, fps: float) -> Measured:
        """Return the measurement of a trial at one load, in frames/s."""
        return self._measure_at(seconds, fps)

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

    def _measure_overload(self, highest: float) -> None:
        """Measure above the upper bound of the first goal if the UUT set it, at a load that the sources sustain."""
        result, searched, times = (
            self._found_for(self._method.goals[0]),
            list(self._trials),
            self._options.overload,
        )
        if times is None or result.upper_fps is None or result.limited_by:
            return
        overload = rounded(times * result.upper_fps)
        try:
            trial = self._held(min(overload, highest), self._plan.profile.duration, _OVERLOAD_PART)
            if not (trial.limited_by or trial.failed):
                self._overload_fps = trial.throughput_fps
                self._held_fps = max(trial.load_fps, result.lower_fps or 0.0) if trial.load_fps < overload else None
        except GivenUpError:
            pass  # the result of the search remains valid
        finally:
            self._trials = searched

    def _measure_at(self, seconds: float, fps: float) -> Measured:
        """Return a trial at one load; inconclusive trials are repeated, and after several the tester is the limit.

        GivenUpError after several loads in a row at which the tester was the limit.
        """
        trial = self._repeated(seconds, fps)
        if trial.limited_by:
            self._limited.add(trial.load_fps)
        else:
            self._limited.clear()
        if len(self._limited) == _MOST_LIMITED:
            raise GivenUpError(f"the tester limits the search: {trial.limited_by}")
        return trial

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
        while True:
            self.times[str(load)] += 1
            spec = self._plan.trial(
                self._cell.uut,
                self._plan.profile.scenario(self._cell.scenario),
                self._cell.frame_size,
                load,
                self.times[str(load)],
                index=self.index,
                sources=self._cell.sources,
                boot=self.failures + 1,  # a failed UUT is started again, without a limit
                duration_s=seconds,
                first=first,
                benchmark=benchmark,
                restart_at_s=restart_at_s,
                catch_up=None if benchmark or load.kind is LoadKind.MAX else self._catch_up,
            )
            result = self._result_of(spec.key)
            if result is None:
                raise _MissingTrialError(spec)
            self.index += 1
            why = unmeasured(result)
            self.failures += any(reason.kind is ReasonKind.UUT_FAILED for reason in result.reasons)
            if not why:
                self._unmeasured = 0
                measured = measurement_of(result, self._method.width, self._method.goals)
                self._trials.append(measured)
                return measured
            self._unmeasured += 1
            if self._unmeasured == _MOST_UNMEASURED:
                raise GivenUpError(why)

    def _found_for(self, goal: Goal, *, is_done: bool = False) -> SearchResult:
        """Return the result for a goal; `is_done`: the search is over, although trials after it may be missing."""
        bounds, width = self._method.bounds(goal), self._method.width
        at_lower = [trial for trial in self._trials if bounds.lower is not None and trial.is_at(bounds.lower)]
        at_upper = [trial for trial in self._trials if bounds.upper is not None and trial.is_at(bounds.upper)]
        counted = [trial for trial in at_lower if not trial.limited_by]
        lower = fmean(trial.offered_fps for trial in counted) if counted else None
        upper = None if bounds.upper is None else max(rounded(bounds.upper), lower or 0.0)
        # Among trials of several durations the longest ones decide, even if the tester was the limit in all of them.
        longest_s = max((trial.duration_s for trial in at_upper), default=0.0)
        valid = [goal.is_met_by(trial) for trial in at_upper if not trial.limited_by and trial.duration_s == longest_s]
        limits = [
            trial.limited_by
            for trial in (at_upper if at_upper or lower is not None else self._trials)
            if trial.limited_by
        ]
        by_uut = self._method.is_upper(valid.count(False), valid.count(True))
        limited_by = limits[0] if limits and not by_uut else ""
        wide = ""
        if limited_by and lower is not None and (known := self._missed_above(goal, lower)) is not None:
            upper, limited_by, wide = known, "", f"the tester keeps the bounds apart: {limited_by}"
        fails = next((trial.failed for trial in at_upper if trial.failed), "")
        state = self._state(lower, upper, limited_by, is_done=is_done or self._is_done)
        if state is SearchState.AT_LEAST and not limited_by:
            limited_by = HIGHEST_REQUESTED_LOAD
            if self._options.highest.kind is LoadKind.MAX:
                limited_by = f"the source, which can be paced at {self._highest or 0:,.0f} frames/s"
                if doubt := self._doubt:
                    limited_by += f" (not reliable: {doubt})"
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
            why=self._why or (fails and f"at the upper bound: {fails}") or wide,
            delays=tuple(self._delays) if goal == self._method.goals[0] else (),
            tests=self._tests if goal == self._method.goals[0] else None,
            overload_fps=self._overload_fps if goal == self._method.goals[0] else None,
            held_fps=self._held_fps if goal == self._method.goals[0] else None,
            each=_added_up(trial for trial in at_lower if not (trial.limited_by or trial.failed)),
        )

    def _missed_above(self, goal: Goal, lower: float) -> float | None:
        """Return the load up to which the UUT missed the goal above the lower bound in two or more trials, or None."""
        missed: dict[float, list[bool]] = {}
        for trial in self._trials:
            if lower < trial.load_fps <= _FARTHEST * lower and not trial.limited_by:
                missed.setdefault(trial.load_fps, []).append(not goal.is_met_by(trial))
        times = 0
        for load, bad in sorted(missed.items()):
            if self._method.is_upper(sum(bad), len(bad) - sum(bad)):
                times += sum(bad)
            if times >= TIMES_HELD:
                return load
        return None

    @property
    def _doubt(self) -> str:
        """The reason why the highest load may be below the rate of the sources; empty if there is no such sign."""
        ceiling = self.ceiling
        if ceiling is None or ceiling.doubt:
            return "" if ceiling is None else ceiling.doubt
        if (self._highest or 0.0) < FAR_BELOW * (ceiling.paced_fps or ceiling.fps * _PACED_PART):
            return f"without a rate to keep it offers {ceiling.fps:,.0f} frames/s"
        return ""

    def _state(self, lower: float | None, upper: float | None, limited_by: str, *, is_done: bool) -> SearchState:
        if not is_done:
            return SearchState.SEARCHING
        if self._why or (lower is None and (upper is None or limited_by)):
            return SearchState.FAILED
        if lower is None:
            return SearchState.AT_MOST
        return SearchState.AT_LEAST if upper is None or limited_by else SearchState.FOUND


def _is_too_fast(trial: Measured) -> bool:
    """Return True if the sources did not offer the load although nothing disturbed them."""
    return trial.is_short and not trial.inconclusive


def _added_up(trials: Iterable[Measured]) -> tuple[SearchedStream, ...]:
    """Return the sums of each stream over trials of the same streams."""
    by_stream = zip(*(trial.each for trial in trials), strict=True)
    return tuple(reduce(add, same) for same in by_stream)
