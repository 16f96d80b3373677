"""How guests shared a host: load and throughput of the neighbours, fairness, and the CPU time of each guest."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.units import Load
from netbench.statistics.groups import Group, Victim, grouped
from netbench.statistics.intervals import Interval, known_interval, mean_interval
from netbench.statistics.totals import (
    LOAD,
    NEIGHBOURS_OFFERED_MBPS,
    NEIGHBOURS_THROUGHPUT_MBPS,
    Totals,
    TrialTotals,
    ratio,
)


@dataclass(frozen=True, slots=True)
class Background:
    """All forwarding neighbours of a victim together, averaged over all its valid trials in one scenario.

    Mbit/s are L1. "Averaged offered bandwidth (in) and throughput measured (out)" (Schlosser et al. 2011, Tables 2
    and 3): intervals span the victim's loads as well as the repetitions. None if unknown in all trials.
    """

    victim: Victim
    scenario: str
    activities: tuple[str, ...]  # distinct activities of the forwarding neighbours
    offered_mbps: Interval | None
    throughput_mbps: Interval | None


@dataclass(frozen=True, slots=True)
class Fairness:
    """Jain's index over the forwarding guests, and the share of its frames that each of them forwarded.

    Intervals are over the valid trials in which all shares are known and not all are 0.
    """

    victim: Victim
    scenario: str
    load: Load
    index: Interval
    victim_share: Interval
    neighbour_shares: Mapping[str, Interval]


@dataclass(frozen=True, slots=True)
class NeighbourCpu:
    """CPU time of one neighbour as shares of one CPU, as in CpuUse for the victim.

    `load` is the CPU time of the processes of its load, counted by its own kernel.
    """

    name: str
    activity: str
    guest: Interval | None
    host: Interval | None
    load: Interval | None


@dataclass(frozen=True, slots=True)
class CpuUse:
    """CPU time in one scenario of a UUT as shares of one CPU: 1 is one CPU during the whole observed time.

    Averaged over all valid trials of any frame size and load; None if unknown in all trials. `guest` is the victim's,
    counted by its own kernel; `host` is the CPU time that the victim costs the host. `machine` is the whole machine of
    the UUT: every guest, sources and sinks that run on it, and the rest.
    """

    uut: str
    scenario: str
    guest: Interval | None
    host: Interval | None
    machine: Interval | None
    neighbours: tuple[NeighbourCpu, ...]


def background(groups: Iterable[Group]) -> tuple[Background, ...]:
    """Return the background of each victim and scenario in which a neighbour forwards, in the order of the groups.

    Scenarios without a valid trial are left out.
    """
    sharing = (group for group in groups if group.valid and group.forwarding)
    found = []
    for (victim, scenario), loads in grouped(sharing, lambda group: (group.victim, group.scenario)).items():
        trials = [trial for group in loads for trial in group.valid]
        activities = tuple(dict.fromkeys(str(neighbour.activity) for group in loads for neighbour in group.forwarding))
        means = NEIGHBOURS_OFFERED_MBPS.over(trials), NEIGHBOURS_THROUGHPUT_MBPS.over(trials)
        found.append(Background(victim, scenario, activities, *means))
    return tuple(found)


def fairness(groups: Iterable[Group]) -> tuple[Fairness, ...]:
    """Return the fairness of each measurement in which a neighbour forwards, in the order of the groups."""
    return tuple(result for group in groups if (result := _of_group(group)) is not None)


def jain_index(shares: Sequence[float]) -> float:
    """Return Jain's fairness index (Σx)² ÷ (n · Σx²) of the shares of n guests, x_i = throughput ÷ offered of guest i.

    It is 1 if all shares are equal, and k/n if k guests have equal shares and the others none (Jain, Chiu, Hawe 1984,
    "A Quantitative Measure of Fairness and Discrimination for Resource Allocation in Shared Computer Systems",
    DEC-TR-301). ValueError for no shares, a negative one, or none above 0.
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
    names = [neighbour.name for neighbour in group.forwarding]
    shares = [trial_shares for trial in group.valid if (trial_shares := _shares(trial, names))]
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
    """Return throughput ÷ offered load of the victim and the named neighbours; empty if any is unknown or all are 0."""
    guests: list[Totals | None] = [trial, *(trial.neighbour(name) for name in names)]
    shares = [None if guest is None else ratio(guest.throughput_fps, guest.offered_fps) for guest in guests]
    known = [share for share in shares if share is not None]
    return known if len(known) == len(guests) and any(known) else []


def cpu_use(groups: Iterable[Group]) -> tuple[CpuUse, ...]:
    """Return the CPU use of each UUT and scenario with a valid trial, in the order of the groups."""
    together = grouped((group for group in groups if group.valid), lambda group: (group.uut, group.scenario))
    return tuple(
        _use(uut, scenario, [trial for group in uut_groups for trial in group.valid])
        for (uut, scenario), uut_groups in together.items()
    )


def _use(uut: str, scenario: str, trials: Sequence[TrialTotals]) -> CpuUse:
    neighbours = grouped(
        (neighbour for trial in trials for neighbour in trial.neighbours), lambda neighbour: neighbour.name
    )
    return CpuUse(
        uut=uut,
        scenario=scenario,
        guest=_share("guest", trials),
        host=_share("host", trials),
        machine=_share("machine", trials),
        neighbours=tuple(
            NeighbourCpu(name, str(seen[0].activity), _share("guest", seen), _share("host", seen), _share(LOAD, seen))
            for name, seen in neighbours.items()
        ),
    )


def _share(whose: str, totals: Sequence[Totals]) -> Interval | None:
    return known_interval(guest.cpu_share(whose) for guest in totals)
