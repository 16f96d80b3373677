"""Classic pcap, from a file or a pipe: microseconds or nanoseconds, either byte order, and "modified" records.

The format is draft-ietf-opsawg-pcap; the modified one (a longer record header) is from Alexey Kuznetzov's patched
libpcap of the 1990s. Objects made for every batch are NamedTuples: creating the class and its instances costs a
fraction of a frozen dataclass, which is noticeable for short captures.
"""

from collections.abc import Iterable, Iterator, Sequence
from io import RawIOBase
from pathlib import Path
from struct import Struct
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.frames import NO_LIMIT, FrameBatch, field
from netbench.model.frame_size import FCS_BYTES
from netbench.model.traffic import NS_PER_S

FILE_HEADER_BYTES = 24
# magic -> (name, nanoseconds of one fraction, bytes of a record header)
MAGICS = {
    0xA1B2C3D4: ("pcap, microseconds", 1000, 16),
    0xA1B23C4D: ("pcap, nanoseconds", 1, 16),
    0xA1B2CD34: ("modified pcap, microseconds", 1000, 24),
}
# The bytes of a frame that are copied where records differ in length: enough for the headers of any stream of netbench,
# and of a stream in several tunnels.
PLAIN_HEADERS_BYTES, TUNNEL_HEADERS_BYTES = 112, 240

# Written files are little-endian.
_HEADER, _RECORD = Struct("<IHHiIII"), Struct("<IIII")
_VERSION, _ETHERNET = (2, 4), 1
_US_PER_S = 1_000_000
_EVIDENT_RECORDS = 50
_NO_TIME = 1 << 62

_FCS_KNOWN = 0x04000000  # in the link type field; the length is in its top four bits, in 16-bit words
_LENGTHS_AT = 8
# Before pcap 2.3, the length on the link came before the captured one.
_FIRST_UNSWAPPED = 3
_BOTH_LENGTHS = np.dtype(np.uint64)  # for comparisons only, in any byte order

# libpcap's MAXIMUM_SNAPLEN and Wireshark's WTAP_MAX_PACKET_SIZE_STANDARD: no Ethernet capture has more.
_MAX_CAPTURED = 262_144
# The largest plausible snap length; a larger one means no limit.
_MAX_SNAP_LENGTH = 1 << 24
# Segmentation offload produces "frames" of up to some hundred kilobytes, far below this.
_MAX_ORIGINAL = 1 << 24
# A run shorter than this is read faster record by record than as a separate batch.
_SHORTEST_RUN = 1024
# The number of records that one walk collects before they are analysed together.
_WALK_RECORDS = 8192
# Records of one capture are at most this far apart, also where a clock was set.
_DAY_S = 86_400

# Large enough that numpy's fixed cost per call is small compared to the work on a window, and small enough to stay in
# the cache while one column after the other is read.
WINDOW_BYTES = 1 << 22
# The first bytes of a short record are copied at full width: bytes after its end are never used.
_SLACK_BYTES = 256


class Interface(NamedTuple):
    """An interface on which frames of a file were captured.

    `name` is empty where the file has none. `snap_length` is in bytes, None where frames are not cut. `resolution_ns`
    is the unit of its time stamps.
    """

    name: str
    link_type: int
    snap_length: int | None
    resolution_ns: float


class Oddities(NamedTuple):
    """Counts of records that violate the format but were read nonetheless.

    `wrong_lengths`: a length on the link of 0, above 16 MiB or below the captured length. `invalid_fractions`: a
    fraction of a second that is a second or more. `unknown_interface`: an interface that the file does not describe.
    `small_fractions`: all records of a nanosecond file that spans seconds, but has no fraction of a million or more.
    `dropped` is the number of frames that the capturing side reports as dropped, None where it reports nothing.
    """

    wrong_lengths: int = 0
    invalid_fractions: int = 0
    unknown_interface: int = 0
    dropped: int | None = None
    small_fractions: int = 0


NO_ODDITIES = Oddities()


class Ending(NamedTuple):
    """How reading ended.

    `leftover_bytes` follow the last complete record: 0 when the file is complete. `damage` describes the first damage
    in the file, empty when there is none; `damaged_at` is its byte offset, None where it is unknown.
    """

    leftover_bytes: int = 0
    damaged_at: int | None = None
    damage: str = ""


class ReadWindow:
    """The part of a file in memory, from the first byte not yet consumed, in constant memory for any file.

    `memory[start:stop]` has the bytes, `data` is the same memory for struct, and `offset` is the offset of the
    first of them in the file. Views on the memory are valid until the next fill().
    """

    def __init__(self, file: RawIOBase, size: int = WINDOW_BYTES) -> None:
        self._file = file
        self._allocate(size)
        self.start = 0
        self.stop = 0
        self.offset = 0

    @property
    def available(self) -> int:
        """The number of bytes in memory that are not yet consumed."""
        return self.stop - self.start

    def fill(self, wanted: int) -> bool:
        """Read until at least `wanted` bytes are available; return False when the file ends before."""
        if self.available >= wanted:
            return True
        self._make_room(wanted)
        while self.available < wanted:
            count = self._file.readinto(self.data[self.stop : self._size])
            if not count:
                return False
            self.stop += count
        return True

    def consume(self, count: int) -> None:
        """Skip `count` available bytes."""
        self.start += count
        self.offset += count

    def records(self, stride: int, count: int) -> NDArray[np.uint8]:
        """Return the next `count` records of `stride` bytes each: a view, of shape (count, stride)."""
        flat = self.memory[self.start : self.start + count * stride]
        return flat.reshape(count, stride)

    def gather(self, positions: Sequence[int] | NDArray[np.int64], width: int) -> NDArray[np.uint8]:
        """Return `width` bytes, at most 256, from each position of the memory: a copy, one row per position."""
        count = len(self.memory) - width + 1
        everywhere = np.ndarray((count,), f"V{width}", self.memory, 0, (1,))
        rows = everywhere[np.array(positions, np.intp)]
        return rows.view(np.uint8).reshape(len(positions), width)

    def _make_room(self, wanted: int) -> None:
        left = self.memory[self.start : self.stop]
        if wanted > self._size:
            self._allocate(wanted)
        self.memory[: len(left)] = left
        self.start, self.stop = 0, len(left)

    def _allocate(self, size: int) -> None:
        self._size = size
        # glibc keeps freed blocks up to the size of the largest block ever freed, and returns larger ones to the kernel
        # (mallopt(3), M_MMAP_THRESHOLD). Freeing an untouched block of this size makes glibc keep the arrays of a batch
        # for the next one, which saves a page fault for every 4 KiB of them.
        np.empty(size, np.uint8)
        self.memory: NDArray[np.uint8] = np.zeros(size + _SLACK_BYTES, np.uint8)
        self.data = self.memory.data


class CaptureReader:
    """Reads one capture; `ending` and `oddities` are final once batches() is exhausted.

    `flavour` is the name of the format.
    """

    flavour: str
    ending: Ending

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The interfaces that the file describes so far."""
        raise NotImplementedError

    @property
    def oddities(self) -> Oddities:
        """Counts of records that violate the format, so far."""
        raise NotImplementedError

    def batches(self) -> Iterator[FrameBatch]:
        """Yield all frames, in the order of the file for each interface; a batch is valid until the next is requested.

        OSError when they cannot be read.
        """
        raise NotImplementedError


class PcapReader(CaptureReader):
    """Reads a classic pcap from a window at its first byte."""

    def __init__(self, window: ReadWindow, order: str, headers_bytes: int = PLAIN_HEADERS_BYTES) -> None:
        """`order` is struct's and numpy's symbol of the byte order, "<" or ">"; the header is in the window.

        Of frames in records that differ in length, `headers_bytes` are kept.
        """
        magic, major, minor, _, _, snap_length, link = Struct(order + "IHHiIII").unpack_from(window.data, window.start)
        words, self._fraction_ns, self._header = MAGICS[magic]
        self.version = (major, minor)
        self.flavour = f"{words}, {'little' if order == '<' else 'big'}-endian"
        self.link_type: int = link & 0xFFFF
        self.snap_length: int | None = snap_length or None
        self.ending = Ending()
        self._wrong_lengths = self._invalid_fractions = 0
        self._stamped = self._largest_fraction = 0
        self._earliest_ns, self._latest_ns = _NO_TIME, 0
        self._is_swapped = minor < _FIRST_UNSWAPPED
        self._captured_at, self._original_at = (
            _LENGTHS_AT + 4 * self._is_swapped,
            _LENGTHS_AT + 4 * (not self._is_swapped),
        )
        self._most_captured = max(_MAX_CAPTURED, snap_length if snap_length <= _MAX_SNAP_LENGTH else 0)
        self._gathered_bytes = self._header + headers_bytes
        self._fractions = NS_PER_S // self._fraction_ns
        self._fcs_bytes = (link >> 28) * 2 if link & _FCS_KNOWN else 0
        self._word = np.dtype(order + "u4")
        self._length = Struct(order + "I")
        self._lengths = Struct(order + "II")
        self._window = window
        window.consume(FILE_HEADER_BYTES)

    @property
    def interfaces(self) -> Sequence[Interface]:
        """The single interface, which has no name."""
        return [Interface("", self.link_type, self.snap_length, self._fraction_ns)]

    @property
    def oddities(self) -> Oddities:
        """Counts of records that violate the format, so far."""
        # Of real fractions in nanoseconds, only one in a thousand is below a million.
        are_small = self._fraction_ns == 1 and self._largest_fraction < _US_PER_S
        is_evident = self._stamped >= _EVIDENT_RECORDS and self._latest_ns - self._earliest_ns >= 2 * NS_PER_S
        small = self._stamped if are_small and is_evident else 0
        return Oddities(self._wrong_lengths, self._invalid_fractions, small_fractions=small)

    def batches(self) -> Iterator[FrameBatch]:
        """As CaptureReader.batches, in runs of equal captured length where possible."""
        window = self._window
        while window.fill(self._header):
            lengths = self._lengths.unpack_from(window.data, window.start + _LENGTHS_AT)
            captured, original = reversed(lengths) if self._is_swapped else lengths
            wrong = _wrong_lengths(captured, original, self._most_captured)
            if captured > self._most_captured or (wrong and not self._is_followed_by_a_record(captured)):
                self.ending = Ending(damaged_at=window.offset, damage=wrong)
                return
            if not window.fill(self._header + captured):
                break
            batch, consumed = (None if wrong else self._run(captured, original)) or self._walk()
            yield batch
            window.consume(consumed)
        self.ending = Ending(leftover_bytes=window.available)

    def _run(self, captured: int, original: int) -> tuple[FrameBatch, int] | None:
        """Return the run of records of this captured length at the window's start, and its bytes; None for a short run.

        The first record has been checked, and has the `original` length.
        """
        stride = self._header + captured
        most = self._window.available // stride
        rows = self._window.records(stride, most)
        lengths = field(rows, _BOTH_LENGTHS, _LENGTHS_AT)
        if (lengths == lengths[0]).all():
            return self._batch(rows, captured, np.broadcast_to(np.uint32(original), most)), most * stride
        count = leading(field(rows, self._word, self._captured_at) == captured)
        if count < min(most, _SHORTEST_RUN):
            return None
        originals = field(rows[:count], self._word, self._original_at).astype(np.uint32)
        count = leading(_are_sensible(captured, originals, self._most_captured))
        return self._batch(rows[:count], captured, originals[:count]), count * stride

    def _is_followed_by_a_record(self, captured: int) -> bool:
        """Return whether a plausible record, or the end of the file, follows the record at the window's start.

        The lengths of this record are wrong, except possibly the captured one.
        """
        window = self._window
        rows = window.records(self._header, 1).copy()
        if not window.fill(2 * self._header + captured):
            return bool(rows.any())
        following = window.gather([window.start + self._header + captured], self._header)
        return bool(self._can_follow(rows, following)[0])

    def _can_follow(self, rows: NDArray[np.uint8], following: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Return whether `rows` can be record headers, as `following` are plausible headers of the next records."""
        captured, original = (field(following, self._word, at) for at in (self._captured_at, self._original_at))
        seconds, before = (field(headers, self._word, 0).astype(np.int64) for headers in (following, rows))
        is_good = (original > 0) & (original >= captured) & (original <= _MAX_ORIGINAL)
        is_good |= np.abs(seconds - before) <= _DAY_S
        for headers in (rows, following):  # headers of zeros come from blocks that were never written
            is_good &= headers[:, : self._header].any(axis=1)
        is_record: NDArray[np.bool_] = is_good & (captured <= self._most_captured)
        return is_record

    def _walk(self) -> tuple[FrameBatch, int]:
        """Return records of any length, read one by one, and their bytes; the first has been checked."""
        window, data, unpack = self._window, self._window.data, self._length.unpack_from
        positions: list[int] = []
        position, last = window.start, window.stop - self._header
        while position <= last and len(positions) < _WALK_RECORDS:
            following = position + self._header + unpack(data, position + self._captured_at)[0]
            if following > window.stop:
                break
            positions.append(position)
            position = following
        positions.append(position)
        rows = window.gather(positions[:-1], self._gathered_bytes)
        captured = field(rows, self._word, self._captured_at).astype(np.uint32)
        original = field(rows, self._word, self._original_at).astype(np.uint32)
        is_sensible = _are_sensible(captured, original, self._most_captured)
        count = len(rows)
        if not is_sensible.all():
            can_be_read = is_sensible.copy()
            can_be_read[:-1] |= self._can_follow(rows[:-1], rows[1:])
            can_be_read &= captured <= self._most_captured
            count = max(1, leading(can_be_read))
            is_wrong = ~is_sensible[:count]
            self._wrong_lengths += int(np.count_nonzero(is_wrong))
            is_possible = (original > 0) & (original <= _MAX_ORIGINAL)
            original = np.where(is_possible, original, captured)
        batch = self._batch(rows[:count], captured[:count], original[:count])
        return batch, positions[count] - window.start

    def _batch(
        self, rows: NDArray[np.uint8], captured: int | NDArray[np.uint32], original: NDArray[np.uint32]
    ) -> FrameBatch:
        return FrameBatch(
            link_type=self.link_type,
            fcs_bytes=self._fcs_bytes,
            snap_length=self.snap_length or NO_LIMIT,
            frames=rows[:, self._header :],
            captured=captured,
            original=original,
            times_ns=self._times(rows),
        )

    def _times(self, rows: NDArray[np.uint8]) -> NDArray[np.int64]:
        times: NDArray[np.int64] = field(rows, self._word, 0).astype(np.int64)
        times *= 1_000_000_000
        fraction = field(rows, self._word, 4).astype(np.int64)
        largest = int(fraction.max())
        self._stamped += len(fraction)
        self._largest_fraction = max(self._largest_fraction, largest)
        self._earliest_ns = min(self._earliest_ns, int(times[0]), int(times[-1]))
        self._latest_ns = max(self._latest_ns, int(times[0]), int(times[-1]))
        if largest >= self._fractions:
            self._invalid_fractions += int(np.count_nonzero(fraction >= self._fractions))
        if self._fraction_ns != 1:
            fraction *= self._fraction_ns
        times += fraction
        return times


def pcap_bytes(frames: int, frame_size: int, snap_length: int) -> int:
    """Return the bytes of a file of `frames` frames; `frame_size` includes the FCS, `snap_length` does not."""
    _, _, record_header = MAGICS[0xA1B2C3D4]
    return FILE_HEADER_BYTES + frames * (record_header + min(snap_length, frame_size - FCS_BYTES))


def write_pcap(path: Path, frames: Iterable[tuple[int, int, bytes]], snap_length: int) -> None:
    """Write a file of frames: arrival time (ns since 1970), length in bytes without FCS, and first bytes of each."""
    with path.open("wb") as file:
        file.write(_HEADER.pack(0xA1B23C4D, *_VERSION, 0, 0, _MAX_CAPTURED, _ETHERNET))
        for at_ns, length, data in frames:
            kept = data[: min(length, snap_length)]
            seconds, ns = divmod(at_ns, NS_PER_S)
            file.write(_RECORD.pack(seconds, ns, len(kept), length) + kept)


def corrected_length(captured: int, original: int) -> int:
    """Return the length on the link; the captured length where the stated one is impossible."""
    return original if 0 < original <= _MAX_ORIGINAL else captured


def is_wrong_length(captured: int, original: int) -> bool:
    """Return whether the length on the link is impossible."""
    return bool(_wrong_lengths(captured, original, _MAX_CAPTURED))


def are_wrong_lengths(captured: int | NDArray[np.uint32], original: NDArray[np.uint32]) -> NDArray[np.bool_]:
    """Return whether the length on the link is impossible, of shape (count,)."""
    return ~_are_sensible(captured, original, _MAX_CAPTURED)


def _wrong_lengths(captured: int, original: int, most_captured: int) -> str:
    """Return the fault in the two lengths of a record; empty when they are plausible."""
    if captured > most_captured:
        return f"a captured length of {captured} bytes, more than any capture tool writes ({most_captured})"
    if not 0 < original <= _MAX_ORIGINAL:
        return f"a frame of {original} bytes"
    if captured > original:
        return f"{captured} bytes captured of a frame of {original}"
    return ""


def _are_sensible(
    captured: NDArray[np.uint32] | int, original: NDArray[np.uint32], most_captured: int
) -> NDArray[np.bool_]:
    """Return whether _wrong_lengths() finds no fault, of shape (count,)."""
    are_sensible: NDArray[np.bool_] = (
        (captured <= most_captured) & (original >= np.maximum(captured, 1)) & (original <= _MAX_ORIGINAL)
    )
    return are_sensible


def leading(condition: NDArray[np.bool_]) -> int:
    """Return how many leading elements are true."""
    return len(condition) if condition.all() else int(condition.argmin())
