"""How what arrived of a stream is distributed: times, runs of loss, reordering; and how far clocks can be trusted.

Loads next to nothing: a short capture is analysed in less time than it takes to load what describes a testbed.
"""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """How times of a stream's frames are distributed, ns; a time of some is None where it cannot be told.

    A percentile is the least time that as large a part of all does not exceed (nearest rank), right within 0.05 %;
    all else is exact. `p999_ns` is the 99.9 % one: None for fewer than 1,000 times, as are the others for fewer than
    100 and 10, of which they would only be the largest.
    """

    smallest_ns: int | None
    mean_ns: float | None
    median_ns: int | None
    p90_ns: int | None
    p99_ns: int | None
    p999_ns: int | None
    largest_ns: int | None

    @property
    def above_smallest(self) -> "Spread | None":
        """How the distances from the smallest of these times are distributed; None where that one is not known."""
        least = self.smallest_ns
        if least is None:
            return None
        return self.earlier(least)

    @property
    def without_zero(self) -> "Spread":
        """The same where 0 stands for less than can be told: None in its place, and for a mean that has such times."""
        known = Spread(*(time or None for time in self._times))
        return known if known.smallest_ns else replace(known, mean_ns=None)

    def earlier(self, by_ns: int) -> "Spread":
        """The same had every time been so much less."""
        return Spread(*(None if time is None else time - by_ns for time in self._times))

    @property
    def _times(self) -> tuple[Any, ...]:
        return (
            self.smallest_ns,
            self.mean_ns,
            self.median_ns,
            self.p90_ns,
            self.p99_ns,
            self.p999_ns,
            self.largest_ns,
        )


# By how much two clocks that are kept run apart: each by no more than the tolerance PHI of RFC 5905, section 7.2.
_RUN_APART = 2 * 15e-6
# The same of clocks that are put right as fast as a kernel does it without setting them: 500 ppm (adjtimex(2), freq).
_SLEWED_APART = 2 * 500e-6
# Clocks that differ by less are taken for one: time stamps in frames and captures have a resolution of 1 µs.
_ONE_CLOCK_NS = 10_000


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """By how much later than it was captures are stamped, by the clock that stamps frames: at least and at most, ns."""

    least_ns: int
    most_ns: int

    @property
    def bound_ns(self) -> int:
        """By how much delays may be too long or too short for it."""
        return max(abs(self.least_ns), abs(self.most_ns))

    @property
    def differs(self) -> bool:
        """Whether it is certain that these are two clocks."""
        return self.least_ns > _ONE_CLOCK_NS or self.most_ns < -_ONE_CLOCK_NS


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """What another machine's clock shows less what this machine's does at that moment: at least and at most, ns."""

    least_ns: int
    most_ns: int

    def less(self, other: "ClockDifference") -> "ClockDifference":
        """Of the first of two machines from the second one, both being told from a third one."""
        return ClockDifference(self.least_ns - other.most_ns, self.most_ns - other.least_ns)

    def over(self, ns: int) -> "ClockDifference":
        """Of any moment that is at most so far from the one that this was told at: clocks run apart."""
        apart_ns = round(abs(ns) * _RUN_APART)
        return ClockDifference(self.least_ns - apart_ns, self.most_ns + apart_ns)

    def set_by_ns(self, later: "ClockDifference", after_ns: int) -> int:
        """By how much one of the clocks was set since this comparison, which is so long ago; 0 where none seems to be.

        One that is put right otherwise runs faster or slower, by no more than a kernel makes it.
        """
        apart_ns = round(after_ns * _SLEWED_APART)
        least, most = later.least_ns - self.most_ns - apart_ns, later.most_ns - self.least_ns + apart_ns
        return later.middle_ns - self.middle_ns if least > 0 or most < 0 else 0

    @property
    def middle_ns(self) -> int:
        """The best guess."""
        return (self.least_ns + self.most_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """By how much that may be wrong."""
        return (self.most_ns - self.least_ns + 1) // 2


SAME_CLOCK = ClockDifference(0, 0)


@dataclass(frozen=True, slots=True)
class LossRuns:
    """How many loss runs have at least `from_frames`, a power of two, and less than twice as many frames."""

    from_frames: int
    runs: int


@dataclass(frozen=True, slots=True)
class DelayClass:
    """How many frames had a delay of `from_us` or more, and less than `below_us`, in µs."""

    from_us: int
    below_us: int
    frames: int


@dataclass(frozen=True, slots=True)
class SoftwareDelay:
    """One-way delay as a tester's own software measures it, of frames of its own among a stream's: coarse.

    It is no Spread: each time includes how long that software took to send, and to look at what had arrived, by tens of
    microseconds up to milliseconds where its CPU has other work. `measured_by` names it. Times are in µs, cut off to
    whole ones: `smoothed_mean_us` is a mean of means over time in which the latest counts most, `largest_us` is None
    where its software has left that frame out, `jitter_us` is as of RFC 3550, section 6.4.1. `classes` alone hold each
    of the `frames`.
    """

    measured_by: str
    frames: int
    smallest_us: float | None
    smoothed_mean_us: float | None
    largest_us: float | None
    jitter_us: float | None
    classes: tuple[DelayClass, ...] = ()


@dataclass(frozen=True, slots=True)
class Extent:
    """By how many frames reordered ones came after the first frame with a higher number (RFC 4737, section 4.2).

    The median is right within 0.05 %, all else is exact.
    """

    median: int
    mean: float
    largest: int
