"""The maxima that neighbours' loads refer to: the most throughput measured while the neighbours were idle."""

from collections.abc import Iterable

from netbench.model.campaign import Maximum
from netbench.model.frame_mix import FrameSize
from netbench.model.scenario import SHARED_IDLE, Network
from netbench.model.trial import TrialResult
from netbench.statistics.groups import best_groups, gathered
from netbench.statistics.totals import TrialTotals


class MaximumSearch:
    """Finds the highest mean throughput of a stream at any load that counts, with idle neighbours.

    Of all numbers of sources, the fewest count. Schlosser et al. 2011, section 3.4: "the maximum rate", measured with
    the second guest being idle.
    """

    def __init__(self) -> None:
        self._idle: dict[tuple[str, FrameSize], list[TrialTotals]] = {}
        self._referred_to: dict[tuple[str, FrameSize], None] = {}

    def add(self, trial: TrialResult) -> None:
        """Take one more trial into account."""
        spec = trial.spec
        for task in spec.neighbours:
            if isinstance(task.activity, Network) and task.activity.share is not None and task.traffic is not None:
                self._referred_to[spec.uut, task.activity.frame_size] = None
        if spec.scenario == SHARED_IDLE:
            self._idle.setdefault((spec.uut, spec.frame_size), []).append(TrialTotals.of(trial.without_counters))

    def maximum(self, uut: str, frame_size: FrameSize) -> Maximum | None:
        """The maximum of a UUT for frames of this size; None while no load that counts has found one."""
        groups = gathered(self._idle.get((uut, frame_size), ()))
        fewest = min((group.sources for group in groups), default=0)
        best = next(iter(best_groups(group for group in groups if group.sources == fewest)), None)
        fps = best.throughput_fps if best else None
        if best is None or fps is None or fps.mean == 0:
            return None
        return Maximum(uut, frame_size, fps.mean / fewest, str(best.load), fps.n)

    def referred_to(self) -> tuple[Maximum, ...]:
        """The maxima of which loads of neighbours were a share."""
        found = (self.maximum(*of_what) for of_what in self._referred_to)
        return tuple(one for one in found if one is not None)


def find_maximum(trials: Iterable[TrialResult], uut: str, frame_size: FrameSize) -> Maximum | None:
    """The maximum of a UUT for frames of this size, from these trials."""
    search = MaximumSearch()
    for trial in trials:
        search.add(trial)
    return search.maximum(uut, frame_size)
