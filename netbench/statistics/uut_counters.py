"""What a UUT's own counters, and those of the machine it is on, say over all its trials."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from netbench.model.counts import HopCount
from netbench.model.points import rank
from netbench.model.trial import TrialResult

_COUNTED_OUTSIDE = frozenset({"generator", "source NIC", "ingress NIC", "egress NIC", "sink NIC", "capture"})


@dataclass(frozen=True, slots=True)
class UutCounter:
    """How much one counter of a UUT grew in all, in frames, and in how many trials it could be read."""

    hop: str
    counter: str
    role: str  # as of HopCount
    frames: int
    trials: int


def uut_counters(trials: Iterable[TrialResult]) -> list[UutCounter]:
    """What the UUT itself counted, summed over trials and streams, from source to sink."""
    growths: dict[tuple[str, str, str], list[int]] = {}
    for trial in trials:
        of_trial: dict[tuple[str, str, str], int] = {}
        for hop in _counted_by_uut(trial):
            if hop.grew is not None:
                key = (hop.hop, hop.counter, hop.role)
                of_trial[key] = of_trial.get(key, 0) + hop.grew
        for key, grew in of_trial.items():
            growths.setdefault(key, []).append(grew)
    counters = [UutCounter(*key, frames=sum(grown), trials=len(grown)) for key, grown in growths.items()]
    return sorted(counters, key=lambda one: rank(one.hop))


def _counted_by_uut(trial: TrialResult) -> Iterator[HopCount]:
    yield from trial.victim.hops
    # The only stream of a trial has what is counted for all streams among its own hops as well.
    shared = {(hop.hop, hop.counter) for hop in trial.victim.hops}
    for counts in trial.streams:
        yield from (
            hop for hop in counts.hops if hop.hop not in _COUNTED_OUTSIDE and (hop.hop, hop.counter) not in shared
        )
