"""Captures of every kind: each is decoded, or counted and named; no number relies on an unreliable clock."""

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from netbench.cli.analyze import analyze_command
from tests.unit.capture_files import (
    START_NS,
    Blocks,
    Frame,
    ethernet,
    pcap,
    pcap_header,
    pcap_record,
    pktgen,
    stream_frame,
    udp,
)

MS = 1_000_000
COUNT = 100
FRAMES = [stream_frame(i, sent_ns=START_NS + i * MS) for i in range(COUNT)]
UNSTAMPED = [stream_frame(i, sent_ns=0)._replace(time_ns=START_NS + i * MS) for i in range(COUNT)]


def analyzed(path: Path, content: bytes) -> dict[str, Any]:
    path.write_bytes(content)
    assert analyze_command(path, as_json=False)
    found: dict[str, Any] = json.loads(analyze_command(path, as_json=True))
    return found


def only_stream(found: dict[str, Any]) -> dict[str, Any]:
    (stream,) = found["streams"]
    assert (stream["received_frames"], stream["missing_frames"]) == (COUNT, 0)
    assert (stream["duplicate_frames"], stream["reordered_frames"]) == (0, 0)
    return dict(stream)


def section(order: str, frames: list[Frame], **interface: Any) -> bytes:
    blocks = Blocks(order)
    return blocks.section() + blocks.interface(**interface) + b"".join(map(blocks.enhanced, frames))


def with_fcs(frame: Frame) -> Frame:
    return frame._replace(data=frame.data + b"FCS!")


def simple(frames: list[Frame]) -> bytes:
    blocks = Blocks()
    return b"".join(blocks.block(3, struct.pack("<I", frame.length) + frame.data) for frame in frames)


def with_ticks(resolution: int, ticks: Callable[[int], int], offset_s: int | None = None) -> bytes:
    blocks = Blocks()
    start = blocks.section() + blocks.interface(resolution=resolution, offset_s=offset_s)
    return start + b"".join(blocks.enhanced(frame, ticks(frame.time_ns)) for frame in FRAMES)


def with_option_of_interface(code: int, value: bytes) -> bytes:
    blocks = Blocks()
    options = blocks.option(code, value) + blocks.option(0, b"")
    return blocks.section() + blocks.block(1, struct.pack("<HHI", 1, 0, 0) + options)


FLAGS = Blocks().option(2, struct.pack("<I", 4 << 5)) + Blocks().option(0, b"")
WHOLE = {
    "sections of both byte orders": section("<", FRAMES[:40]) + section(">", FRAMES[40:]),
    "FCS by if_fcslen, bytes": with_option_of_interface(13, b"\x04")
    + b"".join(Blocks().enhanced(with_fcs(frame)) for frame in FRAMES),
    "FCS by if_fcslen, bits": with_option_of_interface(13, b"\x20")
    + b"".join(Blocks().enhanced(with_fcs(frame)) for frame in FRAMES),
    "FCS by epb_flags": section("<", []) + b"".join(Blocks().enhanced(with_fcs(f), options=FLAGS) for f in FRAMES),
    "FCS by epb_flags of some": section("<", FRAMES[:3])
    + b"".join(
        Blocks().enhanced(with_fcs(f), options=FLAGS) if f.time_ns % 3 else Blocks().enhanced(f) for f in FRAMES[3:]
    ),
    "snap length 50, whole pcap": pcap(FRAMES, snap=50),
    "snap length 50, whole pcapng": section("<", FRAMES, snap=50),
    "resolution 2^-30": with_ticks(0x80 | 30, lambda ns: -(-(ns << 30) // 10**9)),
    "resolution 10^-12": with_ticks(12, lambda ns: (ns - START_NS) * 1000, offset_s=START_NS // 10**9),
    "offset": with_ticks(9, lambda ns: ns - START_NS, offset_s=START_NS // 10**9),
}


@pytest.mark.parametrize("kind", WHOLE)
def test_what_is_decoded_whole(tmp_path: Path, kind: str) -> None:
    found = analyzed(tmp_path / "c", WHOLE[kind])
    stream = only_stream(found)
    assert (stream["frame_size_min"], stream["frame_size_max"], stream["delay_mean_ns"]) == (64, 64, 5000)
    assert abs(stream["rate_fps"] - 1000) < 1e-3
    assert (found["warnings"], found["odd_length_frames"]) == ([], 0)


@pytest.mark.parametrize("write", [pcap, lambda frames: section("<", frames)], ids=["pcap", "pcapng"])
@pytest.mark.parametrize("original", [0, 1, 44, 2**32 - 1])
@pytest.mark.parametrize("which", [{0}, {7}, {COUNT - 1}, set(range(COUNT))], ids=["first", "one", "last", "all"])
def test_impossible_lengths_are_counted(tmp_path: Path, write: Any, original: int, which: set[int]) -> None:
    lengths = struct.pack("<I", original)
    content = bytearray(write(FRAMES))
    record = (len(content) - len(write([]))) // COUNT
    for number in which:
        at = len(write([])) + number * record + (12 if write is pcap else 24)
        content[at : at + 4] = lengths
    found = analyzed(tmp_path / "c", bytes(content))
    only_stream(found)
    assert (found["wrong_length_frames"], found["damage"]) == (len(which), None)
    assert "impossible length" in "".join(found["warnings"])


def test_blocks_that_were_never_written_are_damage(tmp_path: Path) -> None:
    found = analyzed(tmp_path / "c", pcap(FRAMES) + bytes(4096))
    assert (only_stream(found)["rate_fps"], found["damaged_at"]) == (pytest.approx(1000), len(pcap(FRAMES)))


def times(year_s: int) -> list[Frame]:
    return [frame._replace(time_ns=year_s * 10**9 + i * MS) for i, frame in enumerate(FRAMES)]


@pytest.mark.parametrize("second", [-2_000_000_000, -1, 5, 4_294_967_296, 7_258_118_400])
def test_times_of_other_centuries(tmp_path: Path, second: int) -> None:
    blocks = Blocks()
    ticks = (frame.time_ns // 1000 % 2**64 for frame in times(second))
    content = section("<", []) + b"".join(blocks.enhanced(f, t) for f, t in zip(FRAMES, ticks, strict=True))
    found = analyzed(tmp_path / "c", content)
    stream = only_stream(found)
    assert (stream["first_ns"], stream["delay_mean_ns"]) == (second * 10**9, None)
    assert stream["rate_fps"] == pytest.approx(1000)
    assert "share a clock" in found["warnings"][0]


UNTIMED = {
    "simple packet blocks": section("<", []) + simple(FRAMES),
    "half of them simple": section("<", FRAMES[:50]) + simple(FRAMES[50:]),
    "zero": pcap([frame._replace(time_ns=0) for frame in FRAMES]),
    "beyond 64 bits": with_ticks(6, lambda ns: ns // 1000 + 20 * 10**15),
}


@pytest.mark.parametrize("kind", UNTIMED)
def test_frames_without_a_capture_time(tmp_path: Path, kind: str) -> None:
    found = analyzed(tmp_path / "c", UNTIMED[kind])
    stream = only_stream(found)
    assert (found["rate_fps"], stream["rate_fps"]) == (None, None)
    assert stream["delay_mean_ns"] == (5000 if "half" in kind else None)
    assert "no capture time" in "".join(found["warnings"])


def test_fractions_above_a_second(tmp_path: Path) -> None:
    content = pcap_header() + pcap(FRAMES, nanoseconds=True)[24:]
    found = analyzed(tmp_path / "c", content)
    stream = only_stream(found)
    assert (stream["rate_fps"], stream["delay_mean_ns"], stream["ipdv_mean_ns"]) == (None, None, None)
    assert found["invalid_fraction_frames"] > 0
    assert "fraction" in found["warnings"][0]


@pytest.mark.parametrize(("apart_ms", "is_seen"), [(25, True), (2, False)])
def test_microseconds_in_a_file_of_nanoseconds(tmp_path: Path, apart_ms: int, is_seen: bool) -> None:
    """Within one second the fractions could be nanoseconds as well."""
    frames = [stream_frame(i)._replace(time_ns=START_NS + i * apart_ms * MS) for i in range(COUNT)]
    found = analyzed(tmp_path / "c", pcap([], nanoseconds=True) + pcap(frames)[24:])
    assert found["small_fraction_frames"] == (COUNT if is_seen else 0)
    assert ("magic number" in "".join(found["warnings"])) is is_seen
    assert (found["rate_fps"] is None) is is_seen


def clocked(capture: Callable[[int], float], stamp: Callable[[int], float], count: int = COUNT) -> bytes:
    """Return frames 1 ms apart, at each of which the two clocks are off by `capture` and `stamp` ms."""
    frames = []
    for i in range(count):
        sent_ns = 0 if stamp(i) < -(10**9) else START_NS + round((i + stamp(i)) * MS)
        frame = stream_frame(i, sent_ns=sent_ns)
        frames.append(frame._replace(time_ns=START_NS + round((i + capture(i)) * MS) + 5000))
    return pcap(frames)


NO_STAMP = -(10**10)
STEPS: dict[str, tuple[Callable[[int], float], Callable[[int], float], str, bool]] = {
    "capture back": (lambda i: -1000 * (i >= 50), lambda i: 0, "the capture's clock was set back by", False),
    "capture forward": (lambda i: 10_000 * (i >= 50), lambda i: 0, "the capture's clock was set forward by", False),
    "there and back": (lambda i: 10_000 * (30 <= i < 60), lambda i: 0, "the capture's clock", False),
    "at the last frame": (lambda i: -500 * (i >= COUNT - 1), lambda i: 0, "the capture's clock", False),
    "source back": (lambda i: 0, lambda i: -1000 * (i >= 50), "the source's clock was set back by", True),
    "source forward": (lambda i: 0, lambda i: 1000 * (i >= 50), "the source's clock was set forward by", True),
    "without stamps, back": (lambda i: -1000 * (i >= 50), lambda i: NO_STAMP, "capture times go back", False),
    "without stamps, forward": (lambda i: 10_000 * (i >= 50), lambda i: NO_STAMP, "no frame arrived for", False),
    "half of the stamps": (lambda i: 0, lambda i: NO_STAMP if i % 2 else 1000 * (i >= 50), "the source's clock", True),
    "both back": (lambda i: -1000 * (i >= 50), lambda i: -1000 * (i >= 50), "the capture's clock was set back", False),
    "both forward, frames on the way": (
        lambda i: 1000 * (i >= 50),
        lambda i: 1000 * (i >= 53),
        "clocks were set forward",
        False,
    ),
    "source forward, then capture back": (
        lambda i: -1000 * (i >= 70),
        lambda i: 10_000 * (i >= 50),
        "the capture's clock was set back",
        False,
    ),
    "source back, then capture forward": (
        lambda i: 1000 * (i >= 70),
        lambda i: -10_000 * (i >= 50),
        "the capture's clock was set forward",
        False,
    ),
    "both, source further back": (
        lambda i: -1000 * (i >= 50),
        lambda i: -10_000 * (i >= 50),
        "the capture's clock was set back",
        False,
    ),
    "frozen stamps": (lambda i: 0, lambda i: -i, "do not advance", True),
    "frozen stamps, back": (lambda i: -1000 * (i >= 50), lambda i: -i, "the capture's clock was set back", False),
    "frozen stamps, forward": (lambda i: 1000 * (i >= 50), lambda i: -i, "no frame arrived for", False),
    "coarse stamps": (lambda i: 0, lambda i: -(i % 4), "advance only every 4", True),
    "coarse stamps, forward": (lambda i: 1000 * (i >= 50), lambda i: -(i % 4), "no frame arrived for", False),
    "without stamps, forward twice": (
        lambda i: 10_000 * ((i >= 30) + (i >= 60)),
        lambda i: NO_STAMP,
        "no frame arrived for",
        False,
    ),
    "stamps from the middle on, back": (
        lambda i: -1000 * (i >= 50),
        lambda i: NO_STAMP if i < 50 else 0,
        "the capture's clock was set back",
        False,
    ),
    "stamps from the middle on, forward": (
        lambda i: 1000 * (i >= 50),
        lambda i: NO_STAMP if i < 50 else 0,
        "no frame arrived for",
        False,
    ),
    "one stamp, forward": (
        lambda i: 1000 * (i >= 50),
        lambda i: 0 if i == 5 else NO_STAMP,
        "no frame arrived for",
        False,
    ),
    "capture runs fast": (lambda i: i / 10, lambda i: 0, "by time stamps", False),
    "capture runs slow": (lambda i: -i / 10, lambda i: 0, "by time stamps", False),
    "capture in another unit": (lambda i: -0.999 * i, lambda i: 0, "another unit", False),
    "offset": (lambda i: 0, lambda i: -5000, "share a clock", True),
}


@pytest.mark.parametrize("kind", STEPS)
def test_clocks_that_cannot_be_trusted(tmp_path: Path, kind: str) -> None:
    capture, stamp, why, has_rate = STEPS[kind]
    found = analyzed(tmp_path / "c", clocked(capture, stamp))
    stream = only_stream(found)
    assert stream["rate_fps"] == (pytest.approx(1000) if has_rate else None)
    assert (found["rate_fps"] is None) == (not has_rate)
    assert stream["delay_mean_ns"] is None
    assert why in "".join(found["warnings"])


@pytest.mark.parametrize("off_ms", [-1000, 1000, 10_000])
@pytest.mark.parametrize("is_stamped", [True, False], ids=["stamps", "no stamps"])
def test_a_clock_that_was_set_at_a_late_frame(tmp_path: Path, off_ms: int, is_stamped: bool) -> None:
    """The first frame arrives after the third, before or after the clock of the capture was set."""
    frames = list(FRAMES if is_stamped else UNSTAMPED)
    late = frames[0]._replace(time_ns=frames[2].time_ns + off_ms * MS + MS // 2)
    found = analyzed(tmp_path / "c", pcap([*frames[1:3], late, *frames[3:]]))
    (stream,) = found["streams"]
    assert (stream["rate_fps"], stream["delay_mean_ns"], stream["pdv_max_ns"]) == (None, None, None)
    assert "the capture's clock was set" in "".join(found["warnings"])


def test_half_of_the_stamps_are_absent(tmp_path: Path) -> None:
    found = analyzed(tmp_path / "c", clocked(lambda i: 0, lambda i: NO_STAMP if i % 2 else 0))
    stream = only_stream(found)
    assert (stream["delay_mean_ns"], stream["unstamped_frames"]) == (5000, 50)
    assert "50 of 100 frames bear no time stamp" in found["warnings"][0]


def test_a_path_that_holds_frames_back_is_no_step(tmp_path: Path) -> None:
    found = analyzed(tmp_path / "c", clocked(lambda i: max(0, 70 - i) if i >= 40 else 0, lambda i: 0))
    assert only_stream(found)["delay_mean_ns"] is not None
    assert found["warnings"] == []


def test_a_slow_frame_at_the_end_is_no_clock_that_runs_wrong(tmp_path: Path) -> None:
    found = analyzed(tmp_path / "c", clocked(lambda i: 0.45 * (i in (0, 1)), lambda i: 0, count=20))
    assert (found["streams"][0]["delay_mean_ns"], found["warnings"]) == (50_000, [])
    found = analyzed(tmp_path / "c", clocked(lambda i: 3 * (i == 49), lambda i: 0, count=50))
    assert "by time stamps" not in "".join(found["warnings"])


def test_stamps_of_long_ago_among_others(tmp_path: Path) -> None:
    """More jumps of the delay than are kept, all of one size."""
    found = analyzed(tmp_path / "c", clocked(lambda i: 0, lambda i: -(10**6) if i % 2 else 0, count=10_000))
    (stream,) = found["streams"]
    assert (stream["rate_fps"], stream["delay_mean_ns"], stream["pdv_max_ns"]) == (pytest.approx(1000), None, None)
    assert "some time stamps are wrong" in found["warnings"][0]


def test_a_pause_by_both_clocks_withholds_the_rate_only(tmp_path: Path) -> None:
    found = analyzed(tmp_path / "c", clocked(lambda i: 1000 * (i >= 50), lambda i: 1000 * (i >= 50)))
    stream = only_stream(found)
    assert (stream["rate_fps"], found["rate_fps"]) == (None, None)
    assert (stream["delay_mean_ns"], stream["pdv_max_ns"]) == (5000, 0)
    assert "the source paused, or both clocks were set forward" in found["warnings"][0]


@pytest.mark.parametrize(
    ("capture", "source", "has_rate"),
    [(0, 0, True), (-10_000, 0, False), (100_000, 0, False), (0, -10_000, True), (0, -300, True)],
)
def test_steps_behind_many_jumps_of_the_delay(tmp_path: Path, capture: int, source: int, has_rate: bool) -> None:
    """Delays differ by 0.6 ms from frame to frame, which is more jumps than are kept."""
    content = clocked(lambda i: i % 2 * 0.6 + capture * (i >= 7500), lambda i: source * (i >= 7500), count=10_000)
    found = analyzed(tmp_path / "c", content)
    (stream,) = found["streams"]
    assert stream["rate_fps"] == (pytest.approx(1000, rel=0.01) if has_rate else None)
    assert (stream["delay_mean_ns"] is None) == bool(capture or source) == bool(found["warnings"])


ARP = ethernet(bytes(28), ether_type=0x0806)
ARP_FRAME = Frame(ARP, START_NS)


@pytest.mark.parametrize(
    "parts",
    [
        [(True, 0, 100, 0), (False, 0, 100, -1_000_000)],
        [(True, 0, 50, 0), (False, 50, 60, 1_000_000), (True, 50, 100, 0)],
        [(True, 0, 50, 0), (False, 50, 60, -1_000_000), (True, 50, 100, 0)],
        [(False, 0, 50, 0), (False, 50, 100, 1_000_000)],
        [(False, 0, 50, 0), (False, 50, 100, -1000)],
    ],
    ids=["back after", "forward within", "back within", "no stream, forward", "no stream, back"],
)
def test_clocks_that_frames_without_numbers_show(tmp_path: Path, parts: list[tuple[bool, int, int, int]]) -> None:
    """Each part: whether it is a stream's, its range of frames, and the error of the capture's clock in ms."""
    frames = [
        Frame(FRAMES[i].data if is_stream else ARP, START_NS + (i + off) * MS)
        for is_stream, begin, end, off in parts
        for i in range(begin, end)
    ]
    found = analyzed(tmp_path / "c", pcap(frames))
    assert (found["rate_fps"], found["first_ns"]) == (None, None)
    assert [stream["rate_fps"] for stream in found["streams"]] == [pytest.approx(1000)] * parts[0][0]
    assert "Time and rate are not stated" in found["warnings"][0]


@pytest.mark.parametrize("at_ns", [START_NS + 10_000 * MS, START_NS + 50 * MS])
def test_copies_do_not_stretch_the_time(tmp_path: Path, at_ns: int) -> None:
    found = analyzed(tmp_path / "c", pcap([*FRAMES, FRAMES[5]._replace(time_ns=max(at_ns, FRAMES[-1].time_ns))]))
    (stream,) = found["streams"]
    assert (stream["duplicate_frames"], stream["rate_fps"]) == (1, pytest.approx(1000))


@pytest.mark.parametrize(
    "frames",
    [
        FRAMES[0::2] + FRAMES[1::2],
        FRAMES[10:20] + FRAMES[:10] + FRAMES[20:],
        UNSTAMPED[0::2] + UNSTAMPED[1::2],
    ],
    ids=["by CPU", "a part late", "by CPU, no stamps"],
)
def test_a_file_that_is_not_in_the_order_of_capture(tmp_path: Path, frames: list[Frame]) -> None:
    found = analyzed(tmp_path / "c", pcap(frames))
    (stream,) = found["streams"]
    assert (stream["received_frames"], stream["missing_frames"], stream["rate_fps"]) == (COUNT, 0, pytest.approx(1000))
    assert (stream["reordered_frames"], stream["reordering_extent_max_frames"]) == (None, None)
    assert "not in the order of capture" in "".join(found["warnings"])


def numbered(*numbers: int) -> bytes:
    return pcap([stream_frame(n, sent_ns=START_NS + place * MS) for place, n in enumerate(numbers)])


@pytest.mark.parametrize("number", [2**30, 2**31 + 60])
@pytest.mark.parametrize("place", [0, 50, COUNT - 1])
def test_numbers_that_jump_are_no_loss(tmp_path: Path, number: int, place: int) -> None:
    found = analyzed(tmp_path / "c", numbered(*range(place), number, *range(place + 1, COUNT)))
    (stream,) = found["streams"]
    assert (stream["received_frames"], stream["rate_fps"]) == (COUNT, pytest.approx(1000))
    names = ("missing_frames", "loss_runs", "longest_loss_run_frames", "loss_run_lengths", "reordered_frames")
    assert [stream[name] for name in names] == [None] * len(names)
    assert "sequence numbers jump by" in found["warnings"][0]


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (numbered(*range(COUNT), *range(30)), "30 frames were sent after frames with higher numbers"),
        (pcap(sorted(FRAMES + FRAMES[:30], key=lambda frame: frame.time_ns)), "several sources use these addresses"),
    ],
    ids=["source began anew", "same frames again"],
)
def test_copies_that_may_be_none(tmp_path: Path, content: bytes, why: str) -> None:
    found = analyzed(tmp_path / "c", content)
    assert [stream["duplicate_frames"] for stream in found["streams"]] == [30]
    assert why in "".join(found["warnings"])


@pytest.mark.parametrize("first", [0, 40, 1000], ids=["same numbers", "some others", "all others"])
def test_two_sources_with_the_same_addresses(tmp_path: Path, first: int) -> None:
    numbers = [number for i in range(COUNT) for number in (i, i + first) if number % 7 or i in (0, COUNT - 1)]
    (stream,) = analyzed(tmp_path / "c", numbered(*numbers))["streams"]
    assert (stream["missing_frames"], stream["reordered_frames"], stream["loss_runs"]) == (None, None, None)


def test_a_coarser_section_makes_delays_unknown(tmp_path: Path) -> None:
    blocks = Blocks()
    coarse = b"".join(blocks.enhanced(frame, frame.time_ns // MS) for frame in FRAMES[50:])
    content = section("<", FRAMES[:50]) + blocks.section() + blocks.interface(resolution=3) + coarse
    found = analyzed(tmp_path / "c", content)
    assert only_stream(found)["delay_mean_ns"] is None
    assert "resolution" in found["warnings"][0]


def test_interfaces_are_counted_apart(tmp_path: Path) -> None:
    blocks = Blocks()
    both = b"".join(
        blocks.enhanced(f) + blocks.enhanced(f._replace(interface=1), f.time_ns // 1000 + 7) for f in FRAMES
    )
    found = analyzed(tmp_path / "c", blocks.section() + blocks.interface() + blocks.interface(snap=96) + both)
    assert [stream["received_frames"] for stream in found["streams"]] == [COUNT, COUNT]
    assert [stream["duplicate_frames"] + stream["reordered_frames"] for stream in found["streams"]] == [0, 0]
    assert [stream["delay_mean_ns"] for stream in found["streams"]] == [5000, 12_000]
    assert [interface["frames"] for interface in found["interfaces"]] == [COUNT, COUNT]
    assert (found["rate_fps"], found["warnings"]) == (None, [])


def test_a_stream_over_two_interfaces(tmp_path: Path) -> None:
    blocks = Blocks()
    frames = [frame._replace(interface=i % 2) for i, frame in enumerate(FRAMES) if i not in (7, 50)]
    content = blocks.section() + blocks.interface() * 2 + b"".join(map(blocks.enhanced, frames))
    (across,) = analyzed(tmp_path / "c", content)["across_interfaces"]
    assert (across["interfaces"], across["received_frames"], across["missing_frames"]) == (2, COUNT - 2, 2)
    frames[20] = stream_frame(2**30, sent_ns=START_NS + 20 * MS)
    content = blocks.section() + blocks.interface() * 2 + b"".join(map(blocks.enhanced, frames))
    (across,) = analyzed(tmp_path / "c", content)["across_interfaces"]
    assert (across["received_frames"], across["missing_frames"]) == (COUNT - 2, None)


def test_an_interface_that_is_not_described(tmp_path: Path) -> None:
    content = section("<", [frame._replace(interface=i % 2) for i, frame in enumerate(FRAMES)])
    found = analyzed(tmp_path / "c", content)
    assert (found["frames"], found["unknown_interface_frames"], found["foreign_frames"]) == (COUNT, 50, 50)
    assert "does not describe" in found["warnings"][0]


NAMES = {113: ["incoming", "outgoing"], 276: ["interface 2, incoming", "interface 6, outgoing"]}


@pytest.mark.parametrize("short", [[], [0], [101], [101, 150]])
@pytest.mark.parametrize("link", [113, 276])
def test_both_directions_of_a_cooked_capture(tmp_path: Path, link: int, short: list[int]) -> None:
    """The frames at the `short` places are cut within the cooked header."""
    frames = []
    for frame in FRAMES:
        for kind in (0, 4):
            head = struct.pack(">HHH8sH", kind, 1, 6, bytes(8), 0x0800)
            if link == 276:
                head = struct.pack(">HHIHBB8s", 0x0800, 0, 2 + kind, 1, kind, 6, bytes(8))
            frames.append(frame._replace(data=head + frame.data[14:]))
    for place in short:
        frames.insert(place, frames[place]._replace(data=bytes(10), original=80))
    found = analyzed(tmp_path / "c", pcap(frames, link=link))
    assert (found["frames"], found["too_short_frames"]) == (2 * COUNT + len(short), len(short))
    assert [interface["name"] for interface in found["interfaces"]] == NAMES[link]
    assert [stream["received_frames"] for stream in found["streams"]] == [COUNT, COUNT]
    assert [stream["duplicate_frames"] for stream in found["streams"]] == [0, 0]


def ipv6(payload: bytes, protocol: int = 17) -> bytes:
    return (
        struct.pack(">IHBB", 0x60000000, len(payload), protocol, 64)
        + bytes([0xFD, *[0] * 14, 1, 0xFD, *[0] * 14, 2])
        + payload
    )


def ip(payload: bytes, protocol: int) -> bytes:
    return struct.pack(">BBHHHBBH4s4s", 0x45, 0, 20 + len(payload), 0, 0, 64, protocol, 0, bytes(4), bytes(4)) + payload


def datagram(payload: bytes, port: int = 9) -> bytes:
    return struct.pack(">HHHH", 9, port, 8 + len(payload), 0) + payload


def inner(i: int) -> bytes:
    return udp(pktgen(i, START_NS + i * MS), size=100)


def inner6(i: int) -> bytes:
    return datagram(pktgen(i, START_NS + i * MS))


VXLAN = bytes.fromhex("0800000000002a00")
ERSPAN_3 = bytes.fromhex("100022eb") + bytes(4) + bytes.fromhex("2001000100000000")
LAYERS: dict[str, Callable[[int], bytes]] = {
    "priority tag": lambda i: ethernet(inner(i), tags=[0x8100]),
    "three tags": lambda i: ethernet(inner(i), tags=[0x88A8, 0x8100, 0x8100]),
    "IPv6": lambda i: ethernet(ipv6(inner6(i)), ether_type=0x86DD),
    "IPv6 hop-by-hop": lambda i: ethernet(ipv6(bytes([17, 1]) + bytes(14) + inner6(i), 0), ether_type=0x86DD),
    "IPv6 routing, destination": lambda i: ethernet(
        ipv6(bytes([60, 0]) + bytes(6) + bytes([17, 0]) + bytes(6) + inner6(i), 43), ether_type=0x86DD
    ),
    "IPv6 first fragment": lambda i: ethernet(ipv6(bytes([17, 0, 0, 1]) + bytes(4) + inner6(i), 44), ether_type=0x86DD),
    "MPLS": lambda i: ethernet(bytes.fromhex("00005040") + bytes.fromhex("00006140") + inner(i), ether_type=0x8847),
    "MPLS pseudowire": lambda i: ethernet(bytes.fromhex("0000514000000000") + ethernet(inner(i)), ether_type=0x8847),
    "PPPoE": lambda i: ethernet(bytes.fromhex("1100000100660021") + inner(i), ether_type=0x8864),
    "GRE": lambda i: ethernet(ip(bytes.fromhex("00000800") + inner(i), 47)),
    "GRE with key, Ethernet": lambda i: ethernet(ip(bytes.fromhex("2000655800000007") + ethernet(inner(i)), 47)),
    "IP in IP": lambda i: ethernet(ip(inner(i), 4)),
    "IPv6 in IP": lambda i: ethernet(ip(ipv6(inner6(i)), 41)),
    "VXLAN": lambda i: ethernet(ip(datagram(VXLAN + ethernet(inner(i)), 4789), 17)),
    "VXLAN over IPv6": lambda i: ethernet(ipv6(datagram(VXLAN + ethernet(inner(i)), 8472)), ether_type=0x86DD),
    "GENEVE": lambda i: ethernet(ip(datagram(bytes.fromhex("0000655800002a00") + ethernet(inner(i)), 6081), 17)),
    "AH": lambda i: ethernet(ip(bytes([17, 4]) + bytes(22) + inner6(i), 51)),
    "ERSPAN type III": lambda i: ethernet(ip(ERSPAN_3 + bytes(4) + ethernet(inner(i)), 47)),
    "ERSPAN type III with a subheader": lambda i: ethernet(
        ip(ERSPAN_3 + bytes.fromhex("00000001") + bytes(8) + ethernet(inner(i)), 47)
    ),
    "MPLS pseudowire to 40:…": lambda i: ethernet(
        bytes.fromhex("00005140") + ethernet(inner(i), dst=bytes.fromhex("400000000001")), ether_type=0x8847
    ),
    "MPLS pseudowire to 60:…": lambda i: ethernet(
        bytes.fromhex("00005140") + ethernet(inner(i), dst=bytes.fromhex("600000000001")), ether_type=0x8847
    ),
}


@pytest.mark.parametrize("kind", LAYERS)
@pytest.mark.parametrize("others", [0, 2], ids=["alone", "among others"])
def test_headers_around_a_stream(tmp_path: Path, kind: str, others: int) -> None:
    frames = []
    for i in range(COUNT):
        frames.append(Frame(LAYERS[kind](i), START_NS + i * MS + 5000))
        frames += [Frame(ethernet(bytes(46 + n), ether_type=0x0806), START_NS + i * MS) for n in range(others)]
    found = analyzed(tmp_path / "c", pcap(frames))
    assert only_stream(found)["delay_mean_ns"] == 5000
    assert found["other_protocols"] == ({"ARP": COUNT * others} if others else {})
    assert found["warnings"] == []


def test_what_is_not_decoded_is_named(tmp_path: Path) -> None:
    frames = [
        Frame(ethernet(bytes(60), ether_type=0x88E5), START_NS),
        Frame(ethernet(ip(bytes(60), 50)), START_NS),
        Frame(ethernet(udp(pktgen(5), fragment=1, size=128)), START_NS),
        Frame(ethernet(ip(bytes(60), 6)), START_NS),
    ]
    found = analyzed(tmp_path / "c", pcap(frames))
    assert found["undecoded"] == {"MACsec": 1, "ESP": 1, "IPv4 fragments after the first": 1}
    assert (found["undecoded_frames"], found["other_protocols"]) == (3, {"TCP": 1})
    assert "3 frames were not decoded" in found["warnings"][0]


CDP = bytes.fromhex("aaaa0300000c2000")
LONG_GENEVE = bytes.fromhex("3f00655800002a00") + bytes(252)
HIDDEN: dict[str, tuple[Callable[[int], bytes], dict[str, int], dict[str, int]]] = {
    "VXLAN at another port": (
        lambda i: ethernet(ip(datagram(VXLAN + ethernet(inner(i)), 14789), 17)),
        {"UDP": COUNT},
        {"pktgen's magic number deeper in UDP": COUNT},
    ),
    "SCTP": (lambda i: ethernet(ip(bytes(12) + inner6(i), 132)), {}, {"pktgen's magic number deeper in SCTP": COUNT}),
    "GENEVE with long options": (
        lambda i: ethernet(ip(datagram(LONG_GENEVE + ethernet(inner(i)), 6081), 17)),
        {},
        {"headers of more than 240 bytes": COUNT},
    ),
    "CDP": (lambda i: ethernet(CDP + bytes(40), ether_type=48), {"Cisco SNAP": COUNT}, {}),
}


@pytest.mark.parametrize("kind", HIDDEN)
def test_streams_behind_unknown_headers_are_undecoded(tmp_path: Path, kind: str) -> None:
    make, others, undecoded = HIDDEN[kind]
    frames = [frame for i in range(COUNT) for frame in (Frame(make(i), START_NS + i * MS), ARP_FRAME)]
    if others.get("UDP"):
        frames += [Frame(ethernet(ip(datagram(bytes(32), 53), 17)), START_NS)] * COUNT
    found = analyzed(tmp_path / "c", pcap(frames))
    assert (found["other_protocols"], found["undecoded"]) == ({"ARP": COUNT} | others, undecoded)


@pytest.mark.parametrize(
    ("link", "head"), [(101, ""), (228, ""), (0, "02000000"), (0, "00000002"), (108, "00000002"), (9, "ff030021")]
)
def test_other_link_types(tmp_path: Path, link: int, head: str) -> None:
    frames = [frame._replace(data=bytes.fromhex(head) + frame.data[14:]) for frame in FRAMES]
    assert only_stream(analyzed(tmp_path / "c", pcap(frames, link=link)))["frame_size_min"] == 64


@pytest.mark.parametrize(("link", "name"), [(105, "IEEE 802.11"), (147, "link type 147")])
def test_link_types_that_are_not_decoded(tmp_path: Path, link: int, name: str) -> None:
    found = analyzed(tmp_path / "c", pcap(FRAMES, link=link))
    assert (found["frames"], found["undecoded"]) == (COUNT, {f"frames of {name}": COUNT})


def obsolete(drops: int) -> bytes:
    """Obsolete packet blocks, each with a count of frames that were dropped before it."""
    blocks = [bytearray(Blocks().obsolete(frame)) for frame in FRAMES]
    for block in blocks:
        block[10:12] = struct.pack("<H", drops)
    return b"".join(blocks)


DROPPED_BEFORE = Blocks().option(4, struct.pack("<Q", 3)) + Blocks().option(0, b"")
DROPPED = {
    "statistics": (section("<", FRAMES) + Blocks().statistics(0, 17, 3), 20),
    "statistics, unknown": (section("<", FRAMES) + Blocks().statistics(0, 2**64 - 1, 2**64 - 1), None),
    "statistics, one unknown": (section("<", FRAMES) + Blocks().statistics(0, 2**64 - 1, 3), 3),
    "obsolete packet blocks": (section("<", []) + obsolete(7), 700),
    "obsolete packet blocks, unknown": (section("<", []) + obsolete(0xFFFF), None),
    "epb_dropcount": (
        section("<", []) + b"".join(Blocks().enhanced(frame, options=DROPPED_BEFORE) for frame in FRAMES),
        300,
    ),
    "epb_dropcount of some": (
        section("<", FRAMES[:90]) + b"".join(Blocks().enhanced(f, options=DROPPED_BEFORE) for f in FRAMES[90:]),
        30,
    ),
}


@pytest.mark.parametrize("kind", DROPPED)
def test_frames_that_the_capture_dropped(tmp_path: Path, kind: str) -> None:
    content, dropped = DROPPED[kind]
    found = analyzed(tmp_path / "c", content)
    only_stream(found)
    assert found["capture_dropped_frames"] == dropped
    assert [warning.split(" frames")[0] for warning in found["warnings"]] == ([f"{dropped}"] if dropped else [])


def test_an_impossible_length_of_the_fcs_is_none(tmp_path: Path) -> None:
    content = with_option_of_interface(13, b"\xff") + b"".join(map(Blocks().enhanced, FRAMES))
    assert only_stream(analyzed(tmp_path / "c", content))["frame_size_min"] == 64


def test_names_of_interfaces_do_not_break_lines(tmp_path: Path) -> None:
    content = with_option_of_interface(2, b"e\x1b[31mX\nWARNING: \xff") + Blocks().interface()
    frames = [*FRAMES, *(frame._replace(interface=1) for frame in FRAMES)]
    path = tmp_path / "c"
    (interface, _) = analyzed(path, content + b"".join(map(Blocks().enhanced, frames)))["interfaces"]
    assert interface["name"] == r"e\x1b[31mX\nWARNING: \xff"
    text = analyze_command(path, as_json=False)
    assert all(line.isprintable() and not line.startswith("WARNING") for line in text.splitlines())


def test_many_interfaces_are_reported_apart(tmp_path: Path) -> None:
    content = Blocks().section() + Blocks().interface() * 1100
    frames = [*FRAMES, *(frame._replace(interface=1050) for frame in FRAMES[:30])]
    found = analyzed(tmp_path / "c", content + b"".join(map(Blocks().enhanced, frames)))
    assert [stream["received_frames"] for stream in found["streams"]] == [COUNT, 30]
    assert [interface["name"] for interface in found["interfaces"]] == ["0", "1050"]


def swapped(frames: list[Frame]) -> bytes:
    """A pcap of version 2.2, in which the length on the link is first."""
    records = [bytearray(pcap_record(frame)) for frame in frames]
    for record in records:
        record[8:16] = record[12:16] + record[8:12]
    return pcap_header(version=(2, 2), snap=58) + b"".join(records)


CUT = [frame._replace(data=frame.data[:58], original=60) for frame in FRAMES]
LARGE = FRAMES[50]._replace(data=FRAMES[50].data + bytes(300_000))


@pytest.mark.parametrize(
    ("content", "largest"),
    [
        (swapped(CUT), 64),
        (swapped([*CUT[:50], FRAMES[50], *CUT[51:]]), 64),
        (pcap([*FRAMES[:50], LARGE, *FRAMES[51:]], snap=2**20), 300_064),
    ],
    ids=["pcap 2.2", "pcap 2.2, two lengths", "snap length above 262,144"],
)
def test_unusual_pcap_files(tmp_path: Path, content: bytes, largest: int) -> None:
    found = analyzed(tmp_path / "c", content)
    stream = only_stream(found)
    assert (stream["frame_size_min"], stream["frame_size_max"], found["warnings"]) == (64, largest, [])
