"""The schedule of a campaign of searches, one for each UUT, scenario, number of streams and frame size."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from netbench.errors import UsageError
from netbench.model.frame_mix import FrameMix, FrameSize
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import FEWEST_SAMPLES, SAMPLE_S, SourceCeiling
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import LoadKind
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.search.cell_search import TIMES_HELD, OneSearch, SearchCell
from netbench.search.contradictions import disagreement
from netbench.search.rfc2544_tests import deviations, expected_of_tests
from netbench.search.search_options import RESET, MaximaOptions, SearchOptions
from netbench.statistics.groups import grouped


class Search(Schedule):
    """Searches for the highest load with no loss or an accepted loss: MLRsearch, RFC 2544, TST 009 or a sweep.

    The searches run one after another, UUT by UUT, each as often as the profile has repetitions. To find the next
    trial, a search is computed again from its first trial with the stored results, until a result is missing. A search
    can therefore be resumed and keeps no state.
    """

    Options = SearchOptions
    wants_steady = True  # a change of source or sink at some load would be mistaken for a limit of the UUT
    MaximaOptions = MaximaOptions

    def __init__(self, wanted: CampaignPlan, options: SearchOptions) -> None:
        """UsageError if the lowest load is not well below the highest."""
        super().__init__(wanted, options)
        self._asked = options
        self._refuse_nothing_between()
        self._cells = tuple(_cells(wanted))
        self._told: dict[str, TrialResult] = {}
        self._found: dict[SearchCell, tuple[SearchResult, ...]] = {}
        self._trials_before: dict[SearchCell, int] = {}
        self._times: dict[SearchCell, Counter[str]] = {}
        self._failures: dict[SearchCell, int] = {}
        self._calibrated: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._by_trials: dict[tuple[str, int, FrameSize], SourceCeiling] = {}

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """Return the first missing trial of the first unfinished search; None if all are done."""
        before, times, failures = 0, Counter[str](), 0
        for place, cell in enumerate(self._cells):
            if place == 0 or not _same_trials(cell, self._cells[place - 1]):
                times = Counter()
            if self._is_over(cell):
                before, times, failures = self._trials_before[cell], Counter(self._times[cell]), self._failures[cell]
                continue
            ceiling = self._calibrated.get((cell.sources, cell.frame_size), self._by_trials.get(_of_ceiling(cell)))
            if ceiling is not None and not ceiling.uut and self.wanted.topology.uut(cell.uut).on != ceiling.on:
                ceiling = self._by_trials.get(_of_ceiling(cell))
            elsewhere = [
                known
                for (uut, sources, size), known in self._by_trials.items()
                if uut != cell.uut and (sources, size) == (cell.sources, cell.frame_size)
            ]
            search = OneSearch(
                self.wanted,
                self._asked,
                cell,
                lambda key: self._result(key, results),
                before,
                times,
                failures,
                ceiling,
                elsewhere,
            )
            following = search.follow()
            self._found[cell] = search.found()
            if following is None and search.ceiling is not None and search.ceiling.uut:
                self._by_trials[_of_ceiling(cell)] = search.ceiling
            if following is not None:
                return following
            before, times, failures = search.index, search.times, search.failures
            self._failures[cell] = failures
            self._trials_before[cell], self._times[cell] = before, Counter(times)
            self._told.clear()  # they are not read again
        return None

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The ceilings that its searches need; none unless the highest load is the rate of the sources."""
        if self._asked.highest.kind is not LoadKind.MAX:
            return ()
        return tuple(dict.fromkeys((cell.sources, cell.frame_size) for cell in self._cells))

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
        if not (self._asked.tests or self._asked.method == "rfc2544"):
            return ()
        return tuple(
            CampaignWarning(WarningKind.NOT_AS_RFC_2544, deviation)
            for deviation in deviations(self._asked, self.wanted.profile)
        )

    @property
    def searches(self) -> tuple[SearchResult, ...]:
        """The results of all searches that have begun, in order."""
        every = [result for results in self._found.values() for result in results]
        apart = {
            what: disagreement(same)
            for what, same in grouped(every, lambda result: _without_repetition(result.key)).items()
        }
        return tuple(
            replace(result, unstable=result.unstable or apart[_without_repetition(result.key)]) for result in every
        )

    def expected_s(self, done: Collection[str]) -> float:
        """Return an estimate of the time that the unfinished searches will take, in seconds.

        The number of trials depends on their results. It is estimated from the finished searches.
        """
        alike, boot = [], 1
        for cell, trials, trial_s in self._left(done):
            trial, resets = self._alike(cell, trial_s), min(self._resets(cell), trials)
            alike += [replace(trial, boot=boot)] * (trials - resets)
            # Trials after a reset are on another boot, with separate warm-up trials.
            alike += [replace(trial, boot=boot + number) for number in range(1, resets + 1)]
            boot += resets
        return self.wanted.costs.expected_s(alike)

    def expected_number(self, done: Collection[str]) -> int:
        """Return the number of finished trials plus the trials left, as in expected_s()."""
        return len(done) + sum(trials for _, trials, _ in self._left(done))

    def _left(self, done: Collection[str]) -> Iterator[tuple[SearchCell, int, float]]:
        """Yield each unfinished search, with the number of its remaining trials and the seconds of traffic in each."""
        in_progress = max(0, len(done) - max(self._trials_before.values(), default=0))
        for cell in self._cells:
            if not self._is_over(cell):
                trials, traffic_s = self._expected(cell)
                yield cell, max(1, trials - in_progress), traffic_s / trials
                in_progress = 0

    def _expected(self, cell: SearchCell) -> tuple[int, float]:
        """Return the expected number of trials of a search, and the seconds of traffic."""
        profile = self.wanted.profile
        trials, traffic_s = self._asked.method_of(profile.duration).expected()
        over = [self._found[searched][0] for searched in self._trials_before]
        if over:
            trials, traffic_s = round(fmean(result.trials for result in over)), fmean(result.seconds for result in over)
        more, more_s = expected_of_tests(
            self._asked,
            profile.duration,
            is_smallest=cell.is_smallest_of(self.wanted.profile),
            is_mix=isinstance(cell.frame_size, FrameMix),
        )
        afterwards = len(self._asked.delay_at) + (0 if self._asked.overload is None else TIMES_HELD)
        held_s = self._asked.held_s(profile.duration)
        calibration = self._calibration_trials(cell)
        trials += calibration + afterwards + more + (TIMES_HELD if held_s else 0)
        traffic_s += calibration * SAMPLE_S
        traffic_s += afterwards * profile.duration + more_s + TIMES_HELD * held_s
        return trials, traffic_s

    def _calibration_trials(self, cell: SearchCell) -> int:
        """Return the number of trials that calibrate the sources: in the first search of a UUT, if needed; else 0."""
        if self._asked.highest.kind is not LoadKind.MAX or (cell.sources, cell.frame_size) in self._calibrated:
            return 0
        first = next(candidate for candidate in self._cells if _of_ceiling(candidate) == _of_ceiling(cell))
        return 1 + FEWEST_SAMPLES if first == cell else 0

    def _resets(self, cell: SearchCell) -> int:
        return self._asked.reset.times if RESET in self._asked.tests and cell.is_smallest_of(self.wanted.profile) else 0

    def _alike(self, cell: SearchCell, seconds: float) -> TrialSpec:
        """Return a trial that represents all trials of a search in the estimate of time."""
        case = self.wanted.profile.scenario(cell.scenario)
        load = self._asked.highest
        return self.wanted.trial(
            cell.uut, case, cell.frame_size, load, 1, index=0, sources=cell.sources, duration_s=seconds
        )

    def _refuse_nothing_between(self) -> None:
        """Raise UsageError if the lowest load is more than half of the highest."""
        lowest, highest = self._asked.lowest, self._asked.highest
        link_bps = min(self.wanted.topology.stream_link(stream).rate for stream in self.wanted.topology.own_streams)
        for size in self.wanted.profile.frame_sizes if lowest else ():
            ends = [None if load is None else load.fps(size, link_bps) for load in (lowest, highest)]
            if None not in ends and (ends[0] or 0.0) * 2 > (ends[1] or 0.0):
                raise UsageError(
                    f"profile {self.wanted.profile.name}: schedule.lowest: {lowest} must be half of schedule.highest, "
                    f"{highest}, at most"
                )

    def _is_over(self, cell: SearchCell) -> bool:
        return cell in self._trials_before

    def _result(self, key: str, results: Mapping[str, TrialResult]) -> TrialResult | None:
        """Return a result, read only once: an unfinished search is computed again after each trial."""
        if key not in self._told:
            if key not in results:
                return None
            self._told[key] = results[key].without_counters
        return self._told[key]


def _cells(wanted: CampaignPlan) -> Iterator[SearchCell]:
    for uut in wanted.uuts:
        for case in wanted.scenarios:
            for sources in source_numbers(wanted.topology, wanted.profile, case):
                for size in wanted.profile.frame_sizes:
                    for repetition in range(1, wanted.profile.repetitions + 1):
                        yield SearchCell(uut, case.name, sources, size, repetition)


def _of_ceiling(cell: SearchCell) -> tuple[str, int, FrameSize]:
    """Return the key of a ceiling measured through a UUT: it also applies to other scenarios and repetitions."""
    return cell.uut, cell.sources, cell.frame_size


def _same_trials(one: SearchCell, other: SearchCell) -> bool:
    """Return True if the trials of two searches differ in their number only."""
    return replace(one, repetition=1) == replace(other, repetition=1)


def _without_repetition(key: str) -> str:
    """Return the part of the key that repeated searches share."""
    *where, _, goal = key.rsplit("/", 2)
    return "/".join((*where, goal))
