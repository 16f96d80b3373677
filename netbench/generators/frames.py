"""Blocks of test frames, copied from a template and stamped in place before they are sent."""

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from netbench.generators.frame_template import FrameTemplate, flow_pairs
from netbench.model.frame_size import FCS_BYTES
from netbench.model.traffic import Traffic

Ports = npt.NDArray[np.uint16]
Buffer = npt.NDArray[np.uint8]


@lru_cache(maxsize=4)
def flow_ports(flows: int, seed: int) -> Ports:
    """Return the ports of flow_pairs() as an array: shape (flows, 2), read-only."""
    ports = np.array(list(flow_pairs(flows, seed)), dtype=np.uint16)
    ports.flags.writeable = False
    return ports


class FrameBlock:
    """A block of `capacity` frames in one buffer; each stamp renumbers some consecutive rows.

    `buffer` has one frame per row, in shape (rows, bytes of the largest frame without FCS). Frame r is the first
    `lengths[r]` bytes of row r. All frames have one size, or row r has size number r of a mix. A mix needs more rows
    than `capacity`, so that `capacity` consecutive rows exist from any position of its genome.
    """

    def __init__(self, traffic: Traffic, capacity: int, template: FrameTemplate | None = None) -> None:
        """`template` is the one that the worker received; None builds it here, which needs scapy on this host."""
        template = template or FrameTemplate.of(traffic)
        genome = traffic.frame_size.genome
        rows = capacity + len(genome) - 1
        largest = max(genome) - FCS_BYTES
        padded = {size: np.frombuffer(frame.ljust(largest, b"\0"), np.uint8) for size, frame in template.frames.items()}
        self._repeats = len(genome)
        self.buffer: Buffer = np.array([padded[genome[row % len(genome)]] for row in range(rows)])
        self.lengths = [genome[row % len(genome)] - FCS_BYTES for row in range(rows)]
        self._offsets = np.arange(capacity, dtype=np.uint32)
        # Both ports of a flow, and seconds and microseconds of the time, are written as one word each.
        self._ports = self._words(template.ports_at, ">u4")
        self._sequence = self._words(template.sequence_at, ">u4")
        self._time = self._words(template.time_at, ">u8")
        self._flow_words = flow_ports(traffic.flows, traffic.seed).astype(">u2").view(">u4")[:, 0]

    def stamp(self, first: int, count: int, time_ns: int) -> int:
        """Number and stamp `count` rows from frame `first`, sent at `time_ns` (CLOCK_REALTIME); return the first row.

        Frame i belongs to flow i mod flows. The sequence wraps at 2³², as pktgen's does.
        """
        row = first % self._repeats
        rows = slice(row, row + count)
        self._sequence[rows] = self._offsets[:count] + np.uint32(first & 0xFFFFFFFF)
        seconds, nanoseconds = divmod(time_ns, 1_000_000_000)
        self._time[rows] = seconds << 32 | nanoseconds // 1_000
        flows = len(self._flow_words)
        if flows > 1:
            self._ports[rows] = self._flow_words[(first % flows + self._offsets[:count]) % flows]
        return row

    def _words(self, offset: int, dtype: str) -> npt.NDArray[np.unsignedinteger]:
        """Return the word at `offset` of every frame, as a view of the buffer."""
        return self.buffer[:, offset : offset + np.dtype(dtype).itemsize].view(dtype)[:, 0]
