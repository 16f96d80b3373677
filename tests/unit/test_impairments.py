"""Impairments: the frames that are sent agree with the numbers that are predicted for them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from netbench.uut.forwarder_process import Every, Impairments, Late, Ordering


def sent(impairments, frames):
    """Return the numbers that go out in own frames and in foreign ones, of frames numbered from 0."""
    ordering: Ordering[int] = Ordering(impairments)
    out = [frame for number in range(frames) for frame in ordering.take(number)] + ordering.rest()
    return [number for number, foreign in out if not foreign], [number for number, foreign in out if foreign]


def late_extents(numbers):
    """Return how many frames each reordered one came after the first with a higher number (RFC 4737, section 4.2)."""
    found = []
    for position, number in enumerate(numbers):
        overtaking = [earlier for earlier, earlier_number in enumerate(numbers[:position]) if earlier_number > number]
        if overtaking:
            found.append(position - overtaking[0])
    return found


@given(st.integers(1, 12), st.integers(0, 60))
def test_duplicates_and_foreign_frames_are_as_many_as_reported(every, frames):
    out, _ = sent(Impairments(duplicate=Every(every=every)), frames)
    assert len(out) - len(set(out)) == Every(every=every).of(frames)
    out, foreign = sent(Impairments(foreign=Every(every=every)), frames)
    assert (out, len(foreign)) == (list(range(frames)), Every(every=every).of(frames))


@given(st.integers(2, 12).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n - 1))), st.integers(0, 60))
def test_late_frames_are_overtaken_by_as_many_as_reported(every_behind, frames):
    every, behind = every_behind
    late = Late(every=every, behind=behind)
    out, _ = sent(Impairments(late=late), frames)
    assert sorted(out) == list(range(frames)), "none is lost"
    assert late_extents(out) == late.extents(frames)


def test_two_frames_are_never_held_back_at_once():
    with pytest.raises(ValidationError, match="behind is less than every, 5"):
        Late(every=5, behind=5)
