"""Follows TCP connections through the batches of a capture: handshakes, ends, and which bytes of a segment are new.

Each batch is processed in columns. Python loops run over connections, SYNs, FINs, RSTs, and runs of contiguous
segments, of which there are few: a run ends where a segment does not continue the one before it in its direction.
"""

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import FrameBatch
from netbench.capture.tcp_segments import ACK, RST, SYN, SegmentReader, TcpSegments
from netbench.capture.tcp_sequence import ByteStream, NumberReference, group_starts, unwrapped
from netbench.capture.tcp_table import ConnectionTable
from netbench.model.flow_witness import (
    FlowDirection,
    FlowEndpoints,
    TcpTotals,
)

_ETHERNET_MSS = 1460  # of IPv4 without options: for connections without a captured SYN
_ETHERNET_MSS_6 = 1440
_TO_SERVER, _TO_CLIENT = FlowDirection.TO_SERVER, FlowDirection.TO_CLIENT


class NewBytes(NamedTuple):
    """Segments with new bytes, by connection and then in the order of the file, in int64 arrays.

    Bytes `start` to `stop` of the stream of a `connection`, an index, in a `direction` were first seen at `times_ns`.
    The first byte of a stream is at 1, or near 0 without a handshake. `new` is how many of them are new: fewer than
    all if others between them had been seen.
    """

    connection: NDArray[np.int64]
    direction: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    new: NDArray[np.int64]
    times_ns: NDArray[np.int64]


class ConnectionFollower:
    """Follows the connections between two endpoints, in memory for the connections that are open at one time.

    The result has some 50 bytes for each connection of the capture. `on_new_bytes` is called with the new bytes of each
    batch.
    """

    def __init__(self, endpoints: FlowEndpoints, on_new_bytes: Callable[[NewBytes], None] | None = None) -> None:
        self._reader = SegmentReader(endpoints)
        self._mss = _ETHERNET_MSS_6 if ":" in endpoints.client else _ETHERNET_MSS
        self._on_new_bytes = on_new_bytes
        self.table = ConnectionTable()
        self._counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._first_ns: list[int | None] = [None, None]
        self._last_ns: list[int | None] = [None, None]
        self._zero_ns: int | None = None
        self.flow_frames = 0

    @property
    def unread(self) -> Counter[str]:
        """The frames that are not decoded, by reason."""
        return self._reader.finder.unread

    @property
    def interfaces(self) -> int:
        """The number of interfaces of a Linux cooked capture; 0 for other link types."""
        return self._reader.finder.interfaces

    @property
    def first_ns(self) -> int | None:
        """The time of the first frame since 1970, None before it."""
        return self._zero_ns

    def add(self, batch: FrameBatch) -> None:
        """Add the next frames of the capture."""
        if self._zero_ns is None and len(batch.times_ns):
            self._zero_ns = int(batch.times_ns[0])
        segments = self._reader.read(batch)
        if segments is None or not len(segments.places):
            return
        self.flow_frames += len(segments.places)
        assert self._zero_ns is not None
        numbers = self.table.numbers(segments, self._zero_ns)
        self.table.add_control(segments, numbers)
        indices = np.unique(numbers).tolist()
        for index in indices:  # before the payload of this batch, which may be more than 2^31 bytes
            first, second = self.table.live[index].streams
            first.expect_acknowledgements(second)
            second.expect_acknowledgements(first)
        self._add_payload(segments, numbers)
        self._add_acknowledgements(segments, numbers)
        self._settle(indices)

    def totals(self, direction: FlowDirection) -> TcpTotals:
        """Return the totals of all connections in a direction."""
        first, last = self._first_ns[direction], self._last_ns[direction]
        counts = self._counts[direction] + self.table.copies[direction]
        return TcpTotals(**counts, first_ns=first, last_ns=last)

    def _add_payload(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        """Add the payloads, and count frames and segments."""
        mss = self._mss_of(segments, numbers)
        for direction in FlowDirection:
            self._count(segments, segments.direction == direction, mss, direction)
        places = np.flatnonzero(segments.payload)
        if not places.size:
            return
        order = places[np.argsort((numbers * 2 + segments.direction)[places], kind="stable")]
        keys = (numbers * 2 + segments.direction)[order]
        starts = group_starts(keys)
        streams = [self.table.live[key >> 1].streams[key & 1] for key in keys[starts].tolist()]
        length = segments.payload[order]
        first = segments.sequence[order] + (segments.flags[order] & SYN != 0)
        references = []
        for stream, number in zip(streams, first[starts].tolist(), strict=True):
            if stream.reference is None:
                stream.begin(number)
            assert stream.reference is not None
            references.append(stream.reference)
        begin = unwrapped(first & 0xFFFFFFFF, starts, references)
        stop = begin + length
        new, late = _new_bytes(begin, stop, starts, streams)
        for stream, count in zip(streams, np.add.reduceat(new, starts).tolist(), strict=True):
            stream.bytes += count
        self._count_copies(segments.direction[order], length - new, late, mss[order])
        self._count_new(segments.direction[order], new)
        if self._on_new_bytes is not None:
            has_new = np.flatnonzero(new)
            by_time = has_new[np.lexsort((order[has_new], keys[has_new] >> 1))]
            kept = order[by_time]
            whole_start = np.where(late[by_time] > 0, begin[by_time], stop[by_time] - new[by_time])
            self._on_new_bytes(
                NewBytes(
                    numbers[kept],
                    segments.direction[kept],
                    whole_start,
                    stop[by_time],
                    new[by_time],
                    segments.times_ns[kept],
                )
            )

    def _mss_of(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the payload of a full segment on the wire for each segment, in bytes."""
        indices, place = np.unique(numbers, return_inverse=True)
        mss = np.array([self.table.live[index].mss or self._mss for index in indices.tolist()])
        of_each: NDArray[np.int64] = np.maximum(mss[place.ravel()] - segments.options, 1)
        return of_each

    def _count(
        self, segments: TcpSegments, these: NDArray[np.bool_], mss: NDArray[np.int64], direction: FlowDirection
    ) -> None:
        payload = segments.payload[these]
        counts = self._counts[direction]
        counts["frames"] += len(payload)
        counts["payload_bytes"] += int(payload.sum())
        counts["segments"] += int(np.maximum(-(-payload // mss[these]), 1).sum())
        times = segments.times_ns[these][payload > 0]
        if len(times):
            first, last = self._first_ns[direction], self._last_ns[direction]
            self._first_ns[direction] = min(int(times.min()), first if first is not None else int(times[0]))
            self._last_ns[direction] = max(int(times.max()), last if last is not None else int(times[0]))

    def _count_copies(
        self,
        directions: NDArray[np.int64],
        copied: NDArray[np.int64],
        late: NDArray[np.int64],
        mss: NDArray[np.int64],
    ) -> None:
        for name, counted in (("retransmitted", copied), ("late", late)):
            if not counted.any():
                continue
            for direction in FlowDirection:
                these = directions == direction
                self._counts[direction][f"{name}_bytes"] += int(counted[these].sum())
                self._counts[direction][f"{name}_segments"] += int((-(-counted[these] // mss[these])).sum())

    def _count_new(self, directions: NDArray[np.int64], new: NDArray[np.int64]) -> None:
        to_client = int(new[directions == _TO_CLIENT].sum())
        self._counts[_TO_CLIENT]["stream_bytes"] += to_client
        self._counts[_TO_SERVER]["stream_bytes"] += int(new.sum()) - to_client

    def _add_acknowledgements(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        places = np.flatnonzero(segments.flags & (ACK | RST) == ACK)
        if not places.size:
            return
        order = places[np.argsort((numbers * 2 + segments.direction)[places], kind="stable")]
        keys = (numbers * 2 + segments.direction)[order]
        starts = group_starts(keys)
        acknowledged = segments.acknowledged[order]
        pairs = [(self.table.live[key >> 1].streams, key & 1) for key in keys[starts].tolist()]
        references = []
        for (streams, direction), number in zip(pairs, acknowledged[starts].tolist(), strict=True):
            stream, other = streams[direction], streams[1 - direction]
            if other.reference is None:
                other.begin(number)
            if stream.ack_reference is None:
                stream.ack_reference = NumberReference(other.origin, 0)
            references.append(stream.ack_reference)
        offsets = unwrapped(acknowledged, starts, references)
        for (streams, direction), most in zip(pairs, np.maximum.reduceat(offsets, starts).tolist(), strict=True):
            other = streams[1 - direction]
            other.acknowledged = most if other.acknowledged is None else max(other.acknowledged, most)

    def _settle(self, indices: list[int]) -> None:
        for index in indices:
            for direction in FlowDirection:
                stream = self.table.live[index].streams[direction]
                self._counts[direction]["uncaptured_bytes"] += stream.settle()
        self.table.retire_ended()


def _new_bytes(
    begin: NDArray[np.int64], stop: NDArray[np.int64], starts: NDArray[np.intp], streams: list[ByteStream]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Add segments to their streams; return how many bytes of each are new, and how many of these below the highest."""
    new, late = stop - begin, np.zeros(len(begin), np.int64)
    is_break = np.ones(len(begin), np.bool_)
    is_break[1:] = begin[1:] != stop[:-1]
    is_break[starts] = True
    runs = np.flatnonzero(is_break)
    ends = np.append(runs[1:], len(begin))
    groups = np.searchsorted(starts, runs, "right") - 1
    columns = (runs, ends, begin[runs], stop[ends - 1], groups)
    for run, end, first, last, group in zip(*(column.tolist() for column in columns), strict=True):
        stream = streams[group]
        if stream.extend(first, last):
            continue
        for place in range(run, end):
            start, after = int(begin[place]), int(stop[place])
            if stream.extend(start, after):
                stream.top = last
                break
            filled = stream.fill(start, min(after, stream.top))
            new[place], late[place] = filled + max(after - stream.top, 0), filled
            stream.top = max(stream.top, after)
    return new, late
