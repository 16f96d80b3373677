"""Delays of frames whose source stamps a frame first and then waits for its turn, as the kernel's pktgen does.

`pktgen_xmit` in the kernel's net/core/pktgen.c builds a frame and stamps it, waits until it is due, hands it to the
driver, and goes on to build the next one at once. So a frame's own stamp is early by up to the gap between frames,
while the stamp of its successor comes right after it was handed over. Counted from there, a delay is too short by what
handing a frame over costs: about 1 µs on hardware, 10 µs under emulation, and on veth all that is done to the frame
up to the first queue, as that happens in the same call. A frame that arrives during that call has a delay of 0: less
than can be told.

This is for sources that pause between frames. One that does not sends a frame as soon as it is stamped. One of several
on the same kernel thread builds its next frame only when it is its turn again: its delays are too short by as much.
"""

import numpy as np
from numpy.typing import NDArray

# How far frames may be out of order and still find their successor: more than any path reorders, and
# little beside the frames of a batch.
WINDOW_FRAMES = 4096


def delays_ns(
    sequence: NDArray[np.integer], stamp_us: NDArray[np.int64], arrival_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Arrival − stamp of the frame with the next number, at least 0, for each frame whose successor is there.

    All arrays have one element a frame, in any order, and copies of a frame bear the same stamp; times are since 1970
    by one clock. Returns int64 ns in the order of the frames, without those that have no successor.
    """
    numbers, stamps = _stamps_by_number(sequence.astype(np.int64), stamp_us)
    delays, found = _delays(sequence.astype(np.int64), arrival_ns, numbers, stamps)
    return delays[found]


class EarlyStamps:
    """As `delays_ns`, for a capture that is read in batches, in constant memory.

    A frame whose successor is more than WINDOW_FRAMES numbers out of order is left out.
    """

    def __init__(self) -> None:
        self._numbers = self._stamps = self._waiting = self._arrivals = np.empty(0, np.int64)

    def add(
        self, sequence: NDArray[np.integer], stamp_us: NDArray[np.int64], arrival_ns: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """The delays that the next batch of frames reveals, int64 ns: of its own frames and of earlier ones."""
        new = sequence.astype(np.int64)
        numbers, stamps = _stamps_by_number(
            np.concatenate((self._numbers, new)), np.concatenate((self._stamps, stamp_us))
        )
        waiting = np.concatenate((self._waiting, new))
        arrivals = np.concatenate((self._arrivals, arrival_ns))
        delays, found = _delays(waiting, arrivals, numbers, stamps)
        if len(numbers):
            oldest = numbers[-1] - WINDOW_FRAMES
            kept = numbers > oldest
            self._numbers, self._stamps = numbers[kept], stamps[kept]
            kept = ~found & (waiting > oldest)
            self._waiting, self._arrivals = waiting[kept], arrivals[kept]
        return delays[found]


def _stamps_by_number(
    sequence: NDArray[np.int64], stamp_us: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The numbers there are, ascending, and the stamp of each."""
    numbers, first = np.unique(sequence, return_index=True)
    return numbers, stamp_us[first]


def _delays(
    sequence: NDArray[np.int64],
    arrival_ns: NDArray[np.int64],
    numbers: NDArray[np.int64],
    stamps: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The delay of each frame, and whether its successor is there, without which it means nothing."""
    if not len(numbers):
        return np.empty(0, np.int64), np.empty(0, np.bool_)
    place = np.minimum(np.searchsorted(numbers, sequence + 1), len(numbers) - 1)
    found: NDArray[np.bool_] = numbers[place] == sequence + 1
    return np.maximum(arrival_ns - stamps[place] * 1000, 0), found
