"""Checks whether a stream's sequence numbers come from one source, and in the order of capture."""

import numpy as np
from numpy.typing import NDArray

from netbench.capture.captured import NumberCheck
from netbench.capture.clock_check import InOrder
from netbench.capture.headers import StreamFrames
from netbench.capture.sequences import Arrivals

# No source sends this many frames faster than one per ns, which exceeds the frame rate of 400 Gbit/s.
_LEAST_JUMP = 1 << 24
# No file is out of order by more: then one of the two times is unknown.
_LONGEST_NS = 10**18


class NumberTally:
    """Finds numbers and copies in a stream's frames that no single source can have sent."""

    def __init__(self) -> None:
        self._last_time_ns: int | None = None
        self._newest_us = 0  # the time stamp of the frame with the highest number so far
        self._disorder_ns = self._jump = self._resent = 0

    def add(
        self,
        frames: StreamFrames,
        in_order: InOrder,
        arrived: Arrivals,
        known: range | None,
    ) -> None:
        """Add the next frames, with those that are not late; `known` has the lowest and highest number before them.

        Unknown capture times are far before all others, and are ignored.
        """
        times_ns, sent_us = frames.times_ns, frames.sent_us
        before_ns = int(times_ns[0]) if self._last_time_ns is None else self._last_time_ns
        if len(arrived.late_places):
            back_ns = -_advance(times_ns, arrived.late_places, before_ns)
            self._disorder_ns = max(self._disorder_ns, int(back_ns[back_ns < _LONGEST_NS].max(initial=0)))
            newest_us = in_order.sent_us_before(arrived.late_places, self._newest_us)
            is_resent = (newest_us > 0) & (sent_us[arrived.late_places] > newest_us)
            self._resent += int(np.count_nonzero(is_resent))
        self._find_jump(times_ns, arrived, known, before_ns)
        self._last_time_ns = int(times_ns[-1])
        if in_order.size:
            self._newest_us = in_order.at(-1).sent_ns // 1000

    def _find_jump(self, times_ns: NDArray[np.int64], arrived: Arrivals, known: range | None, before_ns: int) -> None:
        begins, ends = arrived.ahead_from, arrived.ahead_to
        previous = np.concatenate(([known.stop] if known else begins[:1], ends[:-1]))
        jumps = begins - previous
        if len(jumps) and int(jumps.max()) >= _LEAST_JUMP:
            advance_ns = _advance(times_ns, arrived.ahead_places, before_ns)
            too_fast = jumps[(jumps >= _LEAST_JUMP) & (jumps > advance_ns)]
            self._jump = max(self._jump, int(too_fast.max(initial=0)))
        if len(arrived.late):
            lowest = min([*([known.start] if known else []), *begins[:1].tolist()])
            below = lowest - int(arrived.late.min())
            self._jump = max(self._jump, below if below >= _LEAST_JUMP else 0)

    def check(self, largest_back_ns: int) -> NumberCheck:
        """Return the result; `largest_back_ns` is how far capture times of frames in order go back at most."""
        disorder_ns = self._disorder_ns if self._disorder_ns > largest_back_ns else 0
        return NumberCheck(disorder_ns, self._jump, self._resent)


def _advance(times_ns: NDArray[np.int64], places: NDArray[np.intp], before_ns: int) -> NDArray[np.int64]:
    """Return the time in ns from the capture of each frame's predecessor to its own, for frames at these places."""
    previous = np.where(places > 0, times_ns[places - 1], before_ns)
    advance: NDArray[np.int64] = times_ns[places] - previous
    return advance
