"""Smallest, mean, percentiles and largest of very many integers, in little memory."""

import numpy as np
from numpy.typing import NDArray

from netbench.model.distributions import Extent, Spread

# Each doubling is cut into 2^_STEP_BITS steps of equal width. What is in the middle of a step is off by at most
# 2^-(_STEP_BITS + 1), 0.05 %, of any number in it; below 2^(_STEP_BITS + 1), steps are single integers.
_STEP_BITS = 10
_STEPS = 1 << _STEP_BITS
# IEEE 754 binary64: the bits of a positive number, seen as an integer, rise evenly within each doubling. So their
# leading ones, less those of 1.0, number the steps.
_MANTISSA_BITS = 52
_BITS_OF_ONE = 1023 << _STEP_BITS
# Of how many values a percentile (in per mille) above the median is told: with fewer, it would be the largest of them.
_LEAST_VALUES = {900: 10, 990: 100, 999: 1000}
# From here on, a step is wider than the time stamps in frames are fine.
_LEAST_REFERENCE_NS = 100_000


class Distribution:
    """Takes integers as they come, and counts them by steps of a logarithmic scale."""

    def __init__(self) -> None:
        self._count = self._sum = 0
        self._least = self._most = 0
        self._lowest_step = 0
        self._in_step = np.empty(0, np.int64)

    @classmethod
    def of(
        cls, values: NDArray[np.int64], counts: NDArray[np.int64], total: int, least: int, most: int
    ) -> "Distribution":
        """What somebody else has counted by such steps or finer ones: a value of each, not negative, and how often.

        Shapes are (n,); with the sum of all values, the smallest and the largest of them.
        """
        known = cls()
        if len(values):
            known._count, known._sum, known._least, known._most = int(counts.sum()), total, least, most
            known._in_step = np.bincount(_steps(values, 0), counts).astype(np.int64)
        return known

    def add(self, values: NDArray[np.int64], bounds: tuple[int, int] | None = None) -> None:
        """More values, int64, in any order and of either sign; `bounds` are the smallest and largest if known."""
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
        """How many values there are."""
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
        """The least value that `per_mille` of 1,000 values do not exceed (nearest rank), right within 0.05 %."""
        if not self._count:
            return None
        rank = -(-per_mille * self._count // 1000)
        step = self._lowest_step + int(np.searchsorted(np.cumsum(self._in_step), rank))
        return min(max(_middle(step), self._least), self._most)

    def steps(self) -> list[tuple[int, int]]:
        """The middle of each step that has values, and how many, in ascending order."""
        filled = np.flatnonzero(self._in_step)
        counts = self._in_step[filled].tolist()
        return [(_middle(self._lowest_step + step), n) for step, n in zip(filled.tolist(), counts, strict=True)]

    def spread(self) -> Spread | None:
        """All of it, of times in ns, as far as there are values enough to tell; None for none."""
        return _spread(self) if self._count else None

    def extent(self) -> Extent | None:
        """The same of extents of reordered frames."""
        median, mean, largest = self.percentile(500), self.mean, self.largest
        return None if median is None or mean is None or largest is None else Extent(median, mean, largest)

    def _make_room(self, lowest: int, stop: int) -> None:
        """Have a place for each of these steps; memory is bounded by what steps 64-bit integers can be in."""
        size = len(self._in_step)
        if not size:
            self._lowest_step, self._in_step = lowest, np.zeros(stop - lowest, np.int64)
            return
        below, above = max(0, self._lowest_step - lowest), max(0, stop - self._lowest_step - size)
        if below or above:
            self._in_step = np.pad(self._in_step, (below, above))
            self._lowest_step -= below


class DelayDistribution:
    """Takes delays, all of which are large where two clocks differ, and counts them by steps of their differences.

    Where the first delay is large, the others are counted relative to it: percentiles are right within 0.05 % of the
    range of all, which is what those of PDV need. Delays below half of it are counted as they are, so that no
    percentile is wrong by more than 0.05 % of a delay that is not negative.
    """

    def __init__(self) -> None:
        self._reference: int | None = None
        self._relative, self._absolute = Distribution(), Distribution()

    def add(self, delays_ns: NDArray[np.int64]) -> tuple[int, int] | None:
        """More delays, int64; the smallest and the largest of them, None for none."""
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
        """How many there are."""
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
        """The two as delays, without those that are None."""
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
    """The number of the step each value is in, counted from step `lowest` on.

    Steps are 1 for 1 and up from there, 0 for 0, that of -x is minus that of x; no value is below `least`.
    """
    sizes = values.astype(np.float64)
    if least < 0:
        np.abs(sizes, out=sizes)
    steps: NDArray[np.int64] = sizes.view(np.int64)
    steps >>= _MANTISSA_BITS - _STEP_BITS
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


def _middle(step: int) -> int:
    """The middle of the integers that a step holds."""
    if step <= 0:
        return -_middle(-step) if step else 0
    doubling, part = divmod(step - 1, _STEPS)
    if doubling <= _STEP_BITS:
        return (_STEPS + part) >> (_STEP_BITS - doubling)
    width = 1 << (doubling - _STEP_BITS)
    return (_STEPS + part) * width + (width - 1) // 2
