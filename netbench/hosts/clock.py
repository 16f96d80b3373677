"""The seam between the code and the passing of time."""

import time
from typing import Protocol


class Clock(Protocol):
    """Time as a trial needs it, in ns and s."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""

    def realtime_ns(self) -> int:
        """CLOCK_REALTIME, the clock of captures."""

    def sleep(self, seconds: float) -> None:
        """Wait."""


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        """CLOCK_MONOTONIC."""
        return time.monotonic_ns()

    def realtime_ns(self) -> int:
        """CLOCK_REALTIME."""
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)
