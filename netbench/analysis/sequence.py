"""Which sequence numbers of a stream arrived, exactly: distinct, duplicates, reordered, loss runs."""

from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

PAGE_NUMBERS = 1 << 16
# Below this, setting bits one by one is cheaper than unpacking a page.
_FEW = 48


class Losses(NamedTuple):
    """Sequence numbers of a range that never arrived; a run is a maximal series of consecutive ones."""

    missing: int
    runs: int
    longest_run: int


class _Page:
    """PAGE_NUMBERS consecutive sequence numbers, a bit for each; no bits once all of them have arrived."""

    __slots__ = ("bits", "count")

    def __init__(self, bits: bytearray | None, count: int) -> None:
        self.bits = bits
        self.count = count


class SequenceTracker:
    """Takes a stream's 32-bit sequence numbers in the order of arrival.

    Numbers that arrive strictly consecutively cost a comparison each and no memory. The others are kept
    as a bit each in pages that exist only where something is missing or came late: at most one bit for
    each number between the lowest and the highest, next to nothing when little is lost.
    """

    def __init__(self) -> None:
        self.distinct = 0
        self.duplicates = 0
        self.reordered = 0
        """Packets that are no duplicates and arrived after a higher number (RFC 4737, section 3.3)."""
        self.lowest: int | None = None
        self._pages: dict[int, _Page] = {}
        # All of [_run_start, _next) has arrived and is not in the pages; _next is RFC 4737's NextExp.
        self._run_start = 0
        self._next = 0

    @property
    def highest(self) -> int | None:
        """The highest number so far."""
        return None if self.lowest is None else self._next - 1

    def add(self, sequence: NDArray[np.uint32]) -> None:
        """The next numbers to arrive, uint32 of shape (n,)."""
        if not len(sequence):
            return
        first, last = int(sequence[0]), int(sequence[-1])
        ascending = bool((sequence[1:] > sequence[:-1]).all())
        if ascending and first >= self._next and last - first == len(sequence) - 1:
            self._extend(first, last + 1)
        else:
            self._scatter(sequence, ascending)
        lowest = first if ascending else int(sequence.min())
        self.lowest = lowest if self.lowest is None else min(self.lowest, lowest)

    def losses(self, start: int, stop: int) -> Losses:
        """What never arrived of [start, stop)."""
        self._store_run()
        missing = runs = longest = 0
        current = 0  # length of the loss run that ends where the scan stands
        for lengths, is_open_start, is_open_end in self._gaps(start, stop):
            missing += int(lengths.sum())
            runs += len(lengths)
            if is_open_start and current:
                lengths[0] += current
                runs -= 1
            longest = max(longest, int(lengths.max(initial=0)))
            current = int(lengths[-1]) if is_open_end else 0
        return Losses(missing, runs, longest)

    def _extend(self, first: int, stop: int) -> None:
        """All of [first, stop) has just arrived in order, and nothing as high as that before."""
        if first != self._next:
            self._store_run()
            self._run_start = first
        self._next = stop
        self.distinct += stop - first

    def _scatter(self, sequence: NDArray[np.uint32], ascending: bool) -> None:
        """Any numbers.

        Each distinct new number either exceeds all before it or is reordered, and one that exceeds all
        before it is no duplicate. So both are known from how many are new and how many are such records.
        """
        self._store_run()
        if ascending:
            ordered = sequence
            records = int(np.count_nonzero(sequence >= self._next))
        else:
            ordered = np.sort(sequence)
            before = np.maximum.accumulate(np.concatenate(([self._next - 1], sequence[:-1].astype(np.int64))))
            records = int(np.count_nonzero(sequence > before))
        new = self._mark(ordered)
        self.distinct += new
        self.duplicates += len(sequence) - new
        self.reordered += new - records
        self._next = max(self._next, int(ordered[-1]) + 1)
        self._run_start = self._next

    def _store_run(self) -> None:
        """Move [_run_start, _next) into the pages."""
        position = self._run_start
        while position < self._next:
            number, within = divmod(position, PAGE_NUMBERS)
            stop = min(PAGE_NUMBERS, within + self._next - position)
            if stop - within == PAGE_NUMBERS:
                self._pages[number] = _Page(None, PAGE_NUMBERS)
            else:
                self._mark_page(number, np.arange(within, stop))
            position += stop - within
        self._run_start = self._next

    def _mark(self, ordered: NDArray[np.uint32]) -> int:
        """Note ascending numbers, possibly repeated, in the pages; how many of them are new."""
        pages = ordered >> 16
        within = ordered & np.uint32(PAGE_NUMBERS - 1)
        edges = [0, *(np.flatnonzero(pages[1:] != pages[:-1]) + 1).tolist(), len(ordered)]
        return sum(self._mark_page(int(pages[begin]), within[begin:end]) for begin, end in pairwise(edges))

    def _mark_page(self, number: int, within: NDArray[np.generic]) -> int:
        page = self._pages.get(number)
        if page is None:
            page = self._pages[number] = _Page(bytearray(PAGE_NUMBERS // 8), 0)
        if page.bits is None:
            return 0
        count = page.count
        if len(within) < _FEW:
            for place in within.tolist():
                mask = 1 << (place & 7)
                if not page.bits[place >> 3] & mask:
                    page.bits[place >> 3] |= mask
                    page.count += 1
        else:
            arrived = _unpack(page.bits)
            arrived[within] = 1
            page.count = int(np.count_nonzero(arrived))
            page.bits[:] = np.packbits(arrived, bitorder="little").tobytes()
        if page.count == PAGE_NUMBERS:
            page.bits = None
        return page.count - count

    def _gaps(self, start: int, stop: int) -> Iterator[tuple[NDArray[np.int64], bool, bool]]:
        """Lengths of the gaps in [start, stop), piece by piece in ascending order.

        With them, whether the first gap begins where the piece begins, and the last one ends where it ends.
        """
        position = start
        for number in sorted(self._pages):
            base = number * PAGE_NUMBERS
            begin, end = max(base, position), min(base + PAGE_NUMBERS, stop)
            if begin >= end:
                continue
            if begin > position:
                yield np.array([begin - position]), True, True
            yield _gaps_within(self._pages[number], begin - base, end - base)
            position = end
        if position < stop:
            yield np.array([stop - position]), True, True


def _gaps_within(page: _Page, begin: int, end: int) -> tuple[NDArray[np.int64], bool, bool]:
    if page.bits is None:
        return np.empty(0, np.int64), False, False
    arrived = np.ones(end - begin + 2, np.int8)
    arrived[1:-1] = _unpack(page.bits)[begin:end]
    edges = np.diff(arrived)
    starts, stops = np.flatnonzero(edges < 0), np.flatnonzero(edges > 0)
    return stops - starts, not arrived[1], not arrived[-2]


def _unpack(bits: bytearray) -> NDArray[np.uint8]:
    return np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little")
