"""pcapng: sections of either byte order, several interfaces, packet blocks of all three kinds.

The format is draft-ietf-opsawg-pcapng. dpkt decodes the blocks. Only enhanced packet blocks without options, with times
in microseconds or nanoseconds, are read by numpy, many at a time: most files consist of them, and dpkt takes 7 to 40
times as long.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Literal, NamedTuple

import numpy as np
from dpkt import pcapng as dpkt_pcapng
from dpkt.dpkt import Packet
from numpy.typing import NDArray

from netbench.capture.frames import NO_LIMIT, NO_TIME, FrameBatch, field
from netbench.capture.pcap import (
    PLAIN_HEADERS_BYTES,
    CaptureReader,
    Ending,
    Interface,
    Oddities,
    ReadWindow,
    are_wrong_lengths,
    corrected_length,
    is_wrong_length,
    leading,
)
from netbench.model.traffic import NS_PER_S

# The placeholder link type of frames whose interface the file does not describe.
NO_LINK_TYPE = -1

_SECTION, _INTERFACE, _PACKET = dpkt_pcapng.PCAPNG_BT_SHB, dpkt_pcapng.PCAPNG_BT_IDB, dpkt_pcapng.PCAPNG_BT_PB
_SIMPLE, _ENHANCED, _STATISTICS = dpkt_pcapng.PCAPNG_BT_SPB, dpkt_pcapng.PCAPNG_BT_EPB, 5
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_PACKETS = (_ENHANCED, _PACKET, _SIMPLE)
_LEAST_BLOCK_BYTES = 12
_LEAST_BYTES = {_SECTION: 28, _INTERFACE: 20, _STATISTICS: 24, _ENHANCED: 32, _PACKET: 32, _SIMPLE: 16}
_MOST_BLOCK_BYTES = 1 << 24  # as in libpcap
_MOST_INTERFACES = 1 << 16
_LENGTH_BYTES = 4
# Offsets of the fields of enhanced packet blocks and of the frame.
_INTERFACE_AT, _HIGH_AT, _LOW_AT, _CAPTURED_AT, _ORIGINAL_AT, _FRAME_AT = 8, 12, 16, 20, 24, 28
# Options by block, which dpkt does not name.
_FLAGS, _FLAGS_BYTES, _DROPPED_BEFORE = 2, 4, 4
_IF_DROPPED, _OS_DROPPED = 5, 7
_UNKNOWN_DROPS, _UNKNOWN_DROPS_64 = 0xFFFF, 2**64 - 1
_FLAGS_FCS_SHIFT, _FLAGS_FCS_MASK = 5, 0xF
_MOST_FCS_BYTES = 15  # a larger if_fcslen must be in bits, as Wireshark writes it
_MICROSECONDS = 6
# Blocks that are read or decoded together at most, and the shortest run of plain ones that is read by numpy.
_WALK_BLOCKS, _DECODED_BLOCKS = 8192, 8192
_SHORTEST_RUN = 256

# Times that fit in 64 bits of nanoseconds, also after subtraction of a frame's time stamp: the years 1900 to 2262.
_EARLIEST_NS, _LATEST_NS = -2_200_000_000 * NS_PER_S, 9_223_372_035 * NS_PER_S
_YEAR_10000_S = 253_402_300_800


# dpkt's classes by block type: big-endian, little-endian. It has none for simple packets and statistics.
_BLOCK_CLASSES = {
    _SECTION: (dpkt_pcapng.SectionHeaderBlock, dpkt_pcapng.SectionHeaderBlockLE),
    _INTERFACE: (dpkt_pcapng.InterfaceDescriptionBlock, dpkt_pcapng.InterfaceDescriptionBlockLE),
    _PACKET: (dpkt_pcapng.PacketBlock, dpkt_pcapng.PacketBlockLE),
    _ENHANCED: (dpkt_pcapng.EnhancedPacketBlock, dpkt_pcapng.EnhancedPacketBlockLE),
}


class _DescribedInterface(NamedTuple):
    """An interface of the current section; its time stamps are `units` in a second, and count from `offset_s`.

    `place` is its index in the reader's `interfaces`.
    """

    place: int
    link_type: int
    snap_length: int
    units: int
    offset_s: int
    fcs_bytes: int

    def time_ns(self, ticks: int) -> int:
        """Return a time stamp as nanoseconds since 1970, rounded down; NO_TIME beyond 64 bits."""
        if ticks // self.units > _YEAR_10000_S:  # written as a signed number
            ticks -= 2**64 if ticks >= 2**63 else 0
        time_ns = self.offset_s * NS_PER_S + ticks * NS_PER_S // self.units
        return time_ns if _EARLIEST_NS <= time_ns < _LATEST_NS else NO_TIME


class _DecodedFrame(NamedTuple):
    """The frame of a packet block; lengths are corrected, and `original` is without the FCS."""

    data: bytes
    captured: int
    original: int
    time_ns: int


class PcapngReader(CaptureReader):
    """Reads a pcapng from a window at its first byte, the start of a section."""

    flavour = "pcapng"

    def __init__(self, window: ReadWindow, headers_bytes: int = PLAIN_HEADERS_BYTES) -> None:
        """Of frames in blocks that differ in length, `headers_bytes` are kept."""
        self.ending = Ending()
        self._window = window
        self._headers_bytes = headers_bytes
        self._interfaces: list[Interface] = []
        self._indices: dict[tuple[str, int, int], int] = {}
        self._section: list[_DescribedInterface] = []
        self._section_number = 0
        self._dropped: dict[tuple[int, int], int] = {}
        self._dropped_before: int | None = None  # as stated by packet blocks
        self._names: Counter[str] = Counter()  # of the section's interfaces
        self._wrong_lengths = self._unknown_interface = 0
        self._undescribed: int | None = None  # index of the placeholder interface
        self._set_order("<")

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The interfaces of all sections so far; equal names, or equal numbers without names, are one interface."""
        return self._interfaces

    @property
    def oddities(self) -> Oddities:
        """Counts of blocks that violate the format, so far."""
        totals = [*([sum(self._dropped.values())] if self._dropped else []), self._dropped_before]
        dropped = max((total for total in totals if total is not None), default=None)
        return Oddities(self._wrong_lengths, 0, self._unknown_interface, dropped)

    def batches(self) -> Iterator[FrameBatch]:
        """As CaptureReader.batches."""
        window = self._window
        while window.fill(_LEAST_BLOCK_BYTES):
            kind, length = self._begin()
            damage = _damage_of_length(kind, length)
            if not damage:
                if not window.fill(length):
                    break
                damage = self._damage_at_end(window.start, length)
            if not damage and kind == _SECTION:
                damage = self._begin_section(self._block(window.start, length))
            if damage:
                self.ending = Ending(damaged_at=window.offset, damage=damage)
                return
            consumed = length
            if kind in _PACKETS:
                batches, consumed = self._plain_run(length) or self._decoded()
                yield from batches
            elif kind == _INTERFACE:
                self._describe(self._block(window.start, length))
            elif kind == _STATISTICS:
                self._count_dropped(self._block(window.start, length))
            window.consume(consumed)
        self.ending = Ending(leftover_bytes=window.available)

    def _set_order(self, order: str) -> None:
        self._is_little = order == "<"
        self._endianness: Literal["little", "big"] = "little" if self._is_little else "big"
        self._word = np.dtype(order + "u4")
        self._two_words = Struct(order + "II")

    def _begin(self) -> tuple[int, int]:
        """Return type and length of the block at the window's start; a section sets the byte order."""
        data, start = self._window.data, self._window.start
        kind, length = self._two_words.unpack_from(data, start)
        if kind == _SECTION:  # the same in both orders
            self._set_order(_BYTE_ORDERS.get(bytes(data[start + 8 : start + 12]), "<" if self._is_little else ">"))
            _, length = self._two_words.unpack_from(data, start)
        return int(kind), int(length)

    def _damage_at_end(self, start: int, length: int) -> str:
        _, at_end = self._two_words.unpack_from(self._window.data, start + length - 8)
        return "" if at_end == length else f"a block of {length} bytes that ends as one of {at_end}"

    def _header(self, kind: int, block: bytes) -> Packet:
        """Return the fixed fields of a block."""
        header = _BLOCK_CLASSES[kind][self._is_little]()
        header.unpack_hdr(block)
        return header

    def _block(self, start: int, length: int) -> bytes:
        return bytes(self._window.data[start : start + length])

    def _begin_section(self, block: bytes) -> str:
        """Drop the interfaces of the previous section; return the fault of this one, empty for none."""
        if block[8:12] not in _BYTE_ORDERS:
            return "a section without a mark of its byte order"
        header = self._header(_SECTION, block)
        self._section, self._section_number = [], self._section_number + 1
        self._names.clear()
        return (
            ""
            if header.v_major == 1
            else f"a section of pcapng {header.v_major}.{header.v_minor}; only 1.x can be read"
        )

    def _describe(self, block: bytes) -> None:
        """Read the description of an interface."""
        header, options = self._header(_INTERFACE, block), self._options(block[16:-_LENGTH_BYTES])
        name = options.get(dpkt_pcapng.PCAPNG_OPT_IF_NAME, b"").rstrip(b"\0").decode(errors="backslashreplace")
        (resolution,) = options.get(dpkt_pcapng.PCAPNG_OPT_IF_TSRESOL, b"")[:1] or (_MICROSECONDS,)
        units = (2 if resolution & 0x80 else 10) ** (resolution & 0x7F)
        offset = options.get(dpkt_pcapng.PCAPNG_OPT_IF_TSOFFSET, b"")
        (fcs,) = options.get(dpkt_pcapng.PCAPNG_OPT_IF_FCSLEN, b"")[:1] or (0,)
        index = self._index(_printable(name), header.linktype, header.snaplen, NS_PER_S / units)
        if index is None:
            self._section.append(self._not_described(0))
            return
        self._section.append(
            _DescribedInterface(
                place=index,
                link_type=header.linktype,
                snap_length=header.snaplen or NO_LIMIT,
                units=units,
                offset_s=int.from_bytes(offset, self._endianness, signed=True) if len(offset) == 8 else 0,
                fcs_bytes=fcs if fcs <= _MOST_FCS_BYTES and fcs != 8 else 0 if fcs % 8 else fcs // 8,
            )
        )

    def _index(self, name: str, link_type: int, snap_length: int, resolution_ns: float) -> int | None:
        """Return the index of a described interface, which is new in its section; None for too many interfaces."""
        key = name, self._names[name], link_type
        self._names[name] += 1
        if key not in self._indices and len(self._interfaces) < _MOST_INTERFACES:
            self._indices[key] = len(self._interfaces)
            self._interfaces.append(Interface(name, link_type, snap_length or None, resolution_ns))
        index = self._indices.get(key)
        if index is not None:
            interface = self._interfaces[index]
            self._interfaces[index] = interface._replace(resolution_ns=max(interface.resolution_ns, resolution_ns))
        return index

    def _count_dropped(self, block: bytes) -> None:
        """Read the statistics of an interface; the last ones count."""
        options = self._options(block[20:-_LENGTH_BYTES])
        counts = [options[code] for code in (_IF_DROPPED, _OS_DROPPED) if len(options.get(code, b"")) == 8]
        numbers = [int.from_bytes(count, self._endianness) for count in counts]
        known = [number for number in numbers if number < _UNKNOWN_DROPS_64]
        if known:
            number, _ = self._two_words.unpack_from(block, 8)
            self._dropped[self._section_number, number] = sum(known)

    def _count_dropped_before(self, frames: int) -> None:
        """Add the number of frames dropped before a packet."""
        self._dropped_before = (self._dropped_before or 0) + frames

    def _options(self, data: bytes) -> dict[int, bytes]:
        """Return the values of options by code."""
        options, at = {}, 0
        while at + 4 <= len(data):
            option = (dpkt_pcapng.PcapngOption, dpkt_pcapng.PcapngOptionLE)[self._is_little]()
            Packet.unpack(option, data[at : at + 4])
            if option.code == dpkt_pcapng.PCAPNG_OPT_ENDOFOPT or at + 4 + option.len > len(data):
                break
            options[option.code] = data[at + 4 : at + 4 + option.len]
            at += 4 + -(-option.len // 4) * 4
        return options

    def _plain_run(self, length: int) -> tuple[list[FrameBatch], int] | None:
        """Return the frames of plain enhanced packet blocks at the window's start, and their bytes; None for few.

        Plain ones have times in microseconds or nanoseconds, possible lengths and no options.
        """
        window = self._window
        positions = self._positions(length)
        if len(positions) <= min(_SHORTEST_RUN, window.available // length):
            return None
        lengths = np.diff(positions)
        heads = window.gather(positions[:-1], _FRAME_AT + self._headers_bytes)
        kind, number, captured, original = (
            field(heads, self._word, at).astype(np.uint32) for at in (0, _INTERFACE_AT, _CAPTURED_AT, _ORIGINAL_AT)
        )
        ends = field(window.gather(positions[1:] - _LENGTH_BYTES, _LENGTH_BYTES), self._word, 0)
        are_plain = (kind == _ENHANCED) & (number < len(self._section)) & (ends == lengths)
        are_plain &= (captured.astype(np.int64) + 3) // 4 * 4 + _FRAME_AT + _LENGTH_BYTES == lengths
        count = leading(are_plain & ~are_wrong_lengths(captured, original))
        if count < _SHORTEST_RUN:
            return None
        heads, captured, original = heads[:count], captured[:count], original[:count]
        batches = []
        for place, of_it in _by_first_place(number[:count]):
            interface = self._section[place]
            times_ns = self._times_of_plain(heads[of_it], interface)
            if times_ns is None:
                return None
            batches.append(
                FrameBatch(
                    link_type=interface.link_type,
                    fcs_bytes=interface.fcs_bytes,
                    snap_length=interface.snap_length,
                    frames=heads[of_it, _FRAME_AT:],
                    captured=captured[of_it],
                    original=original[of_it],
                    times_ns=times_ns,
                    interface=interface.place,
                )
            )
        return batches, int(positions[count]) - window.start

    def _positions(self, length: int) -> NDArray[np.int64]:
        """Return where the packet blocks at the window's start begin, and where the last one ends."""
        window, unpack = self._window, self._two_words.unpack_from
        rows = window.records(length, window.available // length)
        pairs = field(rows, np.dtype(np.uint64), 0)  # type and length, in any byte order
        alike = leading(pairs == pairs[0])
        if alike >= min(_SHORTEST_RUN, len(rows)):
            return window.start + length * np.arange(alike + 1)
        positions = [window.start]
        while positions[-1] + _LEAST_BLOCK_BYTES <= window.stop and len(positions) <= _WALK_BLOCKS:
            kind, length = unpack(window.data, positions[-1])
            if kind != _ENHANCED or _damage_of_length(kind, length) or positions[-1] + length > window.stop:
                break
            positions.append(positions[-1] + length)
        return np.array(positions)

    def _times_of_plain(self, heads: NDArray[np.uint8], interface: _DescribedInterface) -> NDArray[np.int64] | None:
        """Return the times of blocks with these heads; None if they are in another unit or beyond 64 bits."""
        unit_ns, rest = divmod(NS_PER_S, interface.units)
        ticks: NDArray[np.int64] = field(heads, self._word, _HIGH_AT).astype(np.int64)
        ticks <<= 32
        ticks |= field(heads, self._word, _LOW_AT)
        bounds = int(ticks.min()), int(ticks.max())
        if rest or bounds[0] < 0 or any(interface.time_ns(tick) == NO_TIME for tick in bounds):
            return None
        return ticks * unit_ns + interface.offset_s * NS_PER_S

    def _decoded(self) -> tuple[list[FrameBatch], int]:
        """Return the frames of packet blocks, decoded one by one, and their bytes; the first block is complete."""
        window = self._window
        frames: dict[_DescribedInterface, list[_DecodedFrame]] = {}
        position = window.start
        for _ in range(_DECODED_BLOCKS):
            if position + _LEAST_BLOCK_BYTES > window.stop:
                break
            kind, length = self._two_words.unpack_from(window.data, position)
            if kind not in _PACKETS or _damage_of_length(kind, length) or position + length > window.stop:
                break
            if self._damage_at_end(position, length):
                break
            interface, frame = self._decode(kind, self._block(position, length))
            frames.setdefault(interface, []).append(frame)
            position += length
        return [self._batch(interface, of_it) for interface, of_it in frames.items()], position - window.start

    def _decode(self, kind: int, block: bytes) -> tuple[_DescribedInterface, _DecodedFrame]:
        """Return the interface and the frame of a packet block."""
        if kind == _SIMPLE:
            return self._decode_simple(block)
        header = self._header(kind, block)
        interface = self._interface(header.iface_id)
        captured, original = self._lengths(header.caplen, header.pkt_len, len(block) - _FRAME_AT - _LENGTH_BYTES)
        options = self._options(block[_FRAME_AT + -(-captured // 4) * 4 : -_LENGTH_BYTES])
        if kind == _PACKET:
            if header.drops_count != _UNKNOWN_DROPS:
                self._count_dropped_before(header.drops_count)
        elif _DROPPED_BEFORE in options:
            self._count_dropped_before(int.from_bytes(options[_DROPPED_BEFORE], self._endianness))
        flags = options.get(_FLAGS, b"")
        announced = int.from_bytes(flags, self._endianness) if len(flags) == _FLAGS_BYTES else 0
        fcs_bytes = announced >> _FLAGS_FCS_SHIFT & _FLAGS_FCS_MASK or interface.fcs_bytes
        data = block[_FRAME_AT : _FRAME_AT + captured]
        time_ns = interface.time_ns(header.ts_high << 32 | header.ts_low)
        return interface, _DecodedFrame(data, captured, max(original - fcs_bytes, 0), time_ns)

    def _decode_simple(self, block: bytes) -> tuple[_DescribedInterface, _DecodedFrame]:
        """Decode a simple packet block, which states neither time nor captured length; up to 3 bytes are padding."""
        interface = self._interface(0)
        original, _ = self._two_words.unpack_from(block, 8)
        room, snap_length = len(block) - 16, interface.snap_length
        cut = snap_length if snap_length <= room < snap_length + 4 else room
        captured, original = self._lengths(original if original <= room else cut, original, room)
        original = max(original - interface.fcs_bytes, 0)
        return interface, _DecodedFrame(block[12 : 12 + captured], captured, original, NO_TIME)

    def _interface(self, number: int) -> _DescribedInterface:
        return self._section[number] if number < len(self._section) else self._not_described(1)

    def _lengths(self, captured: int, original: int, room: int) -> tuple[int, int]:
        """Return the corrected lengths of a frame in a block with `room` for it, and count impossible ones."""
        if captured > room or is_wrong_length(captured, original):
            self._wrong_lengths += 1
            captured = min(captured, room)
            original = corrected_length(captured, original)
        return captured, original

    def _batch(self, interface: _DescribedInterface, frames: Sequence[_DecodedFrame]) -> FrameBatch:
        width = self._headers_bytes
        first_bytes = b"".join(frame.data[:width].ljust(width, b"\0") for frame in frames)
        return FrameBatch(
            link_type=interface.link_type,
            fcs_bytes=0,
            snap_length=interface.snap_length,
            frames=np.frombuffer(first_bytes, np.uint8).reshape(-1, width),
            captured=np.array([frame.captured for frame in frames], np.uint32),
            original=np.array([frame.original for frame in frames], np.uint32),
            times_ns=np.array([frame.time_ns for frame in frames], np.int64),
            interface=interface.place,
        )

    def _not_described(self, frames: int) -> _DescribedInterface:
        """Return a placeholder for an interface that the file does not describe, and count its `frames`."""
        self._unknown_interface += frames
        if self._undescribed is None:
            self._undescribed = len(self._interfaces)
            self._interfaces.append(Interface("not described", NO_LINK_TYPE, None, 0))
        return _DescribedInterface(self._undescribed, NO_LINK_TYPE, NO_LIMIT, 10**_MICROSECONDS, 0, 0)


def _by_first_place(numbers: NDArray[np.uint32]) -> Iterator[tuple[int, NDArray[np.intp] | slice]]:
    """Yield each number and its places, in the order in which the numbers first occur."""
    if (numbers == numbers[0]).all():
        yield int(numbers[0]), slice(None)
        return
    _, first = np.unique(numbers, return_index=True)
    for number in numbers[np.sort(first)].tolist():
        yield number, np.flatnonzero(numbers == number)


def _printable(name: str) -> str:
    """Return the name with line breaks and other control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def _damage_of_length(kind: int, length: int) -> str:
    """Return the fault in the length of a block of this type; empty when it is plausible."""
    if length % 4 or not _LEAST_BYTES.get(kind, _LEAST_BLOCK_BYTES) <= length <= _MOST_BLOCK_BYTES:
        return f"a block of type {kind:#x} with a length of {length} bytes"
    return ""
