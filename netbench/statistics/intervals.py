"""Means of repetitions, and ratios and differences of means, with confidence intervals."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from math import ceil, floor, fsum, hypot, log, log10, sqrt
from statistics import fmean, median
from typing import Literal

from netbench.model.campaign import NoiseFloor

CONFIDENCE = 0.95
MOST_REPETITIONS = 50  # the highest number that is ever recommended
_MOST_DECIMALS = 6
_FEWEST_CORRELATED = 5  # values: the correlation of fewer is unknown
_MOST_CORRELATED = 0.9


@dataclass(frozen=True, slots=True)
class Interval:
    """The mean of `n` repetitions and the half width of its 95 % interval, both in the unit of the values.

    `half_width` is None for a single repetition: its scatter is unknown, not 0. It is never 0 for counts of frames.
    `boots` is the number of boots of the repetitions, 0 if unknown.
    """

    mean: float
    half_width: float | None
    n: int
    boots: int = 0

    def scaled(self, factor: float) -> "Interval":
        """Return the same interval in another unit: one old unit is `factor` (0 or more) new ones."""
        half_width = None if self.half_width is None else self.half_width * factor
        return replace(self, mean=self.mean * factor, half_width=half_width)

    def widened(self, relative: float | None) -> "Interval":
        """Return the interval with an independent uncertainty of ± `relative` × mean added, such as a noise floor.

        Independent contributions add as squares (JCGM 100:2008, "Guide to the expression of uncertainty in
        measurement", section 5.1.2).
        """
        if self.half_width is None or not relative:
            return self
        return replace(self, half_width=hypot(self.half_width, relative * self.mean))

    @property
    def degrees(self) -> int:
        """The degrees of freedom of the half width: boots − 1, or repetitions − 1 within one boot."""
        return (self.boots if self.boots > 1 else self.n) - 1

    @property
    def standard_error(self) -> float | None:
        """The standard error of the mean, from the half width; None if unknown."""
        return None if self.half_width is None else self.half_width / student_t(self.degrees)


def mean_interval(values: Sequence[float], least: float = 0.0) -> Interval:
    """Return the mean of some repetitions and its two-sided 95 % Student-t interval; ValueError for none.

    The interval is mean ± t(0.975; n − 1) · s / √n with the sample standard deviation s (NIST/SEMATECH e-Handbook of
    Statistical Methods, section 1.3.5.2 "Confidence Limits for the Mean"). Schlosser et al. 2011, section 4, report
    95 % intervals of means over nine repetitions. `least` is a lower limit of the half width of several repetitions.
    """
    n = len(values)
    if n == 0:
        raise ValueError("no repetitions, no mean")
    mean = float(values[0]) if min(values) == max(values) else fmean(values)
    if n == 1:
        return Interval(mean, None, 1)
    return Interval(mean, max(least, student_t(n - 1) * deviation_of(values, mean) / sqrt(n)), n)


def deviation_of(values: Sequence[float], mean: float) -> float:
    """Return the sample standard deviation; 0 for one value. `statistics.stdev` is too slow for thousands of cells."""
    return sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1)) if len(values) > 1 else 0.0


def known_interval(values: Iterable[float | None]) -> Interval | None:
    """Return the mean of the known numbers with its interval; None without any."""
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None


def boots_interval(values: Sequence[tuple[int, float]], least: float = 0.0) -> Interval:
    """Return the mean of repetitions on several boots and its 95 % interval; ValueError for none.

    `values` are the boot and the value of each repetition, in the order of time. The boot is the unit of replication,
    because repetitions on one boot share its memory layout, caches and placement (Kalibera and Jones 2013, "Rigorous
    benchmarking in reasonable time"; Georges et al. 2007, "Statistically rigorous Java performance evaluation"). The
    interval is Student's over the means of the boots, with boots − 1 degrees of freedom. The repetitions of a single
    boot count as fewer if consecutive ones resemble each other (effective_number). A boot of 0 is unknown: such a
    repetition counts as a boot.
    """
    by_boot: dict[object, list[float]] = {}
    for place, (boot, value) in enumerate(values):
        by_boot.setdefault(boot or f"unknown {place}", []).append(value)
    known = len({boot for boot, _ in values if boot})
    if len(by_boot) == 1 and len(values) > 1:
        (boot_values,) = by_boot.values()
        within = mean_interval(boot_values)
        assert within.half_width is not None
        half_width = within.half_width * sqrt(len(boot_values) / effective_number(boot_values))
        return replace(within, half_width=max(least, half_width), boots=1)
    between = mean_interval(list(map(fmean, by_boot.values())), least)
    return replace(between, n=len(values), boots=known)


def effective_number(values: Sequence[float]) -> float:
    """Return how many independent repetitions would determine the mean as well as these consecutive ones.

    This is n · (1 − r) ÷ (1 + r) with the correlation r between neighbours, for a first-order autoregressive process
    (Bayley and Hammersley 1946, "The 'effective' number of independent observations in an autocorrelated time series").
    The estimate of r is too low by (1 + 3 r) ÷ n (Marriott and Pope 1954, "Bias in the estimation of
    autocorrelations"), which is added. For fewer than 5 values r is unknown and taken as 0, like a negative r. With a
    known r, the result is at least 2.
    """
    n = len(values)
    mean = fmean(values) if n else 0.0
    total = fsum((value - mean) ** 2 for value in values)
    if n < _FEWEST_CORRELATED or not total:
        return float(n)
    r = fsum((earlier - mean) * (later - mean) for earlier, later in pairwise(values)) / total
    # Without correlation the estimate scatters by 1 ÷ √n: a smaller one counts as 0.
    r = 0.0 if r < 1 / sqrt(n) else min(_MOST_CORRELATED, r + (1 + 3 * r) / n)
    return max(2.0, n * (1 - r) / (1 + r))


def counting_error(events: int) -> float:
    """Return how much the true mean number of events may differ, at 95 %, from the counted number.

    For no events it is the upper limit, −ln 0.05: the "rule of three" (Hanley and Lippman-Hand 1983, "If nothing goes
    wrong, is everything all right?"). Otherwise it is the distance to the upper limit of the exact interval of a
    Poisson mean, which is the farther one (Garwood 1936, "Fiducial limits for the Poisson distribution").
    """
    if events == 0:
        return -log(1 - CONFIDENCE)
    from scipy.special import gammaincinv  # noqa: PLC0415 - takes a third of a second and only results need it

    return float(gammaincinv(events + 1, (1 + CONFIDENCE) / 2)) - events


def repetitions_for(interval: Interval, wanted: float) -> int:
    """Return the number of repetitions for a half width of at most `wanted` × mean, if they scatter as these do.

    It is 3 for a single repetition, which shows no scatter; MOST_REPETITIONS if more would be needed; and never less
    than the present number.
    """
    if interval.half_width is None:
        return 3
    spread = interval.half_width * sqrt(interval.n) / student_t(interval.degrees)
    enough = (
        n
        for n in range(max(2, interval.n), MOST_REPETITIONS)
        if student_t(n - 1) * spread / sqrt(n) <= wanted * interval.mean
    )
    return next(enough, max(interval.n, MOST_REPETITIONS))


class Unknown(Enum):
    """Why a ratio has no interval. Reports show the value."""

    ONE_REPETITION = "one repetition"
    BASE_IS_ZERO = "the baseline is 0"
    BASE_MAY_BE_ZERO = "the baseline may be 0"
    NOT_MEASURED = "too few valid trials at the load of the baseline's maximum"
    BASE_NOT_MEASURED = "too few valid trials in the baseline at the load of this maximum"
    BOTH_AT_LEAST = "both maxima are lower bounds"
    TOO_FEW = "undecided"


@dataclass(frozen=True, slots=True)
class RatioOfMeans:
    """The mean of `n_new` repetitions ÷ the mean of `n_base` others, and the limits of its 95 % interval.

    The limits are None if unknown, and `unknown` is the reason. `ratio` is None if the baseline is 0 or nothing can be
    compared with it. With a `bound` the true ratio is at most (≤) the ratio, because the base is a lower bound, or at
    least (≥) the ratio, because the new mean is one. The interval then has a limit on the bounded side; it has one on
    the other side only if the possible excess is known.
    """

    ratio: float | None
    low: float | None
    high: float | None
    n_new: int
    n_base: int
    unknown: Unknown | None = None
    bound: Literal["", "≤", "≥"] = ""

    @property
    def why_unknown(self) -> str:
        """Why there are no limits, as a text for reports; empty if there are some."""
        if self.unknown is Unknown.TOO_FEW:
            return f"{self.unknown.value} with n = {min(self.n_new, self.n_base)}"
        return self.unknown.value if self.unknown else ""

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
        """Whether the interval excludes "no change"; None if there is no interval, or it is open on that side."""
        if self.bound:
            known = self.high if self.bound == "≤" else self.low
            return True if known is not None and (known < 1 if self.bound == "≤" else known > 1) else None
        return None if self.low is None or self.high is None else not self.low <= 1 <= self.high

    @property
    def excluded(self) -> float | None:
        """The largest change, up or down, that the data does not exclude; larger ones can be excluded.

        None if the change is significant, or the interval is unknown.
        """
        if self.low is None or self.high is None or self.significant:
            return None
        return max(1 - self.low, self.high - 1)


def ratio_of_intervals(new: Interval, base: Interval) -> RatioOfMeans:
    """Return one mean ÷ another, independent one, from their 95 % intervals; both means must be 0 or more.

    The 95 % interval is Fieller's: all r for which |mean(new) − r · mean(base)| is at most its own half width (Fieller
    1954, "Some problems in interval estimation"; Franz 2007, "Ratios: A short guide to confidence limits and proper
    use", arXiv:0710.2024). That half width is √(h²(new) + r² h²(base)) with the half widths h of both. The interval
    then contains the true ratio in at least 95 % of cases, for any numbers and variances of the repetitions (Banerjee
    1960, "Approximate confidence interval for linear functions of means of k populations when the population variances
    are not equal", Sankhyā 22). It has no limits if g = (h(base) ÷ mean(base))² is 1 or more: the mean of base then
    does not differ significantly from 0.
    """
    if base.mean == 0:
        return RatioOfMeans(None, None, None, new.n, base.n, Unknown.BASE_IS_ZERO)
    ratio = new.mean / base.mean
    if new.half_width is None or base.half_width is None:
        return RatioOfMeans(ratio, None, None, new.n, base.n, Unknown.ONE_REPETITION)
    # Half widths in units of the mean of base.
    of_new, of_base = new.half_width / base.mean, base.half_width / base.mean
    g = of_base**2
    if g >= 1:
        return RatioOfMeans(ratio, None, None, new.n, base.n, Unknown.BASE_MAY_BE_ZERO)
    reach = sqrt((1 - g) * of_new**2 + (ratio * of_base) ** 2)
    low, high = (ratio - reach) / (1 - g), (ratio + reach) / (1 - g)
    if low <= 0 and high >= 1:
        return RatioOfMeans(ratio, None, None, new.n, base.n, Unknown.TOO_FEW)
    return RatioOfMeans(ratio, max(0.0, low), high, new.n, base.n)


@dataclass(frozen=True, slots=True)
class DifferenceOfMeans:
    """The new mean − that of the base, and the half width of its 95 % interval (None: one repetition)."""

    difference: float
    half_width: float | None

    @property
    def excluded(self) -> float | None:
        """The difference above which any, up or down, can be excluded; None if the interval is unknown."""
        return None if self.half_width is None else abs(self.difference) + self.half_width


def statement(ratio: RatioOfMeans) -> str:
    """Return the statement that the data permits about a relative change.

    `−18.2 % (−21.0 … −15.3 %)`; `no significant change; more than 3.1 % is excluded`;
    `unknown: one repetition (−18.2 % measured)`; `undecided with n = 2 (−18.2 % measured)`.
    """
    if ratio.unknown is not None:
        measured = "" if ratio.change is None else f" ({_signed(ratio.change, _decimals(ratio.change))} % measured)"
        return f"{'' if ratio.unknown is Unknown.TOO_FEW else 'unknown: '}{ratio.why_unknown}{measured}"
    if ratio.bound and ratio.change is not None:
        which = "the baseline" if ratio.bound == "≤" else "this maximum"
        return f"{ratio.bound} {_signed(ratio.change, _decimals(ratio.change))} %: {which} is a lower bound"
    if ratio.excluded is None:
        changes = [value for value in (ratio.change, ratio.change_low, ratio.change_high) if value is not None]
        change, low, high = (_signed(value, _decimals(*changes)) for value in changes)
        return f"{change} % ({low} … {high} %)"
    return f"no significant change; more than {_at_least(ratio.excluded)} % is excluded"


def student_t(degrees: float) -> float:
    """Return the quantile of Student's t for a two-sided interval at CONFIDENCE."""
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a third of a second and only results need it

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))


def _less_one(ratio: float | None) -> float | None:
    return None if ratio is None else ratio - 1


def _decimals(*changes: float) -> int:
    """Return how many decimals, at least one, the smallest change in percent needs so that it does not appear as 0."""
    smallest = min((abs(100 * change) for change in changes if change), default=1.0)
    return min(max(-floor(log10(smallest)), 1), _MOST_DECIMALS)


def _signed(change: float, decimals: int) -> str:
    return f"{100 * change:+,.{decimals}f}".replace("-", "−")


def _at_least(change: float) -> str:
    """Return a change in percent, rounded up, so that a value above the printed number is above the change too."""
    decimals = _decimals(change)
    steps = round(100 * change * 10**decimals, 6)  # errors of the multiplications must not cause rounding up
    return f"{ceil(steps) / 10**decimals:,.{decimals}f}"


FEWEST_REPEATS = 3  # repeats: fewer do not show their variation
_ENOUGH_FOR_MEDIAN = 5
_MOST_ABOVE = 2
# The 95 % half width, as a ratio, of the variation of maxima between runs in a virtual machine, which shares CPUs,
# caches and memory. In two series of ten runs of four UUTs the standard deviations were 3 to 18 %, 11 % pooled.
# The next run is within t(0.975; 18) · 11 % · √(1 + 1/10). This is a type B evaluation (JCGM 100:2008, section 4.3).
RUN_TO_RUN_IN_VM = 0.25
_OF_NORMAL = 1.4826  # the standard deviation of a normal distribution ÷ its median absolute deviation


def noise_floor(
    throughputs_fps: Sequence[float], trial: str, parts: float = 1.0, *, run_to_run: float = 0.0
) -> NoiseFloor | None:
    """Return the noise floor of repeats with these throughputs in frames/s; None for fewer than 3, or without frames.

    `parts` is the duration of the campaign's trials ÷ that of a repeat: a trial of the campaign counts as the mean of
    `parts` repeats. t(0.975; n − 1) · s · √(1/parts + 1/n) ÷ mean is the prediction interval of the mean of `parts`
    further repeats (Hahn and Meeker 1991, "Statistical Intervals", section 4.8). The centre is the median. With 5
    repeats or more, s is limited to twice the deviation derived from their median absolute deviation (Hampel 1974,
    "The influence curve and its role in robust estimation"), so that a single disturbed repeat does not decide.
    `run_to_run` is that of NoiseFloor.
    """
    n = len(throughputs_fps)
    if n < FEWEST_REPEATS:
        return None
    centre = median(throughputs_fps)
    if centre <= 0:
        return None
    mean = sum(throughputs_fps) / n
    deviation = sqrt(sum((value - mean) ** 2 for value in throughputs_fps) / (n - 1))
    if n >= _ENOUGH_FOR_MEDIAN:
        deviation = min(deviation, _MOST_ABOVE * _OF_NORMAL * median(abs(value - centre) for value in throughputs_fps))
    half_width = student_t(n - 1) * deviation * sqrt(1 / max(1.0, parts) + 1 / n) / centre
    return NoiseFloor(half_width, n, trial, tuple(throughputs_fps), run_to_run)
