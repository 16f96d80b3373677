"""Interference: how much throughput neighbours leave to a victim.

This module computes the isolation index, which is the highest throughput beside neighbours ÷ that without (Table 1 and
Figure 5 of Schlosser et al. 2011); the matrix of victims and scenarios; and curves over the neighbours' offered load.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.limits import LIMITED_BY_UUT
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Idle
from netbench.model.units import Load
from netbench.statistics.groups import Group, Victim, best_groups, grouped
from netbench.statistics.intervals import Interval, RatioOfMeans, Unknown, ratio_of_intervals


@dataclass(frozen=True, slots=True)
class RelativeMaximum:
    """The highest throughput of a victim in one scenario relative to that in the baseline.

    `best` and `base` are the groups with these maxima, not always at the same load. `ratio` is that of the means over
    their repetitions, in frames/s.
    """

    best: Group
    base: Group
    ratio: RatioOfMeans

    @property
    def victim(self) -> Victim:
        """The victim with this maximum."""
        return self.best.victim

    @property
    def scenario(self) -> str:
        """The scenario compared."""
        return self.best.scenario

    @property
    def baseline(self) -> str:
        """The scenario it is compared to."""
        return self.base.scenario

    @property
    def isolation_index(self) -> float | None:
        """1 if the victim is undisturbed, less if it lost throughput; None if the ratio is unknown."""
        return self.ratio.ratio


@dataclass(frozen=True, slots=True)
class Matrix:
    """Victims and scenarios; a cell without a result of relative_maxima() is missing."""

    victims: tuple[Victim, ...]
    scenarios: tuple[str, ...]
    cells: Mapping[tuple[Victim, str], RelativeMaximum]


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """The victim in one scenario; bandwidths in Mbit/s (L1). The neighbours' values are sums over all of them.

    `neighbours_offered_mbps` is exactly 0 if they are idle.
    """

    scenario: str
    neighbours_offered_mbps: Interval
    neighbours_throughput_mbps: Interval | None
    throughput_mbps: Interval
    loss_ratio: Interval | None


@dataclass(frozen=True, slots=True)
class Curve:
    """A victim at one fixed load; points are in rising order of its neighbours' offered load.

    `load` is the one at which the victim had the highest throughput in its baseline. `disturbance` is the activity of
    the neighbours without their rates: `64-byte frames`.
    """

    victim: Victim
    load: Load
    disturbance: str
    points: tuple[CurvePoint, ...]


def baselines(best: Iterable[Group]) -> dict[Victim, Group]:
    """Return the best group of the baseline of each victim: `dedicated`, or else `shared-idle`."""
    bases: dict[Victim, Group] = {}
    for group in best:
        if group.scenario == DEDICATED or (group.scenario == SHARED_IDLE and group.victim not in bases):
            bases[group.victim] = group
    return bases


def relative_maxima(groups: Iterable[Group]) -> tuple[RelativeMaximum, ...]:
    """Return the relative maxima of every victim and scenario except its baseline, in the order of the groups.

    Scenarios without a baseline or a maximum are left out. If the load of one maximum does not count on the other side,
    there may be nothing to compare (see compared()). If neither maximum is a limit of the UUT (see with_limits()), the
    ratio is unknown. If only one is, it is a bound.
    """
    everything = tuple(groups)
    best = best_groups(everything)
    bases, counted = baselines(best), counted_loads(everything)
    maxima = []
    for group in best:
        base = bases.get(group.victim)
        if base is not None and group is not base and (ratio := compared(group, base, counted)) is not None:
            maxima.append(RelativeMaximum(group, base, ratio))
    return tuple(maxima)


CountedLoads = Mapping[tuple[Victim, str, Load], bool]


def counted_loads(groups: Iterable[Group]) -> CountedLoads:
    """Return by victim, scenario and load whether it counts as a maximum, for all loads that were tried."""
    return {(*_side(group), group.load): group.counts_as_maximum for group in groups}


def compared(new: Group, base: Group, counted: CountedLoads) -> RatioOfMeans | None:
    """Return one maximum ÷ another for the same frame size, also of another UUT or scenario; None without a mean.

    The rule is symmetric: the load of the higher maximum must count on the side of the lower one too, or must not have
    been tried there although the limit of that side was found. `counted` contains all loads of the campaign.
    """
    if new.uut == base.uut:
        most, most_of_base = new.maximum_of_run_fps, base.maximum_of_run_fps
    else:
        most, most_of_base = new.maximum_fps, base.maximum_fps
    if most is None or most_of_base is None:
        return None

    def tried(load_of: Group, side: Group) -> bool:
        known = side.limited_by == LIMITED_BY_UUT  # its plateau is known for any result of higher loads
        return known or any(
            counted.get((*_side(side), load), not side.is_lower_bound) for load in load_of.maximum_loads
        )

    return ratio_of_maxima(
        most,
        most_of_base,
        base_load_counts=tried(base, new),
        new_load_counts=tried(new, base),
        base_is_limit=not base.is_lower_bound,
        new_is_limit=not new.is_lower_bound,
    )


def _side(group: Group) -> tuple[Victim, str]:
    return group.victim, group.scenario


def ratio_of_maxima(
    new: Interval,
    base: Interval,
    *,
    base_load_counts: bool,
    new_load_counts: bool,
    base_is_limit: bool = True,
    new_is_limit: bool = True,
) -> RatioOfMeans:
    """Return one maximum ÷ another; unknown if the lower one was not measured at the load of the higher one.

    `base_load_counts`: the load of the base's maximum counts on the new side; `new_load_counts`: the reverse. A maximum
    that is no limit of the UUT (`base_is_limit`, `new_is_limit`) may be higher, and the ratio is a bound. If neither is
    a limit, the ratio is unknown.
    """
    ratio = ratio_of_intervals(new, base)
    unknown = None
    if ratio.ratio is not None and ratio.ratio < 1 and not base_load_counts:
        unknown = Unknown.NOT_MEASURED
    if ratio.ratio is not None and ratio.ratio > 1 and not new_load_counts:
        unknown = Unknown.BASE_NOT_MEASURED
    if not (base_is_limit or new_is_limit):
        unknown = Unknown.BOTH_AT_LEAST
    if unknown is not None:
        return RatioOfMeans(None, None, None, ratio.n_new, ratio.n_base, unknown)
    if not base_is_limit:
        return replace(ratio, low=None, bound="≤")
    return ratio if new_is_limit else replace(ratio, high=None, bound="≥")


def worst_isolation(maxima: Iterable[RelativeMaximum]) -> tuple[RelativeMaximum, ...]:
    """Return the relative maximum with the lowest isolation index of each UUT; the first of several.

    If any of a UUT has an interval, only those with an interval count.
    """
    known = ((maximum, maximum.isolation_index) for maximum in maxima if maximum.isolation_index is not None)
    by_uut = grouped(known, lambda pair: pair[0].victim.uut)
    return tuple(
        min(pairs, key=lambda pair: (pair[0].ratio.unknown is not None, pair[1]))[0] for pairs in by_uut.values()
    )


def matrix(groups: Sequence[Group]) -> Matrix:
    """Return the relative maxima of every victim, in the order of the groups, in each scenario."""
    cells = {(maximum.victim, maximum.scenario): maximum for maximum in relative_maxima(groups)}
    compared = {scenario for _, scenario in cells}
    return Matrix(
        victims=tuple(dict.fromkeys(victim for victim, _ in cells)),
        scenarios=tuple(dict.fromkeys(group.scenario for group in groups if group.scenario in compared)),
        cells=cells,
    )


def curves(groups: Iterable[Group]) -> tuple[Curve, ...]:
    """Return a curve for each victim and each kind of disturbance, in the order of the groups.

    Groups are in the order of group_trials(): of loads with equal throughput in the baseline, the lowest counts. Left
    out are victims without a baseline, points without valid trials, and curves without a forwarding neighbour.
    """
    everything = tuple(groups)
    drawn = []
    for victim, base in baselines(best_groups(everything)).items():
        steps = [group for group in everything if group.victim == victim and group.load == base.load]
        idle = next((group for group in steps if group.scenario == SHARED_IDLE), None)
        for doing, alike in grouped((step for step in steps if step.forwarding), _disturbances).items():
            if points := _points(alike, idle):
                drawn.append(Curve(victim, base.load, _in_words(doing), points))
    return tuple(drawn)


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
    """Return whether the neighbours of a step only forward, so that at a rate of 0 they equal these idle ones."""
    return {guest.name for guest in step.neighbours} == {guest.name for guest in idle.neighbours} and all(
        guest.frame_size is not None or isinstance(guest.activity, Idle) for guest in step.neighbours
    )


def _disturbances(step: Group) -> tuple[tuple[str, str], ...]:
    """Return the name and the activity of each neighbour, without its rate."""
    return tuple(
        (guest.name, str(guest.activity) if guest.frame_size is None else f"{guest.frame_size.long_as} frames")
        for guest in step.neighbours
    )


def _in_words(doing: Sequence[tuple[str, str]]) -> str:
    whats = {what for _, what in doing}
    return whats.pop() if len(whats) == 1 else ", ".join(f"{name}: {what}" for name, what in doing)
