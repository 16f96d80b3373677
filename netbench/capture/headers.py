"""Classifies the frames of a batch: pktgen frames by their addresses, flush and control frames, all others.

numpy takes the plain pktgen frames: an Ethernet header with up to two VLAN tags, or a Linux cooked header, IPv4 with
any options, not a later fragment, UDP, and then pktgen's header. With `deep` decoding, dpkt decodes all other frames.
"""

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.delay_variation import NO_FLUSH_FRAMES, FlushFrames
from netbench.capture.frames import (
    IPV4,
    LEAST_IP_BYTES,
    LINKS,
    PKTGEN_BYTES,
    U8,
    U16,
    U32,
    U64,
    UDP_BYTES,
    VLAN_TAGS,
    BatchTally,
    FrameBatch,
    HeaderPath,
    LinkHeader,
    LinkType,
    PktgenRows,
    Rows,
    is_one_number,
    link_name,
)
from netbench.model.frame_size import FCS_BYTES
from netbench.model.traffic import PKTGEN_MAGIC

# Link-local group addresses, which no bridge forwards (IEEE 802.1Q, table 8-1): these five bytes and one up to 0x0f.
# Bridges, switches and other devices on a link use them to communicate. The last one is that of flush frames.
_LINK_LOCAL = 0x0180C200
_LAST_OF_FLUSH = 0x000F
_LLDP = 0x88CC  # EtherType (IEEE 802.1AB); mostly, but not always, to one of these addresses
# After the Ethernet header of a flush frame with times: this magic, a 32-bit number, and two 64-bit times.
_FLUSH_MAGIC = int.from_bytes(b"nb-flush")
_FLUSH_STAMP_BYTES = 28

_UDP = 17
_PLAIN = IPV4 << 16 | 0x45 << 8  # and an IP header without options
_MOST_TAGS = 2  # VLAN tags of netbench's own frames
# Where the EtherType and the next header of plain frames are.
_TYPE_AT = {LinkHeader.ETHERNET: (12, 14), LinkHeader.COOKED: (14, 16), LinkHeader.COOKED_2: (0, 20)}
_ETHERNET_HEADER_BYTES = 14
_COOKED_TYPE_AT, _COOKED_2_INTERFACE_AT, _COOKED_2_TYPE_AT = 0, 4, 10
_OUTGOING = 4  # a cooked header's packet type


class StreamsBy(Enum):
    """The addresses that all frames of a stream have in common: (source, destination)."""

    PAIR = (True, True)
    DESTINATION = (False, True)
    SOURCE = (True, False)
    NOTHING = (False, False)

    def texts(self, source: str, destination: str) -> tuple[str, str]:
        """Return the addresses of a stream as text, `*` in place of those that may differ within it."""
        has_source, has_destination = self.value
        return source if has_source else "*", destination if has_destination else "*"

    def only_common(self, frames: PktgenRows) -> PktgenRows:
        """Return the frames with 0 in place of addresses that may differ within a stream."""
        if self is StreamsBy.PAIR:
            return frames
        halves = np.array(frames.addresses).view(np.uint8).reshape(len(frames.addresses), 2, -1)
        for place, is_common in enumerate(self.value):
            if not is_common:
                halves[:, place] = 0
        return frames._replace(addresses=halves.reshape(len(halves), -1).view(np.uint64))


class FrameOrigin(NamedTuple):
    """Frames with described headers in their batch; `shifts` is how many bytes behind its place each payload begins.

    `shifts` is int64 of shape (n,), None if all are 0.
    """

    rows: Rows
    shifts: NDArray[np.int64] | None

    def where(self, condition: NDArray[np.bool_]) -> "FrameOrigin":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        return FrameOrigin(self.rows.where(condition), None if self.shifts is None else self.shifts[condition])


class StreamFrames(NamedTuple):
    """The pktgen frames of one pair of addresses in a batch, in the order of the file, of IP version 4 or 6.

    Arrays are int64 with one element per frame: `sequence`, `sizes` (bytes with FCS), `sent_us` (microseconds since
    1970 by the source's clock, or INVALID_STAMP) and `times_ns` (of capture). `origin` is that of frames with described
    headers, whose addresses are not considered.
    """

    ip_version: int
    src_ip: int
    dst_ip: int
    sequence: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sent_us: NDArray[np.int64]
    times_ns: NDArray[np.int64]
    origin: FrameOrigin | None = None

    def where(self, condition: NDArray[np.bool_]) -> "StreamFrames":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        columns = {name: getattr(self, name)[condition] for name in ("sequence", "sizes", "sent_us", "times_ns")}
        return self._replace(**columns, origin=self.origin and self.origin.where(condition))


class DecodedBatch(NamedTuple):
    """The contents of a batch: the sizes with FCS of all its frames, int64, and their kinds.

    `others`, `undecoded` and `encapsulated` are as in BatchTally.
    """

    sizes: NDArray[np.int64]
    flush_frames: int
    stamped_flush: FlushFrames
    control_frames: int
    too_short_frames: int
    streams: list[StreamFrames]
    others: Counter[str]
    undecoded: Counter[str]
    encapsulated: Counter[HeaderPath]


def is_decoded(link_type: int, *, deep: bool) -> bool:
    """Return whether frames of a link type are decoded."""
    return link_type in LINKS and (deep or LINKS[link_type].header in _TYPE_AT)


def by_cooked_interface(batch: FrameBatch) -> Iterator[tuple[str, FrameBatch]]:
    """Yield the batch split by interface and direction in cooked headers, each with a name; empty for other link types.

    A capture of all interfaces has a forwarded frame twice: incoming, and outgoing. Frames that are cut within the
    cooked header are added to the first direction.
    """
    rows = Rows(batch)
    link = LINKS.get(batch.link_type)
    is_cooked = link is not None and link.header in (LinkHeader.COOKED, LinkHeader.COOKED_2)
    whole = rows.at_least(link.header_bytes) if link and is_cooked else rows.none()
    if not link or not whole.size:
        yield "", batch
        return
    is_cut = np.ones(rows.size, np.bool_)
    is_cut[slice(None) if whole.chosen is None else whole.chosen] = False
    for name, these in _directions(rows, link.header, ~is_cut):
        yield name, batch.only(these | is_cut)
        is_cut = np.zeros(rows.size, np.bool_)


def _directions(rows: Rows, header: LinkHeader, among: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each direction, with the interface where the header has it, and which frames of `among` belong to it."""
    is_version_2 = header is LinkHeader.COOKED_2
    is_outgoing = (rows.field(U8, _COOKED_2_TYPE_AT) if is_version_2 else rows.field(U16, _COOKED_TYPE_AT)) == _OUTGOING
    numbers = rows.field(U32, _COOKED_2_INTERFACE_AT) if is_version_2 else np.zeros(rows.size, np.uint32)
    for number in np.unique(numbers[among]).tolist():
        of_interface = among & (numbers == number)
        for direction, these in (("incoming", ~is_outgoing & of_interface), ("outgoing", is_outgoing & of_interface)):
            if these.any():
                yield f"interface {number}, {direction}" if is_version_2 else direction, these


def decode(batch: FrameBatch, *, deep: bool = False, by: StreamsBy = StreamsBy.PAIR) -> DecodedBatch:
    """Classify the frames of a batch; `is_decoded` must be true for its link type.

    The frames of a stream have the addresses `by` in common; the others are 0.

    A frame is too short when its captured bytes end before the end of a pktgen header: 58 bytes for an untagged frame
    without IP options.
    """
    link = LINKS[batch.link_type]
    sizes = frame_sizes(batch, link)
    tally, everything = BatchTally(), Rows(batch)
    least_bytes = link.header_bytes + LEAST_IP_BYTES + UDP_BYTES + PKTGEN_BYTES
    is_ethernet = link.header is LinkHeader.ETHERNET
    if is_ethernet and _is_plain(everything, least_bytes):
        flush, control, long_enough, too_short = everything.none(), 0, everything, 0
        short = everything.none()
        rest = _take_pktgen(tally, everything, link.header_bytes, link.header_bytes + LEAST_IP_BYTES)
    else:
        remaining, flush, control = set_aside(everything) if is_ethernet else (everything, everything.none(), 0)
        long_enough = remaining.at_least(least_bytes)
        short = remaining.without(long_enough) if long_enough.size < remaining.size else everything.none()
        rest, too_short = long_enough, 0
        if link.header in _TYPE_AT:
            parts = list(_take_plain(tally, long_enough, *_TYPE_AT[link.header]))
            rest = long_enough.union([part for part, _ in parts])
            too_short = sum(part.size for part, is_cut in parts if is_cut)
    if deep and rest.size + short.size:
        from netbench.capture.dpkt_decoder import decode_by_layout  # noqa: PLC0415 - other hosts may lack dpkt

        decode_by_layout(tally, rest, link.header)
        too_short = tally.too_short
        decode_by_layout(tally, short, link.header)
    return DecodedBatch(
        sizes=sizes,
        flush_frames=flush.size,
        stamped_flush=stamped_flush_frames(flush),
        control_frames=control,
        too_short_frames=too_short + short.size,
        streams=[
            stream
            for version in (4, 6)
            for stream in _by_addresses(
                [by.only_common(part) for part in tally.pktgen if part.ip_version == version], sizes
            )
        ],
        others=tally.others,
        undecoded=tally.undecoded,
        encapsulated=tally.encapsulated,
    )


def not_decoded(batch: FrameBatch) -> DecodedBatch:
    """Return the result for a link type that is not decoded: sizes as in the file, and all frames undecoded."""
    name = {f"frames of {link_name(batch.link_type)}": len(batch.frames)}
    return DecodedBatch(_sizes(batch, 0), 0, NO_FLUSH_FRAMES, 0, 0, [], Counter(), Counter(name), Counter())


def frame_sizes(batch: FrameBatch, link: LinkType) -> NDArray[np.int64]:
    """Return the sizes of frames of a link type as Ethernet frames, in bytes with FCS."""
    return _sizes(batch, _ETHERNET_HEADER_BYTES - link.header_bytes + FCS_BYTES - batch.fcs_bytes)


def _sizes(batch: FrameBatch, more: int) -> NDArray[np.int64]:
    """Return the lengths of frames on the link plus `more` bytes."""
    if is_one_number(batch.original):
        return np.broadcast_to(np.int64(int(batch.original[0]) + more), len(batch.original))
    sizes: NDArray[np.int64] = batch.original.astype(np.int64)
    sizes += more
    return sizes


def _is_plain(rows: Rows, least_bytes: int) -> bool:
    """Return whether all frames have the most frequent layout: no flush or control frames, VLAN tags, or IP options.

    Then no other layouts need to be checked.
    """
    if rows.at_least(least_bytes) is not rows:
        return False
    return bool(rows.match(12, _PLAIN, U32, 0xFFFFFF00).all()) and not rows.match(0, _LINK_LOCAL, U32).any()


def _take_plain(
    tally: BatchTally, rows: Rows, type_at: int, next_at: int, path: HeaderPath = ()
) -> Iterator[tuple[Rows, bool]]:
    """Take the plain pktgen frames of frames with an EtherType at byte `type_at`, and the next header at `next_at`.

    Yield the others, and whether they are IPv4 frames that were cut before the end of a pktgen header.
    """
    for value, same in rows.by_value(U16, type_at):
        if value in VLAN_TAGS and len(path) < _MOST_TAGS:
            yield from _take_plain(tally, same, next_at + 2, next_at + 4, (*path, "VLAN"))
        elif value != IPV4:
            yield same, False
        else:
            for first, alike in same.by_value(U8, next_at):
                udp_at = next_at + (first & 0x0F) * 4
                if first >> 4 != 4 or udp_at < next_at + LEAST_IP_BYTES:
                    yield alike, False
                    continue
                whole = alike.at_least(udp_at + UDP_BYTES + PKTGEN_BYTES)
                if whole.size < alike.size:
                    yield alike.without(whole), True
                yield _take_pktgen(tally, whole, next_at, udp_at, path), False


def _take_pktgen(tally: BatchTally, rows: Rows, ip_at: int, udp_at: int, path: HeaderPath = ()) -> Rows:
    """Take the pktgen frames from IPv4 frames of one layout, long enough for its header; return the others."""
    if not rows.size:
        return rows
    header = rows.words(udp_at + UDP_BYTES, 4)
    is_pktgen = rows.match(ip_at + 6, _UDP, U32, 0x1FFF00FF)  # no later fragment
    is_pktgen &= header[:, 0] == PKTGEN_MAGIC
    matching, others = rows.split(is_pktgen)
    if matching.size:
        addresses = matching.as_it_lies(U64, ip_at + 12).reshape(-1, 1)
        tally.add_fields(matching, addresses, header if matching is rows else header[is_pktgen], path)
    return others


def set_aside(rows: Rows) -> tuple[Rows, Rows, int]:
    """Return all frames except flush and control frames, the flush frames, and the number of control frames.

    The capturing side sends flush frames to empty the kernel's ring. Control frames are link-local ones and LLDP.
    """
    none = rows.none()
    addressed = rows.at_least(_ETHERNET_HEADER_BYTES)
    if not addressed.size:
        return rows, none, 0
    is_aside = addressed.field(U16, 12) == _LLDP
    is_group = addressed.field(U32, 0) == _LINK_LOCAL
    flush = none
    if is_group.any():
        last = addressed.field(U16, 4)
        is_aside |= is_group & (last <= _LAST_OF_FLUSH)
        flush = addressed.where(is_group & (last == _LAST_OF_FLUSH))
    aside = int(np.count_nonzero(is_aside))
    if not aside:
        return rows, none, 0
    kept = np.ones(rows.size, np.bool_)
    kept[slice(None) if addressed.chosen is None else addressed.chosen] = ~is_aside
    return rows.where(kept), flush, aside - flush.size


def stamped_flush_frames(flush: Rows) -> FlushFrames:
    """Return the flush frames with times, in the format of netbench.sinks.flush."""
    at = _ETHERNET_HEADER_BYTES
    whole = flush.at_least(at + _FLUSH_STAMP_BYTES)
    if whole.size:
        whole = whole.where(whole.field(U64, at) == _FLUSH_MAGIC)
    if not whole.size:
        return NO_FLUSH_FRAMES
    number, before, previous = (
        whole.field(dtype, at + place).astype(np.int64) for dtype, place in ((U32, 8), (U64, 12), (U64, 20))
    )
    return FlushFrames(number, before, previous, whole.of(whole.batch.times_ns))


def _by_addresses(parts: list[PktgenRows], sizes: NDArray[np.int64]) -> Iterator[StreamFrames]:
    """Yield the frames of all layouts by their addresses, each pair's in the order of the file."""
    if not parts:
        return
    left = parts[0] if len(parts) == 1 else _in_order(parts)
    while left.rows.size:
        pair, first = left.addresses[0].tobytes(), left.addresses[0]
        is_pair = left.addresses[:, 0] == first[0]
        for column in range(1, len(first)):
            is_pair &= left.addresses[:, column] == first[column]
        these = left.where(is_pair)
        yield StreamFrames(
            ip_version=left.ip_version,
            src_ip=int.from_bytes(pair[: len(pair) // 2]),
            dst_ip=int.from_bytes(pair[len(pair) // 2 :]),
            sequence=these.sequence,
            sizes=these.rows.of(sizes),
            sent_us=these.sent_us,
            times_ns=these.rows.of(these.rows.batch.times_ns),
        )
        if these is left:
            return
        left = left.where(~is_pair)


def _in_order(parts: list[PktgenRows]) -> PktgenRows:
    """Return frames of several layouts as one object, in the order of the file."""
    batch = parts[0].rows.batch
    every = np.arange(len(batch.frames))
    indices = np.concatenate([part.rows.of(every) for part in parts])
    order = np.argsort(indices)
    columns: Any = (np.concatenate(values)[order] for values in zip(*(part[1:] for part in parts), strict=True))
    return PktgenRows(Rows(batch, indices[order]), *columns)
