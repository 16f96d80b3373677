"""When the frames of a stream arrived, in constant memory."""

import numpy as np
from numpy.typing import NDArray

# Up to so many frames every time is kept; of more, every second one, every fourth …
_MOST_KEPT = 1 << 16


class ArrivalTimes:
    """How many frames of a stream had arrived by any time, once all have been added.

    Exact for up to 65,536 frames; of more, within one 32,768th of them.
    """

    def __init__(self) -> None:
        self.frames = 0
        self._step = 1  # the time of every so-manieth frame is kept
        self._kept = np.empty(0, np.int64)

    @classmethod
    def of(cls, frames: int, step: int, times_ns: NDArray[np.int64]) -> "ArrivalTimes":
        """Those of so many frames, of which somebody else has kept the times of the first and every `step`th after."""
        known = cls()
        known.frames, known._step, known._kept = frames, step, times_ns
        return known

    def add(self, times_ns: NDArray[np.int64]) -> None:
        """The next frames, of shape (n,), roughly in the order of their times."""
        self._kept = np.concatenate((self._kept, times_ns[-self.frames % self._step :: self._step]))
        self.frames += len(times_ns)
        while len(self._kept) > _MOST_KEPT:
            self._kept = self._kept[::2]
            self._step *= 2

    def before(self, time_ns: int) -> int:
        """How many arrived before a time."""
        return min(int(np.count_nonzero(self._kept < time_ns)) * self._step, self.frames)
