"""What the neighbours were offered and forwarded while the victim was measured: the paper's Tables 2 and 3."""

from collections.abc import Iterable
from dataclasses import dataclass

from netbench.statistics.groups import Group
from netbench.statistics.interference.throughput_change import Victim
from netbench.statistics.intervals import Interval, known_interval


@dataclass(frozen=True, slots=True)
class Background:
    """All neighbours of a victim that forward, together, averaged over all its valid trials in one scenario.

    Mbit/s are L1. "Averaged offered bandwidth (in) and throughput measured (out)" (Schlosser et al. 2011, Tables 2
    and 3): over the victim's loads as much as over repetitions, so the intervals span both. None where no trial knows.
    """

    victim: Victim
    scenario: str
    activities: tuple[str, ...]  # what the neighbours that forward do, each once
    trials: int
    offered_mbps: Interval | None
    throughput_mbps: Interval | None
    loss_ratio: Interval | None


def background(groups: Iterable[Group]) -> tuple[Background, ...]:
    """The background of each victim and scenario in which a neighbour forwards, in the order of the groups.

    What has no valid trial is left out.
    """
    together: dict[tuple[Victim, str], list[Group]] = {}
    for group in groups:
        if group.valid and any(one.frame_size is not None for one in group.neighbours):
            together.setdefault((Victim.of(group), group.scenario), []).append(group)
    return tuple(_background(victim, scenario, loads) for (victim, scenario), loads in together.items())


def _background(victim: Victim, scenario: str, loads: list[Group]) -> Background:
    trials = [one for group in loads for one in group.valid]
    forwarding = [one for group in loads for one in group.neighbours if one.frame_size is not None]
    return Background(
        victim=victim,
        scenario=scenario,
        activities=tuple(dict.fromkeys(one.activity for one in forwarding)),
        trials=len(trials),
        offered_mbps=known_interval(one.neighbours_offered_mbps for one in trials),
        throughput_mbps=known_interval(one.neighbours_throughput_mbps for one in trials),
        loss_ratio=known_interval(one.neighbours_loss_ratio for one in trials),
    )
