"""Which numbers arrived and in which order, against models that have all frames at hand and the words of RFC 4737."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import mean

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netbench.capture.sequences import (
    PAGE_NUMBERS,
    Losses,
    ReorderingTracker,
    SequenceTracker,
    arrivals,
    losses_of,
    unwrapped,
    without,
)
from netbench.model.distributions import Extent, LossRuns

LAST = 2**32 - 1


def track(batches: Iterable[Sequence[int] | NDArray[np.int64]]) -> SequenceTracker:
    tracker = SequenceTracker()
    for batch in batches:
        add(tracker, batch)
    return tracker


def add(tracker: SequenceTracker, batch: Sequence[int] | NDArray[np.int64]) -> list[int]:
    copies: list[int] = tracker.add(arrivals(np.array(batch, np.int64), tracker.expected)).tolist()
    return copies


def model_copies(batches: list[list[int]]) -> list[list[int]]:
    """Return where in each batch further copies of earlier numbers are."""
    seen: set[int] = set()
    copies = []
    for batch in batches:
        copies.append([place for place, number in enumerate(batch) if number in seen or number in batch[:place]])
        seen.update(batch)
    return copies


def model_losses(seen: set[int], start: int, stop: int) -> Losses:
    gaps, previous, last = [], start - 1, None
    for number in [*sorted(n for n in seen if start <= n < stop), stop]:
        if number - previous > 1:
            gaps.append(number - previous - 1)
            last = number - 1
        previous = number
    classes = Counter(2 ** (gap.bit_length() - 1) for gap in gaps)
    lengths = tuple(LossRuns(length, classes[length]) for length in sorted(classes))
    return Losses(sum(gaps), len(gaps), max(gaps, default=0), lengths, last)


def split(numbers: list[int], cuts: list[int]) -> list[list[int]]:
    edges = sorted({0, len(numbers), *(cut for cut in cuts if cut < len(numbers))})
    return [numbers[a:b] for a, b in pairwise(edges)]


@st.composite
def streams(draw: st.DrawFn) -> list[int]:
    """Runs with losses, repeats and jumps back, near page edges and the ends of the number space too."""
    base = draw(st.sampled_from([0, PAGE_NUMBERS - 40, 3 * PAGE_NUMBERS - 5, 2**31, LAST - 2 * PAGE_NUMBERS]))
    numbers: list[int] = []
    for _ in range(draw(st.integers(1, 6))):
        start = base + draw(st.integers(0, 400))
        numbers += range(start, start + draw(st.integers(1, 200)), draw(st.sampled_from([1, 1, 1, 2, 7])))
        if draw(st.booleans()):
            numbers += draw(st.permutations(numbers[-40:]))
        if draw(st.booleans()):
            base += draw(st.sampled_from([0, 500, PAGE_NUMBERS]))
    return [number for number in numbers if number <= LAST]


@given(numbers=streams(), cuts=st.lists(st.integers(1, 600), max_size=6), margin=st.integers(0, 300))
def test_counts_are_those_of_the_model(numbers: list[int], cuts: list[int], margin: int) -> None:
    tracker, batches, seen = SequenceTracker(), split(numbers, cuts), set(numbers)
    assert [add(tracker, batch) for batch in batches] == model_copies(batches)
    assert (tracker.distinct, tracker.duplicates) == (len(seen), len(numbers) - len(seen))
    assert (tracker.lowest, tracker.highest) == (min(seen), max(seen))
    for start, stop in (
        (min(seen), max(seen) + 1),
        (0, max(seen) + 1 + margin),
        (min(seen) + margin, max(seen) - margin),
        (max(seen) + 1, max(seen) + 1 + margin),
    ):
        if start <= stop:
            assert tracker.losses(start, stop) == model_losses(seen, start, stop)


@given(st.lists(st.one_of(st.integers(0, LAST), st.sampled_from([0, LAST, LAST - 1])), max_size=80))
@example([LAST, 0, LAST])
def test_any_numbers_in_any_order(numbers: list[int]) -> None:
    tracker, batches, seen = SequenceTracker(), split(numbers, [17, 40]), set(numbers)
    assert [add(tracker, batch) for batch in batches] == model_copies(batches)
    assert (tracker.distinct, tracker.duplicates) == (len(seen), len(numbers) - len(seen))
    assert tracker.losses(0, LAST + 1) == model_losses(seen, 0, LAST + 1)


@given(
    first=st.integers(0, LAST),
    steps=st.lists(st.integers(-(2**30), 2**31 - 1) | st.integers(-5, 5), max_size=40),
    cuts=st.lists(st.integers(1, 40), max_size=4),
    known=st.booleans(),
)
def test_numbers_go_on_beyond_what_a_frame_has_room_for(
    first: int, steps: list[int], cuts: list[int], known: bool
) -> None:
    true, highest = [first], first
    for step in steps:  # from the highest so far: numbers further away than half of the room are ambiguous
        true.append(max(highest + step, 0))
        highest = max(highest, true[-1])
    # With the full range the first number stays as it is; with the other one counting may begin one turn later.
    within, later = (range(1 << 62), 0) if known else (range(1 << 31, 1 << 62), None)
    found: list[int] = []
    for batch in split(true, cuts):
        frames = np.array(batch, np.int64) % 2**32
        found += unwrapped(frames, max(found, default=None), within).tolist()
    later = found[0] - first if later is None else later
    assert found == [number + later for number in true]
    assert min(found) >= 0


def test_frames_that_cannot_be_of_a_stream_do_not_move_its_numbers() -> None:
    # 1.5 · 10⁹ before what is possible each; after the second, 4 would be nearer to a turn later.
    frames = np.array([3, (3 - 15 * 10**8) % 2**32, (3 - 30 * 10**8) % 2**32, 4], np.int64)
    for highest in (None, 2):
        assert unwrapped(frames, highest, range(100)).tolist()[::3] == [3, 4]


def test_counting_goes_on_after_losses_were_asked_for() -> None:
    tracker = track([range(10), range(12, 20)])
    assert tracker.losses(0, 20) == Losses(2, 1, 2, (LossRuns(2, 1),), 11)
    assert add(tracker, [10, 20, 21]) == []
    assert (tracker.distinct, tracker.duplicates) == (21, 0)
    assert tracker.losses(0, 22) == Losses(1, 1, 1, (LossRuns(1, 1),), 11)


def test_a_loss_run_across_several_pages_is_one_run() -> None:
    tracker = track([range(10), range(5 * PAGE_NUMBERS + 3, 5 * PAGE_NUMBERS + 20)])
    gap = 5 * PAGE_NUMBERS + 3 - 10
    assert tracker.losses(0, 5 * PAGE_NUMBERS + 20) == Losses(gap, 1, gap, (LossRuns(1 << 18, 1),), 9 + gap)
    after = PAGE_NUMBERS - 20
    lengths = (LossRuns(1 << 15, 1), LossRuns(1 << 18, 1))
    assert tracker.losses(0, 6 * PAGE_NUMBERS) == Losses(gap + after, 2, gap, lengths, 6 * PAGE_NUMBERS - 1)


def test_nothing_received_is_one_loss_run() -> None:
    assert SequenceTracker().losses(0, 1000) == Losses(1000, 1, 1000, (LossRuns(512, 1),), 999)
    assert SequenceTracker().losses(0, 0) == Losses(0, 0, 0, (), None)
    assert SequenceTracker().highest is None


@pytest.mark.parametrize("batch", [1000, 65_536, 100_000])
def test_every_frame_twice_the_second_time_backwards(batch: int) -> None:
    numbers = np.arange(300_000, dtype=np.int64)
    tracker = track(np.array_split(np.concatenate([numbers, numbers[::-1]]), 600_000 // batch))
    assert (tracker.distinct, tracker.duplicates) == (300_000, 300_000)
    assert tracker.losses(0, 300_000) == Losses(0, 0, 0, (), None)


def test_a_page_that_fills_up_late_is_complete() -> None:
    late = np.arange(0, 4 * PAGE_NUMBERS - 1, 3, dtype=np.int64)
    early = np.setdiff1d(np.arange(4 * PAGE_NUMBERS, dtype=np.int64), late)
    tracker = track([early, late])
    assert tracker.distinct == 4 * PAGE_NUMBERS
    assert tracker.losses(0, 4 * PAGE_NUMBERS) == Losses(0, 0, 0, (), None)
    assert add(tracker, late) == list(range(len(late)))
    assert tracker.duplicates == len(late)


def reordering_of(numbers, cuts=()):
    sequence, reordering = SequenceTracker(), ReorderingTracker()
    for begin, end in pairwise([0, *cuts, len(numbers)]):
        batch = arrivals(np.array(numbers[begin:end], np.int64), sequence.expected)
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
    found = reordering_of(numbers)
    assert found.reordered == len(true)
    assert found.extent() == Extent(sorted(true)[(len(true) - 1) // 2], mean(true), max(true))


def test_without_reordered_frames_there_is_no_extent():
    for numbers in ([], [5], [1, 2, 2, 4, 9, 9], [2**32 - 1]):
        found = reordering_of(numbers)
        assert (found.reordered, found.extent()) == (0, None)


@given(data=st.data())
def test_extents_are_those_of_the_words_of_the_rfc(data):
    base = data.draw(st.sampled_from([0, 65_500, 2**32 - 61]))
    swapped = st.permutations(range(60)) | st.lists(st.integers(0, 60), max_size=120)
    blocks = st.lists(st.integers(0, 50), max_size=12).map(lambda begins: [b + n for b in begins for n in range(10)])
    numbers = [base + number for number in data.draw(swapped | blocks)]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(numbers)), max_size=4)))
    found, true = reordering_of(numbers, cuts), extents(numbers)
    assert found.reordered == len(true)
    if true:
        assert found.extent() == Extent(sorted(true)[(len(true) - 1) // 2], sum(true) / len(true), max(true))
    else:
        assert found.extent() is None


def test_memory_is_bounded_and_an_extent_beyond_it_is_counted_as_far_as_it_goes():
    evens = np.arange(2, 400_000, 2)
    found = reordering_of([*evens.tolist(), 1], cuts=range(10_000, 190_001, 10_000))
    assert len(found._starts) == 1 << 16
    assert found.reordered == 1
    assert 1 << 16 <= found.extent().largest <= len(evens)


@given(
    st.sampled_from([0, 1, PAGE_NUMBERS - 3, LAST - 5]),
    st.integers(0, 4 * PAGE_NUMBERS),
    st.lists(st.integers(0, 4 * PAGE_NUMBERS - 1), max_size=20),
)
def test_losses_by_somebody_elses_bits_are_those_of_the_numbers(first, count, lost):
    numbers = range(first, first + count)
    seen = set(numbers) - {first + index for index in lost}
    bits = np.zeros(4 * PAGE_NUMBERS, np.bool_)
    bits[[number % len(bits) for number in seen]] = True
    assert losses_of(np.packbits(bits, bitorder="little"), numbers) == model_losses(seen, first, first + count)


@pytest.mark.parametrize("places", [[0], [999], [0, 1, 2, 500, 998, 999], list(range(0, 1000, 3))])
def test_what_is_left_without_some_values(places):
    left = [value for value in range(1000) if value not in places]
    assert without(np.arange(1000), np.array(places)).tolist() == left
