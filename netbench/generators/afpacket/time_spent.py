"""Where the time of a sending thread goes: to its link, or to whatever keeps the thread from running.

In the system call that sends a frame, a thread may wait for room in the socket's buffer, which frames in the NIC's
queue take up, and the receiving end of a veth pair may do its work (a softirq that runs before the call returns). Both
are the link's doing. That it was descheduled or stopped is not, nor what the hypervisor took of its CPU.
"""

import os
import threading
import time
from pathlib import Path
from typing import NamedTuple

from netbench.linux.proc import USER_HZ, CpuTicks, parse_cpu_ticks, read_sched_times, softirq_s

_NS = 1_000_000_000
# A lapse is the source's own doing when it is so many times as long as the mean call, and longer than this.
_USUAL_SCATTER = 10
_LONG_NS = 1_000_000


class Spent(NamedTuple):
    """Seconds as `Sent` has them, of one thread."""

    link_s: float | None
    away_s: float
    ran_s: float | None = None
    wait_s: float | None = None
    turns: int | None = None


class _Clocks(NamedTuple):
    """Of one thread and its CPU; `waited_ns` is how long it could have run and did not (/proc/PID/schedstat)."""

    at_ns: int
    waited_ns: int
    ticks: CpuTicks | None
    ran_ns: int = 0
    turns: int = 0


class TimeSpent:
    """The account of one thread, which alone calls it: begin(), then enter() and leave() around each call, spent()."""

    def __init__(self) -> None:
        self._begun: _Clocks | None = None
        self._in_calls_ns = self._off_cpu_ns = self._refused_ns = 0
        self._calls = 0
        self._long: list[tuple[int, int]] = []  # how long a lapse was, and for how much of it the thread did not run

    def begin(self) -> None:
        """Nothing was sent yet."""
        self._begun = _read_clocks()

    def enter(self, free_ns: int) -> None:
        """Before a call; the thread could have made it from `free_ns` (CLOCK_MONOTONIC) on."""
        self._entered_ns, self._cpu_ns = time.monotonic_ns(), time.thread_time_ns()
        if (lapse_ns := self._entered_ns - free_ns) > _LONG_NS:
            self._long.append((lapse_ns, lapse_ns))

    def leave(self, taken: int) -> int:
        """After it, with what it returned; the CLOCK_MONOTONIC time."""
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
        """What became of the time since begin(); nothing is claimed where this kernel does not tell.

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
        away_ns = max(ended.waited_ns - begun.waited_ns, stopped_ns, stolen_ns)
        # Kernels that keep account of softirqs apart do not count them as the thread's own CPU time.
        waited_ns = max(softirq_ns, self._off_cpu_ns - away_ns, 0)
        return Spent(
            min(self._in_calls_ns, self._refused_ns + waited_ns) / _NS,
            away_ns / _NS,
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
