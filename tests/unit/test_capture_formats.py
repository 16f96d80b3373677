"""Every kind of capture file, against dpkt and scapy reading the same file."""

import shutil
import struct
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

from netbench.capture.captured import CaptureCounts
from netbench.capture.counting import analyze_capture
from tests.unit.capture_files import START_NS, Blocks, Frame, cut, ethernet, pcap, pcapng, stream_frame, udp

MS = 1_000_000


def traffic(count: int = 2500, sizes: tuple[int, ...] = (64,), **options: Any) -> list[Frame]:
    """Frames of two streams with a loss, a duplicate and a late one, and some that are not pktgen's."""
    numbers = [*range(count // 2), *range(count // 2 + 5, count + 5)]
    numbers[100:100] = [99]
    numbers[300], numbers[310] = numbers[310], numbers[300]
    frames = []
    for i, number in enumerate(numbers):
        sent = START_NS + i * 10_000
        size = sizes[i % len(sizes)]
        frames.append(stream_frame(number, size=size, sent_ns=sent, ports=(9 + i % 7, 9), **options))
        if i % 50 == 0:
            frames.append(Frame(ethernet(bytes(46), ether_type=0x0806), sent + 6000))
        if i % 3 == 0:
            frames.append(stream_frame(i, size=size, sent_ns=sent, src="198.18.0.3", dst="198.18.0.4"))
    return frames


def dpkt_counts(path: Path) -> tuple[Counter[tuple[str, str, int]], int]:
    """How often each (source, destination, sequence) occurs, and how many frames are in the file."""
    with path.open("rb") as file:
        packets = [data for _, data in dpkt.pcap.UniversalReader(file)]
    found: Counter[tuple[str, str, int]] = Counter()
    for data in packets:
        ip = dpkt.ethernet.Ethernet(data).data
        if isinstance(ip, dpkt.ip.IP) and isinstance(ip.data, dpkt.udp.UDP):
            payload = bytes(ip.data.data)
            if payload[:4] == bytes.fromhex("be9be955"):
                source, target = (".".join(map(str, address)) for address in (ip.src, ip.dst))
                found[source, target, int.from_bytes(payload[4:8], "big")] += 1
    return found, len(packets)


def assert_agrees_with_dpkt(path: Path) -> CaptureCounts:
    counts = analyze_capture(path)
    found, total = dpkt_counts(path)
    assert counts.frames == total
    assert counts.foreign_frames == total - sum(found.values())
    assert {(s.src_ip, s.dst_ip) for s in counts.streams} == {(source, target) for source, target, _ in found}
    for stream in counts.streams:
        of_stream = {k[2]: n for k, n in found.items() if k[:2] == (stream.src_ip, stream.dst_ip)}
        assert stream.received == len(of_stream)
        assert stream.duplicates == sum(of_stream.values()) - len(of_stream)
        assert (stream.min_seq, stream.max_seq) == (min(of_stream), max(of_stream))
        assert stream.missing == max(of_stream) - min(of_stream) + 1 - len(of_stream)
    return counts


@pytest.mark.parametrize("sizes", [(64,), (64, 590, 1518, 65, 66, 67, 64)], ids=["one size", "mixed sizes"])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("form", ["us", "ns", "pcapng"])
def test_every_form_and_byte_order(tmp_path: Path, form: str, order: str, sizes: tuple[int, ...]) -> None:
    frames = traffic(sizes=sizes)
    path = tmp_path / "capture"
    path.write_bytes(
        pcapng(frames, order=order) if form == "pcapng" else pcap(frames, order=order, nanoseconds=form == "ns")
    )
    counts = assert_agrees_with_dpkt(path)
    first, second = counts.streams
    assert (first.received, first.missing, first.loss_runs, first.longest_loss_run) == (2500, 5, 1, 5)
    assert (first.duplicates, first.reordered) == (1, 10)
    assert (second.missing, second.duplicates, second.reordered) == (
        2500 // 3 * 3 - second.received + 1,
        0,
        0,
    )
    assert counts.span.first_ns == START_NS + 5000
    assert counts.span.last_ns == max(frame.time_ns for frame in frames) // 1000 * 1000
    assert first.delay is not None
    assert (first.delay.smallest_ns, first.delay.mean_ns, first.delay.largest_ns) == (5000, 5000.0, 5000)
    assert counts.span.total_bytes == sum(frame.length + 4 for frame in frames)
    assert {first.span.smallest, first.span.largest} == {min(sizes), max(sizes)}
    assert not counts.truncated
    assert counts.damaged_at is None
    assert counts.odd_length_frames == 0
    assert ("little" if order == "<" else "big") in counts.flavour


@pytest.mark.parametrize("snap", [58, 60, 64, 96])
@pytest.mark.parametrize("write", [pcap, pcapng])
def test_frames_cut_at_the_snap_length(tmp_path: Path, write: Callable[..., bytes], snap: int) -> None:
    path = tmp_path / "capture"
    whole = traffic(sizes=(64, 590, 1518))
    path.write_bytes(write([cut(frame, snap) for frame in whole], snap=snap))
    counts = assert_agrees_with_dpkt(path)
    reader = (RawPcapReader if write is pcap else RawPcapNgReader)(str(path))
    assert counts.span.total_bytes == sum(metadata.wirelen + 4 for _, metadata in reader)
    assert counts.snap_length == snap
    assert counts.odd_length_frames == 0
    assert counts.streams[0].span.largest == 1518


def test_frames_cut_below_the_snap_length_are_told(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    frames = [
        stream_frame(0),
        cut(stream_frame(1, size=200), 96),
        stream_frame(2),
        cut(stream_frame(3, size=200), 90),
    ]
    path.write_bytes(pcap(frames, snap=96))
    counts = analyze_capture(path)
    assert (counts.frames, counts.streams[0].received, counts.odd_length_frames) == (4, 4, 1)


def test_the_modified_record_header(tmp_path: Path) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap(traffic(), modified=True))
    counts = analyze_capture(path)
    assert counts.flavour == "modified pcap, microseconds, little-endian"
    assert (counts.streams[0].received, counts.streams[0].missing) == (2500, 5)


def test_a_capture_without_frames(tmp_path: Path) -> None:
    for name, content in (("a", pcap([])), ("b", pcapng([])), ("c", Blocks().section())):
        path = tmp_path / name
        path.write_bytes(content)
        counts = analyze_capture(path)
        assert (counts.frames, counts.streams, counts.span.first_ns) == (0, (), None)


def test_an_fcs_in_the_file_is_not_counted_twice(tmp_path: Path) -> None:
    frames = [Frame(stream_frame(i).data + b"FCS!") for i in range(3)]
    path = tmp_path / "fcs.pcap"
    path.write_bytes(pcap(frames, link=1 | 0x24000000))
    assert analyze_capture(path).span.total_bytes == 3 * 64
    blocks = Blocks()
    path.write_bytes(blocks.section() + blocks.interface(fcs=4) + b"".join(map(blocks.enhanced, frames)))
    assert analyze_capture(path).span.total_bytes == 3 * 64


@pytest.mark.parametrize("count", [3, 3000])
@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    ("resolution", "ticks_per_s"),
    [
        (None, 10**6),
        (3, 10**3),
        (6, 10**6),
        (9, 10**9),
        (12, 10**12),
        (0x80 | 20, 2**20),
        (0x80 | 30, 2**30),
        (0x80 | 33, 2**33),
    ],
)
def test_time_resolutions_and_offsets(
    tmp_path: Path, order: str, resolution: int | None, ticks_per_s: int, count: int
) -> None:
    offset_s = 1_699_999_000
    blocks = Blocks(order)
    times = [START_NS + i * 7 * MS + 123_456_789 for i in range(count)]
    ticks = [(t - offset_s * 10**9) * ticks_per_s // 10**9 for t in times]
    path = tmp_path / "capture.pcapng"
    path.write_bytes(
        blocks.section()
        + blocks.interface(resolution=resolution, offset_s=offset_s)
        + b"".join(blocks.enhanced(stream_frame(i), tick) for i, tick in enumerate(ticks))
    )
    span = analyze_capture(path).span
    assert span.first_ns == ticks[0] * 10**9 // ticks_per_s + offset_s * 10**9
    assert span.last_ns == ticks[-1] * 10**9 // ticks_per_s + offset_s * 10**9


def test_an_impossible_resolution_leaves_times_unknown(tmp_path: Path) -> None:
    blocks = Blocks()
    path = tmp_path / "capture.pcapng"
    for options in ({"resolution": 127}, {"resolution": 255}, {"offset_s": 2**62}):
        path.write_bytes(
            blocks.section()
            + blocks.interface(**options)
            + b"".join(blocks.enhanced(stream_frame(i)) for i in range(9))
        )
        counts = analyze_capture(path)
        assert (counts.frames, counts.span.first_ns, counts.streams[0].delay) == (9, None, None)
        assert counts.streams[0].rate is None


def test_every_kind_of_packet_block(tmp_path: Path) -> None:
    blocks = Blocks()
    kinds = (blocks.enhanced, blocks.obsolete, blocks.simple)
    frames = [kinds[i % 3](stream_frame(i, size=100 + i % 5)) for i in range(300)]
    frames += [blocks.obsolete(stream_frame(i)) for i in range(300, 600)]
    path = tmp_path / "capture.pcapng"
    path.write_bytes(blocks.section() + blocks.interface() + b"".join(frames))
    counts = analyze_capture(path)
    (stream,) = counts.streams
    assert (counts.frames, stream.received, stream.missing, stream.reordered) == (600, 600, 0, 0)
    assert counts.span.first_ns == START_NS + 5000


def test_a_simple_packet_is_cut_at_the_snap_length(tmp_path: Path) -> None:
    blocks = Blocks()
    path = tmp_path / "capture.pcapng"
    frames = [cut(stream_frame(i, size=200), 64) for i in range(5)]
    path.write_bytes(blocks.section() + blocks.interface(snap=64) + b"".join(map(blocks.simple, frames)))
    counts = analyze_capture(path)
    assert (counts.frames, counts.streams[0].received, counts.span.total_bytes) == (5, 5, 1000)
    assert counts.span.first_ns is None


def test_sections_in_both_byte_orders_with_several_interfaces(tmp_path: Path) -> None:
    little, big = Blocks("<"), Blocks(">")
    content = little.section() + little.interface(snap=2000) + little.interface(resolution=9, snap=1000)
    for i in range(2000):
        frame = stream_frame(i, interface=i % 2, sent_ns=START_NS + i * 1000)
        content += little.enhanced(frame, frame.time_ns if i % 2 else None)
    content += big.section() + big.interface(resolution=3)
    content += b"".join(big.enhanced(stream_frame(2000 + i), START_NS // MS) for i in range(2000))
    content += little.section() + little.interface() + little.enhanced(stream_frame(4000))
    path = tmp_path / "capture.pcapng"
    path.write_bytes(content)
    counts = analyze_capture(path)
    (stream,) = counts.streams
    assert (counts.frames, stream.received, stream.missing, stream.reordered) == (4001, 4001, 0, 0)
    assert counts.odd_length_frames == 0
    assert stream.first_ns == START_NS
    assert stream.last_ns == START_NS + 1999 * 1000 + 5000
    assert counts.snap_length is None


def test_blocks_without_frames_are_skipped_and_unknown_ones_counted(tmp_path: Path) -> None:
    blocks = Blocks()
    name = struct.pack("<HH4s4sHH", 1, 8, bytes(4), b"abc", 0, 0)
    secrets = struct.pack("<II", 0x544C534B, 5) + b"12345"
    known = [
        blocks.block(4, name),
        blocks.block(10, secrets),
        blocks.block(0x0BAD, b"1234567"),
        blocks.block(0x40000BAD, b"1234"),
    ]
    others = [*known, known[0], *(blocks.block(kind, bytes(40)) for kind in (7, 7, 0x80001234))]
    frames = [blocks.enhanced(stream_frame(i), options=blocks.option(1, b"comment") * (i % 2)) for i in range(80)]
    path = tmp_path / "capture.pcapng"
    content = blocks.section() + blocks.interface()
    for i, frame in enumerate(frames):
        content += others[i // 10] + frame
    path.write_bytes(content)
    counts = analyze_capture(path)
    assert (counts.frames, counts.streams[0].received) == (80, 80)
    assert counts.unknown_blocks == {7: 20, 0x80001234: 10}
    assert counts.damaged_at is None


def test_drops_are_those_of_the_last_statistics_of_each_interface(tmp_path: Path) -> None:
    blocks = Blocks()
    path = tmp_path / "capture.pcapng"
    content = blocks.section() + blocks.interface() + blocks.interface() + blocks.enhanced(stream_frame(0))
    path.write_bytes(content)
    assert analyze_capture(path).capture_dropped_frames is None
    content += blocks.statistics(0, 5, 1) + blocks.statistics(1, 7, 0) + blocks.statistics(0, 10, 2)
    content += blocks.section() + blocks.interface() + blocks.statistics(0, 100, 0)
    path.write_bytes(content)
    assert analyze_capture(path).capture_dropped_frames == 12 + 7 + 100


def test_a_block_larger_than_the_window_is_skipped(tmp_path: Path) -> None:
    blocks = Blocks()
    path = tmp_path / "capture.pcapng"
    frames = [blocks.enhanced(stream_frame(i)) for i in range(3)]
    path.write_bytes(
        blocks.section()
        + blocks.interface()
        + frames[0]
        + blocks.block(0x0BAD, bytes(9_000_000))
        + b"".join(frames[1:])
    )
    counts = analyze_capture(path)
    assert (counts.frames, counts.streams[0].received, counts.damaged_at) == (3, 3, None)


@pytest.mark.parametrize(
    ("link", "header"),
    [
        (113, bytes.fromhex("00000001000602000000000200000800")),
        (276, b"\x08\x00" + bytes(18)),
    ],
)
def test_linux_cooked_captures(tmp_path: Path, link: int, header: bytes) -> None:
    packets = [udp(bytes.fromhex("be9be955") + bytes([0, 0, 0, i]) + bytes(8), size=100) for i in range(9)]
    frames = [Frame(header + packet) for packet in packets]
    path = tmp_path / "cooked.pcap"
    path.write_bytes(pcap(frames, link=link))
    counts = analyze_capture(path)
    assert (counts.streams[0].received, counts.foreign_frames) == (9, 0)
    assert counts.span.total_bytes == 900


TOOLS: dict[str, list[tuple[list[str], int | None]]] = {
    "editcap": [
        (["editcap", "-F", "pcap", "{source}", "{target}"], 0),
        (["editcap", "-F", "nsecpcap", "{source}", "{target}"], 0),
        (["editcap", "-F", "modpcap", "{source}", "{target}"], 0),
        (["editcap", "-F", "pcapng", "{source}", "{target}"], 0),
        (["editcap", "-F", "pcapng", "-a", "7:comment", "{source}", "{target}"], 0),
        (["editcap", "-F", "pcap", "-s", "70", "{source}", "{target}"], None),
    ],
    "mergecap": [
        (["mergecap", "-F", "pcapng", "-w", "{target}", "{source}"], 0),
        (["mergecap", "-F", "pcap", "-a", "-w", "{target}", "{source}"], 0),
    ],
    "tcpdump": [
        (["tcpdump", "-r", "{source}", "-w", "{target}"], 0),
        (["tcpdump", "--time-stamp-precision=nano", "-r", "{source}", "-w", "{target}"], 0),
        (["tcpdump", "-s", "64", "-r", "{source}", "-w", "{target}"], None),
    ],
}


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("sizes", [(64,), (64, 590, 1518)], ids=["one size", "mixed sizes"])
def test_files_other_tools_write(tmp_path: Path, tool: str, sizes: tuple[int, ...]) -> None:
    if not shutil.which(tool):
        pytest.skip(f"{tool} is not installed")
    source = tmp_path / "source.pcap"
    source.write_bytes(pcap(traffic(sizes=sizes)))
    expected = analyze_capture(source)
    for command, odd_lengths in TOOLS[tool]:
        target = tmp_path / "target"
        argv = [word.format(source=source, target=target) for word in command]
        subprocess.run(argv, check=True, capture_output=True)
        counts = analyze_capture(target)
        assert counts.streams == expected.streams
        assert counts.span == expected.span
        assert counts.foreign_frames == expected.foreign_frames
        if odd_lengths is not None:
            assert counts.odd_length_frames == odd_lengths, command
