"""What a process writes into its pipes, waited for no longer than it may take."""

import os
import select
import time
from typing import IO

_LONGEST_BYTES = 65_536


class Lines:
    """The lines of one pipe.

    Straight from its descriptor: a buffered reader would wait for ever for the end of a half-written line.
    """

    def __init__(self, pipe: IO[str]) -> None:
        self._descriptor = pipe.fileno()
        self._unread = b""

    def take(self, timeout_s: float) -> bytes:
        """The next line, without its end.

        TimeoutError when it does not come in time, EOFError when the pipe ends before it, ValueError when more than
        64 KiB wait to be read.
        """
        deadline = time.monotonic() + timeout_s
        while b"\n" not in self._unread:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([self._descriptor], [], [], left_s)[0]:
                raise TimeoutError(f"no line within {timeout_s:g} s")
            piece = os.read(self._descriptor, _LONGEST_BYTES)
            if not piece:
                raise EOFError("the pipe ended")
            self._unread += piece
            if len(self._unread) > _LONGEST_BYTES:
                raise ValueError("lines without end")
        line, _, self._unread = self._unread.partition(b"\n")
        return line


def last_words(pipe: IO[str], lines: int) -> str:
    """The last few lines that a pipe holds now, joined by ` | `; never waits for more."""
    descriptor, text = pipe.fileno(), b""
    while select.select([descriptor], [], [], 0)[0] and (piece := os.read(descriptor, _LONGEST_BYTES)):
        text += piece
    said = [line.strip() for line in text.decode(errors="replace").splitlines() if line.strip()]
    return " | ".join(said[-lines:])
