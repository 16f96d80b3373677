"""Requests and responses of TCP connections: when their first and last bytes were on the wire."""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.tcp_connections import follow_connections
from netbench.capture.tcp_follower import NewBytes
from netbench.capture.tcp_sequence import group_starts
from netbench.model.flow_witness import UNKNOWN_NS, ConnectionEnd, FlowDirection, FlowEndpoints, WireTraffic


class Exchanges(NamedTuple):
    """Requests and their responses in int64 arrays with one element each, by connection and then in order.

    `connection` is an index of the traffic's connections. Times are in ns since the first frame of the capture. That of
    a byte is the time of its first transmission on this link; UNKNOWN_NS if there was none. The last byte is the one
    after which all bytes up to the end were on the link. `is_complete`, bool, is false without a response, if the
    server reset the connection after a part of it, or if a part of the exchange was not captured.
    """

    connection: NDArray[np.int64]
    request_first_ns: NDArray[np.int64]
    request_last_ns: NDArray[np.int64]
    response_first_ns: NDArray[np.int64]
    response_last_ns: NDArray[np.int64]
    request_bytes: NDArray[np.int64]
    response_bytes: NDArray[np.int64]
    is_complete: NDArray[np.bool_]

    def response_times_ns(self) -> NDArray[np.int64]:
        """Return the time from the first byte of the request to the last of the response, of complete exchanges."""
        times: NDArray[np.int64] = (self.response_last_ns - self.request_first_ns)[self.is_complete]
        return times


class WireExchanges(NamedTuple):
    """The traffic of a link and the exchanges in it."""

    traffic: WireTraffic
    exchanges: Exchanges


def read_exchanges(
    path: Path,
    *,
    client: str,
    server: str,
    ports: Collection[int],
    message_bytes: int | None = None,
    response_bytes: int | None = None,
) -> WireExchanges:
    """Return the traffic and the exchanges of a capture, in one pass; errors as read_connections().

    Without `message_bytes`, a request is all payload of the client up to the first payload of the server after it. For
    pipelined requests or messages of one size, request k of a connection is bytes [k × size, (k + 1) × size) of the
    client's stream, and its response the same part of the server's, in responses of `response_bytes` (by default, of
    the same size). These need the connection's handshake: other connections have no exchanges then. Memory: some 50
    bytes per turn of the conversation, or per segment with `message_bytes`.
    """
    if (message_bytes is not None and message_bytes < 1) or (response_bytes is not None and response_bytes < 1):
        raise ValueError(f"messages of {message_bytes} and {response_bytes} bytes: use sizes of 1 byte or more")
    turns = _Turns(merge=message_bytes is None)
    traffic = follow_connections(path, FlowEndpoints.of(client, server, ports), turns.add)
    zero_ns = traffic.quality.first_ns or 0
    if message_bytes is None:
        exchanges = _by_turns(turns.all(), traffic)
    else:
        exchanges = _by_size(turns.all(), traffic, message_bytes, response_bytes or message_bytes)
    times = ("request_first_ns", "request_last_ns", "response_first_ns", "response_last_ns")
    columns = {name: getattr(exchanges, name) for name in times}
    since = {name: np.where(column == UNKNOWN_NS, UNKNOWN_NS, column - zero_ns) for name, column in columns.items()}
    return WireExchanges(traffic, exchanges._replace(**since))


class _Turn(NamedTuple):
    """New bytes of one direction without any of the other in between, in columns as of NewBytes."""

    connection: NDArray[np.int64]
    direction: NDArray[np.int64]
    start: NDArray[np.int64]
    stop: NDArray[np.int64]
    new: NDArray[np.int64]
    first_ns: NDArray[np.int64]
    last_ns: NDArray[np.int64]


class _Turns:
    """Collects new bytes; with `merge`, those of one turn together."""

    def __init__(self, *, merge: bool) -> None:
        self._merge = merge
        self._parts: list[_Turn] = []

    def add(self, new: NewBytes) -> None:
        turns = _Turn(new.connection, new.direction, new.start, new.stop, new.new, new.times_ns, new.times_ns)
        self._parts.append(_merged(turns) if self._merge else turns)

    def all(self) -> _Turn:
        """Return all turns, by connection and then in order."""
        none = np.empty(0, np.int64)
        parts = self._parts or [_Turn(none, none, none, none, none, none, none)]
        columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")
        turns = _Turn(*(column[order] for column in columns))
        return _merged(turns) if self._merge else turns


def _merged(turns: _Turn) -> _Turn:
    """Return the turns with adjacent ones of the same connection and direction merged."""
    starts = group_starts(turns.connection * 2 + turns.direction)
    if len(starts) == len(turns.connection):
        return turns
    return _Turn(
        turns.connection[starts],
        turns.direction[starts],
        np.minimum.reduceat(turns.start, starts),
        np.maximum.reduceat(turns.stop, starts),
        np.add.reduceat(turns.new, starts),
        np.minimum.reduceat(turns.first_ns, starts),
        np.maximum.reduceat(turns.last_ns, starts),
    )


def _by_turns(turns: _Turn, traffic: WireTraffic) -> Exchanges:
    requests = np.flatnonzero(turns.direction == FlowDirection.TO_SERVER)
    following = np.minimum(requests + 1, max(len(turns.connection) - 1, 0))
    has_response = (following > requests) & (turns.connection[following] == turns.connection[requests])
    is_whole = _are_whole(turns, _are_opened(traffic))
    connection = turns.connection[requests]
    is_last = np.append(connection[1:] != connection[:-1], True)[: len(requests)]
    was_reset = is_last & _are_reset(traffic)[connection]

    def of_response(column: NDArray[np.int64], otherwise: int) -> NDArray[np.int64]:
        values: NDArray[np.int64] = np.where(has_response, column[following], otherwise)
        return values

    return Exchanges(
        connection,
        turns.first_ns[requests],
        turns.last_ns[requests],
        of_response(turns.first_ns, UNKNOWN_NS),
        of_response(turns.last_ns, UNKNOWN_NS),
        turns.new[requests],
        of_response(turns.new, 0),
        has_response & ~was_reset & is_whole[requests] & is_whole[following],
    )


def _are_whole(turns: _Turn, are_opened: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return which turns have all bytes from the end of the direction's turn before to their end.

    `are_opened` is whether the handshake of each connection was captured: the first byte is at 1 then.
    """
    order = np.argsort(turns.connection * 2 + turns.direction, kind="stable")
    start, stop, key = turns.start[order], turns.stop[order], (turns.connection * 2 + turns.direction)[order]
    before = np.where(are_opened[turns.connection[order]], 1, start)
    is_same = key[1:] == key[:-1]
    before[1:][is_same] = stop[:-1][is_same]
    whole = np.empty(len(order), np.bool_)
    whole[order] = (start == before) & (turns.new[order] == stop - start)
    return whole


def _are_opened(traffic: WireTraffic) -> NDArray[np.bool_]:
    are_opened: NDArray[np.bool_] = np.frombuffer(traffic.connections.to_syn_ack_ns, np.int64) != UNKNOWN_NS
    return are_opened


def _are_reset(traffic: WireTraffic) -> NDArray[np.bool_]:
    ends = np.frombuffer(traffic.connections.ends, np.int8)
    is_reset: NDArray[np.bool_] = ends == ConnectionEnd.RESET_BY_SERVER
    return is_reset


def _by_size(pieces: _Turn, traffic: WireTraffic, request_bytes: int, response_bytes: int) -> Exchanges:
    are_opened = _are_opened(traffic)
    parts = []
    order = np.argsort(pieces.connection * 2 + pieces.direction, kind="stable")
    pieces = _Turn(*(column[order] for column in pieces))
    keys = pieces.connection * 2 + pieces.direction
    bounds = {int(keys[start]): start for start in group_starts(keys).tolist()}
    ends = dict(zip(bounds, [*list(bounds.values())[1:], len(keys)], strict=True))
    for index in sorted({key >> 1 for key in bounds if are_opened[key >> 1]}):
        sides = []
        for direction, size in ((FlowDirection.TO_SERVER, request_bytes), (FlowDirection.TO_CLIENT, response_bytes)):
            key = index * 2 + direction
            part = slice(bounds.get(key, 0), ends.get(key, 0))
            sides.append(_Messages.of(pieces.start[part], pieces.stop[part], pieces.first_ns[part], size))
        request, response = sides
        count = len(request.first_ns)
        parts.append(
            Exchanges(
                np.full(count, index, np.int64),
                request.first_ns,
                request.last_ns,
                _padded(response.first_ns, count, UNKNOWN_NS),
                _padded(response.last_ns, count, UNKNOWN_NS),
                request.bytes,
                _padded(response.bytes, count, 0),
                (request.bytes == request_bytes) & (_padded(response.bytes, count, 0) == response_bytes),
            )
        )
    if not parts:
        none = np.empty(0, np.int64)
        return Exchanges(none, none, none, none, none, none, none, np.empty(0, np.bool_))
    return Exchanges(*(np.concatenate(column) for column in zip(*parts, strict=True)))


class _Messages(NamedTuple):
    """Messages of one size in a byte stream: the times of their bytes, and how many of these were captured."""

    first_ns: NDArray[np.int64]
    last_ns: NDArray[np.int64]
    bytes: NDArray[np.int64]

    @classmethod
    def of(
        cls, start: NDArray[np.int64], stop: NDArray[np.int64], times_ns: NDArray[np.int64], size: int
    ) -> "_Messages":
        """Return the messages in pieces of a stream, whose first byte is at 1."""
        if not len(start):
            return cls(start, start, start)
        order = np.argsort(start, kind="stable")
        start, stop, times_ns = start[order] - 1, stop[order] - 1, times_ns[order]
        first = np.arange(-(-int(stop.max()) // size)) * size
        last = first + size
        below = np.concatenate((np.zeros(1, np.int64), np.cumsum(stop - start)))
        seen = _bytes_below(last, start, stop, below) - _bytes_below(first, start, stop, below)
        holder = np.maximum(np.searchsorted(start, first, "right") - 1, 0)
        ending = np.maximum(np.searchsorted(start, last - 1, "right") - 1, 0)
        up_to = np.maximum.accumulate(times_ns)
        has_first = (start[holder] <= first) & (first < stop[holder])
        return cls(
            np.where(has_first, times_ns[holder], UNKNOWN_NS), np.where(seen == size, up_to[ending], UNKNOWN_NS), seen
        )


def _bytes_below(
    offsets: NDArray[np.int64], start: NDArray[np.int64], stop: NDArray[np.int64], below: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return how many bytes of the pieces are below each offset; `below` is the cumulative sum of their lengths."""
    index = np.searchsorted(start, offsets, "right") - 1
    inside = np.minimum(offsets - start[index], (stop - start)[index])
    counts: NDArray[np.int64] = np.where(index < 0, 0, below[np.maximum(index, 0)] + inside)
    return counts


def _padded(values: NDArray[np.int64], count: int, otherwise: int) -> NDArray[np.int64]:
    """Return the first `count` values, and `otherwise` where there are fewer."""
    missing = max(count - len(values), 0)
    return np.concatenate((values[:count], np.full(missing, otherwise, np.int64)))
