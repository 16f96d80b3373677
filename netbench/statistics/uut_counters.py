"""What the UUTs' own counters, and those of the machines they are on, say over all trials."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from netbench.model.counts import PointCount
from netbench.model.points import Where
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.lost_frames import uuts_with_guest


@dataclass(frozen=True, slots=True)
class UutCounter:
    """How much one counter of a UUT grew in all, in frames, and in how many trials it could be read."""

    point: str
    counter: str
    role: str  # as of PointCount
    frames: int
    trials: int


_UUT = (Where.BEFORE, Where.INSIDE, Where.UUT, Where.BEHIND)


@dataclass(slots=True)
class CounterSums:
    """What a UUT itself counted, and its machine, summed over the streams of trials that are added one by one."""

    trials: int = 0
    _growths: dict[tuple[int, str, str, str], tuple[int, int]] = field(default_factory=dict)  # frames, trials

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add a trial's, which may have them of so many added up."""
        self.trials += times
        of_trial: Counter[tuple[int, str, str, str]] = Counter()
        for one in _counted_by_uut(trial):
            if one.grew is not None:
                of_trial[one.order, one.point, one.counter, one.role] += one.grew
        for key, grew in of_trial.items():
            frames, trials = self._growths.get(key, (0, 0))
            self._growths[key] = frames + grew, trials + times

    def counters(self) -> list[UutCounter]:
        """The sums, from source to sink."""
        in_order = sorted(self._growths.items(), key=lambda item: item[0][0])
        return [UutCounter(*key[1:], frames=frames, trials=trials) for key, (frames, trials) in in_order]


def _counted_by_uut(trial: TrialResult) -> Iterator[PointCount]:
    yield from trial.victim.counters
    # The only stream of a trial has what is counted for all streams among its own counters as well.
    shared = {(one.point, one.counter) for one in trial.victim.counters}
    for counts in trial.streams:
        yield from (one for one in counts.counters if one.where in _UUT and (one.point, one.counter) not in shared)


@dataclass(slots=True)
class Counted:
    """The counters of a campaign's trials, kept apart from those: they are most of what a trial is.

    `sums` are over the valid trials, by UUT and the name of the neighbour, empty for the UUT itself. `guests` are the
    UUTs on whose path a guest counted frames, or lost them.
    """

    sums: dict[tuple[str, str], CounterSums] = field(default_factory=dict)
    guests: set[str] = field(default_factory=set)

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add those of a trial, which may have them of so many added up."""
        uut = trial.spec.uut
        if uut not in self.guests:
            self.guests |= uuts_with_guest([trial])
        if trial.verdict is Verdict.VALID:
            self.sums.setdefault((uut, ""), CounterSums()).add(trial, times)
            for one in trial.neighbours:
                own = replace(trial, guests=(one,))
                self.sums.setdefault((uut, one.name), CounterSums()).add(own, times)
