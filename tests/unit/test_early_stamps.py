"""Delays of frames that were stamped before they waited for their turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.capture.early_stamps import EarlyStamps

START_NS = 1_700_000_000_000_000_000


def sent_by_pktgen(frames: int, gap_ns: int, delay_ns: int):
    """What arrives of a run: frame i is stamped when i - 1 has been handed over, which takes no time here."""
    sequence = np.arange(1, frames + 1, dtype=np.uint32)
    handed_over = START_NS + gap_ns * np.arange(frames, dtype=np.int64)
    stamps = np.concatenate(([START_NS], handed_over[:-1]))
    return sequence, stamps, handed_over + delay_ns


def revealed(*frames):
    numbers, delays = EarlyStamps().add(*frames)
    return dict(zip(numbers.tolist(), delays.tolist(), strict=True))


def test_the_wait_for_the_slot_is_no_delay():
    sequence, stamps, arrivals = sent_by_pktgen(frames=1000, gap_ns=1_000_000, delay_ns=5_000_000)
    assert np.median(arrivals - stamps) == 6_000_000  # one gap too long
    # Nothing came after the last frame.
    assert revealed(sequence, stamps, arrivals) == dict.fromkeys(range(1, 1000), 5_000_000)


def test_a_frame_before_a_lost_one_is_left_out():
    frames = (values[np.r_[0:4, 5:9]] for values in sent_by_pktgen(10, 100, 70))
    assert revealed(*frames) == dict.fromkeys([1, 2, 3, 6, 7, 8], 70)


def test_a_frame_that_arrives_while_it_is_handed_over_has_no_delay():
    stamps = np.array([START_NS, START_NS + 110], np.int64)
    arrivals = np.array([START_NS + 105, START_NS + 300], np.int64)
    assert revealed(np.array([1, 2], np.uint32), stamps, arrivals) == {1: 0}


@pytest.mark.parametrize("frames", [0, 1])
def test_too_few_frames(frames):
    assert revealed(*sent_by_pktgen(frames, 100, 70)) == {}


@given(data=st.data(), frames=st.integers(2, 200))
def test_whatever_was_lost_and_reordered_and_wherever_the_batches_end(data, frames):
    arrived = data.draw(st.lists(st.integers(0, frames - 1), unique=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)))
    sequence, stamps, arrivals = (values[arrived] for values in sent_by_pktgen(frames, 100, 70))
    batches = EarlyStamps()
    found: dict[int, int] = {}
    for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        numbers, delays = batches.add(sequence[begin:end], stamps[begin:end], arrivals[begin:end])
        assert not found.keys() & set(numbers.tolist())
        found.update(zip(numbers.tolist(), delays.tolist(), strict=True))
    assert found == {place + 1: 70 for place in arrived if place + 1 in arrived}
