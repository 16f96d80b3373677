"""Student's t and the limit of a Poisson mean, computed here: a library takes longer to load than to make a report."""

from functools import cache
from math import exp, lgamma, log, sqrt
from statistics import NormalDist

_BISECTIONS = 60  # to the last digit
_NEWTON_STEPS = 4  # from a value that is right to a thousandth: likewise
_NEGLIGIBLE = 1e-17
_FARTHEST = 1e150  # whose square is still a number


def beyond_t(t: float, degrees: float) -> float:
    """How likely a number that Student's t with so many degrees of freedom describes is `t` (≥ 0) or farther from 0.

    I(x; degrees ÷ 2, ½) with x = degrees ÷ (degrees + t²), the incomplete beta function (Abramowitz and Stegun 1964,
    equations 26.7.1 and 26.5.27).
    """
    if t > _FARTHEST:
        return 0.0
    square = t * t
    return _incomplete_beta(degrees / (degrees + square), square / (degrees + square), degrees / 2, 0.5)


@cache
def t_quantile(confidence: float, degrees: int) -> float:
    """The t that a number described by Student's t is nearer to 0 than with this `confidence`, 0 … 1."""
    low, high = 0.0, 1.0
    while beyond_t(high, degrees) > 1 - confidence:
        low, high = high, 2 * high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if beyond_t(middle, degrees) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


@cache
def poisson_limit(events: int, confidence: float) -> float:
    """The mean of which a Poisson number is as small as `events` (1 or more), or smaller, in 1 − `confidence` of cases.

    By Newton's method from the approximation of Wilson and Hilferty 1931 ("The distribution of chi-square").
    """
    shape = events + 1
    mean = shape * (1 - 1 / (9 * shape) + NormalDist().inv_cdf(confidence) / (3 * sqrt(shape))) ** 3
    for _ in range(_NEWTON_STEPS):
        just_so_many = exp(events * log(mean) - mean - lgamma(shape))
        mean += _at_most_by_exactly(events, mean) - (1 - confidence) / just_so_many
    return mean


def _at_most_by_exactly(events: int, mean: float) -> float:
    """How many times as likely a Poisson number of this mean is `events` or less as it is `events`."""
    total = term = 1.0
    for fewer in range(events, 0, -1):
        term *= fewer / mean
        total += term
        if term < _NEGLIGIBLE * total:
            break
    return total


def _incomplete_beta(x: float, rest: float, a: float, b: float) -> float:
    """I(x; a, b) by its continued fraction (Abramowitz and Stegun 1964, 26.5.8), which converges fast on one side.

    `rest` is 1 − x, which may be too small to be told from x.
    """
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(rest, x, b, a)
    if x == 0:
        return 0.0
    fraction = 1.0
    for m in range(30 + int(10 * sqrt(a + b)), 0, -1):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m - 1) * (a + b + m - 1) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
        fraction = 1 + odd / (1 + even / fraction)
    return exp(a * log(x) + b * log(rest) + lgamma(a + b) - lgamma(a) - lgamma(b)) / (a * fraction)
