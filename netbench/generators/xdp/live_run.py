"""A BPF program that runs in the kernel, on one live frame after the other, until it reports its end.

A signal ends the kernel's call. At the end of a trial a kernel timer sends the signal. A timer depends on no other
process: a process that shares a CPU limit with this thread may have no CPU time left.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from netbench.bpf.libbpf import run_live
from netbench.errors import NetbenchError
from netbench.generators.source_worker import use_realtime
from netbench.linux.proc import SchedTimes, read_sched_times

_FIRST = -20  # nice value: before all other processes except real-time ones
_SLOTS = 2**31 - 1  # of one system call: minutes at least
# The signal is repeated this often until the thread leaves the kernel: the first one may come before it has entered.
_SIGNAL_EVERY_S = 0.005
# The longest call in a control group whose CPU limit one thread exhausts: the kernel stops a thread at its limit only
# when it leaves the kernel, and the whole group then waits until the excess CPU time is made up for.
_LIMITED_CALL_S = 0.05


class LiveRun(threading.Thread):
    """A thread in one long system call, as far as one suffices, ended by a signal: setting up a call takes long.

    The caller of `start` must call `finish`. The process must have called `take_signals` before.
    """

    def __init__(
        self,
        program: int,
        frame: bytes,
        batch: int,
        is_done: Callable[[], bool],
        cpus: Sequence[int],
        end_ns: int,
        *,
        limited: bool = False,
        realtime: int = 0,
    ) -> None:
        """Run `program` on copies of `frame`, sent in groups of `batch`, on the first of `cpus` (none: any).

        It ends at `end_ns` (CLOCK_MONOTONIC) at the latest. `limited`: its control group has a CPU limit that it
        exhausts. `realtime` is a priority in SCHED_FIFO; 0: a normal class, before all other processes in it.
        """
        super().__init__()
        self._realtime = realtime
        self._program, self._frame, self._batch, self._is_done, self._cpus = program, frame, batch, is_done, cpus
        self._end_ns, self._limited = end_ns, limited
        self._has_left, self._may_end = threading.Event(), threading.Event()
        self._begun: SchedTimes | None = None
        self.error = ""

    def run(self) -> None:
        try:
            self._begun = read_sched_times(threading.get_native_id())
            if self._cpus:
                # 0 is the calling thread, see sched_setaffinity(2) and setpriority(2). With the highest priority, other
                # movable processes leave this CPU. Without it, this thread, which never sleeps, would share the CPU.
                os.sched_setaffinity(0, self._cpus[:1])
                os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
                _put_session_first()
            use_realtime(self._realtime)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGALRM})
            left_s = (self._end_ns - time.monotonic_ns()) / 1e9
            every_s = _LIMITED_CALL_S if self._limited else _SIGNAL_EVERY_S
            signal.setitimer(signal.ITIMER_REAL, every_s if self._limited else max(left_s, every_s), every_s)
            while not self._is_done() and time.monotonic_ns() < self._end_ns:
                run_live(self._program, self._frame, _SLOTS, self._batch)
        except (NetbenchError, OSError) as error:
            self.error = f"sending failed: {error}"
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            self._has_left.set()
            self._may_end.wait()  # the thread must exist as long as signals are sent to it

    @property
    def has_left(self) -> bool:
        """Whether the thread has left the kernel."""
        return self._has_left.is_set()

    def spent(self) -> SchedTimes | None:
        """Return the CPU time and waits of the thread until now; None where they are unknown."""
        now = read_sched_times(self.native_id) if self.native_id else None
        if now is None or self._begun is None:
            return None
        return now.since(self._begun)

    def finish(self) -> None:
        """Make the thread leave the kernel after its end; the kernel needs some ms to tear down the run."""
        while not self._has_left.wait(_SIGNAL_EVERY_S):
            assert self.ident is not None
            signal.pthread_kill(self.ident, signal.SIGUSR1)
        self._may_end.set()


def take_signals() -> None:
    """Make this process survive the signals that end a call, and deliver the timer's signal to that thread only.

    The main thread must call this before it starts other threads.
    """
    for number in (signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})


def _put_session_first() -> None:
    """Raise the session above others, which share a CPU evenly whatever their nice values (sched(7), autogroups).

    Does nothing in a session that another process leads.
    """
    if os.getsid(0) == os.getpid():
        with suppress(FileNotFoundError):  # a kernel without autogroups
            Path("/proc/self/autogroup").write_text(str(_FIRST))
