"""The ticks of an axis, and their labels."""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import ceil, floor, log10

from netbench.report.chart import Axis

_ABOUT = 5  # ticks
# Factors in each decade of a logarithmic axis: it uses the coarsest set that yields enough ticks.
_IN_A_DECADE = ((1,), (1, 3), (1, 2, 5), (1, 2, 3, 5, 7), (1, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9))
_FEWEST = 4


def ticks_of(axis: Axis) -> tuple[tuple[float, str], ...]:
    """Values and labels, from the low end to the high one."""
    if axis.ticks:
        return axis.ticks
    if axis.categories:
        return tuple(enumerate(axis.categories))
    if axis.is_time:
        return tuple(_times(axis.low, axis.high))
    if axis.logarithmic:
        for factors in _IN_A_DECADE:
            if len(ticks := tuple(_decades(axis.low, axis.high, factors))) >= _FEWEST:
                return ticks
    return tuple(_steps(axis.low, axis.high))


def _steps(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / _ABOUT or 1.0
    power = 10.0 ** floor(log10(rough))
    step = next(power * times for times in (1, 2, 5, 10) if power * times >= rough * 0.999)
    decimals = max(0, -floor(log10(step) + 1e-9))
    for number in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1):
        value = number * step
        yield value, f"{value:,.{decimals}f}".replace("-", "−")


def _decades(low: float, high: float, factors: tuple[float, ...]) -> Iterator[tuple[float, str]]:
    """Powers of ten times each factor, between the ends of an axis."""
    for decade in range(floor(log10(low)), ceil(log10(high)) + 1):
        for factor in factors:
            value = factor * 10.0**decade
            if low * 0.999 <= value <= high * 1.001:
                yield value, f"{value:,.10g}"


def _times(low: float, high: float) -> Iterator[tuple[float, str]]:
    for number in range(4):
        value = low + (high - low) * (0.1 + 0.8 * number / 3)
        yield value, f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d\n%H:%M}"
