"""Means over trials of which some may not know the number."""

from collections.abc import Iterable

from netbench.analysis.intervals import Interval, mean_interval


def known_interval(values: Iterable[float | None]) -> Interval | None:
    """The mean of the numbers that are known, with its interval; None without any."""
    known = [value for value in values if value is not None]
    return mean_interval(known) if known else None
