"""Tests during which the hypervisor held this machine up are run again: what came late then proves nothing.

Only those: a test that fails on a machine that was not held up has failed. How often that was is in the summary.
"""

import threading
import warnings
from pathlib import Path

from netbench.linux.proc import USER_HZ, parse_cpu_ticks

RUNS_AGAIN = 4
_EVERY_S = 0.25
# Of all CPUs together, in that time: enough to fill a ring of 256 frames, or to be late with a batch.
_HELD_UP_S = 0.05


class LeftBehindError(AssertionError):
    """What a test left behind. It is still there when the test is run again, which would not see it."""


class HeldUp:
    """Looks, while a test runs, how much the hypervisor took of it at once."""

    def __init__(self, stat: Path = Path("/proc/stat")) -> None:
        self._stat = stat
        self._longest_s = 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def start(self) -> None:
        """Begin; another test begins."""
        self._longest_s = 0.0
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """End, with the last test."""
        self._ended.set()

    def excuses(self, error: BaseException | None) -> bool:
        """Whether that may be why the test failed with this error, if it did; then a warning says so."""
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
