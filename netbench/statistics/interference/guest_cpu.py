"""What CPU time each guest and the whole machine used, scenario by scenario."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval, known_interval
from netbench.statistics.totals import LOAD, NeighbourTotals, Totals, TrialTotals


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
    trials: int
    guest: Interval | None
    host: Interval | None
    machine: Interval | None
    neighbours: tuple[NeighbourCpu, ...]


def cpu_use(groups: Iterable[Group]) -> tuple[CpuUse, ...]:
    """The CPU use of each UUT and scenario with a valid trial, in the order of the groups."""
    together: dict[tuple[str, str], list[TrialTotals]] = {}
    for group in groups:
        if group.valid:
            together.setdefault((group.uut, group.scenario), []).extend(group.valid)
    return tuple(_use(uut, scenario, trials) for (uut, scenario), trials in together.items())


def _use(uut: str, scenario: str, trials: Sequence[TrialTotals]) -> CpuUse:
    neighbours: dict[str, list[NeighbourTotals]] = {}
    for trial in trials:
        for one in trial.neighbours:
            neighbours.setdefault(one.name, []).append(one)
    return CpuUse(
        uut=uut,
        scenario=scenario,
        trials=len(trials),
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
