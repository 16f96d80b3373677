"""The maxima that neighbours' loads refer to: the most throughput measured while the neighbours were idle."""

from collections.abc import Iterable
from statistics import mean

from netbench.model.campaign import Maximum
from netbench.model.scenario import SHARED_IDLE, Network
from netbench.model.trial import TrialResult
from netbench.model.units import Load
from netbench.model.verdict import Verdict
from netbench.statistics.totals import TrialTotals


class MaximumSearch:
    """Finds the highest mean throughput of a stream at any load, from valid trials with idle neighbours.

    Of all numbers of sources, the fewest count. Schlosser et al. 2011, section 3.4: "the maximum rate", measured with
    the second guest being idle.
    """

    def __init__(self) -> None:
        self._measured: dict[tuple[str, int], dict[tuple[int, Load], list[float]]] = {}
        self._referred_to: dict[tuple[str, int], None] = {}

    def add(self, trial: TrialResult) -> None:
        """Take one more trial into account."""
        spec = trial.spec
        for task in spec.neighbours:
            if isinstance(task.activity, Network) and task.activity.share is not None and task.traffic is not None:
                self._referred_to[spec.uut, task.activity.frame_size] = None
        if spec.scenario != SHARED_IDLE or trial.verdict is not Verdict.VALID:
            return
        throughput = TrialTotals.of(trial).throughput_fps
        if throughput is not None:
            sources = len(spec.streams)
            measured = self._measured.setdefault((spec.uut, spec.frame_size), {})
            measured.setdefault((sources, spec.load), []).append(throughput / sources)

    def maximum(self, uut: str, frame_size: int) -> Maximum | None:
        """The maximum of a UUT for frames of this size; None while no trial that counts has found one."""
        measured = self._measured.get((uut, frame_size), {})
        fewest = min((sources for sources, _ in measured), default=0)
        means = {load: (mean(values), len(values)) for (sources, load), values in measured.items() if sources == fewest}
        if not means:
            return None
        load = max(means, key=lambda one: means[one][0])
        fps, repetitions = means[load]
        return Maximum(uut, frame_size, fps, str(load), repetitions) if fps > 0 else None

    def referred_to(self) -> tuple[Maximum, ...]:
        """The maxima of which loads of neighbours were a share."""
        found = (self.maximum(*of_what) for of_what in self._referred_to)
        return tuple(one for one in found if one is not None)


def find_maximum(trials: Iterable[TrialResult], uut: str, frame_size: int) -> Maximum | None:
    """The maximum of a UUT for frames of this size, from these trials."""
    search = MaximumSearch()
    for trial in trials:
        search.add(trial)
    return search.maximum(uut, frame_size)
