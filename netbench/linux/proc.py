"""Processes, CPU time and lists of CPUs in /proc and /sys, and the causes that keep threads from running now.

These are run delays, steal, CPU pressure and CPU limits.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from netbench.errors import MachineGoneError, NetbenchError, TestbedError
from netbench.hosts.base import Host
from netbench.linux.cgroups import throttled_s
from netbench.model.foreign_text import read_lines, read_text

# Softirqs usually take less than this part of a CPU's time, whatever happens on it.
_USUAL_SOFTIRQ_PART = 0.05

_PF_EXITING = 0x4  # include/linux/sched.h

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}  # linux/capability.h

USER_HZ = 100  # of CPU times in /proc, whatever the kernel's own tick: proc_stat(5), proc_pid_stat(5)


class CpuTicks(NamedTuple):
    """CPU time of all CPUs of a machine, or of one, since the boot, in 1/USER_HZ s.

    Time of guests is part of `user` and `nice`; `steal` is the time that the hypervisor gave to others.
    """

    user: int
    nice: int
    system: int
    idle: int
    iowait: int
    irq: int
    softirq: int
    steal: int


class SchedTimes(NamedTuple):
    """One thread since its start, in ns: how long it ran, and how long it was runnable and waited for a CPU.

    `turns` is the number of times it was given a CPU.
    """

    ran_ns: int
    waited_ns: int
    turns: int = 0

    def since(self, earlier: "SchedTimes") -> "SchedTimes":
        """Return the differences to an earlier reading."""
        return SchedTimes(*(now - then for now, then in zip(self, earlier, strict=True)))


class ProcessStat(NamedTuple):
    """One process; CPU time, in the kernel and in user space, in 1/USER_HZ s.

    `ticks` is that of all its threads, `children_ticks` that of all children it has waited for. `is_ending`: it is
    ending, or has ended and was not waited for; it may have left its control groups already.
    """

    pid: int
    name: str
    state: str
    parent: int
    ticks: int
    children_ticks: int
    nice: int
    is_ending: bool

    @property
    def cpu_s(self) -> float:
        """`ticks` in seconds."""
        return self.ticks / USER_HZ

    @property
    def children_s(self) -> float:
        """`children_ticks` in seconds."""
        return self.children_ticks / USER_HZ


def parse_cpu_ticks(stat: str, cpu: int | None = None) -> CpuTicks:
    """Return the ticks of one CPU, or of all, from /proc/stat; ValueError or IndexError if they are missing."""
    label = "cpu" if cpu is None else f"cpu{cpu}"
    for name, *words in map(str.split, stat.splitlines()):
        if name == label:
            user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[:8])
            return CpuTicks(user, nice, system, idle, iowait, irq, softirq, steal)
    raise ValueError(f"/proc/stat has no line {label!r}")


def parse_sched_times(schedstat: str) -> SchedTimes:
    """Return one thread's times from its schedstat (sched-stats.rst); ValueError or IndexError for other texts."""
    words = schedstat.split()
    return SchedTimes(*map(int, words[:3]))


def read_sched_times(thread: int, process: int | str = "self") -> SchedTimes | None:
    """Return the times of a thread of this machine; None if it has ended, or the kernel does not count them."""
    try:
        return parse_sched_times(Path(f"/proc/{process}/task/{thread}/schedstat").read_text())
    except (OSError, ValueError, IndexError):
        return None


def kernel_thread(host: Host, name: str) -> int | None:
    """Return the process id of a kernel thread on a host's machine, by name; None if it is not visible there."""
    try:
        (file,) = host.run(["sh", "-c", 'grep -lsx "$0" /proc/[0-9]*/comm', name]).stdout.split()
        return int(file.split("/")[2])
    except (NetbenchError, ValueError, IndexError):
        return None


def softirq_s(before: CpuTicks, after: CpuTicks, over_s: float) -> float:
    """Return the seconds that softirqs took of a CPU during `over_s` seconds; 0 if it is not more than usual."""
    taken_s = (after.softirq - before.softirq) / USER_HZ
    return taken_s if taken_s > _USUAL_SOFTIRQ_PART * over_s else 0.0


def busy_s(stat: str) -> float:
    """Return the time of all CPUs in seconds from /proc/stat, without idle time, waiting for disks, and steal.

    ValueError or IndexError for other texts.
    """
    ticks = parse_cpu_ticks(stat)
    return (ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq) / USER_HZ


def memory_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Return the memory of a process and its descendants in bytes, on this machine; None if the kernel has no data.

    Memory shared by several processes counts in parts (Pss of /proc/PID/smaps_rollup, proc_pid_smaps(5)).
    """
    try:
        own = parse_pss(read_text(proc / str(pid) / "smaps_rollup"))
        tasks = (proc / str(pid) / "task").iterdir()
        children = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except (OSError, ValueError):
        return None
    # A child that has ended meanwhile uses none.
    return own + sum(memory_bytes(child, proc) or 0 for child in children)


def parse_pss(rollup: str) -> int:
    """Return the memory of one process in bytes, from its smaps_rollup; ValueError for other texts."""
    (kib,) = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")]
    return kib * 1024


def parse_process(line: str) -> ProcessStat:
    """Return the process described by the one line of /proc/PID/stat; ValueError or IndexError for other texts."""
    start, _, rest = line.rpartition(")")  # the name, in brackets, may contain any character
    pid, _, name = start.partition(" (")
    words = rest.split()
    ticks, children_ticks = (int(user) + int(system) for user, system in (words[11:13], words[13:15]))
    is_ending = bool(int(words[6]) & _PF_EXITING)
    return ProcessStat(int(pid), name, words[0], int(words[1]), ticks, children_ticks, int(words[16]), is_ending)


def read_process(pid: int | str) -> ProcessStat:
    """Return one process of this machine (`self`: this one); OSError when it is gone."""
    return parse_process(read_text(Path(f"/proc/{pid}/stat")))


def all_processes() -> Iterator[ProcessStat]:
    """Yield all processes of this machine except those that end meanwhile."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # ended meanwhile
            yield read_process(directory.name)


def descendants() -> set[int]:
    """Return the ids of all descendants of this process."""
    parents = {process.pid: process.parent for process in all_processes()}
    pids, generation = set(), {os.getpid()}
    while generation:
        generation = {pid for pid, parent in parents.items() if parent in generation}
        pids |= generation
    return pids


def is_there(machine: Host, pid: int) -> bool:
    """Return whether a process of a machine is running; MachineGoneError if the machine is gone."""
    try:
        return parse_process(machine.read(f"/proc/{pid}/stat")).state not in "ZX"
    except MachineGoneError:
        raise
    except TestbedError:
        return False


def processes_of(machine: Host, proc: str = "/proc") -> list[ProcessStat]:
    """Return all processes in a /proc of a machine except those that end meanwhile; TestbedError without an answer.

    The /proc of a PID namespace, `/proc/PID/root/proc`, has the processes in there, with their ids there.
    """
    processes = []
    for line in _of_all(machine, proc, "stat").split("\n"):
        with suppress(ValueError, IndexError):  # the end of the last line, or a line break in a name
            processes.append(parse_process(line))
    return processes


def memory_of(machine: Host, proc: str) -> int | None:
    """Return the memory of all these processes in bytes, as in `memory_bytes`; None if the kernel has no data."""
    lines = _of_all(machine, proc, "smaps_rollup").split("\n")
    shares = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return sum(shares) * 1024 if shares else None


def _of_all(machine: Host, proc: str, file: str) -> str:
    # One command, because they may be many on a slow host. If one ends meanwhile, cat prints an error and continues.
    return machine.run(["sh", "-c", 'cat "$0"/[0-9]*/"$1"', proc, file]).stdout


def parse_cpu_list(text: str) -> frozenset[int]:
    """Return the CPUs of a list in the kernel's format, `0-3,8` (cpuset(7), "List format")."""
    ends = (part.partition("-") for part in text.strip().split(",") if part)
    return frozenset(cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1))


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; none if it does not exist or is not readable."""
    try:
        return read_lines(path)
    except OSError:
        return []


def lacking_capabilities(status: Path = Path("/proc/self/status")) -> list[str]:
    """Return the capabilities that every testbed needs and this process lacks (capabilities(7)); none if unknown."""
    held = next((line.split()[1] for line in lines_of(status) if line.startswith("CapEff:")), "f" * 16)
    return [name for name, bit in _CAPABILITIES.items() if not int(held, 16) >> bit & 1]


def driver_of(interface: str) -> str | None:
    """Return the driver of an interface of netbench's own namespace; None where /sys does not show it."""
    try:
        return Path("/sys/class/net", interface, "device/driver").readlink().name
    except OSError:
        return None


def speed_mbps_of(interface: str) -> int | None:
    """Return its speed in Mbit/s; None where /sys does not show it."""
    try:
        speed = int(Path("/sys/class/net", interface, "speed").read_text())
    except (OSError, ValueError):
        return None
    return speed if speed > 0 else None


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
