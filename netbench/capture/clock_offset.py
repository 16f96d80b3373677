"""The offset of the clock that stamps a capture from the sink's clock, from the sink's own flush frames.

A flush frame contains the time before its send call, and its successor the time when that call had returned. The kernel
captures the frame in between. The capture time therefore bounds the difference of the clocks to the length of the call,
some microseconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.model.distributions import ClockOffset


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
