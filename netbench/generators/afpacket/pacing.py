"""When which frames are due: blocks of consecutive frames, handed out at the right moment.

A pacer is shared by the threads of a source; they call `next_block` one at a time, under a lock.
"""

import select
import threading
import time
from typing import Protocol

# One system call may carry this many frames: more gains nothing measurable, and all frames of a call
# bear one time stamp.
MAX_BLOCK_FRAMES = 256

# What is sent back to back when on time: small enough that queues of the UUT do not notice, large
# enough that one core paces a million frames per second.
_EVEN_BLOCK_S = 50e-6

# A sleeping thread wakes up late by the timer slack (50 µs, prctl(2)) and the scheduler's whim.
_SPIN_NS = 200_000


class Halt:
    """Tells all threads of a trial to end, and why; the first reason stands."""

    def __init__(self) -> None:
        self._event = threading.Event()
        # Polling nothing lets go of the interpreter lock for the length of a system call. Without it, the
        # thread that listens for a stop would starve: woken at each send, always too late for the lock.
        self._breathe = select.poll().poll
        self.reason = ""

    def set(self, reason: str) -> None:
        """End the trial."""
        if not self._event.is_set():
            self.reason = reason
            self._event.set()

    def is_set(self) -> bool:
        """Whether the trial is to end."""
        return self._event.is_set()

    def sleep_until(self, due_ns: int) -> None:
        """Sleep until about `due_ns` (CLOCK_MONOTONIC), or until the trial is to end."""
        self._event.wait((due_ns - time.monotonic_ns()) / 1e9)

    def wait_until(self, due_ns: int) -> int:
        """Wait for `due_ns` to the microsecond; returns the CLOCK_MONOTONIC time, earlier when halted."""
        now_ns = time.monotonic_ns()
        if due_ns - now_ns > _SPIN_NS:
            self.sleep_until(due_ns - _SPIN_NS)
        while now_ns < due_ns and not self.is_set():
            self._breathe(0)
            now_ns = time.monotonic_ns()
        return now_ns


class Pacer(Protocol):
    """Hands out the frames of one trial. Times are CLOCK_MONOTONIC in ns."""

    start_ns: int  # when the first frame is due
    max_burst_frames: int  # most frames handed out without a wait in between
    max_lateness_ns: int

    def next_block(self) -> range | None:
        """The next frames to send, as soon as they are due; None when there are no more, or when halted."""

    def end_ns(self, sent: int) -> int:
        """The end of the slot of the last of `sent` frames."""


class Paced:
    """Exactly `frames` frames; frame i is due at start + i/fps, whatever happened to those before.

    So lateness is caught up and never accumulates. A start that lies in the past becomes now, and
    counts as lateness.
    """

    def __init__(self, frames: int, fps: float, start_ns: int, halt: Halt) -> None:
        now_ns = time.monotonic_ns()
        self.max_burst_frames = 0
        self.max_lateness_ns = max(0, now_ns - start_ns)
        self.start_ns = max(now_ns, start_ns)
        self._frames = frames
        self._frames_per_ns = fps / 1e9
        self._block_frames = min(MAX_BLOCK_FRAMES, max(1, int(fps * _EVEN_BLOCK_S)))
        self._halt = halt
        self._next = 0
        self._burst_frames = 0

    def next_block(self) -> range | None:
        """A block of about 50 µs; when late, all that is overdue, up to 256 frames."""
        first = self._next
        if first >= self._frames:
            return None
        due_ns = self.end_ns(first)  # the end of the slot of the frame before
        now_ns = time.monotonic_ns()
        if now_ns < due_ns:
            now_ns = self._halt.wait_until(due_ns)
            self._burst_frames = 0
        if self._halt.is_set():
            return None
        overdue = int((now_ns - self.start_ns) * self._frames_per_ns) + 1 - first
        count = min(max(self._block_frames, overdue), MAX_BLOCK_FRAMES, self._frames - first)
        self._next = first + count
        self._burst_frames += count
        self.max_burst_frames = max(self.max_burst_frames, self._burst_frames)
        self.max_lateness_ns = max(self.max_lateness_ns, now_ns - due_ns)
        return range(first, first + count)

    def end_ns(self, sent: int) -> int:
        """1/fps after the last frame was due."""
        return self.start_ns + round(sent / self._frames_per_ns)


class Unpaced:
    """As many frames as go in `duration_s` seconds: one uninterrupted burst, never late."""

    def __init__(self, duration_s: float, start_ns: int, halt: Halt) -> None:
        now_ns = time.monotonic_ns()
        self.max_burst_frames = 0
        self.max_lateness_ns = max(0, now_ns - start_ns)
        self.start_ns = max(now_ns, start_ns)
        self._end_ns = self.start_ns + round(duration_s * 1e9)
        self._halt = halt
        self._next = 0

    def next_block(self) -> range | None:
        """A full block, until the time is up."""
        first = self._next
        now_ns = time.monotonic_ns() if first else self._halt.wait_until(self.start_ns)
        if now_ns >= self._end_ns or self._halt.is_set():
            return None
        self._next = self.max_burst_frames = first + MAX_BLOCK_FRAMES
        return range(first, self._next)

    def end_ns(self, sent: int) -> int:
        """A frame without a rate has no slot: the return of its send is its end."""
        return self.start_ns
