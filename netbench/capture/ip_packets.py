"""Finds the IP packets of two endpoints in a batch of frames: by numpy, one layout of headers at a time.

Read are Ethernet with VLAN tags, Linux cooked (v1, v2) and raw IP; IPv4 with options; IPv6 with extension headers.
"""

from collections import Counter
from collections.abc import Iterator
from ipaddress import ip_address
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import IPV4, LEAST_IP_BYTES, LINKS, U8, U16, U32, VLAN_TAGS, FrameBatch, LinkHeader, Rows
from netbench.capture.frames import link_name as name_of_link
from netbench.model.flow_witness import FlowDirection, FlowEndpoints

# Of each frame are kept: Ethernet 14, two tags 8, IPv6 40 and two extensions 16, TCP 60 bytes.
KEPT_BYTES = 160
TCP, UDP = 6, 17
_IPV6, _IPV6_BYTES = 0x86DD, 40
_OTHER_TYPES = (0x0806, 0x8035, 0x88CC, 0x8809, 0x8808)  # ARP, RARP, LLDP, LACP, pause: carry no IP
_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION = 0, 43, 44, 60
_FRAGMENT_BYTES = 8
_MOST_LAYERS = 4  # VLAN tags or extension headers
_TYPE_AT = {LinkHeader.ETHERNET: (12, 14), LinkHeader.COOKED: (14, 16), LinkHeader.COOKED_2: (0, 20)}
_COOKED_2_INTERFACE_AT = 4
_CUT = "cut within their headers"


class IpPackets(NamedTuple):
    """Packets of one layout between the endpoints, in arrays with one element each.

    `payload_at` is the byte of their frames at which the IP payload begins, `payload_bytes` its length, int64. The
    payload is part of a fragmented datagram from `fragment_offset`, in bytes, with the number `fragment_id`, where
    `has_more` or the offset is not 0. `by_address` are the directions that the addresses permit, bool of shape (2, n).
    """

    rows: Rows
    version: int
    protocol: int
    payload_at: int
    payload_bytes: NDArray[np.int64]
    by_address: NDArray[np.bool_]
    fragment_offset: NDArray[np.int64]
    has_more: NDArray[np.bool_]
    fragment_id: NDArray[np.int64]

    def where(self, condition: NDArray[np.bool_]) -> "IpPackets":
        """Return the packets for which `condition`, bool of shape (n,), is true."""
        return self._replace(
            rows=self.rows.where(condition),
            payload_bytes=self.payload_bytes[condition],
            by_address=self.by_address[:, condition],
            fragment_offset=self.fragment_offset[condition],
            has_more=self.has_more[condition],
            fragment_id=self.fragment_id[condition],
        )

    def among(self, rows: Rows) -> "IpPackets":
        """Return the packets whose frames are among `rows`."""
        if rows.size == self.rows.size:
            return self
        every = np.arange(len(rows.batch.frames))
        return self.where(np.isin(self.rows.of(every), rows.of(every)))

    def directions(self, endpoints: FlowEndpoints) -> NDArray[np.int8]:
        """Return each packet's direction by addresses and ports, -1 for other flows; the ports must be captured."""
        source, destination = (self.rows.field(U16, self.payload_at + at) for at in (0, 2))
        ports = sorted(endpoints.ports)
        to_server = self.by_address[FlowDirection.TO_SERVER] & (np.isin(destination, ports) if ports else True)
        to_client = self.by_address[FlowDirection.TO_CLIENT] & (np.isin(source, ports) if ports else True)
        directions = np.full(self.rows.size, -1, np.int8)
        directions[to_client] = FlowDirection.TO_CLIENT
        directions[to_server] = FlowDirection.TO_SERVER
        return directions


class PacketFinder:
    """Finds the packets between two endpoints. `unread` counts frames that are not decoded, by reason."""

    def __init__(self, endpoints: FlowEndpoints) -> None:
        addresses = [ip_address(text) for text in (endpoints.client, endpoints.server)]
        self._version = addresses[0].version
        client, server = (np.frombuffer(address.packed, U32) for address in addresses)
        self._pairs = np.concatenate((client, server)), np.concatenate((server, client))
        self.unread: Counter[str] = Counter()
        self._interfaces: set[int] = set()

    @property
    def interfaces(self) -> int:
        """The number of interfaces of a Linux cooked capture; 0 for other link types."""
        return len(self._interfaces)

    def packets(self, batch: FrameBatch) -> Iterator[IpPackets]:
        """Yield the packets between the endpoints, one layout of headers at a time."""
        link, rows = LINKS.get(batch.link_type), Rows(batch)
        if link is not None and link.header in _TYPE_AT:
            type_at, next_at = _TYPE_AT[link.header]
            if link.header is LinkHeader.COOKED_2:
                whole = rows.at_least(next_at)
                self._interfaces.update(np.unique(whole.field(U32, _COOKED_2_INTERFACE_AT)).tolist())
            yield from self._of_type(rows, type_at, next_at, 0)
        elif link is not None and link.header is LinkHeader.RAW_IP:
            for first, same in self.whole(rows, 1).by_value(U8, 0):
                yield from self._ip(same, 0, first >> 4 if first >= 0 else 0)
        else:
            self.unread[f"of {name_of_link(batch.link_type)}, an unsupported link type"] += rows.size

    def whole(self, rows: Rows, length: int) -> Rows:
        """Return the frames of which this many bytes were captured, and count the others."""
        whole = rows.at_least(length)
        if whole.size < rows.size:
            self.unread[_CUT] += rows.size - whole.size
        return whole

    def _of_type(self, rows: Rows, type_at: int, next_at: int, layers: int) -> Iterator[IpPackets]:
        for value, same in self.whole(rows, max(type_at + 2, next_at)).by_value(U16, type_at):
            if value in VLAN_TAGS and layers < _MOST_LAYERS:
                yield from self._of_type(same, next_at + 2, next_at + 4, layers + 1)
            elif value in (IPV4, _IPV6):
                yield from self._ip(same, next_at, 4 if value == IPV4 else 6)
            elif value not in _OTHER_TYPES and value >= 0x0600:
                self.unread[f"of EtherType {value:#06x}"] += same.size

    def _ip(self, rows: Rows, at: int, version: int) -> Iterator[IpPackets]:
        if version != self._version:
            return
        rows = self.whole(rows, at + (LEAST_IP_BYTES if version == 4 else _IPV6_BYTES))
        if not rows.size:
            return
        words = rows.words(at + 12, 2) if version == 4 else rows.words(at + 8, 8)
        pairs = np.array([(words == pair).all(axis=1) for pair in self._pairs])
        ours: NDArray[np.bool_] = pairs[0] | pairs[1]
        if not ours.any():
            return
        yield from (self._ipv4 if version == 4 else self._ipv6)(rows.where(ours), at, pairs[:, ours])

    def _ipv4(self, rows: Rows, at: int, pairs: NDArray[np.bool_]) -> Iterator[IpPackets]:
        lengths, fragment = (rows.field(U16, at + place).astype(np.int64) for place in (2, 6))
        numbers = rows.field(U16, at + 4).astype(np.int64)
        first, protocols = rows.field(U8, at), rows.field(U8, at + 9)
        on_link = _after(rows, at)
        kinds = first.astype(np.int64) << 8 | protocols
        for kind in np.unique(kinds).tolist():
            these = kinds == kind
            header = (kind >> 8 & 0x0F) * 4
            total = np.where(lengths[these] == 0, on_link[these], lengths[these])  # 0: BIG TCP
            yield IpPackets(
                rows.where(these),
                4,
                kind & 0xFF,
                at + header,
                np.maximum(total - header, 0),
                pairs[:, these],
                (fragment[these] & 0x1FFF) * 8,
                (fragment[these] & 0x2000) != 0,
                numbers[these],
            )

    def _ipv6(self, rows: Rows, at: int, pairs: NDArray[np.bool_]) -> Iterator[IpPackets]:
        lengths = rows.field(U16, at + 4).astype(np.int64)
        total = np.where(lengths == 0, _after(rows, at) - _IPV6_BYTES, lengths)  # 0: BIG TCP or a jumbogram
        protocols = rows.field(U8, at + 6)
        for protocol in np.unique(protocols).tolist():
            these = protocols == protocol
            none = np.zeros(int(np.count_nonzero(these)), np.int64)
            packets = IpPackets(
                rows.where(these), 6, protocol, at + _IPV6_BYTES, total[these], pairs[:, these], none, none > 0, none
            )
            yield from self._extended(packets, 0)

    def _extended(self, packets: IpPackets, layers: int) -> Iterator[IpPackets]:
        """Yield packets behind their IPv6 extension headers (RFC 8200, section 4)."""
        if packets.protocol not in (_HOP_BY_HOP, _ROUTING, _FRAGMENT, _DESTINATION):
            yield packets
            return
        at = packets.payload_at
        whole = self.whole(packets.rows, at + _FRAGMENT_BYTES)
        packets = packets.among(whole)
        if not whole.size or layers >= _MOST_LAYERS:
            self.unread["behind many IPv6 extension headers"] += whole.size
            return
        rows = packets.rows
        kinds = rows.field(U16, at).astype(np.int64)
        if packets.protocol == _FRAGMENT:
            place = rows.field(U16, at + 2).astype(np.int64)
            packets = packets._replace(
                fragment_offset=place & 0xFFF8,
                has_more=(place & 1) != 0,
                fragment_id=rows.field(U32, at + 4).astype(np.int64),
            )
            kinds &= 0xFF00
        for kind in np.unique(kinds).tolist():
            size = ((kind & 0xFF) + 1) * 8
            part = packets.where(kinds == kind)
            yield from self._extended(
                part._replace(protocol=kind >> 8, payload_at=at + size, payload_bytes=part.payload_bytes - size),
                layers + 1,
            )


def _after(rows: Rows, at: int) -> NDArray[np.int64]:
    """Return how many bytes each frame has on the link from byte `at` on, without FCS."""
    return rows.of(rows.batch.original).astype(np.int64) - at - rows.batch.fcs_bytes
