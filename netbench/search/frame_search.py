"""The search for the highest rate of frames: its highest load is the paced rate of the sources, which is calibrated."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.search import LoadedDelay, SearchResult, SearchState
from netbench.model.source_ceiling import (
    FAR_BELOW_SOURCE_RATE,
    SAMPLE_S,
    CeilingComparison,
    CeilingSample,
    SourceCeiling,
    ceiling_of,
    is_settled,
)
from netbench.model.trial import TrialResult
from netbench.model.units import LoadKind, line_rate_fps
from netbench.plan.schedule import CampaignPlan
from netbench.search.cell_search import CellSearch, TooHighError
from netbench.search.measurement import measurement_of, unmeasured
from netbench.search.methods import GivenUpError, Goal, Measure, Measured, rounded
from netbench.search.rfc2544_tests import BenchmarkingTests, Throughput
from netbench.search.search_options import SearchOptions
from netbench.search.search_trials import MOST_RATES, Progress, SearchCell, SearchTrials, is_too_fast, nearer

# A source can be paced only at less than its highest rate.
_PACED_PART = 0.98
# The first rate that sources should sustain, and the next one after each miss, is this part of the offered rate:
# sources need room to catch up after moments in which they were late.
_SUSTAINED_PART = 0.8
# The same part for overload, which should be as high as possible.
_OVERLOAD_PART = 0.95


class FrameSearch(CellSearch):
    """The search for one frame size, in frames/s of each stream.

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
        assert isinstance(cell.traffic, FrameSize), "a workload has another kind of search"
        method = options.method_of(plan.profile.duration)

        def read(result: TrialResult) -> Measured | str:
            return unmeasured(result) or measurement_of(result, method.width, method.goals)

        trials = SearchTrials(plan, method, cell, result_of, progress, read)
        super().__init__(plan, cell, method, trials, method_name=options.method)
        self.ceiling = ceiling
        self._options, self._frame_size, self._elsewhere = options, cell.traffic, elsewhere
        links = (plan.topology.stream_link(stream) for stream in plan.topology.own_streams[: cell.sources])
        self._link_bps = min(link.rate for link in links)
        self._lowered = 0  # times that the sources did not offer the highest load
        self._delays: list[LoadedDelay] = []
        self._tests: BenchmarkingTests | None = None
        self._overload_fps: float | None = None
        self._sustained_fps: float | None = None

    def _highest_load(self) -> float:
        """Return the requested load in frames/s of each stream, or the rate of the paced sources."""
        fps = self._options.highest.fps(self._frame_size, self._link_bps)
        if fps is not None:
            return fps
        if self.ceiling is None:
            self.ceiling = self._ceiling_by_trials()
        if not self.ceiling.is_known:
            faults = (sample.reason for sample in self.ceiling.samples if sample.reason)
            raise GivenUpError(next(faults, "the sources send nothing"))
        if seconds := self._options.sustained_s(self._trial_s):
            first = rounded(self.ceiling.fps * _SUSTAINED_PART)
            return self._trials.sustained(first, seconds, _SUSTAINED_PART).load
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
                samples.append(CeilingSample(trial.offered_load, seconds, accepted=not fault, reason=fault))
        cell, known = self._cell, [ceiling for ceiling in self._elsewhere if ceiling.is_known]
        others = [CeilingComparison(f"trials with UUT {ceiling.uut}", ceiling.fps) for ceiling in known]
        kind = self._plan.profile.generator.kind
        return ceiling_of(kind, cell.sources, self._frame_size, samples, uut=cell.uut, compared_with=others)

    def _lowest_load(self, highest: float) -> float:
        return self._options.lowest_of(highest, self._frame_size, self._link_bps, self._trial_s)

    def _measure_up_to(self, highest: float) -> Measure:
        """Return a function that measures loads; TooHighError if the sources do not offer the load `highest`."""
        if self._options.highest.kind is not LoadKind.MAX:
            return self._trials.steady

        def measure(seconds: float, fps: float) -> Measured:
            trial = self._trials.steady(seconds, fps)
            if trial.is_at(highest) and is_too_fast(trial):
                trial = nearer(trial, self._trials.steady(seconds, fps))
                if is_too_fast(trial) and 1 <= trial.offered_load < highest:
                    self._lowered += 1
                    if self._lowered == MOST_RATES:
                        raise GivenUpError(trial.limited_by)
                    raise TooHighError(rounded(_PACED_PART * min(highest, trial.offered_load)))
            return trial

        return measure

    def _limit_at_highest(self) -> LimitCause:
        """Return the limit of the sources, and the sign that they can do more, if any."""
        if self._options.highest.kind is not LoadKind.MAX:
            return LimitCause(LimitKind.REQUESTED_LOAD)
        highest, ceiling = self._highest or 0.0, self.ceiling
        doubt = ceiling.doubt if ceiling else ""
        if ceiling and not doubt and highest < FAR_BELOW_SOURCE_RATE * (ceiling.paced_fps or ceiling.fps * _PACED_PART):
            doubt = f"without a rate to keep it offers {ceiling.fps:,.0f} frames/s"
        return LimitCause(LimitKind.SOURCE, paced_fps=highest, doubt=doubt)

    # What follows the search, at the `result` for the first goal.

    def _measure_afterwards(self, result: SearchResult, highest: float) -> None:
        """Measure delays, the other tests of RFC 2544, and overload."""
        for measure in (self._measure_delays, self._measure_tests, self._measure_overload):
            with self._trials.apart():
                measure(result, highest)

    def _measure_delays(self, result: SearchResult, highest: float) -> None:
        """Measure delays at parts of the lower bound."""
        if result.lower is None:
            return
        for share in self._options.delay_at:
            fps = share * result.lower
            try:
                trial = self._trials.steady(self._trial_s, fps)
            except GivenUpError as why:
                self._delays.append(LoadedDelay(share, fps, None, str(why)))
                break
            refused = trial.failed or trial.limited_by or trial.delay_refused
            self._delays.append(LoadedDelay(share, trial.offered_load, None if refused else trial.delay, refused))

    def _measure_tests(self, result: SearchResult, highest: float) -> None:
        """Run the other tests of RFC 2544 at the lower bound."""
        if not self._options.tests or (result.lower is None and result.state is not SearchState.AT_MOST):
            return
        state, limit = result.state, result.limited_by.stored
        line_rate = line_rate_fps(self._link_bps, self._frame_size.mean_bytes)
        throughput = Throughput(result.lower or 0.0, highest, line_rate, state, self._frame_size, limit)
        self._tests = BenchmarkingTests(self._options, self._plan.profile, throughput, self._trials)
        self._tests.measure()

    def _measure_overload(self, result: SearchResult, highest: float) -> None:
        """Measure above the upper bound if the UUT set it, at a load that the sources sustain."""
        factor = self._options.overload
        if factor is None or result.upper is None or not result.limited_by.is_uut:
            return
        overload = rounded(factor * result.upper)
        try:
            trial = self._trials.sustained(min(overload, highest), self._trial_s, _OVERLOAD_PART)
        except GivenUpError:
            return  # the result of the search remains valid
        if not (trial.limited_by or trial.failed):
            self._overload_fps = trial.throughput_fps
            self._sustained_fps = max(trial.load, result.lower or 0.0) if trial.load < overload else None

    def _result(self, goal: Goal, *, is_over: bool = False) -> SearchResult:
        """Return the result for a goal, of the first one with the measurements after the search."""
        result = super()._result(goal, is_over=is_over)
        if goal != self._method.goals[0]:
            return result
        return replace(
            result,
            delays=tuple(self._delays),
            tests=self._tests.results if self._tests else None,
            overload_fps=self._overload_fps,
            held_fps=self._sustained_fps,
        )
