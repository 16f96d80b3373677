"""Classifies the frames of a batch: pktgen frames by their addresses, flush and control frames, all others.

A pktgen frame has an Ethernet header (with up to two VLAN tags) or a Linux cooked header, IPv4 with any options, not a
later fragment, UDP, and then pktgen's header. With `deep` decoding, it may also be IPv6, in a tunnel, or of another
link type.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.clock_offset import NO_FLUSH_FRAMES, FlushFrames
from netbench.capture.layers import IPV4, LEAST_IP_BYTES, PKTGEN_BYTES, UDP_BYTES, DecodedFrames, Path, Walk
from netbench.capture.pcap import FrameBatch, is_one_number
from netbench.capture.rows import U8, U16, U32, U64, Rows
from netbench.model.units import FCS_BYTES

# Link-local group addresses, which no bridge forwards (IEEE 802.1Q, table 8-1): these five bytes and one up to 0x0f.
# Bridges, switches and other devices on a link use them to communicate. The last one is that of flush frames.
_LINK_LOCAL = 0x0180C200
_LAST_OF_FLUSH = 0x000F
_LLDP = 0x88CC  # EtherType (IEEE 802.1AB); mostly, but not always, to one of these addresses
# After the Ethernet header of a flush frame with times: this magic, a 32-bit number, and two 64-bit times.
_FLUSH_MAGIC = int.from_bytes(b"nb-flush")
_FLUSH_STAMP_BYTES = 28

_PLAIN = IPV4 << 16 | 0x45 << 8  # and an IP header without options
# Address families of IPv6 in BSD loopback headers: those of NetBSD, FreeBSD, macOS and Linux.
_AF_INET, _AF_INET6 = 2, (10, 24, 28, 30)


class LinkType(NamedTuple):
    """The header length of one link type, and the function that follows the headers after it.

    Frames of a `deep` type are decoded only where decoding is deep.
    """

    name: str
    header_bytes: int
    follow: Callable[[Walk, Rows], None]
    deep: bool = False


def _loopback(walk: Walk, rows: Rows) -> None:
    """Follow frames after an address family in the byte order of the capturing machine."""
    for family, same in rows.at_least(4).by_value(U32, 0):
        number = family if family < 1 << 16 else int.from_bytes(family.to_bytes(4, "little"))
        if number == _AF_INET or number in _AF_INET6:
            walk.ip(same, 4, ())
        else:
            walk.cannot_decode(f"address family {number}", same)


def _ppp(walk: Walk, rows: Rows) -> None:
    """Follow PPP frames with or without the address and control bytes of HDLC."""
    whole = rows.at_least(4)
    if whole.size:
        framed, bare = whole.split(whole.field(U16, 0) == 0xFF03)
        walk.ppp(framed, 2, ())
        walk.ppp(bare, 0, ())


# By number of the link type (draft-ietf-opsawg-pcaplinktype).
ETHERNET, COOKED, COOKED_2 = 1, 113, 276
LINKS = {
    ETHERNET: LinkType("Ethernet", 14, lambda walk, rows: walk.ethernet(rows, 0, ())),
    COOKED: LinkType("Linux cooked v1", 16, lambda walk, rows: walk.ether_type(rows, 14, 16, ())),
    COOKED_2: LinkType("Linux cooked v2", 20, lambda walk, rows: walk.ether_type(rows, 0, 20, ())),
    0: LinkType("BSD loopback", 4, _loopback, deep=True),
    9: LinkType("PPP", 4, _ppp, deep=True),
    12: LinkType("raw IP", 0, lambda walk, rows: walk.ip(rows, 0, ()), deep=True),
    14: LinkType("raw IP", 0, lambda walk, rows: walk.ip(rows, 0, ()), deep=True),
    50: LinkType("PPP", 4, _ppp, deep=True),
    101: LinkType("raw IP", 0, lambda walk, rows: walk.ip(rows, 0, ()), deep=True),
    104: LinkType("Cisco HDLC", 4, lambda walk, rows: walk.ether_type(rows, 2, 4, ()), deep=True),
    108: LinkType("OpenBSD loopback", 4, _loopback, deep=True),
    228: LinkType("raw IPv4", 0, lambda walk, rows: walk.ip(rows, 0, ()), deep=True),
    229: LinkType("raw IPv6", 0, lambda walk, rows: walk.ip(rows, 0, ()), deep=True),
}
_OTHER_LINKS = {105: "IEEE 802.11", 127: "IEEE 802.11 radiotap", 192: "PPI", 239: "NFLOG", 249: "USBPcap"}
_ETHERNET_HEADER_BYTES = 14
_COOKED_TYPE_AT, _COOKED_2_INTERFACE_AT, _COOKED_2_TYPE_AT = 0, 4, 10
_OUTGOING = 4  # a cooked header's packet type


class PairFrames(NamedTuple):
    """The pktgen frames of one pair of addresses in a batch, in the order of the file, of IP version 4 or 6.

    Arrays are int64 with one element per frame: `sequence`, `sizes` (bytes with FCS), `sent_us` (microseconds since
    1970 by the source's clock, or INVALID_STAMP) and `times_ns` (of capture).
    """

    ip_version: int
    src_ip: int
    dst_ip: int
    sequence: NDArray[np.int64]
    sizes: NDArray[np.int64]
    sent_us: NDArray[np.int64]
    times_ns: NDArray[np.int64]

    def where(self, condition: NDArray[np.bool_]) -> "PairFrames":
        """Return the frames for which `condition`, bool of shape (n,), is true."""
        if condition.all():
            return self
        columns: Any = (column[condition] for column in self[3:])
        return PairFrames(self.ip_version, self.src_ip, self.dst_ip, *columns)


class Decoded(NamedTuple):
    """The contents of a batch: the sizes with FCS of all its frames, int64, and their kinds.

    `others`, `undecoded` and `encapsulated` are as in Walk.
    """

    sizes: NDArray[np.int64]
    flush_frames: int
    stamped_flush: FlushFrames
    control_frames: int
    too_short_frames: int
    pairs: list[PairFrames]
    others: Counter[str]
    undecoded: Counter[str]
    encapsulated: Counter[Path]


def link_name(number: int) -> str:
    """Return the name of a link type."""
    return LINKS[number].name if number in LINKS else _OTHER_LINKS.get(number, f"link type {number}")


def is_decoded(link_type: int, *, deep: bool) -> bool:
    """Return whether frames of a link type are decoded."""
    return link_type in LINKS and (deep or not LINKS[link_type].deep)


def by_cooked_interface(batch: FrameBatch) -> Iterator[tuple[str, FrameBatch]]:
    """Yield the batch split by interface and direction in cooked headers, each with a name; empty for other link types.

    A capture of all interfaces has a forwarded frame twice: incoming, and outgoing. Frames that are cut within the
    cooked header are added to the first direction.
    """
    rows = Rows(batch)
    header_bytes = LINKS[batch.link_type].header_bytes if batch.link_type in (COOKED, COOKED_2) else 0
    whole = rows.at_least(header_bytes)
    if not header_bytes or not whole.size:
        yield "", batch
        return
    is_cut = np.ones(rows.size, np.bool_)
    is_cut[slice(None) if whole.chosen is None else whole.chosen] = False
    for name, these in _directions(rows, batch.link_type, ~is_cut):
        yield name, batch.only(these | is_cut)
        is_cut = np.zeros(rows.size, np.bool_)


def _directions(rows: Rows, link_type: int, among: NDArray[np.bool_]) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield each direction, with the interface where the header has it, and which frames of `among` belong to it."""
    is_version_2 = link_type == COOKED_2
    is_outgoing = (rows.field(U8, _COOKED_2_TYPE_AT) if is_version_2 else rows.field(U16, _COOKED_TYPE_AT)) == _OUTGOING
    numbers = rows.field(U32, _COOKED_2_INTERFACE_AT) if is_version_2 else np.zeros(rows.size, np.uint32)
    for number in np.unique(numbers[among]).tolist():
        of_interface = among & (numbers == number)
        for direction, these in (("incoming", ~is_outgoing & of_interface), ("outgoing", is_outgoing & of_interface)):
            if these.any():
                yield f"interface {number}, {direction}" if is_version_2 else direction, these


def decode(batch: FrameBatch, *, deep: bool = False) -> Decoded:
    """Classify the frames of a batch; `is_decoded` must be true for its link type.

    A frame is too short when its captured bytes end before the end of a pktgen header: 58 bytes for an untagged frame
    without IP options.
    """
    link = LINKS[batch.link_type]
    sizes = _sizes(batch, _ETHERNET_HEADER_BYTES - link.header_bytes + FCS_BYTES - batch.fcs_bytes)
    walk, everything = Walk(deep=deep), Rows(batch)
    least_bytes = link.header_bytes + LEAST_IP_BYTES + UDP_BYTES + PKTGEN_BYTES
    is_ethernet = batch.link_type == ETHERNET
    if is_ethernet and _is_plain(everything, least_bytes):
        flush, control, too_short = everything.none(), 0, 0
        rest = walk.take_pktgen(everything, link.header_bytes, link.header_bytes + LEAST_IP_BYTES)
        if deep and rest.size:
            link.follow(walk, rest)
            too_short = walk.too_short
    else:
        rest, flush, control = _set_aside(everything) if is_ethernet else (everything, everything.none(), 0)
        long_enough = rest.at_least(least_bytes)
        link.follow(walk, long_enough)
        too_short = walk.too_short + rest.size - long_enough.size
        if deep and long_enough.size < rest.size:
            link.follow(walk, rest.without(long_enough))
    return Decoded(
        sizes=sizes,
        flush_frames=flush.size,
        stamped_flush=_stamped(flush),
        control_frames=control,
        too_short_frames=too_short,
        pairs=[
            pair for version in (4, 6) for pair in _by_pair([f for f in walk.found if f.ip_version == version], sizes)
        ],
        others=walk.others,
        undecoded=walk.undecoded,
        encapsulated=walk.encapsulated,
    )


def not_decoded(batch: FrameBatch) -> Decoded:
    """Return the result for a link type that is not decoded: sizes as in the file, and all frames undecoded."""
    name = {f"frames of {link_name(batch.link_type)}": len(batch.frames)}
    return Decoded(_sizes(batch, 0), 0, NO_FLUSH_FRAMES, 0, 0, [], Counter(), Counter(name), Counter())


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


def _set_aside(rows: Rows) -> tuple[Rows, Rows, int]:
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


def _stamped(flush: Rows) -> FlushFrames:
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


def _by_pair(found: list[DecodedFrames], sizes: NDArray[np.int64]) -> Iterator[PairFrames]:
    """Yield the frames of all layouts by their addresses, each pair's in the order of the file."""
    if not found:
        return
    left = found[0] if len(found) == 1 else _in_order(found)
    while left.rows.size:
        pair, first = left.addresses[0].tobytes(), left.addresses[0]
        is_pair = left.addresses[:, 0] == first[0]
        for column in range(1, len(first)):
            is_pair &= left.addresses[:, column] == first[column]
        these = left.where(is_pair)
        yield PairFrames(
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


def _in_order(found: list[DecodedFrames]) -> DecodedFrames:
    """Return frames of several layouts as one object, in the order of the file."""
    batch = found[0].rows.batch
    every = np.arange(len(batch.frames))
    indices = np.concatenate([part.rows.of(every) for part in found])
    order = np.argsort(indices)
    columns: Any = (np.concatenate(parts)[order] for parts in zip(*(part[1:] for part in found), strict=True))
    return DecodedFrames(Rows(batch, indices[order]), *columns)
