"""The interval of the relative change from one campaign to another.

It covers three sources of variation: the units of replication within each campaign (boots, or trials where there is a
single boot), the variation between runs of the same campaign, and the number of cells that are compared at once.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from math import isfinite, sqrt
from statistics import fmean

from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import DifferenceOfMeans, Interval, RatioOfMeans, ratio_of_intervals
from netbench.statistics.significance import ALPHA, FEWEST
from netbench.statistics.totals import CountedNumber, Totals

# The standard deviation between runs of the same campaign ÷ that between the units within a run. On a virtual machine
# with 2 CPUs it was 0.6 to 1.5 in six runs of three UUTs, 25 s apart.
RUN_PART = 1.0
MOST_UNITS = 1000  # the most repetitions that a profile may have
_NORMAL_95 = 1.959964  # standard deviations in the half width of a 95 % interval


def units_of(group: Group, number: CountedNumber[Totals]) -> tuple[float, ...]:
    """Return the independent values of a number over the valid trials of a group.

    These are the means of its boots, or of its repetitions if all were measured on one boot. A repetition has several
    trials if the group has several loads, those of a plateau.
    """
    known = [(totals.trial, value) for totals in group.valid if (value := number.read(totals)) is not None]
    boots = grouped(known, lambda pair: pair[0].boot)
    if len(boots) < 2 or 0 in boots:
        boots = grouped(known, lambda pair: pair[0].spec.repetition)
    return tuple(fmean(value for _, value in unit) for unit in boots.values())


@dataclass(frozen=True, slots=True)
class SideMean:
    """The mean of one side of a comparison; standard deviations are in its unit.

    `unit_deviation` is the standard deviation between the `units`, `run_deviation` that between runs of the campaign.
    `least_error` is the least standard error of the mean that the number of counted frames allows.
    """

    mean: float
    units: int
    unit_deviation: float
    run_deviation: float = 0.0
    least_error: float = 0.0

    @property
    def sampling_variance(self) -> float:
        """The variance of the mean due to the scatter of its units."""
        return max(self.unit_deviation**2 / self.units, self.least_error**2)

    @property
    def variance(self) -> float:
        """The variance of the mean between campaigns."""
        return self.sampling_variance + self.run_deviation**2


def deviation_of_noise_floor(half_width: float) -> float:
    """Return the standard deviation between runs, as a ratio, for a noise floor (a 95 % half width)."""
    return half_width / _NORMAL_95


def change_interval(new: SideMean, base: SideMean, tests: int) -> RatioOfMeans:
    """Return the ratio of two means with its 95 % interval, corrected for `tests` such intervals (Bonferroni).

    This is Fieller's interval as in `ratio_of_intervals`, with the degrees of freedom of Welch and Satterthwaite. In at
    least 95 % of comparisons, all intervals contain their true ratios.
    """
    if min(new.units, base.units) < 2:
        return ratio_of_intervals(Interval(new.mean, None, new.units), Interval(base.mean, None, base.units))
    quantile = _quantile(new, base, tests)
    sides = (Interval(side.mean, quantile * sqrt(side.variance), side.units) for side in (new, base))
    return ratio_of_intervals(*sides)


def difference_interval(new: SideMean, base: SideMean, tests: int) -> DifferenceOfMeans:
    """Return the difference of two means with its half width; the interval is that of change_interval()."""
    difference = new.mean - base.mean
    if min(new.units, base.units) < 2:
        return DifferenceOfMeans(difference, None)
    quantile = _quantile(replace(new, mean=1.0), replace(base, mean=1.0), tests)
    return DifferenceOfMeans(difference, quantile * sqrt(new.variance + base.variance))


def detectable_change(new: SideMean, base: SideMean, tests: int) -> float | None:
    """Return the smallest detectable relative change: the half width of its interval; None if unknown."""
    if min(new.units, base.units) < 2 or not base.mean:
        return None
    width = _quantile(new, base, tests) * sqrt(new.variance + base.variance) / base.mean
    return width if isfinite(width) else None


def units_needed(new: SideMean, base: SideMean, tests: int, width: float) -> int | None:
    """Return how many units each side needs for an interval of this relative half width, if they scatter as these do.

    None if MOST_UNITS are too few, for example because the variation between runs alone is larger.
    """

    def is_enough(units: int) -> bool:
        change = detectable_change(replace(new, units=units), replace(base, units=units), tests)
        return change is not None and change <= width

    # If a number is enough, all larger ones are too.
    units = bisect_left(range(MOST_UNITS + 1), True, lo=FEWEST, key=is_enough)
    return units if units <= MOST_UNITS else None


def _quantile(new: SideMean, base: SideMean, tests: int) -> float:
    """Return Student's t for one of `tests` two-sided 95 % intervals."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a third of a second and only results need it

    ratio = new.mean / base.mean if base.mean else 1.0
    first, second = new.variance, ratio**2 * base.variance
    # Both parts of a side's variance are estimated from its units.
    uncertain = first**2 / (new.units - 1) + second**2 / (base.units - 1)
    degrees = (first + second) ** 2 / uncertain if uncertain else float("inf")
    return float(stdtrit(min(degrees, 1e6), 1 - ALPHA / max(tests, 1) / 2))
