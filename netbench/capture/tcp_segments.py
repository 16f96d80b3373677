"""The TCP segments of two endpoints in a batch of frames, as columns; dpkt decodes the options of SYNs."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import dpkt
import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import U16, U32, FrameBatch
from netbench.capture.ip_packets import TCP, IpPackets, PacketFinder
from netbench.model.flow_witness import FlowDirection, FlowEndpoints

FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
LEAST_TCP_BYTES = 20
# The MSS of a SYN without the option (RFC 9293, section 3.7.1), by IP version.
_DEFAULT_MSS = {4: 536, 6: 1220}


class TcpSegments(NamedTuple):
    """Segments in the order of the file, in int64 arrays with one element each.

    `flow` is the client's port + 65536 × the server's. `options` are the bytes of TCP options. `times_ns` are since
    1970. `places` are indices of frames in the batch. `mss` maps places of SYNs to their MSS option.
    """

    places: NDArray[np.int64]
    direction: NDArray[np.int64]
    flow: NDArray[np.int64]
    sequence: NDArray[np.int64]
    acknowledged: NDArray[np.int64]
    flags: NDArray[np.int64]
    window: NDArray[np.int64]
    options: NDArray[np.int64]
    payload: NDArray[np.int64]
    times_ns: NDArray[np.int64]
    mss: dict[int, int]


class SegmentReader:
    """Reads the segments between two endpoints; `finder` counts the frames that are not decoded."""

    def __init__(self, endpoints: FlowEndpoints) -> None:
        self._endpoints = endpoints
        self.finder = PacketFinder(endpoints)

    def read(self, batch: FrameBatch) -> TcpSegments | None:
        """Return the segments of a batch; None if there are none."""
        parts: list[Any] = []
        mss: dict[int, int] = {}
        for packets in self.finder.packets(batch):
            if packets.protocol != TCP:
                continue
            for part in self._of_layout(packets):
                parts.append(part[:-1])
                mss.update(part.mss)
        if not parts:
            return None
        columns: list[Any] = [np.concatenate(column) for column in zip(*parts, strict=True)]
        order = np.argsort(columns[0], kind="stable")  # layouts of headers come one after the other
        return TcpSegments(*[*(column[order] for column in columns), mss])

    def _of_layout(self, packets: IpPackets) -> Iterator[TcpSegments]:
        later = packets.fragment_offset > 0
        if (later | packets.has_more).any():
            self.finder.unread["TCP in IP fragments"] += int(np.count_nonzero(later | packets.has_more))
            packets = packets.where(~(later | packets.has_more))
        at = packets.payload_at
        packets = packets.among(self.finder.whole(packets.rows, at + LEAST_TCP_BYTES))
        if not packets.rows.size:
            return
        directions = packets.directions(self._endpoints)
        if (directions < 0).any():
            packets, directions = packets.where(directions >= 0), directions[directions >= 0]
        rows = packets.rows
        if not rows.size:
            return
        ports = rows.field(U16, at).astype(np.int64), rows.field(U16, at + 2).astype(np.int64)
        client, server = np.where(directions == FlowDirection.TO_SERVER, ports, ports[::-1])
        kind = rows.field(U16, at + 12).astype(np.int64)
        header = (kind >> 12) * 4
        places = rows.of(np.arange(len(rows.batch.frames)))
        flags = kind & 0x1FF
        yield TcpSegments(
            places=places,
            direction=directions.astype(np.int64),
            flow=client | server << 16,
            sequence=rows.field(U32, at + 4).astype(np.int64),
            acknowledged=rows.field(U32, at + 8).astype(np.int64),
            flags=flags,
            window=rows.field(U16, at + 14).astype(np.int64),
            options=header - LEAST_TCP_BYTES,
            payload=np.maximum(packets.payload_bytes - header, 0),
            times_ns=rows.of(rows.batch.times_ns),
            mss={
                int(places[index]): _mss_of(packets, index, int(header[index]))
                for index in np.flatnonzero(flags & SYN).tolist()
            },
        )


def _mss_of(packets: IpPackets, index: int, header: int) -> int:
    """Return the MSS option of a SYN in bytes."""
    data, _ = packets.rows.first_bytes(index)
    at = packets.payload_at
    for kind, value in dpkt.tcp.parse_opts(data[at + LEAST_TCP_BYTES : at + header]):
        if kind == dpkt.tcp.TCP_OPT_MSS and len(value) == 2:
            return int.from_bytes(value) or 1
    return _DEFAULT_MSS[packets.version]
