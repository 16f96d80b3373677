"""Trials that the results of a plan require.

These are higher loads while throughput still rises, loads beside a peak, and repetitions of contradictory maxima.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil

from netbench.model.frame_mix import FrameSize
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.plan.schedule import CampaignPlan
from netbench.statistics.groups import Group, gathered, grouped
from netbench.statistics.limits import CalibrationKey, contradictory_maxima, peak_of, still_rises, with_limits
from netbench.statistics.totals import TrialTotals

_MOST_ROUNDS = 3
_HIGHER = 1.5  # the next load ÷ the highest one so far
_STEP, _MOST = 10, 1000  # percent of the maximum
_FROM = 100  # percent: a profile with lower loads only does not measure the maximum
# Loads beside a peak are added until the ratio of adjacent loads is at most this.
_FINEST = 1.25
_PEAK_STEP = 5  # percent of the maximum

_Cell = tuple[str, str, int, FrameSize, Load]  # UUT, scenario, sources, frame size, load


class AddedTrials:
    """The trials after a plan whose loads are shares of a maximum.

    Each repetition of a UUT has a separate boot. The next trial depends only on the results, so that a campaign can be
    resumed.
    """

    def __init__(self, plan: CampaignPlan, planned: Sequence[TrialSpec]) -> None:
        """`planned` are the trials of the plan, all of which are measured first."""
        self._plan, self._planned = plan, planned
        self._added: list[TrialSpec] = []
        self._at = self._rounds = 0

    @property
    def trials(self) -> Sequence[TrialSpec]:
        """The trials added so far."""
        return tuple(self._added)

    def next(
        self, results: Mapping[str, TrialResult], calibrated: Mapping[CalibrationKey, tuple[str, float]]
    ) -> TrialSpec | None:
        """Return the first missing trial; None if the results require no more."""
        while True:
            while self._at < len(self._added):
                if self._added[self._at].key not in results:
                    return self._added[self._at]
                self._at += 1
            if self._rounds == _MOST_ROUNDS:
                return None
            self._rounds += 1
            self._added += self._round(results, calibrated)

    def _round(
        self, results: Mapping[str, TrialResult], calibrated: Mapping[CalibrationKey, tuple[str, float]]
    ) -> Iterator[TrialSpec]:
        measured = (results[trial.key] for trial in (*self._planned, *self._added) if trial.key in results)
        groups = with_limits(gathered(TrialTotals.of(result.without_counters) for result in measured))
        repetitions = self._plan.profile.repetitions
        cells: list[tuple[int, _Cell]] = []
        for same in grouped(
            groups, lambda group: (group.uut, group.scenario, group.sources, group.frame_size)
        ).values():
            first, higher = same[0], _higher_load(same)
            for load in [higher] if higher else _loads_beside_peak(same):
                cell = first.uut, first.scenario, first.sources, first.frame_size, load
                cells += [(number, cell) for number in range(1, repetitions + 1)]
        if self._rounds == 1:
            again = {
                (group.uut, group.scenario, group.sources, group.frame_size, load): None
                for contradiction in contradictory_maxima(groups, calibrated)
                for group in contradiction.groups
                for load in group.maximum_loads
            }
            cells += [(repetitions + number, cell) for cell in again for number in range(1, repetitions + 1)]
        yield from self._specs(sorted(cells, key=lambda entry: (entry[0], entry[1][0])))

    def _specs(self, cells: Sequence[tuple[int, _Cell]]) -> Iterator[TrialSpec]:
        known = (*self._planned, *self._added)
        index = max((trial.index for trial in known), default=-1) + 1
        boot, phase = max((trial.boot for trial in known), default=0), max((trial.phase for trial in known), default=1)
        profile = self._plan.profile
        for (number, uut), same in groupby(cells, key=lambda entry: (entry[0], entry[1][0])):
            boot += 1
            for _, (_, scenario, sources, size, load) in same:
                case = profile.scenario(scenario)
                yield self._plan.trial(
                    uut, case, size, load.as_requested, number, index=index, sources=sources, phase=phase, boot=boot
                )
                index += 1


def _higher_load(same: Sequence[Group]) -> Load | None:
    """Return the load above all of these; None if throughput no longer rises, or no higher load exists.

    If the source cannot sustain a higher rate, the load is `max`: the source sends without a rate limit.
    """
    top = max(same, key=lambda group: (group.load.kind is LoadKind.MAX, group.load.value))
    of_maximum = top.load.kind is LoadKind.OF_MAXIMUM and top.load.value >= _FROM
    if not of_maximum or not still_rises(same):
        return None
    victims = [totals.trial.spec.victim for totals in top.everything]
    if any(victim.is_less_than_share for victim in victims):
        return Load(LoadKind.MAX)
    percent = ceil(_HIGHER * top.load.value / _STEP) * _STEP
    return Load(LoadKind.OF_MAXIMUM, float(percent)) if percent <= _MOST else None


def _loads_beside_peak(same: Sequence[Group]) -> list[Load]:
    """Return the loads half-way between a peak of the throughput and its adjacent loads.

    Beyond its peak, the throughput of an overloaded UUT can fall, because it spends time on frames that it drops later.
    The highest mean then depends on the distance of the loads from the peak: by 20 % if they are 30 % apart.
    """
    shares = [group for group in same if group.load.kind is LoadKind.OF_MAXIMUM]
    peak = peak_of(shares)
    if peak is None:
        return []
    values = sorted(group.load.value for group in shares)
    at = values.index(peak.load.value)
    pairs = pairwise(values[max(0, at - 1) : at + 2])
    between = [round((low + high) / 2 / _PEAK_STEP) * _PEAK_STEP for low, high in pairs if high > _FINEST * low]
    # A load below the throughput of the peak cannot give a higher throughput.
    most = peak.throughput_fps.mean / peak.offered_fps.mean if peak.throughput_fps and peak.offered_fps else 0.0
    new = (float(value) for value in between if value not in values and value > most * peak.load.value)
    return [Load(LoadKind.OF_MAXIMUM, value) for value in new]
