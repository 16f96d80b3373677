"""Exact counts of a stream's sequence numbers: distinct ones, further copies, runs of lost ones, reordered ones.

A batch of numbers is processed as runs of consecutive numbers, of which there are few even with loss, late frames or
copies. All results about the order of arrival come from runs, and so cost almost nothing for frames in order.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.model.distributions import Extent, LossRuns

PAGE_NUMBERS = 1 << 16
_FIELD = 1 << 32  # the range of numbers in a frame's header, after which they wrap to 0
_HALF = _FIELD >> 1
# The number of breaks in the order that are kept. A longer extent is counted only back to the oldest of them, which is
# at least this many frames.
_BREAKS = 1 << 16
# Copying the parts between so few values costs less than testing each value.
_FEW = 256


class Arrivals(NamedTuple):
    """The numbers of a batch in the order in which they arrived.

    Numbers higher than any before them form ascending ranges, from `ahead_from` up to, but excluding, `ahead_to`. The
    first number of a range is at index `ahead_places` of the batch. All other numbers, in order, are `late`, at indices
    `late_places`. Indices are intp, numbers int64.
    """

    frames: int
    ahead_from: NDArray[np.int64]
    ahead_to: NDArray[np.int64]
    ahead_places: NDArray[np.intp]
    late: NDArray[np.int64]
    late_places: NDArray[np.intp]

    def without(self, places: NDArray[np.intp]) -> "Arrivals":
        """Return the arrivals without the late frames at these indices, which are in ascending order."""
        stay = np.isin(self.late_places, places, assume_unique=True, invert=True)
        return Arrivals(
            frames=self.frames - len(places),
            ahead_from=self.ahead_from,
            ahead_to=self.ahead_to,
            ahead_places=self.ahead_places - np.searchsorted(places, self.ahead_places),
            late=self.late[stay],
            late_places=self.late_places[stay] - np.searchsorted(places, self.late_places[stay]),
        )


def unwrapped(sequence: NDArray[np.int64], highest: int | None, within: range) -> NDArray[np.int64]:
    """Return numbers that continue beyond 2³², from those in frames, which wrap to 0; both int64 of shape (n,).

    Each is the number nearest to the highest before it (RFC 1982, section 3.2): `highest` of all so far, and then
    numbers of the batch that are `within` the range of the stream. Before the first one, numbers are the 2³² from the
    start of that range.
    """
    if not len(sequence):
        return sequence
    lowest = (within.start + _HALF if highest is None else highest) - _HALF
    least, most = int(sequence.min()), int(sequence.max())
    wraps = (least - lowest) >> 32
    if wraps == (most - lowest) >> 32:
        numbers: NDArray[np.int64] = sequence - wraps * _FIELD if wraps else sequence
        least, most = least - wraps * _FIELD, most - wraps * _FIELD
    else:
        numbers = ((sequence - lowest) & (_FIELD - 1)) + lowest
        least, most = int(numbers.min()), int(numbers.max())
    if len(numbers) < 2 or (most if highest is None else max(most, highest)) - least < _HALF:
        return numbers
    middle = len(sequence) // 2
    first = unwrapped(sequence[:middle], highest, within)
    possible = first[(first >= within.start) & (first < within.stop)].tolist()
    so_far = max([*possible, *([] if highest is None else [highest])], default=None)
    return np.concatenate((first, unwrapped(sequence[middle:], so_far, within)))


def arrivals(sequence: NDArray[np.int64], expected: int) -> Arrivals:
    """Return the arrivals of a batch, int64 of shape (n,). `expected` is the highest number before it + 1.

    That is NextExp of RFC 4737, section 3.3: a number is ahead when it is not lower than NextExp, which includes
    earlier numbers of the batch.
    """
    places = run_places(sequence)
    first = sequence[places]
    stop: NDArray[np.int64] = first + np.diff(places, append=len(sequence))
    next_expected = np.maximum.accumulate(np.concatenate((np.array([expected]), stop)))[:-1]
    ahead_from: NDArray[np.int64] = np.maximum(first, next_expected)
    is_ahead = ahead_from < stop
    late, late_places = np.empty(0, np.int64), np.empty(0, np.intp)
    if (first < next_expected).any():
        lengths = np.maximum(np.minimum(stop, next_expected) - first, 0)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        late, late_places = np.repeat(first, lengths) + within, np.repeat(places, lengths) + within
    return Arrivals(
        frames=len(sequence),
        ahead_from=ahead_from[is_ahead],
        ahead_to=stop[is_ahead],
        ahead_places=places[is_ahead] + (ahead_from - first)[is_ahead],
        late=late,
        late_places=late_places,
    )


def without(values: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
    """Return the values, of shape (n,), except those at these indices, which are in ascending order."""
    if not len(places):
        return values
    if len(places) > _FEW:
        return np.delete(values, places)
    edges = pairwise([-1, *places.tolist(), len(values)])
    return np.concatenate([values[before + 1 : place] for before, place in edges])


def run_places(sequence: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return where each maximal run of consecutive numbers begins in a batch of shape (n,)."""
    begins = np.ones(len(sequence), np.bool_)
    np.not_equal(np.diff(sequence), 1, out=begins[1:])
    return np.flatnonzero(begins)


class Losses(NamedTuple):
    """Sequence numbers of a range that never arrived; a run is a maximal series of consecutive ones.

    RFC 3357 calls a run a loss period, and its `lengths` loss period lengths (section 6.3). `last` is the highest
    missing number; None where all arrived.
    """

    missing: int
    runs: int
    longest_run: int
    lengths: tuple[LossRuns, ...]
    last: int | None


def losses_of(arrived: NDArray[np.uint8], numbers: range) -> Losses:
    """Return which of consecutive `numbers` never arrived, from an existing bitmap.

    `arrived` has a bit for each number, modulo the number of bits: a power of two, at least PAGE_NUMBERS, and at least
    the count of numbers. The first number is the lowest bit of its byte.
    """
    return tracker_of(arrived, numbers).losses(numbers.start, numbers.stop)


def tracker_of(arrived: NDArray[np.uint8], numbers: range) -> "SequenceTracker":
    """Return a tracker of consecutive `numbers` for their losses, from a bitmap as of `losses_of`."""
    tracker = SequenceTracker()
    pages = arrived.reshape(-1, PAGE_NUMBERS // 8)
    first, last = numbers.start >> 16, numbers.stop >> 16
    tracker.take({number: pages[number % len(pages)] for number in range(first, last + 1)})
    return tracker


def losses_of_all(trackers: Sequence["SequenceTracker"]) -> Losses:
    """Return the numbers of one stream that no tracker has, between the lowest and the highest of all trackers."""
    known = [tracker for tracker in trackers if tracker.lowest is not None]
    together = SequenceTracker()
    for tracker in known:
        together.take(tracker.bits())
    lowest = min((tracker.lowest for tracker in known if tracker.lowest is not None), default=0)
    return together.losses(lowest, max((tracker.expected for tracker in known), default=0))


class _Page:
    """PAGE_NUMBERS consecutive sequence numbers, one bit each; `bits` is None once all of them have arrived."""

    __slots__ = ("bits", "count")

    def __init__(self) -> None:
        self.bits: NDArray[np.uint8] | None = np.zeros(PAGE_NUMBERS // 8, np.uint8)
        self.count = 0

    def grow(self, count: int) -> None:
        self.count += count
        if self.count == PAGE_NUMBERS:
            self.bits = None


class SequenceTracker:
    """Tracks a stream's sequence numbers, as returned by `unwrapped`, in the order of arrival.

    Numbers that arrive consecutively cost almost nothing. The others are kept as one bit each, in pages that exist only
    where numbers are missing or late: at most one bit for each number between the lowest and the highest, and almost
    nothing when little is lost.
    """

    def __init__(self) -> None:
        self.distinct = 0
        self.duplicates = 0
        self.lowest: int | None = None
        self.expected = 0
        """The highest number so far + 1."""
        self._pages: dict[int, _Page] = {}
        # All of [_run_start, expected) has arrived and is not in the pages.
        self._run_start = 0

    @property
    def highest(self) -> int | None:
        """The highest number so far; None before the first."""
        return None if self.lowest is None else self.expected - 1

    def add(self, batch: Arrivals) -> NDArray[np.intp]:
        """Add the next numbers to arrive; return the indices of copies of earlier numbers in the batch."""
        late = batch.late
        for lowest in (int(numbers.min()) for numbers in (batch.ahead_from, late) if len(numbers)):
            self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)
        if len(batch.ahead_from):
            self._extend(batch.ahead_from, batch.ahead_to)
        # Late numbers are lower than those that arrived ahead before them, so these can all be recorded first.
        is_copy = self._mark_late(late)
        copies = int(np.count_nonzero(is_copy))
        self.distinct += batch.frames - copies
        self.duplicates += copies
        return batch.late_places[is_copy]

    def take(self, pages: Mapping[int, NDArray[np.uint8]]) -> None:
        """Add numbers that have arrived, as bits by page."""
        for number, bits in pages.items():
            page = self._pages.setdefault(number, _Page())
            if page.bits is not None:
                together = page.bits | bits
                page.bits = None if (together == 0xFF).all() else together

    def bits(self) -> dict[int, NDArray[np.uint8]]:
        """Return the arrived numbers as bits by page; a page's first number is the lowest bit of its first byte."""
        self._note_all()
        whole = np.full(PAGE_NUMBERS // 8, 0xFF, np.uint8)
        return {number: whole if page.bits is None else page.bits for number, page in self._pages.items()}

    def losses(self, start: int, stop: int) -> Losses:
        """Return the numbers of [start, stop) that never arrived."""
        runs = _LossRunTally()
        begin = end = start  # of the last run, which may continue in the next part
        for starts, stops in self.gaps(start, stop):
            if starts[0] == end:
                starts[0] = begin
            else:
                runs.add(np.array([end - begin]))
            runs.add(stops[:-1] - starts[:-1])
            begin, end = int(starts[-1]), int(stops[-1])
        runs.add(np.array([end - begin]))
        return runs.losses(end - 1 if end > begin else None)

    def gaps(self, start: int, stop: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        """Yield the gaps in [start, stop), page by page in ascending order: their first numbers, and those after them.

        A gap that continues on the next page is yielded in parts.
        """
        self._note_all()
        position = start
        for number in sorted(self._pages):
            base = number * PAGE_NUMBERS
            begin, end = max(base, position), min(base + PAGE_NUMBERS, stop)
            if begin >= end:
                continue
            if begin > position:
                yield np.array([position]), np.array([begin])
            bits = self._pages[number].bits
            if bits is not None:
                arrived = np.ones(end - begin + 2, np.int8)
                arrived[1:-1] = np.unpackbits(bits, bitorder="little")[begin - base : end - base]
                edges = np.diff(arrived)
                starts, stops = np.flatnonzero(edges < 0), np.flatnonzero(edges > 0)
                if len(starts):
                    yield starts + begin, stops + begin
            position = end
        if position < stop:
            yield np.array([position]), np.array([stop])

    def _note_all(self) -> None:
        """Record all numbers that have arrived in the pages."""
        self._fill(np.array([self._run_start]), np.array([self.expected]))
        self._run_start = self.expected

    def _extend(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Record ascending ranges of numbers, all higher than any earlier number."""
        starts = np.concatenate(([self._run_start], starts))
        stops = np.concatenate(([self.expected], stops))
        is_gap = starts[1:] != stops[:-1]
        starts, stops = starts[np.concatenate(([True], is_gap))], stops[np.concatenate((is_gap, [True]))]
        self._fill(starts[:-1], stops[:-1])
        self._run_start, self.expected = int(starts[-1]), int(stops[-1])

    def _fill(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> None:
        """Record disjoint ascending ranges, none of which had arrived, in the pages."""
        first_page = starts >> 16
        parts = np.maximum(((stops - 1) >> 16) - first_page + 1, 0)
        pages = np.repeat(first_page - np.cumsum(parts) + parts, parts) + np.arange(parts.sum())
        begins = np.maximum(np.repeat(starts, parts) - (pages << 16), 0)
        ends = np.minimum(np.repeat(stops, parts) - (pages << 16), PAGE_NUMBERS)
        for number, these in _by_page(pages):
            self._page(number, begins[these], ends[these])

    def _page(self, number: int, begins: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        page = self._pages.setdefault(number, _Page())
        if page.bits is not None:
            edges = np.concatenate(([0], np.column_stack((begins, ends)).ravel(), [PAGE_NUMBERS]))
            is_within = np.arange(len(edges) - 1) % 2 == 1
            page.bits |= np.packbits(np.repeat(is_within, np.diff(edges)), bitorder="little")
        page.grow(int((ends - begins).sum()))

    def _mark_late(self, late: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Record late numbers, in any order; return which of them had arrived before."""
        is_copy = np.ones(len(late), np.bool_)
        older = np.flatnonzero(late < self._run_start)
        numbers, first = np.unique(late[older], return_index=True)
        pages, within = numbers >> 16, (numbers & (PAGE_NUMBERS - 1)).astype(np.intp)
        for number, these in _by_page(pages):
            page = self._pages.setdefault(number, _Page())
            if page.bits is not None:
                byte, bit = within[these] >> 3, (1 << (within[these] & 7)).astype(np.uint8)
                had_arrived = page.bits[byte] & bit != 0
                np.bitwise_or.at(page.bits, byte, bit)
                is_copy[older[first[these]]] = had_arrived
                page.grow(int(np.count_nonzero(~had_arrived)))
        return is_copy


class _LossRunTally:
    """Counts loss runs by their lengths."""

    def __init__(self) -> None:
        self._missing = self._runs = self._longest = 0
        self._by_doubling: Counter[int] = Counter()

    def add(self, lengths: NDArray[np.int64]) -> None:
        """Add runs; those of length 0 are none."""
        lengths = lengths[lengths > 0]
        self._missing += int(lengths.sum())
        self._runs += len(lengths)
        self._longest = max(self._longest, int(lengths.max(initial=0)))
        doublings, counts = np.unique(np.frexp(lengths.astype(np.float64))[1] - 1, return_counts=True)
        self._by_doubling.update(dict(zip(doublings.tolist(), counts.tolist(), strict=True)))

    def losses(self, last: int | None) -> "Losses":
        """Return the sum of all runs; `last` is the highest missing number."""
        lengths = tuple(LossRuns(1 << doubling, self._by_doubling[doubling]) for doubling in sorted(self._by_doubling))
        return Losses(self._missing, self._runs, self._longest, lengths, last)


def _by_page(pages: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
    """Yield each of the ascending, possibly repeated numbers of pages, with its slice."""
    if len(pages):
        edges = [0, *(np.flatnonzero(np.diff(pages)) + 1).tolist(), len(pages)]
        yield from ((int(pages[begin]), slice(begin, end)) for begin, end in pairwise(edges))


class ReorderingTracker:
    """Counts reordered frames of a stream by RFC 4737; takes frames in the order of arrival, without copies.

    A frame is reordered when a higher number arrived before it (section 3.3; of duplicates only the first to arrive is
    considered). Its extent is i - j, where it is the i-th to arrive and the j-th is the earliest one with a
    higher number (section 4.2).
    """

    def __init__(self) -> None:
        self.reordered = 0
        self._arrived = 0
        self._extents = Distribution()
        # Ranges of consecutively arrived numbers, each higher than all before: the first number, the one after the
        # last, and the number of frames that arrived before the first.
        self._starts = self._stops = self._places = np.empty(0, np.int64)

    def add(self, batch: Arrivals) -> None:
        """Add the next frames."""
        self._starts = np.concatenate((self._starts, batch.ahead_from))
        self._stops = np.concatenate((self._stops, batch.ahead_to))
        self._places = np.concatenate((self._places, batch.ahead_places + self._arrived))
        if len(batch.late):
            self.reordered += len(batch.late)
            higher = batch.late + 1
            ranges = np.searchsorted(self._stops, higher, side="right")
            starts = self._starts[ranges]
            earliest = self._places[ranges] + np.maximum(higher - starts, 0)
            self._extents.add(batch.late_places + self._arrived - earliest)
        self._arrived += batch.frames
        self._starts, self._stops, self._places = (
            values[-_BREAKS:] for values in (self._starts, self._stops, self._places)
        )

    def extent(self) -> Extent | None:
        """Return the extent of all reordered frames; None where there are none."""
        return self._extents.extent()
