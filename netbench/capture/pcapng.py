"""pcapng: sections of either byte order, several interfaces, packet blocks of all three kinds.

The format is draft-ietf-opsawg-pcapng. Blocks of equal length and interface are read as one array, others one by one.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Any, Literal, NamedTuple

import numpy as np
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
    corrected_lengths,
    leading,
)

# The placeholder link type of frames whose interface the file does not describe.
NO_LINK_TYPE = -1

_SECTION, _INTERFACE, _PACKET, _SIMPLE, _STATISTICS, _ENHANCED = 0x0A0D0D0A, 1, 2, 3, 5, 6
_BYTE_ORDERS = {b"\x4d\x3c\x2b\x1a": "<", b"\x1a\x2b\x3c\x4d": ">"}
_PACKETS = (_ENHANCED, _PACKET, _SIMPLE)
_LEAST_BLOCK_BYTES = 12
_LEAST_BYTES = {_SECTION: 28, _INTERFACE: 20, _STATISTICS: 24, _ENHANCED: 32, _PACKET: 32, _SIMPLE: 16}
_MOST_BLOCK_BYTES = 1 << 24  # as in libpcap
_MOST_INTERFACES = 1 << 16
# Offsets of the fields of packet blocks and of the frame, and the length of the field after it.
_INTERFACE_AT, _HIGH_AT, _LOW_AT, _CAPTURED_AT, _ORIGINAL_AT, _FRAME_AT = 8, 12, 16, 20, 24, 28
_SIMPLE_ORIGINAL_AT, _SIMPLE_FRAME_AT = 8, 12
_LENGTH_BYTES = 4
_PAIR = np.dtype(np.uint64)  # type and length, for comparisons only, in any byte order
# Options by block.
_LAST_OPTION = 0
_IF_NAME, _IF_RESOLUTION, _IF_FCS, _IF_OFFSET = 2, 9, 13, 14
_FLAGS, _FLAGS_BYTES, _DROPPED_BEFORE = 2, 4, 4
_UNKNOWN_DROPS, _UNKNOWN_DROPS_64 = 0xFFFF, 2**64 - 1
_DROPS_AT = 10  # of an obsolete packet block
_IF_DROPPED, _OS_DROPPED = 5, 7
_FLAGS_FCS_SHIFT, _FLAGS_FCS_MASK = 5, 0xF
_MOST_FCS_BYTES = 15  # a larger if_fcslen must be in bits, as Wireshark writes it
_MICROSECONDS = 6
# A run of blocks shorter than this is faster to read one by one.
_SHORTEST_RUN = 256
_WALK_BLOCKS = 8192

_NS_PER_S = 1_000_000_000
# Times that fit in 64 bits of nanoseconds, also after subtraction of a frame's time stamp: the years 1900 to 2262.
_EARLIEST_S, _LATEST_S = -2_200_000_000, 9_223_372_035
_YEAR_10000_S = 253_402_300_800
_TIME_BITS = 64
# 2^34 × 10^9 is less than 2^64.
_EXACT_BITS = 34
_MOST_DIGITS = 19


class _Unit:
    """The unit of an interface's time stamps (if_tsresol)."""

    def __init__(self, value: int = _MICROSECONDS) -> None:
        self._exponent = value & 0x7F
        self._is_binary = bool(value & 0x80)
        base = 2 if self._is_binary else 10
        self._units: int = base**self._exponent
        self.ns: float = _NS_PER_S / self._units

    def times_ns(self, high: NDArray[np.uint32], low: NDArray[np.uint32], offset_s: int) -> NDArray[np.int64]:
        """Return time stamps in two words as nanoseconds since 1970, int64 of shape (n,); NO_TIME beyond 64 bits."""
        ticks = high.astype(np.uint64)
        ticks <<= np.uint64(32)
        ticks |= low
        seconds, rest = 0 * ticks, ticks
        if self._units < 1 << _TIME_BITS:
            seconds, rest = ticks // self._units, ticks % self._units
        whole = seconds.astype(np.int64)
        is_negative = seconds > _YEAR_10000_S
        if is_negative.any():  # written as a signed number
            signed = ticks[is_negative].view(np.int64)
            whole[is_negative], rest[is_negative] = signed // self._units, (signed % self._units).astype(np.uint64)
        # Sums beyond 64 bits are out of bounds as well.
        is_known = (whole >= _EARLIEST_S - offset_s) & (whole < _LATEST_S - offset_s)
        if is_known.all():
            return (whole + offset_s) * _NS_PER_S + self._ns(rest)
        times = np.full(len(ticks), NO_TIME, np.int64)
        times[is_known] = (whole[is_known] + offset_s) * _NS_PER_S + self._ns(rest[is_known])
        return times

    def _ns(self, rest: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return fractions of a second in nanoseconds, rounded down."""
        if self._is_binary:
            surplus = max(self._exponent - _EXACT_BITS, 0)
            if surplus >= _TIME_BITS:
                return np.zeros(len(rest), np.int64)
            return ((rest >> surplus) * _NS_PER_S >> self._exponent - surplus).astype(np.int64)
        digits = self._exponent - 9
        if digits > _MOST_DIGITS:
            return np.zeros(len(rest), np.int64)
        ns: NDArray[np.uint64] = rest * 10**-digits if digits <= 0 else rest // 10**digits
        return ns.astype(np.int64)


class _Packets(NamedTuple):
    """The fields of packet blocks, of shape (n,) each.

    `numbers` are those of interfaces in the section, `frames_at` offsets in the window's memory. `fcs_bytes` is -1
    where a block does not state it.
    """

    is_simple: NDArray[np.bool_]
    numbers: NDArray[np.uint32]
    high: NDArray[np.uint32]
    low: NDArray[np.uint32]
    captured: NDArray[np.uint32]
    original: NDArray[np.uint32]
    frames_at: NDArray[np.int64]
    fcs_bytes: NDArray[np.int64]


class _Described(NamedTuple):
    """An interface of the current section. `place` is its index in the reader's `interfaces`."""

    place: int
    link_type: int
    snap_length: int
    unit: _Unit
    offset_s: int
    fcs_bytes: int


class PcapngReader(CaptureReader):
    """Reads a pcapng from a window at its first byte, the start of a section."""

    flavour = "pcapng"

    def __init__(self, window: ReadWindow, headers_bytes: int = PLAIN_HEADERS_BYTES) -> None:
        """Of frames in blocks that differ in length, `headers_bytes` are kept."""
        self.ending = Ending()
        self._window = window
        self._headers_bytes = headers_bytes
        self._interfaces: list[Interface] = []
        self._places: dict[tuple[str, int, int], int] = {}
        self._section: list[_Described] = []
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
                damage = self._damage_at_end(length)
            if not damage and kind == _SECTION:
                damage = self._begin_section()
            if damage:
                self.ending = Ending(damaged_at=window.offset, damage=damage)
                return
            consumed = length
            if kind in _PACKETS:
                batches, consumed = self._run(length) or self._walk()
                yield from batches
            elif kind == _INTERFACE:
                self._describe(length)
            elif kind == _STATISTICS:
                self._count_dropped(length)
            window.consume(consumed)
        self.ending = Ending(leftover_bytes=window.available)

    def _set_order(self, order: str) -> None:
        self._order = order
        self._word = np.dtype(order + "u4")
        self._two_words = Struct(order + "II")

    def _begin(self) -> tuple[int, int]:
        """Return type and length of the block at the window's start; a section sets the byte order."""
        data, start = self._window.data, self._window.start
        kind, _ = self._two_words.unpack_from(data, start)
        if kind == _SECTION:  # the same in both orders
            self._set_order(_BYTE_ORDERS.get(bytes(data[start + 8 : start + 12]), self._order))
        _, length = self._two_words.unpack_from(data, start)
        return int(kind), int(length)

    def _damage_at_end(self, length: int) -> str:
        window = self._window
        _, at_end = self._two_words.unpack_from(window.data, window.start + length - 8)
        return "" if at_end == length else f"a block of {length} bytes that ends as one of {at_end}"

    def _begin_section(self) -> str:
        """Drop the interfaces of the previous section; return the fault of this one, empty for none."""
        window = self._window
        if bytes(window.data[window.start + 8 : window.start + 12]) not in _BYTE_ORDERS:
            return "a section without a mark of its byte order"
        major, minor = Struct(self._order + "HH").unpack_from(window.data, window.start + 12)
        self._section, self._section_number = [], self._section_number + 1
        self._names.clear()
        return "" if major == 1 else f"a section of pcapng {major}.{minor}; only 1.x can be read"

    def _describe(self, length: int) -> None:
        """Read the description of an interface."""
        window = self._window
        link_type, _, snap_length = Struct(self._order + "HHI").unpack_from(window.data, window.start + 8)
        options = dict(self._options(window.start + 16, window.start + length - _LENGTH_BYTES))
        name = _printable(options.get(_IF_NAME, b"").rstrip(b"\0").decode(errors="backslashreplace"))
        unit = _Unit(*options.get(_IF_RESOLUTION, b"")[:1])
        offset = options.get(_IF_OFFSET, b"")
        offset_s = int.from_bytes(offset, self._endianness, signed=True) if len(offset) == 8 else 0
        (fcs,) = options.get(_IF_FCS, b"")[:1] or (0,)
        place = self._place(name, link_type, snap_length, unit)
        if place is None:
            self._section.append(self._not_described(0))
            return
        self._section.append(
            _Described(
                place=place,
                link_type=link_type,
                snap_length=snap_length or NO_LIMIT,
                unit=unit,
                offset_s=offset_s,
                fcs_bytes=fcs if fcs <= _MOST_FCS_BYTES and fcs != 8 else 0 if fcs % 8 else fcs // 8,
            )
        )

    @property
    def _endianness(self) -> Literal["little", "big"]:
        return "little" if self._order == "<" else "big"

    def _place(self, name: str, link_type: int, snap_length: int, unit: _Unit) -> int | None:
        """Return the index of a described interface, which is new in its section; None for too many interfaces."""
        key = name, self._names[name], link_type
        self._names[name] += 1
        if key not in self._places and len(self._interfaces) < _MOST_INTERFACES:
            self._places[key] = len(self._interfaces)
            self._interfaces.append(Interface(name, link_type, snap_length or None, unit.ns))
        place = self._places.get(key)
        if place is not None:
            interface = self._interfaces[place]
            self._interfaces[place] = interface._replace(resolution_ns=max(interface.resolution_ns, unit.ns))
        return place

    def _count_dropped(self, length: int) -> None:
        """Read the statistics of an interface; the last ones count."""
        window = self._window
        (number,) = Struct(self._order + "I").unpack_from(window.data, window.start + 8)
        options = dict(self._options(window.start + 20, window.start + length - _LENGTH_BYTES))
        counts = [options[code] for code in (_IF_DROPPED, _OS_DROPPED) if len(options.get(code, b"")) == 8]
        known = [
            count
            for count in (int.from_bytes(count, self._endianness) for count in counts)
            if count < _UNKNOWN_DROPS_64
        ]
        if known:
            self._dropped[self._section_number, number] = sum(known)

    def _count_dropped_before(self, frames: int) -> None:
        """Add the number of frames dropped before a packet."""
        self._dropped_before = (self._dropped_before or 0) + frames

    def _options(self, start: int, stop: int) -> Iterator[tuple[int, bytes]]:
        """Yield code and value of the options between two offsets of the window's memory."""
        unpack, data = Struct(self._order + "HH").unpack_from, self._window.data
        while start + 4 <= stop:
            code, length = unpack(data, start)
            if code == _LAST_OPTION or start + 4 + length > stop:
                return
            yield code, bytes(data[start + 4 : start + 4 + length])
            start += 4 + -(-length // 4) * 4

    def _run(self, length: int) -> tuple[Iterator[FrameBatch], int] | None:
        """Return the run of enhanced packet blocks of equal length, interface and captured length; None if it is short.

        The first block is complete.
        """
        window = self._window
        most = window.available // length
        rows = self._like_first(window.records(length, most), _PAIR, 0)
        least = min(most, _SHORTEST_RUN)
        if len(rows) < least:
            return None
        for at in (_INTERFACE_AT, _CAPTURED_AT, length - _LENGTH_BYTES):
            rows = self._like_first(rows, self._word, at)
        kind, number, captured = (int(field(rows[:1], self._word, at)[0]) for at in (0, _INTERFACE_AT, _CAPTURED_AT))
        options_at, stop = _FRAME_AT + (captured + 3) // 4 * 4, length - _LENGTH_BYTES
        if kind != _ENHANCED or number >= len(self._section) or options_at > stop:
            return None
        if options_at < stop:
            options = rows[:, options_at:stop]
            rows = rows[: leading((options == options[0]).all(axis=1))]
        original = field(rows, self._word, _ORIGINAL_AT).astype(np.uint32)
        count = leading(~are_wrong_lengths(captured, original))
        if count < least:
            return None
        rows, original = rows[:count], original[:count]
        interface = self._section[number]
        options_of_all = dict(self._options(window.start + options_at, window.start + stop))
        flags = options_of_all.get(_FLAGS)
        if _DROPPED_BEFORE in options_of_all:
            self._count_dropped_before(count * int.from_bytes(options_of_all[_DROPPED_BEFORE], self._endianness))
        high, low = (field(rows, self._word, at) for at in (_HIGH_AT, _LOW_AT))
        batch = FrameBatch(
            link_type=interface.link_type,
            fcs_bytes=self._announced_fcs(flags) or interface.fcs_bytes,
            snap_length=interface.snap_length,
            frames=rows[:, _FRAME_AT:],
            captured=captured,
            original=original if (original != original[0]).any() else np.broadcast_to(original[0], count),
            times_ns=interface.unit.times_ns(high, low, interface.offset_s),
            interface=interface.place,
        )
        return iter((batch,)), count * length

    def _like_first(self, rows: NDArray[np.uint8], dtype: np.dtype[Any], at: int) -> NDArray[np.uint8]:
        """Return the leading rows whose field at byte `at` equals that of the first."""
        values = field(rows, dtype, at)
        return rows[: leading(values == values[0])]

    def _announced_fcs(self, flags: bytes | None) -> int:
        """Return the FCS length in bytes from the flags of a packet; 0 where they state none."""
        if flags is None or len(flags) != _FLAGS_BYTES:
            return 0
        return int.from_bytes(flags, self._endianness) >> _FLAGS_FCS_SHIFT & _FLAGS_FCS_MASK

    def _walk(self) -> tuple[Iterator[FrameBatch], int]:
        """Return packet blocks of any kind and length, read one by one, and their bytes; the first is complete."""
        window, data, unpack = self._window, self._window.data, self._two_words.unpack_from
        positions: list[int] = []
        lengths: list[int] = []
        position = window.start
        while position + _LEAST_BLOCK_BYTES <= window.stop and len(positions) < _WALK_BLOCKS:
            kind, length = unpack(data, position)
            if kind not in _PACKETS or _damage_of_length(kind, length) or position + length > window.stop:
                break
            if unpack(data, position + length - 8)[1] != length:
                break
            positions.append(position)
            lengths.append(length)
            position += length
        return self._batches_of(np.array(positions), np.array(lengths)), position - window.start

    def _batches_of(self, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> Iterator[FrameBatch]:
        """Yield the frames of packet blocks at these positions, one batch per interface."""
        packets = self._packets(positions, lengths)
        numbers = packets.numbers
        wanted = np.ones(len(numbers), np.bool_)
        while wanted.any():
            number = int(numbers[wanted.argmax()])
            these = np.flatnonzero(numbers == number)
            wanted[these] = False
            interface = self._section[number] if number < len(self._section) else self._not_described(len(these))
            fcs_bytes = np.where(packets.fcs_bytes[these] >= 0, packets.fcs_bytes[these], interface.fcs_bytes)
            original = np.maximum(packets.original[these].astype(np.int64) - fcs_bytes, 0).astype(np.uint32)
            times = interface.unit.times_ns(packets.high[these], packets.low[these], interface.offset_s)
            times[packets.is_simple[these]] = NO_TIME
            yield FrameBatch(
                link_type=interface.link_type,
                fcs_bytes=0,
                snap_length=interface.snap_length,
                frames=self._window.gather(packets.frames_at[these], self._headers_bytes),
                captured=packets.captured[these],
                original=original,
                times_ns=times,
                interface=interface.place,
            )

    def _packets(self, positions: NDArray[np.int64], lengths: NDArray[np.int64]) -> "_Packets":
        """Return the fields of packet blocks at these positions, with corrected lengths."""
        heads = self._window.gather(positions, _FRAME_AT)
        kind, numbers, high, low, captured, original = (
            field(heads, self._word, at).astype(np.uint32)
            for at in (0, _INTERFACE_AT, _HIGH_AT, _LOW_AT, _CAPTURED_AT, _ORIGINAL_AT)
        )
        is_simple, is_old = kind == _SIMPLE, kind == _PACKET
        frame_at = np.where(is_simple, _SIMPLE_FRAME_AT, _FRAME_AT)
        room = (lengths - frame_at - _LENGTH_BYTES).astype(np.uint32)
        if is_old.any():  # a 16-bit number, followed by a count of drops
            numbers[is_old] = field(heads, np.dtype(self._order + "u2"), _INTERFACE_AT)[is_old]
            drops = field(heads, np.dtype(self._order + "u2"), _DROPS_AT)[is_old]
            if (drops != _UNKNOWN_DROPS).any():
                self._count_dropped_before(int(drops[drops != _UNKNOWN_DROPS].sum()))
        if is_simple.any():
            original[is_simple] = numbers[is_simple]
            numbers[is_simple] = high[is_simple] = low[is_simple] = 0
            captured[is_simple] = self._captured_of_simple(original[is_simple], room[is_simple])
        is_wrong = are_wrong_lengths(captured, original) | (captured > room)
        if is_wrong.any():
            self._wrong_lengths += int(np.count_nonzero(is_wrong))
            captured = np.minimum(captured, room)
            original = corrected_lengths(captured, original)
        fcs_bytes = np.full(len(kind), -1)
        options_at = frame_at + (captured.astype(np.int64) + 3) // 4 * 4
        for index in np.flatnonzero(~is_simple & (options_at + _LENGTH_BYTES < lengths)).tolist():
            position = int(positions[index])
            stop = position + int(lengths[index]) - _LENGTH_BYTES
            options = dict(self._options(position + int(options_at[index]), stop))
            fcs_bytes[index] = self._announced_fcs(options.get(_FLAGS)) or -1
            if _DROPPED_BEFORE in options and not is_old[index]:
                self._count_dropped_before(int.from_bytes(options[_DROPPED_BEFORE], self._endianness))
        return _Packets(is_simple, numbers, high, low, captured, original, positions + frame_at, fcs_bytes)

    def _captured_of_simple(self, original: NDArray[np.uint32], room: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Return the captured lengths of simple packet blocks, which do not state them; up to 3 bytes are padding."""
        snap_length = self._section[0].snap_length if self._section else NO_LIMIT
        cut = np.where((room < snap_length + 4) & (room >= snap_length), snap_length, room)
        return np.where(original <= room, original, cut).astype(np.uint32)

    def _not_described(self, frames: int) -> _Described:
        """Return a placeholder for an interface that the file does not describe, and count its `frames`."""
        self._unknown_interface += frames
        if self._undescribed is None:
            self._undescribed = len(self._interfaces)
            self._interfaces.append(Interface("not described", NO_LINK_TYPE, None, 0))
        return _Described(self._undescribed, NO_LINK_TYPE, NO_LIMIT, _Unit(), 0, 0)


def _printable(name: str) -> str:
    """Return the name with line breaks and other control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in name)


def _damage_of_length(kind: int, length: int) -> str:
    """Return the fault in the length of a block of this type; empty when it is plausible."""
    if length % 4 or not _LEAST_BYTES.get(kind, _LEAST_BLOCK_BYTES) <= length <= _MOST_BLOCK_BYTES:
        return f"a block of type {kind:#x} with a length of {length} bytes"
    return ""
