"""A sliding window over a file: constant memory, however long the file."""

from io import RawIOBase

import numpy as np
from numpy.typing import NDArray

# Large enough that numpy's fixed cost per call is small beside the work on a window, and small enough
# that it stays in the cache while one column after the other is read from it.
WINDOW_BYTES = 1 << 22
# The first bytes of a short record are copied at full width: what lies behind it is never used.
SLACK_BYTES = 256


class Window:
    """The bytes of a file that are in memory, from the first one not yet consumed.

    `memory[start:stop]` holds them, `data` is the same memory for struct, and `offset` is the place of the
    first of them in the file. Views on the memory are valid until the next fill().
    """

    def __init__(self, file: RawIOBase, size: int = WINDOW_BYTES) -> None:
        self._file = file
        self._allocate(size)
        self.start = 0
        self.stop = 0
        self.offset = 0

    @property
    def available(self) -> int:
        """How many bytes are in memory, not yet consumed."""
        return self.stop - self.start

    def fill(self, wanted: int) -> bool:
        """Have at least `wanted` bytes available, reading on as needed; False when the file ends before."""
        if self.available >= wanted:
            return True
        self._make_room(wanted)
        while self.available < wanted:
            count = self._file.readinto(self.data[self.stop : self._size])
            if not count:
                return False
            self.stop += count
        return True

    def consume(self, count: int) -> None:
        """Step over `count` available bytes."""
        self.start += count
        self.offset += count

    def _make_room(self, wanted: int) -> None:
        left = self.memory[self.start : self.stop]
        if wanted > self._size:
            self._allocate(wanted)
        self.memory[: len(left)] = left
        self.start, self.stop = 0, len(left)

    def _allocate(self, size: int) -> None:
        self._size = size
        # glibc keeps freed blocks up to the size of the largest one that was ever freed, and returns others
        # to the kernel (mallopt(3), M_MMAP_THRESHOLD). Freeing one of this size at once, untouched, makes it
        # keep the arrays of a batch for the next one, which saves a page fault for every 4 KiB of them.
        np.empty(size, np.uint8)
        self.memory: NDArray[np.uint8] = np.zeros(size + SLACK_BYTES, np.uint8)
        self.data = self.memory.data
