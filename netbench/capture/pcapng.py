"""pcapng files (draft-ietf-opsawg-pcapng): sections, interfaces and every kind of packet block.

Blocks without packets are skipped, except that interface statistics tell what the capture dropped. One
changed bit can make a packet block look like one of those, so what they hold is checked, and blocks that
cannot be checked because their type is not known are counted.
"""

from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.reading import (
    NO_LIMIT,
    SHORTEST_RUN,
    WALK_RECORDS,
    Ending,
    FrameBatch,
    field,
    gather,
    leading,
    nonsense,
    records,
    sensible,
)
from netbench.capture.tick_clocks import TicksClock
from netbench.capture.window import Window

SECTION_HEADER: Final = 0x0A0D0D0A
_INTERFACE: Final = 1
_OBSOLETE_PACKET: Final = 2
_SIMPLE_PACKET: Final = 3
_STATISTICS: Final = 5
_ENHANCED_PACKET: Final = 6
_NAMES: Final = 4
_SECRETS: Final = 10
_CUSTOM: Final = (0x00000BAD, 0x40000BAD)

_MAX_BLOCK_BYTES = 1 << 24  # as in Wireshark
_MIN_BLOCK_BYTES = {
    SECTION_HEADER: 28,
    _INTERFACE: 20,
    _OBSOLETE_PACKET: 32,
    _SIMPLE_PACKET: 16,
    _STATISTICS: 24,
    _ENHANCED_PACKET: 32,
    _SECRETS: 20,
}

# Codes in lists of options and of name records: those of the specification end well below the first number.
_UNUSED_CODES = range(32, 1 << 15)
_CUSTOM_CODES = (2988, 2989, 19372, 19373)

# Options of the interface description (section 4.2) and of the interface statistics (4.6).
_IF_TSRESOL, _IF_FCSLEN, _IF_TSOFFSET = 9, 13, 14
_ISB_IFDROP, _ISB_OSDROP = 5, 7

# Where the fields of packet blocks are (4.3, 4.4 and appendix A).
_INTERFACE_AT, _HIGH_AT, _LOW_AT, _CAPTURED_AT, _ORIGINAL_AT, _FRAME_AT = 8, 12, 16, 20, 24, 28
_SIMPLE_ORIGINAL_AT, _SIMPLE_FRAME_AT = 8, 12


class _DamagedError(Exception):
    """The block at the window's start makes no sense; the message says why."""


class _Interface(NamedTuple):
    link_type: int
    snap_length: int  # NO_LIMIT where the file says 0
    fcs_bytes: int
    clock: TicksClock


def section_order(start: bytes) -> str | None:
    """The byte order, "<" or ">", of a section from the first 12 bytes of its header; None if it is none."""
    return {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}.get(start[8:12])


class PcapngReader:
    """Reads one pcapng file from a window that stands on the file's first byte."""

    def __init__(self, window: Window, order: str) -> None:
        """`order` is the byte order of the first section; later ones may have another."""
        self.flavour = f"pcapng, {'little' if order == '<' else 'big'}-endian"
        self.ending = Ending()
        self.unknown_blocks: dict[int, int] = {}
        self._window = window
        self._met: list[_Interface] = []
        self._drops: dict[int, int] = {}  # by place in _met
        self._interfaces: list[_Interface] = []
        self._use_order(order)

    @property
    def link_types(self) -> tuple[int, ...]:
        """Link types of the interfaces met so far."""
        return tuple(dict.fromkeys(interface.link_type for interface in self._met))

    @property
    def snap_length(self) -> int | None:
        """The largest snap length of the interfaces met so far; None when one of them has no limit."""
        largest = max((interface.snap_length for interface in self._met), default=NO_LIMIT)
        return None if largest == NO_LIMIT else largest

    @property
    def dropped(self) -> int | None:
        """Drops of all interfaces as their last statistics block tells them; None without any."""
        return sum(self._drops.values()) if self._drops else None

    def batches(self) -> Iterator[FrameBatch]:
        """All frames, in runs of one length of block where there are any."""
        window = self._window
        try:
            while window.fill(12):
                kind, length = self._block()
                if not window.fill(length):
                    break
                if self._value(length - 4) != length:
                    raise _DamagedError(f"a block of {length} bytes that does not end with its length")
                batches, consumed = self._content(kind, length)
                yield from batches
                window.consume(consumed)
            self.ending = Ending(leftover_bytes=window.available)
        except _DamagedError as damage:
            self.ending = Ending(damaged_at=window.offset, damage=str(damage))

    def _block(self) -> tuple[int, int]:
        """Type and total length of the block that begins here, once they make sense."""
        if self._value(0) == SECTION_HEADER:
            start = self._window.start
            order = section_order(bytes(self._window.data[start : start + 12]))
            if order is None:
                raise _DamagedError("a section without a byte-order magic")
            self._use_order(order)
        kind, length = self._value(0), self._value(4)
        least = _MIN_BLOCK_BYTES.get(kind, 12)
        if length % 4 or not least <= length <= _MAX_BLOCK_BYTES:
            raise _DamagedError(f"a block of type 0x{kind:08x} with {length} bytes")
        return kind, length

    def _content(self, kind: int, length: int) -> tuple[list[FrameBatch], int]:
        """The frames of this block, and of those after it that are like it; how many bytes they take."""
        if kind == _ENHANCED_PACKET:
            self._check_packet(length, self._value(_INTERFACE_AT))
            return self._run(length) or self._walk(kind)
        if kind == _OBSOLETE_PACKET:
            self._check_packet(length, self._short_value(_INTERFACE_AT))
            return self._walk(kind)
        if kind == _SIMPLE_PACKET:
            return [self._simple(length)], length
        if kind == SECTION_HEADER:
            major, minor = self._short_value(12), self._short_value(14)
            if major != 1:
                raise _DamagedError(f"a section of pcapng version {major}.{minor}, which is not known")
            self._interfaces = []
        elif kind == _INTERFACE:
            self._describe_interface(length)
        elif kind == _STATISTICS:
            self._note_drops(length)
        elif kind == _NAMES:
            self._options(self._list(8, length)[1], length)
        elif kind == _SECRETS:
            self._options(16 + _padded(self._value(12)), length)
        elif kind not in _CUSTOM:
            self.unknown_blocks[kind] = self.unknown_blocks.get(kind, 0) + 1
        return [], length

    def _check_packet(self, length: int, interface: int) -> None:
        self._interface(interface)
        captured = self._value(_CAPTURED_AT)
        damage = nonsense(captured, self._value(_ORIGINAL_AT))
        if not damage and captured + _MIN_BLOCK_BYTES[_ENHANCED_PACKET] > length:
            damage = f"{captured} bytes captured in a block of {length}"
        if damage:
            raise _DamagedError(damage)

    def _run(self, length: int) -> tuple[list[FrameBatch], int] | None:
        """The enhanced packet blocks from here on that are of one size and interface; None for a few."""
        most = count = self._window.available // length
        rows = records(self._window, length, most)
        for at in (4, 0, _INTERFACE_AT, _CAPTURED_AT, length - 4):
            count = leading(field(rows[:count], self._word, at) == self._value(at))
        if count < min(most, SHORTEST_RUN):
            return None
        captured = self._value(_CAPTURED_AT)
        original = field(rows[:count], self._word, _ORIGINAL_AT).astype(np.uint32)
        count = sensible(captured, original)
        interface = self._interface(self._value(_INTERFACE_AT))
        batch = FrameBatch(
            link_type=interface.link_type,
            fcs_bytes=interface.fcs_bytes,
            snap_length=interface.snap_length,
            frames=rows[:count, _FRAME_AT : _FRAME_AT + captured],
            captured=captured,
            original=original[:count],
            times_ns=self._times(interface, rows[:count]),
        )
        return [batch], count * length

    def _walk(self, kind: int) -> tuple[list[FrameBatch], int]:
        """Packet blocks of this kind from here on, followed one by one; the first is known to be good."""
        window, data, unpack = self._window, self._window.data, self._two_words.unpack_from
        least = _MIN_BLOCK_BYTES[kind]
        positions: list[int] = []
        position, last = window.start, window.stop - least
        while position <= last and len(positions) < WALK_RECORDS:
            found, length = unpack(data, position)
            if found != kind or length < least or length % 4 or position + length > window.stop:
                break
            positions.append(position)
            position += length
        positions.append(position)
        rows = gather(window, positions[:-1])
        lengths = np.diff(positions)
        ends = field(gather(window, [end - 4 for end in positions[1:]]), self._word, 0)
        interfaces = field(rows, self._word if kind == _ENHANCED_PACKET else self._short, _INTERFACE_AT)
        captured = field(rows, self._word, _CAPTURED_AT).astype(np.uint32)
        original = field(rows, self._word, _ORIGINAL_AT).astype(np.uint32)
        whole = (ends == lengths) & (interfaces < len(self._interfaces)) & (captured + least <= lengths)
        count = min(leading(whole), sensible(captured, original))
        found_in = interfaces[:count].astype(np.intp)
        batches = self._by_kind_of_link(rows[:count], found_in, captured[:count], original[:count])
        return batches, positions[count] - window.start

    def _by_kind_of_link(
        self,
        rows: NDArray[np.uint8],
        found_in: NDArray[np.intp],
        captured: NDArray[np.uint32],
        original: NDArray[np.uint32],
    ) -> list[FrameBatch]:
        """Packet blocks of any interfaces as batches, one for each kind of link among them."""
        times = np.zeros(len(rows), np.int64)
        snap_lengths = np.zeros(len(rows), np.uint32)
        members: dict[tuple[int, int, bool], list[NDArray[np.bool_]]] = {}
        for number in np.flatnonzero(np.bincount(found_in)).tolist():
            interface, here = self._interfaces[number], found_in == number
            snap_lengths[here] = interface.snap_length
            stamps = self._times(interface, rows[here])
            if stamps is not None:
                times[here] = stamps
            kind = (interface.link_type, interface.fcs_bytes, stamps is not None)
            members.setdefault(kind, []).append(here)
        batches = []
        for (link_type, fcs_bytes, timed), masks in members.items():
            here = np.logical_or.reduce(masks)
            batches.append(
                FrameBatch(
                    link_type=link_type,
                    fcs_bytes=fcs_bytes,
                    snap_length=snap_lengths[here],
                    frames=rows[here, _FRAME_AT:],
                    captured=captured[here],
                    original=original[here],
                    times_ns=times[here] if timed else None,
                )
            )
        return batches

    def _simple(self, length: int) -> FrameBatch:
        """A simple packet block: of the first interface, without a time stamp, cut at its snap length."""
        interface = self._interface(0)
        original = self._value(_SIMPLE_ORIGINAL_AT)
        captured = min(original, interface.snap_length)
        damage = nonsense(captured, original)
        if damage or captured + _MIN_BLOCK_BYTES[_SIMPLE_PACKET] > length:
            raise _DamagedError(damage or f"{captured} bytes captured in a block of {length}")
        frame = records(self._window, length, 1)[:, _SIMPLE_FRAME_AT : _SIMPLE_FRAME_AT + captured]
        return FrameBatch(
            link_type=interface.link_type,
            fcs_bytes=interface.fcs_bytes,
            snap_length=interface.snap_length,
            frames=frame,
            captured=captured,
            original=np.array([original], np.uint32),
            times_ns=None,
        )

    def _describe_interface(self, length: int) -> None:
        options = self._options(16, length)
        resolution = self._option(options, _IF_TSRESOL, "B", 6)
        fcs_bytes = self._option(options, _IF_FCSLEN, "B", 0)
        interface = _Interface(
            link_type=self._short_value(8),
            snap_length=self._value(12) or NO_LIMIT,
            fcs_bytes=fcs_bytes if fcs_bytes <= 4 else 4,  # some write bits
            clock=TicksClock(
                exponent=resolution & 0x7F,
                binary=resolution >= 0x80,
                offset_s=self._option(options, _IF_TSOFFSET, "q", 0),
            ),
        )
        self._interfaces.append(interface)
        self._met.append(interface)

    def _note_drops(self, length: int) -> None:
        number = self._value(8)
        self._interface(number)
        options = self._options(20, length)
        if _ISB_IFDROP in options or _ISB_OSDROP in options:
            place = len(self._met) - len(self._interfaces) + number
            self._drops[place] = self._option(options, _ISB_IFDROP, "Q", 0) + self._option(options, _ISB_OSDROP, "Q", 0)

    def _options(self, at: int, length: int) -> dict[int, bytes]:
        """The options from offset `at` of this block to its end (section 3.5)."""
        options, end = self._list(at, length)
        if end != length - 4:
            raise _DamagedError("a block whose content does not fill it")
        return options

    def _list(self, at: int, length: int) -> tuple[dict[int, bytes], int]:
        """Values by code from offset `at` of this block on, and the offset where they end."""
        block = bytes(self._window.data[self._window.start : self._window.start + length - 4])
        values: dict[int, bytes] = {}
        while at + 4 <= len(block):
            code, size = self._two_shorts.unpack_from(block, at)
            at += 4
            if code == 0:
                break
            if code in _UNUSED_CODES and code not in _CUSTOM_CODES:
                raise _DamagedError(f"a block with an option of unknown code {code}")
            if at + size > len(block):
                raise _DamagedError("a block with an option that runs past its end")
            values[code] = block[at : at + size]
            at += _padded(size)
        return values, at

    def _option(self, options: dict[int, bytes], code: int, form: str, default: int) -> int:
        packed = Struct(self._order + form)
        value = options.get(code)
        if value is None:
            return default
        if len(value) != packed.size:
            raise _DamagedError(f"an option {code} of {len(value)} bytes instead of {packed.size}")
        return int(packed.unpack(value)[0])

    def _interface(self, number: int) -> _Interface:
        if number >= len(self._interfaces):
            raise _DamagedError(f"a block of interface {number}, which the file does not describe")
        return self._interfaces[number]

    def _times(self, interface: _Interface, rows: NDArray[np.uint8]) -> NDArray[np.int64] | None:
        if not interface.clock.usable:
            return None
        return interface.clock.nanoseconds(field(rows, self._word, _HIGH_AT), field(rows, self._word, _LOW_AT))

    def _value(self, at: int) -> int:
        """The 32-bit word at offset `at` of the block that begins here."""
        return int(self._one_word.unpack_from(self._window.data, self._window.start + at)[0])

    def _short_value(self, at: int) -> int:
        """The 16-bit word at offset `at` of the block that begins here."""
        return int(self._two_shorts.unpack_from(self._window.data, self._window.start + at)[0])

    def _use_order(self, order: str) -> None:
        self._order = order
        self._word, self._short = np.dtype(order + "u4"), np.dtype(order + "u2")
        self._one_word, self._two_words = Struct(order + "I"), Struct(order + "II")
        self._two_shorts = Struct(order + "HH")


def _padded(size: int) -> int:
    return size + -size % 4
