"""How counters grow: wrapped ones go on, reset ones say nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.trial.evidence import growth


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**31 - 1))
def test_a_counter_of_32_bits_grows_by_what_was_counted_though_it_begins_again(before, counted):
    assert growth(before, (before + counted) % 2**32) == counted


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**31 - 1))
def test_a_counter_that_does_not_begin_again_grows_by_the_difference(before, counted):
    assert growth(before, before + counted) == counted


@pytest.mark.parametrize(
    ("before", "after", "grown"),
    [
        (5, 5, 0),
        (2**32 - 1, 4, 5),  # a driver that keeps 32 bits of the 64 that the kernel shows
        (1000, 999, None),
        (2**31 - 1, 0, None),  # less than half full: it was reset
        (2**63 + 2**40, 10, None),
        (None, 5, None),
        (5, None, None),
    ],
)
def test_what_cannot_be_known_is_not_guessed(before, after, grown):
    assert growth(before, after) == grown
