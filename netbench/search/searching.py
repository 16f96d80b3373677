"""A campaign that searches: for each UUT, scenario, number of streams and frame size, trial after trial."""

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
from netbench.model.verdict import Warning, WarningKind
from netbench.plan.choice import source_numbers
from netbench.plan.schedule import Schedule, Wanted
from netbench.search.contradictions import disagreement
from netbench.search.further_tests import deviations, expected_of_tests
from netbench.search.one_search import TIMES_HELD, Cell, OneSearch
from netbench.search.options import RESET, MaximaOptions, SearchOptions
from netbench.statistics.groups import grouped


class Search(Schedule):
    """Looks for the highest load that loses nothing, or as little as is allowed: MLRsearch, RFC 2544, TST 009, a sweep.

    One search comes after the other, UUT by UUT, each as many times as the profile has repetitions. A search is made
    again from its first trial whenever it is asked what follows, with the results that are there: it ends where one is
    missing. So it can be resumed, and no state of it is kept.
    """

    Options = SearchOptions
    wants_steady = True  # what changes with them at some load would be taken for a limit of the UUT
    MaximaOptions = MaximaOptions

    def __init__(self, wanted: Wanted, options: SearchOptions) -> None:
        """UsageError where the lowest load is no lower one."""
        super().__init__(wanted, options)
        self._asked = options
        self._refuse_nothing_between()
        self._cells = tuple(_cells(wanted))
        self._told: dict[str, TrialResult] = {}
        self._found: dict[Cell, tuple[SearchResult, ...]] = {}
        self._trials_before: dict[Cell, int] = {}
        self._times: dict[Cell, Counter[str]] = {}
        self._failures: dict[Cell, int] = {}
        self._calibrated: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._by_trials: dict[tuple[str, int, FrameSize], SourceCeiling] = {}

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | None:
        """The first trial that the first unfinished search lacks."""
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
                one
                for (uut, sources, size), one in self._by_trials.items()
                if uut != cell.uut and (sources, size) == (cell.sources, cell.frame_size)
            ]
            one = OneSearch(
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
            following = one.follow()
            self._found[cell] = one.found()
            if following is None and one.ceiling is not None and one.ceiling.uut:
                self._by_trials[_of_ceiling(cell)] = one.ceiling
            if following is not None:
                return following
            before, times, failures = one.index, one.times, one.failures
            self._failures[cell] = failures
            self._trials_before[cell], self._times[cell] = before, Counter(times)
            self._told.clear()  # nobody asks for them again
        return None

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """Those of all its searches, where the highest load is what the sources can offer."""
        if self._asked.highest.kind is not LoadKind.MAX:
            return ()
        return tuple(dict.fromkeys((cell.sources, cell.frame_size) for cell in self._cells))

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Those that are known stand for trials through each UUT."""
        self._calibrated = {(one.sources, one.frame_size): one for one in ceilings if one.is_known}

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """Those of searches that are over, found by trials through their UUTs."""
        return tuple(self._by_trials.values())

    @property
    def remarks(self) -> tuple[Warning, ...]:
        """In what it does otherwise than RFC 2544 says, where that was asked for."""
        if not (self._asked.tests or self._asked.method == "rfc2544"):
            return ()
        return tuple(Warning(WarningKind.NOT_AS_RFC_2544, one) for one in deviations(self._asked, self.wanted.profile))

    @property
    def searches(self) -> tuple[SearchResult, ...]:
        """All that were begun, in order."""
        every = [one for found in self._found.values() for one in found]
        apart = {
            what: disagreement(same) for what, same in grouped(every, lambda one: _without_repetition(one.key)).items()
        }
        return tuple(replace(one, unstable=one.unstable or apart[_without_repetition(one.key)]) for one in every)

    def expected_s(self, done: Collection[str]) -> float:
        """How long the searches that are not over should take, in seconds, about: what they find decides.

        Those that are over say how many trials one takes here.
        """
        alike, boot = [], 1
        for cell, trials, trial_s in self._left(done):
            one, resets = self._alike(cell, trial_s), min(self._resets(cell), trials)
            alike += [replace(one, boot=boot)] * (trials - resets)
            # What follows a reset is measured on another boot, with warm-up trials of its own.
            alike += [replace(one, boot=boot + number) for number in range(1, resets + 1)]
            boot += resets
        return self.wanted.costs.expected_s(alike)

    def expected_number(self, done: Collection[str]) -> int:
        """Trials done, and those that are left by expected_s()."""
        return len(done) + sum(trials for _, trials, _ in self._left(done))

    def _left(self, done: Collection[str]) -> Iterator[tuple[Cell, int, float]]:
        """Each search that is not over, with the number of its trials to come, and the seconds of traffic in each."""
        in_progress = max(0, len(done) - max(self._trials_before.values(), default=0))
        for cell in self._cells:
            if not self._is_over(cell):
                trials, traffic_s = self._expected(cell)
                yield cell, max(1, trials - in_progress), traffic_s / trials
                in_progress = 0

    def _expected(self, cell: Cell) -> tuple[int, float]:
        """How many trials a search is, and how many seconds of traffic."""
        profile = self.wanted.profile
        trials, traffic_s = self._asked.method_of(profile.duration).expected()
        over = [self._found[one][0] for one in self._trials_before]
        if over:
            trials, traffic_s = round(fmean(one.trials for one in over)), fmean(one.seconds for one in over)
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

    def _calibration_trials(self, cell: Cell) -> int:
        """How many trials calibrate the sources: those of the first search of a UUT, if any are needed."""
        if self._asked.highest.kind is not LoadKind.MAX or (cell.sources, cell.frame_size) in self._calibrated:
            return 0
        first = next(one for one in self._cells if _of_ceiling(one) == _of_ceiling(cell))
        return 1 + FEWEST_SAMPLES if first == cell else 0

    def _resets(self, cell: Cell) -> int:
        return self._asked.reset.times if RESET in self._asked.tests and cell.is_smallest_of(self.wanted.profile) else 0

    def _alike(self, cell: Cell, seconds: float) -> TrialSpec:
        """A trial that stands for all of a search, by how long it takes."""
        case = self.wanted.profile.scenario(cell.scenario)
        load = self._asked.highest
        return self.wanted.trial(
            cell.uut, case, cell.frame_size, load, 1, index=0, sources=cell.sources, duration_s=seconds
        )

    def _refuse_nothing_between(self) -> None:
        """UsageError where the loads that may be tried are none."""
        lowest, highest = self._asked.lowest, self._asked.highest
        link_bps = min(self.wanted.topology.stream_link(one).rate for one in self.wanted.topology.own_streams)
        for size in self.wanted.profile.frame_sizes if lowest else ():
            ends = [None if load is None else load.fps(size, link_bps) for load in (lowest, highest)]
            if None not in ends and (ends[0] or 0.0) * 2 > (ends[1] or 0.0):
                raise UsageError(
                    f"profile {self.wanted.profile.name}: schedule.lowest: {lowest} must be half of schedule.highest, "
                    f"{highest}, at most"
                )

    def _is_over(self, cell: Cell) -> bool:
        return cell in self._trials_before

    def _result(self, key: str, results: Mapping[str, TrialResult]) -> TrialResult | None:
        """A result, read once: a search that goes on is made again after each trial."""
        if key not in self._told:
            if key not in results:
                return None
            self._told[key] = results[key].without_counters
        return self._told[key]


def _cells(wanted: Wanted) -> Iterator[Cell]:
    for uut in wanted.uuts:
        for case in wanted.scenarios:
            for sources in source_numbers(wanted.topology, wanted.profile, case):
                for size in wanted.profile.frame_sizes:
                    for repetition in range(1, wanted.profile.repetitions + 1):
                        yield Cell(uut, case.name, sources, size, repetition)


def _of_ceiling(cell: Cell) -> tuple[str, int, FrameSize]:
    """What a ceiling that was found through a UUT is good for: other scenarios and repetitions, too."""
    return cell.uut, cell.sources, cell.frame_size


def _same_trials(one: Cell, other: Cell) -> bool:
    """Whether their trials are told apart by their number alone."""
    return replace(one, repetition=1) == replace(other, repetition=1)


def _without_repetition(key: str) -> str:
    """What repeated searches have in common."""
    *where, _, goal = key.rsplit("/", 2)
    return "/".join((*where, goal))
