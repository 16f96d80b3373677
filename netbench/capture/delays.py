"""Times of frames with consecutive numbers: how much delays vary, and delays by stamps that are early."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.capture.sequences import run_places, without
from netbench.model.distributions import Spread

Values = NDArray[np.int64]

# How many frames wait for one that has not arrived. One that was lost never does, so the lowest numbers give up.
_MOST_WAITING = 1 << 13


class Successors:
    """Pairs of frames with consecutive numbers, in whatever order they arrive, in constant memory.

    Makes one value of each two frames with consecutive numbers that both arrive.

    Where neither is next to the other in a batch, both are held until the other arrives, as long as no more than
    8,192 do so: runs of frames, not single ones, so that is far beyond what any path reorders.
    """

    def __init__(self, combine: Callable[[Values, Values], Values]) -> None:
        """`combine` makes the values: of those of frames (int64) and, in a second array, of their successors."""
        self._combine = combine
        self._for_successor, self._for_predecessor = _Waiting(), _Waiting()

    def add(self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values) -> tuple[Values, Values]:
        """The pairs that the next frames complete: the lower number of each, and the value made of both.

        `sequence` (shape (n,)) has no number that was there before; the frames have one value each
        for the case that they are the first or the second of a pair.
        """
        if not len(sequence):
            return sequence, of_frame
        ends, values, joined = self._complete(sequence, of_frame, of_successor)
        numbers = np.concatenate([without(sequence[:-1], ends[:-1]), *(pairs for pairs, _ in joined)])
        return numbers, values

    def values(self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values) -> Values:
        """As `add`, for whom the numbers do not matter."""
        return self._complete(sequence, of_frame, of_successor)[1] if len(sequence) else of_frame

    def _complete(
        self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values
    ) -> tuple[NDArray[np.intp], Values, list[tuple[Values, Values]]]:
        """Where runs of numbers end in the batch, all values, and with their numbers those that joined runs.

        Values come in the order of the numbers before those of the runs that they join.
        """
        starts = run_places(sequence)
        ends = np.append(starts[1:], len(sequence)) - 1
        first, last = sequence[starts], sequence[ends]
        self._for_successor.put(last + 1, of_frame[ends])
        found, theirs = self._for_successor.take(first)
        joined = [(first[found] - 1, self._combine(theirs, of_successor[starts[found]]))]
        self._for_predecessor.put(np.delete(first, found) - 1, of_successor[np.delete(starts, found)])
        found, theirs = self._for_predecessor.take(last)
        joined.append((last[found], self._combine(of_frame[ends[found]], theirs)))
        within = without(self._combine(of_frame[:-1], of_successor[1:]), ends[:-1])
        return ends, np.concatenate([within, *(made for _, made in joined)]), joined


class _Waiting:
    """Values by the number of the frame they wait for."""

    def __init__(self) -> None:
        self._numbers = self._values = np.empty(0, np.int64)

    def put(self, numbers: Values, values: Values) -> None:
        numbers, values = np.concatenate((self._numbers, numbers)), np.concatenate((self._values, values))
        order = np.argsort(numbers, kind="stable")[-_MOST_WAITING:]
        self._numbers, self._values = numbers[order], values[order]

    def take(self, numbers: Values) -> tuple[NDArray[np.intp], Values]:
        """Which of these frames are waited for, and by what values, which wait no longer."""
        if not len(self._numbers):
            return np.empty(0, np.intp), self._values
        places = np.minimum(np.searchsorted(self._numbers, numbers), len(self._numbers) - 1)
        found = np.flatnonzero(self._numbers[places] == numbers)
        places = places[found]
        values = self._values[places]
        self._numbers, self._values = np.delete(self._numbers, places), np.delete(self._values, places)
        return found, values


class VariationTally:
    """IPDV of RFC 5481, section 4.1: delay of a frame - delay of the frame with the number before; its magnitude.

    By number, not by arrival; undefined, and left out, where either frame is lost (RFC 3393). Signs are
    left out too: all differences between the first and the last frame add up to the difference of those two.
    """

    def __init__(self) -> None:
        self._pairs = Successors(lambda earlier_ns, later_ns: np.abs(later_ns - earlier_ns))
        self._magnitudes = Distribution()

    def add(self, sequence: NDArray[np.int64], delays_ns: NDArray[np.int64]) -> None:
        """Numbers and delays of frames, in any order, without further copies of what there was."""
        self._magnitudes.add(self._pairs.values(sequence, delays_ns, delays_ns))

    def spread(self) -> Spread | None:
        """Of all pairs; None where there is none."""
        return self._magnitudes.spread()


class EarlyStamps:
    """Delays of frames whose source stamps a frame first and then waits for its turn, as the kernel's pktgen does.

    `pktgen_xmit` in the kernel's net/core/pktgen.c builds a frame and stamps it, waits until it is due, hands it to the
    driver, and goes on to build the next one at once. So a frame's own stamp is early by up to the gap between frames,
    while the stamp of its successor comes right after it was handed over. Counted from there, a delay is too short by
    what handing a frame over costs: about 1 µs on hardware, 10 µs under emulation, and on veth all that is done to the
    frame up to the first queue, as that happens in the same call. A frame that arrives during that call has a delay of
    0: less than can be told.

    This is for sources that pause between frames. One that does not sends a frame as soon as it is stamped. One of
    several on the same kernel thread builds its next frame only when it is its turn again: its delays are too short by
    as much.

    Takes frames without further copies of what has arrived.
    """

    def __init__(self) -> None:
        self._pairs = Successors(lambda arrivals_ns, stamps_ns: np.maximum(arrivals_ns - stamps_ns, 0))

    def add(
        self, sequence: NDArray[np.int64], stamp_ns: NDArray[np.int64], arrival_ns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The delays that the next frames reveal, of themselves and of earlier ones: numbers of frames, and int64 ns.

        A delay is arrival - stamp of the frame with the next number, at least 0, and revealed once both have arrived;
        times are since 1970 by one clock.
        """
        return self._pairs.add(sequence, arrival_ns, stamp_ns)
