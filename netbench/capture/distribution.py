"""Minimum, mean, percentiles and maximum of very many integers, in little memory."""

import numpy as np
from numpy.typing import NDArray

from netbench.model.distributions import Extent, Spread
from netbench.model.logarithmic_steps import STEP_BITS, middle_of

# IEEE 754 binary64: the bits of a positive number, read as an integer, rise linearly within each doubling. The leading
# bits, minus those of 1.0, are therefore the number of the step.
_MANTISSA_BITS = 52
_BITS_OF_ONE = 1023 << STEP_BITS
# The least number of values for a percentile (in per mille) above the median: with fewer, it would be the maximum.
_LEAST_VALUES = {900: 10, 990: 100, 999: 1000}
# From here on, a step is wider than the resolution of time stamps in frames.
_LEAST_REFERENCE_NS = 100_000


class Distribution:
    """Counts integers by steps of a logarithmic scale."""

    def __init__(self) -> None:
        self._count = self._sum = 0
        self._least = self._most = 0
        self._lowest_step = 0
        self._in_step = np.empty(0, np.int64)

    @classmethod
    def of(
        cls, values: NDArray[np.int64], counts: NDArray[np.int64], total: int, least: int, most: int
    ) -> "Distribution":
        """Return a distribution from counts by the same or finer steps: a value >= 0 of each step, and its count.

        Shapes are (n,); `total` is the sum of all values, `least` and `most` the smallest and largest of them.
        """
        known = cls()
        if len(values):
            known._count, known._sum, known._least, known._most = int(counts.sum()), total, least, most
            known._in_step = np.bincount(_steps(values, 0), counts).astype(np.int64)
        return known

    def add(self, values: NDArray[np.int64], bounds: tuple[int, int] | None = None) -> None:
        """Add values, int64, in any order and of either sign; `bounds` are the smallest and largest if known."""
        if not len(values):
            return
        least, most = bounds or (int(values.min()), int(values.max()))
        self._least, self._most = (min(self._least, least), max(self._most, most)) if self._count else (least, most)
        self._count += len(values)
        fits = max(-least, most) < 2**63 // len(values)
        self._sum += int(values.sum()) if fits else sum(values.tolist())
        lowest = int(_steps(np.array([least]), least)[0])
        counts = np.bincount(_steps(values, least, lowest))
        self._make_room(lowest, lowest + len(counts))
        begin = lowest - self._lowest_step
        self._in_step[begin : begin + len(counts)] += counts

    @property
    def count(self) -> int:
        """The number of values."""
        return self._count

    @property
    def total(self) -> int:
        """Their sum."""
        return self._sum

    @property
    def smallest(self) -> int | None:
        """The smallest value; None for no values, as for the others."""
        return self._least if self._count else None

    @property
    def mean(self) -> float | None:
        """Their mean."""
        return self._sum / self._count if self._count else None

    @property
    def largest(self) -> int | None:
        """The largest value."""
        return self._most if self._count else None

    def percentile(self, per_mille: int) -> int | None:
        """Return the least value that `per_mille` of 1,000 values do not exceed (nearest rank), accurate to 0.05 %."""
        if not self._count:
            return None
        rank = -(-per_mille * self._count // 1000)
        step = self._lowest_step + int(np.searchsorted(np.cumsum(self._in_step), rank))
        return min(max(middle_of(step), self._least), self._most)

    def steps(self) -> list[tuple[int, int]]:
        """Return the middle of each step that has values, and their number, in ascending order."""
        filled = np.flatnonzero(self._in_step)
        counts = self._in_step[filled].tolist()
        return [(middle_of(self._lowest_step + step), n) for step, n in zip(filled.tolist(), counts, strict=True)]

    def spread(self) -> Spread | None:
        """Return the spread of times in ns, with the percentiles that have enough values; None for no values."""
        return _spread(self) if self._count else None

    def extent(self) -> Extent | None:
        """Return the summary of the extents of reordered frames; None for no values."""
        median, mean, largest = self.percentile(500), self.mean, self.largest
        return None if median is None or mean is None or largest is None else Extent(median, mean, largest)

    def _make_room(self, lowest: int, stop: int) -> None:
        """Make room for these steps; memory is bounded by the number of steps of 64-bit integers."""
        size = len(self._in_step)
        if not size:
            self._lowest_step, self._in_step = lowest, np.zeros(stop - lowest, np.int64)
            return
        below, above = max(0, self._lowest_step - lowest), max(0, stop - self._lowest_step - size)
        if below or above:
            self._in_step = np.pad(self._in_step, (below, above))
            self._lowest_step -= below


class DelayDistribution:
    """Counts delays by steps of their differences, because all delays are large where two clocks differ.

    Where the first delay is large, others are counted relative to it: percentiles are accurate to 0.05 % of the range
    of all delays, as PDV requires. Delays below half of the first are counted absolutely, so that no percentile is
    wrong by more than 0.05 % of a non-negative delay.
    """

    def __init__(self) -> None:
        self._reference: int | None = None
        self._relative, self._absolute = Distribution(), Distribution()

    def add(self, delays_ns: NDArray[np.int64]) -> tuple[int, int] | None:
        """Add delays, int64; return the smallest and the largest of them, None for none."""
        if not len(delays_ns):
            return None
        if self._reference is None:
            first = int(delays_ns[0])
            self._reference = first if abs(first) >= _LEAST_REFERENCE_NS else 0
        least, most = int(delays_ns.min()), int(delays_ns.max())
        reference = self._reference
        if not reference:
            self._absolute.add(delays_ns, (least, most))
            return least, most
        lowest = (reference + 1) // 2 if reference > 0 else -(1 << 63)
        highest = (1 << 63) - 1 + min(reference, 0)
        if lowest <= least and most <= highest:
            self._relative.add(delays_ns - reference, (least - reference, most - reference))
        else:
            are_near = (delays_ns >= lowest) & (delays_ns <= highest)
            self._relative.add(delays_ns[are_near] - reference)
            self._absolute.add(delays_ns[~are_near])
        return least, most

    @property
    def count(self) -> int:
        """The number of delays."""
        return self._relative.count + self._absolute.count

    @property
    def smallest(self) -> int | None:
        """The smallest delay; None for no delays, as for the others."""
        return min(self._of_both(self._relative.smallest, self._absolute.smallest), default=None)

    @property
    def mean(self) -> float | None:
        """Their mean."""
        total = (self._reference or 0) * self._relative.count + self._relative.total + self._absolute.total
        return total / self.count if self.count else None

    @property
    def largest(self) -> int | None:
        """The largest delay."""
        return max(self._of_both(self._relative.largest, self._absolute.largest), default=None)

    def percentile(self, per_mille: int) -> int | None:
        """As Distribution.percentile."""
        if not self._relative.count or not self._absolute.count:
            only = self._of_both(self._relative.percentile(per_mille), self._absolute.percentile(per_mille))
            return only[0] if only else None
        reference, rank = self._reference or 0, -(-per_mille * self.count // 1000)
        steps = [(reference + delay, count) for delay, count in self._relative.steps()] + self._absolute.steps()
        for delay, count in sorted(steps):
            rank -= count
            if rank <= 0:
                return min(max(delay, self.smallest or delay), self.largest or delay)
        return None

    def spread(self) -> Spread | None:
        """As Distribution.spread."""
        return _spread(self) if self.count else None

    def _of_both(self, relative: int | None, absolute: int | None) -> list[int]:
        """Return the two values as delays, without those that are None."""
        known = [None if relative is None else relative + (self._reference or 0), absolute]
        return [delay for delay in known if delay is not None]


def _spread(times: Distribution | DelayDistribution) -> Spread:
    high = {
        per_mille: times.percentile(per_mille) for per_mille, least in _LEAST_VALUES.items() if times.count >= least
    }
    return Spread(
        smallest_ns=times.smallest,
        mean_ns=times.mean,
        median_ns=times.percentile(500),
        p90_ns=high.get(900),
        p99_ns=high.get(990),
        p999_ns=high.get(999),
        largest_ns=times.largest,
    )


def _steps(values: NDArray[np.int64], least: int, lowest: int = 0) -> NDArray[np.int64]:
    """Return the number of each value's step, relative to step `lowest`.

    The step of 1 is 1, that of 0 is 0, and that of -x is minus that of x; no value is below `least`.
    """
    sizes = values.astype(np.float64)
    if least < 0:
        np.abs(sizes, out=sizes)
    steps: NDArray[np.int64] = sizes.view(np.int64)
    steps >>= _MANTISSA_BITS - STEP_BITS
    if least > 0:
        steps -= _BITS_OF_ONE - 1 + lowest
        return steps
    steps -= _BITS_OF_ONE - 1
    np.maximum(steps, 0, out=steps)
    if least < 0:
        np.negative(steps, out=steps, where=values < 0)
    if lowest:
        steps -= lowest
    return steps
