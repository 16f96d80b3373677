"""Repetitions to a mean with its confidence interval."""

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import sqrt

CONFIDENCE = 0.95


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
    return Interval(mean, student_t(n - 1) * statistics.stdev(values) / sqrt(n), n)


def known_interval(values: Iterable[float | None]) -> Interval | None:
    """The mean of the numbers that are known, with its interval; None without any."""
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None


def student_t(degrees: float) -> float:
    """The quantile of Student's t that leaves half of what is beyond the confidence on each side."""
    from scipy.special import stdtrit  # noqa: PLC0415 - a third of a second that only results need

    return float(stdtrit(degrees, (1 + CONFIDENCE) / 2))
