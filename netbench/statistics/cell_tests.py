"""Tests of differences between cells: intervals and p values from the units of replication on both sides."""

from collections.abc import Sequence
from dataclasses import replace
from math import hypot, sqrt
from statistics import fmean, median

from netbench.model.units import LoadKind
from netbench.statistics.change_interval import (
    RUN_PART,
    SideMean,
    change_interval,
    deviation_of_noise_floor,
    difference_interval,
    units_of,
)
from netbench.statistics.compared_cells import Difference, Tested, is_on_one_boot
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import DifferenceOfMeans, Interval, RatioOfMeans, deviation_of, known_interval
from netbench.statistics.significance import ALPHA, FEWEST, Test, holm, paired_p, permutation_ps, smallest_p, welch_p
from netbench.statistics.totals import LOSS_RATIO, THROUGHPUT_FPS

# A UUT that forwards more than this part of its offered load hardly scatters.
_STEADY_PART = 0.95
# The 95 % half width, as a ratio, of the throughput between boots, if only one boot was measured; as for a single
# search.
SINGLE_BOOT = 0.1
NOT_YET_TESTED = Tested(Test.NONE, None)
TESTS = (Test.PERMUTATION, Test.WELCH, Test.PAIRED)  # those of which p values are corrected for each other


class UnitSamples:
    """The values of the units of replication on both sides of a difference, the base first.

    `ratios` are new ÷ base of each repetition, if both sides were measured in turn. Differences of a `family` scatter
    alike. `scales` are the means by which deviations become relative. Without `is_testable` there is no p.
    """

    def __init__(
        self,
        difference: object,
        family: tuple[object, ...],
        values: Sequence[Sequence[float]],
        intervals: Sequence[Interval | None],
        scales: Sequence[float],
        *,
        ratios: tuple[float, ...] | None = None,
        is_testable: bool = True,
    ) -> None:
        self.difference: object = difference
        self.family, self.ratios, self.testable = family, ratios, is_testable
        self.values = tuple(map(tuple, values))
        self.intervals, self.scales = tuple(intervals), tuple(scales)
        self.sizes = tuple(map(len, self.values))

    @property
    def alike(self) -> bool:
        """Whether all repetitions of both sides are equal, so that chance cannot cause a difference."""
        return len({value for values in self.values for value in values}) == 1

    @property
    def relative_variance(self) -> float | None:
        """The mean of the relative variances of both sides; None if either is unknown."""
        if min(self.sizes) < 2 or 0 in self.scales:
            return None
        pairs = zip(self.values, self.scales, strict=True)
        return sum(deviation_of(values, fmean(values)) ** 2 / scale**2 for values, scale in pairs) / 2

    def test(self, tests: int) -> Test:
        """Return the kind of test for its p, given the number of tests."""
        if self.ratios is not None:
            return Test.PAIRED
        return Test.PERMUTATION if smallest_p(*self.sizes) * tests <= ALPHA else Test.WELCH

    def t_test(self, usual: float) -> float | None:
        """Return the p of the t test; `usual` is the relative variance of the cells of the same family."""
        if self.ratios is not None:
            return paired_p([ratio - 1 for ratio in self.ratios])
        (base, new), (n_base, n_new) = self.intervals, self.sizes
        if base is None or new is None:
            return None
        first, second = (scale * sqrt(usual / n) for scale, n in zip(self.scales, (n_base, n_new), strict=True))
        return welch_p(base, new, (first, second))


class CellSamples(UnitSamples):
    """The units of replication of a cell on both sides: their throughputs, or their loss ratios.

    `comparison` is the index of its comparison.
    """

    difference: Difference

    def __init__(self, comparison: int, difference: Difference, *, of_loss: bool, in_turn: bool = False) -> None:
        read = LOSS_RATIO if of_loss else THROUGHPUT_FPS
        self.comparison = comparison
        self.groups = groups = difference.samples or (difference.base, difference.new)
        values = tuple(units_of(group, read) for group in groups)
        intervals = tuple(
            read.over(group.valid) if len(units) == len(group.valid) else known_interval(units)
            for units, group in zip(values, groups, strict=True)
        )
        super().__init__(
            difference,
            # A UUT that keeps up forwards its offered load without any scatter.
            (comparison, difference.place.uut, difference.place.scenario, any(map(_falls_short, groups))),
            values,
            intervals,
            (1.0, 1.0) if of_loss else tuple(interval.mean if interval else 0.0 for interval in intervals),
            ratios=_ratios(*groups) if in_turn else None,
            is_testable=of_loss or difference.throughput.change is not None,
        )

    def with_interval(self, usual: float, floors: tuple[float | None, float | None] | None, tests: int) -> Difference:
        """Return the difference with the interval of its change; `usual` is the relative deviation of its family.

        `floors` are the noise floors of the two campaigns; None if both sides were measured in turn in one campaign.
        """
        difference = self.difference
        if self.ratios is not None and difference.throughput.change is not None:
            return self._with_paired_interval(self.ratios, tests)
        runs: tuple[float | None, float | None] = (None, None)
        if floors is not None:
            # If all intended frames are forwarded, the clock of the source decides the throughput.
            is_limited = any(map(_is_limit_shown, (difference.base, difference.new)))
            floor_widths = (
                max(floor or 0.0, SINGLE_BOOT if is_on_one_boot(group) else 0.0) if is_limited else 0.0
                for group, floor in zip(self.groups, floors, strict=True)
            )
            base, new = map(deviation_of_noise_floor, floor_widths)
            runs = base, new
        sides = tuple(
            self._side(values, group, usual, run)
            for values, group, run in zip(self.values, self.groups, runs, strict=True)
            if values
        )
        if len(sides) < 2 or difference.throughput.change is None:
            return difference
        before, after = sides
        return self._with_sides(before, after, tests)

    def loss(self, run_part: float, tests: int) -> DifferenceOfMeans:
        """Return the difference of the loss ratios with its interval.

        `run_part` is the deviation between runs ÷ that between units.
        """
        sides = []
        for values, group in zip(self.values, self.groups, strict=True):
            mean = fmean(values)
            own = deviation_of(values, mean)
            least = deviation_of_noise_floor(LOSS_RATIO.counting_half_width(group.valid))
            sides.append(SideMean(mean, len(values), own, run_part * own, least))
        base, new = sides
        return difference_interval(new, base, tests)

    def _with_paired_interval(self, ratios: Sequence[float], tests: int) -> Difference:
        """Return the difference with an interval from the scatter of the ratios of repetitions.

        Variation that both sides have in common is not part of it.
        """
        mean, count = fmean(ratios), len(ratios)
        counted = [
            THROUGHPUT_FPS.counting_half_width(group.valid) / scale
            for group, scale in zip(self.groups, self.scales, strict=True)
            if scale
        ]
        least = deviation_of_noise_floor(hypot(*counted)) * mean
        return self._with_sides(
            SideMean(1.0, count, 0.0), SideMean(mean, count, deviation_of(ratios, mean), 0.0, least), tests
        )

    def _with_sides(self, base: SideMean, new: SideMean, tests: int) -> Difference:
        difference = self.difference
        ratio = change_interval(new, base, tests)
        if difference.throughput.bound == "≤":
            low = None if difference.place.load is None else least_ratio(ratio, difference.base, difference.new)
            ratio = replace(ratio, low=low, bound="≤")
        elif difference.throughput.bound == "≥":
            ratio = replace(ratio, high=None, bound="≥")
        return replace(difference, throughput=ratio, sides=(base, new), tests=tests)

    def _side(self, values: Sequence[float], group: Group, usual: float, run: float | None) -> SideMean:
        mean = fmean(values)
        least = deviation_of_noise_floor(THROUGHPUT_FPS.counting_half_width(group.valid))
        of_unit = max(deviation_of(values, mean), usual * mean)
        of_run = 0.0 if run is None else max(RUN_PART * of_unit, run * mean)
        return SideMean(mean, len(values), of_unit, of_run, least)


def tested_differences(pairs: Sequence[UnitSamples]) -> dict[int, Tested]:
    """Return the p of each pair by its difference, from the permutation test if that can be significant.

    The kind of test depends only on the numbers of repetitions and of cells, not on the measured values. Cells whose
    repetitions are all equal on both sides do not count as tests, because they cannot show a difference.
    """
    testable = [pair for pair in pairs if min(pair.sizes) >= FEWEST and pair.testable]
    varying = [pair for pair in testable if not pair.alike]
    usual = usual_variances(varying)
    made: dict[int, Tested] = {id(pair.difference): NOT_YET_TESTED for pair in pairs}
    made |= {id(pair.difference): Tested(Test.ALIKE, 1.0, 1.0) for pair in testable if pair.alike}
    tests = [pair.test(len(varying)) for pair in varying]
    permuted = [pair for pair, test in zip(varying, tests, strict=True) if test is Test.PERMUTATION]
    by_permutation = iter(permutation_ps([(pair.values[0], pair.values[1]) for pair in permuted]))
    ps = [
        next(by_permutation) if test is Test.PERMUTATION else pair.t_test(usual[pair.family])
        for pair, test in zip(varying, tests, strict=True)
    ]
    known = [(pair, test, p) for pair, test, p in zip(varying, tests, ps, strict=True) if p is not None]
    corrected = holm([p for _, _, p in known])
    for (pair, test, p), total in zip(known, corrected, strict=True):
        made[id(pair.difference)] = Tested(test, p, total)
    return made


def _ratios(base: Group, new: Group) -> tuple[float, ...] | None:
    """Return new ÷ base for each common repetition, from the means over its trials; None if the base may be 0."""
    sides = []
    for group in (base, new):
        trials = grouped(group.valid, lambda totals: totals.trial.spec.repetition)
        known = {
            number: [fps for totals in repetition_trials if (fps := THROUGHPUT_FPS.read(totals)) is not None]
            for number, repetition_trials in trials.items()
        }
        sides.append({number: fmean(values) for number, values in known.items() if values})
    before, after = sides
    common = [number for number in before if number in after]
    if not common or not all(before[number] for number in common):
        return None
    return tuple(after[number] / before[number] for number in common)


def _is_limit_shown(group: Group) -> bool:
    return group.is_overloaded or group.load.kind is LoadKind.MAX


def _falls_short(group: Group) -> bool:
    """Return whether a UUT forwards clearly less than the intended or offered load."""
    forwarded, offered = group.throughput_fps, group.offered_fps
    most = group.intended_fps or (offered.mean if offered else 0.0)
    return forwarded is not None and forwarded.mean < _STEADY_PART * most


def usual_variances(pairs: Sequence[UnitSamples]) -> dict[tuple[object, ...], float]:
    """Return the median of the relative variances of the cells of each family.

    Two or three repetitions may be alike by chance. On their own they would make any difference significant.
    """
    variances = {}
    for family, family_pairs in grouped(pairs, lambda pair: pair.family).items():
        known = [value for pair in family_pairs if (value := pair.relative_variance) is not None]
        variances[family] = median(known) if known else 0.0
    return variances


def least_ratio(ratio: RatioOfMeans, base: Group, new: Group) -> float | None:
    """Return the lower limit of a ratio whose base was offered less.

    With the offered load of the new campaign, the base would have forwarded at most all of it.
    """
    offered, offered_new = base.offered_fps, new.offered_fps
    if ratio.low is None or offered is None or offered_new is None or not offered_new.mean:
        return None
    return ratio.low * min(1.0, offered.mean / offered_new.mean)
