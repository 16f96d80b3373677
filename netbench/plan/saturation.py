"""When a sweep is over before its end: so many of its loads in a row were saturated."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from netbench.model.campaign import EndedSweep
from netbench.model.frame_mix import FrameSize
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.verdict import Verdict


class Sweep(NamedTuple):
    """The trials that differ in load and repetition only."""

    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: FrameSize

    @classmethod
    def of(cls, trial: TrialSpec) -> "Sweep":
        """The one that a trial belongs to."""
        return cls(trial.uut, trial.scenario, trial.streams, trial.frame_size)


class EarlyEnds:
    """Finds the sweeps of a plan that are over once `in_a_row` of their loads one above the other were saturated.

    Of each load its first repetition decides, which is planned before any trial of a higher load: so what is skipped
    depends on results that are there by then and stay as they are, and every load has all its repetitions or none.
    """

    def __init__(self, planned: Sequence[TrialSpec], in_a_row: int) -> None:
        self._in_a_row = in_a_row
        self._planned: dict[Sweep, list[TrialSpec]] = {}
        for trial in planned:
            self._planned.setdefault(Sweep.of(trial), []).append(trial)
        self._saturated: dict[str, bool] = {}
        self.found: dict[Sweep, EndedSweep] = {}

    def skips(self, trial: TrialSpec, results: Mapping[str, TrialResult]) -> bool:
        """Whether the sweep of a trial is over below its load."""
        sweep = Sweep.of(trial)
        if sweep not in self.found:
            loads = list(dict.fromkeys(one.load for one in self._planned[sweep]))
            first = {one.load: one.key for one in self._planned[sweep] if one.repetition == 1}
            place = loads.index(trial.load)
            below = loads[max(0, place - self._in_a_row) : place]
            if len(below) < self._in_a_row or not all(self._is_saturated(first[load], results) for load in below):
                return False
            left = [one for one in self._planned[sweep] if one.load in loads[place:]]
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
        """Whether it is of a sweep that was found to be over, and above its end."""
        ended = self.found.get(Sweep.of(trial))
        return ended is not None and str(trial.load) in ended.skipped_loads

    def _is_saturated(self, key: str, results: Mapping[str, TrialResult]) -> bool:
        if key not in self._saturated:
            if key not in results:
                return False
            found = results[key]
            self._saturated[key] = found.is_saturated and found.verdict is not Verdict.INVALID
        return self._saturated[key]
