"""Trends over time: the seasonal Kendall test and the corresponding slope.

Mann 1945 and Kendall 1938 count how many more of all pairs rise than fall, without an assumption on the scatter.
Hirsch, Slack and Smith 1982 ("Techniques of trend analysis for monthly water quality data") add these counts over
series that must not be compared with each other: months there, cells here. They use the median slope of all pairs
within a series (Theil 1950, Sen 1968). Its interval is from the ranks of those slopes (Gilbert 1987, "Statistical
Methods for Environmental Pollution Monitoring", section 16.4.2).

Trials of the same boot share its effects, so that values of different cells depend on each other. Then only pairs of
different boots count, and whole boots are permuted, as Hirsch and Slack 1984 ("A nonparametric trend test for seasonal
data with serial dependence") permute whole years.

scipy.stats.kendalltau and theilslopes cover a single series, and scipy.stats.mstats.kendalltau_seasonal neither blocks
nor permutations of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import erfc, factorial, floor, sqrt

import numpy as np
from numpy.typing import NDArray

_MOST = 100  # values in a series; longer ones are averaged in so many batches, as pairs grow by the square
_MOST_BLOCKS = 60  # blocks that are permuted; of more boots, consecutive ones form a block
_ENUMERATED = 720  # orders: those of six boots
_DRAWN = 999  # orders drawn if there are more
_AT_ONCE = 25  # orders evaluated at once, to save memory: with 60 blocks, each takes 29 kB
_SEED = 1  # the same data always gives the same p
_Z = 1.959964  # quantile of the normal distribution with 2.5 % above it


@dataclass(frozen=True, slots=True)
class TimeSeries:
    """Values with their times in rising order, and their boots, numbered from 0 in the order of time."""

    times: Sequence[float]
    values: Sequence[float]
    boots: Sequence[int] = ()


@dataclass(frozen=True, slots=True)
class TheilSenTrend:
    """A median slope with its 95 % interval, in values per time; a limit is None if too few pairs bound it.

    `p` is two-sided. `smallest_p` is its value if every pair rose.
    """

    slope: float
    low: float | None
    high: float | None
    p: float
    smallest_p: float


def trend(series: Sequence[TimeSeries]) -> TheilSenTrend | None:
    """Return the common trend of some series with independent values; None if no series has two different times."""
    score = variance = 0.0
    highest = 0
    slopes = []
    for cell_series in series:
        x, y = _in_batches(np.array(cell_series.times, dtype=float), np.array(cell_series.values, dtype=float))
        earlier, later = np.triu_indices(len(x), 1)
        apart, change = x[later] - x[earlier], y[later] - y[earlier]
        differ = apart != 0
        score += float(np.sum(np.sign(apart) * np.sign(change)))
        variance += _variance(x, y)
        highest += int(np.count_nonzero(differ & (change != 0)))
        slopes.append(change[differ] / apart[differ])
    return _found(slopes, variance, _p(score, variance), _p(highest, variance))


def trend_over_boots(series: Sequence[TimeSeries]) -> TheilSenTrend | None:
    """Return the common trend of series whose values depend on shared boots; None if no series has two boots."""
    boots = max((boot for cell_series in series for boot in cell_series.boots), default=-1) + 1
    blocks = min(boots, _MOST_BLOCKS)
    if blocks < 2:
        return None
    rising = np.zeros((blocks, blocks))  # rising − falling pairs with values in both blocks
    untied = np.zeros((blocks, blocks))
    slopes = []
    for cell_series in series:
        x, y = np.array(cell_series.times, dtype=float), np.array(cell_series.values, dtype=float)
        of = np.array(cell_series.boots, dtype=int) * blocks // boots
        if len(x) > _MOST:
            x, y, of = _by_block(x, y, of)
        earlier, later = np.triu_indices(len(x), 1)
        apart, change = x[later] - x[earlier], y[later] - y[earlier]
        np.add.at(rising, (of[earlier], of[later]), np.sign(change))
        np.add.at(untied, (of[earlier], of[later]), change != 0)
        differ = (of[earlier] != of[later]) & (apart != 0)
        slopes.append(change[differ] / apart[differ])
    rising, untied = np.triu(rising, 1), np.triu(untied, 1)
    places = _orders(blocks)
    by_chance = np.concatenate([_scores(places[at : at + _AT_ONCE], rising) for at in range(0, len(places), _AT_ONCE)])
    score, enumerated = abs(float(rising.sum())), len(places) < _DRAWN
    as_far = int(np.count_nonzero(np.abs(by_chance) >= score - 1e-9))
    p = as_far / len(places) if enumerated else (as_far + 1) / (len(places) + 1)
    smallest = 2 / factorial(blocks) if enumerated else 1 / (_DRAWN + 1)
    return _found(slopes, float(np.var(by_chance)), p, smallest if untied.any() else 1.0)


def _found(slopes: Sequence[NDArray[np.float64]], variance: float, p: float, smallest_p: float) -> TheilSenTrend | None:
    every = np.sort(np.concatenate(slopes)) if slopes else np.array([])
    if not len(every):
        return None
    beyond = floor((len(every) - _Z * sqrt(variance)) / 2)
    low, high = (float(every[beyond - 1]), float(every[-beyond])) if beyond >= 1 else (None, None)
    return TheilSenTrend(float(np.median(every)), low, high, p, smallest_p)


def _scores(places: NDArray[np.intp], rising: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return how many more pairs rise than fall in each of some orders: whole numbers, hence exact."""
    first = places[:, :, None] < places[:, None, :]
    return np.tensordot(first, rising - rising.T, axes=([1, 2], [0, 1]))


def _orders(blocks: int) -> NDArray[np.intp]:
    """Return random places of so many blocks, one row per order; all orders if they are few."""
    if factorial(blocks) <= _ENUMERATED:
        return np.array(list(permutations(range(blocks))), dtype=np.intp)
    chance = np.random.default_rng(_SEED)
    return chance.permuted(np.tile(np.arange(blocks), (_DRAWN, 1)), axis=1)


def _p(score: float, variance: float) -> float:
    """Return p of the normal distribution with a continuity correction; for few values it errs on the safe side."""
    return 1.0 if variance <= 0 else erfc(max(abs(score) - 1, 0) / sqrt(2 * variance))


def _variance(x: NDArray[np.float64], y: NDArray[np.float64]) -> float:
    """Return the variance of rising − falling pairs without a trend, corrected for ties (Kendall 1970, chapter 4)."""
    n = len(x)
    if n < 2:
        return 0.0
    ties_x, ties_y = _ties(x), _ties(y)
    whole = n * (n - 1) * (2 * n + 5)
    variance = (whole - sum(t * (t - 1) * (2 * t + 5) for t in (*ties_x, *ties_y))) / 18
    pairs = [sum(t * (t - 1) for t in ties) for ties in (ties_x, ties_y)]
    variance += pairs[0] * pairs[1] / (2 * n * (n - 1))
    if n > 2:
        triples = [sum(t * (t - 1) * (t - 2) for t in ties) for ties in (ties_x, ties_y)]
        variance += triples[0] * triples[1] / (9 * n * (n - 1) * (n - 2))
    return variance


def _ties(values: NDArray[np.float64]) -> list[int]:
    return [int(number) for number in np.unique(values, return_counts=True)[1] if number > 1]


def _in_batches(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if len(x) <= _MOST:
        return x, y
    return tuple(np.array([part.mean() for part in np.array_split(values, _MOST)]) for values in (x, y))  # type: ignore[return-value]  # two


def _by_block(
    x: NDArray[np.float64], y: NDArray[np.float64], of: NDArray[np.intp]
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.intp]]:
    """Return the mean times and values of each block, and the block numbers."""
    blocks = np.unique(of)
    means = [np.array([values[of == block].mean() for block in blocks]) for values in (x, y)]
    return means[0], means[1], blocks
