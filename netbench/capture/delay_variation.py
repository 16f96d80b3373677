"""Delay variation, delays from early time stamps, and the offset of the clock that stamps a capture.

The offset is that from the sink's clock, from the sink's own flush frames. A flush frame contains the time before its
send call, and its successor the time when that call had returned. The kernel captures the frame in between. The capture
time therefore bounds the difference of the clocks to the length of the call, some microseconds.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.capture.sequences import run_places, without
from netbench.model.distributions import ClockOffset, Spread

Values = NDArray[np.int64]

# The most frames that wait for a neighbour in number. A lost one never arrives, so the lowest numbers are dropped.
_MOST_WAITING = 1 << 13


class Successors:
    """Pairs of frames with consecutive numbers, in any order of arrival, in constant memory.

    Combines each pair of consecutive frames that both arrived into one value. Frames that are not adjacent in a batch
    wait for each other, at most 8,192 at a time. Only the ends of runs wait, not all frames, so this is far beyond the
    reordering of any path.
    """

    def __init__(self, combine: Callable[[Values, Values], Values]) -> None:
        """`combine` makes the values from those of frames (int64) and, in a second array, of their successors."""
        self._combine = combine
        self._for_successor, self._for_predecessor = _Waiting(), _Waiting()

    def add(self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values) -> tuple[Values, Values]:
        """Add frames; return the pairs that they complete: the lower number of each, and the value of the pair.

        `sequence` (shape (n,)) has no number twice, also not from earlier calls. Each frame has one value as the first
        of a pair, and one as the second.
        """
        if not len(sequence):
            return sequence, of_frame
        ends, values, joined = self._complete(sequence, of_frame, of_successor)
        numbers = np.concatenate([without(sequence[:-1], ends[:-1]), *(pairs for pairs, _ in joined)])
        return numbers, values

    def values(self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values) -> Values:
        """Add frames; return the values of the pairs without their numbers."""
        return self._complete(sequence, of_frame, of_successor)[1] if len(sequence) else of_frame

    def _complete(
        self, sequence: NDArray[np.int64], of_frame: Values, of_successor: Values
    ) -> tuple[NDArray[np.intp], Values, list[tuple[Values, Values]]]:
        """Return where runs of numbers end in the batch, all values, and the values that joined runs, with numbers.

        Values within the batch come first, in the order of their numbers, then those that joined runs.
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
    """Values by the number of the frame that they wait for."""

    def __init__(self) -> None:
        self._numbers = self._values = np.empty(0, np.int64)

    def put(self, numbers: Values, values: Values) -> None:
        numbers, values = np.concatenate((self._numbers, numbers)), np.concatenate((self._values, values))
        order = np.argsort(numbers, kind="stable")[-_MOST_WAITING:]
        self._numbers, self._values = numbers[order], values[order]

    def take(self, numbers: Values) -> tuple[NDArray[np.intp], Values]:
        """Remove the values that wait for these frames; return which frames, and the values."""
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

    By number, not by arrival; undefined, and omitted, where either frame is lost (RFC 3393). Signs are omitted too:
    otherwise the differences would add up to that between the first and the last frame.
    """

    def __init__(self) -> None:
        self._pairs = Successors(lambda earlier_ns, later_ns: np.abs(later_ns - earlier_ns))
        self._magnitudes = Distribution()

    def add(self, sequence: NDArray[np.int64], delays_ns: NDArray[np.int64]) -> None:
        """Add numbers and delays of frames, in any order, without duplicates."""
        self._magnitudes.add(self._pairs.values(sequence, delays_ns, delays_ns))

    def spread(self) -> Spread | None:
        """Return the spread of all pairs; None where there are none."""
        return self._magnitudes.spread()


class EarlyStamps:
    """Delays of frames whose source stamps a frame first and then waits for its turn, as the kernel's pktgen does.

    `pktgen_xmit` in the kernel's net/core/pktgen.c builds and stamps a frame, waits until it is due, hands it to the
    driver, and builds the next one at once. A frame's own stamp is therefore early by up to the gap between frames. The
    stamp of its successor comes right after the handover. A delay from that stamp is too short by the cost of the
    handover: about 1 µs on hardware, 10 µs under emulation. On veth it includes all processing up to the first queue,
    which happens in the same call. A frame that arrives during that call has a delay of 0, the smallest possible value.

    This applies to sources that pause between frames. A source without pauses sends a frame as soon as it is stamped. A
    source that shares its kernel thread with others builds its next frame only at its next turn, and its delays are too
    short by the wait for that turn.

    Duplicates must not be added.
    """

    def __init__(self) -> None:
        self._pairs = Successors(lambda arrivals_ns, stamps_ns: np.maximum(arrivals_ns - stamps_ns, 0))

    def add(
        self, sequence: NDArray[np.int64], stamp_ns: NDArray[np.int64], arrival_ns: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Add frames; return the numbers of all frames whose delays are now known, and the delays, int64 ns.

        A delay is arrival - stamp of the frame with the next number, at least 0, and known once both have arrived;
        times are since 1970 by one clock.
        """
        return self._pairs.add(sequence, arrival_ns, stamp_ns)


class FlushFrames(NamedTuple):
    """Flush frames in the order of the capture, arrays int64 of shape (n,); times are ns since 1970.

    `number` counts them from 0 in each push. `before_ns` is the time before its send call, `previous_ns` when the call
    of the previous frame had returned, `captured_ns` its capture time.
    """

    number: NDArray[np.int64]
    before_ns: NDArray[np.int64]
    previous_ns: NDArray[np.int64]
    captured_ns: NDArray[np.int64]


NO_FLUSH_FRAMES = FlushFrames(*[np.empty(0, np.int64)] * 4)


class OffsetTally:
    """Collects all flush frames of a capture, in constant memory."""

    def __init__(self) -> None:
        self._since_before, self._since_return = Distribution(), Distribution()
        self._last: tuple[int, int] | None = None  # number and capture time

    def add(self, frames: FlushFrames) -> None:
        """Add the next flush frames."""
        if not len(frames.number):
            return
        self._since_before.add(frames.captured_ns - frames.before_ns)
        number, captured = self._last or (-2, 0)
        numbers = np.concatenate(([number], frames.number))
        captures = np.concatenate(([captured], frames.captured_ns))
        is_next = np.flatnonzero(np.diff(numbers) == 1)
        self._since_return.add(captures[is_next] - frames.previous_ns[is_next])
        self._last = int(frames.number[-1]), int(frames.captured_ns[-1])

    def offset(self) -> ClockOffset | None:
        """Return the bounds from all flush frames; None where there are too few.

        No frame is captured before it is sent. Some are captured after the call has returned, where another CPU empties
        the NIC's queue. The result assumes that this is not the case for most of them.
        """
        most, least = self._since_before.smallest, self._since_return.percentile(500)
        return None if most is None or least is None else ClockOffset(min(least, most), max(least, most))
