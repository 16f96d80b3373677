"""A BPF program that runs in the kernel, on one live frame after the other, until it says that it is done.

The kernel ends its call at a signal. At the end of a trial a timer of the kernel sends it, which depends on no other
process: one that shares a CPU limit with this thread may have none of its CPU time left.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from netbench.bpf.live_frames import run_live
from netbench.errors import NetbenchError
from netbench.generators.worker_process import use_realtime
from netbench.linux.proc import SchedTimes, read_sched_times

_FIRST = -20  # of all processes, after what is real-time
_SLOTS = 2**31 - 1  # of one system call: minutes at least
# How often a thread that has not left the kernel yet is told to: the first signal may come before it has entered.
_SIGNAL_EVERY_S = 0.005
# In a control group whose CPU limit one thread exhausts, a call takes no longer than this: the kernel stops a thread at
# its limit only when it leaves the kernel, and the whole group waits until the limit has made up for what it took.
_LIMITED_CALL_S = 0.05


class LiveRun(threading.Thread):
    """One thread, in one system call where that is long enough, which a signal ends: setting it up takes too long.

    Whoever starts one calls `finish`. The process must have called `take_signals`.
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
        """`program` gets copies of `frame`, whose `batch` leave together, on the first of `cpus` (none: any).

        It ends at `end_ns` (CLOCK_MONOTONIC) at the latest. `limited`: in a group whose CPU limit it exhausts.
        `realtime` is a priority in SCHED_FIFO; 0: it runs before all processes of other classes.
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
                # 0 is the calling thread, see sched_setaffinity(2) and setpriority(2). What is not a CPU's own business
                # moves to others: as it never sleeps, it would get no more of its CPU than whatever comes by.
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
            self._may_end.wait()  # a thread that is no more must not be sent a signal

    @property
    def has_left(self) -> bool:
        """Whether it is in the kernel no more."""
        return self._has_left.is_set()

    def spent(self) -> SchedTimes | None:
        """CPU time and waits of the thread until now; None where they are unknown."""
        now = read_sched_times(self.native_id) if self.native_id else None
        if now is None or self._begun is None:
            return None
        return now.since(self._begun)

    def finish(self) -> None:
        """Have it leave the kernel, once it is done; the kernel needs some ms to take down what it set up for it."""
        while not self._has_left.wait(_SIGNAL_EVERY_S):
            assert self.ident is not None
            signal.pthread_kill(self.ident, signal.SIGUSR1)
        self._may_end.set()


def take_signals() -> None:
    """Have this process survive the signals that end a call, and the timer's reach the thread in that call alone.

    To be called by the main thread before it starts others.
    """
    for number in (signal.SIGUSR1, signal.SIGALRM):
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})


def _put_session_first() -> None:
    """Before other sessions too, which share a CPU evenly whatever the nice values within (sched(7), autogroups).

    Not one that others belong to.
    """
    if os.getsid(0) == os.getpid():
        with suppress(FileNotFoundError):  # a kernel that does not group sessions
            Path("/proc/self/autogroup").write_text(str(_FIRST))
