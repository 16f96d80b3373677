"""How guests shared a host: what neighbours were offered and forwarded, how fair that was, the CPU time of each."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.units import Load
from netbench.statistics.counted import NEIGHBOURS_OFFERED_MBPS, NEIGHBOURS_THROUGHPUT_MBPS
from netbench.statistics.groups import Group, Victim, grouped
from netbench.statistics.intervals import Interval, known_interval, mean_interval
from netbench.statistics.totals import LOAD, Totals, TrialTotals, ratio


@dataclass(frozen=True, slots=True)
class Background:
    """All neighbours of a victim that forward, together, averaged over all its valid trials in one scenario.

    Mbit/s are L1. "Averaged offered bandwidth (in) and throughput measured (out)" (Schlosser et al. 2011, Tables 2
    and 3): over the victim's loads as much as over repetitions, so the intervals span both. None where no trial knows.
    """

    victim: Victim
    scenario: str
    activities: tuple[str, ...]  # what the neighbours that forward do, each once
    offered_mbps: Interval | None
    throughput_mbps: Interval | None


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


@dataclass(frozen=True, slots=True)
class NeighbourCpu:
    """CPU time of one neighbour as shares of one CPU, as CpuUse has the victim's.

    `load` is what the processes of its load used, as its own kernel counts it.
    """

    name: str
    activity: str
    guest: Interval | None
    host: Interval | None
    load: Interval | None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU time in one scenario of a UUT as shares of one CPU: 1 is one CPU all the time the counters were watched.

    Averaged over all valid trials, whatever their frame size and load; None where no trial knows. `guest` is the
    victim's as its own kernel counts it, `host` what the victim cost the host, `machine` all that the machine of the
    UUT did: every guest, sources and sinks where they are on it, and the rest.
    """

    uut: str
    scenario: str
    guest: Interval | None
    host: Interval | None
    machine: Interval | None
    neighbours: tuple[NeighbourCpu, ...]


def background(groups: Iterable[Group]) -> tuple[Background, ...]:
    """The background of each victim and scenario in which a neighbour forwards, in the order of the groups.

    What has no valid trial is left out.
    """
    sharing = (group for group in groups if group.valid and group.forwarding)
    together = grouped(sharing, lambda group: (group.victim, group.scenario))
    return tuple(_background(victim, scenario, loads) for (victim, scenario), loads in together.items())


def _background(victim: Victim, scenario: str, loads: list[Group]) -> Background:
    trials = [one for group in loads for one in group.valid]
    return Background(
        victim=victim,
        scenario=scenario,
        activities=tuple(dict.fromkeys(one.activity for group in loads for one in group.forwarding)),
        offered_mbps=NEIGHBOURS_OFFERED_MBPS.over(trials),
        throughput_mbps=NEIGHBOURS_THROUGHPUT_MBPS.over(trials),
    )


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
    names = [one.name for one in group.forwarding]
    shares = [found for trial in group.valid if (found := _shares(trial, names))]
    if not names or not shares:
        return None
    victim_share, *neighbour_shares = (mean_interval(of_guest) for of_guest in zip(*shares, strict=True))
    return Fairness(
        victim=group.victim,
        scenario=group.scenario,
        load=group.load,
        index=mean_interval([jain_index(of_trial) for of_trial in shares]),
        victim_share=victim_share,
        neighbour_shares=dict(zip(names, neighbour_shares, strict=True)),
    )


def _shares(trial: TrialTotals, names: Iterable[str]) -> list[float]:
    """Throughput ÷ offered load of the victim and the neighbours of these names; empty unless they make an index."""
    guests: list[Totals | None] = [trial, *(trial.neighbour(name) for name in names)]
    shares = [None if guest is None else ratio(guest.throughput_fps, guest.offered_fps) for guest in guests]
    known = [share for share in shares if share is not None]
    return known if len(known) == len(guests) and any(known) else []


def cpu_use(groups: Iterable[Group]) -> tuple[CpuUse, ...]:
    """The CPU use of each UUT and scenario with a valid trial, in the order of the groups."""
    together = grouped((group for group in groups if group.valid), lambda group: (group.uut, group.scenario))
    return tuple(
        _use(uut, scenario, [one for group in own for one in group.valid]) for (uut, scenario), own in together.items()
    )


def _use(uut: str, scenario: str, trials: Sequence[TrialTotals]) -> CpuUse:
    neighbours = grouped((one for trial in trials for one in trial.neighbours), lambda one: one.name)
    return CpuUse(
        uut=uut,
        scenario=scenario,
        guest=_share("guest", trials),
        host=_share("host", trials),
        machine=_share("machine", trials),
        neighbours=tuple(
            NeighbourCpu(name, seen[0].activity, _share("guest", seen), _share("host", seen), _share(LOAD, seen))
            for name, seen in neighbours.items()
        ),
    )


def _share(whose: str, totals: Sequence[Totals]) -> Interval | None:
    return known_interval(one.cpu_share(whose) for one in totals)
