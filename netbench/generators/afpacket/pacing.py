"""When which frames are due: blocks of consecutive frames, handed out at the right moment.

A pacer is shared by the threads of a source; they call `next_block` one at a time, under a lock.
"""

import time
from math import inf

from netbench.generators.worker_process import Halt, at_once_s, catch_up_fps, pause_beyond_usual_ns

# One system call may carry this many frames: more gains nothing measurable, and all frames of a call
# bear one time stamp.
MAX_BLOCK_FRAMES = 256

# What is sent back to back when on time: small enough that queues of the UUT do not notice, large
# enough that one core paces a million frames per second.
_EVEN_BLOCK_S = 50e-6
# How often it is noted how far a trial has come.
_LOOKS = 100


class Pacer:
    """Hands out the frames of one trial. Times are CLOCK_MONOTONIC in ns.

    A start that lies in the past becomes now, and counts as lateness.
    """

    def __init__(self, start_ns: int, halt: Halt) -> None:
        now_ns = time.monotonic_ns()
        self.max_burst_frames = 0  # most frames handed out without a wait in between
        self.max_lateness_ns = max(0, now_ns - start_ns)
        self.start_ns = max(now_ns, start_ns)  # when the first frame is due
        self.due_ns = self.start_ns  # when the block that was handed out last was due
        self._halt = halt
        self._next = 0

    def next_block(self) -> range | None:
        """The next frames to send, as soon as they are due; None when there are no more, or when halted."""
        raise NotImplementedError

    def end_ns(self, sent: int) -> int:
        """The end of the slot of the last of `sent` frames; without a rate, the return of its send is its end."""
        return self.start_ns

    def unevenness(self, sent: int, end_ns: int) -> float:
        """By what part of the frames sent it was, at most, ahead of an even rate until `end_ns`, or behind."""
        return 0.0


class Paced(Pacer):
    """Exactly `frames` frames; frame i is due at start + i/fps, whatever happened to those before.

    The `first` so many are due at a rate of their own. Lateness is caught up and never accumulates: at once, or
    `gently`, where a burst would overrun a ring that the load does not. What is still overdue after `longest_s` is not
    sent any more.
    """

    def __init__(
        self,
        frames: int,
        fps: float,
        start_ns: int,
        halt: Halt,
        longest_s: float = inf,
        *,
        gently: bool = False,
        first: tuple[int, float] | None = None,
        catch_up: float | None = None,
    ) -> None:
        """`first` has a number of frames, and their rate in frames/s; None: all have the same.

        `catch_up` is by what part of the rate it may be exceeded to catch up, which is gentle too; None: as a ring
        takes it.
        """
        super().__init__(start_ns, halt)
        first_frames, first_fps = first or (0, fps)
        highest_fps = max(fps, first_fps)
        self._frames = frames
        self._frames_per_ns = fps / 1e9
        self._first_frames, self._first_per_ns = first_frames, first_fps / 1e9
        self._first_ns = first_frames / self._first_per_ns  # how long those take
        self._block_frames = min(MAX_BLOCK_FRAMES, max(1, int(highest_fps * _EVEN_BLOCK_S)))
        self._burst_frames = 0
        self._over_ns = self.start_ns + longest_s * 1e9
        self._looks: list[tuple[int, int]] = []  # when, and how many frames had been handed out
        self._look_every_ns = round(frames / fps / _LOOKS * 1e9)
        self._look_ns = self.start_ns
        gently = gently or catch_up is not None
        self._most_frames = self._block_frames if gently else MAX_BLOCK_FRAMES
        # Between two blocks.
        self._least_ns = round(self._block_frames / catch_up_fps(highest_fps, catch_up) * 1e9) if gently else 0
        self._at_once_ns = 0 if catch_up is None else round(at_once_s(highest_fps) * 1e9)
        self._earliest_ns = self.start_ns  # of the next block but for `_at_once_ns`, whenever it was due

    def next_block(self) -> range | None:
        """A block of about 50 µs; when late, all that is overdue, up to 256 frames, or gently a block, but earlier."""
        first = self._next
        if first >= self._frames:
            return None
        due_ns = self.end_ns(first)  # the end of the slot of the frame before
        free_ns = max(due_ns, self._earliest_ns - self._at_once_ns)
        now_ns = time.monotonic_ns()
        if now_ns < free_ns:
            now_ns = self._halt.wait_until(free_ns)
            self._burst_frames = 0
        if self._halt.is_set():
            return None
        self.max_lateness_ns = max(self.max_lateness_ns, now_ns - due_ns)
        if now_ns > self._over_ns:
            return None
        if now_ns >= self._look_ns:
            self._looks.append((now_ns, first))
            self._look_ns = now_ns + self._look_every_ns
        overdue = self._due_by(now_ns - self.start_ns) + 1 - first
        count = min(max(self._block_frames, overdue), self._most_frames, self._frames - first)
        self._next, self.due_ns = first + count, due_ns
        self._earliest_ns = max(self._earliest_ns, now_ns) + self._least_ns
        self._burst_frames += count
        self.max_burst_frames = max(self.max_burst_frames, self._burst_frames)
        return range(first, first + count)

    def end_ns(self, sent: int) -> int:
        first = min(sent, self._first_frames)
        return self.start_ns + round(first / self._first_per_ns + (sent - first) / self._frames_per_ns)

    def _due_by(self, elapsed_ns: int) -> int:
        """How many whole slots are over by then."""
        first_ns = min(elapsed_ns, self._first_ns)
        return int(first_ns * self._first_per_ns + (elapsed_ns - first_ns) * self._frames_per_ns)

    def unevenness(self, sent: int, end_ns: int) -> float:
        """As of any; nothing is said of one with two rates, which is not even."""
        if self._first_frames:
            return 0.0
        whole_ns = end_ns - self.start_ns
        apart = (abs(handed / sent - (at_ns - self.start_ns) / whole_ns) for at_ns, handed in self._looks)
        return max(apart, default=0.0)


class Unpaced(Pacer):
    """As many frames as go in `duration_s` seconds: one burst, late by how long something else interrupted it."""

    def __init__(self, duration_s: float, start_ns: int, halt: Halt) -> None:
        super().__init__(start_ns, halt)
        self._end_ns = self.start_ns + round(duration_s * 1e9)
        self._blocks = 0
        self._handed_ns = self.start_ns
        self._longest_ns = 0  # between two blocks

    def next_block(self) -> range | None:
        """A full block, until the time is up."""
        first = self._next
        now_ns = time.monotonic_ns() if first else self._halt.wait_until(self.start_ns)
        if first:
            self._note_pause(now_ns)
        self._handed_ns = now_ns
        if now_ns >= self._end_ns or self._halt.is_set():
            return None
        self._next = self.max_burst_frames = first + MAX_BLOCK_FRAMES
        return range(first, self._next)

    def _note_pause(self, now_ns: int) -> None:
        """A block that took many times as long as others do: the source was stopped, whoever it waited for."""
        self._blocks += 1
        self._longest_ns = max(self._longest_ns, now_ns - self._handed_ns)
        self.max_lateness_ns = pause_beyond_usual_ns(self._longest_ns, now_ns - self.start_ns, self._blocks)
