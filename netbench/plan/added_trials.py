"""Trials that the results of a plan require.

These are higher loads while throughput still rises, loads beside a peak, and repetitions of contradictory maxima.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from math import ceil

from netbench.model.frame_size import FrameSize
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

_Curve = tuple[str, str, int, FrameSize]  # UUT, scenario, sources, frame size
_Calibrated = Mapping[CalibrationKey, tuple[str, float]]


class AddedTrials:
    """The trials after a plan whose loads are shares of a maximum; `planned` are measured first.

    Each repetition of a UUT has a separate boot. The next trial depends only on the results, so that a campaign can be
    resumed.
    """

    def __init__(self, plan: CampaignPlan, planned: Sequence[TrialSpec]) -> None:
        self._plan, self._planned = plan, planned
        self._added: list[TrialSpec] = []
        self._next = self._rounds = 0

    @property
    def trials(self) -> Sequence[TrialSpec]:
        """The trials added so far."""
        return tuple(self._added)

    def next(self, results: Mapping[str, TrialResult], calibrated: _Calibrated) -> TrialSpec | None:
        """Return the first missing trial; None if the results require no more."""
        while True:
            while self._next < len(self._added):
                if self._added[self._next].key not in results:
                    return self._added[self._next]
                self._next += 1
            if self._rounds == _MOST_ROUNDS:
                return None
            self._rounds += 1
            self._added += self._round(results, calibrated)

    def _round(self, results: Mapping[str, TrialResult], calibrated: _Calibrated) -> Iterator[TrialSpec]:
        known = (*self._planned, *self._added)
        # Loads of flows are no rates of frames.
        measured = (results[trial.key] for trial in known if trial.key in results and not trial.serves)
        groups = with_limits(gathered(TrialTotals.of(result.without_counters) for result in measured))
        repetitions = range(1, self._plan.profile.repetitions + 1)
        required: list[tuple[int, _Curve, Load]] = []  # repetition, curve, load
        for curve, same in grouped(groups, lambda group: group.sweep).items():
            higher = _higher_load(same)
            for load in [higher] if higher else _loads_beside_peak(same):
                required += [(number, curve, load) for number in repetitions]
        if self._rounds == 1:
            again = {
                (group.sweep, load): None
                for contradiction in contradictory_maxima(groups, calibrated)
                for group in contradiction.groups
                for load in group.maximum_loads
            }
            required += [(len(repetitions) + number, curve, load) for curve, load in again for number in repetitions]
        index = max((trial.index for trial in known), default=-1) + 1
        boot, phase = max((trial.boot for trial in known), default=0), max((trial.phase for trial in known), default=1)
        required.sort(key=lambda trial: (trial[0], trial[1][0]))
        for (number, uut), on_boot in groupby(required, key=lambda trial: (trial[0], trial[1][0])):
            boot += 1
            for _, (_, scenario, sources, size), load in on_boot:
                case = self._plan.profile.scenario(scenario)
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
    if any(totals.trial.spec.victim.is_less_than_share for totals in top.everything):
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
    place = values.index(peak.load.value)
    pairs = pairwise(values[max(0, place - 1) : place + 2])
    between = [round((low + high) / 2 / _PEAK_STEP) * _PEAK_STEP for low, high in pairs if high > _FINEST * low]
    # A load below the throughput of the peak cannot give a higher throughput.
    most = peak.throughput_fps.mean / peak.offered_fps.mean if peak.throughput_fps and peak.offered_fps else 0.0
    new = (float(value) for value in between if value not in values and value > most * peak.load.value)
    return [Load(LoadKind.OF_MAXIMUM, value) for value in new]
