"""Reordering and its extent against the words of RFC 4737, with all frames at hand."""

from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.capture.arrivals import arrivals
from netbench.capture.reordering import ReorderingTracker
from netbench.capture.sequence import SequenceTracker
from netbench.model.counts import Extent


def track(numbers, cuts=()):
    sequence, reordering = SequenceTracker(), ReorderingTracker()
    for begin, end in pairwise([0, *cuts, len(numbers)]):
        batch = arrivals(np.array(numbers[begin:end], np.uint32), sequence.expected)
        reordering.add(batch.without(sequence.add(batch)))
    return reordering


def extents(numbers):
    """i - j for each reordered packet i, the j-th being the earliest with a higher number (sections 3.3, 4.2)."""
    arrived = list(dict.fromkeys(numbers))  # of duplicates, only the first to arrive is considered
    found = []
    for i, number in enumerate(arrived):
        higher = [j for j in range(i) if arrived[j] > number]
        if higher:
            found.append(i - higher[0])
    return found


# The arrival orders of its examples: packet 4 comes late; packets 5 and 6; packets 4, 5 and 6.
@pytest.mark.parametrize(
    ("numbers", "true"),
    [
        ([1, 2, 3, 5, 6, 7, 8, 4, 9, 10], [4]),
        ([1, 2, 3, 4, 7, 5, 6, 8, 9, 10], [1, 2]),
        ([1, 2, 3, 7, 8, 9, 10, 4, 5, 6, 11], [4, 5, 6]),
    ],
)
def test_the_examples_of_the_rfc(numbers, true):
    assert extents(numbers) == true
    found = track(numbers)
    assert found.reordered == len(true)
    assert found.extent() == Extent(sorted(true)[(len(true) - 1) // 2], mean(true), max(true))


def test_without_reordered_frames_there_is_no_extent():
    for numbers in ([], [5], [1, 2, 2, 4, 9, 9], [2**32 - 1]):
        found = track(numbers)
        assert (found.reordered, found.extent()) == (0, None)


@given(data=st.data())
def test_extents_are_those_of_the_words_of_the_rfc(data):
    base = data.draw(st.sampled_from([0, 65_500, 2**32 - 61]))
    swapped = st.permutations(range(60)) | st.lists(st.integers(0, 60), max_size=120)
    blocks = st.lists(st.integers(0, 50), max_size=12).map(lambda begins: [b + n for b in begins for n in range(10)])
    numbers = [base + number for number in data.draw(swapped | blocks)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(numbers)), max_size=4)))
    found, true = track(numbers, cuts), extents(numbers)
    assert found.reordered == len(true)
    if true:
        assert found.extent() == Extent(sorted(true)[(len(true) - 1) // 2], sum(true) / len(true), max(true))
    else:
        assert found.extent() is None


def test_memory_is_bounded_and_an_extent_beyond_it_is_counted_as_far_as_it_goes():
    evens = np.arange(2, 400_000, 2)
    found = track([*evens.tolist(), 1], cuts=range(10_000, 190_001, 10_000))
    assert len(found._starts) == 1 << 16
    assert found.reordered == 1
    assert 1 << 16 <= found.extent().largest <= len(evens)
