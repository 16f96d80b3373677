"""Counts the fragments of UDP datagrams: all fragments with the number of a first one belong to its datagram.

Ports are only in the first fragment, so that later ones are counted if the first one was captured before them.
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.ip_packets import IpPackets
from netbench.capture.tcp_sequence import group_starts
from netbench.model.flow_witness import FlowDirection

_MOST_PENDING = 1 << 16


class _Fragments(NamedTuple):
    """Fragments in columns: `length` of the datagram in first ones, 0 in later ones; `direction` -1 in later ones."""

    places: NDArray[np.int64]
    key: NDArray[np.int64]
    direction: NDArray[np.int64]
    length: NDArray[np.int64]
    bytes: NDArray[np.int64]


class FragmentCounts:
    """Counts fragments in batches. `without_first` counts later fragments whose first one was not captured."""

    def __init__(self) -> None:
        self._batch: list[_Fragments] = []
        self._pending: dict[int, tuple[FlowDirection, int]] = {}  # key -> direction, missing bytes
        self._incomplete: Counter[FlowDirection] = Counter()
        self.without_first = 0

    def add_first(self, packets: IpPackets, lengths: NDArray[np.int64], directions: NDArray[np.int8]) -> None:
        """Add the first fragments among packets of one layout; `lengths` are those of datagrams with UDP header."""
        these = packets.has_more
        part = packets.where(these)
        self._add(part, directions[these].astype(np.int64), lengths[these])

    def add_later(self, packets: IpPackets) -> None:
        """Add later fragments."""
        count = packets.rows.size
        self._add(packets, np.full(count, -1, np.int64), np.zeros(count, np.int64))

    def settle(self) -> Counter[FlowDirection]:
        """Return how many later fragments of known datagrams were added in each direction since the last call."""
        later: Counter[FlowDirection] = Counter()
        if not self._batch:
            return later
        columns = _Fragments(*(np.concatenate(column) for column in zip(*self._batch, strict=True)))
        self._batch.clear()
        order = np.lexsort((columns.places, columns.key))
        starts = np.union1d(group_starts(columns.key[order]), np.flatnonzero(columns.direction[order] >= 0))
        counts = np.diff(starts, append=len(order))
        sums = np.add.reduceat(columns.bytes[order], starts)
        firsts = order[starts]
        rows = (columns.key[firsts], columns.direction[firsts], columns.length[firsts], counts, sums)
        for key, direction, length, count, seen in zip(*(row.tolist() for row in rows), strict=True):
            if direction >= 0:
                self._forget(key)
                self._pending[key] = FlowDirection(direction), length
            if key not in self._pending:
                self.without_first += count
                continue
            of, missing = self._pending.pop(key)
            later[of] += count - (direction >= 0)
            if missing > seen:
                self._pending[key] = of, missing - seen
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

    def _add(self, packets: IpPackets, directions: NDArray[np.int64], lengths: NDArray[np.int64]) -> None:
        places = packets.rows.of(np.arange(len(packets.rows.batch.frames)))
        key = packets.fragment_id * 2 + packets.by_address[FlowDirection.TO_SERVER]
        self._batch.append(_Fragments(places, key, directions, lengths, packets.payload_bytes))
