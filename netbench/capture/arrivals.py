"""A batch of sequence numbers as runs of consecutive ones: few even where some are lost, late or repeated.

All that is made of the order of arrival is made of runs, and so costs next to nothing for frames that come in order.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Arrivals(NamedTuple):
    """The numbers of a batch in the order in which they arrived.

    Those that are higher than any number before them are ascending ranges: from `ahead_from` up to but without
    `ahead_to`, of which the first number is at `ahead_places` in the batch. All other numbers, in order, are `late`,
    at `late_places`. Places are intp, numbers int64.
    """

    frames: int
    ahead_from: NDArray[np.int64]
    ahead_to: NDArray[np.int64]
    ahead_places: NDArray[np.intp]
    late: NDArray[np.int64]
    late_places: NDArray[np.intp]

    def without(self, places: NDArray[np.intp]) -> "Arrivals":
        """The same as if the late frames at these places, which are in ascending order, were not there."""
        stay = np.isin(self.late_places, places, assume_unique=True, invert=True)
        return Arrivals(
            frames=self.frames - len(places),
            ahead_from=self.ahead_from,
            ahead_to=self.ahead_to,
            ahead_places=self.ahead_places - np.searchsorted(places, self.ahead_places),
            late=self.late[stay],
            late_places=self.late_places[stay] - np.searchsorted(places, self.late_places[stay]),
        )


def arrivals(sequence: NDArray[np.uint32], expected: int) -> Arrivals:
    """Of a batch, uint32 of shape (n,). `expected` is the highest number before it + 1.

    That is NextExp of RFC 4737, section 3.3: what is not lower than it and all before in the batch is ahead.
    """
    places = run_places(sequence)
    first = sequence[places].astype(np.int64)
    stop: NDArray[np.int64] = first + np.diff(places, append=len(sequence))
    next_expected = np.maximum.accumulate(np.concatenate((np.array([expected]), stop)))[:-1]
    ahead_from: NDArray[np.int64] = np.maximum(first, next_expected)
    is_ahead = ahead_from < stop
    late, late_places = np.empty(0, np.int64), np.empty(0, np.intp)
    if (first < next_expected).any():
        lengths = np.maximum(np.minimum(stop, next_expected) - first, 0)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        late, late_places = np.repeat(first, lengths) + within, np.repeat(places, lengths) + within
    return Arrivals(
        frames=len(sequence),
        ahead_from=ahead_from[is_ahead],
        ahead_to=stop[is_ahead],
        ahead_places=places[is_ahead] + (ahead_from - first)[is_ahead],
        late=late,
        late_places=late_places,
    )


def run_places(sequence: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Where each maximal run of consecutive numbers begins, of a batch of shape (n,)."""
    begins = np.ones(len(sequence), np.bool_)
    np.not_equal(np.diff(sequence), 1, out=begins[1:])  # of unsigned numbers: 0 is 1 more than the highest
    places = np.flatnonzero(begins)
    if len(sequence) > 1 and int(sequence[places].max()) + len(sequence) > 1 << 32:
        places = np.flatnonzero(begins | (sequence == 0))
    return places
