"""The maxima that neighbours' loads refer to: the most throughput measured while the neighbours were idle."""

from collections.abc import Iterable
from statistics import mean

from netbench.model.maximum import Maximum
from netbench.model.scenario import SHARED_IDLE
from netbench.model.trial import TrialResult
from netbench.model.units import Load
from netbench.model.verdict import Verdict
from netbench.results.store import Store
from netbench.statistics.totals import TrialTotals


class Maxima:
    """The maxima of one campaign. One that was found is kept in the store and stays what it is."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known = {(one.uut, one.frame_size): one for one in store.maxima()}

    def of(self, uut: str, frame_size: int) -> Maximum | None:
        """The maximum of a UUT for frames of this size; None while no trial that counts has found one."""
        if (uut, frame_size) not in self._known:
            found = find_maximum(self._store.trials(uut=uut, scenario=SHARED_IDLE), uut, frame_size)
            if found is None:
                return None
            self._store.keep_maximum(found)
            self._known[uut, frame_size] = found
        return self._known[uut, frame_size]


def find_maximum(trials: Iterable[TrialResult], uut: str, frame_size: int) -> Maximum | None:
    """The highest mean throughput of a stream at any load, from valid trials with idle neighbours and fewest sources.

    Schlosser et al. 2011, section 3.4: "the maximum rate", measured with the second guest being idle.
    """
    measured: dict[tuple[int, Load], list[float]] = {}
    for trial in trials:
        spec = trial.spec
        if (spec.uut, spec.scenario, spec.frame_size) != (uut, SHARED_IDLE, frame_size):
            continue
        throughput = TrialTotals.of(trial).throughput_fps
        if trial.verdict is Verdict.VALID and throughput is not None:
            sources = len(spec.streams)
            measured.setdefault((sources, spec.load), []).append(throughput / sources)
    fewest = min((sources for sources, _ in measured), default=0)
    means = {load: (mean(values), len(values)) for (sources, load), values in measured.items() if sources == fewest}
    if not means:
        return None
    load = max(means, key=lambda one: means[one][0])
    fps, repetitions = means[load]
    return Maximum(uut, frame_size, fps, str(load), repetitions) if fps > 0 else None
