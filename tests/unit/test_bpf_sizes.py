"""The maps of the sink bpf's program for the sizes of frames; the program itself needs root."""

import mmap
from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from netbench.bpf.libbpf import Loaded
from netbench.model.frame_size import IMIX, IMIX_V6, FrameSize
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.bpf_sizes import MOST_PLACES, SHAPE, SizeMaps, first_times, genome_of

MINE = FrameSize("mine", (1518, 64, 594, 64))
MANY = FrameSize("many", tuple(range(64, 64 + MOST_PLACES)))
ONE = FrameSize.of(64)


def maps(room: Capacity) -> SizeMaps:
    sizes = {"shapes": room.sizes * SHAPE.itemsize, "times_by_size": room.times_by_size * 8}
    memories = {name: mmap.mmap(-1, size) for name, size in sizes.items()}
    found: Any = SimpleNamespace(map=lambda name: SimpleNamespace(memory=lambda: memories[name]))
    return SizeMaps(cast(Loaded, found))


@pytest.mark.parametrize("frame_size", [ONE, IMIX, IMIX_V6, MINE, MANY], ids=str)
def test_the_genome_leads_to_the_size_of_each_number(frame_size):
    genome = genome_of(frame_size)
    places = int(genome["places"])
    for number in (0, 1, 11, 12, 1023, 1024, 2**33 + 5):
        shape = int(genome["shape"][number % places])
        assert frame_size.sizes[shape] == frame_size.genome[number % len(frame_size.genome)]


@pytest.mark.parametrize("frame_size", [IMIX, IMIX_V6, MINE, MANY], ids=str)
@pytest.mark.parametrize("frames", [1, 1 << 16, 3_000_000, 1 << 25])
def test_the_times_of_all_sizes_have_room_one_after_the_other(frame_size, frames):
    room = Capacity.needed(frames, 1.0, 0, sizes=len(frame_size.sizes))
    places = first_times(frame_size, room.numbers, room.time_shift)
    assert places[-1] <= room.times_by_size
    for start in (0, 5):
        most = frame_size.frames_by_size(range(start, start + room.numbers))
        for size, first, following in zip(frame_size.sizes, places, places[1:], strict=False):
            assert -(-most[size] >> room.time_shift) <= following - first


@pytest.mark.parametrize("frame_size", [ONE, MINE], ids=str)
@pytest.mark.parametrize("longer", [0, 50, -4])
def test_the_counts_of_each_size_are_read_as_the_program_writes_them(frame_size, longer):
    """Of 100 numbers every third is lost, and every fifth arrives twice, at a time of 10 ns times its number."""
    room = Capacity.needed(100, 1.0, 0, sizes=len(MINE.sizes))
    read, genome = maps(room), genome_of(frame_size)
    read.shapes["frames"] = 77  # of the trial before
    read.begin(frame_size, longer, room.numbers, room.time_shift)
    for number in (number for number in range(100) if number % 3):
        shape = read.shapes[int(genome["shape"][number % int(genome["places"])])]
        if frame_size.is_mix:
            read._times[int(shape["first_time"]) + int(shape["distinct"])] = 10 * number
        shape["distinct"] += 1
        shape["frames"] += 1 + (number % 5 == 0)
    read.end()
    read.shapes["frames"] = 99  # a frame that comes later

    copies = [number for number in range(100) if number % 3 for _ in range(1 + (number % 5 == 0))]
    sizes = [frame_size.genome[number % len(frame_size.genome)] for number in copies]
    span = read.span(0, 990)
    assert (span.frames, span.total_bytes) == (len(copies), sum(sizes) + longer * len(copies))
    assert (span.smallest, span.largest) == (min(sizes) + longer, max(sizes) + longer)
    before_500 = Counter(size for number, size in zip(copies, sizes, strict=True) if number < 50)
    doubled = Counter(size for number, size in zip(copies, sizes, strict=True) if number < 50 and not number % 5)
    assert {size: times.before(500) for size, times in read.arrived_by_size().items()} == (
        {size: before_500[size] - doubled[size] // 2 for size in MINE.sizes} if frame_size.is_mix else {}
    )


def test_a_size_of_which_no_frame_arrived_is_not_in_the_span():
    read = maps(Capacity(1 << 16, 1, 0, 3))
    read.begin(MINE, 0, 1 << 16, 0)
    read.end()
    assert (read.span(None, None).smallest, read.span(None, None).frames) == (None, 0)
    read.begin(MINE, 0, 1 << 16, 0)
    read.shapes["frames"][1] = 4
    read.end()
    assert (read.span(0, 1).smallest, read.span(0, 1).largest) == (594, 594)
    assert np.all([times.frames == 0 for times in read.arrived_by_size().values()])
