"""Where an axis has its ticks, and what these are called."""

from collections.abc import Iterator
from datetime import UTC, datetime
from math import ceil, floor, log10

from netbench.report.chart import Axis

_ABOUT = 5  # ticks
_FEWEST = 3  # of decades and parts of them: else steps like those of other axes


def ticks_of(axis: Axis) -> tuple[tuple[float, str], ...]:
    """Values and labels, from the low end to the high one."""
    if axis.ticks:
        return axis.ticks
    if axis.categories:
        return tuple(enumerate(axis.categories))
    if axis.is_time:
        return tuple(_times(axis.low, axis.high))
    if axis.logarithmic and len(decades := tuple(_decades(axis.low, axis.high))) >= _FEWEST:
        return decades
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


def _decades(low: float, high: float) -> Iterator[tuple[float, str]]:
    """Powers of ten; of less than two decades 2 and 5 times these too."""
    times = (1, 2, 5) if log10(high / low) < 2 else (1,)
    for decade in range(floor(log10(low)), ceil(log10(high)) + 1):
        for factor in times:
            value = factor * 10.0**decade
            if low * 0.999 <= value <= high * 1.001:
                yield value, f"{value:,.10g}"


def _times(low: float, high: float) -> Iterator[tuple[float, str]]:
    for number in range(4):
        value = low + (high - low) * (0.1 + 0.8 * number / 3)
        yield value, f"{datetime.fromtimestamp(value, UTC):%Y-%m-%d\n%H:%M}"
