"""Sums of the counters of the UUTs and of their machines over all trials."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from netbench.model.counts import PointCount
from netbench.model.points import PathSection
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.lost_frames import uuts_with_guest


@dataclass(frozen=True, slots=True)
class UutCounter:
    """The total growth of one counter of a UUT, in frames, and the number of trials in which it could be read."""

    point: str
    counter: str
    role: str  # as in PointCount
    frames: int
    trials: int


_UUT = (PathSection.BEFORE, PathSection.INSIDE, PathSection.UUT, PathSection.BEHIND)


@dataclass(slots=True)
class CounterSums:
    """The counts of a UUT and of its machine, summed over the streams of trials that are added one by one."""

    trials: int = 0
    _growths: dict[tuple[int, str, str, str], tuple[int, int]] = field(default_factory=dict)  # frames, trials

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add the counters of a trial, which may be the sum over `times` trials."""
        self.trials += times
        of_trial: Counter[tuple[int, str, str, str]] = Counter()
        for count in _counted_by_uut(trial):
            if count.grew is not None:
                of_trial[count.order, count.point, count.counter, count.role] += count.grew
        for key, grew in of_trial.items():
            frames, trials = self._growths.get(key, (0, 0))
            self._growths[key] = frames + grew, trials + times

    def counters(self) -> list[UutCounter]:
        """Return the sums, from source to sink."""
        in_order = sorted(self._growths.items(), key=lambda item: item[0][0])
        return [UutCounter(*key[1:], frames=frames, trials=trials) for key, (frames, trials) in in_order]


def _counted_by_uut(trial: TrialResult) -> Iterator[PointCount]:
    yield from trial.victim.counters
    # The only stream of a trial repeats the counters of all streams among its own counters.
    shared = {(count.point, count.counter) for count in trial.victim.counters}
    for counts in trial.streams:
        yield from (
            count for count in counts.counters if count.where in _UUT and (count.point, count.counter) not in shared
        )


@dataclass(slots=True)
class CounterTotals:
    """The counters of a campaign's trials, stored separately because they are most of a trial's data.

    `sums` are over the valid trials, by UUT and the name of the neighbour, empty for the UUT itself. `guests` are the
    UUTs on whose path a guest counted or lost frames.
    """

    sums: dict[tuple[str, str], CounterSums] = field(default_factory=dict)
    guests: set[str] = field(default_factory=set)

    def add(self, trial: TrialResult, times: int = 1) -> None:
        """Add the counters of a trial, which may be the sum over `times` trials."""
        uut = trial.spec.uut
        if uut not in self.guests:
            self.guests |= uuts_with_guest([trial])
        if trial.verdict is Verdict.VALID:
            self.sums.setdefault((uut, ""), CounterSums()).add(trial, times)
            for neighbour in trial.neighbours:
                alone = replace(trial, guests=(neighbour,))
                self.sums.setdefault((uut, neighbour.name), CounterSums()).add(alone, times)
