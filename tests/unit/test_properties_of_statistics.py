"""What must hold of statistics whatever the numbers: their order and their unit change nothing."""

from fractions import Fraction
from math import isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.statistics.intervals import mean_interval, ratio_of_means
from netbench.statistics.sharing import jain_index

THROUGHPUTS = st.lists(st.floats(1, 1e7), min_size=2, max_size=12)
FACTORS = st.sampled_from([1e-6, 0.5, 8.0, 672.0, 1e6])


@given(THROUGHPUTS, st.randoms(use_true_random=False))
def test_the_order_of_repetitions_does_not_matter(values, rng):
    shuffled = rng.sample(values, len(values))
    one, other = mean_interval(values), mean_interval(shuffled)
    assert (one.mean, one.n) == (other.mean, other.n)
    assert one.half_width == pytest.approx(other.half_width, rel=1e-9)
    assert jain_index(values) == pytest.approx(jain_index(shuffled), rel=1e-9)


@given(THROUGHPUTS, FACTORS)
def test_the_unit_does_not_matter(values, factor):
    scaled = [factor * value for value in values]
    assert jain_index(scaled) == pytest.approx(jain_index(values), rel=1e-9)
    expected, found = mean_interval(values).scaled(factor), mean_interval(scaled)
    assert found.mean == pytest.approx(expected.mean, rel=1e-9)
    assert found.half_width == pytest.approx(expected.half_width, rel=1e-6, abs=1e-9 * abs(found.mean))


@given(THROUGHPUTS)
def test_the_mean_is_the_exact_one_and_lies_within_its_interval(values):
    found = mean_interval(values)
    assert isclose(found.mean, sum(map(Fraction, values)) / len(values), rel_tol=1e-15)
    assert min(values) <= found.mean <= max(values)
    assert found.half_width is not None
    assert found.half_width >= 0


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8).filter(any))
def test_fairness_as_it_is_defined(shares):
    """Jain, Chiu, Hawe 1984, equation 1, with fractions."""
    exact = Fraction(sum(shares)) ** 2 / (len(shares) * sum(Fraction(share) ** 2 for share in shares))
    assert jain_index([float(share) for share in shares]) == pytest.approx(float(exact), rel=1e-12)


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=8), st.integers(1, 8))
def test_guests_that_get_nothing_lower_fairness_in_proportion(shares, idle):
    """The index of n guests of which only k get anything is k/n of that of the k (ibid., section 3)."""
    expected = jain_index(shares) * len(shares) / (len(shares) + idle)
    assert jain_index([*shares, *[0.0] * idle]) == pytest.approx(expected, rel=1e-9)


@given(THROUGHPUTS, THROUGHPUTS, st.randoms(use_true_random=False))
def test_a_ratio_does_not_depend_on_the_order_of_either_side(new, base, rng):
    one = ratio_of_means(new, base)
    other = ratio_of_means(rng.sample(new, len(new)), rng.sample(base, len(base)))
    assert other.ratio == pytest.approx(one.ratio, rel=1e-9)
    assert (one.low is None, one.high is None) == (other.low is None, other.high is None)


@given(THROUGHPUTS)
def test_what_is_compared_with_itself_has_not_changed(values):
    found = ratio_of_means(values, values)
    assert found.ratio == pytest.approx(1)
    assert not found.significant
