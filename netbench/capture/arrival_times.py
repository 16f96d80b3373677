"""The arrival times of a stream's frames, in constant memory."""

import numpy as np
from numpy.typing import NDArray

# Up to this many frames every time is kept; of more, every second one, every fourth …
_MOST_KEPT = 1 << 16


class ArrivalTimes:
    """The number of frames of a stream that had arrived by any time, once all have been added.

    Exact for up to 65,536 frames; for more, within one 32,768th of them.
    """

    def __init__(self) -> None:
        self.frames = 0
        self._step = 1  # the time of every `_step`-th frame is kept
        self._kept = np.empty(0, np.int64)

    @classmethod
    def of(cls, frames: int, step: int, times_ns: NDArray[np.int64]) -> "ArrivalTimes":
        """Return the arrival times of `frames` frames, from the times of the first and every `step`-th one after it."""
        known = cls()
        known.frames, known._step, known._kept = frames, step, times_ns
        return known

    def add(self, times_ns: NDArray[np.int64]) -> None:
        """Add the next frames, of shape (n,), roughly in the order of their times."""
        self._kept = np.concatenate((self._kept, times_ns[-self.frames % self._step :: self._step]))
        self.frames += len(times_ns)
        while len(self._kept) > _MOST_KEPT:
            self._kept = self._kept[::2]
            self._step *= 2

    def before(self, time_ns: int) -> int:
        """Return how many frames arrived before a time."""
        return min(int(np.count_nonzero(self._kept < time_ns)) * self._step, self.frames)
