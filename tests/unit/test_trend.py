"""Trends: their direction, their size, and their certainty."""

import random

import pytest
from scipy.stats import kendalltau, theilslopes

from netbench.statistics import trend as trends
from netbench.statistics.trend import TimeSeries

RISING = [0.0, 0.2, 0.1, 0.5, 0.4, 0.7, 0.6, 0.9, 1.0]


def trend(series):
    return trends.trend(series)


def trend_over_boots(series):
    return trends.trend_over_boots(series)


def test_of_one_series_it_is_kendall_s_test_and_the_slope_of_theil_and_sen():
    times = [float(time) for time in range(9)]
    found = trend([TimeSeries(times, RISING)])
    slope, _, low, high = theilslopes(RISING, times)
    assert found.slope == pytest.approx(slope)
    # Theirs is rounded to the nearest rank, which may leave out a slope that belongs to the interval.
    assert found.low <= low + 1e-9
    assert high - 1e-9 <= found.high <= high + 0.01
    assert found.p == pytest.approx(kendalltau(times, RISING, method="asymptotic").pvalue, abs=0.002)
    assert found.p >= kendalltau(times, RISING, method="exact").pvalue, "the error is to the safe side"


def test_ties_make_the_variance_that_of_kendall():
    times, values = [float(time) for time in range(8)], [0.0, 0.0, 0.1, 0.1, 0.1, 0.3, 0.2, 0.4]
    by_scipy = kendalltau(times, values, method="asymptotic").pvalue
    assert trend([TimeSeries(times, values)]).p == pytest.approx(by_scipy, abs=0.003)


def test_series_add_up_though_none_is_enough_and_what_differs_between_them_does_not_matter():
    three = TimeSeries([0.0, 1.0, 2.0], [0.0, 1.0, 2.0])
    assert trend([three]).smallest_p > 0.05
    many = [TimeSeries(three.times, [value + 100 * number for value in three.values]) for number in range(6)]
    found = trend(many)
    assert found.p < 0.001
    assert (found.slope, found.low, found.high) == (1.0, 1.0, 1.0)


def test_without_two_times_there_is_none():
    assert trend([]) is None
    assert trend([TimeSeries([1.0], [0.3])]) is None
    assert trend_over_boots([]) is None
    assert trend_over_boots([TimeSeries([0.0, 1.0], [0.1, 0.2], [0, 0])]) is None


def test_what_never_changes_has_no_trend_and_any_is_excluded():
    found = trend([TimeSeries([0.0, 1.0, 2.0], [0.5, 0.5, 0.5])])
    assert (found.slope, found.low, found.high, found.p) == (0.0, 0.0, 0.0, 1.0)


def test_long_series_are_averaged_and_keep_their_slope():
    chance = random.Random(1)
    times = [float(time) for time in range(5000)]
    found = trend([TimeSeries(times, [0.001 * time + chance.gauss(0, 1) for time in times])])
    assert found.slope == pytest.approx(0.001, rel=0.1)
    assert found.low < 0.001 < found.high


def test_of_five_boots_only_one_order_and_its_reverse_are_rare_enough():
    """2 of 5! orders."""
    times, boots = [0.0, 1.0, 2.0, 3.0, 4.0], [0, 1, 2, 3, 4]
    found = trend_over_boots([TimeSeries(times, times, boots)] * 3)
    assert found.p == found.smallest_p == pytest.approx(2 / 120)
    assert trend_over_boots([TimeSeries(times, [0.0, 1.0, 2.0, 4.0, 3.0], boots)] * 3).p == pytest.approx(10 / 120)


def test_cells_of_the_same_boots_are_no_further_evidence():
    """A boot affects each of its cells: taken for independent, nine equal cells would seem very sure."""
    times, boots = [float(time) for time in range(6)], list(range(6))
    values = [0.0, 0.3, 0.1, 0.2, 0.5, 0.4]
    nine = [TimeSeries(times, values, boots)] * 9
    assert trend(nine).p < 0.001
    assert trend_over_boots(nine).p == trend_over_boots(nine[:1]).p > 0.05


def test_pairs_of_the_same_boot_do_not_count():
    within = TimeSeries([0.0, 1.0, 10.0, 11.0], [0.0, 1.0, 0.0, 1.0], [0, 0, 1, 1])
    assert trend_over_boots([within]).slope == pytest.approx(0.0, abs=0.06)
    assert trend_over_boots([within]).p == 1.0
