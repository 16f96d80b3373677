"""Delays of frames that were stamped before they waited for their turn."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.analysis.early_stamps import WINDOW_FRAMES, EarlyStamps, delays_ns

START_US = 1_700_000_000_000_000


def sent_by_pktgen(frames: int, gap_us: int, delay_us: int):
    """What arrives of a run: frame i is stamped when i − 1 has been handed over, which takes no time here."""
    sequence = np.arange(1, frames + 1, dtype=np.uint32)
    handed_over = START_US + gap_us * np.arange(frames, dtype=np.int64)
    stamps = np.concatenate(([START_US], handed_over[:-1]))
    return sequence, stamps, (handed_over + delay_us) * 1000


def test_the_wait_for_the_slot_is_no_delay():
    sequence, stamps, arrivals = sent_by_pktgen(frames=1000, gap_us=1000, delay_us=5000)
    naive = arrivals - stamps * 1000
    assert np.median(naive) == 6_000_000  # one gap too long
    delays = delays_ns(sequence, stamps, arrivals)
    assert len(delays) == 999  # nothing came after the last frame
    assert (delays == 5_000_000).all()


def test_a_frame_before_a_lost_one_is_left_out():
    sequence, stamps, arrivals = (values[np.r_[0:4, 5:9]] for values in sent_by_pktgen(10, 100, 70))
    delays = delays_ns(sequence, stamps, arrivals)
    assert delays.tolist() == [70_000] * 6  # of 1, 2, 3, 6, 7, 8


def test_copies_have_a_delay_each():
    sequence, stamps, arrivals = (np.repeat(values, 2) for values in sent_by_pktgen(3, 100, 70))
    arrivals = arrivals + np.tile([0, 9000], 3)
    assert delays_ns(sequence, stamps, arrivals).tolist() == [70_000, 79_000] * 2


def test_a_frame_that_arrives_while_it_is_handed_over_has_no_delay():
    stamps = np.array([START_US, START_US + 110], np.int64)
    arrivals = np.array([START_US + 105, START_US + 300], np.int64) * 1000
    assert delays_ns(np.array([1, 2], np.uint32), stamps, arrivals).tolist() == [0]


@pytest.mark.parametrize("frames", [0, 1])
def test_too_few_frames(frames):
    assert delays_ns(*sent_by_pktgen(frames, 100, 70)).tolist() == []
    assert EarlyStamps().add(*sent_by_pktgen(frames, 100, 70)).tolist() == []


@given(data=st.data(), frames=st.integers(2, 200))
def test_in_batches_as_at_once(data, frames):
    """Whatever was lost, doubled and reordered, and wherever the batches end."""
    arrived = data.draw(st.lists(st.integers(0, frames - 1), max_size=300))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(arrived)), max_size=5)))
    sequence, stamps, arrivals = (values[arrived] for values in sent_by_pktgen(frames, 100, 70))
    arrivals = arrivals + np.arange(len(arrived))  # every copy has its own delay
    batches = EarlyStamps()
    found: list[int] = []
    for begin, end in zip([0, *cuts], [*cuts, len(arrived)], strict=True):
        found += batches.add(sequence[begin:end], stamps[begin:end], arrivals[begin:end]).tolist()
    assert sorted(found) == sorted(delays_ns(sequence, stamps, arrivals).tolist())


def test_memory_stays_bounded_and_order_within_the_window_does_not_matter():
    frames = 20 * WINDOW_FRAMES
    sequence, stamps, arrivals = sent_by_pktgen(frames, 10, 70)
    order = np.argsort(np.arange(frames) + np.random.default_rng(1).integers(0, WINDOW_FRAMES // 2, frames))
    order = order[order % 100 != 99]  # and one of 100 is lost, so that frames wait in vain
    batches = EarlyStamps()
    count = 0
    for part in np.array_split(order, 97):
        delays = batches.add(sequence[part], stamps[part], arrivals[part])
        assert (delays == 70_000).all()
        count += len(delays)
        assert sum(value.nbytes for value in vars(batches).values()) < 100 * WINDOW_FRAMES
    assert count == len(delays_ns(sequence[order], stamps[order], arrivals[order]))
