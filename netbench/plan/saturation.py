"""Early ends of sweeps, after a number of consecutive saturated loads."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netbench.model.campaign import EndedSweep
from netbench.model.frame_mix import FrameSize
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Verdict


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
        self.found: dict[LoadSweep, EndedSweep] = {}

    def skips(self, trial: TrialSpec, results: Mapping[str, TrialResult]) -> bool:
        """Return whether the sweep of a trial ends below its load."""
        sweep = LoadSweep.of(trial)
        if sweep not in self.found:
            loads = list(dict.fromkeys(planned.load for planned in self._planned[sweep]))
            first = {planned.load: planned.key for planned in self._planned[sweep] if planned.repetition == 1}
            place = loads.index(trial.load)
            below = loads[max(0, place - self._in_a_row) : place]
            if len(below) < self._in_a_row or not all(self._is_saturated(first[load], results) for load in below):
                return False
            left = [planned for planned in self._planned[sweep] if planned.load in loads[place:]]
            self.found[sweep] = EndedSweep(
                uut=sweep.uut,
                scenario=sweep.scenario,
                streams=sweep.streams,
                frame_size=sweep.frame_size,
                saturated_loads=tuple(map(str, below)),
                skipped_loads=tuple(map(str, loads[place:])),
                skipped_trials=len(left),
            )
        return self.has_left_out(trial)

    def has_left_out(self, trial: TrialSpec) -> bool:
        """Return whether the trial is above the end of a sweep that is known to have ended early."""
        ended = self.found.get(LoadSweep.of(trial))
        return ended is not None and str(trial.load) in ended.skipped_loads

    def _is_saturated(self, key: str, results: Mapping[str, TrialResult]) -> bool:
        if key not in self._saturated:
            if key not in results:
                return False
            result = results[key]
            self._saturated[key] = result.is_saturated and result.verdict is not Verdict.INVALID
        return self._saturated[key]
