"""Distributions of a stream's received frames: times, runs of loss, reordering; and the accuracy of clocks.

It imports next to nothing, because analysing a short capture takes less time than loading the model of a testbed.
"""

from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Spread:
    """The distribution of times of a stream's frames, in ns; an unknown time is None.

    A percentile is the smallest time that at least this part of all times does not exceed (nearest rank), right within
    0.05 %; all else is exact. `p999_ns` is the 99.9th percentile: None for fewer than 1,000 times, as the 99th and 90th
    are for fewer than 100 and 10, because they would only be the largest.
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
        """The distribution of the distances from the smallest of these times; None if the smallest is unknown."""
        least = self.smallest_ns
        if least is None:
            return None
        return self.earlier(least)

    @property
    def without_zero(self) -> "Spread":
        """The same with None for each 0, which means below the resolution, and for a mean with such times."""
        known = Spread(*(time or None for time in self._times))
        return known if known.smallest_ns else replace(known, mean_ns=None)

    def earlier(self, by_ns: int) -> "Spread":
        """Return the same with every time earlier by this much."""
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


# Maximum drift between two disciplined clocks: each by no more than the tolerance PHI of RFC 5905, section 7.2.
_RUN_APART = 2 * 15e-6
# The same for clocks that a kernel slews as fast as it can without setting them: 500 ppm (adjtimex(2), freq).
_SLEWED_APART = 2 * 500e-6
# Clocks that differ by less count as one: time stamps in frames and captures have a resolution of 1 µs.
_ONE_CLOCK_NS = 10_000


@dataclass(frozen=True, slots=True)
class ClockOffset:
    """The delay of capture time stamps against the clock that stamps frames: at least and at most, ns."""

    least_ns: int
    most_ns: int

    @property
    def bound_ns(self) -> int:
        """The largest error of delays due to this offset."""
        return max(abs(self.least_ns), abs(self.most_ns))

    @property
    def differs(self) -> bool:
        """Whether these are certainly two clocks."""
        return self.least_ns > _ONE_CLOCK_NS or self.most_ns < -_ONE_CLOCK_NS


@dataclass(frozen=True, slots=True)
class ClockDifference:
    """Another machine's clock minus this machine's at the same moment: at least and at most, ns."""

    least_ns: int
    most_ns: int

    def less(self, other: "ClockDifference") -> "ClockDifference":
        """Return the first machine's clock minus the second's, both given relative to a third machine."""
        return ClockDifference(self.least_ns - other.most_ns, self.most_ns - other.least_ns)

    def over(self, ns: int) -> "ClockDifference":
        """Return the difference at any moment at most this far from the measurement: clocks drift apart."""
        apart_ns = round(abs(ns) * _RUN_APART)
        return ClockDifference(self.least_ns - apart_ns, self.most_ns + apart_ns)

    def set_by_ns(self, later: "ClockDifference", after_ns: int) -> int:
        """Return by how much one of the clocks was set in the `after_ns` since this comparison; 0 if none seems set.

        Clocks that are slewed instead run faster or slower, by no more than a kernel allows.
        """
        apart_ns = round(after_ns * _SLEWED_APART)
        least, most = later.least_ns - self.most_ns - apart_ns, later.most_ns - self.least_ns + apart_ns
        return later.middle_ns - self.middle_ns if least > 0 or most < 0 else 0

    @property
    def middle_ns(self) -> int:
        """The best estimate."""
        return (self.least_ns + self.most_ns) // 2

    @property
    def uncertainty_ns(self) -> int:
        """The largest error of the best estimate."""
        return (self.most_ns - self.least_ns + 1) // 2


SAME_CLOCK = ClockDifference(0, 0)


@dataclass(frozen=True, slots=True)
class LossRuns:
    """The number of loss runs with at least `from_frames`, a power of two, and less than twice as many frames."""

    from_frames: int
    runs: int


@dataclass(frozen=True, slots=True)
class DelayClass:
    """The number of frames with a delay of `from_us` or more, and less than `below_us`, in µs."""

    from_us: int
    below_us: int
    frames: int


@dataclass(frozen=True, slots=True)
class SoftwareDelay:
    """One-way delay as a tester's own software measures it, with frames of its own among a stream's: coarse.

    It is no Spread: each time includes the delays of that software at sending and at reading. These are tens of
    microseconds, or up to milliseconds where its CPU has other work. `measured_by` names the software. Times are in µs,
    truncated to whole ones. `smoothed_mean_us` is a mean of means over time in which the latest counts most.
    `largest_us` is None where the software omitted that frame. `jitter_us` is that of RFC 3550, section 6.4.1. Only
    `classes` include each of the `frames`.
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
    """The distance of reordered frames from the first frame with a higher number, in frames (RFC 4737, section 4.2).

    The median is right within 0.05 %, all else is exact.
    """

    median: int
    mean: float
    largest: int
