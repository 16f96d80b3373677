"""Check whether a sink's program is hindered while it receives: stopped, traced, or given less CPU time."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from netbench.linux.proc import ProcessStat, all_processes, read_process
from netbench.model.foreign_text import read_text
from netbench.model.selftest_record import SelftestCheck

_EVERY_S = 0.005
_HELD = frozenset("Tt")  # stopped by a signal, or by a debugger: proc_pid_stat(5)
_FEW = 0.05  # as a part of all samples


@dataclass(frozen=True, slots=True)
class Seen:
    """One sample of a process: its state letter, its nice value, and its control groups."""

    state: str
    nice: int
    cgroup: str


@dataclass(slots=True)
class Watch:
    """All samples of processes that run a program, started by this process or by a wrapper it started."""

    program: str
    seen: list[Seen] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample them every 5 ms while the block runs."""
        done = threading.Event()

        def look() -> None:
            while not done.wait(_EVERY_S):
                self.seen += _running(self.program, os.getpid())

        thread = threading.Thread(target=look)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()


def judge_left_alone(program: str, seen: list[Seen], usual: Seen) -> SelftestCheck:
    """Check that none was hindered; `usual` is this process itself, whose nice value and groups they should share."""

    def share(odd: Callable[[Seen], bool]) -> float:
        return sum(map(odd, seen)) / len(seen) if seen else 0.0

    held = share(lambda sample: sample.state in _HELD)
    problems = []
    if held > _FEW:
        problems.append(f"{program} was stopped {held:.0%} of the time, by a signal or a debugger")
    if share(lambda sample: sample.nice > usual.nice) > _FEW:
        problems.append(
            f"{program} runs at nice {max(sample.nice for sample in seen)}, and netbench at nice {usual.nice}"
        )
    if share(lambda sample: sample.cgroup != usual.cgroup) > _FEW:
        problems.append(f"{program} runs in another control group than netbench, which may limit it")
    advice = f"; look at which {program} is first in PATH" if problems else ""
    return SelftestCheck(
        name=f"{program} is left alone",
        truth="never stopped",
        measured=f"stopped {held:.0%} of the time, in {len(seen):,} looks" if seen else f"no {program} was seen",
        passed=bool(seen) and not problems,
        detail="; ".join(problems) + advice,
    )


def this_process() -> Seen:
    """Return a sample of this process."""
    process = read_process("self")
    return Seen(process.state, process.nice, _cgroup("self"))


def _running(program: str, ancestor: int) -> Iterator[Seen]:
    processes = {process.pid: process for process in all_processes()}
    for process in processes.values():
        if process.name == program and _descends(process.pid, ancestor, processes):
            try:
                cgroup, now = _cgroup(process.pid), read_process(process.pid)
            except OSError:
                continue  # ended meanwhile
            if not now.is_ending:  # so it was not ending either when its control group was read
                yield Seen(now.state, now.nice, cgroup)


def _descends(pid: int, ancestor: int, processes: Mapping[int, ProcessStat]) -> bool:
    while pid in processes and pid != ancestor:
        pid = processes[pid].parent
    return pid == ancestor


def _cgroup(pid: int | str) -> str:
    return read_text(Path(f"/proc/{pid}/cgroup"))
