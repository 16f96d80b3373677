"""The schedule of the lists of a profile: every scenario, frame size and load is known before the first trial."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, Maximum
from netbench.model.frame_mix import FrameSize, rising
from netbench.model.limits import Limit, LimitKind
from netbench.model.profile import LOADS
from netbench.model.scenario import SHARED_IDLE
from netbench.model.topology import measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec
from netbench.model.verdict import Verdict
from netbench.plan.calibration import fewest_sources, sizes_referred_to, without_maximum
from netbench.plan.order import CellKey, CellOrder
from netbench.plan.schedule import CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.reference_throughput import find_maximum, why_none_among_loads

MAX_TRIALS = 1_000_000


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
            planned = self._planned[sweep]
            loads = list(dict.fromkeys(other.load for other in planned))
            first = {other.load: other.key for other in planned if other.repetition == 1}
            place = loads.index(trial.load)
            below = loads[max(0, place - self._in_a_row) : place]
            if len(below) < self._in_a_row or not all(self._is_saturated(first[load], results) for load in below):
                return False
            self.ended[sweep] = EndedSweep(
                *sweep,
                saturated_loads=tuple(map(str, below)),
                skipped_loads=tuple(map(str, loads[place:])),
                skipped_trials=sum(other.load in loads[place:] for other in planned),
            )
        return self.has_left_out(trial)

    def has_left_out(self, trial: TrialSpec) -> bool:
        """Return whether the trial is above the end of a sweep that is known to have ended early."""
        ended = self.ended.get(LoadSweep.of(trial))
        return ended is not None and str(trial.load) in ended.skipped_loads

    def _is_saturated(self, key: str, results: Mapping[str, TrialResult]) -> bool:
        if key not in self._saturated and key in results:
            result = results[key]
            self._saturated[key] = result.is_saturated and result.verdict is not Verdict.INVALID
        return self._saturated.get(key, False)


class StaticPlan(Schedule):
    """All trials of a campaign in a fixed order, the same for the same seed.

    The order is that of CellOrder. If neighbours forward a share of a maximum that is found among the loads, the trials
    that find it come first. If the maximum is found otherwise, such a load stays unresolved. With `stop_when_saturated`
    the loads of each sweep rise in any order, and those above the given number of saturated ones are left out.
    """

    def __init__(self, plan: CampaignPlan, options: BaseModel | None = None) -> None:
        """UsageError for too many trials."""
        super().__init__(plan, options or self.Options())
        self._planned = tuple(_planned(plan))
        self._next = 0
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
        while self._next < len(self._planned):
            trial = self._planned[self._next]
            if trial.key not in results and not (self._early and self._early.skips(trial, results)):
                return self._with_maxima(trial, results) if self._finds_maxima else trial
            self._next += 1
        return None

    @property
    def ended_sweeps(self) -> tuple[EndedSweep, ...]:
        """The sweeps that ended early because of saturation."""
        return tuple(self._early.ended.values()) if self._early else ()

    def expected_s(self, done: Collection[str]) -> float:
        """Return the expected seconds, as for any schedule, without the trials known to be left out."""
        keys, early = set(done), self._early
        return self.plan.costs.expected_s(
            trial for trial in self._planned if trial.key not in keys and not (early and early.has_left_out(trial))
        )

    def _with_maxima(self, trial: TrialSpec, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult:
        """Return the trial with known loads; the maxima are those with idle neighbours, which were planned before."""
        maxima = {}
        for size in sorted(trial.unknown_sizes, key=rising):
            maximum = self._maxima.get((trial.uut, size))
            if maximum is None:
                reference = trial.uut, SHARED_IDLE, size
                keys = [
                    other.key
                    for other in self._planned
                    if (other.uut, other.scenario, other.frame_size) == reference and other.key in results
                ]
                maximum = find_maximum((results[key] for key in keys), trial.uut, size)
            if maximum is None or maximum.limited_by == Limit(LimitKind.REQUESTED_LOAD):
                return without_maximum(trial, why_none_among_loads(maximum))
            self._maxima[trial.uut, size] = maximum
            maxima[size] = LoadReference(maximum.fps, maximum.limited_by)
        return trial.with_maxima(maxima)


def _planned(plan: CampaignPlan) -> Iterator[TrialSpec]:
    topology, profile = plan.topology, plan.profile
    numbers = {case.name: source_numbers(topology, profile, case) for case in plan.scenarios}
    sources = sum(map(len, numbers.values()))
    total = len(plan.uuts) * sources * len(profile.frame_sizes) * len(profile.loads) * profile.repetitions
    if total > MAX_TRIALS:
        raise UsageError(f"profile {profile.name}: that makes {total:,} trials; at most {MAX_TRIALS:,} are possible")
    finding: list[CellKey] = []
    if _finds_maxima(plan) and (sizes := sizes_referred_to(plan)):
        fewest = fewest_sources(plan)
        finding = [CellKey(SHARED_IDLE, fewest, size, load) for size in sizes for load in profile.loads]
    cells = (
        CellKey(scenario, number, size, load)
        for scenario, of_scenario in numbers.items()
        for number in of_scenario
        for size in profile.frame_sizes
        for load in profile.loads
    )
    phases = [phase for phase in (finding, [cell for cell in cells if cell not in finding]) if phase]
    boots = CellOrder(topology, profile).boots(plan.uuts, phases)
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


def _finds_maxima(plan: CampaignPlan) -> bool:
    """Return whether maxima are to be found among the loads of the profile."""
    return plan.profile.maxima is not None and plan.profile.maxima.kind == LOADS
