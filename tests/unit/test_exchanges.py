"""Requests and responses in captures whose truth is known."""

from pathlib import Path

import pytest

from netbench.capture.exchanges import read_exchanges
from netbench.model.flow_witness import UNKNOWN_NS
from tests.unit.capture_files import START_NS
from tests.unit.wire_captures import CLIENT, MS, PORT, SERVER, Conversation, in_batches_of, without, written


def read(tmp_path: Path, frames, **more):
    path = written(tmp_path / "x.pcap", frames)
    return read_exchanges(path, client=CLIENT, server=SERVER, ports=[PORT], **more).exchanges


def rows(exchanges):
    """Times in ms, bytes, and whether it is complete, of each exchange."""
    times = [[-1 if ns == UNKNOWN_NS else ns / MS for ns in column.tolist()] for column in exchanges[1:5]]
    return list(zip(*times, *(column.tolist() for column in exchanges[5:]), strict=True))


def keep_alive() -> Conversation:
    """Two exchanges, of which the second stalls for a second."""
    talk = Conversation().opened()  # 0, 1, 2
    talk.segment("c", 0, 100).segment("s", ack=100)  # 3, 4
    talk.segment("s", 0, 1000, ack=100).segment("s", 1000, 500, ack=100).segment("c", 100, ack=1500)  # 5, 6, 7
    talk.segment("c", 100, 80, ack=1500).segment("c", 180, 20, ack=1500).wait(1000 * MS)  # 8, 9
    return talk.segment("s", 1500, 10, ack=200)  # 1010


def pipelined() -> Conversation:
    """Three messages of 100 bytes in two segments, and three responses of 100 bytes in one and two."""
    talk = Conversation().opened()
    talk.segment("c", 0, 150).segment("c", 150, 150)  # 3, 4
    return talk.segment("s", 0, 250, ack=300).segment("s", 250, 50, ack=300)  # 5, 6


# name: (segments, expected rows)
TURNS = {
    "keep-alive and a stall": (
        keep_alive,
        [(3, 3, 5, 6, 100, 1500, True), (8, 9, 1010, 1010, 100, 10, True)],
    ),
    "a retransmitted request counts from its first transmission": (
        lambda: (
            Conversation().opened().segment("c", 0, 10).wait(199 * MS).segment("c", 0, 10).segment("s", 0, 5, ack=10)
        ),
        [(3, 3, 204, 204, 10, 5, True)],
    ),
    "a retransmitted response": (
        lambda: Conversation().opened().segment("c", 0, 10).segment("s", 0, 5, ack=10).segment("s", 0, 5, ack=10),
        [(3, 3, 4, 4, 10, 5, True)],
    ),
    "a part of the response lost ahead of the link": (
        lambda: (
            Conversation()
            .opened()
            .segment("c", 0, 10)
            .segment("s", 0, 1000, ack=10)
            .segment("s", 2000, 1000, ack=10)
            .segment("c", 10, ack=1000)
            .segment("s", 1000, 1000, ack=10)
            .segment("c", 10, ack=3000)
            .segment("c", 10, 10, ack=3000)
            .segment("s", 3000, 10, ack=20)
        ),
        [(3, 3, 4, 7, 10, 3000, True), (9, 9, 10, 10, 10, 10, True)],
    ),
    "closed before the response": (
        lambda: Conversation().opened().segment("c", 0, 10).segment("s", flags="FA", ack=10),
        [(3, 3, -1, -1, 10, 0, False)],
    ),
    "reset before the response": (
        lambda: Conversation().opened().segment("c", 0, 10).segment("s", flags="RA", ack=10),
        [(3, 3, -1, -1, 10, 0, False)],
    ),
    "reset within the second response": (
        lambda: keep_alive().segment("s", 1510, flags="RA", ack=200),
        [(3, 3, 5, 6, 100, 1500, True), (8, 9, 1010, 1010, 100, 10, False)],
    ),
    "aborted by the client after the response": (
        lambda: keep_alive().segment("c", 200, flags="R"),
        [(3, 3, 5, 6, 100, 1500, True), (8, 9, 1010, 1010, 100, 10, True)],
    ),
    "a server that greets first": (
        lambda: Conversation().opened().segment("s", 0, 30).segment("c", 0, 10, ack=30).segment("s", 30, 5, ack=10),
        [(4, 4, 5, 5, 10, 5, True)],
    ),
    "no payload": (lambda: Conversation().opened().closed(), []),
}


@pytest.mark.parametrize("count", [1, 3, 1000])
@pytest.mark.parametrize("isn", [1000, 2**32 - 50])
@pytest.mark.parametrize("name", TURNS)
def test_turns(tmp_path, monkeypatch, name, isn, count):
    in_batches_of(monkeypatch, count)
    build, expected = TURNS[name]
    frames = build().frames
    if isn != 1000:
        frames = [moved(frame, isn - 1000) for frame in frames]
    assert rows(read(tmp_path, frames)) == expected


def moved(frame, by):
    """The frame with the client's sequence numbers moved."""
    from scapy.layers.inet import TCP
    from scapy.layers.l2 import Ether

    packet = Ether(frame.data)
    field = "seq" if packet[TCP].dport == PORT else "ack"
    if field == "seq" or "A" in packet[TCP].flags:
        setattr(packet[TCP], field, (getattr(packet[TCP], field) + by) % 2**32)
    return frame._replace(data=bytes(packet), original=frame.length)


@pytest.mark.parametrize("dropped", [3, 5, 6])
def test_an_exchange_of_which_a_part_was_not_captured_is_incomplete(tmp_path, dropped):
    exchanges = read(tmp_path, without(keep_alive().frames, dropped))
    assert not exchanges.is_complete.all()


def test_messages_of_one_size_by_their_place_in_the_stream(tmp_path):
    found = rows(read(tmp_path, pipelined().frames, message_bytes=100))
    assert found == [(3, 3, 5, 5, 100, 100, True), (3, 4, 5, 5, 100, 100, True), (4, 4, 5, 6, 100, 100, True)]


def test_responses_of_another_size(tmp_path):
    found = rows(read(tmp_path, pipelined().frames, message_bytes=100, response_bytes=110))
    assert [row[5:] for row in found] == [(110, True), (110, True), (80, False)]


def test_messages_without_a_response(tmp_path):
    found = rows(read(tmp_path, pipelined().frames[:-2], message_bytes=100))
    assert found == [
        (3, 3, -1, -1, 100, 0, False),
        (3, 4, -1, -1, 100, 0, False),
        (4, 4, -1, -1, 100, 0, False),
    ]


def test_a_lost_message_delays_those_behind_it(tmp_path):
    talk = Conversation().opened()
    talk.segment("c", 0, 100).segment("c", 100, 100).segment("c", 200, 100)  # 3, 4, 5
    talk.segment("s", 0, 100).segment("s", 200, 100).segment("s", 100, 100)  # 6, 7, 8: the second one arrives last
    found = rows(read(tmp_path, talk.frames, message_bytes=100))
    assert [row[2:4] for row in found] == [(6, 6), (8, 8), (7, 8)]
    assert all(row[-1] for row in found)


def test_connections_are_told_apart(tmp_path):
    talks = [Conversation(port=4000 + number, now_ns=number * 100_000).opened() for number in range(5)]
    for number, talk in enumerate(talks):
        for exchange in range(3):
            talk.segment("c", exchange * 10, 10).wait(number * MS).segment(
                "s", exchange * 20, 20, ack=exchange * 10 + 10
            )
    frames = [frame for talk in talks for frame in talk.frames]
    exchanges = read(tmp_path, frames)
    assert exchanges.connection.tolist() == [number for number in range(5) for _ in range(3)]
    assert exchanges.response_times_ns().tolist() == [(number + 1) * MS for number in range(5) for _ in range(3)]


def test_times_are_since_the_first_frame_also_of_another_flow(tmp_path):
    frames = [keep_alive().frames[0]._replace(data=bytes(60), time_ns=START_NS - 7 * MS), *keep_alive().frames]
    assert rows(read(tmp_path, frames))[0][:4] == (10, 10, 12, 13)


@pytest.mark.parametrize("sizes", [(0, 1), (1, 0), (-1, 1)])
def test_invalid_sizes(tmp_path, sizes):
    with pytest.raises(ValueError, match="1 byte or more"):
        read(tmp_path, [], message_bytes=sizes[0], response_bytes=sizes[1])
