"""What must hold of the reader of captures, whatever the bytes: it refuses them, or its counts are those of the file.

How many frames there are up to where a file ends or is damaged is found a second time, by following the lengths
of its records as the formats' specifications say, one after the other and with nothing else in common.
"""

import json
import struct
from collections.abc import Iterator
from unittest.mock import patch

from netbench.capture import pcap, pcapng
from netbench.capture.captured import CaptureCounts
from netbench.capture.counting import analyze_capture
from netbench.cli.analyze import analyze_command
from netbench.errors import UsageError
from tests.fuzz.memory import file_of
from tests.unit.capture_files import Blocks, Frame, cut, stream_frame
from tests.unit.capture_files import pcap as pcap_file
from tests.unit.capture_files import pcapng as pcapng_file

_PACKET_BLOCKS = (2, 3, 6)
# Files that are small take the reader's way for a few frames; so they do take the one for many of one length, too.
_OTHER_WAYS = (("SHORTEST_RUN", 2), ("WALK_RECORDS", 1))
_SECTION = b"\x0a\x0d\x0d\x0a"


def check(data: bytes) -> CaptureCounts | None:
    """Analyse `data` as a capture file; its counts, None when it is refused, AssertionError when they are wrong."""
    with file_of(data) as path:
        try:
            counts = analyze_capture(path)
        except UsageError as refused:
            _check_refusal(refused)
            return None
        _check_against_the_records(data, counts)
        assert counts.frames == _ours(counts) + counts.foreign_frames + counts.flush_frames
        assert all(stream.received + stream.duplicates == stream.span.frames for stream in counts.streams)
        for constant, value in _OTHER_WAYS:
            with patch.object(pcap, constant, value), patch.object(pcapng, constant, value):
                assert analyze_capture(path) == counts, f"other counts when {constant} is {value}"
        assert json.loads(analyze_command(path, as_json=True))["frames"] == counts.frames
        assert analyze_command(path, as_json=False)
    return counts


def seeds() -> Iterator[bytes]:
    """Files of every kind that the reader knows, small."""
    frames = [stream_frame(number) for number in range(4)]
    mixed = [stream_frame(0), stream_frame(1, size=1518), cut(stream_frame(2, size=90), 64), Frame(bytes(60))]
    for order in "<>":
        for some in ([], frames, mixed):
            yield pcap_file(some, order=order, nanoseconds=some is mixed)
            yield pcap_file(some, order=order, modified=True)
            yield pcapng_file(some, order=order)
        blocks = Blocks(order)
        described = blocks.section() + blocks.interface(resolution=9, offset_s=3600, fcs=4, snap=64)
        packets = blocks.enhanced(frames[0]) + blocks.simple(frames[1]) + blocks.obsolete(frames[2])
        statistics = blocks.block(
            5, struct.pack(order + "III", 0, 0, 0) + blocks.option(5, struct.pack(order + "Q", 7))
        )
        yield described + packets + statistics + described + packets


def _check_refusal(error: UsageError) -> None:
    assert "\n" not in str(error), "one line says what is wrong"


def _ours(counts: CaptureCounts) -> int:
    return sum(stream.received + stream.duplicates for stream in counts.streams)


def _check_against_the_records(data: bytes, counts: CaptureCounts) -> None:
    readable = len(data) if counts.damaged_at is None else counts.damaged_at
    ends = _ends_of_blocks(data[:readable]) if data.startswith(_SECTION) else _ends_of_records(data[:readable])
    found = list(ends) or [(0, False)]
    end = found[-1][0]
    assert counts.frames == sum(is_frame for _, is_frame in found)
    if counts.damaged_at is None:
        assert counts.leftover_bytes == len(data) - end
    else:
        assert end == counts.damaged_at, "what is damaged begins where the last good record ends"


def _ends_of_records(data: bytes) -> Iterator[tuple[int, bool]]:
    """Of the file header and every whole record of a pcap file: where it ends, and whether it is a frame."""
    order = "<" if data[:1] in b"\xd4\x4d\x34" else ">"
    header = 24 if struct.unpack(order + "I", data[:4])[0] == 0xA1B2CD34 else 16
    end = 24
    yield end, False
    while end + header <= len(data):
        end += header + struct.unpack_from(order + "I", data, end + 8)[0]
        if end > len(data):
            return
        yield end, True


def _ends_of_blocks(data: bytes) -> Iterator[tuple[int, bool]]:
    """Of every whole block of a pcapng file: where it ends, and whether it is a frame."""
    order, end = "<", 0
    while end + 12 <= len(data):
        if data[end : end + 4] == _SECTION:
            order = "<" if data[end + 8] == 0x4D else ">"
        kind, length = struct.unpack_from(order + "II", data, end)
        end += length
        if end > len(data):
            return
        yield end, kind in _PACKET_BLOCKS
