"""The sequence tracker against a model that keeps every number in a set."""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from numpy.typing import NDArray

from netbench.capture.arrivals import arrivals
from netbench.capture.sequence import PAGE_NUMBERS, Losses, SequenceTracker
from netbench.model.counts import LossRuns

LAST = 2**32 - 1


def track(batches: Iterable[Sequence[int] | NDArray[np.uint32]]) -> SequenceTracker:
    tracker = SequenceTracker()
    for batch in batches:
        add(tracker, batch)
    return tracker


def add(tracker: SequenceTracker, batch: Sequence[int] | NDArray[np.uint32]) -> list[int]:
    copies: list[int] = tracker.add(arrivals(np.array(batch, np.uint32), tracker.expected)).tolist()
    return copies


def model_copies(batches: list[list[int]]) -> list[list[int]]:
    """Where in each batch further copies are of what was there before."""
    seen: set[int] = set()
    copies = []
    for batch in batches:
        copies.append([place for place, number in enumerate(batch) if number in seen or number in batch[:place]])
        seen.update(batch)
    return copies


def model_losses(seen: set[int], start: int, stop: int) -> Losses:
    gaps, previous = [], start - 1
    for number in [*sorted(n for n in seen if start <= n < stop), stop]:
        if number - previous > 1:
            gaps.append(number - previous - 1)
        previous = number
    classes = Counter(2 ** (gap.bit_length() - 1) for gap in gaps)
    lengths = tuple(LossRuns(length, classes[length]) for length in sorted(classes))
    return Losses(sum(gaps), len(gaps), max(gaps, default=0), lengths)


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


def test_counting_goes_on_after_losses_were_asked_for() -> None:
    tracker = track([range(10), range(12, 20)])
    assert tracker.losses(0, 20) == Losses(2, 1, 2, (LossRuns(2, 1),))
    assert add(tracker, [10, 20, 21]) == []
    assert (tracker.distinct, tracker.duplicates) == (21, 0)
    assert tracker.losses(0, 22) == Losses(1, 1, 1, (LossRuns(1, 1),))


def test_a_loss_run_across_several_pages_is_one_run() -> None:
    tracker = track([range(10), range(5 * PAGE_NUMBERS + 3, 5 * PAGE_NUMBERS + 20)])
    gap = 5 * PAGE_NUMBERS + 3 - 10
    assert tracker.losses(0, 5 * PAGE_NUMBERS + 20) == Losses(gap, 1, gap, (LossRuns(1 << 18, 1),))
    after = PAGE_NUMBERS - 20
    lengths = (LossRuns(1 << 15, 1), LossRuns(1 << 18, 1))
    assert tracker.losses(0, 6 * PAGE_NUMBERS) == Losses(gap + after, 2, gap, lengths)


def test_nothing_received_is_one_loss_run() -> None:
    assert SequenceTracker().losses(0, 1000) == Losses(1000, 1, 1000, (LossRuns(512, 1),))
    assert SequenceTracker().losses(0, 0) == Losses(0, 0, 0, ())
    assert SequenceTracker().highest is None


@pytest.mark.parametrize("batch", [1000, 65_536, 100_000])
def test_every_frame_twice_the_second_time_backwards(batch: int) -> None:
    numbers = np.arange(300_000, dtype=np.uint32)
    tracker = track(np.array_split(np.concatenate([numbers, numbers[::-1]]), 600_000 // batch))
    assert (tracker.distinct, tracker.duplicates) == (300_000, 300_000)
    assert tracker.losses(0, 300_000) == Losses(0, 0, 0, ())


def test_a_page_that_fills_up_late_is_complete() -> None:
    late = np.arange(0, 4 * PAGE_NUMBERS - 1, 3, dtype=np.uint32)
    early = np.setdiff1d(np.arange(4 * PAGE_NUMBERS, dtype=np.uint32), late)
    tracker = track([early, late])
    assert tracker.distinct == 4 * PAGE_NUMBERS
    assert tracker.losses(0, 4 * PAGE_NUMBERS) == Losses(0, 0, 0, ())
    assert add(tracker, late) == list(range(len(late)))
    assert tracker.duplicates == len(late)
