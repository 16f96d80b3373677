"""Divides the time of a sending thread into backpressure of its link and time in which it could not run.

In the system call that sends a frame, a thread may wait for room in the socket's buffer, which frames in the NIC's
queue occupy. The receiving end of a veth pair may also run there (a softirq that runs before the call returns). Both
are caused by the link. Descheduling, stops, and CPU time stolen by the hypervisor are not.
"""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from netbench.linux.proc import USER_HZ, CpuTicks, parse_cpu_ticks, read_sched_times, softirq_s

_NS = 1_000_000_000
# A lapse is attributed to the source when it is longer than this and than so many times the mean call.
_USUAL_SCATTER = 10
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
        usual_ns = _USUAL_SCATTER * self._in_calls_ns / self._calls
        stopped_ns = sum(off_ns for lapse_ns, off_ns in self._long if lapse_ns > usual_ns)
        softirq_ns = stolen_ns = 0.0
        if begun.ticks and ended.ticks:
            stolen_ns = (ended.ticks.steal - begun.ticks.steal) * _NS / USER_HZ
            softirq_ns = softirq_s(begun.ticks, ended.ticks, (ended.at_ns - begun.at_ns) / _NS) * _NS
        stalled_ns = max(ended.waited_ns - begun.waited_ns, stopped_ns, stolen_ns)
        # Kernels that account for softirqs separately do not count them in the thread's CPU time.
        waited_ns = max(softirq_ns, self._off_cpu_ns - stalled_ns, 0)
        return Spent(
            min(self._in_calls_ns, self._refused_ns + waited_ns) / _NS,
            stalled_ns / _NS,
            (ended.ran_ns - begun.ran_ns) / _NS,
            (ended.waited_ns - begun.waited_ns) / _NS,
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
