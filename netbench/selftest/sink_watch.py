"""Whether somebody holds a sink's program back while it receives: stops or traces it, or gives it less of the CPU."""

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from netbench.linux.proc import ProcessStat, all_processes, read_process
from netbench.model.foreign_text import read_text
from netbench.model.selftest_record import Check

_EVERY_S = 0.005
_HELD = frozenset("Tt")  # stopped by a signal, or by a debugger: proc_pid_stat(5)
_FEW = 0.05  # of all looks


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at one process: its state letter, its nice value, and its control groups."""

    state: str
    nice: int
    cgroup: str


@dataclass(slots=True)
class Watch:
    """All looks at the processes of a program that this process, or a wrapper it started, runs, until they end."""

    program: str
    seen: list[Seen] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at them every few milliseconds while the block runs."""
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


def judge_left_alone(program: str, seen: list[Seen], usual: Seen) -> Check:
    """Whether all were left alone; `usual` is this process itself, whose place in the machine they should share."""

    def share(odd: Callable[[Seen], bool]) -> float:
        return sum(map(odd, seen)) / len(seen) if seen else 0.0

    held = share(lambda one: one.state in _HELD)
    problems = []
    if held > _FEW:
        problems.append(f"{program} was stopped {held:.0%} of the time, by a signal or a debugger")
    if share(lambda one: one.nice > usual.nice) > _FEW:
        problems.append(f"{program} runs at nice {max(one.nice for one in seen)}, and netbench at nice {usual.nice}")
    if share(lambda one: one.cgroup != usual.cgroup) > _FEW:
        problems.append(f"{program} runs in another control group than netbench, which may limit it")
    advice = f"; look at which {program} is first in PATH" if problems else ""
    return Check(
        name=f"{program} is left alone",
        truth="never stopped",
        measured=f"stopped {held:.0%} of the time, in {len(seen):,} looks" if seen else f"no {program} was seen",
        passed=bool(seen) and not problems,
        detail="; ".join(problems) + advice,
    )


def this_process() -> Seen:
    """How this process runs."""
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
            if not now.is_ending:  # then it was not either when its control group was read
                yield Seen(now.state, now.nice, cgroup)


def _descends(pid: int, ancestor: int, processes: Mapping[int, ProcessStat]) -> bool:
    while pid in processes and pid != ancestor:
        pid = processes[pid].parent
    return pid == ancestor


def _cgroup(pid: int | str) -> str:
    return read_text(Path(f"/proc/{pid}/cgroup"))
