"""The schedule of the lists of a profile: every scenario, frame size and load is known before the first trial.

The order of the trials is fair to every UUT and scenario, and the same for the same seed. Pure.
"""

import random
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from math import inf
from typing import Any, NamedTuple, TypeVar

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.campaign import EndedSweep, Maximum
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.profile import LOADS, Profile
from netbench.model.scenario import SHARED_IDLE, Off
from netbench.model.topology import Topology, measured_pairs
from netbench.model.trial import LoadReference, TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Verdict
from netbench.model.workload import Workload
from netbench.plan.around_schedule import without_maximum
from netbench.plan.calibration import fewest_sources, sizes_referred_to
from netbench.plan.schedule import FLOWS, FRAMES, CampaignPlan, Schedule
from netbench.plan.selection import source_numbers
from netbench.statistics.groups import grouped
from netbench.statistics.limits import find_maximum, why_none_among_loads

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class CellKey:
    """The key of a trial without its UUT and repetition."""

    scenario: str
    sources: int
    traffic: FrameSize | Workload
    load: Load

    @property
    def sweep(self) -> tuple[str, int, FrameSize | Workload]:
        """The key that cells share if they differ in load only."""
        return self.scenario, self.sources, self.traffic


@dataclass(frozen=True, slots=True)
class CellOrder:
    """The order in which the cells of a profile are measured.

    `interleaved` measures every UUT in each repetition, in shuffled order. On each boot, the scenarios that need the
    same neighbours are shuffled together, so that drift of the machine spreads over all of them. `sequential` finishes
    one UUT before the next, as written. `random` shuffles everything.
    """

    topology: Topology
    profile: Profile

    def boots(
        self, uuts: Sequence[str], phases: Sequence[Sequence[CellKey]]
    ) -> Iterator[tuple[str, int, list[tuple[CellKey, int]]]]:
        """Yield the UUT, the phase, and the cells with their repetition of each boot."""
        generator = random.Random(self.profile.seed)
        for uut, phase, measured in self._uncut(uuts, phases, generator):
            for part in self._cut(measured):
                yield uut, phase, part

    def _uncut(
        self, uuts: Sequence[str], phases: Sequence[Sequence[CellKey]], generator: random.Random
    ) -> Iterator[tuple[str, int, list[tuple[CellKey, int]]]]:
        repetitions = range(1, self.profile.repetitions + 1)
        if self.profile.order == "sequential":
            for uut in self._by_place(uuts):
                for phase, cells in enumerate(phases, start=1):
                    rising = self._rising(cells)
                    yield uut, phase, [(cell, repetition) for cell in rising for repetition in repetitions]
            return
        for phase, cells in enumerate(phases, start=1):
            if self.profile.order == "random":
                entries = [(uut, cell, repetition) for uut in uuts for cell in cells for repetition in repetitions]
                generator.shuffle(entries)
                entries = self._upwards(
                    entries, lambda entry: (entry[0], entry[1].sweep), lambda entry: (entry[2], self._rank(entry[1]))
                )
                apart = grouped(entries, lambda entry: self.topology.uut(entry[0]).on).values()
                for uut, same in groupby(chain.from_iterable(apart), key=lambda entry: entry[0]):
                    yield uut, phase, [(cell, repetition) for _, cell, repetition in same]
                continue
            for repetition in repetitions:
                for uut in self._by_place(_shuffled_uuts(uuts, generator)):
                    yield uut, phase, [(cell, repetition) for cell in self._shuffled(cells, generator)]

    def _by_place(self, uuts: Iterable[str]) -> Iterator[str]:
        """Yield the UUTs in this order, but those on the same VM together, because a VM starts slowly."""
        for same in grouped(uuts, lambda name: self.topology.uut(name).on).values():
            yield from same

    def _shuffled(self, cells: Sequence[CellKey], generator: random.Random) -> Iterator[CellKey]:
        """Yield the cells in random order; those that share a set of neighbours, or a boot, stay together."""
        lots = list(grouped(cells, self._lot).values())
        for lot in generator.sample(lots, len(lots)):
            yield from self._rising(generator.sample(lot, len(lot)))

    def _rising(self, cells: Sequence[CellKey]) -> list[CellKey]:
        return self._upwards(cells, lambda cell: cell.sweep, self._rank)

    def _upwards(
        self, items: Sequence[Item], sweep: Callable[[Item], Hashable], rank: Callable[[Item], Any]
    ) -> list[Item]:
        """Return the items; if sweeps may end early, those of each sweep are sorted upwards within their places."""
        if self.profile.stop_when_saturated is None:
            return list(items)
        rising = {key: iter(sorted(sweep_items, key=rank)) for key, sweep_items in grouped(items, sweep).items()}
        return [next(rising[sweep(item)]) for item in items]

    def _rank(self, cell: CellKey) -> float:
        """Return the load in frames/s on the first link, or as a share of the maximum; `max` is the highest."""
        if cell.load.kind is LoadKind.OF_MAXIMUM:
            return cell.load.value
        link_bps = self.topology.stream_link(self.topology.own_streams[0]).rate
        assert isinstance(cell.traffic, FrameSize), "sweeps of frames end early, those of flows do not"
        fps = cell.load.fps(cell.traffic, link_bps)
        return inf if fps is None else fps

    def _lot(self, cell: CellKey) -> tuple[str, ...]:
        if self.profile.reboot == "scenario":
            return (cell.scenario,)
        case = self.profile.scenario(cell.scenario)
        return tuple(guest.name for guest in self.topology.neighbours if not isinstance(case.of(guest.name), Off))

    def _cut(self, measured: list[tuple[CellKey, int]]) -> Iterator[list[tuple[CellKey, int]]]:
        """Yield the parts between which guests are restarted."""
        match self.profile.reboot:
            case "trial":
                yield from ([entry] for entry in measured)
            case "scenario":
                for _, same in groupby(measured, key=lambda entry: entry[0].scenario):
                    yield list(same)
            case "visit":
                yield measured


def _shuffled_uuts(uuts: Sequence[str], generator: random.Random) -> Iterator[str]:
    """Yield the UUTs in random order; two versions of one follow each other, so that drift affects both equally."""
    pairs = measured_pairs(uuts)
    versions = [[uut, pairs[uut]] if uut in pairs else [uut] for uut in uuts if uut not in pairs.values()]
    for version in generator.sample(versions, len(versions)):
        yield from generator.sample(version, len(version)) if len(version) > 1 else version


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
        self._planned = grouped(planned, LoadSweep.of)
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

    traffic = frozenset({FRAMES, FLOWS})

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
        for size in sorted(trial.unknown_sizes):
            maximum = self._maxima.get((trial.uut, size))
            if maximum is None:
                reference = trial.uut, SHARED_IDLE, size
                with_idle = (
                    spec.key for spec in self._planned if (spec.uut, spec.scenario, spec.kind_of_traffic) == reference
                )
                measured = (results[key] for key in with_idle if key in results)
                maximum = find_maximum(measured, trial.uut, size)
            if maximum is None or maximum.limited_by == LimitCause(LimitKind.REQUESTED_LOAD):
                return without_maximum(trial, why_none_among_loads(maximum))
            self._maxima[trial.uut, size] = maximum
            maxima[size] = LoadReference(maximum.fps, maximum.limited_by)
        return trial.with_maxima(maxima)


def _planned(plan: CampaignPlan) -> Iterator[TrialSpec]:
    topology, profile = plan.topology, plan.profile
    numbers = {case.name: source_numbers(topology, profile, case) for case in plan.scenarios}
    sources = sum(map(len, numbers.values()))
    total = len(plan.uuts) * sources * len(profile.kinds_of_traffic) * len(profile.loads) * profile.repetitions
    if total > MAX_TRIALS:
        raise UsageError(f"profile {profile.name}: that makes {total:,} trials; at most {MAX_TRIALS:,} are possible")
    finding: list[CellKey] = []
    if _finds_maxima(plan) and (sizes := sizes_referred_to(plan)):
        fewest = fewest_sources(plan)
        finding = [CellKey(SHARED_IDLE, fewest, size, load) for size in sizes for load in profile.loads]
    cells = (
        CellKey(scenario, number, traffic, load)
        for scenario, of_scenario in numbers.items()
        for number in of_scenario
        for traffic in profile.kinds_of_traffic
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
    possible = (
        (uut, phase, [entry for entry in measured if plan.carries(uut, entry[0].traffic)])
        for uut, phase, measured in boots
    )
    index = 0
    for boot, (uut, phase, measured) in enumerate((planned for planned in possible if planned[2]), start=1):
        for cell, repetition in measured:
            yield plan.trial(
                uut,
                profile.scenario(cell.scenario),
                cell.traffic,
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
