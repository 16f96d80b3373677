"""How the streams of one guest shared its throughput: Jain's index, and whether their means differ."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean

from netbench.model.counts import l1_mbps
from netbench.model.units import Load
from netbench.statistics.groups import Group, Victim
from netbench.statistics.intervals import Interval, mean_interval
from netbench.statistics.sharing import jain_index
from netbench.statistics.significance import ALPHA, FEWEST, holm, paired_p
from netbench.statistics.totals import TrialTotals

# Sources differ by their clocks: smaller differences are no property of the guest.
_LEAST_DIFFERENCE = 0.001


@dataclass(frozen=True, slots=True)
class StreamFairness:
    """The fairness between the streams of a victim at one load.

    `index` is Jain's index of the streams' throughputs: 1 if all are equal, 1/n if one of n streams has everything.
    `throughput_mbps` are L1 by stream. `p` is the smallest p of the paired t tests of all pairs of streams, corrected
    for their number (Holm); None with fewer than three trials. All are over the valid trials. `differ`: the means of
    two streams differ significantly, and by 0.1 % or more, as Schlosser et al. 2011, section 4, report of three
    streams; None if that is unknown.
    """

    victim: Victim
    scenario: str
    load: Load
    index: Interval
    throughput_mbps: Mapping[str, Interval]
    p: float | None
    differ: bool | None


def stream_fairness(groups: Iterable[Group]) -> tuple[StreamFairness, ...]:
    """Return the fairness of each measurement with several streams, in the order of the groups."""
    return tuple(fairness for group in groups if (fairness := fairness_of_streams(group)) is not None)


def fairness_of_streams(group: Group) -> StreamFairness | None:
    """Return the fairness of the streams of a measurement; None with a single stream, or if a throughput is unknown."""
    trials = [rates for totals in group.valid if any(rates := _rates(totals))]
    if group.sources < 2 or not trials:
        return None
    names = group.valid[0].trial.spec.streams
    of_streams = list(zip(*trials, strict=True))
    size = group.frame_size.mean_bytes
    return StreamFairness(
        group.victim,
        group.scenario,
        group.load,
        mean_interval([jain_index(rates) for rates in trials]),
        {
            name: mean_interval([l1_mbps(rate, size) or 0.0 for rate in rates])
            for name, rates in zip(names, of_streams, strict=True)
        },
        *_test(of_streams),
    )


def _rates(totals: TrialTotals) -> list[float]:
    """Return the throughput of each stream in frames/s; empty if any is unknown."""
    rates = [None if counts is None else counts.throughput_fps for counts in totals.streams]
    known = [rate for rate in rates if rate is not None]
    return known if len(known) == len(rates) else []


def _test(of_streams: Sequence[Sequence[float]]) -> tuple[float | None, bool | None]:
    """Return the smallest corrected p of two streams, and whether any two differ significantly by 0.1 % or more."""
    pairs = list(combinations(of_streams, 2))
    is_large = [abs(fmean(a) - fmean(b)) >= _LEAST_DIFFERENCE * max(fmean(a), fmean(b)) for a, b in pairs]
    if len(of_streams[0]) < FEWEST:
        return None, None if any(is_large) else False
    ps = [paired_p([a - b for a, b in zip(first, second, strict=True)]) for first, second in pairs]
    known = [(p, large) for p, large in zip(ps, is_large, strict=True) if p is not None]
    corrected = holm([p for p, _ in known])
    differ = any(p <= ALPHA and large for p, (_, large) in zip(corrected, known, strict=True))
    return min(corrected, default=None), differ
