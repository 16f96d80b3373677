"""Blocks of test frames, copied from a template and stamped in place before they are sent."""

import numpy as np
import numpy.typing as npt

from netbench.model.frame_size import FCS_BYTES
from netbench.model.frame_template import FrameTemplate
from netbench.model.traffic import Traffic
from netbench.packets.flow_values import flow_bytes

Buffer = npt.NDArray[np.uint8]
Words = npt.NDArray[np.unsignedinteger]


class FrameBlock:
    """A block of `capacity` frames in one buffer; each stamp renumbers some consecutive rows.

    `buffer` has one frame per row, in shape (rows, bytes of the largest frame without FCS). Frame r is the first
    `lengths[r]` bytes of row r. All frames have one size, or row r has size number r of a mix. A mix needs more rows
    than `capacity`, so that `capacity` consecutive rows exist from any position of its genome.
    """

    def __init__(self, traffic: Traffic, capacity: int, template: FrameTemplate) -> None:
        genome = traffic.frame_size.genome
        rows = capacity + len(genome) - 1
        largest = max(map(len, template.frames.values()))
        padded = {size: np.frombuffer(frame.ljust(largest, b"\0"), np.uint8) for size, frame in template.frames.items()}
        self._repeats = len(genome)
        self.buffer: Buffer = np.array([padded[genome[row % len(genome)]] for row in range(rows)])
        self.lengths = [genome[row % len(genome)] - FCS_BYTES for row in range(rows)]
        self._offsets = np.arange(capacity, dtype=np.uint32)
        self._sequence = self._words(template.sequence_at, ">u4")
        # Seconds and microseconds of the time are written as one word.
        self._time = self._words(template.time_at, ">u8")
        self._complement = None if template.complement_at is None else self._words(template.complement_at, ">u2")
        self._flows = template.flows
        varying = flow_bytes(template)
        self._flow_words = [
            (self._words(at, "=u4"), np.ascontiguousarray(varying.words[:, number]))
            for number, at in enumerate(varying.words_at)
        ]
        self._flow_sums = [
            (checksum := self._words(at, ">u2"), ~checksum.astype(np.uint32) & 0xFFFF, sums.astype(np.uint32), is_udp)
            for at, sums, is_udp in zip(varying.sums_at, varying.sums.T, varying.udp_sums, strict=True)
        ]

    def stamp(self, first: int, count: int, time_ns: int) -> int:
        """Number and stamp `count` rows from frame `first`, sent at `time_ns` (CLOCK_REALTIME); return the first row.

        Frame i belongs to flow i mod flows. The sequence wraps at 2³², as pktgen's does.
        """
        row = first % self._repeats
        rows = slice(row, row + count)
        sequence = self._offsets[:count] + np.uint32(first & 0xFFFFFFFF)
        self._sequence[rows] = sequence
        seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
        microseconds = nanoseconds // 1_000
        self._time[rows] = seconds << 32 | microseconds
        if self._complement is not None:
            of_time = sum(
                number >> 16 & 0xFFFF for number in (seconds, microseconds, seconds << 16, microseconds << 16)
            )
            self._complement[rows] = 0xFFFF ^ _folded((sequence >> 16) + (sequence & 0xFFFF) + np.uint32(of_time))
        if self._flows > 1:
            flows = (first % self._flows + self._offsets[:count]) % self._flows
            for words, of_flows in self._flow_words:
                words[rows] = of_flows[flows]
            for checksum, complements, sums, is_udp in self._flow_sums:
                value = 0xFFFF ^ _folded(complements[rows] + sums[flows])
                if is_udp:
                    value[value == 0] = 0xFFFF
                checksum[rows] = value
        return row

    def _words(self, offset: int, dtype: str) -> Words:
        """Return the word at `offset` of every frame, as a view of the buffer."""
        return self.buffer[:, offset : offset + np.dtype(dtype).itemsize].view(dtype)[:, 0]


def _folded(sums: npt.NDArray[np.uint32]) -> npt.NDArray[np.uint32]:
    """Return sums of 16-bit words as one's complement sums of 16 bits (RFC 1071)."""
    sums = (sums & 0xFFFF) + (sums >> 16)
    return (sums & 0xFFFF) + (sums >> 16)
