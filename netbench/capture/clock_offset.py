"""By what other clock than the sink's own a capture is stamped, from the frames that the sink sent itself.

A flush frame bears the time before it was handed to the kernel, and its successor the time when that call had returned.
In between the kernel has shown it to the capture: what the capture says of when that was bounds the difference of the
clocks to what the call took, some microseconds.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.model.distributions import ClockOffset


class FlushFrames(NamedTuple):
    """Flush frames in the order of the capture, arrays int64 of shape (n,); times are ns since 1970.

    `number` counts them from 0 in each push. `before_ns` was when it was about to be sent, `previous_ns` when the
    sending of the one before had returned, `captured_ns` when it was captured.
    """

    number: NDArray[np.int64]
    before_ns: NDArray[np.int64]
    previous_ns: NDArray[np.int64]
    captured_ns: NDArray[np.int64]


NO_FLUSH_FRAMES = FlushFrames(*[np.empty(0, np.int64)] * 4)


class OffsetTally:
    """Takes all flush frames of a capture, in constant memory."""

    def __init__(self) -> None:
        self._since_before, self._since_return = Distribution(), Distribution()
        self._last: tuple[int, int] | None = None  # number, and when it was captured

    def add(self, frames: FlushFrames) -> None:
        """The next ones."""
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
        """What all of them say together; None where there are too few to say anything.

        None is captured before it is sent. Some are captured after the call has returned, where another CPU empties the
        NIC's queue; that most of them are is taken to be impossible.
        """
        most, least = self._since_before.smallest, self._since_return.percentile(500)
        return None if most is None or least is None else ClockOffset(min(least, most), max(least, most))
