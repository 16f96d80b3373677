"""Schedules around another one: loads that are shares of a maximum, searched beforehand or replayed from a campaign."""

import time
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep
from netbench.model.frame_size import FrameSize
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.trial import TrialResult, TrialSpec, key_finds_maximum
from netbench.model.units import Load
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind
from netbench.model.workload import traffic_text
from netbench.plan.schedule import Schedule

_LISTED = 3  # missing rates in an error
_TRAFFIC_IN_KEY = 3  # the part of a trial's key


class _AroundSchedule(Schedule):
    """A schedule that adds to or modifies the trials of another schedule, and delegates everything else to it."""

    def __init__(self, main: Schedule) -> None:
        super().__init__(main.plan, main.options)
        self._main = main

    @property
    def planned(self) -> Sequence[TrialSpec]:
        return self._main.planned

    @property
    def tried_loads(self) -> Sequence[Load]:
        return self._main.tried_loads

    @property
    def response_limit_s(self) -> float | None:
        return self._main.response_limit_s

    @property
    def objective(self) -> str:
        return self._main.objective

    @property
    def announced(self) -> Sequence[str]:
        return self._main.announced

    @property
    def ended_sweeps(self) -> Sequence[EndedSweep]:
        return self._main.ended_sweeps

    @property
    def remarks(self) -> Sequence[CampaignWarning]:
        return self._main.remarks

    @property
    def searches(self) -> Sequence[SearchResult]:
        return self._main.searches

    def expected_s(self, done: Collection[str]) -> float | None:
        return self._main.expected_s(done)


class ReplayedSchedule(_AroundSchedule):
    """The trials of `main` with the loads of an earlier campaign; UsageError if it has no rate for a load."""

    def __init__(self, main: Schedule, loads: ReplayedLoads) -> None:
        super().__init__(main)
        self._loads = loads
        missing: dict[str, None] = {}
        planned = []
        for trial in main.planned:
            try:
                planned.append(loads.resolved(trial))
            except KeyError as error:
                missing[str(error.args[0])] = None
        if missing:
            more = f", and {len(missing) - _LISTED:,} more" if len(missing) > _LISTED else ""
            raise UsageError(
                f"--loads-from {loads.directory}: it has no rate for {'; '.join(list(missing)[:_LISTED])}{more}; "
                "measure the same UUTs and scenarios (--uut, --scenario, --set), or leave out --loads-from"
            )
        self._planned = tuple(planned)

    @property
    def trials(self) -> Sequence[TrialSpec] | None:
        """The trials of the main schedule, with rates; None if they depend on results."""
        return None if self._main.trials is None else self._planned

    @property
    def planned(self) -> Sequence[TrialSpec]:
        """The planned trials of the main schedule, with rates."""
        return self._planned

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial of the main schedule, with rates; UsageError if its rate is missing."""
        following = self._main.next(results)
        if not isinstance(following, TrialSpec):
            return following
        try:
            return self._loads.resolved(following)
        except KeyError as error:
            raise UsageError(f"--loads-from {self._loads.directory}: it has no rate for {error.args[0]}") from error


class NoMaximumError(Exception):
    """There is no maximum; the message is the reason."""


class AfterCalibration(_AroundSchedule):
    """The schedule `calibration`, which searches for maxima, and then `main`, whose shares of them become rates.

    Each of the two receives only its own results, numbered from 0.
    """

    def __init__(self, calibration: Schedule, main: Schedule) -> None:
        super().__init__(main)
        self._calibration = calibration
        self._found: tuple[SearchResult, ...] | None = None  # None until all searches have finished
        self._trials_before = self._boots_before = 0
        self._traffic = frozenset(map(str, calibration.plan.profile.kinds_of_traffic))

    @abstractmethod
    def _with_rates(self, trial: TrialSpec) -> TrialSpec:
        """Return a trial with the known shares as rates; NoMaximumError for a share without a maximum."""

    def _next_of_main(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial of the main part."""
        return self._main.next(results)

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial, those that find maxima first; a result with the reason if there is no maximum."""
        if self._found is None:
            finding = _PartOfResults(results, self._is_calibration)
            following = self._calibration.next(finding)
            if following is not None:
                return following
            self._found = tuple(self._calibration.searches)
            self._trials_before = len(finding)
            self._boots_before = max((result.spec.boot for result in finding.values()), default=0)
        following = self._next_of_main(_PartOfResults(results, self._is_of_main))
        if following is None:
            return None
        trial = following.spec if isinstance(following, TrialResult) else following
        trial = replace(
            trial,
            index=trial.index + self._trials_before,
            boot=trial.boot + self._boots_before,
            phase=trial.phase + 1,
        )
        if isinstance(following, TrialResult):
            return replace(following, spec=trial)
        try:
            return self._with_rates(trial)
        except NoMaximumError as why:
            return without_maximum(trial, str(why))

    def _is_calibration(self, key: str) -> bool:
        """Return whether a trial of this key finds one of these maxima, and not those of another kind of traffic."""
        return key_finds_maximum(key) and key.split("/")[_TRAFFIC_IN_KEY] in self._traffic

    def _is_of_main(self, key: str) -> bool:
        return not self._is_calibration(key)

    @property
    def announced(self) -> Sequence[str]:
        """The maxima that are searched for, one per line."""
        plan = self._calibration.plan
        (case,) = plan.scenarios
        own = [
            f"{uut}  {case.name}  {'+'.join(plan.streams[:sources])}  {traffic_text(traffic, ' B')}: the maximum that "
            "loads refer to"
            for uut in plan.uuts
            for sources in case.streams
            for traffic in plan.profile.kinds_of_traffic
            if plan.carries(uut, traffic)
        ]
        return [*own, *self._main.announced]

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios of both parts."""
        return tuple(dict.fromkeys((*self._main.scenarios, *self._calibration.scenarios)))

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The distinct needs of both parts."""
        return tuple(dict.fromkeys((*self._calibration.needed_ceilings, *self._main.needed_ceilings)))

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Use the ceilings in both parts, which have the same sources."""
        self._calibration.use_ceilings(ceilings)
        self._main.use_ceilings(ceilings)

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """The ceilings that both parts found."""
        return (*self._calibration.ceilings, *self._main.ceilings)

    @property
    def searches(self) -> Sequence[SearchResult]:
        """The searches for maxima, and those of the main part."""
        maxima_searches = (
            replace(search, for_maxima=True, goal=f"maximum ({search.goal})", delays=())
            for search in self._calibration.searches
        )
        return (*maxima_searches, *self._main.searches)

    def expected_number(self, done: Collection[str]) -> int | None:
        """Return the expected number of trials of both parts."""
        finding, others = self._split(done)
        calibration = self._trials_before if self._found is not None else self._calibration.expected_number(finding)
        main = self._main.expected_number(others)
        return None if main is None or calibration is None else calibration + main + len(self.added)

    def expected_s(self, done: Collection[str]) -> float | None:
        """Return the expected seconds of both parts, for which the testbed is brought up once."""
        finding, others = self._split(done)
        main_s = self._main.expected_s(others)
        if self._found is not None:
            return main_s
        calibration_s = self._calibration.expected_s(finding)
        return None if main_s is None or calibration_s is None else calibration_s + main_s - self.plan.costs.start_s

    def _split(self, keys: Collection[str]) -> tuple[list[str], list[str]]:
        """Return the keys of trials that find these maxima, and all others."""
        return list(filter(self._is_calibration, keys)), list(filter(self._is_of_main, keys))


def without_maximum(trial: TrialSpec, why: str) -> TrialResult:
    """Return the result to store for a trial with a load that is a share of a maximum that was not found."""
    load = "the load" if trial.load.is_unknown else "the neighbours' load"
    reason = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", f"{load} is a share of the maximum: {why}")
    return TrialResult(trial, 1, time.time_ns(), guests=(), reasons=(reason,), steps_s={})


class _PartOfResults(Mapping[str, TrialResult]):
    """The results of the trials whose keys `includes` selects."""

    def __init__(self, results: Mapping[str, TrialResult], includes: Callable[[str], bool]) -> None:
        self._results, self._includes = results, includes

    def __getitem__(self, key: str) -> TrialResult:
        if key not in self:
            raise KeyError(key)
        return self._results[key]

    def __contains__(self, key: object) -> bool:
        return self._includes(str(key)) and key in self._results

    def __iter__(self) -> Iterator[str]:
        return filter(self._includes, self._results)

    def __len__(self) -> int:
        return sum(1 for _ in self)
