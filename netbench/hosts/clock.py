"""The seam between the code and the passing of time, and waiting for something no longer than it may take."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from netbench.model.distributions import ClockDifference

_ATTEMPTS = 5
_ANSWERS = 20  # of another machine that are kept
# What time stamps of frames can show.
_RESOLUTION_NS = 1000


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
        return time.monotonic_ns()

    def realtime_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def wait_until(condition: Callable[[], bool], limit_s: float, every_s: float = 0.02) -> bool:
    """Whether a condition came true within a time; it is looked at once at least, and again every so often."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


class ClockReading(NamedTuple):
    """Between what bounds CLOCK_REALTIME - CLOCK_MONOTONIC was, in ns."""

    least_ns: int
    most_ns: int


def read_clocks(clock: Clock) -> ClockReading:
    """Both clocks at one moment, as nearly as some attempts tell."""
    return min((_attempt(clock) for _ in range(_ATTEMPTS)), key=lambda reading: reading.most_ns - reading.least_ns)


class Differences:
    """How the clocks of another machine differ from those of this one at its last answer, by questions and answers.

    An answer was given between its question and its arrival, so the difference lies between two bounds (as of NTP, RFC
    5905, section 8, whose offset is the middle and whose delay is the distance of them). Of an older answer they are
    farther apart, as clocks run apart. That which leaves least open tells most.
    """

    def __init__(self) -> None:
        # Never changed, as another thread may look at them: replaced.
        self._monotonic: tuple[_Told, ...] = ()
        self._realtime: tuple[_Told, ...] = ()

    def add(self, before: tuple[int, int], there: tuple[int, int], after: tuple[int, int]) -> None:
        """CLOCK_MONOTONIC and CLOCK_REALTIME, in ns: here before the question, there, and here after the answer."""
        new = [
            _Told(before[0], after[0], ClockDifference(told - answered, told - asked))
            for asked, told, answered in zip(before, there, after, strict=True)
        ]
        self._monotonic, self._realtime = _with(self._monotonic, new[0]), _with(self._realtime, new[1])

    @property
    def monotonic(self) -> ClockDifference:
        """Of CLOCK_MONOTONIC."""
        return _latest(self._monotonic)

    @property
    def realtime(self) -> ClockDifference:
        """Of CLOCK_REALTIME."""
        return _latest(self._realtime)


class _Told(NamedTuple):
    asked_ns: int  # CLOCK_MONOTONIC here
    answered_ns: int
    difference: ClockDifference


def _with(kept: tuple[_Told, ...], new: _Told) -> tuple[_Told, ...]:
    if kept and not _agree(_latest((new,)), _latest(kept, new.answered_ns)):
        return (new,)  # a clock was set
    return (*kept, new)[-_ANSWERS:]


def _latest(kept: tuple[_Told, ...], at_ns: int | None = None) -> ClockDifference:
    now_ns = kept[-1].answered_ns if at_ns is None else at_ns
    return min((one.difference.over(now_ns - one.asked_ns) for one in kept), key=lambda found: found.uncertainty_ns)


def _agree(one: ClockDifference, other: ClockDifference) -> bool:
    return one.least_ns <= other.most_ns and other.least_ns <= one.most_ns


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
