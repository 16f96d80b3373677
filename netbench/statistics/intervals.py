"""Repetitions to a mean, and two means to their ratio, each with its confidence interval."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from math import ceil, floor, log10, sqrt

CONFIDENCE = 0.95
_MOST_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of `n` repetitions and the half width of its 95 % interval, both in the unit of the values.

    `half_width` is None for a single repetition: how far it would scatter is unknown, not 0.
    """

    mean: float
    half_width: float | None
    n: int

    def scaled(self, factor: float) -> "Interval":
        """The same interval in a unit of which one old unit is `factor` (0 or more)."""
        half_width = None if self.half_width is None else self.half_width * factor
        return Interval(self.mean * factor, half_width, self.n)


def mean_interval(values: Sequence[float]) -> Interval:
    """The mean of some repetitions and its two-sided 95 % Student-t interval; ValueError for none.

    mean ± t(0.975; n − 1) · s / √n with the sample standard deviation s (NIST/SEMATECH e-Handbook of
    Statistical Methods, section 1.3.5.2 "Confidence Limits for the Mean"). Schlosser et al. 2011,
    section 4, give 95 % intervals of means over nine repetitions.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no repetitions, no mean")
    mean = float(statistics.mean(values))  # exact: equal values have themselves as their mean
    if n == 1:
        return Interval(mean, None, 1)
    return Interval(mean, _student_t(n - 1) * statistics.stdev(values) / sqrt(n), n)


def known_interval(values: Iterable[float | None]) -> Interval | None:
    """The mean of the numbers that are known, with its interval; None without any."""
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None


class Unknown(Enum):
    """Why a ratio has no interval. The value is what people read."""

    ONE_REPETITION = "one repetition"
    BASE_IS_ZERO = "the baseline is 0"
    BASE_MAY_BE_ZERO = "the baseline may be 0"
    NOT_MEASURED = "too few valid trials at the load of the baseline's maximum"
    BASE_NOT_MEASURED = "too few valid trials in the baseline at the load of this maximum"


@dataclass(frozen=True, slots=True)
class RatioOfMeans:
    """The mean of `n_new` repetitions ÷ the mean of `n_base` others, and the limits of its 95 % interval.

    The limits are None when they are unknown, and `unknown` says why; `ratio` is None when the baseline is 0, or
    when there is nothing that could be compared to it.
    """

    ratio: float | None
    low: float | None
    high: float | None
    n_new: int
    n_base: int
    unknown: Unknown | None = None

    @property
    def change(self) -> float | None:
        """Relative change: ratio − 1."""
        return _less_one(self.ratio)

    @property
    def change_low(self) -> float | None:
        """The lower limit of the relative change."""
        return _less_one(self.low)

    @property
    def change_high(self) -> float | None:
        """The upper limit of the relative change."""
        return _less_one(self.high)

    @property
    def significant(self) -> bool | None:
        """Whether the interval leaves out "no change"; None when there is none."""
        return None if self.low is None or self.high is None else not self.low <= 1 <= self.high

    @property
    def excluded(self) -> float | None:
        """The largest change, of either sign, that the data does not exclude; None unless there is no significant one.

        A change above it, up or down, can be excluded.
        """
        if self.low is None or self.high is None or self.significant:
            return None
        return max(1 - self.low, self.high - 1)


def ratio_of_means(new: Sequence[float], base: Sequence[float]) -> RatioOfMeans:
    """The mean of `new` ÷ the mean of `base`, independent samples whose variances may differ; ValueError for none.

    The 95 % interval is Fieller's: all r for which |mean(new) − r · mean(base)| is at most t times its standard error
    √(s²(new)/n + r² s²(base)/n) (Fieller 1954, "Some problems in interval estimation"; Franz 2007, "Ratios: A short
    guide to confidence limits and proper use", arXiv:0710.2024). t has the degrees of freedom of Satterthwaite (1946)
    for new − r · base with r the ratio found (Tamhane and Logan 2004; `ttestratio` of the R package mratios). The
    interval has no limits when g = (t · standard error of the mean of base ÷ that mean)² is 1 or more: the mean of
    base then does not differ significantly from 0.
    """
    if not new or not base:
        raise ValueError("no repetitions, no ratio")
    counts = len(new), len(base)
    mean_new, mean_base = statistics.mean(new), statistics.mean(base)  # exact: equal values have themselves as mean
    if mean_base == 0:
        return RatioOfMeans(None, None, None, *counts, Unknown.BASE_IS_ZERO)
    ratio = float(mean_new / mean_base)
    if min(counts) == 1:
        return RatioOfMeans(ratio, None, None, *counts, Unknown.ONE_REPETITION)
    # Squared standard errors of both means, in units of the mean of base.
    of_new = statistics.variance(new) / len(new) / mean_base**2
    of_base = statistics.variance(base) / len(base) / mean_base**2
    t = _student_t(_degrees(of_new, len(new), ratio**2 * of_base, len(base)))
    g = t**2 * of_base
    if g >= 1:
        return RatioOfMeans(ratio, None, None, *counts, Unknown.BASE_MAY_BE_ZERO)
    reach = t * sqrt((1 - g) * of_new + ratio**2 * of_base)
    return RatioOfMeans(ratio, (ratio - reach) / (1 - g), (ratio + reach) / (1 - g), *counts)


def statement(ratio: RatioOfMeans) -> str:
    """What may be said about a relative change.

    `−18.2 % (−21.0 … −15.3 %)`; `no significant change: one above 3.1 % can be excluded`;
    `unknown: one repetition (−18.2 % measured)`.
    """
    if ratio.unknown is not None:
        measured = "" if ratio.change is None else f" ({_signed(ratio.change, _decimals(ratio.change))} % measured)"
        return f"unknown: {ratio.unknown.value}{measured}"
    if ratio.excluded is None:
        changes = [one for one in (ratio.change, ratio.change_low, ratio.change_high) if one is not None]
        change, low, high = (_signed(one, _decimals(*changes)) for one in changes)
        return f"{change} % ({low} … {high} %)"
    if ratio.excluded == 0:
        return "no change: all repetitions alike"
    return f"no significant change: one above {_at_least(ratio.excluded)} % can be excluded"


def _student_t(degrees: float) -> float:
    """The quantile of Student's t that leaves half of what is beyond the confidence on each side."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a third of a second that only results need

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _less_one(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def _degrees(of_new: float, n_new: int, of_base: float, n_base: int) -> float:
    """Degrees of freedom of a difference of two means whose squared standard errors are given (Satterthwaite 1946)."""
    if of_new == 0:
        return n_base - 1
    share = of_base / of_new  # the squares of two very small numbers could vanish
    return (1 + share) ** 2 / (1 / (n_new - 1) + share**2 / (n_base - 1))


def _decimals(*changes: float) -> int:
    """How many decimals the smallest change needs in percent to show that it is not 0; one at least."""
    smallest = min((abs(100 * change) for change in changes if change), default=1.0)
    return min(max(-floor(log10(smallest)), 1), _MOST_DECIMALS)


def _signed(change: float, decimals: int) -> str:
    return f"{100 * change:+,.{decimals}f}".replace("-", "−")


def _at_least(change: float) -> str:
    """A change in percent, rounded up: what is above the number shown is above the change, too."""
    decimals = _decimals(change)
    steps = round(100 * change * 10**decimals, 6)  # what the multiplications added is no reason to round up
    return f"{ceil(steps) / 10**decimals:,.{decimals}f}"
