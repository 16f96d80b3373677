"""The causes that keep threads from running on this machine, now: run delays, steal, CPU pressure, CPU limits."""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netbench.linux.cgroups import throttled_s
from netbench.linux.proc import CpuTicks, SchedTimes, all_processes, parse_cpu_ticks, read_sched_times


class CpuDelays(NamedTuple):
    """Counters of this machine since its boot; missing entries and None are unknown.

    `threads` are single-threaded processes by id; `bound` is the CPU of each that may run on one CPU only. `softirqs`
    are the kernel's threads for softirqs (ksoftirqd), by CPU. `ticks` are those of each CPU, and of all together
    (None). Pressure and throttling are in seconds, as is the CPU time of the reading process (`own_s`).
    """

    at_ns: int  # CLOCK_MONOTONIC
    threads: Mapping[int, SchedTimes] = {}
    bound: Mapping[int, int] = {}
    softirqs: Mapping[int, SchedTimes] = {}
    ticks: Mapping[int | None, CpuTicks] = {}
    pressure_s: float | None = None
    throttled_s: float | None = None
    own_s: float = 0.0


# Reads the counters for processes with these ids.
DelayReader = Callable[[Iterable[int]], CpuDelays]


def softirq_threads() -> dict[int, int]:
    """Return the process ids of this machine's ksoftirqd threads by CPU; empty where they are not visible."""
    name = "ksoftirqd/"
    return {
        int(process.name.removeprefix(name)): process.pid
        for process in all_processes()
        if process.name.startswith(name)
    }


def read_cpu_delays(processes: Iterable[int] = (), softirqs: Mapping[int, int] = {}) -> CpuDelays:
    """Return the counters of this machine now, with those of single-threaded processes; takes less than 1 ms.

    `softirqs` is the result of `softirq_threads`.
    """
    threads, bound = {}, {}
    for process in processes:
        times = read_sched_times(process, process)
        if times is None:
            continue
        threads[process] = times
        with suppress(OSError):
            cpus = os.sched_getaffinity(process)
            if len(cpus) == 1:
                bound[process] = min(cpus)
    of_softirqs = {cpu: read_sched_times(thread, thread) for cpu, thread in softirqs.items()}
    return CpuDelays(
        time.monotonic_ns(),
        threads,
        bound,
        {cpu: times for cpu, times in of_softirqs.items() if times},
        _ticks(),
        _pressure_s(),
        throttled_s(),
        time.process_time(),
    )


def _ticks(stat: Path = Path("/proc/stat")) -> dict[int | None, CpuTicks]:
    text = stat.read_text()
    names = [line.partition(" ")[0][3:] for line in text.splitlines() if line.startswith("cpu")]
    cpus = [int(name) if name else None for name in names]
    return {cpu: parse_cpu_ticks(text, cpu) for cpu in cpus}


def _pressure_s(pressure: Path = Path("/proc/pressure/cpu")) -> float | None:
    """Return how long some task waited for a CPU, in s; None without PSI in the kernel, or if it is off."""
    try:
        some = next(line for line in pressure.read_text().splitlines() if line.startswith("some "))
        return int(some.rpartition("total=")[2]) / 1e6
    except (OSError, ValueError, StopIteration):
        return None
