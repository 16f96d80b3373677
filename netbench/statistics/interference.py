"""Interference: how much throughput neighbours leave to a victim.

The most beside a neighbour relative to the most without (Table 1 and Figure 5 of Schlosser et al. 2011), which is the
isolation index; the matrix of victims and scenarios; curves over what the neighbours are offered.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.frame_mix import long_as
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Idle
from netbench.model.units import Load
from netbench.statistics.groups import Group, Victim, best_groups, grouped
from netbench.statistics.intervals import Interval, RatioOfMeans, Unknown, ratio_of_intervals


@dataclass(frozen=True, slots=True)
class RelativeMaximum:
    """The highest throughput of a victim in one scenario relative to the most it had in the baseline.

    `best` and `base` are the groups that had it, not always of the same load. `ratio` is of the means over their
    repetitions, in frames/s.
    """

    best: Group
    base: Group
    ratio: RatioOfMeans

    @property
    def victim(self) -> Victim:
        """Whose maximum it is."""
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
        """1 when the victim is undisturbed, less when it lost throughput; None where the ratio is unknown."""
        return self.ratio.ratio


@dataclass(frozen=True, slots=True)
class Matrix:
    """Victims and scenarios; a cell is missing where relative_maxima() has nothing to say."""

    victims: tuple[Victim, ...]
    scenarios: tuple[str, ...]
    cells: Mapping[tuple[Victim, str], RelativeMaximum]


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

    `load` is the one at which the victim had the highest throughput in its baseline. `disturbance` says what the
    neighbours do, their rates left out: `64-byte frames`.
    """

    victim: Victim
    load: Load
    disturbance: str
    points: tuple[CurvePoint, ...]


def baselines(best: Iterable[Group]) -> dict[Victim, Group]:
    """Of each victim the best group of its baseline: of `dedicated`, or else of `shared-idle`."""
    found: dict[Victim, Group] = {}
    for group in best:
        if group.scenario == DEDICATED or (group.scenario == SHARED_IDLE and group.victim not in found):
            found[group.victim] = group
    return found


def relative_maxima(groups: Iterable[Group]) -> tuple[RelativeMaximum, ...]:
    """The relative maxima of every victim and scenario but its baseline, in the order of the groups.

    What has no baseline, or no maximum, is left out. Where the load of either maximum does not count on the other side,
    there may be nothing to compare, as compared() has it. Where neither of the two was the limit of the UUT, as
    with_limits() has it, the ratio is unknown; where one was not, it is a bound.
    """
    everything = tuple(groups)
    best = best_groups(everything)
    bases, counted = baselines(best), counted_loads(everything)
    found = []
    for group in best:
        base = bases.get(group.victim)
        if base is not None and group is not base and (ratio := compared(group, base, counted)) is not None:
            found.append(RelativeMaximum(group, base, ratio))
    return tuple(found)


CountedLoads = Mapping[tuple[Victim, str, Load], bool]


def counted_loads(groups: Iterable[Group]) -> CountedLoads:
    """By victim, scenario and load whether that counts as a maximum, of all loads that were tried."""
    return {(*_side(one), one.load): one.counts_as_maximum for one in groups}


def compared(new: Group, base: Group, counted: CountedLoads) -> RatioOfMeans | None:
    """One maximum ÷ another of frames of the same size, which may be of another UUT or scenario; None without a mean.

    Symmetric: the higher one has to be at a load that counts on the side of the lower one too, whichever that is, or
    one that nobody tried there though its own limit had been found. `counted` are all loads of the campaign.
    """
    if new.uut == base.uut:
        most, most_of_base = new.maximum_of_run_fps, base.maximum_of_run_fps
    else:
        most, most_of_base = new.maximum_fps, base.maximum_fps
    if most is None or most_of_base is None:
        return None

    def tried(load_of: Group, side: Group) -> bool:
        known = side.limited_by == ""  # its plateau is, whatever became of higher loads
        return known or any(counted.get((*_side(side), load), not side.limited_by) for load in load_of.maximum_loads)

    return ratio_of_maxima(
        most,
        most_of_base,
        base_load_counts=tried(base, new),
        new_load_counts=tried(new, base),
        base_is_limit=not base.limited_by,
        new_is_limit=not new.limited_by,
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
    """One maximum ÷ another; unknown where the lower one was not looked for at the load of the higher one.

    `base_load_counts`: whether the load of the base's maximum counts in what is new; `new_load_counts` the other way.
    Where one is no limit of the UUT (`base_is_limit`, `new_is_limit`) it may be higher, and the ratio is a bound; where
    both are none, it is unknown.
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
    """Of each UUT the one with the lowest isolation index, of those with limits if any has; the first of several."""
    known = ((one, one.isolation_index) for one in maxima if one.isolation_index is not None)
    by_uut = grouped(known, lambda one: one[0].victim.uut)
    return tuple(min(own, key=lambda one: (one[0].ratio.unknown is not None, one[1]))[0] for own in by_uut.values())


def matrix(groups: Sequence[Group]) -> Matrix:
    """Every victim, in the order of the groups, and what each scenario did to it."""
    cells = {(one.victim, one.scenario): one for one in relative_maxima(groups)}
    compared = {scenario for _, scenario in cells}
    return Matrix(
        victims=tuple(dict.fromkeys(victim for victim, _ in cells)),
        scenarios=tuple(dict.fromkeys(group.scenario for group in groups if group.scenario in compared)),
        cells=cells,
    )


def curves(groups: Iterable[Group]) -> tuple[Curve, ...]:
    """A curve for each victim and each kind of disturbance, in the order of the groups.

    Groups are in the order of group_trials(): of loads with equally much throughput in the baseline the lowest counts.
    What has no baseline is left out, as are points without valid trials and curves without a forwarding neighbour.
    """
    everything = tuple(groups)
    found = []
    for victim, base in baselines(best_groups(everything)).items():
        steps = [one for one in everything if one.victim == victim and one.load == base.load]
        idle = next((one for one in steps if one.scenario == SHARED_IDLE), None)
        for doing, alike in grouped((step for step in steps if step.forwarding), _disturbances).items():
            if points := _points(alike, idle):
                found.append(Curve(victim, base.load, _in_words(doing), points))
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


def _disturbances(step: Group) -> tuple[tuple[str, str], ...]:
    """What each neighbour does, its rate left out, by its name."""
    return tuple(
        (one.name, one.activity if one.frame_size is None else f"{long_as(one.frame_size)} frames")
        for one in step.neighbours
    )


def _in_words(doing: Sequence[tuple[str, str]]) -> str:
    whats = {what for _, what in doing}
    return whats.pop() if len(whats) == 1 else ", ".join(f"{name}: {what}" for name, what in doing)
