"""Integers summed up in little memory, compared with exact results from all of them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from netbench.capture.distribution import DelayDistribution, Distribution
from netbench.model.distributions import Spread

BATCHES = st.lists(st.lists(st.integers(-(2**40), 2**50) | st.integers(-3000, 3000), max_size=50), max_size=6)
PERCENTILES = (1, 500, 900, 990, 999, 1000)


def of(*batches, kind=Distribution):
    distribution = kind()
    for batch in batches:
        distribution.add(np.array(batch, np.int64))
    return distribution


def nearest_rank(ordered, per_mille):
    """Return the least value such that at least `per_mille` of 1,000 are not above it, by its definition."""
    return next(value for value in ordered if sum(item <= value for item in ordered) * 1000 >= per_mille * len(ordered))


@pytest.mark.parametrize("kind", [Distribution, DelayDistribution])
@given(batches=BATCHES)
@example(batches=[[-(2**63), 2**63 - 1], [2**63 - 1], [-5]])
@example(batches=[[3_000_000], [20_000] * 9, [35_000] * 9, [10]])
def test_a_distribution_is_what_all_values_at_once_would_be(kind, batches):
    found = of(*batches, kind=kind)
    values = sorted(value for batch in batches for value in batch)
    if not values:
        assert (found.smallest, found.mean, found.percentile(500), found.largest, found.spread()) == (None,) * 5
        return
    assert (found.smallest, found.largest) == (values[0], values[-1])
    assert found.mean == sum(values) / len(values)
    output = [found.percentile(per_mille) for per_mille in PERCENTILES]
    for per_mille, percentile in zip(PERCENTILES, output, strict=True):
        true = nearest_rank(values, per_mille)
        by_offset = kind is DelayDistribution and values[0] < 0
        close = max(abs(true), values[-1] - values[0]) if by_offset else abs(true)
        assert abs(percentile - true) <= close * 0.0005
    assert kind is DelayDistribution or output == sorted(output)


@given(st.lists(st.integers(-2047, 2047), min_size=1))
def test_small_values_are_kept_exactly(values):
    found = of(values)
    for per_mille in PERCENTILES:
        assert found.percentile(per_mille) == nearest_rank(sorted(values), per_mille)


def test_a_spread_has_the_usual_percentiles():
    assert of(range(1, 1001)).spread() == Spread(1, 500.5, 500, 900, 990, 999, 1000)


@pytest.mark.parametrize(
    ("values", "output"), [(1, ()), (9, ()), (10, (9,)), (99, (90,)), (100, (90, 99)), (999, (900, 990))]
)
def test_a_percentile_of_too_few_values_is_not_reported(values, output):
    spread = of(range(1, values + 1)).spread()
    high = [spread.p90_ns, spread.p99_ns, spread.p999_ns]
    assert high == [*output, *[None] * (3 - len(output))]
    assert (spread.median_ns, spread.largest_ns) == ((values + 1) // 2, values)


@pytest.mark.parametrize("offset", [0, 50_000_000, -50_000_000, 10**9, -(10**14), 1_700_000_000 * 10**9])
@pytest.mark.parametrize("first", [1, 7, 5000])
def test_the_offset_of_a_clock_does_not_blur_the_variation(offset, first):
    jitter = np.random.default_rng(1).integers(0, 200_000, 5000)
    values = 5000 + offset + jitter
    spread = of(values[:first], values[first:], kind=DelayDistribution).spread().above_smallest
    true = sorted(jitter - jitter.min())
    output = (spread.median_ns, spread.p90_ns, spread.p99_ns, spread.p999_ns)
    for per_mille, percentile in zip((500, 900, 990, 999), output, strict=True):
        assert percentile == pytest.approx(true[per_mille * 5 - 1], abs=200)


def test_memory_does_not_grow_with_the_values():
    generator = np.random.default_rng(1)
    found = of(*(generator.integers(0, 10**9, 100_000) for _ in range(20)))
    assert len(found._in_step) <= 30 * 1024
    assert found.percentile(500) == pytest.approx(5e8, rel=2e-3)
