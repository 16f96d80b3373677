"""The search for the maxima of frames, before the trials whose loads are shares of them."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import inf

from pydantic import BaseModel

from netbench.config.plugins import TOOLS, plugins
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitKind
from netbench.model.profile import MaximaSpec
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Network, Off
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.topology import measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.workload import FlowPath
from netbench.plan.added_trials import AddedTrials
from netbench.plan.around_schedule import AfterCalibration, NoMaximumError
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.limits import CalibrationKey, maximum_of, why_no_maximum, workload_maximum_of

_USUAL_S = 1.0
# Sources sustain this part of their highest rate in every trial: they need a margin to catch up after delays.
_STEADY_PART = 0.8
# A UUT that is offered this many times its maximum is certainly overloaded.
_OVERLOAD = 1.2
_WITHOUT_PACKETS = {"packet": (None,), "vary": None, "expect": None}  # as in a profile without packets


class CalibratedSchedule(AfterCalibration):
    """Maxima of frames: those of a victim that forwards, and those that loads of neighbours are shares of.

    `calibration` is a schedule for the result of calibration_plan(). Results of `main` may require more trials.
    """

    def __init__(self, calibration: Schedule, main: Schedule) -> None:
        super().__init__(calibration, main)
        self._ceilings: dict[tuple[int, FrameSize], SourceCeiling] = {}
        self._added = AddedTrials(main.plan, main.planned)

    def _next_of_main(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        return self._main.next(results) or self._added.next(results, self._calibrated)

    @property
    def added(self) -> Sequence[TrialSpec]:
        """Higher loads and repetitions that the results of the main part require."""
        return self._added.trials

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Use the ceilings in both parts, and as limits of shares."""
        self._ceilings = {(ceiling.sources, ceiling.frame_size): ceiling for ceiling in ceilings if ceiling.is_known}
        super().use_ceilings(ceilings)

    @property
    def _searches(self) -> dict[tuple[str, FrameSize, int], SearchResult]:
        """The finished searches by UUT, frame size and number of sources."""
        return {(search.uut, search.frame_size, len(search.streams)): search for search in self._found or ()}

    @property
    def _calibrated(self) -> dict[CalibrationKey, tuple[str, float]]:
        """The scenario and the maximum of all sources together, in frames/s, that loads are shares of."""
        maxima = ((key, search.scenario, maximum_of(search)) for key, search in self._searches.items())
        return {key: (scenario, maximum.fps * key[2]) for key, scenario, maximum in maxima if maximum is not None}

    def _with_rates(self, trial: TrialSpec) -> TrialSpec:
        if trial.load.is_unknown and not trial.serves:
            trial = trial.with_maximum(self._maximum(trial, trial.frame_size, len(trial.streams)))
        fewest = min(self._calibration.plan.scenarios[0].streams)
        sizes = sorted(trial.unknown_sizes)
        return trial.with_maxima({size: self._maximum(trial, size, fewest) for size in sizes})

    def _maximum(self, trial: TrialSpec, size: FrameSize, sources: int) -> LoadReference:
        """Return the maximum, and the highest rate that sources sustain in every trial, if it is known.

        A maximum that a disturbed tester limits is no limit of the sources: higher loads may show more.
        """
        # Two compared versions of a UUT are offered the same load.
        uut = measured_pairs(self.plan.uuts).get(trial.uut, trial.uut)
        search = self._searches.get((uut, size, sources))
        maximum = None if search is None else maximum_of(search)
        if maximum is None:
            raise NoMaximumError(why_no_maximum(search))
        sustained_fps, ceiling = maximum.held_fps, self._ceilings.get((sources, size))
        if ceiling is not None and maximum.limited_by.kind is not LimitKind.SOURCE:
            highest_fps = ceiling.paced_fps or ceiling.fps
            if maximum.limited_by.is_uut or highest_fps > maximum.fps:
                steady_fps = max(_STEADY_PART * highest_fps, min(highest_fps, _OVERLOAD * maximum.fps))
                sustained_fps = min(sustained_fps or inf, max(steady_fps, maximum.fps))
        return LoadReference(maximum.fps, maximum.limited_by, sustained_fps)


class CalibratedWorkloads(AfterCalibration):
    """Maxima of workloads: `calibration` is a schedule for the result of workload_calibration_plan()."""

    @property
    def tried_loads(self) -> Sequence[Load]:
        """Those of both parts."""
        return (*self._calibration.tried_loads, *self._main.tried_loads)

    @property
    def response_limit_s(self) -> float | None:
        """That of the calibration: `main` measures loads of the profile."""
        return self._calibration.response_limit_s

    def _with_rates(self, trial: TrialSpec) -> TrialSpec:
        if not (trial.load.is_unknown and trial.serves):
            return trial
        # Two compared versions of a UUT have the same load.
        uut = measured_pairs(self.plan.uuts).get(trial.uut, trial.uut)
        key = uut, trial.serves.workload, len(trial.streams)
        searches = {(found.uut, found.kind_of_traffic, len(found.streams)): found for found in self._found or ()}
        search = searches.get(key)
        maximum = None if search is None else workload_maximum_of(search)
        if maximum is None:
            raise NoMaximumError(why_no_maximum(search))
        return trial.with_maximum(maximum)


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
    if shares_of_victim(plan) and not profile.tool:
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


def workload_calibration_plan(plan: CampaignPlan, spec: MaximaSpec) -> CampaignPlan:
    """Return the plan that finds the maxima of the workloads of the same UUTs, for each number of clients.

    Neighbours are idle if they are present in all scenarios, if their loads are shares of a maximum, or if a workload
    needs a second guest; otherwise the victim is alone.
    """
    profile = plan.profile
    neighbours = [guest.name for guest in plan.topology.neighbours]
    acts = [plan.topology.activity(scenario, name) for scenario in plan.scenarios for name in neighbours]
    present = bool(acts) and not any(isinstance(activity, Off) for activity in acts)
    tools = plugins(TOOLS)
    needs_second = any(
        work.path is FlowPath.BETWEEN_GUESTS or tools[work.tool].needs_second_tier for work in profile.tool
    )
    is_shared = present or needs_second or bool(sizes_referred_to(plan))
    case = profile.scenario(SHARED_IDLE if is_shared else DEDICATED)
    numbers = set[int]().union(*(source_numbers(plan.topology, profile, scenario) for scenario in plan.scenarios))
    seconds = spec.duration or profile.duration
    case = case.model_copy(update={"streams": tuple(sorted(numbers))})
    update = {
        "loads": (),
        "streams": case.streams,
        "scenarios": (case,),
        "repetitions": 1,
        "duration": seconds,
        "warm_up": profile.warm_up and profile.warm_up * seconds / profile.duration,
    }
    return replace(plan, profile=profile.model_copy(update=update), scenarios=(case,), finds_maximum=True)


def calibration_schedule(plan: CampaignPlan, spec: MaximaSpec, kind: type[Schedule]) -> Schedule:
    """Return the schedule of that kind that searches by this plan; UsageError if it cannot, or as it raises it."""
    if kind.MaximaOptions is None:
        raise UsageError(f"profile {plan.profile.name}: maxima: {spec.kind} finds no maxima")
    options: BaseModel = kind.MaximaOptions.model_validate(spec.options)
    return kind(plan, options)
