"""Finds the frames that carry pktgen's header, a batch at a time.

Such a frame is Ethernet (with up to two VLAN tags) or a Linux cooked header, IPv4 with any options, not
a later fragment, UDP, and then 16 bytes: magic 0xbe9be955, sequence, seconds, microseconds, each 32 bits
in network byte order (`struct pktgen_hdr` in the kernel's net/core/pktgen.c).
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.clock_offset import NO_FLUSH_FRAMES, FlushFrames
from netbench.capture.pcap import FrameBatch, field, is_one_number
from netbench.model.units import FCS_BYTES

PKTGEN_MAGIC = 0xBE9BE955

# Link-local group addresses, which no bridge forwards (IEEE 802.1Q, table 8-1): these five bytes and one up to 0x0f.
# Bridges, switches and whatever else is on a link talk to each other by them. The last one is that of flush frames.
_LINK_LOCAL = 0x0180C200
_LAST_OF_FLUSH = 0x000F
_LLDP = 0x88CC  # EtherType (IEEE 802.1AB); mostly, but not always, to one of these addresses
# What is behind the Ethernet header of a flush frame that bears times: this, a number of 32 bits, and two times of 64.
_FLUSH_MAGIC = int.from_bytes(b"nb-flush")
_FLUSH_STAMP_BYTES = 28

_U8, _U16, _U32, _U64 = (np.dtype(name) for name in ("u1", ">u2", ">u4", ">u8"))
_IPV4 = 0x0800
_PLAIN = _IPV4 << 16 | 0x45 << 8  # and an IP header without options
_VLAN_TAGS = (0x8100, 0x88A8, 0x9100)  # 802.1Q, 802.1ad, and what preceded it
_MOST_TAGS = 2
_TAG_BYTES = 4
_UDP = 17
_UDP_BYTES = 8
_PKTGEN_BYTES = 16
_LEAST_IP_BYTES = 20
_NONE = np.empty(0, np.intp)


class Link(NamedTuple):
    """How frames of one link type begin: the header's length, and where it has the EtherType."""

    name: str
    header_bytes: int
    type_at: int
    has_addresses: bool


# By number of the link type (draft-ietf-opsawg-pcaplinktype).
LINKS = {
    1: Link("Ethernet", 14, 12, has_addresses=True),
    113: Link("Linux cooked v1", 16, 14, has_addresses=False),
    276: Link("Linux cooked v2", 20, 0, has_addresses=False),
}
_ETHERNET_HEADER_BYTES = 14


class PairFrames(NamedTuple):
    """The pktgen frames of one pair of addresses in a batch, in the order of the file.

    Arrays are int64 of one element a frame: `sequence`, `sizes` (bytes with FCS), `sent_us` (microseconds since 1970
    by the source's clock) and `times_ns` (of capture).
    """

    src_ip: int
    dst_ip: int
    sequence: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sent_us: NDArray[np.int64]
    times_ns: NDArray[np.int64]

    def where(self, condition: NDArray[np.bool_]) -> "PairFrames":
        """Those for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        columns: Any = (column[condition] for column in self[2:])
        return PairFrames(self.src_ip, self.dst_ip, *columns)


class Decoded(NamedTuple):
    """What is in a batch: the sizes with FCS of all its frames, int64, and of which kinds they are."""

    sizes: NDArray[np.int64]
    flush_frames: int
    stamped_flush: FlushFrames
    control_frames: int
    too_short_frames: int
    pairs: list[PairFrames]


class _Rows(NamedTuple):
    """Some frames of a batch; `chosen` are their indices, None for all of them."""

    batch: FrameBatch
    chosen: NDArray[np.intp] | None = None

    @property
    def size(self) -> int:
        return len(self.batch.frames) if self.chosen is None else len(self.chosen)

    def of(self, values: NDArray[Any]) -> NDArray[Any]:
        """These frames' elements of an array that has one for each frame of the batch."""
        return values if self.chosen is None else values[self.chosen]

    def field(self, dtype: np.dtype[Any], at: int) -> NDArray[Any]:
        """The field at byte `at`, in native byte order; the frames must reach that far."""
        return self.of(field(self.batch.frames, dtype, at)).astype(dtype.newbyteorder("="))

    def as_it_lies(self, dtype: np.dtype[Any], at: int) -> NDArray[Any]:
        """The same as it lies in the file, which is enough to compare it with others."""
        return self.of(field(self.batch.frames, dtype.newbyteorder("="), at))

    def match(self, at: int, wanted: int, dtype: np.dtype[Any], mask: int = -1) -> NDArray[np.bool_]:
        """Whether the field at byte `at`, without the bits that `mask` does not have, is `wanted`.

        Compared as it lies in the file: only the two numbers are brought into its byte order.
        """
        values = self.as_it_lies(dtype, at)
        if mask != -1:
            values = values & _as_it_lies(mask, dtype)
        is_wanted: NDArray[np.bool_] = values == _as_it_lies(wanted, dtype)
        return is_wanted

    def words(self, at: int, count: int) -> NDArray[np.uint32]:
        """So many 32-bit fields in a row from byte `at` on, in network byte order: shape (n, count)."""
        block = self.of(field(self.batch.frames, np.dtype(f"V{4 * count}"), at))
        return np.ascontiguousarray(block).view(_U32).reshape(-1, count)

    def where(self, condition: NDArray[np.bool_]) -> "_Rows":
        if condition.all():
            return self
        indices = np.flatnonzero(condition)
        return _Rows(self.batch, indices if self.chosen is None else self.chosen[indices])

    def at_least(self, length: int) -> "_Rows":
        """Those of which at least `length` bytes were captured."""
        captured = self.batch.captured
        if isinstance(captured, int):
            return self if captured >= length else _Rows(self.batch, _NONE)
        return self.where(self.of(captured) >= length)


class _Found(NamedTuple):
    """Pktgen frames and their fields; `addresses` are source and destination in one uint64, as they lie in the file."""

    rows: _Rows
    addresses: NDArray[np.uint64]
    sequence: NDArray[np.int64]
    sent_us: NDArray[np.int64]

    def where(self, condition: NDArray[np.bool_]) -> "_Found":
        if condition.all():
            return self
        columns: Any = (column[condition] for column in self[1:])
        return _Found(self.rows.where(condition), *columns)


def _as_it_lies(number: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """What a number in this byte order is to a machine that reads it in its own."""
    return np.array(number, dtype).view(dtype.newbyteorder("="))


def decode(batch: FrameBatch) -> Decoded:
    """Sort the frames of a batch, whose link type is one of LINKS, into kinds.

    A frame is too short when its captured bytes end before a pktgen header could: 58 bytes for an
    untagged frame without IP options.
    """
    link = LINKS[batch.link_type]
    sizes = _sizes(batch, _ETHERNET_HEADER_BYTES - link.header_bytes + FCS_BYTES - batch.fcs_bytes)
    everything = _Rows(batch)
    least_bytes = link.header_bytes + _LEAST_IP_BYTES + _UDP_BYTES + _PKTGEN_BYTES
    if link.has_addresses and _is_plain(everything, least_bytes):
        rest = long_enough = everything
        flush, control = _Rows(batch, _NONE), 0
        layouts: Iterable[tuple[_Rows, int, int]] = [(everything, link.header_bytes, _LEAST_IP_BYTES)]
    else:
        rest, flush, control = _set_aside(everything) if link.has_addresses else (everything, _Rows(batch, _NONE), 0)
        long_enough = rest.at_least(least_bytes)
        layouts = _layouts(long_enough, link)
    too_short = rest.size - long_enough.size
    found: list[_Found] = []
    for rows, ip_at, ip_bytes in layouts:
        pktgen_at = ip_at + ip_bytes + _UDP_BYTES
        whole = rows.at_least(pktgen_at + _PKTGEN_BYTES)
        too_short += rows.size - whole.size
        if whole.size:
            found.append(_find(whole, ip_at, pktgen_at))
    return Decoded(sizes, flush.size, _stamped(flush), control, too_short, list(_by_pair(found, sizes)))


def _sizes(batch: FrameBatch, more: int) -> NDArray[np.int64]:
    """What frames had on the link, and so many bytes more."""
    if is_one_number(batch.original):
        return np.broadcast_to(np.int64(int(batch.original[0]) + more), len(batch.original))
    sizes: NDArray[np.int64] = batch.original.astype(np.int64)
    sizes += more
    return sizes


def _is_plain(rows: _Rows, least_bytes: int) -> bool:
    """Whether all frames are of the most frequent layout, which spares looking for others: nothing to set aside among
    them, no VLAN tags, no IP options.
    """
    if rows.at_least(least_bytes) is not rows:
        return False
    return bool(rows.match(12, _PLAIN, _U32, 0xFFFFFF00).all()) and not rows.match(0, _LINK_LOCAL, _U32).any()


def _set_aside(rows: _Rows) -> tuple[_Rows, _Rows, int]:
    """All but flush frames, which the capturing side itself sends to empty the kernel's ring, and control frames.

    With them the flush frames, and how many control frames there are: link-local ones and LLDP.
    """
    none = _Rows(rows.batch, _NONE)
    addressed = rows.at_least(_ETHERNET_HEADER_BYTES)
    if not addressed.size:
        return rows, none, 0
    is_aside = addressed.field(_U16, 12) == _LLDP
    is_group = addressed.field(_U32, 0) == _LINK_LOCAL
    flush = none
    if is_group.any():
        last = addressed.field(_U16, 4)
        is_aside |= is_group & (last <= _LAST_OF_FLUSH)
        flush = addressed.where(is_group & (last == _LAST_OF_FLUSH))
    aside = int(np.count_nonzero(is_aside))
    if not aside:
        return rows, none, 0
    kept = np.ones(rows.size, np.bool_)
    kept[slice(None) if addressed.chosen is None else addressed.chosen] = ~is_aside
    return rows.where(kept), flush, aside - flush.size


def _stamped(flush: _Rows) -> FlushFrames:
    """Those flush frames that bear times, as netbench.sinks.flush writes them."""
    at = _ETHERNET_HEADER_BYTES
    whole = flush.at_least(at + _FLUSH_STAMP_BYTES)
    if whole.size:
        whole = whole.where(whole.field(_U64, at) == _FLUSH_MAGIC)
    if not whole.size:
        return NO_FLUSH_FRAMES
    number, before, previous = (
        whole.field(dtype, at + place).astype(np.int64) for dtype, place in ((_U32, 8), (_U64, 12), (_U64, 20))
    )
    return FlushFrames(number, before, previous, whole.of(whole.batch.times_ns))


def _layouts(rows: _Rows, link: Link) -> Iterator[tuple[_Rows, int, int]]:
    """IPv4 frames by where their IP header is and how long: (frames, offset, bytes)."""
    ip_at, type_at = link.header_bytes, link.type_at
    for _ in range(_MOST_TAGS + 1):
        if not rows.size:
            return
        ether_type = rows.field(_U16, type_at)
        ip_frames = rows.where(ether_type == _IPV4)
        yield from _by_header_length(ip_frames, ip_at)
        if ip_frames.size == rows.size:
            return
        rows = rows.where(np.isin(ether_type, _VLAN_TAGS))
        type_at, ip_at = ip_at + _TAG_BYTES - 2, ip_at + _TAG_BYTES


def _by_header_length(rows: _Rows, ip_at: int) -> Iterator[tuple[_Rows, int, int]]:
    if not rows.size:
        return
    first = rows.field(_U8, ip_at)
    for value in range(0x45, 0x50):  # version 4, and the header's length in 32-bit words
        found = rows.where(first == value)
        if found.size:
            yield found, ip_at, (value & 0x0F) * 4
        if found.size == rows.size:
            return


def _find(rows: _Rows, ip_at: int, pktgen_at: int) -> _Found:
    """The pktgen frames among IPv4 frames of one layout."""
    header = rows.words(pktgen_at, 4)
    is_pktgen = rows.match(ip_at + 6, _UDP, _U32, 0x1FFF00FF)  # no later fragment
    is_pktgen &= header[:, 0] == PKTGEN_MAGIC
    if not is_pktgen.all():
        rows, header = rows.where(is_pktgen), header[is_pktgen]
    sent_us = header[:, 2].astype(np.int64)
    sent_us *= 1_000_000
    sent_us += header[:, 3].astype(np.int64)
    return _Found(rows, rows.as_it_lies(_U64, ip_at + 12), header[:, 1].astype(np.int64), sent_us)


def _by_pair(found: list[_Found], sizes: NDArray[np.int64]) -> Iterator[PairFrames]:
    """Frames of all layouts by their addresses, each pair's in the order of the file."""
    if not found:
        return
    left = found[0] if len(found) == 1 else _in_order(found)
    while left.rows.size:
        pair = int(left.addresses[:1].astype(np.uint64).view(_U64)[0])
        is_pair = left.addresses == left.addresses[0]
        these = left.where(is_pair)
        yield PairFrames(
            src_ip=pair >> 32,
            dst_ip=pair & 0xFFFFFFFF,
            sequence=these.sequence,
            sizes=these.rows.of(sizes),
            sent_us=these.sent_us,
            times_ns=these.rows.of(these.rows.batch.times_ns),
        )
        if these is left:
            return
        left = left.where(~is_pair)


def _in_order(found: list[_Found]) -> _Found:
    """Frames of several layouts as one, in the order of the file."""
    batch = found[0].rows.batch
    every = np.arange(len(batch.frames))
    indices = np.concatenate([part.rows.of(every) for part in found])
    order = np.argsort(indices)
    columns: Any = (np.concatenate(parts)[order] for parts in zip(*(part[1:] for part in found), strict=True))
    return _Found(_Rows(batch, indices[order]), *columns)
