"""The schedule of the lists of a profile: every scenario, frame size and load is known before the first trial."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, Maximum
from netbench.model.frame_mix import FrameSize, rising
from netbench.model.profile import LOADS
from netbench.model.scenario import SHARED_IDLE, Scenario
from netbench.model.topology import measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec
from netbench.model.verdict import Verdict
from netbench.plan.calibration import fewest_sources, sizes_referred_to, without_maximum
from netbench.plan.order import CellKey, CellOrder
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.limits import THE_LOAD_ASKED
from netbench.statistics.reference_throughput import find_maximum, why_none_among_loads


class LoadSweep(NamedTuple):
    """The trials that differ in load and repetition only."""

    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: FrameSize

    @classmethod
    def of(cls, trial: TrialSpec) -> "LoadSweep":
        """Return the sweep of a trial."""
        return cls(trial.uut, trial.scenario, trial.streams, trial.frame_size)


class EarlyEnds:
    """The sweeps of a plan that end early because `in_a_row` consecutive rising loads were saturated.

    The first repetition of each load decides. It is planned before any trial of a higher load. Therefore the decision
    depends only on results that exist by then and do not change, and every load has all its repetitions or none.
    """

    def __init__(self, planned: Sequence[TrialSpec], in_a_row: int) -> None:
        self._in_a_row = in_a_row
        self._planned: dict[LoadSweep, list[TrialSpec]] = {}
        for trial in planned:
            self._planned.setdefault(LoadSweep.of(trial), []).append(trial)
        self._saturated: dict[str, bool] = {}
        self.ended: dict[LoadSweep, EndedSweep] = {}

    def skips(self, trial: TrialSpec, results: Mapping[str, TrialResult]) -> bool:
        """Return whether the sweep of a trial ends below its load."""
        sweep = LoadSweep.of(trial)
        if sweep not in self.ended:
            loads = list(dict.fromkeys(planned.load for planned in self._planned[sweep]))
            first = {planned.load: planned.key for planned in self._planned[sweep] if planned.repetition == 1}
            place = loads.index(trial.load)
            below = loads[max(0, place - self._in_a_row) : place]
            if len(below) < self._in_a_row or not all(self._is_saturated(first[load], results) for load in below):
                return False
            left = [planned for planned in self._planned[sweep] if planned.load in loads[place:]]
            self.ended[sweep] = EndedSweep(
                *sweep,
                saturated_loads=tuple(map(str, below)),
                skipped_loads=tuple(map(str, loads[place:])),
                skipped_trials=len(left),
            )
        return self.has_left_out(trial)

    def has_left_out(self, trial: TrialSpec) -> bool:
        """Return whether the trial is above the end of a sweep that is known to have ended early."""
        ended = self.ended.get(LoadSweep.of(trial))
        return ended is not None and str(trial.load) in ended.skipped_loads

    def _is_saturated(self, key: str, results: Mapping[str, TrialResult]) -> bool:
        if key not in self._saturated:
            if key not in results:
                return False
            result = results[key]
            self._saturated[key] = result.is_saturated and result.verdict is not Verdict.INVALID
        return self._saturated[key]


MAX_TRIALS = 1_000_000


class StaticPlan(Schedule):
    """All trials of a campaign in a fixed order, the same for the same seed.

    `interleaved` measures every UUT in each repetition, in shuffled order. On each boot, the scenarios that need the
    same neighbours are shuffled together, so that drift of the machine spreads over all of them. `sequential` finishes
    one UUT before the next, as written. `random` shuffles everything. If neighbours forward a share of a maximum that
    is found among the loads, the trials that find it come first. If the maximum is found otherwise, such a load stays
    unresolved. With `stop_when_saturated` the loads of each sweep rise in any order, and those above the given number
    of saturated ones are left out.
    """

    def __init__(self, plan: CampaignPlan, options: BaseModel | None = None) -> None:
        """UsageError for too many trials."""
        super().__init__(plan, options or self.Options())
        self._planned = tuple(_planned(plan))
        self._at = 0
        self._finds_maxima = _finds_maxima(plan)
        self._maxima: dict[tuple[str, FrameSize], Maximum] = {}
        in_a_row = plan.profile.stop_when_saturated
        self._early = None if in_a_row is None else EarlyEnds(self._planned, in_a_row)

    @property
    def trials(self) -> tuple[TrialSpec, ...]:
        """All trials; a load that is a share of a maximum is not known beforehand."""
        return self._planned

    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the first missing trial that is not left out; a result with the reason if a maximum is unknown."""
        while self._at < len(self._planned) and self._is_done(self._planned[self._at], results):
            self._at += 1
        if self._at == len(self._planned):
            return None
        trial = self._planned[self._at]
        if not self._finds_maxima:
            return trial
        maxima = {}
        for size in sorted(trial.unknown_sizes, key=rising):
            maximum = self._maximum(trial.uut, size, results)
            if maximum is None or maximum.limited_by == THE_LOAD_ASKED:
                return without_maximum(trial, why_none_among_loads(maximum))
            maxima[size] = LoadReference(maximum.fps, maximum.limited_by)
        return trial.with_maxima(maxima)

    @property
    def ended_sweeps(self) -> tuple[EndedSweep, ...]:
        """The sweeps that ended early because of saturation."""
        return tuple(self._early.ended.values()) if self._early else ()

    def expected_s(self, done: Collection[str]) -> float:
        """Return the expected seconds, as for any schedule, without the trials known to be left out."""
        left_out = {trial.key for trial in self._planned if self._early and self._early.has_left_out(trial)}
        return self.plan.costs.expected_s(trial for trial in self._planned if trial.key not in left_out | set(done))

    def _is_done(self, trial: TrialSpec, results: Mapping[str, TrialResult]) -> bool:
        return trial.key in results or (self._early is not None and self._early.skips(trial, results))

    def _maximum(self, uut: str, frame_size: FrameSize, results: Mapping[str, TrialResult]) -> Maximum | None:
        """Return the maximum with idle neighbours; all its trials are planned before this one."""
        if (uut, frame_size) not in self._maxima:
            finding = [
                trial.key
                for trial in self._planned
                if (trial.uut, trial.scenario, trial.frame_size) == (uut, SHARED_IDLE, frame_size)
            ]
            maximum = find_maximum((results[key] for key in finding if key in results), uut, frame_size)
            if maximum is None:
                return None
            self._maxima[uut, frame_size] = maximum
        return self._maxima[uut, frame_size]


def _planned(plan: CampaignPlan) -> Iterator[TrialSpec]:
    profile, cases = plan.profile, plan.scenarios
    sources = sum(len(source_numbers(plan.topology, profile, case)) for case in cases)
    total = len(plan.uuts) * sources * len(profile.frame_sizes) * len(profile.loads) * profile.repetitions
    if total > MAX_TRIALS:
        raise UsageError(f"profile {profile.name}: that makes {total:,} trials; at most {MAX_TRIALS:,} are possible")
    first = _cells_of_maxima(plan)
    others = [cell for case in cases for cell in _cells(plan, case) if cell not in first]
    phases = [phase for phase in (first, others) if phase]
    boots = CellOrder(plan.topology, profile).boots(plan.uuts, phases)
    # A running UUT is not restarted, except if versions are compared: then each boot counts.
    if profile.reboot == "visit" and not measured_pairs(plan.uuts):
        boots = (
            (uut, phase, [entry for _, _, measured in same for entry in measured])
            for (uut, phase), same in groupby(boots, key=lambda boot: boot[:2])
        )
    index = 0
    for boot, (uut, phase, measured) in enumerate(boots, start=1):
        for cell, repetition in measured:
            yield plan.trial(
                uut,
                profile.scenario(cell.scenario),
                cell.frame_size,
                cell.load,
                repetition,
                index=index,
                sources=cell.sources,
                phase=phase,
                boot=boot,
            )
            index += 1


def _cells(plan: CampaignPlan, case: Scenario) -> list[CellKey]:
    return [
        CellKey(case.name, number, size, load)
        for number in source_numbers(plan.topology, plan.profile, case)
        for size in plan.profile.frame_sizes
        for load in plan.profile.loads
    ]


def _cells_of_maxima(plan: CampaignPlan) -> Sequence[CellKey]:
    """Return the cells that find the maxima the scenarios refer to, with the fewest sources of `shared-idle`."""
    if not _finds_maxima(plan):
        return ()
    sizes, fewest = sizes_referred_to(plan), fewest_sources(plan)
    return [CellKey(SHARED_IDLE, fewest, size, load) for size in sizes for load in plan.profile.loads]


def _finds_maxima(plan: CampaignPlan) -> bool:
    """Return whether maxima are to be found among the loads of the profile."""
    return plan.profile.maxima is not None and plan.profile.maxima.kind == LOADS
