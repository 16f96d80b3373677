"""Delays summed up in little memory, against the same done with all of them at hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.analysis.delays import DelayTally

BATCHES = st.lists(st.lists(st.integers(-(2**40), 2**50), max_size=50), max_size=6)


@given(BATCHES)
def test_a_tally_is_what_all_delays_at_once_would_be(batches):
    tally = DelayTally()
    for batch in batches:
        tally.add(np.array(batch, np.int64))
    delays = sorted(one for batch in batches for one in batch)
    found = tally.delay()
    if not delays:
        assert found is None
        return
    assert found is not None
    assert (found.smallest_ns, found.largest_ns) == (delays[0], delays[-1])
    assert found.mean_ns == pytest.approx(sum(delays) / len(delays), rel=1e-12)
    true = delays[(len(delays) - 1) // 2]
    assert abs(found.median_ns - true) <= abs(true) * 0.0005
    assert found.smallest_ns <= found.median_ns <= found.largest_ns


@given(st.lists(st.integers(-2047, 2047), min_size=1))
def test_short_delays_are_kept_to_the_nanosecond(delays):
    tally = DelayTally()
    tally.add(np.array(delays, np.int64))
    found = tally.delay()
    assert found is not None
    assert found.median_ns == sorted(delays)[(len(delays) - 1) // 2]


def test_memory_does_not_grow_with_the_frames():
    tally = DelayTally()
    generator = np.random.default_rng(1)
    for _ in range(20):
        tally.add(generator.integers(0, 10**9, 100_000))
    assert len(tally._steps) < 30 * 1024
