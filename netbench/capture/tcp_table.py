"""The connections of a capture: numbered by their first segments, with their handshakes and ends."""

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netbench.capture.tcp_segments import ACK, FIN, RST, SYN, TcpSegments
from netbench.capture.tcp_sequence import ByteStream, group_starts
from netbench.model.flow_witness import UNKNOWN_NS, ConnectionEnd, Connections, FlowDirection

_MOST_ENDED = 4096  # connections kept for late segments
_TO_SERVER, _TO_CLIENT = FlowDirection.TO_SERVER, FlowDirection.TO_CLIENT


@dataclass(slots=True)
class TcpConnection:
    """A connection and its two streams, by direction; `mss` is the smaller one of the SYNs captured so far."""

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


class ConnectionTable:
    """Numbers connections, and follows their handshakes and ends.

    `result` has some 50 bytes for each connection, and is complete after finish(). A connection is kept in `live` until
    4,096 others have ended after it. `copies` counts retransmitted SYNs and FINs by direction.
    """

    def __init__(self) -> None:
        self.result = Connections()
        self.live: dict[int, TcpConnection] = {}
        self.opened = self.without_handshake = 0
        self.copies: tuple[Counter[str], Counter[str]] = (Counter(), Counter())
        self._by_flow: dict[int, TcpConnection] = {}
        self._awaiting_ack: dict[int, int] = {}  # index of a connection -> place of its SYN/ACK in this batch, or -1
        self._ended: deque[TcpConnection] = deque()

    def retire_ended(self) -> None:
        """Forget the connections that ended long ago."""
        while len(self._ended) > _MOST_ENDED:
            self._retire(self._ended.popleft())

    def finish(self) -> None:
        """Complete `result` at the end of the capture."""
        for connection in list(self.live.values()):
            self._retire(connection)

    def numbers(self, segments: TcpSegments, zero_ns: int) -> NDArray[np.int64]:
        """Return the index of each segment's connection; a SYN with another number opens a new one on its ports.

        `zero_ns` is the time of the first frame of the capture.
        """
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
                connection = self._open(flow, sequence if opens else None, time_ns - zero_ns)
            indices[part] = connection.index
        numbers = np.empty(len(flows), np.int64)
        numbers[order] = np.repeat(indices, np.diff(starts, append=len(flows)))
        return numbers

    def _open(self, flow: int, isn: int | None, began_ns: int) -> TcpConnection:
        connection = TcpConnection(len(self.result), flow, isn)
        self._by_flow[flow] = self.live[connection.index] = connection
        self.without_handshake += isn is None
        table = self.result
        columns: Sequence[tuple[Any, int]] = (
            (table.client_port, flow & 0xFFFF),
            (table.server_port, flow >> 16),
            (table.began_ns, began_ns),
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

    def add_control(self, segments: TcpSegments, numbers: NDArray[np.int64]) -> None:
        """Add SYNs, FINs and RSTs, and the client's ACK of a SYN/ACK."""
        places = np.flatnonzero(segments.flags & (SYN | FIN | RST))
        columns = (segments.direction, segments.flags, segments.sequence, segments.payload)
        rows: Any = (column[places].tolist() for column in (numbers, segments.places, segments.times_ns, *columns))
        for place, index, frame, time_ns, direction, flags, sequence, payload in zip(
            places.tolist(), *rows, strict=True
        ):
            connection = self.live[index]
            stream = connection.streams[direction]
            if flags & RST:
                self._add_reset(connection, direction)
            elif flags & SYN:
                self._add_syn(connection, direction, bool(flags & ACK), time_ns, sequence, segments.mss[frame])
                if direction == _TO_CLIENT and flags & ACK and connection.ack_ns is None:
                    self._awaiting_ack.setdefault(index, place)
            elif flags & FIN:
                fin = (sequence + payload) % (1 << 32)
                self.copies[direction]["retransmitted_fins"] += stream.fin == fin and not payload
                stream.fin = fin
                if connection.streams[1 - direction].fin is not None and connection.end is ConnectionEnd.OPEN:
                    self._end(connection, ConnectionEnd.CLOSED)
        if self._awaiting_ack:
            self._find_acks(segments, numbers)

    def _add_syn(
        self, connection: TcpConnection, direction: int, has_ack: bool, time_ns: int, sequence: int, mss: int
    ) -> None:
        if has_ack != (direction == _TO_CLIENT):
            return
        if (connection.syn_ack_ns if has_ack else connection.syn_ns) is not None:
            connection.has_syn_copies = True
            self.copies[direction]["retransmitted_syns"] += 1
            return
        if has_ack:
            connection.syn_ack_ns = time_ns
        else:
            connection.syn_ns = time_ns
        connection.mss = min(mss, connection.mss or mss)
        if connection.streams[direction].reference is None:
            connection.streams[direction].begin(sequence, top=1)

    def _add_reset(self, connection: TcpConnection, direction: int) -> None:
        if connection.end is not ConnectionEnd.OPEN:
            return
        if direction == _TO_SERVER:
            end = ConnectionEnd.RESET_BY_CLIENT
        elif connection.syn_ns is not None and connection.syn_ack_ns is None:
            end = ConnectionEnd.REFUSED
        else:
            end = ConnectionEnd.RESET_BY_SERVER
        self._end(connection, end)

    def _end(self, connection: TcpConnection, end: ConnectionEnd) -> None:
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
                connection = self.live[index]
                connection.ack_ns = time_ns
                self.opened += connection.syn_ns is not None
            if not self._awaiting_ack:
                break
        self._awaiting_ack = dict.fromkeys(self._awaiting_ack, -1)

    def _retire(self, connection: TcpConnection) -> None:
        """Write the connection to the table and forget it."""
        if self.live.pop(connection.index, None) is None:
            return
        if self._by_flow.get(connection.flow) is connection:
            del self._by_flow[connection.flow]
        self._awaiting_ack.pop(connection.index, None)
        table, index = self.result, connection.index
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
