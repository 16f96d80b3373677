"""UDP traffic of captures whose truth is known: datagrams, fragments, lost numbers, requests and responses."""

import struct

import pytest

from netbench.capture.udp_sessions import read_datagrams
from netbench.model.datagram_witness import IPERF3_KEY, SOCKPERF_KEY, PayloadKey
from netbench.model.flow_witness import UNKNOWN_NS
from tests.unit.wire_captures import (
    CLIENT,
    CLIENT_6,
    CLIENT_PORT,
    MS,
    PORT,
    SERVER,
    SERVER_6,
    datagram,
    without,
    written,
)


def read(tmp_path, frames, version=4, **more):
    ends = (CLIENT, SERVER) if version == 4 else (CLIENT_6, SERVER_6)
    path = written(tmp_path / "x.pcap", frames)
    return read_datagrams(path, client=ends[0], server=ends[1], ports=[PORT], **more)


def sockperf(number: int) -> bytes:
    return struct.pack(">QHI", number, 1, 14)


def iperf3(number: int) -> bytes:
    return struct.pack(">III", 1_700_000_000, 5, number)


def sent(*numbers: int, side="c", begin_ms=0.0, payload=sockperf, **more):
    return [
        frame for k, number in enumerate(numbers) for frame in datagram(side, begin_ms + k, payload(number), **more)
    ]


@pytest.mark.parametrize("version", [4, 6])
def test_totals_by_direction_and_ports(tmp_path, version):
    frames = sent(1, 2, 3, size=100, version=version) + sent(1, side="s", size=40, version=version)
    frames += sent(7, port=CLIENT_PORT + 1, size=60, begin_ms=5, version=version)
    traffic = read(tmp_path, frames, version).traffic
    totals = [(part.frames, part.datagrams, part.payload_bytes) for part in (traffic.to_server, traffic.to_client)]
    assert totals == [(4, 4, 360), (1, 1, 40)]
    assert list(traffic.sessions.client_port) == [CLIENT_PORT, CLIENT_PORT + 1]
    assert list(traffic.sessions.to_server_bytes) == [300, 60]
    assert list(traffic.sessions.to_client_datagrams) == [1, 0]
    assert traffic.to_server.last_ns - traffic.to_server.first_ns == 5 * MS
    assert traffic.to_server.lost_datagrams is None


# numbers in the order of arrival: (lost, duplicated, reordered), and lost if the first one is 1
ORDERS = {
    (1, 2, 3, 4): (0, 0, 0, 0),
    (1, 2, 4, 6): (2, 0, 0, 2),
    (5, 6, 7): (0, 0, 0, 4),
    (1, 3, 2, 4): (0, 0, 1, 0),
    (1, 4, 2, 3): (0, 0, 2, 0),
    (1, 2, 2, 3): (0, 1, 0, 0),
    (1, 3, 2, 2, 6): (2, 1, 1, 2),
    (2**31, 2**31 + 2): (1, 0, 0, 2**31),
}


@pytest.mark.parametrize("numbers", ORDERS)
def test_lost_duplicated_and_reordered(tmp_path, numbers):
    lost, duplicated, reordered, lost_from_1 = ORDERS[numbers]
    totals = read(tmp_path, sent(*numbers), key=SOCKPERF_KEY).traffic.to_server
    assert (totals.lost_datagrams, totals.duplicated_datagrams, totals.reordered_datagrams) == (
        lost,
        duplicated,
        reordered,
    )
    totals = read(tmp_path, sent(*numbers, payload=iperf3), key=IPERF3_KEY).traffic.to_server
    assert (totals.lost_datagrams, totals.unnumbered_datagrams) == (lost_from_1, 0)


def test_sessions_have_numbers_of_their_own(tmp_path):
    frames = sent(1, 2, 3) + sent(1, 3, port=5000, begin_ms=0.5)
    totals = read(tmp_path, frames, key=SOCKPERF_KEY).traffic.to_server
    assert (totals.lost_datagrams, totals.duplicated_datagrams) == (1, 0)


@pytest.mark.parametrize(
    ("key", "unnumbered"),
    [(PayloadKey(0, 8), 1), (PayloadKey(10, 4), 1), (PayloadKey(11, 4), 3), (PayloadKey(400, 4), 3)],
)
def test_datagrams_without_a_number_are_counted(tmp_path, key, unnumbered):
    frames = datagram("c", 0, b"1234") + sent(1, 2, begin_ms=1)
    totals = read(tmp_path, frames, key=key).traffic.to_server
    assert (totals.datagrams, totals.unnumbered_datagrams) == (3, unnumbered)


@pytest.mark.parametrize("version", [4, 6])
def test_requests_and_responses(tmp_path, version):
    frames = sent(1, 2, 3, version=version) + sent(2, side="s", begin_ms=11.5, version=version)
    frames += sent(1, 1, side="s", begin_ms=100.25, version=version)
    exchanges = read(tmp_path, frames, version, key=SOCKPERF_KEY).exchanges
    assert exchanges.number.tolist() == [1, 2, 3]
    assert exchanges.request_ns.tolist() == [0, MS, 2 * MS]
    assert exchanges.response_ns.tolist() == [100.25 * MS, 11.5 * MS, UNKNOWN_NS]


def test_a_repeated_request_counts_from_its_first_transmission(tmp_path):
    frames = sent(1) + sent(1, begin_ms=200) + sent(1, side="s", begin_ms=201)
    exchanges = read(tmp_path, frames, key=SOCKPERF_KEY).exchanges
    assert (exchanges.request_ns.tolist(), exchanges.response_ns.tolist()) == ([0], [201 * MS])


@pytest.mark.parametrize("version", [4, 6])
def test_fragments_count_as_one_datagram(tmp_path, version):
    frames = [
        frame
        for number in range(1, 4)
        for frame in datagram("c", number, iperf3(number), size=4000, version=version, fragment=1480, number=number)
    ]
    count = len(frames) // 3
    traffic = read(tmp_path, frames, version, key=IPERF3_KEY).traffic
    totals = traffic.to_server
    assert (totals.datagrams, totals.payload_bytes, totals.frames) == (3, 12_000, 3 * count)
    assert (totals.fragments, totals.incomplete_datagrams, totals.lost_datagrams) == (3 * (count - 1), 0, 0)
    assert (traffic.quality.other_frames, traffic.quality.unread) == (0, {})


@pytest.mark.parametrize(
    ("dropped", "datagrams", "incomplete", "without_first"), [(1, 2, 1, 0), (2, 2, 1, 0), (0, 1, 0, 2), (3, 1, 0, 2)]
)
def test_missing_fragments(tmp_path, dropped, datagrams, incomplete, without_first):
    frames = [f for number in (1, 2) for f in datagram("c", number, b"", size=4000, fragment=1480, number=number)]
    traffic = read(tmp_path, without(frames, dropped)).traffic
    assert (traffic.to_server.datagrams, traffic.to_server.incomplete_datagrams) == (datagrams, incomplete)
    assert sum(traffic.quality.unread.values()) == without_first


def test_a_number_of_fragments_used_again_is_another_datagram(tmp_path):
    first = datagram("c", 0, b"", size=4000, fragment=1480, number=9)
    second = datagram("c", 10, b"", size=4000, fragment=1480, number=9)
    traffic = read(tmp_path, [*first[:2], *second]).traffic
    assert (traffic.to_server.datagrams, traffic.to_server.incomplete_datagrams) == (2, 1)


@pytest.mark.parametrize("version", [4, 6])
def test_an_exchange_ends_with_the_last_fragment_of_the_response(tmp_path, version):
    """The numbers of fragments are used again, and fragments of two responses alternate."""
    frames = []
    for number, begin_ms in ((1, 0.0), (2, 0.5), (3, 500.0)):
        whole = {"size": 4000, "version": version, "fragment": 1480, "number": number % 2}
        for side, at_ms in (("c", begin_ms), ("s", begin_ms + 10)):
            cut = datagram(side, at_ms, sockperf(number), **whole)
            frames += [frame._replace(time_ns=cut[0].time_ns + place * MS) for place, frame in enumerate(cut)]
    frames.sort(key=lambda frame: frame.time_ns)
    exchanges = read(tmp_path, frames, version, key=SOCKPERF_KEY).exchanges
    last = len(cut) - 1
    assert exchanges.request_ns.tolist() == [0, 0.5 * MS, 500 * MS]
    assert exchanges.response_ns.tolist() == [(10 + last) * MS, (10.5 + last) * MS, (510 + last) * MS]


def test_frames_of_gso_count_as_datagrams(tmp_path):
    frames = sent(1, payload=iperf3, size=10_000) + sent(11, payload=iperf3, size=1000, begin_ms=1)
    frames += sent(13, payload=iperf3, size=2500, begin_ms=2)
    totals = read(tmp_path, frames, key=IPERF3_KEY, datagram_bytes=1000).traffic.to_server
    assert (totals.frames, totals.datagrams, totals.payload_bytes) == (3, 14, 13_500)
    assert (totals.lost_datagrams, totals.duplicated_datagrams) == (1, 0)


def test_other_flows_are_not_counted(tmp_path):
    path = written(tmp_path / "x.pcap", sent(1, 2))
    captured = read_datagrams(path, client=CLIENT, server=SERVER, ports=[9])
    assert (captured.traffic.to_server.frames, captured.traffic.quality.other_frames) == (0, 2)
    assert captured.exchanges is None


def test_an_empty_capture(tmp_path):
    captured = read(tmp_path, [], key=SOCKPERF_KEY)
    assert captured.traffic.to_server.lost_datagrams == 0
    assert len(captured.exchanges.number) == len(captured.traffic.sessions) == 0


@pytest.mark.parametrize(("offset", "size"), [(-1, 4), (0, 3), (0, 0)])
def test_invalid_keys(offset, size):
    with pytest.raises(ValueError, match="use 1, 2, 4 or 8 bytes"):
        PayloadKey(offset, size)
