"""A load that computes and fills memory: stress-ng, run inside the neighbour."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host
from netbench.linux.proc import USER_HZ, ProcessStat, parse_process
from netbench.model.scenario import Stress


class NeighbourLoad(Protocol):
    """The load of one neighbour during one trial."""

    def start(self) -> None:
        """Start the load; returns once it is observed to run. TestbedError when it cannot start."""

    def cpu_s(self) -> float | None:
        """Return the CPU time in seconds that the load has used so far, as counted by the neighbour's own kernel.

        None where there is no load. TestbedError, with the state of the load, when a part of it has died.
        """

    def stop(self) -> None:
        """Stop the load; returns once it has ended completely. Harmless when not started. TestbedError if it stays."""


_NOT_FOUND = 127  # sh(1), EXIT STATUS
# A guest with a tenth of an emulated CPU is slow to reply, and slower to start processes.
_ANSWER_S = 60.0
_START_S = 60.0  # since the last worker has begun: a dozen workers take minutes there
_END_S = 30.0
_POLL_S = 0.05
# A memory worker whose child the kernel killed for lack of memory must start another within this many polls.
_LOOKS = 6

_KIB_EACH = 256 * 1024  # memory of each memory worker of `stress`: the default of its --vm-bytes

# The version comes first: where the first use unpacks stress-ng, that must not be part of the load. The inner shell
# prints its PID once it leads a session, which stress-ng then inherits; the outer shell ends after that output.
_LAUNCH = """\
stress-ng --version >/dev/null || exit
echo $(setsid sh -c 'echo $$; exec stress-ng "$@" </dev/null >/dev/null 2>&1' sh "$@" &)
"""

# Lists the processes of a session in one command, with only a shell and grep. Processes come and go while the files are
# opened: hence -s, and the exit code has no meaning.
_LIST = 'exec grep -hsE "^[0-9]+ [(].*[)] . [0-9]+ [0-9]+ $1 " /proc/[0-9]*/stat'
_GREP_EXIT_CODES = (0, 1, 2)
# Kills the process group with the session's number.
_KILL = "kill -s KILL -- -$1 2>/dev/null; "


class StressLoad:
    """stress-ng in one guest, with workers that imitate those of `stress`, the load of Schlosser et al. (2011).

    `stress --cpu` takes square roots, `stress --vm` again and again allocates 256 MiB, writes to every page and
    frees them; hence `--cpu-method sqrt` and `--vm-method write64`. stress-ng divides `--vm-bytes` by the number of
    memory workers (stress_vm_child in its stress-vm.c), and a percentage would refer to memory without caches
    (_SC_AVPHYS_PAGES). The size is therefore passed in bytes: 256 MiB per worker, but at most half of MemAvailable in
    total, so that a small guest does not run out of memory. If it does, the kernel kills the children of memory workers
    first (oom_score_adj), and stress-ng starts others.

    In a guest with its own kernel the load runs at idle priority (SCHED_IDLE, sched(7)). Its CPUs are as busy for the
    rest of the machine, but the guest replies to netbench at once instead of after seconds.

    All its processes are in one session, keep their environment (`--keep-name`: otherwise their titles are written
    over it), and end by themselves when the first of them dies (PR_SET_PDEATHSIG).
    """

    def __init__(self, guest: str, host: Host, stress: Stress, *, gives_way: bool = False) -> None:
        """`gives_way`: all other processes in the guest have priority; the guest must have its own kernel."""
        self._gives_way = gives_way
        self._guest = guest
        self._host = host
        self._stress = stress
        self._what = f"{guest}: its load `{stress}`"
        self._session: int | None = None

    def start(self) -> None:
        """Start the load and wait until all workers have used CPU time; TestbedError when one does not start."""
        options = list(self._options())
        self._session = self._launch(options)
        deadline, most = time.monotonic() + _START_S, 0
        while not (state := self._look()).at_work:
            if not state.led:
                why = _words(self._host.run(("stress-ng", "--dry-run", *options)))
                raise TestbedError(f"{self._what} ended at once: {why or 'no message'}")
            if state.begun > most:
                deadline, most = time.monotonic() + _START_S, state.begun
            if time.monotonic() > deadline:
                raise TestbedError(
                    f"{self._what} did not start: no further worker started within {_START_S:g} s: {state}"
                )
            time.sleep(_POLL_S)

    def cpu_s(self) -> float:
        """Return the CPU time of all processes so far, in s; TestbedError when one has died and was not replaced."""
        for _ in range(_LOOKS):
            state = self._look()
            if state.whole:
                return state.ticks / USER_HZ
            time.sleep(_POLL_S)
        raise TestbedError(f"{self._what} is incomplete: {state}; `dmesg` there may show the cause")

    def stop(self) -> None:
        """Kill the load and wait until it is gone. Nothing is lost: these workers have no files and no output."""
        deadline = time.monotonic() + _END_S
        while self._session is not None:
            left = [process.pid for process in self._processes(_KILL) if _is_alive(process)]
            if not left:
                self._session = None
            elif time.monotonic() > deadline:
                numbers = ", ".join(map(str, left))
                raise TestbedError(f"{self._what} is still there {_END_S:g} s after SIGKILL: processes {numbers}")
            else:
                time.sleep(_POLL_S)

    def _launch(self, options: Sequence[str]) -> int:
        done = self._host.run(("sh", "-c", _LAUNCH, "sh", *options), timeout_s=_ANSWER_S)
        if done.exit_code == _NOT_FOUND:
            raise TestbedError(
                f"{self._guest}: there is no stress-ng for its load; install the package stress-ng there"
            )
        if done.exit_code != 0 or not done.stdout.strip().isdigit():
            raise TestbedError(f"{self._what} cannot start: {_words(done) or 'it printed no process id'}")
        return int(done.stdout)

    def _options(self) -> Iterator[str]:
        yield from ("--keep-name", "--timeout", "0", "--temp-path", "/tmp")
        if self._gives_way:
            yield from ("--sched", "idle")
        if self._stress.cpu:
            yield from ("--cpu", str(self._stress.cpu), "--cpu-method", "sqrt")
        if self._stress.vm:
            yield from ("--vm", str(self._stress.vm), "--vm-method", "write64", "--vm-bytes", f"{self._vm_kib()}K")

    def _vm_kib(self) -> int:
        meminfo = self._host.read("/proc/meminfo")
        available = re.search(r"^MemAvailable: +(\d+) kB$", meminfo, re.MULTILINE)
        if available is None:
            raise TestbedError(f"{self._guest}: its kernel does not report its available memory")
        return min(self._stress.vm * _KIB_EACH, int(available[1]) // 2)

    def _look(self) -> "_WorkerState":
        if self._session is None:
            raise TestbedError(f"{self._what} was not started")
        return _worker_state(self._processes(), self._session, self._stress)

    def _processes(self, first: str = "") -> list[ProcessStat]:
        """Run the command `first`, then return all processes of the session; TestbedError for invalid output."""
        done = self._host.run(("sh", "-c", first + _LIST, "sh", str(self._session)), timeout_s=_ANSWER_S)
        try:
            if done.exit_code not in _GREP_EXIT_CODES:
                raise ValueError(f"exit code {done.exit_code}")
            return [parse_process(line) for line in done.stdout.splitlines()]
        except (ValueError, LookupError) as error:
            raise TestbedError(f"{self._guest}: its list of processes is invalid: {error}") from error


def _is_alive(process: ProcessStat) -> bool:
    """Return whether the process is alive, not a zombie."""
    return process.state not in "ZX"


def _ticks(process: ProcessStat) -> int:
    """Return the CPU time of a process and of all children it has waited for.

    The time of a zombie is not in its parent's yet, so the sum over a session's processes counts nothing twice.
    """
    return process.ticks + process.children_ticks


def _words(done: Completed) -> str:
    """Return the message of a failed command; empty when it did not fail."""
    words = done.stderr.strip() or done.stdout.strip() or "no message"
    return f"exit code {done.exit_code}: {words}" if done.exit_code else ""


@dataclass(frozen=True, slots=True)
class _WorkerState:
    """The processes of a load at one moment, and their total CPU time in ticks."""

    wanted: Stress
    led: bool  # whether stress-ng's first process, which starts the workers, is alive
    workers: Mapping[int, int]  # ticks of each worker and its children, by its number
    filling: int  # workers with a child, which fills the memory
    ticks: int

    @property
    def running(self) -> int:
        computing = min(self.wanted.cpu, len(self.workers) - self.filling)
        return computing + min(self.wanted.vm, self.filling)

    @property
    def whole(self) -> bool:
        return self.led and self.running == self.wanted.cpu + self.wanted.vm

    @property
    def begun(self) -> int:
        """The number of workers that have used CPU time."""
        return sum(1 for ticks in self.workers.values() if ticks)

    @property
    def at_work(self) -> bool:
        return self.whole and self.begun == len(self.workers)

    def __str__(self) -> str:
        if not self.led:
            return "stress-ng has ended"
        return f"{self.running} of {self.wanted.cpu + self.wanted.vm} workers run, {self.begun} have used CPU time"


def _worker_state(processes: Sequence[ProcessStat], session: int, wanted: Stress) -> _WorkerState:
    alive = [process for process in processes if _is_alive(process)]
    workers = {process.pid: _ticks(process) for process in alive if process.parent == session}
    filling = set()
    for process in alive:
        if process.parent in workers:
            workers[process.parent] += _ticks(process)
            filling.add(process.parent)
    led = any(process.pid == session for process in alive)
    return _WorkerState(wanted, led, workers, len(filling), sum(map(_ticks, processes)))
