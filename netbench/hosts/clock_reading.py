"""Whether the clock of this machine was set between two moments."""

from typing import NamedTuple

from netbench.hosts.clock import Clock

_ATTEMPTS = 5
# What time stamps of frames can show.
_RESOLUTION_NS = 1000


class ClockReading(NamedTuple):
    """Between what bounds CLOCK_REALTIME - CLOCK_MONOTONIC was, in ns."""

    least_ns: int
    most_ns: int


def read_clocks(clock: Clock) -> ClockReading:
    """Both clocks at one moment, as nearly as some attempts tell."""
    return min((_attempt(clock) for _ in range(_ATTEMPTS)), key=lambda reading: reading.most_ns - reading.least_ns)


def clock_set_ns(before: ClockReading, after: ClockReading) -> int:
    """By how much CLOCK_REALTIME was set between two readings: forward, or back (negative); 0 where it was not.

    NTP and adjtime(3) slow down or speed up both clocks alike (clock_gettime(2)), so their difference changes only
    when the time is set, or the machine slept.
    """
    least, most = after.least_ns - before.most_ns, after.most_ns - before.least_ns
    return (least + most) // 2 if least > _RESOLUTION_NS or most < -_RESOLUTION_NS else 0


def _attempt(clock: Clock) -> ClockReading:
    earlier = clock.monotonic_ns()
    realtime = clock.realtime_ns()
    return ClockReading(realtime - clock.monotonic_ns(), realtime - earlier)
