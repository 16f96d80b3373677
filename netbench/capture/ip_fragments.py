"""Counts the fragments of UDP datagrams, and when their last ones came.

All fragments with the number of a first one belong to its datagram.

Ports are only in the first fragment, so that later ones are counted if the first one was captured before them.
"""

from array import array
from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.ip_packets import IpPackets
from netbench.capture.tcp_sequence import group_starts
from netbench.model.flow_witness import FlowDirection

_MOST_PENDING = 1 << 16


class _Fragments(NamedTuple):
    """Fragments in columns: `length` of the datagram in first ones, 0 in later ones; `direction` -1 in later ones.

    `frame` is the number of the frame in the capture.
    """

    frame: NDArray[np.int64]
    times_ns: NDArray[np.int64]
    key: NDArray[np.int64]
    direction: NDArray[np.int64]
    length: NDArray[np.int64]
    bytes: NDArray[np.int64]


class FragmentCounts:
    """Counts fragments in batches. `without_first` counts later fragments whose first one was not captured."""

    def __init__(self) -> None:
        self._batch: list[_Fragments] = []
        self._pending: dict[int, tuple[FlowDirection, int, int]] = {}  # key -> direction, missing bytes, first frame
        self._first, self._last_ns = array("q"), array("q")  # frame of the first fragment, time of one of its last ones
        self._incomplete: Counter[FlowDirection] = Counter()
        self.without_first = 0

    def add_first(
        self, packets: IpPackets, frames: NDArray[np.int64], lengths: NDArray[np.int64], directions: NDArray[np.int8]
    ) -> None:
        """Add the first fragments among packets of one layout; `lengths` are those of datagrams with UDP header."""
        these = packets.has_more
        part = packets.where(these)
        self._add(part, frames[these], directions[these].astype(np.int64), lengths[these])

    def add_later(self, packets: IpPackets, frames: NDArray[np.int64]) -> None:
        """Add later fragments."""
        count = packets.rows.size
        self._add(packets, frames, np.full(count, -1, np.int64), np.zeros(count, np.int64))

    def ends_ns(self, frames: NDArray[np.int64], times_ns: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return when the last fragment of each datagram came, in ns since 1970; `times_ns` for one without fragments.

        `frames` are those of first fragments.
        """
        if not self._first:
            return times_ns
        first, last_ns = np.array(self._first, np.int64), np.array(self._last_ns, np.int64)
        known, places = np.unique(first, return_inverse=True)
        latest = np.zeros(len(known), np.int64)
        np.maximum.at(latest, places, last_ns)
        at = np.minimum(np.searchsorted(known, frames), len(known) - 1)
        return np.where(known[at] == frames, latest[at], times_ns)

    def settle(self) -> Counter[FlowDirection]:
        """Return how many later fragments of known datagrams were added in each direction since the last call."""
        later: Counter[FlowDirection] = Counter()
        if not self._batch:
            return later
        columns = _Fragments(*(np.concatenate(column) for column in zip(*self._batch, strict=True)))
        self._batch.clear()
        order = np.lexsort((columns.frame, columns.key))
        starts = np.union1d(group_starts(columns.key[order]), np.flatnonzero(columns.direction[order] >= 0))
        counts = np.diff(starts, append=len(order))
        sums = np.add.reduceat(columns.bytes[order], starts)
        firsts = order[starts]
        last_ns = columns.times_ns[order[starts + counts - 1]]
        of_firsts = columns.key[firsts], columns.direction[firsts], columns.length[firsts], columns.frame[firsts]
        rows = (*of_firsts, counts, sums, last_ns)
        for key, direction, length, frame, count, seen, end_ns in zip(*(row.tolist() for row in rows), strict=True):
            if direction >= 0:
                self._forget(key)
                self._pending[key] = FlowDirection(direction), length, frame
            if key not in self._pending:
                self.without_first += count
                continue
            of, missing, first = self._pending.pop(key)
            later[of] += count - (direction >= 0)
            self._first.append(first)
            self._last_ns.append(end_ns)
            if missing > seen:
                self._pending[key] = of, missing - seen, first
        while len(self._pending) > _MOST_PENDING:
            self._forget(next(iter(self._pending)))
        return later

    def finish(self) -> Counter[FlowDirection]:
        """Return how many datagrams lack fragments, at the end of the capture."""
        for key in list(self._pending):
            self._forget(key)
        return self._incomplete

    def _forget(self, key: int) -> None:
        pending = self._pending.pop(key, None)
        if pending is not None:
            self._incomplete[pending[0]] += 1

    def _add(
        self,
        packets: IpPackets,
        frames: NDArray[np.int64],
        directions: NDArray[np.int64],
        lengths: NDArray[np.int64],
    ) -> None:
        times_ns = packets.rows.of(packets.rows.batch.times_ns)
        key = packets.fragment_id * 2 + packets.by_address[FlowDirection.TO_SERVER]
        self._batch.append(_Fragments(frames, times_ns, key, directions, lengths, packets.payload_bytes))
