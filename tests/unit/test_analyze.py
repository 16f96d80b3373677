"""What `netbench analyze` prints."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netbench.cli.analyze import analyze_command
from tests.unit.capture_files import (
    FLUSH_MAC,
    START_NS,
    Frame,
    cut,
    ethernet,
    pcap,
    pcapng,
    stream_frame,
    udp,
)

MS = 1_000_000


def two_streams() -> list[Frame]:
    frames = [stream_frame(i, sent_ns=START_NS + i * MS) for i in range(10, 1011) if i not in (20, 21, 500)]
    frames += [stream_frame(30, sent_ns=START_NS + 30 * MS)]
    frames += [stream_frame(i, size=1518, src="198.18.0.3", sent_ns=START_NS + (i + 11) * MS) for i in range(3)]
    frames.append(Frame(ethernet(udp(b"", size=64), dst=FLUSH_MAC), START_NS))
    frames.append(Frame(ethernet(bytes(28), ether_type=0x0806), START_NS + 3 * MS))
    return sorted(frames, key=lambda frame: frame.time_ns)


def analyzed(path: Path, content: bytes) -> tuple[str, dict[str, Any]]:
    path.write_bytes(content)
    return analyze_command(path, as_json=False), json.loads(analyze_command(path, as_json=True))


def test_every_number_is_in_both(tmp_path: Path) -> None:
    path = tmp_path / "c.pcap"
    text, found = analyzed(path, pcap(two_streams(), nanoseconds=True))
    assert found["file"] == str(path)
    assert found["format"] == "pcap, nanoseconds, little-endian"
    assert (found["frames"], found["pktgen_frames"]) == (1004, 1002)
    assert (found["foreign_frames"], found["flush_frames"], found["too_short_frames"]) == (1, 1, 1)
    assert found["warnings"] == []
    stream, other = found["streams"]
    assert {key: stream[key] for key in list(stream)[:10]} == {
        "src_ip": "198.18.0.1",
        "dst_ip": "198.18.0.2",
        "received_frames": 998,
        "missing_frames": 3,
        "duplicate_frames": 1,
        "reordered_frames": 0,
        "loss_runs": 2,
        "longest_loss_run_frames": 2,
        "min_seq": 10,
        "max_seq": 1010,
    }
    assert stream["last_ns"] - stream["first_ns"] == 1000 * MS
    assert abs(stream["rate_fps"] - 997) < 1e-6
    assert (stream["delay_min_ns"], stream["delay_mean_ns"], stream["delay_max_ns"]) == (5000, 5000.0, 5000)
    assert stream["loss_run_lengths"] == [{"from_frames": 1, "runs": 1}, {"from_frames": 2, "runs": 1}]
    assert (other["frame_size_min"], other["bytes"], other["loss_run_lengths"]) == (1518, 3 * 1518, [])
    assert "1,004 of 46-1518 bytes with FCS" in text
    assert "2023-11-14 22:13:20.000000000 UTC" in text
    assert "1 frames that netbench's sink sent itself" in text
    rows = [line.split() for line in text.splitlines() if line.startswith("198.18.0.1 > 198.18.0.2")]
    assert rows[0][3:] == ["998", "3", "1", "0", "2", "2", "10-1,010"]
    assert rows[1][3:] == ["64", "997.0", "0.670", "0.510"]
    assert rows[2][3:] == ["delay", *["5.0", "µs"] * 5, "-", "5.0", "µs"]
    assert [rows[n][3:6] for n in (3, 4)] == [["PDV", "0.0", "µs"], ["IPDV", "0.0", "µs"]]
    assert rows[5][3:] == ["-", "-", "-", "1", "of", "1,", "1", "of", "2-3"]
    assert "one clock" in text
    assert "WARNING" not in text
    assert max(map(len, text.splitlines())) <= 110


@pytest.mark.parametrize("columns", [80, 60, 40])
def test_lines_fit_the_terminal_and_no_word_is_broken(tmp_path: Path, monkeypatch, columns: int) -> None:
    whole = analyzed(tmp_path / "c.pcap", pcap(two_streams(), nanoseconds=True))[0]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", str(columns))
    text = analyze_command(Path("c.pcap"), as_json=False)
    assert max(map(len, text.splitlines())) <= columns
    assert {word for word in whole.split() if "/" not in word} <= {"Stream", *text.split()}


def test_delay_its_variation_and_reordering(tmp_path: Path) -> None:
    # Sent 1 ms apart; 4 comes after 8, 4.5 ms late, and 6 twice.
    late_ns = 4_500_000
    delays = {4: late_ns, 7: 20_000}
    frames = [stream_frame(i, sent_ns=START_NS + i * MS, delay_ns=delays.get(i, 8000)) for i in (1, 2, 3, 5, 6, 6, 7)]
    frames += [stream_frame(i, sent_ns=START_NS + i * MS, delay_ns=delays.get(i, 8000)) for i in (8, 4, 9, 10)]
    text, found = analyzed(tmp_path / "c.pcap", pcap(frames, nanoseconds=True))
    (stream,) = found["streams"]
    names = ("min", "median", "p90", "max")
    # Percentiles are right within 0.05 %; the 90 % one is the ninth of ten.
    true = [8000, 8000, 20_000, late_ns]
    assert {stream[f"{kind}_{high}_ns"] for kind in ("delay", "pdv", "ipdv") for high in ("p99", "p999")} == {None}
    for name, delay in zip(names, true, strict=True):
        assert abs(stream[f"delay_{name}_ns"] - delay) <= (0 if name in ("min", "max") else delay * 0.0005)
    assert [stream[f"pdv_{name}_ns"] - stream[f"delay_{name}_ns"] for name in names] == [-8000] * 4
    # Of the nine pairs, two are with 4 and two with 7.
    assert [stream[f"ipdv_{name}_ns"] for name in ("min", "median", "max")] == [0, 0, late_ns - 8000]
    assert stream["ipdv_mean_ns"] == (2 * (late_ns - 8000) + 2 * 12_000) / 9
    assert stream["reordered_frames"] == 1
    assert [stream[f"reordering_extent_{name}_frames"] for name in ("median", "mean", "max")] == [4, 4.0, 4]
    assert "RFC 5481" in text


def test_numbers_that_begin_at_0_again_go_on(tmp_path: Path) -> None:
    numbers = [*range(2**32 - 700, 2**32), *range(300)]
    for lost in (2**32 - 1, 0, 7):
        numbers.remove(lost)
    numbers[695], numbers[700] = numbers[700], numbers[695]  # across the turn
    frames = [stream_frame(n, sent_ns=START_NS + place * MS) for place, n in enumerate([*numbers, 5])]
    text, found = analyzed(tmp_path / "c.pcap", pcap(frames, nanoseconds=True))
    (stream,) = found["streams"]
    names = ("received_frames", "missing_frames", "duplicate_frames", "reordered_frames", "longest_loss_run_frames")
    assert [stream[name] for name in names] == [997, 3, 1, 5, 2]
    assert (stream["min_seq"], stream["max_seq"]) == (2**32 - 700, 2**32 + 299)
    assert "4,294,966,596-4,294,967,595" in text


def test_a_capture_of_something_else(tmp_path: Path) -> None:
    frames = [Frame(ethernet(bytes(46 + i), ether_type=0x86DD), START_NS + i) for i in range(100)]
    text, found = analyzed(tmp_path / "c.pcap", pcap(frames))
    assert "No stream found" in text
    assert (found["frames"], found["foreign_frames"], found["streams"]) == (100, 100, [])
    assert (found["frame_size_min"], found["frame_size_max"]) == (64, 163)
    assert found["bytes"] == sum(64 + i for i in range(100))


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_an_empty_capture(tmp_path: Path, write: Callable[..., bytes]) -> None:
    text, found = analyzed(tmp_path / "c", write([]))
    assert (found["frames"], found["frame_size_min"], found["streams"]) == (0, None, [])
    assert [found[key] for key in ("first_ns", "rate_fps", "damaged_at", "damage")] == [None] * 4
    assert "No stream found" not in text


def test_warnings_say_what_they_mean(tmp_path: Path) -> None:
    path = tmp_path / "c"
    good = pcap([stream_frame(i) for i in range(5)])
    text, found = analyzed(path, good + bytes(3))
    assert (found["truncated"], found["leftover_bytes"]) == (True, 3)
    assert "WARNING: truncated: 3 bytes" in text
    text, found = analyzed(path, good + bytes(16))
    assert (found["truncated"], found["damaged_at"], found["frames"]) == (False, len(good), 5)
    assert "WARNING: damaged at byte 404: a frame of 0 bytes." in text
    text, found = analyzed(path, pcap([cut(stream_frame(0), 58)]))
    assert found["odd_length_frames"] == 1
    assert "WARNING: 1 frames were captured neither whole" in text
    text, found = analyzed(path, pcap([stream_frame(0, delay_ns=-1000)]))
    assert "do not share a clock" in text
    assert len(found["warnings"]) == 1


def varying(number: int, *, sources: int, destinations: int = 1) -> Frame:
    src, dst = f"198.18.9.{number % sources + 1}", f"198.19.9.{number // sources % destinations + 1}"
    return stream_frame(number, src=src, dst=dst, sent_ns=START_NS + number * MS)


JOINED = [
    ([varying(n, sources=10) for n in range(200) if n != 57], [("*", "198.19.9.1", 199, 1)]),
    ([varying(n, sources=1, destinations=10) for n in range(200)], [("198.18.9.1", "*", 200, 0)]),
    ([varying(n, sources=10, destinations=4) for n in range(200) if n != 57], [("*", "*", 199, 1)]),
]
# Streams with sequences of their own keep their losses.
SEPARATE = [
    [varying(n, sources=1) for n in range(50) if n % 3] + [varying(51 * 10 + 1, sources=10)],
    [stream_frame(n, src=f"198.18.9.{s}", dst="198.19.9.1") for s in (1, 2) for n in range(50) if n % 3],
    [stream_frame(n, src=f"198.18.9.{s}", dst="198.19.9.1") for s in (1, 2) for n in range(0, 50, 3)],
]


@pytest.mark.parametrize(("frames", "streams"), JOINED)
def test_frames_of_one_sequence_are_one_stream_whatever_their_addresses(tmp_path: Path, frames, streams) -> None:
    _, found = analyzed(tmp_path / "c.pcap", pcap(frames))
    keys = ("src_ip", "dst_ip", "received_frames", "missing_frames")
    assert [tuple(stream[key] for key in keys) for stream in found["streams"]] == streams


@pytest.mark.parametrize("frames", SEPARATE)
def test_streams_with_their_own_sequences_stay_apart(tmp_path: Path, frames) -> None:
    _, found = analyzed(tmp_path / "c.pcap", pcap(sorted(frames, key=lambda frame: frame.time_ns)))
    assert len(found["streams"]) == 2
    assert "*" not in {stream["src_ip"] for stream in found["streams"]}
