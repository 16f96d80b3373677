"""Classic pcap files: microseconds or nanoseconds, either byte order, and the "modified" record header.

The format is draft-ietf-opsawg-pcap; the modified one (a longer record header) is Alexey Kuznetzov's
patched libpcap of the 1990s.
"""

from collections.abc import Iterator
from struct import Struct

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
from netbench.capture.tick_clocks import SecondsClock
from netbench.capture.window import Window

FILE_HEADER_BYTES = 24
# magic -> (words for it, nanoseconds of one fraction, bytes of a record header)
MAGICS = {
    0xA1B2C3D4: ("pcap, microseconds", 1000, 16),
    0xA1B23C4D: ("pcap, nanoseconds", 1, 16),
    0xA1B2CD34: ("modified pcap, microseconds", 1000, 24),
}

_FCS_KNOWN = 0x04000000  # in the link type field; the length is in its top four bits, in 16-bit words
_CAPTURED_AT = 8
_ORIGINAL_AT = 12


class PcapReader:
    """Reads one classic pcap file from a window that stands on the file's first byte."""

    def __init__(self, window: Window, order: str) -> None:
        """`order` is struct's and numpy's sign of the byte order, "<" or ">"; the header is in the window."""
        magic, major, minor, _, _, snap_length, link = Struct(order + "IHHiIII").unpack_from(window.data, window.start)
        words, fraction_ns, self._header = MAGICS[magic]
        self.version = (major, minor)
        self.flavour = f"{words}, {'little' if order == '<' else 'big'}-endian"
        self.link_types: tuple[int, ...] = (link & 0xFFFF,)
        self.snap_length: int | None = snap_length or None
        self.dropped: int | None = None
        self.unknown_blocks: dict[int, int] = {}
        self.ending = Ending()
        self._fcs_bytes = (link >> 28) * 2 if link & _FCS_KNOWN else 0
        self._clock = SecondsClock(fraction_ns)
        self._word = np.dtype(order + "u4")
        self._length = Struct(order + "I")
        self._lengths = Struct(order + "II")
        self._window = window
        window.consume(FILE_HEADER_BYTES)

    def batches(self) -> Iterator[FrameBatch]:
        """All frames, in runs of one captured length where there are any."""
        window = self._window
        while window.fill(self._header):
            captured, original = self._lengths.unpack_from(window.data, window.start + _CAPTURED_AT)
            damage = nonsense(captured, original)
            if damage:
                self.ending = Ending(damaged_at=window.offset, damage=damage)
                return
            if not window.fill(self._header + captured):
                break
            batch, consumed = self._run(captured) or self._walk()
            yield batch
            window.consume(consumed)
        self.ending = Ending(leftover_bytes=window.available)

    def _run(self, captured: int) -> tuple[FrameBatch, int] | None:
        """The records from here on that have this captured length; None for a few."""
        stride = self._header + captured
        most = self._window.available // stride
        rows = records(self._window, stride, most)
        count = leading(field(rows, self._word, _CAPTURED_AT) == captured)
        if count < min(most, SHORTEST_RUN):
            return None
        original = field(rows[:count], self._word, _ORIGINAL_AT).astype(np.uint32)
        count = sensible(captured, original)
        return self._batch(rows[:count], captured, original[:count]), count * stride

    def _walk(self) -> tuple[FrameBatch, int]:
        """Records of any length, followed one by one; the first is known to be good."""
        window, data, unpack = self._window, self._window.data, self._length.unpack_from
        positions: list[int] = []
        position, last = window.start, window.stop - self._header
        while position <= last and len(positions) < WALK_RECORDS:
            following = position + self._header + unpack(data, position + _CAPTURED_AT)[0]
            if following > window.stop:
                break
            positions.append(position)
            position = following
        positions.append(position)
        rows = gather(window, positions[:-1])
        captured = field(rows, self._word, _CAPTURED_AT).astype(np.uint32)
        original = field(rows, self._word, _ORIGINAL_AT).astype(np.uint32)
        count = sensible(captured, original)
        batch = self._batch(rows[:count], captured[:count], original[:count])
        return batch, positions[count] - window.start

    def _batch(
        self, rows: NDArray[np.uint8], captured: int | NDArray[np.uint32], original: NDArray[np.uint32]
    ) -> FrameBatch:
        return FrameBatch(
            link_type=self.link_types[0],
            fcs_bytes=self._fcs_bytes,
            snap_length=self.snap_length or NO_LIMIT,
            frames=rows[:, self._header :],
            captured=captured,
            original=original,
            times_ns=self._clock.nanoseconds(field(rows, self._word, 0), field(rows, self._word, 4)),
        )
