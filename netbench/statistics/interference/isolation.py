"""How evenly the victim and its forwarding neighbours got through what they were offered."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.units import Load
from netbench.statistics.groups import Group
from netbench.statistics.interference.throughput_change import Victim
from netbench.statistics.intervals import Interval, mean_interval
from netbench.statistics.totals import Totals, TrialTotals, ratio


@dataclass(frozen=True, slots=True)
class Fairness:
    """Jain's index over the guests that forward, and the share of its frames that each of them got through.

    Intervals are over those valid trials in which all shares are known and not all are 0.
    """

    victim: Victim
    scenario: str
    load: Load
    index: Interval
    victim_share: Interval
    neighbour_shares: Mapping[str, Interval]


def fairness(groups: Iterable[Group]) -> tuple[Fairness, ...]:
    """The fairness of each measurement in which a neighbour forwards, in the order of the groups."""
    return tuple(one for group in groups if (one := _of_group(group)) is not None)


def jain_index(shares: Sequence[float]) -> float:
    """Jain's fairness index (Σx)² ÷ (n · Σx²) of what each of n guests got, x_i = throughput ÷ offered of guest i.

    1 when all got the same share, k/n when k of them share alike and the others get nothing (Jain, Chiu, Hawe 1984,
    "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems",
    DEC-TR-301). ValueError for no shares, a negative one, or none above 0: of nothing there is no fair part.
    """
    if not shares:
        raise ValueError("no shares, no fairness")
    if min(shares) < 0:
        raise ValueError(f"a share is 0 or more, not {min(shares)}")
    largest = max(shares)
    if largest == 0:
        raise ValueError("all shares are 0: there is nothing to share")
    parts = [share / largest for share in shares]  # the index does not depend on the unit
    return sum(parts) ** 2 / (len(parts) * sum(part**2 for part in parts))


def _of_group(group: Group) -> Fairness | None:
    names = [one.name for one in group.neighbours if one.frame_size is not None]
    shares = [found for trial in group.valid if (found := _shares(trial, names))]
    if not names or not shares:
        return None
    victim_share, *neighbour_shares = (mean_interval(of_guest) for of_guest in zip(*shares, strict=True))
    return Fairness(
        victim=Victim.of(group),
        scenario=group.scenario,
        load=group.load,
        index=mean_interval([jain_index(of_trial) for of_trial in shares]),
        victim_share=victim_share,
        neighbour_shares=dict(zip(names, neighbour_shares, strict=True)),
    )


def _shares(trial: TrialTotals, names: Iterable[str]) -> list[float]:
    """Received ÷ sent of the victim, then of the neighbours of these names; empty unless they make an index."""
    guests: list[Totals | None] = [trial, *(trial.neighbour(name) for name in names)]
    shares = [None if guest is None else ratio(guest.received_frames, guest.sent_frames) for guest in guests]
    known = [share for share in shares if share is not None]
    return known if len(known) == len(guests) and any(known) else []
