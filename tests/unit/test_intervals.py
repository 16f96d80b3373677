"""Means and ratios of means with their intervals: as other programs compute them, for any numbers."""

import random
from dataclasses import astuple
from fractions import Fraction
from math import isclose, sqrt
from statistics import mean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from benchmarks.intervals import LOST, REPETITIONS, SCATTER, coverage, of_losses, of_ratio, ratio_of_means
from netbench.statistics.intervals import (
    Interval,
    RatioOfMeans,
    Unknown,
    boots_interval,
    counting_error,
    effective_number,
    mean_interval,
    statement,
)

THROUGHPUTS = st.lists(st.floats(1, 1e7), min_size=2, max_size=12)
SAMPLES = st.lists(st.integers(99_000, 101_000), min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1)


@pytest.mark.parametrize(
    ("values", "mean", "half_width"),
    [
        # t(0.975; 8) = 2.306004 and s = 2.738613 give 2.306004 × 2.738613 / 3.
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], 5, 2.105084),
        ([42.0], 42.0, None),  # unknown, not empty
        ([0.1, 0.1, 0.1], 0.1, 0.0),
    ],
)
def test_means_as_in_a_textbook(values, mean, half_width):
    found = mean_interval(values)
    assert (found.mean, found.n) == (mean, len(values))
    assert found.half_width == pytest.approx(half_width, abs=1e-6)


def test_without_repetitions_there_is_nothing_to_compute():
    for compute in (lambda: mean_interval([]), lambda: ratio_of_means([], [1, 2]), lambda: ratio_of_means([1, 2], [])):
        with pytest.raises(ValueError, match="no repetitions"):
            compute()


@given(st.lists(st.floats(0, 1e10), min_size=2, max_size=30).filter(lambda values: max(values) - min(values) > 1e-3))
def test_the_mean_is_the_exact_one_and_its_interval_that_of_scipy(values):
    found = mean_interval(values)
    assert isclose(found.mean, sum(map(Fraction, values)) / len(values), rel_tol=1e-15)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=found.mean, scale=stats.sem(values))
    assert found.half_width == pytest.approx((high - low) / 2, rel=1e-6)


@given(THROUGHPUTS, st.sampled_from([1e-6, 0.5, 8.0, 672.0, 1e6]))
def test_the_unit_of_a_mean_does_not_matter(values, factor):
    expected, found = mean_interval(values).scaled(factor), mean_interval([factor * value for value in values])
    assert found.mean == pytest.approx(expected.mean, rel=1e-9)
    assert found.half_width == pytest.approx(expected.half_width, rel=1e-6, abs=1e-9 * abs(found.mean))
    assert mean_interval(values[:1]).scaled(factor) == Interval(values[0] * factor, None, 1)


@pytest.mark.parametrize("numbers", REPETITIONS)
@pytest.mark.parametrize("scatter", SCATTER.values(), ids=SCATTER)
def test_the_interval_of_a_ratio_holds_it_19_times_of_20_however_few_and_unequal_repetitions_are(numbers, scatter):
    assert coverage(of_ratio(numbers, scatter), 1000) > 0.93  # 0.95 less three standard errors of 1,000 draws


@pytest.mark.parametrize("repetitions", [2, 3, 9])
@pytest.mark.parametrize("lost", LOST)
def test_the_interval_of_a_loss_holds_it_also_where_hardly_any_frame_is_lost(lost, repetitions):
    assert coverage(of_losses(lost, repetitions), 1000) > 0.92


@given(SAMPLES, SAMPLES, st.sampled_from([-1e6, -1.0, 1e-9, 672.0]), st.randoms(use_true_random=False))
def test_the_limits_are_where_the_difference_is_just_significant(new, base, factor, rng):
    found = ratio_of_means(new, base)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    of_new, of_base = (
        stats.t.ppf(0.975, len(values) - 1) ** 2 * variance(values) / len(values) for values in (new, base)
    )
    for limit in (found.low, found.high):
        assert abs(mean(new) - limit * mean(base)) == pytest.approx(sqrt(of_new + limit**2 * of_base), rel=1e-6)
    # Neither the unit nor the order of the repetitions matters.
    other_unit = [[factor * value for value in rng.sample(values, len(values))] for values in (new, base)]
    scaled = ratio_of_means(*other_unit)
    assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx((found.ratio, found.low, found.high), rel=1e-9)


@pytest.mark.parametrize(
    ("events", "error"),
    # −ln 0.05; then the upper limits 5.572, 7.225 and 18.390 of Garwood's table; last, nearly 1.96 √events.
    [(0, 2.9957), (1, 4.5716), (2, 5.2247), (10, 8.3904), (1_000_000, 1961.9)],
)
def test_counting_leaves_open_what_tables_of_the_poisson_distribution_say(events, error):
    assert counting_error(events) == pytest.approx(error, rel=1e-3)


def test_repetitions_that_are_alike_are_as_sure_as_counting_is():
    assert mean_interval([5.0, 5.0, 5.0], least=0.25) == Interval(5.0, 0.25, 3)
    assert mean_interval([1.0, 2.0], least=0.25) == mean_interval([1.0, 2.0])
    assert mean_interval([5.0], least=0.25) == Interval(5.0, None, 1)


@given(THROUGHPUTS)
def test_what_is_compared_with_itself_has_not_changed(values):
    found = ratio_of_means(values, values)
    assert found.ratio == pytest.approx(1)
    assert not found.significant


def test_constants_have_an_interval_without_width():
    same, less = ratio_of_means([0.1] * 3, [0.1] * 4), ratio_of_means([90.0, 90.0], [100.0, 100.0])
    assert (same.ratio, same.low, same.high, same.significant, same.excluded) == (1.0, 1.0, 1.0, False, 0.0)
    assert (less.ratio, less.low, less.high, less.significant, less.excluded) == (0.9, 0.9, 0.9, True, None)


@pytest.mark.parametrize("constant", [100.0, 0.0])
def test_where_only_one_side_varies_it_alone_makes_the_interval(constant):
    varying = [98.0, 100.0, 104.0, 99.0]
    low, high = stats.t.interval(0.95, 3, loc=mean(varying), scale=stats.sem(varying))
    found = ratio_of_means([constant] * 20, varying)
    assert (found.low, found.high) == pytest.approx((constant / high, constant / low))
    found = ratio_of_means(varying, [50.0] * 20)
    assert (found.low, found.high) == pytest.approx((low / 50, high / 50))


@pytest.mark.parametrize(
    ("new", "base", "ratio", "unknown"),
    [
        ([90.0], [100.0, 101.0], 90 / 100.5, Unknown.ONE_REPETITION),
        ([90.0, 91.0], [100.0], 0.905, Unknown.ONE_REPETITION),
        ([90.0, 91.0], [0.0, 0.0], None, Unknown.BASE_IS_ZERO),
        ([90.0], [0.0], None, Unknown.BASE_IS_ZERO),
        ([10, 20, 30], [1, 19, 4, 5, 8], 20 / 7.4, Unknown.BASE_MAY_BE_ZERO),  # R: "Confidence set unbounded."
    ],
)
def test_what_has_no_interval_reports_why(new, base, ratio, unknown):
    found = ratio_of_means(new, base)
    assert astuple(found) == (pytest.approx(ratio), None, None, len(new), len(base), unknown, "")
    assert (found.change_low, found.change_high, found.significant, found.excluded) == (None, None, None, None)


def test_relative_change_and_what_is_excluded():
    lower = RatioOfMeans(0.8, 0.75, 0.875, 9, 9)
    assert (lower.change, lower.change_low, lower.change_high) == pytest.approx((-0.2, -0.25, -0.125))
    assert (lower.significant, lower.excluded) == (True, None)
    unclear = RatioOfMeans(1.0, 0.96875, 1.015625, 9, 9)
    assert (unclear.significant, unclear.excluded) == (False, 0.03125)
    assert RatioOfMeans(1.0, 0.99, 1.25, 9, 9).excluded == 0.25


@pytest.mark.parametrize(
    ("ratio", "words"),
    [
        (RatioOfMeans(0.818, 0.79, 0.847, 9, 9), "−18.2 % (−21.0 … −15.3 %)"),
        (RatioOfMeans(9.7, 5.2, 18.66, 9, 9), "+870.0 % (+420.0 … +1,766.0 %)"),
        (RatioOfMeans(0.9996, 0.9994, 0.9998, 9, 9), "−0.04 % (−0.06 … −0.02 %)"),
        (RatioOfMeans(1.01, 0.98, 1.031, 9, 9), "no significant change; more than 3.1 % is excluded"),
        (RatioOfMeans(1.01, 0.98, 1.0311, 9, 9), "no significant change; more than 3.2 % is excluded"),
        (RatioOfMeans(1.0, 0.971, 1.0, 9, 9), "no significant change; more than 2.9 % is excluded"),
        (RatioOfMeans(1.0, 0.9998, 1.0001, 9, 9), "no significant change; more than 0.02 % is excluded"),
        (RatioOfMeans(0.818, None, None, 1, 9, Unknown.ONE_REPETITION), "unknown: one repetition (−18.2 % measured)"),
        (RatioOfMeans(None, None, None, 9, 9, Unknown.BASE_IS_ZERO), "unknown: the baseline is 0"),
    ],
)
def test_what_may_be_reported(ratio, words):
    assert statement(ratio) == words


@pytest.mark.parametrize(
    ("values", "same_as", "n", "boots"),
    [
        ([(1, 10.0), (2, 12.0), (3, 11.0)], [10.0, 12.0, 11.0], 3, 3),
        ([(1, 9.0), (1, 11.0), (2, 12.0), (2, 12.0), (3, 11.0)], [10.0, 12.0, 11.0], 5, 3),
        ([(0, 10.0), (0, 12.0)], [10.0, 12.0], 2, 0),  # boots that are unknown stand for themselves
        ([(4, 10.0), (4, 12.0), (4, 11.0)], [10.0, 12.0, 11.0], 3, 1),
    ],
)
def test_the_boot_is_the_unit_of_replication(values, same_as, n, boots):
    found, plain = boots_interval(values), mean_interval(same_as)
    assert (found.mean, found.half_width) == pytest.approx((plain.mean, plain.half_width))
    assert (found.n, found.boots) == (n, boots)


def test_trials_of_one_boot_that_resemble_their_neighbours_count_as_fewer():
    rng = random.Random(1)
    value, alike = 0.0, []
    for _ in range(40):
        value = 0.9 * value + rng.gauss(0, 1)
        alike.append(100 + value)
    apart = [100 + rng.gauss(0, 1) for _ in range(40)]
    assert effective_number(alike) < 10
    assert effective_number(apart) == 40
    widened, plain = boots_interval([(1, sample) for sample in alike]), mean_interval(alike)
    assert (widened.half_width or 0.0) > 2 * (plain.half_width or 0.0)
    assert effective_number([1.0, 1.0, 1.0, 1.0, 1.0]) == 5
    assert effective_number([1.0, 2.0]) == 2


def test_the_interval_of_correlated_trials_of_one_boot_holds_the_mean():
    """A first-order process with correlation 0.7, as of short trials of an emulated CPU."""
    rng, held = random.Random(2), 0
    for _ in range(400):
        value, values = rng.gauss(0, 1), list[tuple[int, float]]()
        for _ in range(20):
            value = 0.7 * value + (1 - 0.7**2) ** 0.5 * rng.gauss(0, 1)
            values.append((1, 10 + value))
        found = boots_interval(values)
        held += abs(found.mean - 10) <= (found.half_width or 0.0)
    assert held / 400 > 0.8, "0.6 as if they were independent"


def test_two_runs_agree_within_their_intervals_though_boots_differ():
    rng, held, pairs = random.Random(3), 0, 400

    def run():
        boots = [(boot, rng.gauss(100, 8)) for boot in range(1, 6)]
        return boots_interval([(boot, mean + rng.gauss(0, 3)) for boot, mean in boots for _ in range(8)])

    for _ in range(pairs):
        one, other = run(), run()
        held += abs(one.mean - other.mean) <= (one.half_width or 0.0)
    assert held / pairs >= 0.85


def test_an_interval_is_widened_by_an_independent_part_of_its_mean():
    assert mean_interval([10.0, 10.0]).widened(0.1).half_width == pytest.approx(1.0)
    assert Interval(10.0, 3.0, 2).widened(0.4).half_width == pytest.approx(5.0)
    assert Interval(10.0, None, 1).widened(0.4).half_width is None
    assert Interval(10.0, 3.0, 2).widened(None) == Interval(10.0, 3.0, 2)
