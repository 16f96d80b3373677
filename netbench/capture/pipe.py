"""The read end of a pipe, read a good piece at a time."""

import fcntl
import os
import select
import struct
import termios
import threading
import time
from contextlib import suppress
from io import RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# What an unprivileged process may have, too (pipe(7), /proc/sys/fs/pipe-max-size), unless the limit was lowered.
_WANTED_BYTES = 1 << 20
_LARGEST = Path("/proc/sys/fs/pipe-max-size")
# A reader that takes every page as it comes is woken for every 50 frames, and numpy's fixed cost is as high
# for these as for thousands: 1 µs a frame for 500 at a time, 0.07 µs for half of the pipe.
_GATHER_S = 0.05
# In this time 1,000,000 snapped frames/s do not fill the pipe.
_STEP_S = 0.01


class GatheringPipe(RawIOBase):
    """Waits until there is something to read, and then a moment for more, so that it is read in few large pieces.

    Owns the file descriptor. Whoever writes is held up only when a mebibyte waits to be read.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._hurried = threading.Event()
        with suppress(OSError):  # a smaller one does as well, only with more haste
            fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, min(_WANTED_BYTES, int(_LARGEST.read_text())))
        self._half = fcntl.fcntl(descriptor, fcntl.F_GETPIPE_SZ) // 2
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def hurry(self) -> None:
        """Have whatever there is read at once from now on; another thread may say so at any time."""
        self._hurried.set()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        """Read what there is, up to the size of `buffer`; how many bytes, 0 at the end."""
        ((_, events),) = self._poll.poll()
        until = time.monotonic() + _GATHER_S
        while not (events & select.POLLHUP or self._waiting() >= self._half or time.monotonic() >= until):
            if self._hurried.wait(_STEP_S):
                break
            ((_, events),) = self._poll.poll()
        return os.readv(self._descriptor, [buffer])

    def close(self) -> None:
        """Close the descriptor; harmless when called twice."""
        if not self.closed:
            super().close()
            os.close(self._descriptor)

    def _waiting(self) -> int:
        """How many bytes can be read now (FIONREAD, ioctl_tty(2))."""
        (count,) = struct.unpack("i", fcntl.ioctl(self._descriptor, termios.FIONREAD, bytes(4)))
        return int(count)
