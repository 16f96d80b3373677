"""Delays by early stamps, and delay variation against the definitions of RFC 3393 and RFC 5481."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from netbench.capture.delay_variation import _MOST_WAITING, EarlyStamps, Successors, VariationTally
from netbench.capture.distribution import Distribution
from netbench.model.distributions import Spread

START_NS = 1_700_000_000_000_000_000


def sent_by_pktgen(frames: int, gap_ns: int, delay_ns: int):
    """Return the arrivals of a run: frame i is stamped when i - 1 has been handed over, which takes no time here."""
    sequence = np.arange(1, frames + 1, dtype=np.int64)
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


def test_a_frame_that_arrives_while_it_is_handed_over_has_no_delay():
    stamps = np.array([START_NS, START_NS + 110], np.int64)
    arrivals = np.array([START_NS + 105, START_NS + 300], np.int64)
    assert revealed(np.array([1, 2], np.int64), stamps, arrivals) == {1: 0}


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


def tallied(numbers, delays, cuts=()):
    tally = VariationTally()
    for begin, end in pairwise([0, *cuts, len(numbers)]):
        tally.add(np.array(numbers[begin:end], np.int64), np.array(delays[begin:end], np.int64))
    return tally.spread()


def spread_of(values):
    distribution = Distribution()
    distribution.add(np.array(values, np.int64))
    return distribution.spread()


def magnitudes(numbers, delays):
    """Return |D(i) - D(i-1)| of each frame that arrived and whose predecessor arrived; otherwise it is undefined."""
    delay = dict(zip(numbers, delays, strict=True))
    return [abs(delay[number] - delay[number - 1]) for number in delay if number - 1 in delay]


@given(data=st.data())
def test_variation_is_that_of_the_words_of_the_rfc(data):
    base = data.draw(st.sampled_from([0, 65_500, 2**32 - 61]))
    numbers = [
        base + offset for offset in data.draw(st.lists(st.integers(0, 60), unique=True) | st.permutations(range(60)))
    ]
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
        numbers, differences = pairs.add(part, part * 3, part * 3)
        assert (differences == 3).all()
        count += len(numbers)
        for waiting in (pairs._for_successor, pairs._for_predecessor):
            assert len(waiting._numbers) <= _MOST_WAITING
    arrived = np.zeros(frames + 1, np.bool_)
    arrived[order] = True
    assert count == np.count_nonzero(arrived[1:] & arrived[:-1])
