"""The seam between the code and the passing of time, and waiting with a time limit."""

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from netbench.model.distributions import ClockDifference

_ATTEMPTS = 5
_ANSWERS = 20  # number of answers of another machine that are kept
_RESOLUTION_NS = 1000  # of time stamps in frames


class Clock(Protocol):
    """Clocks for a trial: CLOCK_MONOTONIC and CLOCK_REALTIME (the clock of captures) in ns, and waiting."""

    def monotonic_ns(self) -> int: ...
    def realtime_ns(self) -> int: ...
    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The clocks of this machine."""

    def monotonic_ns(self) -> int:
        return time.monotonic_ns()

    def realtime_ns(self) -> int:
        return time.time_ns()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def wait_until(condition: Callable[[], bool], limit_s: float, every_s: float = 0.02) -> bool:
    """Return whether a condition came true within a time; it is evaluated at least once, then every `every_s`."""
    deadline = time.monotonic() + limit_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


class ClockReading(NamedTuple):
    """The bounds of CLOCK_REALTIME - CLOCK_MONOTONIC, in ns."""

    least_ns: int
    most_ns: int


def read_clocks(clock: Clock) -> ClockReading:
    """Return both clocks at one moment, as the narrowest bounds of several attempts."""

    def attempt() -> ClockReading:
        earlier = clock.monotonic_ns()
        realtime = clock.realtime_ns()
        return ClockReading(realtime - clock.monotonic_ns(), realtime - earlier)

    return min((attempt() for _ in range(_ATTEMPTS)), key=lambda reading: reading.most_ns - reading.least_ns)


def clock_set_ns(before: ClockReading, after: ClockReading) -> int:
    """Return by how many ns CLOCK_REALTIME was set between two readings, negative for back; 0 if it was not set.

    NTP and adjtime(3) slow down or speed up both clocks alike (clock_gettime(2)). So their difference changes only when
    the time is set, or after the machine slept.
    """
    least, most = after.least_ns - before.most_ns, after.most_ns - before.least_ns
    return (least + most) // 2 if least > _RESOLUTION_NS or most < -_RESOLUTION_NS else 0


class _Answer(NamedTuple):
    requested_ns: int  # CLOCK_MONOTONIC here
    received_ns: int
    difference: ClockDifference


class ClockComparison:
    """The differences of another machine's clocks to this one's at its last answer, from requests and answers.

    An answer is made between its request and its arrival, so the difference lies between two bounds (as in NTP, RFC
    5905, section 8: its offset is their middle, its delay their distance). The bounds of older answers are wider,
    because clocks drift. The narrowest bounds are used.
    """

    def __init__(self) -> None:
        # Replaced, never modified, because another thread may read them.
        self._monotonic: tuple[_Answer, ...] = ()
        self._realtime: tuple[_Answer, ...] = ()

    def add(self, before: tuple[int, int], remote: tuple[int, int], after: tuple[int, int]) -> None:
        """Add CLOCK_MONOTONIC and CLOCK_REALTIME in ns: here before the request, remote, and here after the answer."""
        monotonic, realtime = (
            _Answer(before[0], after[0], ClockDifference(answer - received, answer - sent))
            for sent, answer, received in zip(before, remote, after, strict=True)
        )
        self._monotonic, self._realtime = _with(self._monotonic, monotonic), _with(self._realtime, realtime)

    @property
    def monotonic(self) -> ClockDifference:
        """The difference of CLOCK_MONOTONIC."""
        return _latest(self._monotonic)

    @property
    def realtime(self) -> ClockDifference:
        """The difference of CLOCK_REALTIME."""
        return _latest(self._realtime)


def _with(answers: tuple[_Answer, ...], new: _Answer) -> tuple[_Answer, ...]:
    if answers:
        expected = _latest(answers, new.received_ns)
        measured = _latest((new,))
        if measured.least_ns > expected.most_ns or expected.least_ns > measured.most_ns:
            return (new,)  # a clock was set
    return (*answers, new)[-_ANSWERS:]


def _latest(answers: tuple[_Answer, ...], at_ns: int | None = None) -> ClockDifference:
    now_ns = answers[-1].received_ns if at_ns is None else at_ns
    return min(
        (answer.difference.over(now_ns - answer.requested_ns) for answer in answers),
        key=lambda difference: difference.uncertainty_ns,
    )
