"""Truncated and damaged files: correct counts or a clear message, never a wrong total or a traceback."""

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from netbench.capture.counting import analyze_capture
from netbench.cli.analyze import analyze_command
from netbench.errors import UsageError
from tests.fuzz.captures import check
from tests.unit.capture_files import Frame, pcap, pcap_header, pcap_record, pcapng, stream_frame

MUTANTS = 100


def frames_of(sizes: tuple[int, ...], count: int) -> list[Frame]:
    return [stream_frame(i, size=sizes[i % len(sizes)]) for i in range(count)]


@pytest.mark.parametrize("sizes", [(64,), (64, 90, 65)])
def test_truncated_at_every_byte(sizes: tuple[int, ...]) -> None:
    """`check` verifies the end of the last whole record."""
    content = pcap(frames_of(sizes, 5))
    for length in range(len(content) + 1):
        counts = check(content[:length])
        assert (counts is None) == (length < 24)
        assert counts is None or counts.damaged_at is None


@pytest.mark.parametrize("write", [pcap, pcapng])
def test_a_long_truncated_file(tmp_path: Path, write: Callable[..., bytes]) -> None:
    content = write(frames_of((64,), 70_000))
    path = tmp_path / "capture"
    record = (len(content) - len(write([]))) // 70_000
    rng = random.Random(1)
    for missing in (
        1,
        record - 1,
        record,
        record + 1,
        *(rng.randrange(len(content) // 2) for _ in range(10)),
    ):
        path.write_bytes(content[: len(content) - missing])
        counts = analyze_capture(path)
        assert counts.frames == 70_000 - -(-missing // record)
        assert counts.streams[0].received == counts.frames
        assert counts.leftover_bytes == -missing % record


@pytest.mark.parametrize("cut_off", [1, 91, 92 + 5])
def test_a_truncated_pcapng(tmp_path: Path, cut_off: int) -> None:
    content = pcapng(frames_of((64,), 5))
    path = tmp_path / "capture"
    path.write_bytes(content[:-cut_off])
    counts = analyze_capture(path)
    whole = 5 - -(-cut_off // 92)
    assert (counts.frames, counts.leftover_bytes, counts.damage) == (whole, -cut_off % 92, "")


def test_a_damaged_pcapng(tmp_path: Path) -> None:
    content = pcapng(frames_of((64,), 5))
    path = tmp_path / "capture"
    at = len(content) - 2 * 92
    path.write_bytes(content[: at + 4] + (93).to_bytes(4, "little") + content[at + 8 :])
    counts = analyze_capture(path)
    assert (counts.frames, counts.damaged_at) == (3, at)
    assert "length of 93" in counts.damage
    assert f"WARNING: damaged at byte {at}: {counts.damage}" in analyze_command(path, as_json=False)


@pytest.mark.parametrize("before", [0, 3, 5000])
@pytest.mark.parametrize(
    ("lengths", "why"),
    [
        ((2**31, 2**31), "captured length"),
        ((262_145, 262_145), "captured length"),
        ((61, 60), "61 bytes captured of a frame of 60"),
        ((0, 0), "frame of 0 bytes"),
    ],
)
def test_nonsense_lengths_stop_a_pcap_there(tmp_path: Path, before: int, lengths: tuple[int, int], why: str) -> None:
    content = pcap(frames_of((64,), before + 3000))
    at = len(pcap(frames_of((64,), before)))
    words = b"".join(length.to_bytes(4, "little") for length in lengths)
    path = tmp_path / "capture.pcap"
    path.write_bytes(content[: at + 8] + words + content[at + 16 :])
    counts = analyze_capture(path)
    assert (counts.frames, counts.damaged_at) == (before, at)
    assert why in counts.damage
    assert sum(stream.received for stream in counts.streams) == before
    assert f"damaged at byte {at:,}" in analyze_command(path, as_json=False)


def mutate(content: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, a part removed or a part repeated, at random places."""
    data = bytearray(content)
    for _ in range(rng.choice([1, 1, 1, 2, 8])):
        place = rng.randrange(len(data))
        match rng.randrange(4):
            case 0:
                data[place] ^= 1 << rng.randrange(8)
            case 1:
                data[place] = rng.choice([0, 0xFF, rng.randrange(256)])
            case 2:
                del data[place : place + rng.choice([1, 4, 16, 400])]
            case 3:
                data[place:place] = data[place : place + rng.choice([1, 4, 16, 400])]
    return bytes(data)


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("sizes", [(64,), (64, 90, 65, 1518)])
def test_mutated_files_are_refused_or_counted_right(order: str, sizes: tuple[int, ...]) -> None:
    content = pcap(frames_of(sizes, 40), order=order)
    rng = random.Random(f"{order} {sizes}")
    found = [check(mutate(content, rng)) for _ in range(MUTANTS)]
    assert {(counts.damaged_at is not None, counts.truncated) for counts in found if counts} >= {
        (True, False),
        (False, True),
        (False, False),
    }


@pytest.mark.parametrize("sizes", [(64,), (64, 90, 65, 1518)])
def test_no_single_changed_byte_makes_a_wrong_total_without_a_word(tmp_path: Path, sizes: tuple[int, ...]) -> None:
    """For every changed byte the total is right, the file is refused, or the result reports the damage."""
    content = pcap(frames_of(sizes, 40), snap=262_144)
    path = tmp_path / "capture"
    rng = random.Random(7)
    for _ in range(MUTANTS):
        place, value = rng.randrange(len(content)), rng.randrange(256)
        path.write_bytes(content[:place] + bytes([value]) + content[place + 1 :])
        try:
            counts = analyze_capture(path)
        except UsageError:
            continue
        output = counts.truncated or counts.damaged_at is not None or counts.odd_length_frames
        output = output or counts.oddities.wrong_lengths
        assert counts.frames == 40 or output, (place, value)


def test_a_pcap_whose_time_zone_looks_like_a_mark_of_pcapng_is_a_pcap(tmp_path: Path) -> None:
    content = pcap(frames_of((64,), 3), order=">")
    path = tmp_path / "capture.pcap"
    path.write_bytes(content[:8] + bytes.fromhex("1a2b3c4d") + content[12:])
    assert (analyze_capture(path).frames, analyze_capture(path).flavour) == (
        3,
        "pcap, microseconds, big-endian",
    )


def test_files_that_are_no_captures(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def refusal() -> str:
        with pytest.raises(UsageError) as refused:
            analyze_command(path, as_json=False)
        assert "\n" not in str(refused.value)
        assert str(path) in str(refused.value)
        return str(refused.value)

    assert "No such file" in refusal()
    path.mkdir()
    assert "not a regular file" in refusal()
    path.rmdir()
    os.mkfifo(path)
    assert "not a regular file" in refusal()
    path.unlink()
    for content, why in (
        (b"", "empty"),
        (b"\x1f\x8b\x08" + bytes(40), "gunzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(40), "unzstd"),
        (b"hello", "neither pcap nor pcapng"),
        (bytes(5000), "neither pcap nor pcapng"),
        (random.Random(3).randbytes(5000), "neither pcap nor pcapng"),
        (pcap_header()[:20], "within its file header"),
        (pcap_header(version=(543, 0)) + pcap_record(stream_frame(0)), "version 543.0"),
        (pcapng([])[:10], "within its file header"),
    ):
        path.write_bytes(content)
        assert why in refusal()


def test_a_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "capture.pcap"
    path.write_bytes(pcap([]))

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(type(path), "open", refuse)
    with pytest.raises(UsageError, match="Permission denied"):
        analyze_capture(path)
