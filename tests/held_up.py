"""Repetition of tests during which the hypervisor stalled this machine, because late frames then prove nothing.

A test that fails without a stall has failed. The summary contains the number of repetitions.
"""

import threading
import warnings
from pathlib import Path

from netbench.linux.proc import USER_HZ, parse_cpu_ticks

RUNS_AGAIN = 4
_EVERY_S = 0.25
# Stolen from all CPUs together in that time: enough to fill a ring of 256 frames, or to send a batch late.
_HELD_UP_S = 0.05


class LeftBehindError(AssertionError):
    """A test left something behind. It is not repeated, because a repetition would not detect the leftovers."""


class HeldUp:
    """Records the longest time that the hypervisor takes at once while a test runs."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        """Begin the record of a test."""
        self._longest_s = 0.0
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop recording after the last test."""
        self._ended.set()

    def excuses(self, error: BaseException | None) -> bool:
        """Whether a stall may have caused this error of a test; if so, a warning is issued."""
        if error is None or self._longest_s < _HELD_UP_S or isinstance(error, LeftBehindError):
            return False
        warnings.warn(f"run again: the hypervisor took {self._longest_s:.2f} s of CPU time at once", stacklevel=1)
        return True

    def _look(self) -> None:
        before_s = self._stolen_s()
        while not self._ended.wait(_EVERY_S):
            now_s = self._stolen_s()
            self._longest_s = max(self._longest_s, now_s - before_s)
            before_s = now_s

    def _stolen_s(self) -> float:
        return parse_cpu_ticks(self._stat.read_text()).steal / USER_HZ
