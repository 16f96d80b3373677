"""Interference curves: what is left to the victim as its neighbours are offered more and more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from netbench.model.scenario import SHARED_IDLE, Idle
from netbench.model.units import Load
from netbench.statistics.groups import Group, NeighbourGroup, best_groups
from netbench.statistics.interference.throughput_change import Victim, baselines
from netbench.statistics.intervals import Interval


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The victim in one scenario; bandwidths in Mbit/s (L1). The neighbours' are of all of them together.

    `neighbours_offered_mbps` is exactly 0 where they are idle.
    """

    scenario: str
    neighbours_offered_mbps: Interval
    neighbours_throughput_mbps: Interval | None
    throughput_mbps: Interval
    loss_ratio: Interval | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A victim at one load of its own, the points in rising order of what its neighbours were offered.

    `load` is the one at which the victim had the most throughput in its baseline, `base` that measurement.
    `disturbance` says what the neighbours do, their rates left out: `64-byte frames`.
    """

    victim: Victim
    load: Load
    base: Group
    disturbance: str
    points: tuple[CurvePoint, ...]


def curves(groups: Iterable[Group]) -> tuple[Curve, ...]:
    """A curve for each victim and each kind of disturbance, in the order of the groups.

    Groups are in the order of group_trials(): of loads with equally much throughput in the baseline the lowest counts.
    What has no baseline is left out, as are points without valid trials and curves without a forwarding neighbour.
    """
    everything = tuple(groups)
    found = []
    for victim, base in baselines(best_groups(everything)).items():
        steps = [one for one in everything if Victim.of(one) == victim and one.load == base.load]
        idle = next((one for one in steps if one.scenario == SHARED_IDLE), None)
        by_disturbance: dict[tuple[tuple[str, str], ...], list[Group]] = {}
        for step in steps:
            if any(one.frame_size is not None for one in step.neighbours):
                doing = tuple((one.name, _disturbance(one)) for one in step.neighbours)
                by_disturbance.setdefault(doing, []).append(step)
        for doing, alike in by_disturbance.items():
            points = _points(alike, idle)
            if points:
                found.append(Curve(victim, base.load, base, _in_words(doing), points))
    return tuple(found)


def _points(steps: Sequence[Group], idle: Group | None) -> tuple[CurvePoint, ...]:
    measured = [point for step in steps if (point := _point(step, step.neighbours_offered_mbps)) is not None]
    if measured and idle is not None and _comes_from(idle, steps[0]):
        at_rest = _point(idle, Interval(0.0, 0.0, len(idle.valid)))
        measured += [] if at_rest is None else [at_rest]
    return tuple(sorted(measured, key=lambda point: point.neighbours_offered_mbps.mean))


def _point(step: Group, offered: Interval | None) -> CurvePoint | None:
    throughput = step.throughput_mbps
    if offered is None or throughput is None:
        return None
    return CurvePoint(step.scenario, offered, step.neighbours_throughput_mbps, throughput, step.loss_ratio)


def _comes_from(idle: Group, step: Group) -> bool:
    """Whether the neighbours of a step do nothing but forward, so that at a rate of 0 they would be these idle ones."""
    doing_nothing = str(Idle())
    return {one.name for one in step.neighbours} == {one.name for one in idle.neighbours} and all(
        one.frame_size is not None or one.activity == doing_nothing for one in step.neighbours
    )


def _disturbance(neighbour: NeighbourGroup) -> str:
    return neighbour.activity if neighbour.frame_size is None else f"{neighbour.frame_size}-byte frames"


def _in_words(doing: Sequence[tuple[str, str]]) -> str:
    whats = {what for _, what in doing}
    return whats.pop() if len(whats) == 1 else ", ".join(f"{name}: {what}" for name, what in doing)
