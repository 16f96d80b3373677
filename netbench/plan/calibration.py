"""Schedules whose loads are shares of a maximum: found by calibration beforehand, or replayed from a campaign."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitKind
from netbench.model.profile import MaximaSpec
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Network
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.topology import measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec, key_finds_maximum
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, Reason, ReasonKind
from netbench.plan.added_trials import AddedTrials
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.limits import CalibrationKey, maximum_of, why_no_maximum

_USUAL_S = 1.0
# Sources sustain this part of their highest rate in every trial: they need a margin to catch up after delays.
_STEADY_PART = 0.8
# A UUT that is offered this many times its maximum is certainly overloaded.
_OVERLOAD = 1.2
_WITHOUT_PACKETS = {"packet": (None,), "vary": None, "expect": None}  # as in a profile without packets
_LISTED = 3  # missing rates in an error


class _AroundSchedule(Schedule):
    """A schedule that adds to or modifies the trials of another schedule, and delegates everything else to it."""

    def __init__(self, main: Schedule) -> None:
        super().__init__(main.plan, main.options)
        self._main = main

    @property
    def planned(self) -> Sequence[TrialSpec]:
        return self._main.planned

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
                "measure what it measured (--uut, --scenario, --set), or leave out --loads-from"
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


class CalibratedSchedule(_AroundSchedule):
    """The schedule `calibration`, which finds the maxima, and then `main`, whose shares of a maximum become rates.

    `calibration` is a schedule for the result of calibration_plan(). Each of the two receives only its own results,
    numbered from 0.
    """

    def __init__(self, calibration: Schedule, main: Schedule) -> None:
        super().__init__(main)
        self._calibration = calibration
        # By UUT, frame size and number of sources; None until all searches have finished.
        self._searches: dict[tuple[str, FrameSize, int], SearchResult] | None = None
        self._trials_before = self._boots_before = 0
        self._ceilings: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._added = AddedTrials(main.plan, main.planned)

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial, those that find maxima first; a result with the reason if there is no maximum."""
        if self._searches is None:
            finding = _PartOfResults(results, finds_maximum=True)
            following = self._calibration.next(finding)
            if following is not None:
                return following
            self._searches = {
                (search.uut, search.frame_size, len(search.streams)): search for search in self._calibration.searches
            }
            self._trials_before = len(finding)
            self._boots_before = max((result.spec.boot for result in finding.values()), default=0)
        of_main = _PartOfResults(results, finds_maximum=False)
        following = self._main.next(of_main) or self._added.next(of_main, self._calibrated)
        if following is None:
            return None
        trial = following.spec if isinstance(following, TrialResult) else following
        trial = replace(
            trial,
            index=trial.index + self._trials_before,
            boot=trial.boot + self._boots_before,
            phase=trial.phase + 1,
        )
        return replace(following, spec=trial) if isinstance(following, TrialResult) else self._with_maxima(trial)

    @property
    def added(self) -> Sequence[TrialSpec]:
        """Higher loads and repetitions that the results of the main part require."""
        return self._added.trials

    @property
    def announced(self) -> Sequence[str]:
        """The maxima that are searched for, one per line."""
        plan = self._calibration.plan
        (case,) = plan.scenarios
        return [
            f"{uut}  {case.name}  {'+'.join(plan.streams[:sources])}  {size.text(' B')}: the maximum that loads "
            "refer to"
            for uut in plan.uuts
            for sources in case.streams
            for size in plan.profile.all_frame_sizes
            if plan.carries(uut, size)
        ]

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
        self._ceilings = {(ceiling.sources, ceiling.frame_size): ceiling for ceiling in ceilings if ceiling.is_known}
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
        finding, others = _split(done)
        calibration = self._trials_before if self._searches is not None else self._calibration.expected_number(finding)
        main = self._main.expected_number(others)
        return None if main is None or calibration is None else calibration + main + len(self.added)

    def expected_s(self, done: Collection[str]) -> float | None:
        """Return the expected seconds of both parts, for which the testbed is brought up once."""
        finding, others = _split(done)
        main_s = self._main.expected_s(others)
        if self._searches is not None:
            return main_s
        calibration_s = self._calibration.expected_s(finding)
        return None if main_s is None or calibration_s is None else calibration_s + main_s - self.plan.costs.start_s

    @property
    def _calibrated(self) -> dict[CalibrationKey, tuple[str, float]]:
        """The scenario and the maximum of all sources together, in frames/s, that loads are shares of."""
        maxima = ((key, search.scenario, maximum_of(search)) for key, search in (self._searches or {}).items())
        return {key: (scenario, maximum.fps * key[2]) for key, scenario, maximum in maxima if maximum is not None}

    def _with_maxima(self, trial: TrialSpec) -> TrialSpec | TrialResult:
        try:
            if trial.load.is_unknown:
                trial = trial.with_maximum(self._maximum(trial, trial.frame_size, len(trial.streams)))
            fewest = min(self._calibration.plan.scenarios[0].streams)
            sizes = sorted(trial.unknown_sizes)
            return trial.with_maxima({size: self._maximum(trial, size, fewest) for size in sizes})
        except _NoMaximumError as why:
            return without_maximum(trial, str(why))

    def _maximum(self, trial: TrialSpec, size: FrameSize, sources: int) -> LoadReference:
        """Return the maximum, and the highest rate that sources sustain in every trial, if it is known.

        A maximum that a disturbed tester limits is no limit of the sources: higher loads may show more.
        """
        # Two compared versions of a UUT are offered the same load.
        uut = measured_pairs(self.plan.uuts).get(trial.uut, trial.uut)
        search = (self._searches or {}).get((uut, size, sources))
        maximum = None if search is None else maximum_of(search)
        if maximum is None:
            raise _NoMaximumError(why_no_maximum(search))
        sustained_fps, ceiling = maximum.held_fps, self._ceilings.get((sources, size))
        if ceiling is not None and maximum.limited_by.kind is not LimitKind.SOURCE:
            highest_fps = ceiling.paced_fps or ceiling.fps
            if maximum.limited_by.is_uut or highest_fps > maximum.fps:
                steady_fps = max(_STEADY_PART * highest_fps, min(highest_fps, _OVERLOAD * maximum.fps))
                sustained_fps = min(sustained_fps or inf, max(steady_fps, maximum.fps))
        return LoadReference(maximum.fps, maximum.limited_by, sustained_fps)


class _NoMaximumError(Exception):
    """There is no maximum; the message is the reason."""


def without_maximum(trial: TrialSpec, why: str) -> TrialResult:
    """Return the result to store for a trial with a load that is a share of a maximum that was not found."""
    load = "the load" if trial.load.is_unknown else "the neighbours' load"
    reason = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", f"{load} is a share of the maximum: {why}")
    return TrialResult(trial, 1, time.time_ns(), guests=(), reasons=(reason,), steps_s={})


def shares_of_victim(plan: CampaignPlan) -> list[Load]:
    """Return the victim's loads that are a share of its maximum."""
    return [load for load in plan.profile.loads if load.kind is LoadKind.OF_MAXIMUM]


def sizes_referred_to(plan: CampaignPlan) -> list[FrameSize]:
    """Return the frame sizes, in rising order, at which loads of neighbours are a share of a maximum."""
    topology = plan.topology
    activities = (topology.activity(case, guest.name) for case in plan.scenarios for guest in topology.neighbours)
    sizes = {does.frame_size for does in activities if isinstance(does, Network) and does.share is not None}
    return sorted(sizes)


def fewest_sources(plan: CampaignPlan) -> int:
    """Return the fewest sources of `shared-idle`; a maximum is that of one stream of these."""
    return min(source_numbers(plan.topology, plan.profile, plan.profile.scenario(SHARED_IDLE)))


def calibration_plan(plan: CampaignPlan, spec: MaximaSpec) -> CampaignPlan:
    """Return the plan that finds the maxima of the same UUTs, once for each needed frame size and number of sources.

    Needed are those at which a load is a share of the maximum. Neighbours are idle if loads of neighbours are shares of
    it; otherwise the victim is alone.
    """
    profile, sizes = plan.profile, sizes_referred_to(plan)
    case = profile.scenario(SHARED_IDLE if sizes else DEDICATED)
    numbers = {fewest_sources(plan)} if sizes else set()
    if shares_of_victim(plan):
        every = dict.fromkeys((*sizes, *profile.all_frame_sizes))
        sizes = sorted(every, key=lambda size: size.without_packet)  # of one size in the order of the packets
        numbers.update(*(source_numbers(plan.topology, profile, scenario) for scenario in plan.scenarios))
    seconds = spec.duration or min(_USUAL_S, profile.duration)
    case = case.model_copy(update={"streams": tuple(sorted(numbers))})
    update = {
        "frame_sizes": tuple(sizes),
        "tool": (),  # maxima are of frames, also where the victim serves otherwise
        **_WITHOUT_PACKETS,  # sizes name their packets
        "loads": (),
        "streams": case.streams,
        "scenarios": (case,),
        "repetitions": 1,
        "duration": seconds,
        "warm_up": profile.warm_up and profile.warm_up * seconds / profile.duration,
        "stop_when_saturated": None,
    }
    return replace(plan, profile=profile.model_copy(update=update), scenarios=(case,), finds_maximum=True)


def calibration_schedule(plan: CampaignPlan, spec: MaximaSpec, kind: type[Schedule]) -> Schedule:
    """Return the schedule of that kind that finds the maxima; UsageError if it cannot, or if the schedule raises it."""
    if kind.MaximaOptions is None:
        raise UsageError(f"profile {plan.profile.name}: maxima: {spec.kind} finds no maxima")
    options: BaseModel = kind.MaximaOptions.model_validate(spec.options)
    return kind(calibration_plan(plan, spec), options)


class _PartOfResults(Mapping[str, TrialResult]):
    """The results of the trials that find maxima, or of all others."""

    def __init__(self, results: Mapping[str, TrialResult], *, finds_maximum: bool) -> None:
        self._results, self._finds_maximum = results, finds_maximum

    def __getitem__(self, key: str) -> TrialResult:
        if key not in self:
            raise KeyError(key)
        return self._results[key]

    def __contains__(self, key: object) -> bool:
        return key_finds_maximum(str(key)) is self._finds_maximum and key in self._results

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._results if key_finds_maximum(key) is self._finds_maximum)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _split(keys: Collection[str]) -> tuple[list[str], list[str]]:
    """Return the keys of trials that find maxima, and all others."""
    finding = [key for key in keys if key_finds_maximum(key)]
    return finding, [key for key in keys if not key_finds_maximum(key)]
