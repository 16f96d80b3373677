"""A schedule in two phases: it first finds the maxima that loads are shares of, and then uses them."""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from math import inf

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.campaign import Maximum
from netbench.model.frame_mix import FrameSize, rising, size_text
from netbench.model.profile import MaximaSpec
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Network
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.topology import measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec, key_finds_maximum
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, ReasonKind
from netbench.plan.added_trials import AddedTrials
from netbench.plan.schedule import AroundSchedule, CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.limits import THE_SOURCE, CalibrationKey
from netbench.statistics.reference_throughput import maximum_of, why_no_maximum

_USUAL_S = 1.0
# Sources sustain this part of their highest rate in every trial: they need a margin to catch up after delays.
_STEADY_PART = 0.8
# A UUT that is offered this many times its maximum is certainly overloaded.
_OVERLOAD = 1.2


class MaximaFirst(AroundSchedule):
    """The schedule `finding` for the maxima, followed by `main`, whose shares of a maximum become rates.

    `finding` is a schedule for the result of plan_for_maxima(). Each of the two receives only its own results,
    numbered from 0.
    """

    def __init__(self, finding: Schedule, main: Schedule) -> None:
        """Raises no UsageError."""
        super().__init__(main)
        self._finding = finding
        # By UUT, frame size and number of sources; None until all searches have finished.
        self._found: dict[tuple[str, FrameSize, int], SearchResult] | None = None
        self._trials_before = self._boots_before = 0
        self._ceilings: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._added = AddedTrials(main.plan, main.planned)

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial, those that find maxima first; a result with the reason if there is no maximum."""
        if self._found is None:
            following = self._finding.next(_Part(results, finding=True))
            if following is not None:
                return following
            self._begin_main(_Part(results, finding=True))
        of_main = _Part(results, finding=False)
        following = self._main.next(of_main) or self._added.next(of_main, self._calibrated)
        if following is None:
            return None
        if isinstance(following, TrialResult):
            return replace(following, spec=self._in_its_place(following.spec))
        return self._with_maxima(self._in_its_place(following))

    @property
    def added(self) -> Sequence[TrialSpec]:
        """Higher loads and repetitions that the results of the main part require."""
        return self._added.trials

    @property
    def announced(self) -> Sequence[str]:
        """The maxima that are searched for, one per line."""
        plan = self._finding.plan
        (case,) = plan.scenarios
        return [
            f"{uut}  {case.name}  {'+'.join(plan.streams[:sources])}  {size_text(size, ' B')}: the maximum that loads "
            "refer to"
            for uut in plan.uuts
            for sources in case.streams
            for size in plan.profile.frame_sizes
        ]

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios of both parts."""
        return tuple(dict.fromkeys((*self._main.scenarios, *self._finding.scenarios)))

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The distinct needs of both parts."""
        return tuple(dict.fromkeys((*self._finding.needed_ceilings, *self._main.needed_ceilings)))

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Use the ceilings in both parts, which have the same sources."""
        self._ceilings = {(ceiling.sources, ceiling.frame_size): ceiling for ceiling in ceilings if ceiling.is_known}
        self._finding.use_ceilings(ceilings)
        self._main.use_ceilings(ceilings)

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """The ceilings that both parts found."""
        return (*self._finding.ceilings, *self._main.ceilings)

    @property
    def searches(self) -> Sequence[SearchResult]:
        """The searches for maxima, and those of the main part."""
        maxima_searches = (
            replace(search, for_maxima=True, goal=f"maximum ({search.goal})", delays=())
            for search in self._finding.searches
        )
        return (*maxima_searches, *self._main.searches)

    def expected_number(self, done: Collection[str]) -> int | None:
        """Return the expected number of trials of both parts."""
        finding = self._trials_before
        if self._found is None:
            expected = self._finding.expected_number([key for key in done if key_finds_maximum(key)])
            if expected is None:
                return None
            finding = expected
        main = self._main.expected_number([key for key in done if not key_finds_maximum(key)])
        return None if main is None else finding + main + len(self.added)

    def expected_s(self, done: Collection[str]) -> float | None:
        """Return the expected seconds of both parts, for which the testbed is brought up once."""
        finding = None
        if self._found is None:
            finding = self._finding.expected_s([key for key in done if key_finds_maximum(key)])
        main = self._main.expected_s([key for key in done if not key_finds_maximum(key)])
        if main is None or finding is None:
            return main if self._found is not None else None
        return finding + main - self.plan.costs.start_s

    @property
    def _calibrated(self) -> dict[CalibrationKey, tuple[str, float]]:
        """The scenario and the maximum of all sources together, in frames/s, that loads are shares of."""
        known = ((key, search.scenario, maximum_of(search)) for key, search in (self._found or {}).items())
        return {key: (scenario, maximum.fps * key[2]) for key, scenario, maximum in known if maximum is not None}

    def _begin_main(self, found: Mapping[str, TrialResult]) -> None:
        self._found = {
            (search.uut, search.frame_size, len(search.streams)): search for search in self._finding.searches
        }
        self._trials_before = len(found)
        self._boots_before = max((result.spec.boot for result in found.values()), default=0)

    def _in_its_place(self, trial: TrialSpec) -> TrialSpec:
        return replace(
            trial,
            index=trial.index + self._trials_before,
            boot=trial.boot + self._boots_before,
            phase=trial.phase + 1,
        )

    def _with_maxima(self, trial: TrialSpec) -> TrialSpec | TrialResult:
        try:
            if trial.load.is_unknown:
                trial = trial.with_maximum(self._maximum(trial, trial.frame_size, len(trial.streams)))
            fewest = min(self._finding.plan.scenarios[0].streams)
            sizes = sorted(trial.unknown_sizes, key=rising)
            return trial.with_maxima({size: self._maximum(trial, size, fewest) for size in sizes})
        except _NoMaximumError as why:
            return without_maximum(trial, str(why))

    def _maximum(self, trial: TrialSpec, size: FrameSize, sources: int) -> LoadReference:
        # Two compared versions of a UUT are offered the same load.
        uut = measured_pairs(self.plan.uuts).get(trial.uut, trial.uut)
        search = (self._found or {}).get((uut, size, sources))
        maximum = None if search is None else maximum_of(search)
        if maximum is None:
            raise _NoMaximumError(why_no_maximum(search))
        return LoadReference(maximum.fps, maximum.limited_by, self._held_fps(maximum, sources))

    def _held_fps(self, maximum: Maximum, sources: int) -> float | None:
        """Return the highest rate that sources sustain in every trial; None if unknown.

        A maximum that a disturbed tester limits is no limit of the sources: higher loads may show more.
        """
        ceiling = self._ceilings.get((sources, maximum.frame_size))
        if ceiling is None or maximum.limited_by.startswith(THE_SOURCE):
            return maximum.held_fps
        highest_fps = ceiling.paced_fps or ceiling.fps
        if maximum.limited_by and highest_fps <= maximum.fps:
            return maximum.held_fps
        steady_fps = max(_STEADY_PART * highest_fps, min(highest_fps, _OVERLOAD * maximum.fps))
        return min(maximum.held_fps or inf, max(steady_fps, maximum.fps))


class _NoMaximumError(Exception):
    """There is no maximum; the message is the reason."""


def without_maximum(trial: TrialSpec, why: str) -> TrialResult:
    """Return the result to store for a trial with a load that is a share of a maximum that was not found."""
    whose = "the load" if trial.load.is_unknown else "the neighbours' load"
    reason = Reason(ReasonKind.MAXIMUM_UNKNOWN, "", f"{whose} is a share of the maximum: {why}")
    return TrialResult(trial, 1, time.time_ns(), guests=(), reasons=(reason,), steps_s={})


def shares_of_victim(plan: CampaignPlan) -> list[Load]:
    """Return the victim's loads that are a share of its maximum."""
    return [load for load in plan.profile.loads if load.kind is LoadKind.OF_MAXIMUM]


def sizes_referred_to(plan: CampaignPlan) -> list[FrameSize]:
    """Return the frame sizes, in rising order, at which loads of neighbours are a share of a maximum."""
    topology = plan.topology
    activities = (
        topology.activity(case, neighbour.name) for case in plan.scenarios for neighbour in topology.neighbours
    )
    sizes = {does.frame_size for does in activities if isinstance(does, Network) and does.share is not None}
    return sorted(sizes, key=rising)


def fewest_sources(plan: CampaignPlan) -> int:
    """Return the fewest sources of `shared-idle`; a maximum is that of one stream of these."""
    return min(source_numbers(plan.topology, plan.profile, plan.profile.scenario(SHARED_IDLE)))


def plan_for_maxima(plan: CampaignPlan, spec: MaximaSpec) -> CampaignPlan:
    """Return the plan that finds the maxima of the same UUTs, once for each needed frame size and number of sources.

    Needed are those at which a load is a share of the maximum. Neighbours are idle if loads of neighbours are shares of
    it; otherwise the victim is alone.
    """
    profile, sizes = plan.profile, sizes_referred_to(plan)
    case = profile.scenario(SHARED_IDLE if sizes else DEDICATED)
    numbers = {fewest_sources(plan)} if sizes else set()
    if shares_of_victim(plan):
        sizes = sorted({*sizes, *profile.frame_sizes}, key=rising)
        numbers |= {
            number for scenario in plan.scenarios for number in source_numbers(plan.topology, profile, scenario)
        }
    seconds = spec.duration or min(_USUAL_S, profile.duration)
    case = case.model_copy(update={"streams": tuple(sorted(numbers))})
    update = {
        "frame_sizes": tuple(sizes),
        "loads": (),
        "streams": case.streams,
        "scenarios": (case,),
        "repetitions": 1,
        "duration": seconds,
        "warm_up": profile.warm_up and profile.warm_up * seconds / profile.duration,
        "stop_when_saturated": None,
    }
    return replace(plan, profile=profile.model_copy(update=update), scenarios=(case,), finds_maximum=True)


def finding_maxima(plan: CampaignPlan, spec: MaximaSpec, kind: type[Schedule]) -> Schedule:
    """Return the schedule of that kind that finds the maxima; UsageError if it cannot, or if the schedule raises it."""
    if kind.MaximaOptions is None:
        raise UsageError(f"profile {plan.profile.name}: maxima: {spec.kind} finds no maxima")
    options: BaseModel = kind.MaximaOptions.model_validate(spec.options)
    return kind(plan_for_maxima(plan, spec), options)


class _Part(Mapping[str, TrialResult]):
    """The results of the trials that find maxima, or of all others."""

    def __init__(self, results: Mapping[str, TrialResult], *, finding: bool) -> None:
        self._results, self._is_finding = results, finding

    def __getitem__(self, key: str) -> TrialResult:
        if key not in self:
            raise KeyError(key)
        return self._results[key]

    def __contains__(self, key: object) -> bool:
        return key_finds_maximum(str(key)) is self._is_finding and key in self._results

    def __iter__(self) -> Iterator[str]:
        return (key for key in self._results if key_finds_maximum(key) is self._is_finding)

    def __len__(self) -> int:
        return sum(1 for _ in self)
