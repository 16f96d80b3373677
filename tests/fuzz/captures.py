"""Invariant of the reader of captures, for any bytes: it rejects them, or its counts are those of the file.

The number of frames up to the end or the damage of a file is determined a second time: independent code follows the
lengths of the records, one after the other, as the format's specification defines them.
"""

import json
import struct
from collections.abc import Iterator
from unittest.mock import patch

from netbench.capture import pcap, pcapng
from netbench.capture.capture_counts import CaptureCounts
from netbench.capture.counting import analyze_capture
from netbench.cli.analyze import analyze_command
from netbench.errors import UsageError
from tests.fuzz.memory import file_of
from tests.unit.capture_files import Frame, cut, stream_frame
from tests.unit.capture_files import pcap as pcap_file
from tests.unit.capture_files import pcapng as pcapng_file

# Small files are read record by record, by dpkt in pcapng; these limits make numpy read many at a time as well.
_OTHER_WAYS = ((pcap, "_SHORTEST_RUN", 2), (pcap, "_WALK_RECORDS", 1), (pcapng, "_SHORTEST_RUN", 1))
_SECTION = b"\x0a\x0d\x0d\x0a"


def check(data: bytes) -> CaptureCounts | None:
    """Return the counts of `data` as a capture file; None if it is rejected, AssertionError if they are wrong."""
    with file_of(data) as path:
        try:
            counts = analyze_capture(path)
        except UsageError as refused:
            _check_refusal(refused)
            return None
        if not data.startswith(_SECTION):
            _check_against_the_records(data, counts)
        assert counts.frames == _ours(counts) + counts.foreign_frames + counts.control_frames + counts.flush_frames
        assert all(stream.received + stream.duplicates == stream.span.frames for stream in counts.streams)
        for module, constant, value in _OTHER_WAYS:
            with patch.object(module, constant, value):
                assert analyze_capture(path) == counts, f"other counts when {constant} is {value}"
        assert json.loads(analyze_command(path, as_json=True))["frames"] == counts.frames
        assert analyze_command(path, as_json=False)
    return counts


def seeds() -> Iterator[bytes]:
    """Small files of every kind that the reader supports."""
    frames = [stream_frame(number) for number in range(4)]
    mixed = [stream_frame(0), stream_frame(1, size=1518), cut(stream_frame(2, size=90), 64), Frame(bytes(60))]
    for order in "<>":
        for some in ([], frames, mixed):
            yield pcap_file(some, order=order, nanoseconds=some is mixed)
            yield pcap_file(some, order=order, modified=True)
            yield pcapng_file(some, order=order)


def _check_refusal(error: UsageError) -> None:
    assert "\n" not in str(error), "the error is one line"


def _ours(counts: CaptureCounts) -> int:
    return sum(stream.received + stream.duplicates for stream in counts.streams)


def _check_against_the_records(data: bytes, counts: CaptureCounts) -> None:
    readable = len(data) if counts.damaged_at is None else counts.damaged_at
    found = list(_ends_of_records(data[:readable]))
    end = found[-1][0]
    assert counts.frames == sum(is_frame for _, is_frame in found)
    if counts.damaged_at is None:
        assert counts.leftover_bytes == len(data) - end
    else:
        assert end == counts.damaged_at, "what is damaged begins where the last good record ends"


def _ends_of_records(data: bytes) -> Iterator[tuple[int, bool]]:
    """The end of the file header and of every whole record of a pcap file, and whether each is a frame."""
    order = "<" if data[:1] in b"\xd4\x4d\x34" else ">"
    header = 24 if struct.unpack(order + "I", data[:4])[0] == 0xA1B2CD34 else 16
    (minor,) = struct.unpack_from(order + "H", data, 6)
    captured_at = 8 if minor >= 3 else 12  # pcap-savefile(5): the two lengths were exchanged in version 2.3
    end = 24
    yield end, False
    while end + header <= len(data):
        end += header + struct.unpack_from(order + "I", data, end + captured_at)[0]
        if end > len(data):
            return
        yield end, True
