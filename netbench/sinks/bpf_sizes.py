"""Data exchanged between bpf/programs/sink_sizes.h and netbench: the sizes of frames, and the counts of each size.

The structures match its source, field by field.
"""

from collections.abc import Mapping
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from netbench.bpf.libbpf import Loaded
from netbench.capture.capture_counts import ArrivalTimes, Span
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import MOST_CHECKSUMS

HEADER_WORDS = 32  # of 8 bytes, that are compared
MOST_PLACES = 1024  # of a genome

SHAPE = np.dtype(
    [
        *((name, "u8") for name in ("frames", "distinct")),
        *((name, "u4") for name in ("size", "first_time")),
        ("sum", "u4", MOST_CHECKSUMS),
        ("bytes", "u8", HEADER_WORDS),
    ]
)
GENOME = np.dtype([("places", "u4"), ("_", "u4"), ("shape", "u2", MOST_PLACES)])


def genome_of(frame_size: FrameSize) -> NDArray[Any]:
    """Return the `struct genome` of the program, of shape (); shapes are in the order of `FrameSize.sizes`."""
    genome: NDArray[Any] = np.zeros((), GENOME)
    genome["places"] = len(frame_size.genome)
    numbers = {size: number for number, size in enumerate(frame_size.sizes)}
    genome["shape"][: len(frame_size.genome)] = [numbers[size] for size in frame_size.genome]
    return genome


def first_times(frame_size: FrameSize, numbers: int, time_shift: int) -> list[int]:
    """Return the place of each size's first time in `times_by_size`, and the number of all its places.

    The time of every 2^`time_shift`-th frame of a size is stored, of at most `numbers` consecutive frames.
    """
    passes = -(-numbers // len(frame_size.genome))
    times = (-(-passes * frame_size.genome.count(size) >> time_shift) for size in frame_size.sizes)
    return list(accumulate(times, initial=0))


class SizeMaps:
    """The maps of a program for the sizes of frames. Order of calls for each trial: begin(); end(); the counts."""

    def __init__(self, loaded: Loaded) -> None:
        self.shapes: NDArray[Any] = np.frombuffer(loaded.map("shapes").memory(), SHAPE)
        """`struct shape` by the number of a size, of shape (sizes,)."""
        self._times = np.frombuffer(loaded.map("times_by_size").memory(), np.int64)
        self._sizes: tuple[int, ...] = ()
        self._counted: NDArray[Any] | None = None
        self._time_shift = 0

    def begin(self, frame_size: FrameSize, longer: int, numbers: int, time_shift: int) -> None:
        """Count from 0 frames of these sizes, which arrive `longer` bytes longer; `numbers` as of `first_times`."""
        self._sizes, self._time_shift, self._counted = frame_size.sizes, time_shift, None
        places = first_times(frame_size, numbers, time_shift)
        if frame_size.is_mix:
            self._times[: places[-1]] = 0
        self.shapes[:] = 0
        of_sizes = self.shapes[: len(self._sizes)]
        of_sizes["size"] = np.array(self._sizes) + longer
        of_sizes["first_time"] = places[:-1]

    def end(self) -> None:
        """Store the counts, which later frames do not change."""
        self._counted = self.shapes[: len(self._sizes)].copy()

    def span(self, first_ns: int | None, last_ns: int | None) -> Span:
        """Return the frames of the stream, copies included, which arrived between these times."""
        frames, sizes = self._ended["frames"], self._ended["size"].astype(np.uint64)
        found = sizes[frames > 0].tolist()
        total = int((frames * sizes).sum())
        return Span(int(frames.sum()), total, min(found, default=None), max(found, default=None), first_ns, last_ns)

    def arrived_by_size(self) -> Mapping[int, ArrivalTimes]:
        """Return the arrival times of the distinct frames of a mix, by size of the sent frame; empty for one size."""
        if len(self._sizes) == 1:
            return {}
        found = {}
        for size, counted in zip(self._sizes, self._ended, strict=True):
            first, distinct = int(counted["first_time"]), int(counted["distinct"])
            kept = self._times[first : first + -(-distinct >> self._time_shift)].copy()
            found[size] = ArrivalTimes.of(distinct, 1 << self._time_shift, kept)
        return found

    @property
    def _ended(self) -> Any:  # noqa: ANN401 - records of numpy's have no better type
        assert self._counted is not None, "end() comes first"
        return self._counted
