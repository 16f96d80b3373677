"""Files larger than the read window: the place where the window ends changes nothing."""

import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from netbench.capture.counting import analyze_capture
from netbench.capture.pcap import FILE_HEADER_BYTES, PcapReader, ReadWindow
from tests.unit.capture_files import Frame, cut, pcap, pcapng, stream_frame


def read_all(content: bytes, window_bytes: int) -> list[tuple[bytes, int]]:
    """The first 58 bytes and the original length of every frame, read through a small window."""
    window = ReadWindow(io.FileIO(in_memory(content)), window_bytes)
    window.fill(FILE_HEADER_BYTES)
    reader = PcapReader(window, "<")
    frames: list[tuple[bytes, int]] = []
    for batch in reader.batches():
        frames += zip(map(bytes, batch.frames[:, :58]), batch.original.tolist(), strict=True)
    assert reader.ending.leftover_bytes == 0
    assert reader.ending.damaged_at is None
    return frames


def in_memory(content: bytes) -> int:
    """Return the descriptor of a nameless file with `content`."""
    descriptor = os.memfd_create("capture")
    os.write(descriptor, content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def patterns() -> dict[str, list[Frame]]:
    rng = random.Random(5)
    runs = [size for size in (64, 65, 64, 500, 64, 1518, 90) for _ in range(rng.choice([1, 3, 1100, 1500]))]
    return {
        "one size": [stream_frame(i) for i in range(3000)],
        "runs": [stream_frame(i, size=size) for i, size in enumerate(runs)],
        "alternating": [stream_frame(i, size=(64, 1518)[i % 2]) for i in range(1500)],
        "random": [stream_frame(i, size=rng.randrange(64, 1519)) for i in range(1500)],
        "a long run, then others": [stream_frame(i, size=64 if i < 2500 else 66) for i in range(2700)],
    }


@pytest.mark.parametrize("window_bytes", [1600, 1601, 4096, 100_003])
@pytest.mark.parametrize("pattern", patterns())
def test_frames_do_not_depend_on_where_the_window_ends(pattern: str, window_bytes: int) -> None:
    frames = patterns()[pattern]
    assert read_all(pcap(frames), window_bytes) == [(frame.data[:58], frame.length) for frame in frames]


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_runs_that_cross_the_edge_of_the_real_window(tmp_path: Path, write: Callable[..., bytes]) -> None:
    """More than one window full, in runs of several lengths, with a foreign frame amid each."""
    sizes = [64] * 60_000 + [66] * 30_000 + [64, 1000] * 5_000 + [1500] * 3_000
    frames = [cut(stream_frame(i, size=size), 96) for i, size in enumerate(sizes)]
    for place in (100, 55_190, 70_000, 95_000, 101_000):
        frames[place] = frames[place]._replace(data=frames[place].data[:42] + bytes(16))
    path = tmp_path / "capture"
    path.write_bytes(write(frames, snap=96))
    counts = analyze_capture(path)
    (stream,) = counts.streams
    assert (counts.frames, counts.foreign_frames) == (len(sizes), 5)
    assert (stream.received, stream.missing, stream.loss_runs, stream.longest_loss_run) == (
        len(sizes) - 5,
        5,
        5,
        1,
    )
    assert (stream.duplicates, stream.reordered) == (0, 0)
    assert counts.span.total_bytes == sum(sizes)
