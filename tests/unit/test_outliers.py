"""Outliers: which repetitions are marked, and how often of normal noise."""

import random
from math import inf

import pytest

from netbench.model.verdict import Reason, ReasonKind
from netbench.results.export_rows import group_rows, stream_rows
from netbench.statistics.groups import group_trials
from netbench.statistics.outliers import limit_of, modified_z_scores, outlier_marks, outliers_of, outlying
from tests.unit.results_factory import campaign, stream_counts, trial

NINE = [1000, 1001, 999, 1000, 1002, 998, 1000, 1001, 700]
BROKEN = (Reason(ReasonKind.LINK_DOWN, "", "down"),)


def trials(values, **changes):
    return [
        trial(
            stream_counts(sent=2000, received=value, intended_fps=2000.0, intended_frames=2000),
            repetition=number,
            **changes,
        )
        for number, value in enumerate(values, start=1)
    ]


def marked_in(every):
    (group,) = group_trials(campaign(every))
    return group, outliers_of(group)


def test_the_score_is_that_of_iglewicz_and_hoaglin():
    # Median 3, distances 2 1 0 1 2, MAD 1.
    assert modified_z_scores([1, 2, 3, 4, 5]) == pytest.approx([1.349, 0.6745, 0, 0.6745, 1.349])
    assert modified_z_scores([5, 5, 5, 9]) == [0, 0, 0, inf]


def test_one_that_stands_apart_is_marked_and_stays_in_the_mean():
    group, found = marked_in(trials(NINE))
    assert [outlier.trial.spec.repetition for outlier in found.marked] == [9]
    assert group.throughput_fps.mean == pytest.approx(sum(NINE) / 9)
    assert found.mean_without == pytest.approx(sum(NINE[:-1]) / 8)
    assert found.change_without == pytest.approx(1000.125 / (sum(NINE) / 9) - 1)


@pytest.mark.parametrize(
    ("values", "marked"),
    [
        (NINE[-4:], 0),  # too few to tell
        ([1000] * 8 + [995], 0),  # without scatter any other value is far off; this one is negligible
        ([1000] * 8 + [980], 1),
        ([1000] * 5 + [500] * 4, 4),  # two modes
        ([0] * 9, 0),
        ([], 0),
    ],
)
def test_what_is_marked(values, marked):
    assert sum(outlying(values)) == marked


def test_only_valid_trials_of_cells_with_enough_of_them_can_be_marked():
    every = trials(NINE)
    spoilt = [*every[:-1], *trials([700], reasons=BROKEN, index=9)]
    marks = outlier_marks(every)
    assert list(marks.values()) == [False] * 8 + [True]
    assert set(outlier_marks(spoilt).values()) == {False}
    assert outlier_marks(every[:4]) == {}


def test_exports_have_the_mark_and_the_mean_without():
    every = trials(NINE)
    assert [row["outlier"] for row in stream_rows(every)] == ["no"] * 8 + ["yes"]
    assert [row["outlier"] for row in stream_rows(every[:3])] == [None] * 3
    (row,) = group_rows(campaign(every))
    assert row["outlier_trials"] == 1
    assert row["throughput_mbps"] == pytest.approx(sum(NINE) / 9 * 8 * 84 / 1e6)
    assert row["throughput_mbps_without_outliers"] == pytest.approx(1000.125 * 8 * 84 / 1e6)
    (row,) = group_rows(campaign(every[:8]))
    assert (row["outlier_trials"], row["throughput_mbps_without_outliers"]) == (0, row["throughput_mbps"])
    (row,) = group_rows(campaign(every[:3]))
    assert (row["outlier_trials"], row["throughput_mbps_without_outliers"]) == (None, None)


@pytest.mark.parametrize("repetitions", [5, 6, 7, 9, 10, 15, 20, 30, 50])
def test_about_one_cell_of_normal_noise_in_a_hundred_has_a_mark(repetitions):
    """Of 4,000 cells 40 are expected to have one; 70 or more have one in 1 of 100,000 tests (binomial, 0.01)."""
    chance = random.Random(repetitions)
    marked = sum(any(outlying([chance.gauss(1, 0.05) for _ in range(repetitions)])) for _ in range(4000))
    assert marked <= 70


def test_limits_fall_with_the_number_of_repetitions_and_never_to_where_marks_say_nothing():
    assert limit_of(4) == inf
    assert limit_of(5) == 18.7
    assert limit_of(17) == limit_of(16)
    assert limit_of(1000) == limit_of(50) > 3.5
