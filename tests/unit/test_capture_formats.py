"""Every kind of capture file, against dpkt and scapy reading the same file."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dpkt
import pytest
from scapy.utils import RawPcapNgReader, RawPcapReader

from netbench.capture.capture_counts import CaptureCounts
from netbench.capture.counting import analyze_capture
from tests.unit.capture_files import START_NS, Blocks, Frame, cut, ethernet, pcap, pcapng, stream_frame, udp


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
    assert form == "pcapng" or ("little" if order == "<" else "big") in counts.flavour


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


def test_frames_cut_below_the_snap_length_are_reported(tmp_path: Path) -> None:
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


def test_an_fcs_in_the_file_is_not_counted_twice(tmp_path: Path) -> None:
    frames = [Frame(stream_frame(i).data + b"FCS!") for i in range(3)]
    path = tmp_path / "fcs.pcap"
    path.write_bytes(pcap(frames, link=1 | 0x24000000))
    assert analyze_capture(path).span.total_bytes == 3 * 64


def test_what_else_may_be_in_a_pcapng(tmp_path: Path) -> None:
    blocks = Blocks()
    path = tmp_path / "capture"
    frames = [stream_frame(i, sent_ns=START_NS + i) for i in range(3)]
    times = [frame.time_ns - 3600 * 10**9 for frame in frames]
    content = blocks.section() + blocks.interface(resolution=9, offset_s=3600) + blocks.statistics(0, 5, 1)
    content += blocks.enhanced(frames[0], times[0], blocks.option(1, b"comment")) + blocks.block(77, b"unknown")
    content += blocks.enhanced(frames[1], times[1]) + blocks.section() + blocks.interface() + blocks.obsolete(frames[2])
    path.write_bytes(content)
    counts = analyze_capture(path)
    assert (counts.frames, counts.streams[0].received, counts.damage, counts.truncated) == (3, 3, "", False)
    assert counts.span.first_ns == START_NS + 5000, "to the nanosecond"


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
