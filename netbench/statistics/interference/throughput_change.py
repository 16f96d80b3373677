"""The most throughput beside a neighbour relative to the most without: the paper's Table 1 and Figure 5, the isolation
index, and the matrix of victims and scenarios.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.scenario import DEDICATED, SHARED_IDLE
from netbench.statistics.groups import Group, best_groups
from netbench.statistics.ratios import RatioOfMeans, Unknown, ratio_of_means


@dataclass(frozen=True, slots=True)
class Victim:
    """Whose throughput it is: a UUT, how many sources send through it, and their frame size in bytes with FCS."""

    uut: str
    sources: int
    frame_size: int

    @classmethod
    def of(cls, group: Group) -> "Victim":
        """The victim of a group."""
        return cls(group.uut, group.sources, group.frame_size)


@dataclass(frozen=True, slots=True)
class RelativeMaximum:
    """The most throughput of a victim in one scenario relative to the most it had in the baseline.

    `best` and `base` are the groups that had it, not always of the same load. `ratio` is of the means over their
    repetitions, in frames/s.
    """

    best: Group
    base: Group
    ratio: RatioOfMeans

    @property
    def victim(self) -> Victim:
        """Whose maximum it is."""
        return Victim.of(self.best)

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


def baselines(best: Iterable[Group]) -> dict[Victim, Group]:
    """Of each victim the best group of its baseline: of `dedicated`, or else of `shared-idle`."""
    found: dict[Victim, Group] = {}
    for group in best:
        victim = Victim.of(group)
        if group.scenario == DEDICATED or (group.scenario == SHARED_IDLE and victim not in found):
            found[victim] = group
    return found


def relative_maxima(groups: Iterable[Group]) -> tuple[RelativeMaximum, ...]:
    """The relative maxima of every victim and scenario but its baseline, in the order of the groups.

    What has no baseline, or no valid trial, is left out. Where the maximum is at another load than in the baseline, and
    lower, because no trial at that load is valid, there is nothing to compare: the ratio is unknown.
    """
    everything = tuple(groups)
    best = best_groups(everything)
    bases = baselines(best)
    unmeasured = {(Victim.of(one), one.scenario, one.load) for one in everything if not one.valid}
    found = []
    for group in best:
        victim = Victim.of(group)
        base = bases.get(victim)
        if base is None or group is base:
            continue
        ratio = ratio_of_means(_throughputs(group), _throughputs(base))
        lower = ratio.ratio is not None and ratio.ratio < 1
        if lower and (victim, group.scenario, base.load) in unmeasured:
            ratio = RatioOfMeans(None, None, None, ratio.n_new, ratio.n_base, Unknown.NOT_MEASURED)
        found.append(RelativeMaximum(group, base, ratio))
    return tuple(found)


def worst_isolation(maxima: Iterable[RelativeMaximum]) -> tuple[RelativeMaximum, ...]:
    """Of each UUT the one with the lowest isolation index; the first of several as low."""
    worst: dict[str, tuple[float, RelativeMaximum]] = {}
    for one in maxima:
        index, uut = one.isolation_index, one.victim.uut
        if index is not None and (uut not in worst or index < worst[uut][0]):
            worst[uut] = index, one
    return tuple(one for _, one in worst.values())


def matrix(groups: Sequence[Group]) -> Matrix:
    """Every victim, in the order of the groups, and what each scenario did to it."""
    cells = {(one.victim, one.scenario): one for one in relative_maxima(groups)}
    compared = {scenario for _, scenario in cells}
    return Matrix(
        victims=tuple(dict.fromkeys(victim for victim, _ in cells)),
        scenarios=tuple(dict.fromkeys(group.scenario for group in groups if group.scenario in compared)),
        cells=cells,
    )


def _throughputs(group: Group) -> list[float]:
    """Frames/s of each valid repetition; never empty for a best group."""
    return [fps for one in group.valid if (fps := one.throughput_fps) is not None]
