"""Which stream a frame counts for: layouts of headers, foreign frames, and what a trial expects."""

import dataclasses
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from netbench.capture.capture_counts import Expected
from netbench.capture.counting import MAX_STREAMS, analyze_capture
from netbench.model.frame_size import FrameSize
from tests.unit.capture_files import (
    FLUSH_MAC,
    START_NS,
    Frame,
    cut,
    ethernet,
    pcap,
    pcap_header,
    pcap_record,
    pktgen,
    stream_frame,
    udp,
)

MS = 1_000_000
EXPECTED = Expected("a", "198.18.0.1", "198.18.0.2", FrameSize.of(128), 1000, START_NS, START_NS + 1000 * MS)


def write(path: Path, frames: list[Frame], **options: Any) -> Path:
    path.write_bytes(pcap(frames, **options))
    return path


def sent(seq: int, **options: Any) -> Frame:
    return stream_frame(seq, size=128, sent_ns=START_NS + seq * MS, **options)


@pytest.mark.parametrize("words", [0, 1, 5, 10])
@pytest.mark.parametrize("tags", [(), (0x8100,), (0x88A8, 0x8100), (0x9100, 0x8100)])
def test_vlan_tags_and_ip_options(tmp_path: Path, tags: tuple[int, ...], words: int) -> None:
    frames = [Frame(ethernet(udp(pktgen(i), size=200, options=b"\x01" * 4 * words), tags=tags)) for i in range(40)]
    counts = analyze_capture(write(tmp_path / "c.pcap", frames))
    assert [(s.src_ip, s.dst_ip, s.received) for s in counts.streams] == [("198.18.0.1", "198.18.0.2", 40)]
    assert counts.foreign_frames == 0
    needed = 14 + 4 * len(tags) + 20 + 4 * words + 8 + 16
    for length, received in ((needed, 40), (needed - 1, 0)):
        counts = analyze_capture(write(tmp_path / "c.pcap", [cut(frame, length) for frame in frames], snap=length))
        assert sum(stream.received for stream in counts.streams) == received
        assert (counts.too_short_frames, counts.foreign_frames) == (40 - received, 40 - received)


def test_frames_of_one_stream_in_several_layouts_keep_their_order(tmp_path: Path) -> None:
    layouts = [(tags, b"\x01" * 4 * words) for tags in ((), (0x8100,), (0x88A8, 0x8100)) for words in (0, 1, 10)]
    numbers = list(range(3000))
    numbers[500], numbers[501] = numbers[501], numbers[500]
    frames = []
    for i, number in enumerate(numbers):
        tags, options = layouts[i % len(layouts)]
        packet = udp(pktgen(number), size=200, options=options)
        frames.append(Frame(ethernet(packet, tags=tags), START_NS + i * 1000))
    counts = analyze_capture(write(tmp_path / "c.pcap", frames))
    (stream,) = counts.streams
    assert (stream.received, stream.reordered, stream.duplicates, counts.foreign_frames) == (3000, 1, 0, 0)


def not_ours() -> Iterator[tuple[str, bytes]]:
    frame = ethernet(udp(pktgen(5), size=128))
    yield "wrong magic", ethernet(udp(pktgen(5, magic=0xBE9BE954), size=128))
    yield "later fragment", ethernet(udp(pktgen(5), fragment=1, size=128))
    yield "last later fragment", ethernet(udp(pktgen(5), fragment=0x1FFF, size=128))
    yield "not UDP", ethernet(udp(pktgen(5), protocol=6, size=128))
    yield "not IPv4", ethernet(udp(pktgen(5), size=128), ether_type=0x86DD)
    yield "version 6", frame[:14] + b"\x65" + frame[15:]
    yield "header too short to be one", frame[:14] + b"\x44" + frame[15:]
    yield "ARP", ethernet(bytes(28), ether_type=0x0806)
    yield "one byte", b"\x01"
    yield "almost a MAC", FLUSH_MAC[:5]


@pytest.mark.parametrize(("why", "data"), [*not_ours()], ids=[why for why, _ in not_ours()])
@pytest.mark.parametrize("among", [0, 20, 3000])
def test_frames_that_are_not_pktgens(tmp_path: Path, why: str, data: bytes, among: int) -> None:
    frames = [sent(i) for i in range(among)]
    frames[among // 2 : among // 2] = [Frame(data, START_NS)]
    counts = analyze_capture(write(tmp_path / "c.pcap", frames))
    assert (counts.frames, counts.foreign_frames, counts.flush_frames) == (among + 1, 1, 0), why
    assert sum(stream.received for stream in counts.streams) == among
    assert counts.too_short_frames == (len(data) < 58)


def test_first_fragments_and_dont_fragment_are_ours(tmp_path: Path) -> None:
    frames = [Frame(ethernet(udp(pktgen(i), size=128, fragment=bits))) for i, bits in enumerate((0x2000, 0x4000))]
    assert analyze_capture(write(tmp_path / "c.pcap", frames)).streams[0].received == 2


@pytest.mark.parametrize("snap", [60, 262_144])
def test_flush_frames_are_neither_foreign_nor_ours(tmp_path: Path, snap: int) -> None:
    frames = [sent(i) for i in range(2000)]
    for place in (0, 700, 701, 2003):
        frames.insert(place, Frame(ethernet(udp(b"", size=64), dst=FLUSH_MAC), START_NS))
    frames.append(Frame(ethernet(udp(pktgen(7), size=128), dst=FLUSH_MAC), START_NS + MS))
    frames.append(Frame(ethernet(bytes(46), dst=bytes.fromhex("0280c200000f")), START_NS))
    path = write(tmp_path / "c.pcap", [cut(frame, snap) for frame in frames], snap=snap)
    expected = dataclasses.replace(EXPECTED, sent_frames=2000, sent_until_ns=START_NS + 2000 * MS)
    for counts in (analyze_capture(path), analyze_capture(path, [expected])):
        assert (counts.flush_frames, counts.foreign_frames) == (5, 1)
        assert (counts.streams[0].received, counts.streams[0].duplicates) == (2000, 0)


@pytest.mark.parametrize("snap", [60, 262_144])
def test_control_frames_are_counted_apart(tmp_path: Path, snap: int) -> None:
    lldp = ethernet(bytes(60), ether_type=0x88CC)
    link_local = [ethernet(bytes(46), dst=bytes((1, 0x80, 0xC2, 0, 0, last)), ether_type=38) for last in range(16)]
    others = [ethernet(bytes(46), dst=bytes.fromhex(dst)) for dst in ("0180c2000010", "0180c2010000", "01000ccccccc")]
    frames = [sent(0), *map(Frame, [*link_local, lldp, *others]), sent(1)]
    path = write(tmp_path / "c.pcap", [cut(frame, snap) for frame in frames], snap=snap)
    for counts in (analyze_capture(path), analyze_capture(path, [EXPECTED])):
        assert (counts.control_frames, counts.flush_frames, counts.foreign_frames) == (16, 1, 3)
        assert counts.streams[0].received == 2


def test_an_expected_stream_without_time_stamps_has_no_delay_and_no_frames_with_stamps(tmp_path: Path) -> None:
    unstamped = [stream_frame(seq, size=128, sent_ns=0) for seq in range(100)]
    earlier = [stream_frame(seq, size=128, sent_ns=0, src="198.18.0.200") for seq in range(7)]
    path = write(tmp_path / "c.pcap", [*earlier, *unstamped, sent(100), sent(101)])
    counts = analyze_capture(path, [dataclasses.replace(EXPECTED, stamped=False)])
    (stream,) = counts.streams
    assert (stream.received, stream.missing, counts.foreign_frames, counts.late_frames) == (100, 900, 2, 7)
    assert stream.delay is None
    assert analyze_capture(path, [EXPECTED]).streams[0].received == 2


@pytest.mark.parametrize("snap", [58, 64, 262_144])
def test_an_expected_stream_counts_only_what_was_sent(tmp_path: Path, snap: int) -> None:
    foreign = [
        stream_frame(5, size=127, sent_ns=START_NS),
        stream_frame(5, size=132, sent_ns=START_NS),
        sent(5, dst="198.18.0.3"),
        sent(5, src="198.18.1.1"),
        sent(5, src="198.18.0.9"),  # stamped in this trial: mangled
        stream_frame(1000, size=128, sent_ns=START_NS),
        stream_frame(2**32 - 1, size=128, sent_ns=START_NS),
        stream_frame(5, size=128, sent_ns=START_NS - 3 * MS),
        stream_frame(5, size=128, sent_ns=START_NS + 1003 * MS),
        stream_frame(5, size=128, sent_ns=0),
        Frame(ethernet(bytes(100))),
    ]
    late = [
        stream_frame(5000, size=128, sent_ns=START_NS - 3 * MS, src="198.18.0.254"),
        stream_frame(5, size=64, sent_ns=0, src="198.18.0.9"),
    ]
    edges = [stream_frame(5, size=128, sent_ns=at) for at in (START_NS - 2 * MS, START_NS + 1002 * MS)]
    ours = [sent(i) for i in range(1000) if i not in (3, 4, 999)]
    frames = [*ours[:500], *foreign, *edges, *late, *ours[500:]]
    path = write(tmp_path / "c.pcap", [cut(frame, snap) for frame in frames], snap=snap)
    counts = analyze_capture(path, [EXPECTED])
    (stream,) = counts.streams
    assert (stream.stream, stream.received, stream.duplicates, stream.reordered) == ("a", 997, 2, 0)
    assert (stream.missing, stream.loss_runs, stream.longest_loss_run) == (3, 2, 2)
    assert (counts.foreign_frames, counts.late_frames, counts.frames) == (len(foreign), len(late), len(frames))
    assert (stream.min_seq, stream.max_seq) == (0, 998)


def test_expected_streams_come_in_their_order_even_when_nothing_arrived(tmp_path: Path) -> None:
    other = dataclasses.replace(EXPECTED, stream="b", src_ip="198.18.0.3", dst_ip="198.18.0.4")
    path = write(tmp_path / "c.pcap", [sent(i) for i in range(10)])
    silent, heard = analyze_capture(path, [other, EXPECTED]).streams
    assert (silent.stream, silent.received, silent.missing, silent.loss_runs) == ("b", 0, 1000, 1)
    assert (silent.first_ns, silent.delay, silent.min_seq, silent.rate) == (None, None, None, None)
    assert (heard.stream, heard.received, heard.missing) == ("a", 10, 990)


def test_two_expected_streams_of_one_pair_of_addresses_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "c.pcap", [])
    with pytest.raises(ValueError, match="have the same addresses"):
        analyze_capture(path, [EXPECTED, EXPECTED])


def test_rate_and_delay_of_a_stream(tmp_path: Path) -> None:
    delays = (3000, 9000, 6000)
    frames = [sent(i, delay_ns=delays[i % 3]) for i in range(999)] + [sent(998, delay_ns=MS)]
    (stream,) = analyze_capture(write(tmp_path / "c.pcap", frames, nanoseconds=True)).streams
    assert stream.first_ns is not None
    assert stream.last_ns is not None
    assert stream.rate is not None
    assert stream.delay is not None
    assert stream.last_ns - stream.first_ns == 998 * MS + 6000 - 3000
    assert stream.rate.fps == pytest.approx(998 / (0.998 + 0.000003))
    assert stream.rate.l1_mbps == pytest.approx(stream.rate.fps * 148 * 8 / 1e6)
    assert stream.rate.l2_mbps == pytest.approx(stream.rate.fps * 128 * 8 / 1e6)
    # The further copy of 998, a millisecond late, has no delay (RFC 7679, section 3.5), and does not end the stream.
    assert (stream.delay.smallest_ns, stream.delay.largest_ns, stream.delay.mean_ns) == (3000, 9000, 6000.0)
    assert stream.ipdv is not None
    assert (stream.ipdv.smallest_ns, stream.ipdv.largest_ns) == (3000, 6000)


def test_absurd_time_stamps_do_not_disturb_the_counts(tmp_path: Path) -> None:
    late = 2**32 - 1
    records = [pcap_record(stream_frame(i)) for i in range(2000)]
    records[7] = pcap_record(stream_frame(7)._replace(data=ethernet(udp(pktgen(7)[:8] + b"\xff" * 8, size=64))))
    records[9] = late.to_bytes(4, "little") * 2 + records[9][8:]
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap_header() + b"".join(records))
    (stream,) = analyze_capture(path).streams
    assert (stream.received, stream.missing) == (2000, 0)
    assert stream.last_ns == late * 10**9 + late * 1000
    assert stream.delay is not None
    assert (stream.delay.smallest_ns, stream.clocks.invalid_stamps) == (5000, 1)


def test_many_streams_interleaved(tmp_path: Path) -> None:
    pairs = [(f"198.18.{i}.1", f"198.19.{i}.2") for i in range(20)]
    numbers = {pair: itertools.count() for pair in pairs}
    rng = random.Random(4)
    picks = [rng.choice(pairs) for _ in range(6000)]
    frames = [stream_frame(next(numbers[pair]), src=pair[0], dst=pair[1]) for pair in picks]
    counts = analyze_capture(write(tmp_path / "c.pcap", frames))
    assert {(s.src_ip, s.dst_ip): s.received for s in counts.streams} == {p: picks.count(p) for p in pairs}
    assert sum(stream.missing + stream.reordered + stream.duplicates for stream in counts.streams) == 0


def address(number: int, network: int) -> str:
    return f"198.{network}.{number >> 8}.{number & 255}"


@pytest.mark.parametrize(
    ("vary", "streams"),
    [
        ((True, False), [("*", "198.19.0.0"), ("*", "198.19.0.1")]),
        ((False, True), [("198.18.0.0", "*"), ("198.18.0.1", "*")]),
        ((True, True), [("*", "*")]),
    ],
    ids=["sources", "destinations", "both"],
)
def test_varying_addresses_are_one_stream(
    tmp_path: Path, vary: tuple[bool, bool], streams: list[tuple[str, str]]
) -> None:
    frames = []
    for i in range(2 * MAX_STREAMS + 2):
        numbers = [i // 2 if is_varying else i % 2 for is_varying in vary]
        sequence = i if all(vary) else i // 2
        frames.append(stream_frame(sequence, src=address(numbers[0], 18), dst=address(numbers[1], 19)))
    few = analyze_capture(write(tmp_path / "c.pcap", frames[: MAX_STREAMS // 2]))
    assert "*" not in {address for stream in few.streams for address in (stream.src_ip, stream.dst_ip)}
    counts = analyze_capture(write(tmp_path / "c.pcap", frames))
    assert [(stream.src_ip, stream.dst_ip) for stream in counts.streams] == streams
    assert {stream.received for stream in counts.streams} == {len(frames) // len(streams)}
    assert sum(stream.missing + stream.reordered + stream.duplicates for stream in counts.streams) == 0
