"""TCP traffic of captures whose truth is known: bytes, segments, handshakes and ends of connections."""

from random import Random
from typing import Any

import pytest

from netbench.capture.tcp_connections import read_connections
from netbench.errors import UsageError
from netbench.model.flow_witness import ConnectionEnd, FlowEndpoints
from tests.unit.capture_files import START_NS
from tests.unit.wire_captures import (
    CLIENT,
    CLIENT_6,
    CLIENT_PORT,
    MS,
    MSS,
    PORT,
    SERVER,
    SERVER_6,
    Conversation,
    in_batches_of,
    without,
    written,
)


def read(tmp_path, frames, snap=128, version=4, link=1):
    ends = (CLIENT, SERVER) if version == 4 else (CLIENT_6, SERVER_6)
    path = written(tmp_path / "x.pcap", frames, snap, link)
    return read_connections(path, client=ends[0], server=ends[1], ports=[PORT])


def bulk(count=10, **more):
    """A connection with `count` segments to the server, each acknowledged, and closed."""
    talk = Conversation(**more).opened()
    for number in range(count):
        talk.segment("c", number * MSS, MSS).segment("s", ack=(number + 1) * MSS)
    return talk.closed(count * MSS)


def tcp(talk, *segments):
    for side, at, size, *ack in segments:
        talk.segment(side, at, size, ack=ack[0] if ack else None)
    return talk


# name: (segments after the handshake, expected totals to the server)
TO_SERVER: dict[str, tuple[list[Any], dict[str, int]]] = {
    "in order": ([("c", 0, 1000), ("c", 1000, 1000)], {"stream_bytes": 2000, "payload_bytes": 2000, "segments": 4}),
    "retransmitted": (
        [("c", 0, 1000), ("c", 1000, 1000), ("c", 0, 1000)],
        {"stream_bytes": 2000, "payload_bytes": 3000, "retransmitted_bytes": 1000, "retransmitted_segments": 1},
    ),
    "retransmitted in part, with new bytes": (
        [("c", 0, 1000), ("c", 500, 1000)],
        {"stream_bytes": 1500, "retransmitted_bytes": 500, "retransmitted_segments": 1},
    ),
    "reordered": (
        [("c", 0, 1000), ("c", 2000, 1000), ("c", 1000, 1000), ("c", 3000, 1000)],
        {"stream_bytes": 4000, "late_bytes": 1000, "late_segments": 1, "retransmitted_segments": 0},
    ),
    "lost ahead of the link, then retransmitted twice": (
        [("c", 0, 1000), ("c", 2000, 1000), ("c", 1000, 1000), ("c", 1000, 1000)],
        {"stream_bytes": 3000, "late_segments": 1, "retransmitted_segments": 1, "uncaptured_bytes": 0},
    ),
    "two holes filled by one segment that covers what lies between": (
        [("c", 1000, 1000), ("c", 3000, 1000), ("c", 0, 4000)],
        {"stream_bytes": 4000, "late_bytes": 2000, "retransmitted_bytes": 2000, "late_segments": 2},
    ),
    "a super-frame of 10.5 segments": ([("c", 0, 10_500)], {"stream_bytes": 10_500, "segments": 13, "frames": 3}),
    "a retransmitted super-frame": (
        [("c", 0, 10_500), ("c", 0, 10_500)],
        {"stream_bytes": 10_500, "retransmitted_segments": 11, "retransmitted_bytes": 10_500},
    ),
    "acknowledged and never captured": (
        [("c", 0, 1000), ("c", 3000, 1000), ("s", 0, 0, 4000)],
        {"stream_bytes": 2000, "uncaptured_bytes": 2000, "retransmitted_bytes": 0, "late_bytes": 0},
    ),
    "the end acknowledged and never captured": (
        [("c", 0, 1000), ("s", 0, 0, 2500)],
        {"stream_bytes": 1000, "uncaptured_bytes": 1500},
    ),
    "missing, but not acknowledged": (
        [("c", 0, 1000), ("c", 3000, 1000), ("s", 0, 0, 1000)],
        {"stream_bytes": 2000, "uncaptured_bytes": 0},
    ),
    "acknowledged in part": (
        [("c", 0, 1000), ("c", 3000, 1000), ("s", 0, 0, 2000)],
        {"stream_bytes": 2000, "uncaptured_bytes": 1000},
    ),
    "duplicate ACKs": (
        [("c", 0, 1000), ("s", 0, 0, 1000), ("s", 0, 0, 1000), ("s", 0, 0, 1000), ("s", 0, 10, 1000)],
        {"stream_bytes": 1000},
    ),
}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("isn", [1000, 2**32 - 1500, 2**32 - 1, 0])
@pytest.mark.parametrize("name", TO_SERVER)
def test_totals(tmp_path, name, isn, version):
    segments, expected = TO_SERVER[name]
    talk = tcp(Conversation(isn=(isn, 2**32 - 2), version=version).opened(), *segments)
    totals = read(tmp_path, talk.frames, version=version).to_server
    found = {field: getattr(totals, field) for field in expected}
    assert found == expected
    assert totals.payload_bytes == totals.stream_bytes + totals.retransmitted_bytes


def random_segments(seed):
    """Segments as of a connection with loss, reordering, retransmission and frames that the capture dropped."""
    random = Random(seed)
    total = random.randint(1, 12) * 700
    segments: list[tuple[Any, ...]] = []
    acked = 0
    for _ in range(random.randint(1, 40)):
        at = random.randrange(total)
        segments.append(("c", at, min(random.choice([1, 99, 700, 1000, 2500]), total - at)))
        if random.random() < 0.3:
            acked = random.randint(acked, total)
            segments.append(("s", 0, 0, acked))
    return segments


def by_sets(segments):
    """The expected totals, from the set of bytes seen so far."""
    seen: set[int] = set()
    highest = 0
    counts = dict.fromkeys(("stream_bytes", "payload_bytes", "retransmitted_bytes", "late_bytes"), 0)
    for _, at, size, *_ in segments:
        new = set(range(at, at + size)) - seen
        counts["stream_bytes"] += len(new)
        counts["payload_bytes"] += size
        counts["retransmitted_bytes"] += size - len(new)
        counts["late_bytes"] += sum(byte < highest for byte in new)
        seen |= new
        highest = max(highest, at + size if size else 0)
    return counts


@pytest.mark.parametrize("isn", [1000, 2**32 - 3000])
@pytest.mark.parametrize("count", [1, 5, 1000])
@pytest.mark.parametrize("seed", range(8))
def test_random_segments_as_a_set_of_bytes_has_them(tmp_path, monkeypatch, seed, count, isn):
    segments = random_segments(seed)
    # Acknowledged holes are settled after each batch: only without acknowledgements are all late bytes late.
    in_batches_of(monkeypatch, count)
    sent = [segment for segment in segments if segment[0] == "c"]
    totals = read(tmp_path, tcp(Conversation(isn=(isn, 7)).opened(), *sent).frames).to_server
    expected = by_sets(sent)
    assert {field: getattr(totals, field) for field in expected} == expected
    traffic = read(tmp_path, tcp(Conversation(isn=(isn, 7)).opened(), *segments).frames)
    acked = max((segment[3] for segment in segments if len(segment) > 3), default=0)
    covered = {byte for _, at, size, *_ in sent for byte in range(at, at + size)}
    # A byte that is captured after its acknowledgement counts as not captured and then retransmitted.
    assert traffic.to_server.delivered_bytes == pytest.approx(len(covered | set(range(acked))), abs=1)
    assert traffic.connections.to_server_bytes[0] == traffic.to_server.delivered_bytes


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_results_do_not_depend_on_batches(tmp_path, monkeypatch, count):
    frames = tcp(doubled_syn(Conversation()), *(segment for part, _ in TO_SERVER.values() for segment in part)).frames
    second = Conversation(port=5, now_ns=3000 * MS).opened().segment("c", 0, 99).closed(99)
    frames += bulk(5, port=4, isn=(2**32 - 2500, 0)).frames + second.frames
    frames += Conversation(port=5, isn=(9, 9), now_ns=second.now_ns).opened().frames
    whole = read(tmp_path, [frame for frame in frames if frame])
    in_batches_of(monkeypatch, count)
    assert read(tmp_path, frames) == whole


@pytest.mark.parametrize(
    ("mss", "timestamps", "size", "segments"),
    [
        ((1460, 1460), False, 14_600, 10),
        ((1460, 1460), True, 14_480, 10),  # 1448 bytes each
        ((1460, 1460), True, 14_481, 11),
        ((1460, 536), False, 14_600, 28),  # the smaller one
        ((9000, 1460), False, 64_240, 44),
    ],
)
def test_super_frames_count_as_segments_on_the_wire(tmp_path, mss, timestamps, size, segments):
    talk = Conversation(mss=mss, timestamps=timestamps).opened().segment("c", 0, size)
    assert read(tmp_path, talk.frames).to_server.segments == 2 + segments


@pytest.mark.parametrize("version", [4, 6])
def test_a_length_of_0_is_that_of_a_larger_frame(tmp_path, version):
    talk = Conversation(version=version).opened().segment("c", 0, 180_000, lengths=0).segment("s", ack=180_000)
    totals = read(tmp_path, talk.frames, version=version).to_server
    assert (totals.stream_bytes, totals.segments, totals.uncaptured_bytes) == (180_000, 2 + 180, 0)


def test_gigabytes_in_large_frames_wrap_several_times(tmp_path):
    talk, size = Conversation(isn=(2**32 - 7, 3), step_ns=1000).opened(), 500_000
    for number in range(20_000):  # 10 GB
        talk.now_ns += 1000
        if number < 1:
            talk.segment("c", 0, size, lengths=0)
        else:
            before = talk.frames[-1]
            sequence = (talk.isn[0] + 1 + number * size) % 2**32
            data = before.data[:38] + sequence.to_bytes(4) + before.data[42:]
            talk.frames.append(before._replace(data=data, time_ns=before.time_ns + 1000))
    for first in (0, 3):  # with and without the handshake
        totals = read(tmp_path, talk.frames[first:]).to_server
        assert (totals.stream_bytes, totals.retransmitted_bytes, totals.late_bytes) == (20_000 * size, 0, 0)
        assert totals.uncaptured_bytes == 0


def doubled_syn(talk: Conversation) -> Conversation:
    return talk.syn().wait(1000 * MS).syn().syn_ack().segment("c")


def doubled_syn_ack(talk: Conversation) -> Conversation:
    return talk.syn().syn_ack().wait(1000 * MS).syn_ack().segment("c")


# name: (segments, opened, end, SYN → SYN/ACK, SYN/ACK → ACK in ms, ambiguous)
HANDSHAKES = {
    "plain": (lambda talk: talk.opened(), 1, ConnectionEnd.OPEN, 1, 1, False),
    "slow": (lambda talk: talk.syn().wait(99 * MS).syn_ack().wait(9 * MS).segment("c"), 1, 0, 100, 10, False),
    "SYN retransmitted": (doubled_syn, 1, ConnectionEnd.OPEN, 1002, 1, True),
    "SYN/ACK retransmitted": (doubled_syn_ack, 1, ConnectionEnd.OPEN, 1, 1002, True),
    "closed": (lambda talk: talk.opened().closed(), 1, ConnectionEnd.CLOSED, 1, 1, False),
    "half closed": (lambda talk: talk.opened().segment("c", flags="FA"), 1, ConnectionEnd.OPEN, 1, 1, False),
    "reset": (lambda talk: talk.opened().segment("s", flags="RA"), 1, ConnectionEnd.RESET_BY_SERVER, 1, 1, False),
    "aborted": (lambda talk: talk.opened().segment("c", flags="R"), 1, ConnectionEnd.RESET_BY_CLIENT, 1, 1, False),
    "reset once closed": (
        lambda talk: talk.opened().closed().segment("c", flags="R"),
        1,
        ConnectionEnd.CLOSED,
        1,
        1,
        False,
    ),
    "refused": (lambda talk: talk.syn().segment("s", flags="RA"), 0, ConnectionEnd.REFUSED, -1, -1, False),
    "unanswered": (lambda talk: talk.syn().syn().syn(), 0, ConnectionEnd.UNANSWERED, -1, -1, True),
    "no ACK": (lambda talk: talk.syn().syn_ack(), 0, ConnectionEnd.OPEN, 1, -1, False),
}


@pytest.mark.parametrize("name", HANDSHAKES)
def test_handshakes(tmp_path, name):
    build, opened, end, there, back, ambiguous = HANDSHAKES[name]
    traffic = read(tmp_path, build(Conversation()).frames)
    table = traffic.connections
    assert (traffic.opened, traffic.without_handshake, len(table)) == (opened, 0, 1)
    ms = [time if time < 0 else time / MS for time in (table.to_syn_ack_ns[0], table.to_ack_ns[0])]
    assert (table.ends[0], *ms, bool(table.is_ambiguous[0])) == (end, there, back, ambiguous)


def test_kernel_counts_syns_and_fins_among_retransmissions(tmp_path):
    talk = doubled_syn(Conversation()).segment("c", 0, 500).segment("c", 0, 500)
    talk.segment("c", 500, flags="FA").segment("c", 500, flags="FA")
    totals = read(tmp_path, talk.frames).to_server
    assert (totals.retransmitted_syns, totals.retransmitted_segments, totals.retransmitted_fins) == (1, 1, 1)
    assert totals.retransmissions == 3


def test_a_port_used_again_is_another_connection(tmp_path):
    first = Conversation().opened().segment("c", 0, 100).closed(100)
    second = Conversation(isn=(77, 99), now_ns=first.now_ns).opened().segment("s", 0, 300).closed(0, 300)
    traffic = read(tmp_path, first.frames + second.frames)
    table = traffic.connections
    assert traffic.opened == 2
    assert list(zip(table.to_server_bytes, table.to_client_bytes, strict=True)) == [(100, 0), (0, 300)]
    assert list(table.ends) == [ConnectionEnd.CLOSED] * 2
    assert table.began_ns[1] == first.now_ns
    assert traffic.to_server.uncaptured_bytes == traffic.to_client.uncaptured_bytes == 0


def test_many_connections_are_kept_apart(tmp_path):
    frames = []
    for number in range(300):
        talk = Conversation(port=10_000 + number, isn=(number * 2**24, 2**32 - number), now_ns=number * 1000)
        frames += (
            talk.opened()
            .segment("c", 0, 10 + number)
            .segment("s", 0, 20, ack=10 + number)
            .closed(10 + number, 20)
            .frames
        )
    traffic = read(tmp_path, frames)
    assert list(traffic.connections.to_server_bytes) == [10 + number for number in range(300)]
    assert list(traffic.connections.client_port) == [10_000 + number for number in range(300)]
    assert traffic.connections.ends.count(ConnectionEnd.CLOSED) == traffic.opened == 300


def test_a_capture_that_begins_within_a_connection(tmp_path):
    frames = bulk(10).frames[8:]  # without the handshake and two and a half segments
    traffic = read(tmp_path, frames)
    assert (traffic.without_handshake, traffic.opened) == (1, 0)
    assert traffic.to_server.stream_bytes == 7000
    assert traffic.to_server.uncaptured_bytes in (0, 1000)
    assert traffic.connections.to_server_bytes[0] == traffic.to_server.delivered_bytes


@pytest.mark.parametrize("dropped", [(4,), (4, 6, 8), (3, 5, 21), (22,), (1,), (2,)])
def test_frames_that_the_capture_dropped_are_not_lost(tmp_path, dropped):
    frames = bulk(10).frames
    totals = read(tmp_path, without(frames, *dropped)).to_server
    assert totals.delivered_bytes == 10_000
    assert (totals.late_bytes, totals.retransmitted_bytes) == (0, 0)


@pytest.mark.parametrize("cut_bytes", [1, 17, 69])
def test_a_file_cut_within_a_record(tmp_path, cut_bytes):
    path = written(tmp_path / "x.pcap", bulk(10).frames[:-3])
    path.write_bytes(path.read_bytes()[:-cut_bytes])
    traffic = read_connections(path, client=CLIENT, server=SERVER, ports=[PORT])
    assert traffic.quality.leftover_bytes > 0
    assert traffic.to_server.stream_bytes == 10_000


@pytest.mark.parametrize("snap", [54, 60, 66, 68, 96, 128, 65_535])
def test_any_snap_length_that_has_the_headers(tmp_path, snap):
    traffic = read(tmp_path, bulk(5).frames, snap)
    assert (traffic.to_server.stream_bytes, traffic.quality.unread) == (5000, {})
    assert traffic.opened == 1


def test_frames_cut_within_their_headers_are_counted(tmp_path):
    frames = bulk(5).frames
    traffic = read(tmp_path, frames, snap=50)
    assert traffic.quality.unread == {"cut within their headers": len(frames)}


def vlan(packet):
    from scapy.layers.l2 import Dot1Q

    first, rest = packet.copy(), packet.payload
    first.remove_payload()
    return first / Dot1Q(vlan=7) / rest


def q_in_q(packet):
    return vlan(vlan(packet))


def cooked_2(packet):
    from scapy.layers.l2 import CookedLinuxV2

    return CookedLinuxV2(bytes.fromhex("0800000000000002000100060200000000010000")) / packet.payload


def cooked(packet):
    from scapy.layers.l2 import CookedLinux

    return CookedLinux(proto=0x0800, src=b"\x02\0\0\0\0\x01") / packet.payload


@pytest.mark.parametrize(
    ("wrap", "link"),
    [(vlan, 1), (q_in_q, 1), (cooked, 113), (cooked_2, 276), (lambda packet: packet.payload, 101)],
    ids=["vlan", "qinq", "cooked", "cooked2", "raw"],
)
def test_links(tmp_path, wrap, link):
    talk = bulk(5, wrap=wrap)
    talk.segment("c", 5000, 3000, lengths=0)
    traffic = read(tmp_path, talk.frames, link=link)
    assert (traffic.quality.unread, traffic.to_server.stream_bytes) == ({}, 8000)
    assert traffic.quality.frames == len(talk.frames)


def test_an_unsupported_link_type_is_named(tmp_path):
    traffic = read(tmp_path, bulk(1).frames, link=105)
    assert traffic.quality.unread == {"of IEEE 802.11, an unsupported link type": 8}


def test_a_cooked_capture_of_two_interfaces_is_rejected(tmp_path):
    frames = bulk(5, wrap=cooked_2).frames
    frames[3] = frames[3]._replace(data=frames[3].data[:7] + b"\x09" + frames[3].data[8:])
    with pytest.raises(UsageError, match=r"captured on 2 interfaces; capture one link"):
        read(tmp_path, frames, link=276)


def test_other_flows_are_not_counted(tmp_path):
    frames = bulk(5).frames
    path = written(tmp_path / "x.pcap", frames)
    for client, server, ports in (("198.18.0.9", SERVER, [PORT]), (CLIENT, SERVER, [81]), (SERVER, CLIENT, [PORT])):
        traffic = read_connections(path, client=client, server=server, ports=ports)
        assert (traffic.to_server.frames, traffic.quality.other_frames) == (0, len(frames))


def test_an_empty_capture(tmp_path):
    traffic = read(tmp_path, [])
    assert (traffic.quality.first_ns, traffic.to_server.frames, len(traffic.connections)) == (None, 0, 0)


def test_times_of_payload(tmp_path):
    traffic = read(tmp_path, bulk(3).frames)
    assert traffic.quality.first_ns == START_NS
    assert (traffic.to_server.first_ns, traffic.to_server.last_ns) == (START_NS + 3 * MS, START_NS + 7 * MS)
    assert traffic.to_client.first_ns is None


@pytest.mark.parametrize(
    ("client", "server", "ports", "message"),
    [
        ("198.18.0.1", "2001:2::1", [1], "same IP version"),
        ("198.18.0.1", "198.18.0.1", [], "name the server's ports"),
        ("198.18.0.1", "198.18.0.2", [0], "between 1 and 65535"),
        ("nowhere", "198.18.0.2", [1], "nowhere"),
    ],
)
def test_invalid_endpoints(client, server, ports, message):
    with pytest.raises(ValueError, match=message):
        FlowEndpoints.of(client, server, ports)


def test_client_ports(tmp_path):
    assert list(read(tmp_path, bulk(1).frames).connections.client_port) == [CLIENT_PORT]
