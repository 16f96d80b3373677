"""The CPU time of programs that do not belong to a run of netbench."""

import os
from collections.abc import Callable, Mapping
from typing import NamedTuple

from netbench.hosts.local import marked_processes
from netbench.linux.proc import all_processes

_KERNEL_THREADS = 2  # kthreadd, the parent of all of them


class ProcessTime(NamedTuple):
    """CPU time of a process so far, and of all its children that have ended, in seconds."""

    own_s: float
    children_s: float = 0.0


ForeignCpu = Mapping[int, ProcessTime]  # of each foreign process, by id
ForeignCpuReader = Callable[[], ForeignCpu]


def read_foreign_cpu(run_id: str) -> ForeignCpu:
    """Return the CPU time so far of each visible process of this machine that does not belong to this run.

    A run's own processes are this one and those that it started, with all their descendants. Kernel threads work for
    everybody.
    """
    every = {process.pid: process for process in all_processes()}
    own = {os.getpid(), _KERNEL_THREADS, *(pid for pid, _ in marked_processes(run_id))}
    generation = own
    while generation:
        generation = {pid for pid, process in every.items() if process.parent in generation} - own
        own = own | generation
    return {pid: ProcessTime(process.cpu_s, process.children_s) for pid, process in every.items() if pid not in own}


def foreign_cpu_s(before: ForeignCpu, after: ForeignCpu) -> float:
    """Return the CPU time that foreign programs used between two readings, in seconds.

    The sum over all processes also contains those that began and ended in between, because their parents count them. It
    may be too low, where a process ended whose parent does not count it: then the running ones are the lower bound.
    """
    whole_s = _total_s(after) - _total_s(before)
    unknown = ProcessTime(0.0)
    return max(whole_s, sum(now.own_s - before.get(pid, unknown).own_s for pid, now in after.items()), 0.0)


def _total_s(reading: ForeignCpu) -> float:
    return sum(process.own_s + process.children_s for process in reading.values())
