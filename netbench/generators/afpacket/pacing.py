"""The due times of frames: pacers hand out blocks of consecutive frames when they are due.

The threads of a source share a pacer; they call `next_block` one at a time, under a lock.

`TimeSpent` measures how long a sending thread waited for its link, and how long it was not scheduled.

In the system call that sends a frame, a thread may wait for room in the socket's buffer, which frames in the NIC's
queue occupy. The receiving end of a veth pair may also run there (a softirq that runs before the call returns). Both
are caused by the link. Descheduling, stops, and CPU time stolen by the hypervisor are not.
"""

import os
import threading
import time
from math import inf
from pathlib import Path
from typing import NamedTuple

from netbench.generators.source_worker import USUAL_SCATTER, Halt, at_once_s, catch_up_fps, pause_beyond_usual_ns
from netbench.linux.proc import USER_HZ, CpuTicks, parse_cpu_ticks, read_sched_times, softirq_s
from netbench.model.traffic import NS_PER_S

# The most frames per system call: more have no measurable benefit, and all frames of a call have one time stamp.
MAX_BLOCK_FRAMES = 256

# Length of a block that is sent back to back when on time: short enough not to fill queues of the UUT, long enough
# for one core to pace a million frames per second.
_EVEN_BLOCK_S = 50e-6
# How often the progress of a trial is recorded.
_SAMPLES = 100


class Pacer:
    """Hands out the frames of one trial. Times are CLOCK_MONOTONIC in ns.

    A start that lies in the past becomes now, and counts as lateness.
    """

    def __init__(self, start_ns: int, halt: Halt) -> None:
        now_ns = time.monotonic_ns()
        self.max_burst_frames = 0  # most frames handed out without a wait in between
        self.max_lateness_ns = max(0, now_ns - start_ns)
        self.start_ns = max(now_ns, start_ns)  # when the first frame is due
        self.due_ns = self.start_ns  # when the last block was due
        self._halt = halt
        self._next = 0

    def next_block(self) -> range | None:
        """Wait until the next frames are due and return them; None when there are no more, or when halted."""
        raise NotImplementedError

    def end_ns(self, sent: int) -> int:
        """Return the end of the slot of the last of `sent` frames; without a rate, it ends as its send returns."""
        return self.start_ns

    def unevenness(self, sent: int, end_ns: int) -> float:
        """Return the largest deviation from an even rate until `end_ns`, as a fraction of the frames sent."""
        return 0.0


class Paced(Pacer):
    """Exactly `frames` frames; frame i is due at start + i/fps, however late earlier frames were.

    The `first` frames can have a separate rate. Lateness never accumulates: it is caught up at once, or `gently`, where
    a burst would overrun a ring that the load itself does not. Frames that are still overdue after `longest_s` are not
    sent.
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
        """`first` is a number of frames and their rate in frames/s; None: all have the same rate.

        `catch_up` is the fraction by which the rate may be exceeded to catch up, which is gentle too; None: as fast as
        a ring accepts frames.
        """
        super().__init__(start_ns, halt)
        first_frames, first_fps = first or (0, fps)
        highest_fps = max(fps, first_fps)
        self._frames = frames
        self._frames_per_ns = fps / 1e9
        self._first_frames, self._first_per_ns = first_frames, first_fps / 1e9
        self._first_ns = first_frames / self._first_per_ns  # how long the first frames take
        self._block_frames = min(MAX_BLOCK_FRAMES, max(1, int(highest_fps * _EVEN_BLOCK_S)))
        self._burst_frames = 0
        self._over_ns = self.start_ns + longest_s * 1e9
        self._progress: list[tuple[int, int]] = []  # time, and number of frames handed out by then
        self._sample_every_ns = round(frames / fps / _SAMPLES * 1e9)
        self._sample_ns = self.start_ns
        gently = gently or catch_up is not None
        self._most_frames = self._block_frames if gently else MAX_BLOCK_FRAMES
        # The least time between two blocks.
        self._least_ns = round(self._block_frames / catch_up_fps(highest_fps, catch_up) * 1e9) if gently else 0
        self._at_once_ns = 0 if catch_up is None else round(at_once_s(highest_fps) * 1e9)
        self._earliest_ns = self.start_ns  # earliest time of the next block, before `_at_once_ns` is subtracted

    def next_block(self) -> range | None:
        """Return a block of about 50 µs; when late, up to 256 overdue frames, or gently, a block ahead of time."""
        first = self._next
        if first >= self._frames:
            return None
        due_ns = self.end_ns(first)  # the end of the previous frame's slot
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
        if now_ns >= self._sample_ns:
            self._progress.append((now_ns, first))
            self._sample_ns = now_ns + self._sample_every_ns
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
        """Return the number of whole slots that have passed after `elapsed_ns`."""
        first_ns = min(elapsed_ns, self._first_ns)
        return int(first_ns * self._first_per_ns + (elapsed_ns - first_ns) * self._frames_per_ns)

    def unevenness(self, sent: int, end_ns: int) -> float:
        """Return the unevenness as for any pacer; 0 with two rates, which are uneven by design."""
        if self._first_frames:
            return 0.0
        whole_ns = end_ns - self.start_ns
        apart = (abs(handed / sent - (at_ns - self.start_ns) / whole_ns) for at_ns, handed in self._progress)
        return max(apart, default=0.0)


class Unpaced(Pacer):
    """As many frames as possible in `duration_s` seconds: one burst; its lateness is the length of interruptions."""

    def __init__(self, duration_s: float, start_ns: int, halt: Halt) -> None:
        super().__init__(start_ns, halt)
        self._end_ns = self.start_ns + round(duration_s * 1e9)
        self._blocks = 0
        self._handed_ns = self.start_ns
        self._longest_ns = 0  # between two blocks

    def next_block(self) -> range | None:
        """Return a full block, until the time is up."""
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
        """Record the longest pause: if it is many times the mean pause, the source was stopped, for any reason."""
        self._blocks += 1
        self._longest_ns = max(self._longest_ns, now_ns - self._handed_ns)
        self.max_lateness_ns = pause_beyond_usual_ns(self._longest_ns, now_ns - self.start_ns, self._blocks)


# A lapse is attributed to the source when it is longer than this and than USUAL_SCATTER times the mean call.
_LONG_NS = 1_000_000


class Spent(NamedTuple):
    """Seconds of one thread."""

    backpressure_s: float | None
    stalled_s: float
    ran_s: float | None = None
    wait_s: float | None = None
    turns: int | None = None


class _Clocks(NamedTuple):
    """Readings of one thread and its CPU; `waited_ns` is how long it was runnable but waited (/proc/PID/schedstat)."""

    at_ns: int
    waited_ns: int
    ticks: CpuTicks | None
    ran_ns: int = 0
    turns: int = 0


class TimeSpent:
    """The time account of one thread: begin(), then enter() and leave() around each call, then spent().

    Only that thread calls it.
    """

    def __init__(self) -> None:
        self._begun: _Clocks | None = None
        self._in_calls_ns = self._off_cpu_ns = self._refused_ns = 0
        self._calls = 0
        self._long: list[tuple[int, int]] = []  # length of a lapse, and how much of it the thread did not run

    def begin(self) -> None:
        """Begin the account, before anything is sent."""
        self._begun = _read_clocks()

    def enter(self, free_ns: int) -> None:
        """Note the start of a call, which could have been made from `free_ns` (CLOCK_MONOTONIC) on."""
        self._entered_ns, self._cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        if (lapse_ns := self._entered_ns - free_ns) > _LONG_NS:
            self._long.append((lapse_ns, lapse_ns))

    def leave(self, taken: int) -> int:
        """Note the end of a call that returned `taken`; return the CLOCK_MONOTONIC time in ns."""
        now_ns = time.monotonic_ns()
        took_ns = now_ns - self._entered_ns
        off_ns = max(0, took_ns - (time.thread_time_ns() - self._cpu_ns))
        self._calls += 1
        self._in_calls_ns += took_ns
        self._off_cpu_ns += off_ns
        if took_ns > _LONG_NS:
            self._long.append((took_ns, off_ns))
        if taken <= 0:
            self._refused_ns += took_ns
        return now_ns

    def spent(self, free_ns: int | None = None) -> Spent:
        """Return how the time since begin() was spent; unknown where this kernel does not report it.

        The thread could have ended from `free_ns` on (CLOCK_MONOTONIC; None: from now on).
        """
        begun, ended = self._begun, _read_clocks()
        if ended and free_ns and (lapse_ns := ended.at_ns - free_ns) > _LONG_NS:
            self._long.append((lapse_ns, lapse_ns))
        if begun is None or ended is None or not self._calls:
            return Spent(None, 0.0)
        usual_ns = USUAL_SCATTER * self._in_calls_ns / self._calls
        stopped_ns = sum(off_ns for lapse_ns, off_ns in self._long if lapse_ns > usual_ns)
        softirq_ns = stolen_ns = 0.0
        if begun.ticks and ended.ticks:
            stolen_ns = (ended.ticks.steal - begun.ticks.steal) * NS_PER_S / USER_HZ
            softirq_ns = softirq_s(begun.ticks, ended.ticks, (ended.at_ns - begun.at_ns) / NS_PER_S) * NS_PER_S
        stalled_ns = max(ended.waited_ns - begun.waited_ns, stopped_ns, stolen_ns)
        # Kernels that account for softirqs separately do not count them in the thread's CPU time.
        waited_ns = max(softirq_ns, self._off_cpu_ns - stalled_ns, 0)
        return Spent(
            min(self._in_calls_ns, self._refused_ns + waited_ns) / NS_PER_S,
            stalled_ns / NS_PER_S,
            (ended.ran_ns - begun.ran_ns) / NS_PER_S,
            (ended.waited_ns - begun.waited_ns) / NS_PER_S,
            ended.turns - begun.turns,
        )


def _read_clocks() -> _Clocks | None:
    try:
        cpus = os.sched_getaffinity(0)
        ticks = parse_cpu_ticks(Path("/proc/stat").read_text(), *cpus) if len(cpus) == 1 else None
    except (OSError, ValueError, IndexError):
        return None
    times = read_sched_times(threading.get_native_id())
    return times and _Clocks(time.monotonic_ns(), times.waited_ns, ticks, times.ran_ns, times.turns)
