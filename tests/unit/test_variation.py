"""Delay variation against the words of RFC 3393 and RFC 5481, with all frames at hand."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netbench.capture.distribution import Distribution
from netbench.capture.successors import _MOST_WAITING, Successors
from netbench.capture.variation import VariationTally
from netbench.model.counts import Spread


def tallied(numbers, delays, cuts=()):
    tally = VariationTally()
    for begin, end in pairwise([0, *cuts, len(numbers)]):
        tally.add(np.array(numbers[begin:end], np.uint32), np.array(delays[begin:end], np.int64))
    return tally.spread()


def spread_of(values):
    distribution = Distribution()
    distribution.add(np.array(values, np.int64))
    return distribution.spread()


def magnitudes(numbers, delays):
    """|D(i) - D(i-1)| of each frame that arrived and whose predecessor did: else it is undefined."""
    delay = dict(zip(numbers, delays, strict=True))
    return [abs(delay[number] - delay[number - 1]) for number in delay if number - 1 in delay]


def test_differences_are_of_neighbours_in_number_and_none_is_made_up_for_a_lost_one():
    # 1 and 2 differ by 5, 2 and 3 by 20, 4 is lost, 5 and 6 by 1 though 6 comes first.
    assert tallied([1, 3, 2, 6, 5], [10, 25, 5, 40, 41]) == spread_of([5, 20, 1])
    assert tallied([1, 3, 5], [10, 20, 30]) is None
    assert tallied([], []) is None


@given(data=st.data())
def test_variation_is_that_of_the_words_of_the_rfc(data):
    base = data.draw(st.sampled_from([0, 65_500, 2**32 - 61]))
    numbers = [base + one for one in data.draw(st.lists(st.integers(0, 60), unique=True) | st.permutations(range(60)))]
    if data.draw(st.booleans()):
        numbers.sort()
    delays = data.draw(st.lists(st.integers(-1000, 1000), min_size=len(numbers), max_size=len(numbers)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(numbers)), max_size=4)))
    assert tallied(numbers, delays, cuts) == spread_of(magnitudes(numbers, delays))


def test_variation_above_the_smallest_follows_from_the_delay():
    assert Spread(10, 20.5, 20, 30, 40, 50, None).above_smallest == Spread(0, 10.5, 10, 20, 30, 40, None)
    assert Spread(None, None, 20, 30, 40, 50, 60).above_smallest is None


def test_few_frames_wait_and_those_that_do_are_found_in_any_order():
    frames = 20 * _MOST_WAITING
    order = np.argsort(np.arange(frames) + np.random.default_rng(1).integers(0, _MOST_WAITING // 4, frames))
    order = order[order % 100 != 99]  # one of 100 is lost, so that others wait in vain
    pairs = Successors(lambda earlier, later: later - earlier)
    count = 0
    for part in np.array_split(order, 97):
        numbers, differences = pairs.add(part.astype(np.uint32), part * 3, part * 3)
        assert (differences == 3).all()
        count += len(numbers)
        for waiting in (pairs._for_successor, pairs._for_predecessor):
            assert len(waiting._numbers) <= _MOST_WAITING
    arrived = np.zeros(frames + 1, np.bool_)
    arrived[order] = True
    assert count == np.count_nonzero(arrived[1:] & arrived[:-1])
