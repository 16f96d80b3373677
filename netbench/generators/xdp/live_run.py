"""A BPF program that runs in the kernel, on one live frame after the other, until it says that it is done."""

import os
import signal
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from netbench.bpf.live_frames import run_live
from netbench.errors import NetbenchError

_FIRST = -20  # of all processes, after what is real-time
_SLOTS = 2**31 - 1  # of one system call: minutes at least
# How often a thread that has not left the kernel yet is told to: the first signal may come before it has entered.
_SIGNAL_EVERY_S = 0.005


class LiveRun(threading.Thread):
    """One thread, in one system call where that is long enough, which a signal ends: setting it up takes too long.

    Whoever starts one calls `finish`. The process must have a handler for SIGUSR1, whatever that does.
    """

    def __init__(
        self, program: int, frame: bytes, batch: int, is_done: Callable[[], bool], cpus: Sequence[int]
    ) -> None:
        """`program` gets copies of `frame`, whose `batch` leave together, on the first of `cpus` (none: any)."""
        super().__init__()
        self._program, self._frame, self._batch, self._is_done, self._cpus = program, frame, batch, is_done, cpus
        self._has_left, self._may_end = threading.Event(), threading.Event()
        self.error = ""

    def run(self) -> None:
        try:
            if self._cpus:
                # 0 is the calling thread, see sched_setaffinity(2) and setpriority(2). What is not a CPU's own business
                # moves to others: as it never sleeps, it would get no more of its CPU than whatever comes by.
                os.sched_setaffinity(0, self._cpus[:1])
                os.setpriority(os.PRIO_PROCESS, 0, _FIRST)
                _put_session_first()
            while not self._is_done():
                run_live(self._program, self._frame, _SLOTS, self._batch)
        except (NetbenchError, OSError) as error:
            self.error = f"sending failed: {error}"
        finally:
            self._has_left.set()
            self._may_end.wait()  # a thread that is no more must not be sent a signal

    @property
    def has_left(self) -> bool:
        """Whether it is in the kernel no more."""
        return self._has_left.is_set()

    def finish(self) -> None:
        """Have it leave the kernel, once it is done; the kernel needs some ms to take down what it set up for it."""
        while not self._has_left.wait(_SIGNAL_EVERY_S):
            assert self.ident is not None
            signal.pthread_kill(self.ident, signal.SIGUSR1)
        self._may_end.set()


def _put_session_first() -> None:
    """Before other sessions too, which share a CPU evenly whatever the nice values within (sched(7), autogroups).

    Not one that others belong to.
    """
    if os.getsid(0) == os.getpid():
        with suppress(FileNotFoundError):  # a kernel that does not group sessions
            Path("/proc/self/autogroup").write_text(str(_FIRST))
