"""Follows TCP connections through the batches of a capture: handshakes, ends, and which bytes of a segment are new.

Each batch is processed in columns. Python loops run over connections, SYNs, FINs, RSTs, and runs of contiguous
segments, of which there are few: a run ends where a segment does not continue the one before it in its direction.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import FrameBatch
from netbench.capture.tcp_segments import ACK, FIN, RST, SYN, SegmentReader, TcpSegments
from netbench.capture.tcp_sequence import ByteStream, NumberReference, group_starts, unwrapped
from netbench.model.flow_witness import (
    UNKNOWN_NS,
    ConnectionEnd,
    Connections,
    Direction,
    FlowEndpoints,
    TcpTotals,
)

_ETHERNET_MSS = 1460  # of IPv4 without options: for connections without a captured SYN
_ETHERNET_MSS_6 = 1440
_MOST_ENDED = 4096  # connections kept for late segments
_TO_SERVER, _TO_CLIENT = Direction.TO_SERVER, Direction.TO_CLIENT


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


@dataclass(slots=True)
class _Connection:
    index: int
    flow: int
    isn: int | None = None
    syn_ns: int | None = None
    syn_ack_ns: int | None = None
    ack_ns: int | None = None
    has_syn_copies: bool = False
    end: ConnectionEnd = ConnectionEnd.OPEN
    mss: int | None = None
    streams: tuple[ByteStream, ByteStream] = field(default_factory=lambda: (ByteStream(), ByteStream()))


class ConnectionFollower:
    """Follows the connections between two endpoints, in memory for the connections that are open at one time.

    The result has some 50 bytes for each connection of the capture. `on_new_bytes` is called with the new bytes of each
    batch.
    """

    def __init__(self, endpoints: FlowEndpoints, on_new_bytes: Callable[[NewBytes], None] | None = None) -> None:
        self._reader = SegmentReader(endpoints)
        self._mss = _ETHERNET_MSS_6 if ":" in endpoints.client else _ETHERNET_MSS
        self._on_new_bytes = on_new_bytes
        self._by_flow: dict[int, _Connection] = {}
        self._live: dict[int, _Connection] = {}
        self._awaiting_ack: dict[int, int] = {}  # index of a connection -> place of its SYN/ACK in this batch, or -1
        self._ended: deque[_Connection] = deque()
        self._counts: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._first_ns: list[int | None] = [None, None]
        self._last_ns: list[int | None] = [None, None]
        self._frames = 0
        self._zero_ns: int | None = None
        self.opened = self.without_handshake = self.flow_frames = 0
        self.connections = Connections()

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
        numbers = self._numbers(segments)
        self._add_control(segments, numbers)
        self._add_payload(segments, numbers)
        self._add_acknowledgements(segments, numbers)
        self._settle(np.unique(numbers).tolist())

    def finish(self) -> None:
        """Complete `connections` at the end of the capture."""
        for connection in list(self._live.values()):
            self._retire(connection)

    def totals(self, direction: Direction) -> TcpTotals:
        """Return the totals of all connections in a direction."""
        first, last = self._first_ns[direction], self._last_ns[direction]
        return TcpTotals(**self._counts[direction], first_ns=first, last_ns=last)

    def _numbers(self, segments: TcpSegments) -> NDArray[np.int64]:
        """Return the index of each segment's connection; a SYN with another number opens a new one on its ports."""
        order = np.argsort(segments.flow, kind="stable")
        flows = segments.flow[order]
        is_syn = (segments.flags & (SYN | ACK) == SYN) & (segments.direction == _TO_SERVER)
        starts = np.union1d(group_starts(flows), np.flatnonzero(is_syn[order]))
        firsts = order[starts]
        by_place = np.argsort(firsts)  # connections are numbered in the order of their first segments
        columns = (flows[starts], is_syn[firsts], segments.sequence[firsts], segments.times_ns[firsts])
        indices = np.empty(len(starts), np.int64)
        rows: Any = (column[by_place].tolist() for column in columns)
        for part, flow, opens, sequence, time_ns in zip(by_place.tolist(), *rows, strict=True):
            connection = self._by_flow.get(flow)
            if connection is None or (opens and connection.isn != sequence):
                connection = self._open(flow, sequence if opens else None, time_ns)
            indices[part] = connection.index
        numbers = np.empty(len(flows), np.int64)
        numbers[order] = np.repeat(indices, np.diff(starts, append=len(flows)))
        return numbers

    def _open(self, flow: int, isn: int | None, time_ns: int) -> _Connection:
        assert self._zero_ns is not None
        connection = _Connection(len(self.connections), flow, isn)
        self._by_flow[flow] = self._live[connection.index] = connection
        self.without_handshake += isn is None
        table = self.connections
        columns: Sequence[tuple[Any, int]] = (
            (table.client_port, flow & 0xFFFF),
            (table.server_port, flow >> 16),
            (table.began_ns, time_ns - self._zero_ns),
            (table.to_syn_ack_ns, UNKNOWN_NS),
            (table.to_ack_ns, UNKNOWN_NS),
            (table.is_ambiguous, 0),
            (table.ends, ConnectionEnd.OPEN),
            (table.to_server_bytes, 0),
            (table.to_client_bytes, 0),
        )
        for column, value in columns:
            column.append(value)
        return connection

    def _add_control(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        """Add SYNs, FINs and RSTs, and the client's ACK of a SYN/ACK."""
        places = np.flatnonzero(segments.flags & (SYN | FIN | RST))
        columns = (segments.direction, segments.flags, segments.sequence, segments.payload)
        rows: Any = (column[places].tolist() for column in (numbers, segments.places, segments.times_ns, *columns))
        for place, index, frame, time_ns, direction, flags, sequence, payload in zip(
            places.tolist(), *rows, strict=True
        ):
            connection = self._live[index]
            stream = connection.streams[direction]
            if flags & RST:
                self._add_reset(connection, direction)
            elif flags & SYN:
                self._add_syn(connection, direction, bool(flags & ACK), time_ns, sequence, segments.mss[frame])
                if direction == _TO_CLIENT and flags & ACK and connection.ack_ns is None:
                    self._awaiting_ack.setdefault(index, place)
                    stream.ack_reference = stream.ack_reference or _reference(connection.streams[_TO_SERVER])
            elif flags & FIN:
                fin = (sequence + payload) % (1 << 32)
                self._counts[direction]["retransmitted_fins"] += stream.fin == fin and not payload
                stream.fin = fin
                if connection.streams[1 - direction].fin is not None and connection.end is ConnectionEnd.OPEN:
                    self._end(connection, ConnectionEnd.CLOSED)
        if self._awaiting_ack:
            self._find_acks(segments, numbers)

    def _add_syn(
        self, connection: _Connection, direction: int, has_ack: bool, time_ns: int, sequence: int, mss: int
    ) -> None:
        if has_ack != (direction == _TO_CLIENT):
            return
        if (connection.syn_ack_ns if has_ack else connection.syn_ns) is not None:
            connection.has_syn_copies = True
            self._counts[direction]["retransmitted_syns"] += 1
            return
        if has_ack:
            connection.syn_ack_ns = time_ns
        else:
            connection.syn_ns = time_ns
        connection.mss = min(mss, connection.mss or mss)
        if connection.streams[direction].reference is None:
            connection.streams[direction].begin(sequence, top=1)

    def _add_reset(self, connection: _Connection, direction: int) -> None:
        if connection.end is not ConnectionEnd.OPEN:
            return
        if direction == _TO_SERVER:
            end = ConnectionEnd.RESET_BY_CLIENT
        elif connection.syn_ns is not None and connection.syn_ack_ns is None:
            end = ConnectionEnd.REFUSED
        else:
            end = ConnectionEnd.RESET_BY_SERVER
        self._end(connection, end)

    def _end(self, connection: _Connection, end: ConnectionEnd) -> None:
        connection.end = end
        self._ended.append(connection)

    def _find_acks(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        """Find the first ACK of the client after each SYN/ACK."""
        is_ack = (segments.direction == _TO_SERVER) & (segments.flags & (ACK | RST | SYN) == ACK)
        places = np.flatnonzero(is_ack)
        for place, index, time_ns in zip(
            places.tolist(), numbers[places].tolist(), segments.times_ns[places].tolist(), strict=True
        ):
            begin = self._awaiting_ack.get(index)
            if begin is not None and place > begin:
                del self._awaiting_ack[index]
                connection = self._live[index]
                connection.ack_ns = time_ns
                self.opened += connection.syn_ns is not None
            if not self._awaiting_ack:
                break
        self._awaiting_ack = dict.fromkeys(self._awaiting_ack, -1)

    def _add_payload(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        """Add the payloads, and count frames and segments."""
        mss = self._mss_of(segments, numbers)
        for direction in Direction:
            self._count(segments, segments.direction == direction, mss, direction)
        places = np.flatnonzero(segments.payload)
        if not places.size:
            return
        order = places[np.argsort((numbers * 2 + segments.direction)[places], kind="stable")]
        keys = (numbers * 2 + segments.direction)[order]
        starts = group_starts(keys)
        streams = [self._live[key >> 1].streams[key & 1] for key in keys[starts].tolist()]
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
        mss = np.array([self._live[index].mss or self._mss for index in indices.tolist()])
        of_each: NDArray[np.int64] = np.maximum(mss[place.ravel()] - segments.options, 1)
        return of_each

    def _count(
        self, segments: TcpSegments, these: NDArray[np.bool_], mss: NDArray[np.int64], direction: Direction
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
            for direction in Direction:
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
        pairs = [(self._live[key >> 1].streams, key & 1) for key in keys[starts].tolist()]
        references = []
        for (streams, direction), number in zip(pairs, acknowledged[starts].tolist(), strict=True):
            stream, other = streams[direction], streams[1 - direction]
            if other.reference is None:
                other.begin(number)
            if stream.ack_reference is None:
                stream.ack_reference = _reference(other)
            assert stream.ack_reference is not None
            references.append(stream.ack_reference)
        offsets = unwrapped(acknowledged, starts, references)
        for (streams, direction), most in zip(pairs, np.maximum.reduceat(offsets, starts).tolist(), strict=True):
            other = streams[1 - direction]
            other.acknowledged = most if other.acknowledged is None else max(other.acknowledged, most)
        self._count_duplicates(segments, order, starts, pairs)

    def _count_duplicates(
        self,
        segments: TcpSegments,
        order: NDArray[np.intp],
        starts: NDArray[np.intp],
        pairs: list[tuple[tuple[ByteStream, ByteStream], int]],
    ) -> None:
        """Count ACKs without payload that repeat the ACK and window before them (RFC 5681, section 2)."""
        sequence, payload, flags = segments.sequence[order], segments.payload[order], segments.flags[order]
        following = (sequence + payload + (flags & (SYN | FIN) != 0)) & 0xFFFFFFFF
        columns = (segments.acknowledged[order], following, segments.window[order])
        is_same = (payload == 0) & (flags & (SYN | FIN) == 0)
        for column in columns:
            is_same[1:] &= column[1:] == column[:-1]
        lasts = np.append(starts[1:], len(order)) - 1
        firsts: Any = zip(*(column[starts].tolist() for column in columns), strict=True)
        ends: Any = zip(*(column[lasts].tolist() for column in columns), strict=True)
        is_pure = is_same[starts].tolist()
        carried = []
        for (streams, direction), begin, end, pure in zip(pairs, firsts, ends, is_pure, strict=True):
            stream = streams[direction]
            carried.append(pure and stream.last_ack == begin)
            stream.last_ack = end
        is_same[starts] = carried
        directions = segments.direction[order]
        for direction in Direction:
            self._counts[direction]["duplicate_acks"] += int(np.count_nonzero(is_same & (directions == direction)))

    def _settle(self, indices: list[int]) -> None:
        for index in indices:
            for direction in Direction:
                stream = self._live[index].streams[direction]
                self._counts[direction]["uncaptured_bytes"] += stream.settle()
        while len(self._ended) > _MOST_ENDED:
            self._retire(self._ended.popleft())

    def _retire(self, connection: _Connection) -> None:
        """Write the connection to the table and forget it."""
        if self._live.pop(connection.index, None) is None:
            return
        if self._by_flow.get(connection.flow) is connection:
            del self._by_flow[connection.flow]
        self._awaiting_ack.pop(connection.index, None)
        table, index = self.connections, connection.index
        syn, syn_ack, ack = connection.syn_ns, connection.syn_ack_ns, connection.ack_ns
        if syn is not None and syn_ack is not None:
            table.to_syn_ack_ns[index] = syn_ack - syn
        if syn_ack is not None and ack is not None:
            table.to_ack_ns[index] = ack - syn_ack
        table.is_ambiguous[index] = connection.has_syn_copies
        is_unanswered = syn is not None and syn_ack is None and connection.end is ConnectionEnd.OPEN
        table.ends[index] = ConnectionEnd.UNANSWERED if is_unanswered else connection.end
        to_server, to_client = connection.streams
        table.to_server_bytes[index] = to_server.bytes + to_server.uncaptured
        table.to_client_bytes[index] = to_client.bytes + to_client.uncaptured


def _reference(stream: ByteStream) -> NumberReference | None:
    """Return a copy of a stream's reference."""
    known = stream.reference
    return None if known is None else NumberReference(known.number, known.offset)


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
