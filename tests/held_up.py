"""Repetition of tests during which this machine was stalled, because late frames then prove nothing.

The hypervisor may take the CPUs away, or other programs use them. A test that fails without a stall has failed. The
summary contains the number of repetitions.
"""

import threading
import time
import warnings
from pathlib import Path

from netbench.linux.proc import USER_HZ, parse_cpu_ticks, parse_sched_times

RUNS_AGAIN = 4
_STEAL_EVERY_S = 0.25
# Stolen from all CPUs together in that time: enough to fill a ring of 256 frames, or to send a batch late.
_STOLEN_S = 0.05
_WAIT_EVERY_S = 0.02
# A thread that hardly uses its CPU waits this long only behind other programs. 27 ms at 10,000 frames/s overflow the
# socket of a UUT that is a process.
_WAITED_S = 0.02


class LeftBehindError(AssertionError):
    """A test left something behind. It is not repeated, because a repetition would not detect the leftovers."""


class HeldUp:
    """Records how long the hypervisor, and how long other programs, took the CPU at once while a test runs.

    `proc` is the directory /proc; the wait is that of the thread that records it.
    """

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._stolen_s = 0.0
        self._waited_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._record, daemon=True)

    def start(self) -> None:
        """Begin the record of a test."""
        self._stolen_s = self._waited_s = 0.0
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop recording after the last test."""
        self._ended.set()

    def excuses(self, error: BaseException | None) -> bool:
        """Whether a stall may have caused this error of a test; if so, a warning is issued."""
        if error is None or isinstance(error, LeftBehindError):
            return False
        if self._stolen_s >= _STOLEN_S:
            reason = f"the hypervisor took {self._stolen_s:.2f} s of CPU time at once"
        elif self._waited_s >= _WAITED_S:
            reason = f"other programs kept a thread from running for {self._waited_s:.2f} s at once"
        else:
            return False
        warnings.warn(f"run again: {reason}", stacklevel=1)
        return True

    def _record(self) -> None:
        stolen_s, waited_s, read_s = self._all_stolen_s(), self._all_waited_s(), time.monotonic()
        while not self._ended.wait(_WAIT_EVERY_S):
            now_s = self._all_waited_s()
            self._waited_s, waited_s = max(self._waited_s, now_s - waited_s), now_s
            if time.monotonic() - read_s >= _STEAL_EVERY_S:
                now_s = self._all_stolen_s()
                self._stolen_s, stolen_s = max(self._stolen_s, now_s - stolen_s), now_s
                read_s = time.monotonic()

    def _all_stolen_s(self) -> float:
        return parse_cpu_ticks((self._proc / "stat").read_text()).steal / USER_HZ

    def _all_waited_s(self) -> float:
        """Return how long this thread has waited for a CPU, in s; 0 where the kernel does not count it."""
        try:
            return parse_sched_times((self._proc / "thread-self" / "schedstat").read_text()).waited_ns / 1e9
        except OSError:
            return 0.0
