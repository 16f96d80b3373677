"""The schedules of campaigns of searches, one search for each UUT, scenario, number of streams and kind of traffic."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import FEWEST_SAMPLES, SAMPLE_S, SourceCeiling
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.search.cell_search import CellSearch
from netbench.search.contradictions import disagreement
from netbench.search.frame_search import FrameSearch
from netbench.search.rfc2544_tests import deviations, expected_of_tests, is_smallest
from netbench.search.search_options import RESET, MaximaOptions, SearchOptions
from netbench.search.search_trials import TIMES_SUSTAINED, Progress, SearchCell
from netbench.statistics.groups import grouped


class SearchSchedule(Schedule):
    """A schedule of searches, which run one after another, UUT by UUT, each as often as the profile has repetitions.

    To find the next trial, a search is computed again from its first trial with the stored results, until a result is
    missing. A search can therefore be resumed and keeps no state. `highest` is the requested highest load.
    """

    def __init__(self, plan: CampaignPlan, options: BaseModel, highest: Load) -> None:
        super().__init__(plan, options)
        self._highest = highest
        self._cells = tuple(
            SearchCell(uut, case.name, sources, traffic, repetition)
            for uut in plan.uuts
            for case in plan.scenarios
            for sources in source_numbers(plan.topology, plan.profile, case)
            for traffic in plan.profile.kinds_of_traffic
            for repetition in range(1, plan.profile.repetitions + 1)
            if plan.carries(uut, traffic)
        )
        self._results: dict[str, TrialResult] = {}  # of the unfinished search, which is computed after each trial
        self._searches: dict[SearchCell, tuple[SearchResult, ...]] = {}
        self._finished: dict[SearchCell, Progress] = {}  # the progress after each finished search

    @abstractmethod
    def _search_of(
        self, cell: SearchCell, result_of: Callable[[str], TrialResult | None], progress: Progress
    ) -> CellSearch:
        """Return the search of a cell, computed from its first trial on."""

    @abstractmethod
    def _expected(self, cell: SearchCell) -> tuple[int, float]:
        """Return the expected number of trials of a search, and the seconds of traffic."""

    def _has_ended(self, cell: SearchCell, search: CellSearch) -> None:
        """Keep the results of an ended search that later searches need; usually none."""
        return

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """Return the first missing trial of the first unfinished search; None if all are done."""

        def result_of(key: str) -> TrialResult | None:
            if key not in self._results and key in results:
                self._results[key] = results[key].without_counters
            return self._results.get(key)

        progress = Progress()
        for cell in self._cells:
            if cell in self._finished:
                progress = self._finished[cell]
                continue
            # Only the trials of repeated searches differ in their number alone.
            times = Counter[str]() if cell.repetition == 1 else Counter(progress.times)
            progress = Progress(progress.trials, times, progress.failures)
            search = self._search_of(cell, result_of, progress)
            following = search.follow()
            self._searches[cell] = search.results()
            if following is not None:
                return following
            self._has_ended(cell, search)
            self._finished[cell] = progress
            self._results.clear()
        return None

    @property
    def searches(self) -> tuple[SearchResult, ...]:
        """The results of all searches that have begun, in order."""

        def repeated(result: SearchResult) -> str:
            return replace(result, repetition=0).key

        results = [result for of_cell in self._searches.values() for result in of_cell]
        unstable = {key: disagreement(same) for key, same in grouped(results, repeated).items()}
        return tuple(replace(result, unstable=result.unstable or unstable[repeated(result)]) for result in results)

    def expected_s(self, done: Collection[str]) -> float:
        """Return an estimate of the time that the unfinished searches will take, in seconds.

        The number of trials depends on their results. It is estimated from the finished searches.
        """
        trials, boot = [], 1
        for cell, number, trial_s in self._left(done):
            trial = self.plan.trial(
                cell.uut,
                self.plan.profile.scenario(cell.scenario),
                cell.traffic,
                self._highest,
                1,
                index=0,
                sources=cell.sources,
                duration_s=trial_s,
            )
            resets = min(self._restarts(cell), number)
            trials += [replace(trial, boot=boot)] * (number - resets)
            # Trials after a reset are on another boot, with separate warm-up trials.
            trials += [replace(trial, boot=boot + reset) for reset in range(1, resets + 1)]
            boot += resets
        return self.plan.costs.expected_s(trials)

    def _restarts(self, cell: SearchCell) -> int:
        """Return the number of trials of a search in which the UUT restarts."""
        return 0

    def expected_number(self, done: Collection[str]) -> int:
        """Return the number of finished trials plus the trials left, as in expected_s()."""
        return len(done) + sum(trials for _, trials, _ in self._left(done))

    def _left(self, done: Collection[str]) -> Iterator[tuple[SearchCell, int, float]]:
        """Yield each unfinished search, with the number of its remaining trials and the seconds of traffic in each."""
        finished = max((progress.trials for progress in self._finished.values()), default=0)
        in_progress = max(0, len(done) - finished)
        for cell in self._cells:
            if cell not in self._finished:
                trials, traffic_s = self._expected(cell)
                yield cell, max(1, trials - in_progress), traffic_s / trials
                in_progress = 0

    def _of_finished(self, trials: int, traffic_s: float) -> tuple[int, float]:
        """Return the mean trials and seconds of traffic of the finished searches; these values without any."""
        if finished := [self._searches[cell][0] for cell in self._finished]:
            return round(fmean(result.trials for result in finished)), fmean(result.seconds for result in finished)
        return trials, traffic_s


class Search(SearchSchedule):
    """Searches for the highest load with no loss or an accepted loss: MLRsearch, RFC 2544, TST 009 or a sweep."""

    Options = SearchOptions
    wants_steady = True  # a change of source or sink at some load would be mistaken for a limit of the UUT
    MaximaOptions = MaximaOptions

    def __init__(self, plan: CampaignPlan, options: SearchOptions) -> None:
        """UsageError if the lowest load is not well below the highest."""
        super().__init__(plan, options, options.highest)
        self._options = options
        self._refuse_narrow_range()
        self._calibrated: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._by_trials: dict[tuple[str, int, FrameSize], SourceCeiling] = {}

    def _search_of(
        self, cell: SearchCell, result_of: Callable[[str], TrialResult | None], progress: Progress
    ) -> FrameSearch:
        elsewhere = [
            ceiling
            for (uut, *of_sources), ceiling in self._by_trials.items()
            if uut != cell.uut and tuple(of_sources) == _sources_of(cell)
        ]
        ceiling = self._ceiling(cell)
        return FrameSearch(self.plan, self._options, cell, result_of, progress, ceiling, elsewhere)

    def _has_ended(self, cell: SearchCell, search: CellSearch) -> None:
        if isinstance(search, FrameSearch) and search.ceiling is not None and search.ceiling.uut:
            self._by_trials[_ceiling_key(cell)] = search.ceiling

    def _ceiling(self, cell: SearchCell) -> SourceCeiling | None:
        """Return the ceiling of the sources of a search; None if it is still unknown."""
        calibrated = self._calibrated.get(_sources_of(cell))
        if calibrated is not None and (calibrated.uut or self.plan.topology.uut(cell.uut).on == calibrated.on):
            return calibrated
        return self._by_trials.get(_ceiling_key(cell))

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The ceilings that its searches need; none unless the highest load is the rate of the sources."""
        if self._options.highest.kind is not LoadKind.MAX:
            return ()
        return tuple(dict.fromkeys(map(_sources_of, self._cells)))

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Use the known ceilings instead of trials through each UUT."""
        self._calibrated = {(ceiling.sources, ceiling.frame_size): ceiling for ceiling in ceilings if ceiling.is_known}

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """The ceilings that finished searches measured in trials through their UUTs."""
        return tuple(self._by_trials.values())

    @property
    def remarks(self) -> tuple[CampaignWarning, ...]:
        """The deviations from RFC 2544, if the profile requests its method or its tests."""
        if not (self._options.tests or self._options.method == "rfc2544"):
            return ()
        texts = deviations(self._options, self.plan.profile)
        return tuple(CampaignWarning(WarningKind.NOT_AS_RFC_2544, text) for text in texts)

    def _restarts(self, cell: SearchCell) -> int:
        _, size = _sources_of(cell)
        has_resets = RESET in self._options.tests and is_smallest(size, self.plan.profile)
        return self._options.reset.times if has_resets else 0

    def _expected(self, cell: SearchCell) -> tuple[int, float]:
        """Return the expected number of trials of a search, and the seconds of traffic."""
        profile, options = self.plan.profile, self._options
        trials, traffic_s = self._of_finished(*options.method_of(profile.duration).expected())
        _, size = _sources_of(cell)
        tests, tests_s = expected_of_tests(options, profile, size)
        sustained_s, calibration = options.sustained_s(profile.duration), self._calibration_trials(cell)
        afterwards = len(options.delay_at) + (0 if options.overload is None else TIMES_SUSTAINED)
        trials += calibration + afterwards + tests + (TIMES_SUSTAINED if sustained_s else 0)
        traffic_s += calibration * SAMPLE_S + afterwards * profile.duration + tests_s + TIMES_SUSTAINED * sustained_s
        return trials, traffic_s

    def _calibration_trials(self, cell: SearchCell) -> int:
        """Return the number of trials that calibrate the sources: in the first search of a UUT, if needed; else 0."""
        if self._options.highest.kind is not LoadKind.MAX or _sources_of(cell) in self._calibrated:
            return 0
        first = next(other for other in self._cells if _ceiling_key(other) == _ceiling_key(cell))
        return 1 + FEWEST_SAMPLES if first == cell else 0

    def _refuse_narrow_range(self) -> None:
        """Raise UsageError if the lowest load is more than half of the highest."""
        profile, topology = self.plan.profile, self.plan.topology
        lowest, highest = self._options.lowest, self._options.highest
        link_bps = min(topology.stream_link(stream).rate for stream in topology.own_streams)
        for size in profile.all_frame_sizes if lowest else ():
            lowest_fps = None if lowest is None else lowest.fps(size, link_bps)
            highest_fps = highest.fps(size, link_bps)
            if lowest_fps is not None and highest_fps is not None and lowest_fps * 2 > highest_fps:
                raise UsageError(
                    f"profile {profile.name}: schedule.lowest: {lowest} is more than half of schedule.highest "
                    f"({highest})"
                )


def _sources_of(cell: SearchCell) -> tuple[int, FrameSize]:
    """Return the key of a ceiling measured without a UUT."""
    assert isinstance(cell.traffic, FrameSize), "a search for a rate of frames"
    return cell.sources, cell.traffic


def _ceiling_key(cell: SearchCell) -> tuple[str, int, FrameSize]:
    """Return the key of a ceiling measured through a UUT: it also applies to other scenarios and repetitions."""
    return cell.uut, *_sources_of(cell)
