"""Reads the UDP traffic of two endpoints from a capture, in one pass: datagrams, fragments, requests and responses."""

from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import U16, FrameBatch
from netbench.capture.ip_fragments import FragmentCounts
from netbench.capture.ip_packets import UDP, IpPackets, PacketFinder
from netbench.capture.pcap import TUNNEL_HEADERS_BYTES
from netbench.capture.reading import open_file, read_stream
from netbench.capture.tcp_connections import check_interfaces
from netbench.capture.udp_numbers import NumberedDatagrams, find_exchanges, order_counts
from netbench.model.datagram_witness import DatagramTotals, PayloadKey, UdpSessions, WireDatagrams
from netbench.model.flow_witness import CaptureQuality, FlowDirection, FlowEndpoints

_UDP_BYTES = 8
_KEPT_BYTES = TUNNEL_HEADERS_BYTES  # with the number in the payload


class DatagramExchanges(NamedTuple):
    """Requests with a number and their responses with the same, in int64 arrays with one element each.

    `session` is an index of the traffic's sessions. Times are in ns since the first frame of the capture: of the first
    fragment of a request, and of the last one of its response. A response that is not captured has the time UNKNOWN_NS.
    Of duplicates, the first counts.
    """

    session: NDArray[np.int64]
    number: NDArray[np.int64]
    request_ns: NDArray[np.int64]
    response_ns: NDArray[np.int64]


class DatagramCapture(NamedTuple):
    """The UDP traffic of a link and, with a key, the exchanges in it."""

    traffic: WireDatagrams
    exchanges: DatagramExchanges | None


def read_datagrams(
    path: Path,
    *,
    client: str,
    server: str,
    ports: Collection[int],
    key: PayloadKey | None = None,
    datagram_bytes: int | None = None,
) -> DatagramCapture:
    """Return the UDP traffic between two addresses and the server's ports (none: all) in a pcap or pcapng file.

    `key` is where the payload has a number. A frame that is not fragmented and has more payload than `datagram_bytes`,
    the tool's size of a message, is one of GSO or GRO: as many datagrams as these make, numbered consecutively.
    Memory: constant, with a key some 40 bytes per datagram. Errors as of read_connections().
    """
    if datagram_bytes is not None and datagram_bytes < 1:
        raise ValueError(f"datagrams of {datagram_bytes} bytes: use a size of 1 byte or more")
    follower = _SessionFollower(FlowEndpoints.of(client, server, ports), key, datagram_bytes)
    with open_file(path) as file:
        reader = read_stream(file, str(path), _KEPT_BYTES)
        for batch in reader.batches():
            follower.add(batch)
        check_interfaces(path, max(len(reader.interfaces), follower.interfaces))
    ending = reader.ending
    return follower.result(ending.leftover_bytes, ending.damage)


class _Totals:
    """The totals of one direction."""

    def __init__(self) -> None:
        self.frames = self.fragments = self.datagrams = self.payload_bytes = self.unnumbered = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None


class _SessionFollower:
    def __init__(self, endpoints: FlowEndpoints, key: PayloadKey | None, datagram_bytes: int | None) -> None:
        self._endpoints, self._key, self._datagram_bytes = endpoints, key, datagram_bytes
        self._finder = PacketFinder(endpoints)
        self._sessions: dict[int, int] = {}
        self._table = UdpSessions()
        self._totals = _Totals(), _Totals()
        self._fragments = FragmentCounts()
        self._numbered: list[NumberedDatagrams] = []
        self._zero_ns: int | None = None
        self._frames = self._flow_frames = 0

    @property
    def interfaces(self) -> int:
        return self._finder.interfaces

    def add(self, batch: FrameBatch) -> None:
        """Add the next frames of the capture."""
        if self._zero_ns is None and len(batch.times_ns):
            self._zero_ns = int(batch.times_ns[0])
        self._frames += len(batch.times_ns)
        for packets in self._finder.packets(batch):
            if packets.protocol == UDP:
                is_later = packets.fragment_offset > 0
                self._add_first(packets.where(~is_later) if is_later.any() else packets)
                if is_later.any():
                    later = packets.where(is_later)
                    self._fragments.add_later(later, self._frames_of(later))
        for direction, frames in self._fragments.settle().items():
            self._totals[direction].frames += frames
            self._totals[direction].fragments += frames
            self._flow_frames += frames

    def result(self, leftover_bytes: int, damage: str) -> DatagramCapture:
        """Return the result at the end of the capture."""
        incomplete = self._fragments.finish()
        unread = dict(self._finder.unread)
        if self._fragments.without_first:
            unread["IP fragments without their first one"] = self._fragments.without_first
        numbered = NumberedDatagrams.joined(self._numbered)
        exchanges = None
        if self._key is not None:
            ends_ns = self._fragments.ends_ns(numbered.frame, numbered.times_ns)
            found = find_exchanges(numbered, ends_ns, self._zero_ns or 0)
            exchanges = DatagramExchanges(*found)
        other = self._frames - self._flow_frames - sum(unread.values())
        quality = CaptureQuality(self._zero_ns, self._frames, other, unread, leftover_bytes, damage)
        to_server, to_client = (
            self._direction(direction, numbered, incomplete[direction]) for direction in FlowDirection
        )
        return DatagramCapture(WireDatagrams(to_server, to_client, self._table, quality), exchanges)

    def _direction(self, direction: FlowDirection, numbered: NumberedDatagrams, incomplete: int) -> DatagramTotals:
        totals = self._totals[direction]
        counts: dict[str, int] = {}
        if self._key is not None:
            lost, duplicated, reordered = order_counts(numbered.of(direction), self._key.first)
            counts = {
                "lost_datagrams": lost,
                "duplicated_datagrams": duplicated,
                "reordered_datagrams": reordered,
                "unnumbered_datagrams": totals.unnumbered,
            }
        return DatagramTotals(
            frames=totals.frames,
            fragments=totals.fragments,
            datagrams=totals.datagrams,
            payload_bytes=totals.payload_bytes,
            incomplete_datagrams=incomplete,
            first_ns=totals.first_ns,
            last_ns=totals.last_ns,
            **counts,
        )

    def _add_first(self, packets: IpPackets) -> None:
        """Add packets with a UDP header."""
        packets = packets.among(self._finder.whole(packets.rows, packets.payload_at + _UDP_BYTES))
        if not packets.rows.size:
            return
        directions = packets.directions(self._endpoints)
        if (directions < 0).any():
            packets, directions = packets.where(directions >= 0), directions[directions >= 0]
        rows, at = packets.rows, packets.payload_at
        if not rows.size:
            return
        self._flow_frames += rows.size
        lengths = rows.field(U16, at + 4).astype(np.int64)
        lengths = np.where(lengths == 0, packets.payload_bytes, lengths)  # 0: a jumbogram (RFC 2675, section 4)
        payload = np.maximum(lengths - _UDP_BYTES, 0)
        if packets.has_more.any():
            self._fragments.add_first(packets, self._frames_of(packets), lengths, directions)
        datagrams = np.ones(rows.size, np.int64)
        if self._datagram_bytes:
            datagrams = np.where(packets.has_more, 1, np.maximum(-(-payload // self._datagram_bytes), 1))
        sessions = self._session_indices(rows.field(U16, at), rows.field(U16, at + 2), directions)
        times_ns = rows.of(rows.batch.times_ns)
        self._count(sessions, directions, datagrams, payload, times_ns)
        if self._key is not None:
            self._add_numbers(packets, sessions, directions, datagrams, payload)

    def _session_indices(
        self, source: NDArray[Any], destination: NDArray[Any], directions: NDArray[np.int8]
    ) -> NDArray[np.int64]:
        is_to_server = directions == FlowDirection.TO_SERVER
        client, server = np.where(is_to_server, (source, destination), (destination, source)).astype(np.int64)
        flows, first, places = np.unique(client | server << 16, return_index=True, return_inverse=True)
        for flow in flows[np.argsort(first)].tolist():
            if flow not in self._sessions:
                self._sessions[flow] = len(self._sessions)
                self._table.client_port.append(flow & 0xFFFF)
                self._table.server_port.append(flow >> 16)
                for column in self._columns():
                    column.append(0)
        indices = np.array([self._sessions[flow] for flow in flows.tolist()], np.int64)
        return indices[places.ravel()]

    def _columns(self) -> tuple[Any, Any, Any, Any]:
        table = self._table
        return table.to_server_datagrams, table.to_client_datagrams, table.to_server_bytes, table.to_client_bytes

    def _count(
        self,
        sessions: NDArray[np.int64],
        directions: NDArray[np.int8],
        datagrams: NDArray[np.int64],
        payload: NDArray[np.int64],
        times_ns: NDArray[np.int64],
    ) -> None:
        for direction in FlowDirection:
            these = directions == direction
            if not these.any():
                continue
            totals, earliest, latest = self._totals[direction], int(times_ns[these].min()), int(times_ns[these].max())
            totals.frames += int(np.count_nonzero(these))
            totals.datagrams += int(datagrams[these].sum())
            totals.payload_bytes += int(payload[these].sum())
            totals.first_ns = earliest if totals.first_ns is None else min(totals.first_ns, earliest)
            totals.last_ns = latest if totals.last_ns is None else max(totals.last_ns, latest)
            indices, places = np.unique(sessions[these], return_inverse=True)
            for column, values in zip(self._columns()[direction::2], (datagrams, payload), strict=True):
                sums = np.bincount(places.ravel(), values[these]).astype(np.int64)
                for index, count in zip(indices.tolist(), sums.tolist(), strict=True):
                    column[index] += count

    def _add_numbers(
        self,
        packets: IpPackets,
        sessions: NDArray[np.int64],
        directions: NDArray[np.int8],
        datagrams: NDArray[np.int64],
        payload: NDArray[np.int64],
    ) -> None:
        assert self._key is not None
        rows, end = packets.rows, self._key.offset + self._key.size
        at = packets.payload_at + _UDP_BYTES
        captured = rows.at_least(at + end)
        every = np.arange(len(rows.batch.frames))
        has_number = (payload >= end) & np.isin(rows.of(every), captured.of(every))
        for direction in FlowDirection:
            missing = ~has_number & (directions == direction)
            self._totals[direction].unnumbered += int(datagrams[missing].sum())
        if not has_number.any():
            return
        kept = rows.where(has_number)
        numbers = kept.field(np.dtype(f">u{self._key.size}"), at + self._key.offset).astype(np.int64)
        counts = datagrams[has_number]
        within = np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)
        frames = self._frames_of(packets)[has_number]
        of_each = (sessions[has_number], directions[has_number].astype(np.int64), numbers, kept.of(rows.batch.times_ns))
        session, direction_of, number, times_ns, frame = (np.repeat(column, counts) for column in (*of_each, frames))
        self._numbered.append(NumberedDatagrams(session, direction_of, number + within, times_ns, frame))

    def _frames_of(self, packets: IpPackets) -> NDArray[np.int64]:
        """Return the numbers of the frames of packets of the current batch, in the capture."""
        batch = packets.rows.batch.frames
        return packets.rows.of(np.arange(len(batch), dtype=np.int64)) + (self._frames - len(batch))
