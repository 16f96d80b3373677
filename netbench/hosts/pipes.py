"""The output of a process's pipes, read with a time limit, and the end of a process."""

import os
import select
import socket
import subprocess
import threading
import time
from contextlib import suppress
from typing import IO

from netbench.hosts.base import Process
from netbench.hosts.clock import wait_until
from netbench.model.foreign_text import decoded

_LONGEST_BYTES = 65_536
_LATEST_BYTES = 3 * _LONGEST_BYTES
_POLL_S = 0.002
# Time limit for the remaining output of an ended process, and for the end of a killed one.
_GRACE_S = 1.0


class Lines:
    """The lines of one pipe.

    They are read from its descriptor: a buffered reader would wait forever for the end of a half-written line.
    """

    def __init__(self, pipe: IO[str]) -> None:
        self._descriptor = pipe.fileno()
        self._unread = b""

    @property
    def beyond(self) -> bytes:
        """The bytes read from the pipe after the last line taken."""
        return self._unread

    def take(self, timeout_s: float) -> bytes:
        """Return the next line, without its end.

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


class Tail:
    """The output of a pipe or a socket, read by a thread as it comes, so that its writer never waits.

    Of more than 256 KiB, the first quarter and the latest part are kept.
    """

    def __init__(self, pipe: IO[str] | socket.socket) -> None:
        self._descriptor = os.dup(pipe.fileno())
        self._first, self._last, self._omitted = b"", b"", 0
        # A daemon thread, so that netbench can end even if the other end stays open.
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def text(self, wait_s: float = 0.0) -> str:
        """Return the output so far; wait up to `wait_s` for its end, if its writer has ended."""
        self._thread.join(wait_s)
        first, last, omitted = self._first, self._last, self._omitted
        gap = f"\n[{omitted} bytes omitted]\n".encode() if omitted else b""
        return decoded(first + gap + last)

    def _read(self) -> None:
        while piece := os.read(self._descriptor, _LONGEST_BYTES):
            room = _LONGEST_BYTES - len(self._first)
            self._first += piece[:room]
            last = self._last + piece[room:]
            self._omitted += max(0, len(last) - _LATEST_BYTES)
            self._last = last[-_LATEST_BYTES:]
        os.close(self._descriptor)


def last_words(pipe: IO[str], lines: int) -> str:
    """Return the last lines of the first 64 KiB in a pipe now, joined by ` | `, without waiting for more."""
    words = [line.strip() for line in decoded(_available(pipe)).splitlines() if line.strip()]
    return " | ".join(words[-lines:])


def end(process: Process, limit_s: float = 0.0) -> str:
    """End a process: wait `limit_s`, then use SIGKILL; return the last 64 KiB of its stderr.

    Its pipes are closed, even if other processes, such as its children, have them open.
    """
    if process.stdin is not None:
        with suppress(OSError):  # unread data
            process.stdin.close()
    pipes = [pipe for pipe in (process.stdout, process.stderr) if pipe is not None and not pipe.closed]
    errors = b""

    def is_silent() -> bool:
        nonlocal errors
        for pipe in list(pipes):
            if not select.select([pipe], [], [], 0)[0]:
                continue
            if not (piece := _available(pipe)):
                pipes.remove(pipe)
            elif pipe is process.stderr:
                errors = (errors + piece)[-_LONGEST_BYTES:]
        return not pipes

    def has_ended() -> bool:
        is_silent()  # empties the pipes: otherwise it might wait for a reader
        return process.poll() is not None

    if not wait_until(has_ended, limit_s, _POLL_S):
        process.kill()
    with suppress(subprocess.TimeoutExpired):  # it cannot be reaped while its kernel waits for a disk
        process.wait(_GRACE_S)
    wait_until(is_silent, _GRACE_S, _POLL_S)
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    return decoded(errors)


def _available(pipe: IO[str]) -> bytes:
    """Return the first 64 KiB in a pipe now; empty also at its end."""
    descriptor, text = pipe.fileno(), b""
    while len(text) < _LONGEST_BYTES and select.select([descriptor], [], [], 0)[0]:
        if not (piece := os.read(descriptor, _LONGEST_BYTES - len(text))):
            break
        text += piece
    return text
