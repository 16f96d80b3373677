import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from netbench.statistics.intervals import Interval, mean_interval


def test_nine_repetitions_as_in_a_textbook() -> None:
    # t(0.975; 8) = 2.306004 and s = 2.738613 give 2.306004 × 2.738613 / 3.
    interval = mean_interval([1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert interval.mean == 5
    assert interval.half_width == pytest.approx(2.105084, abs=1e-6)
    assert interval.n == 9


def test_one_repetition_has_an_unknown_interval_not_an_empty_one() -> None:
    assert mean_interval([42.0]) == Interval(42.0, None, 1)


def test_equal_repetitions_have_an_empty_interval() -> None:
    assert mean_interval([0.1, 0.1, 0.1]) == Interval(0.1, 0.0, 3)


def test_no_repetition_has_no_mean() -> None:
    with pytest.raises(ValueError, match="no repetitions"):
        mean_interval([])


@given(st.lists(st.floats(0, 1e10), min_size=2, max_size=30).filter(lambda values: max(values) - min(values) > 1e-3))
def test_agrees_with_scipy_stats(values: list[float]) -> None:
    interval = mean_interval(values)
    low, high = stats.t.interval(0.95, len(values) - 1, loc=interval.mean, scale=stats.sem(values))
    assert interval.half_width == pytest.approx((high - low) / 2, rel=1e-6)


def test_scaling_changes_the_unit_of_both_numbers() -> None:
    assert Interval(1000.0, 10.0, 3).scaled(1e-3) == Interval(1.0, 0.01, 3)
    assert Interval(1000.0, None, 1).scaled(1e-3) == Interval(1.0, None, 1)
