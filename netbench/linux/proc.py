"""What the kernel says in /proc and /sys of processes, of CPU time, and of lists of CPUs."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from netbench.errors import MachineGoneError, NetbenchError, TestbedError
from netbench.hosts.base import Host
from netbench.model.foreign_text import read_lines, read_text

# What softirqs take of any CPU, whatever happens on it, is below this part of the time.
_USUAL_SOFTIRQ_PART = 0.05

_PF_EXITING = 0x4  # include/linux/sched.h

_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_NET_RAW": 13, "CAP_SYS_ADMIN": 21}  # linux/capability.h

USER_HZ = 100  # of CPU times in /proc, whatever the kernel's own tick: proc_stat(5), proc_pid_stat(5)


class CpuTicks(NamedTuple):
    """What all CPUs of a machine, or one of them, did since it was started, in 1/USER_HZ s.

    Time of guests is part of `user` and `nice`; `steal` is what the hypervisor gave to others.
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
    """One thread since it was started, in ns: how long it ran, and how long it could have run and waited for a CPU.

    `turns` is how often it was given a CPU.
    """

    ran_ns: int
    waited_ns: int
    turns: int = 0

    def since(self, earlier: "SchedTimes") -> "SchedTimes":
        """The same since another reading."""
        return SchedTimes(*(now - then for now, then in zip(self, earlier, strict=True)))


class ProcessStat(NamedTuple):
    """One process; CPU time, of the kernel for it and its own, in 1/USER_HZ s.

    `ticks` is that of all its threads, `children_ticks` that of all children it has waited for. One that `is_ending`
    has begun to, or has ended and was not waited for: it may be out of its control groups already.
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
    """Those of one CPU, or of all, from /proc/stat; ValueError or IndexError where that does not tell."""
    wanted = "cpu" if cpu is None else f"cpu{cpu}"
    words = next((rest for name, *rest in map(str.split, stat.splitlines()) if name == wanted), None)
    if words is None:
        raise ValueError(f"/proc/stat has no line {wanted!r}")
    user, nice, system, idle, iowait, irq, softirq, steal = map(int, words[:8])
    return CpuTicks(user, nice, system, idle, iowait, irq, softirq, steal)


def parse_sched_times(schedstat: str) -> SchedTimes:
    """Those of one thread, from its schedstat (sched-stats.rst); ValueError or IndexError for another text."""
    words = schedstat.split()
    return SchedTimes(*map(int, words[:3]))


def read_sched_times(thread: int, process: int | str = "self") -> SchedTimes | None:
    """Those of a thread of this machine; None where it has ended, or the kernel does not count them."""
    try:
        return parse_sched_times(Path(f"/proc/{process}/task/{thread}/schedstat").read_text())
    except (OSError, ValueError, IndexError):
        return None


def kernel_thread(host: Host, name: str) -> int | None:
    """The process id of the kernel thread of this name on the machine of a host; None where it is not seen there."""
    try:
        found = host.run(["sh", "-c", 'grep -lsx "$0" /proc/[0-9]*/comm', name]).stdout.split()
        (process,) = [int(file.split("/")[2]) for file in found]
    except (NetbenchError, ValueError, IndexError):
        return None
    return process


def softirq_s(before: CpuTicks, after: CpuTicks, over_s: float) -> float:
    """What softirqs took of a CPU over so many seconds, in seconds; 0 where it is not more than usual."""
    taken_s = (after.softirq - before.softirq) / USER_HZ
    return taken_s if taken_s > _USUAL_SOFTIRQ_PART * over_s else 0.0


def busy_s(stat: str) -> float:
    """All CPUs' time in seconds out of /proc/stat, but for idling, waiting for disks, and what the hypervisor took.

    ValueError or IndexError for another text.
    """
    ticks = parse_cpu_ticks(stat)
    return (ticks.user + ticks.nice + ticks.system + ticks.irq + ticks.softirq) / USER_HZ


def memory_bytes(pid: int, proc: Path = Path("/proc")) -> int | None:
    """Memory of a process and of all that descend from it, on this machine; None where the kernel does not tell.

    What several processes share counts in parts (Pss of /proc/PID/smaps_rollup, proc_pid_smaps(5)).
    """
    try:
        own = parse_pss(read_text(proc / str(pid) / "smaps_rollup"))
        children = [int(child) for task in (proc / str(pid) / "task").iterdir() for child in _children(task)]
    except (OSError, ValueError):
        return None
    # A child that has ended meanwhile takes none.
    return own + sum(memory_bytes(child, proc) or 0 for child in children)


def parse_pss(rollup: str) -> int:
    """Memory of one process in bytes, from its smaps_rollup; ValueError for another text."""
    (kib,) = [int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")]
    return kib * 1024


def _children(task: Path) -> list[str]:
    return (task / "children").read_text().split()


def parse_process(line: str) -> ProcessStat:
    """The one line of /proc/PID/stat; ValueError or IndexError for another text."""
    start, _, rest = line.rpartition(")")  # the name, in brackets, may hold anything
    pid, _, name = start.partition(" (")
    words = rest.split()
    ticks, children_ticks = (int(user) + int(system) for user, system in (words[11:13], words[13:15]))
    is_ending = bool(int(words[6]) & _PF_EXITING)
    return ProcessStat(int(pid), name, words[0], int(words[1]), ticks, children_ticks, int(words[16]), is_ending)


def read_process(pid: int | str) -> ProcessStat:
    """That of one process of this machine (`self`: this one); OSError when it is gone."""
    return parse_process(read_text(Path(f"/proc/{pid}/stat")))


def all_processes() -> Iterator[ProcessStat]:
    """Those of all processes of this machine but for those that end meanwhile."""
    for directory in Path("/proc").glob("[0-9]*"):
        try:
            yield read_process(directory.name)
        except OSError:
            continue  # ended meanwhile


def descendants() -> set[int]:
    """The ids of all processes of this machine that descend from this one."""
    parents = {process.pid: process.parent for process in all_processes()}
    found, ahead = set(), {os.getpid()}
    while ahead:
        ahead = {pid for pid, parent in parents.items() if parent in ahead}
        found |= ahead
    return found


def is_there(machine: Host, pid: int) -> bool:
    """Whether a process of a machine has not ended; MachineGoneError where nobody can tell any more."""
    try:
        return parse_process(machine.read(f"/proc/{pid}/stat")).state not in "ZX"
    except MachineGoneError:
        raise
    except TestbedError:
        return False


def processes_of(machine: Host, proc: str = "/proc") -> list[ProcessStat]:
    """All processes that a /proc of a machine shows but for those that end meanwhile; TestbedError where none answers.

    The /proc of a namespace of processes, `/proc/PID/root/proc`, shows those in there, by their numbers there.
    """
    found = []
    for line in _of_all(machine, proc, "stat").split("\n"):
        try:
            found.append(parse_process(line))
        except (ValueError, IndexError):
            continue  # the end of the last line, or one in a name
    return found


def memory_of(machine: Host, proc: str) -> int | None:
    """Memory of all these processes in bytes, as in `memory_bytes`; None where the kernel does not tell."""
    lines = _of_all(machine, proc, "smaps_rollup").split("\n")
    shares = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return sum(shares) * 1024 if shares else None


def _of_all(machine: Host, proc: str, file: str) -> str:
    # By one command: they may be many, and far away. Of one that ends meanwhile cat complains, and goes on.
    return machine.run(["sh", "-c", 'cat "$0"/[0-9]*/"$1"', proc, file]).stdout


def parse_cpu_list(text: str) -> frozenset[int]:
    """The CPUs of a list as the kernel writes it, `0-3,8` (cpuset(7), "List format")."""
    ends = (part.partition("-") for part in text.strip().split(",") if part)
    return frozenset(cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1))


def lines_of(path: Path) -> list[str]:
    """The lines of a file; none where it is not there, or not ours to read."""
    try:
        return read_lines(path)
    except OSError:
        return []


def lacking_capabilities(status: Path = Path("/proc/self/status")) -> list[str]:
    """The capabilities that this process lacks of those that every testbed needs (capabilities(7)); none if unknown."""
    held = next((line.split()[1] for line in lines_of(status) if line.startswith("CapEff:")), "f" * 16)
    return [name for name, bit in _CAPABILITIES.items() if not int(held, 16) >> bit & 1]
