"""Frames of several sizes: the notation of mixes, their arithmetic, and how sources and captures treat them."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from netbench.capture.capture_counts import Expected
from netbench.capture.counting import analyze_capture
from netbench.generators.frames import FrameBlock
from netbench.model.counts import SizeCounts
from netbench.model.fields import FrameSizeField
from netbench.model.frame_size import IMIX, FrameSize, parse_frame_size
from netbench.model.profile import Profile
from netbench.model.received import MeasuringWindow
from netbench.model.search import LossAtLoad, Rfc2544Tests, SearchResult, SearchState
from netbench.model.traffic import Sent, Traffic, traffic_of
from netbench.model.units import Load, l1_bits, l2_bits, line_rate_fps
from netbench.packets.build import build_template
from netbench.results.export_rows import group_rows, stream_rows
from netbench.sinks.measuring_window import received_of
from netbench.statistics.groups import group_trials
from tests.unit.capture_files import START_NS, pcap, stream_frame
from tests.unit.inputs import profile
from tests.unit.report_page import page_of
from tests.unit.results_factory import campaign, stream_counts, trial

MS = 1_000_000
MIX = FrameSize("mine", (64, 64, 200))
# A pass of the simple IMIX, on the wire: 7 × 84 + 4 × 614 + 1 × 1538 bytes.
IMIX_PASS_BITS = 8 * (7 * 84 + 4 * 614 + 1538)

genomes = st.lists(st.integers(64, 9000), min_size=2, max_size=40).filter(lambda sizes: len(set(sizes)) > 1).map(tuple)


def read(value: object) -> FrameSize:
    return TypeAdapter(FrameSizeField).validate_python(value)


@pytest.mark.parametrize(
    ("written", "genome"),
    [
        ("imix", (64,) * 7 + (594,) * 4 + (1518,)),
        ("imix-v6", (84,) * 7 + (594,) * 4 + (1518,)),
        ({"name": "one-each", "genome": "abcdefg"}, (64, 128, 256, 512, 1024, 1280, 1518)),
        ({"name": "jumbo", "genome": "ahi"}, (64, 2112, 9000)),
        ({"name": "own", "genome": "aABaA", "sizes": {"A": 72, "B": 1400}}, (64, 72, 1400, 64, 72)),
        ({"name": "listed", "genome": [64, "3x128", 64, "2 × 1518"]}, (64, 128, 128, 128, 64, 1518, 1518)),
    ],
)
def test_a_mix_is_written_in_letters_or_in_sizes_and_reads_back_from_what_is_stored(written, genome):
    found = read(written)
    assert found.is_mix
    assert found.genome == genome
    stored = TypeAdapter(FrameSizeField).dump_python(found)
    assert read(stored) == found


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("mix", "imix or a mix"),
        (64.0, "imix or a mix"),
        (True, "imix or a mix"),
        ({"genome": "ag"}, "needs a name"),
        ({"name": "64", "genome": "ag"}, "needs a name: a letter"),
        ({"name": "a/b", "genome": "ag"}, "needs a name: a letter"),
        ({"name": "m"}, "needs a genome"),
        ({"name": "m", "genome": ""}, "needs a genome"),
        ({"name": "m", "genome": 12}, "needs a genome"),
        ({"name": "m", "genome": "ag", "weights": 3}, "no weights"),
        ({"name": "m", "genome": "aaa"}, "one size only, which is no mix; write 64"),
        ({"name": "m", "genome": "azg"}, "z is the MTU"),
        ({"name": "m", "genome": "aj"}, "frames of 16000 bytes: 64 to 9234"),
        ({"name": "m", "genome": "ag "}, "' ' is none of the letters of RFC 6985: a = 64,"),
        ({"name": "m", "genome": "aB"}, "B has no size"),
        ({"name": "m", "genome": "ag", "sizes": {"A": 72}}, "A is not in the genome"),
        ({"name": "m", "genome": "aA", "sizes": {"A": "72"}}, "a capital letter and its bytes"),
        ({"name": "m", "genome": "aA", "sizes": {"b": 72}}, "a capital letter and its bytes"),
        ({"name": "m", "genome": [64, 72], "sizes": {"A": 72}}, "this genome has no letters"),
        ({"name": "m", "genome": [64, "0x128"]}, "'0x128' is no size"),
        ({"name": "m", "genome": [64, 63]}, "frames of 63 bytes"),
        ({"name": "m", "genome": [64, True]}, "True is no size"),
        ({"name": "m", "genome": ["1024x64", 128]}, "a genome of 1,025 frames: at most 1,024"),
    ],
)
def test_what_is_no_mix_is_refused_with_what_is_wrong(written, why):
    with pytest.raises(ValueError, match=why):
        read(written)


def test_mixes_of_one_name_are_refused_as_results_tell_them_apart_by_it():
    with pytest.raises(ValueError, match="imix is defined twice"):
        profile(frame_sizes=["imix", {"name": "imix", "genome": "ag"}])
    both = profile(frame_sizes=[64, {"name": "imix", "genome": "ag"}])
    assert Profile.model_validate(json.loads(both.model_dump_json())) == both


def test_the_sequence_is_reported_in_the_words_of_rfc_6985():
    assert parse_frame_size({"name": "m", "genome": "aaafg"}).in_letters == "IMIX - aaafg"
    assert IMIX.in_letters == "CUSTOM IMIX - AAAAAAABBBBC; A = 64, B = 594, C = 1518"
    assert IMIX.summary == "imix: 7 × 64, 4 × 594, 1 × 1518 bytes, 361.8 in the mean"
    many = FrameSize("many", (64, 64, *range(65, 92)))
    assert many.in_letters.startswith("CUSTOM IMIX - 2x64, 65, 66, ")


def test_rates_of_a_mix_are_those_of_its_mean_size():
    assert l1_bits(IMIX.mean_bytes) == pytest.approx(IMIX_PASS_BITS / 12)
    assert l2_bits(IMIX.mean_bytes) == pytest.approx(8 * (7 * 64 + 4 * 594 + 1518) / 12)
    assert line_rate_fps(1e9, IMIX.mean_bytes) == pytest.approx(12e9 / IMIX_PASS_BITS)
    assert Load.parse("1000fps").fps(IMIX, 1e9) == 1000
    assert Load.parse("100Mbit/s").fps(IMIX, 1e9) == pytest.approx(12e8 / IMIX_PASS_BITS)
    assert Load.parse("50%").fps(IMIX, 1e9) == pytest.approx(6e9 / IMIX_PASS_BITS)
    assert Load.parse("max").fps(IMIX, 1e9) is None
    assert (l1_bits(64), l2_bits(64)) == (672, 512)


def test_a_mix_shows_as_its_name_and_sorts_by_its_mean_size():
    small, large = FrameSize.of(64), FrameSize.of(1518)
    assert (f"{IMIX}", f"{IMIX:,}", IMIX.text(" B"), large.text(" B")) == ("imix", "imix", "imix", "1,518 B")
    assert sorted([large, IMIX, small, MIX]) == [small, MIX, IMIX, large]
    assert trial(stream_counts(), frame_size=IMIX).spec.key == "raw/dedicated/s1/imix/1000fps/1"


@given(genomes, st.integers(0, 2**40), st.integers(0, 200))
def test_frames_of_each_size_are_counted_whatever_number_is_the_first(genome, first, frames):
    numbers = range(first, first + frames)
    found = FrameSize("m", genome).frames_by_size(numbers)
    assert found == {size: sum(genome[n % len(genome)] == size for n in numbers) for size in sorted(set(genome))}


def traffic(size=MIX, flows: int = 1) -> Traffic:
    macs, ips = ("02:aa:00:00:00:01", "02:bb:00:00:00:02"), ("198.18.0.1", "198.19.255.254")
    return Traffic("s1", *macs, *ips, parse_frame_size(size), None, 1.0, flows, 7)


def block(of: Traffic, capacity: int) -> FrameBlock:
    return FrameBlock(of, capacity, build_template(of))


@given(genomes, st.integers(0, 2**33), st.integers(1, 8), st.sampled_from([1, 3]))
def test_a_source_gives_each_frame_the_size_of_its_number_and_headers_that_fit(genome, first, count, flows):
    frames = block(traffic(FrameSize("m", genome), flows), 8)
    row = frames.stamp(first, count, 5_000_000_000)
    one_size = block(traffic(64, flows), 8)
    one_size.stamp(first, count, 5_000_000_000)
    for place in range(count):
        frame = bytes(frames.buffer[row + place][: frames.lengths[row + place]])
        packet = Ether(frame)
        size = genome[(first + place) % len(genome)]
        assert (len(frame), packet[IP].len, packet[UDP].len) == (size - 4, size - 18, size - 38)
        alike = bytes(one_size.buffer[place])
        assert frame[34:38] + frame[42:58] == alike[34:38] + alike[42:58]
        checksum = packet[IP].chksum
        del packet[IP].chksum
        assert Ether(bytes(packet))[IP].chksum == checksum


def test_frames_of_one_size_are_as_many_as_before():
    frames = block(traffic(128), 256)
    assert frames.buffer.shape == (256, 124)
    assert frames.stamp(255, 3, 0) == 0
    assert set(frames.lengths) == {124}


def test_traffic_comes_back_from_json():
    for original in (traffic(), traffic(64)):
        assert traffic_of(json.loads(json.dumps(asdict(original)))) == original


EXPECTED = Expected("a", "198.18.0.1", "198.18.0.2", MIX, 300, START_NS, START_NS + 300 * MS)


def sent(number: int, size: int | None = None, **options):
    own = MIX.genome[number % 3] if size is None else size
    return stream_frame(number, size=own, sent_ns=START_NS + number * MS, **options)


def counted(tmp_path, frames, expected=EXPECTED):
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap(frames))
    return analyze_capture(path, [expected])


def test_a_frame_that_has_the_size_of_another_number_is_foreign(tmp_path):
    frames = [sent(number) for number in range(300)]
    frames[5] = sent(5, 64)  # which is 200 bytes long
    frames[6] = sent(6, 200)
    frames[7] = sent(7, 201)
    del frames[8]
    frames += [sent(9), sent(300)]  # a second copy, and one that was not sent
    counts = counted(tmp_path, frames)
    (stream,) = counts.streams
    assert (stream.received, stream.duplicates, stream.missing, counts.foreign_frames) == (296, 1, 4, 4)
    # Frames 5 and 8 are of 200 bytes, 6 and 7 of 64.
    assert {size: arrived.frames for size, arrived in stream.arrived_by_size.items()} == {64: 198, 200: 98}


def test_sizes_go_on_where_numbers_begin_at_0_again(tmp_path):
    start = 2**32 - 4
    numbers = range(start, start + 9)
    frames = [stream_frame(n % 2**32, size=MIX.genome[n % 3], sent_ns=START_NS + (n - start) * MS) for n in numbers]
    (stream,) = counted(tmp_path, frames, replace(EXPECTED, first_sequence=start, sent_frames=9)).streams
    assert (stream.received, stream.missing) == (9, 0)
    assert {size: arrived.frames for size, arrived in stream.arrived_by_size.items()} == MIX.frames_by_size(numbers)


def test_what_is_received_in_the_window_is_known_by_size(tmp_path):
    """Of 300 frames in 0.3 s the first 0.1 s are the warm-up; after it, every frame of 200 bytes is lost.

    Of the 200 frames after it, 198 are whole passes.
    """
    frames = [sent(number) for number in range(300) if number < 100 or number % 3 != 2]
    done = Sent(300, 0, 0.3, START_NS, START_NS + 299 * MS, 1, 0.0)
    what = replace(traffic(), fps=1000.0, duration_s=0.3, warm_up_s=0.1)
    received = received_of(counted(tmp_path, frames), done, what)
    assert received.frames == 100 + 2 * 200 // 3
    assert {size: tuple(of_size) for size, of_size in received.by_size.items()} == {64: (200, 132), 200: (33, 0)}
    assert received.window is not None
    assert received.window.frames == 132
    assert received.window.seconds == pytest.approx(0.198)


LOST = stream_counts(
    sent=900,
    received=600,
    by_size=(SizeCounts(64, 600, 500, 100, 400), SizeCounts(200, 300, 100, 200, 50)),
    window=MeasuringWindow(450, 0.5, 0),
)


def test_bit_rates_are_those_of_the_frames_that_were_sent_and_received():
    (row,) = stream_rows([trial(LOST, frame_size=MIX)])
    assert row["offered_mbps"] == pytest.approx(8 * (600 * 84 + 300 * 220) / 1e6)
    assert row["offered_l2_mbps"] == pytest.approx(8 * (600 * 64 + 300 * 200) / 1e6)
    assert row["throughput_mbps"] == pytest.approx(8 * (400 * 84 + 50 * 220) / 0.5 / 1e6)
    assert row["throughput_l2_mbps"] == pytest.approx(8 * (400 * 64 + 50 * 200) / 0.5 / 1e6)
    assert row["intended_mbps"] == pytest.approx(1000 * 8 * (2 * 84 + 220) / 3 / 1e6)
    (group,) = group_trials(campaign([trial(LOST, frame_size=MIX)]))
    assert group.offered_mbps is not None
    assert group.throughput_l2_mbps is not None
    assert group.offered_mbps.mean == row["offered_mbps"]
    assert group.throughput_l2_mbps.mean == row["throughput_l2_mbps"]


def test_exports_have_the_mix_by_name_its_sequence_and_its_frames_by_size():
    (row,) = stream_rows([trial(LOST, frame_size=MIX)])
    of_mix = {name: cell for name, cell in row.items() if "size" in name or "mix" in name}
    assert of_mix == {
        "frame_size": None,
        "trial_frame_size": None,
        "frame_mix": "mine",
        "frame_mix_genome": "CUSTOM IMIX - AAB; A = 64, B = 200",
        "frame_size_mean": pytest.approx(328 / 3),
        "sent_frames_by_size": "64=600;200=300",
        "received_frames_by_size": "64=500;200=100",
        "lost_frames_by_size": "64=100;200=200",
        "window_frames_by_size": "64=400;200=50",
        "trial_frame_mix": "mine",
    }
    (group,) = group_rows(campaign([trial(LOST, frame_size=MIX)]))
    assert (group["frame_size"], group["frame_mix"]) == (None, "mine")
    assert group["frame_size_mean"] == pytest.approx(328 / 3)


def test_without_counts_by_size_the_genome_stands_for_them():
    unknown = replace(LOST, by_size=tuple(replace(counts, window_frames=None) for counts in LOST.by_size))
    (row,) = stream_rows([trial(unknown, frame_size=MIX)])
    assert row["throughput_mbps"] == pytest.approx(900 * 8 * (2 * 84 + 220) / 3 / 1e6)
    assert row["window_frames_by_size"] is None


def test_campaigns_with_mixes_sort_among_numbers():
    small, large = FrameSize.of(64), FrameSize.of(1518)
    sizes = (large, MIX, IMIX, small)
    groups = group_trials(campaign([trial(stream_counts(), frame_size=size) for size in sizes]))
    assert [group.frame_size for group in groups] == [small, MIX, IMIX, large]
    assert np.isclose([group.intended_mbps or 0 for group in groups][2], 1000 * IMIX_PASS_BITS / 12 / 1e6)


def test_the_report_has_the_sequence_the_counts_by_size_and_searches_of_a_mix():
    results = campaign([trial(LOST, frame_size=MIX), trial(stream_counts(), frame_size=1518)])
    tests = Rfc2544Tests(1e6, losses=(LossAtLoad(1.0, 4e4, 0.625),))
    found = SearchState.FOUND
    one = SearchResult("raw", "dedicated", ("s1",), MIX, 1, "rfc2544", "NDR", 0.0, found, 0.005, 15e3, 16e3, 15e3)
    searches = [replace(one, kind_of_traffic=size, tests=tests) for size in (IMIX, FrameSize.of(64))]
    page = page_of(replace(results, searches=tuple(searches)))
    assert {"mixes", "searches", "rfc2544"} <= set(page.ids)
    for output in ("CUSTOM IMIX - AAB; A = 64, B = 200", IMIX.in_letters, "2 × 64, 1 × 200"):
        assert output in page.text, output
    assert "mixes" not in page_of(campaign([trial(stream_counts())])).ids
