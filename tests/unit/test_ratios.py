import random
from math import sqrt
from statistics import mean, variance

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from netbench.statistics.intervals import RatioOfMeans, Unknown, ratio_of_means, statement

NINE = ([818, 832, 805, 826, 811, 820, 799, 815, 823], [1001, 998, 1004, 997, 1000, 1003, 999, 1002, 996])
# Micronuclei of mice in a mutagenicity study: cyclophosphamide and vehicle (data set Mutagenicity of mratios).
MUTAGENICITY = ([15, 20, 32, 33], [1, 2, 2, 2, 3, 3, 5])


@pytest.mark.parametrize(
    ("new", "base", "ratio", "low", "high"),
    [
        (*MUTAGENICITY, 9.7222222222, 5.1716481400, 18.6595269565),
        (*reversed(MUTAGENICITY), 0.1028571429, 0.0535919267, 0.1933619560),
        (*NINE, 0.8165555556, 0.8085332252, 0.8245849127),
        ([3, 5, 9], [100, 90, 110, 95], 0.0573839662, -0.0168500264, 0.1354407972),
        ([10, 20, 30], [2, 9, 4, 5, 8], 3.5714285714, 0.7783837372, 10.6890130347),
    ],
)
def test_agrees_with_ttestratio_of_r_mratios(new, base, ratio, low, high):
    # R 4.2.2, mratios 1.4.4: ttestratio(new, base, var.equal = FALSE)
    found = ratio_of_means(new, base)
    assert (found.ratio, found.low, found.high) == pytest.approx((ratio, low, high), abs=1e-10)
    assert (found.n_new, found.n_base, found.unknown) == (len(new), len(base), None)


def test_the_interval_covers_the_true_ratio_19_times_of_20():
    for n_new, n_base, spread_new, spread_base in ((9, 9, 0.1, 0.03), (3, 9, 0.02, 0.1), (5, 4, 0.05, 0.05)):
        draw = random.Random(2011)
        covered = 0
        for _ in range(2000):
            found = ratio_of_means(
                [draw.gauss(80, 80 * spread_new) for _ in range(n_new)],
                [draw.gauss(100, 100 * spread_base) for _ in range(n_base)],
            )
            assert found.low is not None
            assert found.high is not None
            covered += found.low <= 0.8 <= found.high
        assert 0.93 < covered / 2000 < 0.97, (n_new, n_base, spread_new, spread_base)


def test_no_change_is_called_significant_once_in_20():
    draw = random.Random(7)
    called = sum(
        ratio_of_means(*([draw.gauss(100, 5) for _ in range(6)] for _ in range(2))).significant is True
        for _ in range(2000)
    )
    assert 0.03 < called / 2000 < 0.07


def test_agrees_with_a_bootstrap_of_large_samples():
    draw = random.Random(1)
    new = [draw.gauss(90, 9) for _ in range(200)]
    base = [draw.gauss(100, 20) for _ in range(300)]
    resampled = sorted(mean(draw.choices(new, k=200)) / mean(draw.choices(base, k=300)) for _ in range(2000))
    found = ratio_of_means(new, base)
    assert found.low == pytest.approx(resampled[50], abs=0.003)
    assert found.high == pytest.approx(resampled[-50], abs=0.003)


samples = st.lists(st.integers(99_000, 101_000), min_size=2, max_size=12).filter(lambda values: len(set(values)) > 1)


@given(samples, samples)
def test_the_limits_are_where_the_difference_is_just_significant(new, base):
    found = ratio_of_means(new, base)
    assert found.ratio is not None
    assert found.low is not None
    assert found.high is not None
    of_new, of_base = variance(new) / len(new), variance(base) / len(base)
    own, other = of_new, found.ratio**2 * of_base
    degrees = (own + other) ** 2 / (own**2 / (len(new) - 1) + other**2 / (len(base) - 1))
    for limit in (found.low, found.high):
        deviation = abs(mean(new) - limit * mean(base)) / sqrt(of_new + limit**2 * of_base)
        assert deviation == pytest.approx(stats.t.ppf(0.975, degrees), rel=1e-6)


@given(samples, samples, st.sampled_from([-1e6, -1.0, 1e-9, 672.0]))
def test_the_unit_does_not_matter(new, base, factor):
    found = ratio_of_means(new, base)
    scaled = ratio_of_means([factor * one for one in new], [factor * one for one in base])
    assert (scaled.ratio, scaled.low, scaled.high) == pytest.approx((found.ratio, found.low, found.high), rel=1e-9)


def test_constants_have_an_interval_without_width():
    same, less = ratio_of_means([0.1] * 3, [0.1] * 4), ratio_of_means([90.0, 90.0], [100.0, 100.0])
    assert (same.ratio, same.low, same.high, same.significant, same.excluded) == (1.0, 1.0, 1.0, False, 0.0)
    assert (less.ratio, less.low, less.high, less.significant, less.excluded) == (0.9, 0.9, 0.9, True, None)


@pytest.mark.parametrize("constant", [100.0, 0.0])
def test_where_only_the_baseline_varies_it_alone_makes_the_interval(constant):
    base = [98.0, 100.0, 104.0, 99.0]
    found = ratio_of_means([constant] * 20, base)
    low, high = stats.t.interval(0.95, 3, loc=mean(base), scale=stats.sem(base))
    assert (found.low, found.high) == pytest.approx((constant / high, constant / low))


def test_where_the_baseline_does_not_vary_the_interval_is_that_of_the_mean():
    new = [98.0, 100.0, 104.0, 99.0]
    found = ratio_of_means(new, [50.0] * 20)
    low, high = stats.t.interval(0.95, 3, loc=mean(new), scale=stats.sem(new))
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
def test_what_has_no_interval_says_why(new, base, ratio, unknown):
    found = ratio_of_means(new, base)
    assert found == RatioOfMeans(found.ratio, None, None, len(new), len(base), unknown)
    assert found.ratio == pytest.approx(ratio)
    assert (found.change_low, found.change_high, found.significant, found.excluded) == (None, None, None, None)


@pytest.mark.parametrize(("new", "base"), [([], [1.0, 2.0]), ([1.0, 2.0], [])])
def test_no_repetition_has_no_ratio(new, base):
    with pytest.raises(ValueError, match="no repetitions"):
        ratio_of_means(new, base)


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
        (RatioOfMeans(1.042, 1.013, 1.071, 9, 9), "+4.2 % (+1.3 … +7.1 %)"),
        (RatioOfMeans(9.7, 5.2, 18.66, 9, 9), "+870.0 % (+420.0 … +1,766.0 %)"),
        (RatioOfMeans(0.9996, 0.9994, 0.9998, 9, 9), "−0.04 % (−0.06 … −0.02 %)"),
        (RatioOfMeans(1.01, 0.98, 1.031, 9, 9), "no significant change: one above 3.1 % can be excluded"),
        (RatioOfMeans(1.01, 0.98, 1.0311, 9, 9), "no significant change: one above 3.2 % can be excluded"),
        (RatioOfMeans(1.0, 0.971, 1.0, 9, 9), "no significant change: one above 2.9 % can be excluded"),
        (RatioOfMeans(1.0, 0.9998, 1.0001, 9, 9), "no significant change: one above 0.02 % can be excluded"),
        (RatioOfMeans(1.0, 1.0, 1.0, 9, 9), "no change: all repetitions alike"),
        (RatioOfMeans(0.818, None, None, 1, 9, Unknown.ONE_REPETITION), "unknown: one repetition (−18.2 % measured)"),
        (
            RatioOfMeans(2.7, None, None, 3, 5, Unknown.BASE_MAY_BE_ZERO),
            "unknown: the baseline may be 0 (+170.0 % measured)",
        ),
        (RatioOfMeans(None, None, None, 9, 9, Unknown.BASE_IS_ZERO), "unknown: the baseline is 0"),
    ],
)
def test_what_may_be_said(ratio, words):
    assert statement(ratio) == words
