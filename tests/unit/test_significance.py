"""Tests of significance: against other implementations, and in how many of equal campaigns they raise an alarm."""

from itertools import combinations
from statistics import mean

import pytest
from scipy import stats

from netbench.statistics.comparison import compare
from netbench.statistics.intervals import mean_interval
from netbench.statistics.significance import (
    ALPHA,
    holm,
    permutation_ps,
    repetitions_needed,
    smallest_p,
    welch_p,
)
from tests.unit.comparison_factory import SCATTER, as_compared, made_up

SAMPLES = [
    ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0]),
    ([1.0, 2.0, 4.0, 4.0], [4.0, 5.0, 1.0]),
    ([97.0, 97.0, 97.0, 98.0], [97.0, 97.0, 99.0, 97.0, 96.0]),
    ([5.0, 5.0, 5.0], [5.0, 5.0, 5.0]),
]


def permutation_p(base, new):
    (p,) = permutation_ps([(base, new)])
    return p


@pytest.mark.parametrize(("base", "new"), SAMPLES)
def test_the_permutation_test_tries_every_arrangement(base, new):
    pooled = [*base, *new]
    observed = abs(mean(new) - mean(base))
    as_far = total = 0
    for chosen in combinations(range(len(pooled)), len(base)):
        first = [pooled[place] for place in chosen]
        second = [pooled[place] for place in range(len(pooled)) if place not in chosen]
        as_far += abs(mean(second) - mean(first)) >= observed - 1e-9
        total += 1
    assert permutation_p(base, new) == pytest.approx(as_far / total)


def test_its_smallest_p_is_what_it_gives_samples_that_do_not_overlap():
    for n in (3, 4, 7, 9):
        apart = permutation_p([float(number) for number in range(n)], [100.0 + number for number in range(n)])
        assert apart == pytest.approx(smallest_p(n, n))
    assert smallest_p(3, 3) == pytest.approx(0.1)  # three repetitions never are significant


def test_of_many_repetitions_arrangements_are_drawn_and_the_same_each_time():
    base = [100 + 0.1 * value for value in range(15)]
    assert permutation_p(base, [value - 3 for value in base]) == pytest.approx(2e-5, rel=0.5)
    near = [value + 0.02 for value in base]
    assert permutation_p(base, near) == permutation_p(base, near)
    assert permutation_p(base, near) > 0.5


@pytest.mark.parametrize(("base", "new"), SAMPLES[:3])
def test_welch_is_that_of_scipy(base, new):
    expected = stats.ttest_ind(new, base, equal_var=False).pvalue
    assert welch_p(mean_interval(base), mean_interval(new)) == pytest.approx(expected)


def test_welch_knows_least_errors_and_single_repetitions():
    exact, other = mean_interval([10.0] * 3), mean_interval([9.7] * 3)
    assert welch_p(exact, exact) == 1
    assert welch_p(exact, other) == 0
    assert (welch_p(exact, other, (0.3, 0.3)) or 0) > 0.3
    assert welch_p(mean_interval([10.0]), other) is None


def test_holm_is_that_of_its_paper():
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])
    assert holm([0.9, 0.9]) == [1, 1]
    assert holm([]) == []


def test_how_many_repetitions_a_permutation_test_needs():
    assert repetitions_needed(1) == 4
    assert smallest_p(4, 4) <= ALPHA
    assert repetitions_needed(24) == 7
    assert smallest_p(7, 7) * 24 <= ALPHA < smallest_p(6, 6) * 24
    assert repetitions_needed(10**6) is None


@pytest.mark.parametrize("repetitions", [3, 5, 7])
@pytest.mark.parametrize("how", SCATTER)
def test_two_equal_campaigns_raise_an_alarm_in_at_most_one_of_twenty_comparisons(how, repetitions):
    """20 comparisons raise at most 4 alarms; `benchmarks/comparison_alarms.py` makes more of them.

    At 5 % per comparison, there would be 4 or fewer in 20 in 99.7 % of cases.
    """
    alarms = 0
    for seed in range(20):
        base, new = (
            as_compared(made_up(scatter=SCATTER[how], seed=2 * seed + side, repetitions=repetitions)) for side in (0, 1)
        )
        (found,) = compare(base, [new])
        alarms += bool(found.slower or found.faster)
    assert alarms <= 4
