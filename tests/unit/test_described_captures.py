"""Captures of described packets, from files and pipes: every frame is recounted one by one, in plain Python."""

import json
import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pydantic import TypeAdapter

from netbench.capture.capture_counts import ANY_NUMBER, STAMP_TOLERANCE_NS, CaptureCounts, Expected
from netbench.capture.changed_values import layer_names
from netbench.capture.counting import analyze_capture
from netbench.capture.packet_decoder import least_snap_length
from netbench.errors import UsageError
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import FieldPlace
from netbench.model.packet import Layers, ListedValues, Packet
from netbench.model.packet_counts import OTHER_HEADERS
from netbench.model.traffic import Sent
from netbench.packets.build import expected_headers
from netbench.packets.scapy_layers import scapy_classes
from netbench.sinks import remote_capture_count
from netbench.sinks.remote_capture_count import InCapture
from tests.unit.capture_files import FLUSH_MAC, START_NS, Frame, cut, ethernet, pcap, pcapng
from tests.unit.described_packets import ANALYZED, PACKETS, Described, layers, vary
from tests.unit.test_live_capture import hear

START_US = START_NS // 1000
MIX = FrameSize("mix", (200, 200, 594, 1518))
LATE_US = START_US - 10**6


class Recount(NamedTuple):
    """The counts of a capture, from one frame after the other."""

    received: int
    duplicates: int
    reordered: int
    reordered_in_flows: int
    changed_frames: int
    changed: dict[str, int]
    first: dict[str, tuple[str, str]]  # by changed field: the expected and the arrived value in the first frame
    late: int
    foreign: int
    lost_by_flow: Counter[int]
    by_size: Counter[int]


def recount(frames: list[Frame], described: Described, sent: range, first_us: int) -> Recount:
    headers, seen, highest, top = described.headers, set[int](), dict[int, int](), -1
    duplicates = reordered = in_flows = changed_frames = late = foreign = 0
    changed, by_size, first = Counter[str](), Counter[int](), dict[str, tuple[str, str]]()
    for frame in frames:
        if frame.data[:5] == FLUSH_MAC[:5]:
            continue
        places = [
            at
            for at in (headers.template.payload_at, *headers.also_at)
            if frame.data[at : at + 4].hex() == "be9be955" and len(frame.data) >= at + 16
        ]
        if not places:
            foreign += 1
            continue
        at = places[0]
        in_frame, seconds, fraction = (int.from_bytes(frame.data[at + more : at + more + 4]) for more in (4, 8, 12))
        stamp_us = seconds * 10**6 + fraction
        possible = [number for number in range(in_frame, sent.stop, 2**32) if number in sent]
        shift = at - headers.template.payload_at
        size = described.sent_size(possible[0]) + headers.longer + shift if possible else 0
        if 0 < stamp_us < first_us and fraction < 10**6:
            late += 1
        elif not possible or stamp_us < first_us or fraction >= 10**6 or frame.length + 4 != size:
            foreign += 1
        elif possible[0] in seen:
            duplicates += 1
        else:
            (number,) = possible
            flow = number % headers.flows
            seen.add(number)
            by_size[described.sent_size(number)] += 1
            reordered += number < top
            in_flows += number < highest.get(flow, -1)
            top, highest[flow] = max(top, number), max(number, highest.get(flow, -1))
            fields = {"headers"} if shift else differing(frame.data, described, number)
            changed_frames += bool(fields)
            changed.update(fields)
            for place in headers.compared:
                if place.name in fields - first.keys():
                    first[place.name] = text(place, described.frame(number, 0)), text(place, frame.data)
    lost = Counter(number % headers.flows for number in sent if number not in seen)
    return Recount(
        len(seen), duplicates, reordered, in_flows, changed_frames, dict(changed), first, late, foreign, lost, by_size
    )


def differing(frame: bytes, described: Described, number: int) -> set[str]:
    clean = described.frame(number, 0)
    return {
        place.name
        for place in described.headers.compared
        if (
            int.from_bytes(frame[place.at : place.at + place.size])
            ^ int.from_bytes(clean[place.at : place.at + place.size])
        )
        & place.mask
    }


def text(place: FieldPlace, frame: bytes) -> str:
    number, field = place.number_in(frame), place.name.rpartition(".")[2]
    if field in ("src", "dst"):
        data = number.to_bytes(place.size)
        return data.hex(":") if len(data) == 6 else str(ip_address(data))
    return f"0x{number:04x}" if field in ("chksum", "type") and place.size == 2 else str(number)


def tagged(packet: Any) -> Any:
    inner = packet.payload.copy()
    return packet.__class__(dst=packet.dst, src=packet.src) / scapy_classes()["Dot1Q"](vlan=9) / inner


def arrivals(described: Described, numbers: range, faults: Sequence[int]) -> list[Frame]:
    """Return what arrives of these frames: most as they should, some with a fault, and some out of order."""
    draw, frames = random.Random(f"{described.packet.name} {numbers.start}"), []
    for number in numbers:
        sent_us = START_US + (number - numbers.start) * 10
        fault = draw.choice(faults) if draw.randrange(3) == 0 else 0
        arrived = instead_of(fault, described, number, sent_us, numbers.stop)
        frames += [Frame(data, sent_us * 1000 + 1000) for data in arrived]
    for _ in range(len(frames) // 20):
        at = draw.randrange(len(frames))
        frames.insert(min(len(frames), at + draw.randrange(1, 30)), frames.pop(at))
    return frames


def instead_of(fault: int, described: Described, number: int, sent_us: int, stop: int) -> list[bytes]:
    """Return what arrives instead of a frame."""
    size = described.sent_size(number) + described.headers.longer
    hops = ("IP", "ttl") if any(layer.name == "IP" for layer in described.packet.layers) else ("IPv6", "hlim")
    clean = described.frame(number, sent_us)
    match fault:
        case 1:
            return []
        case 2:
            return [clean, clean]
        case 3:
            return [described.frame(number, sent_us, fields={hops: 63})]
        case 4:
            return [described.frame(number, sent_us, fields={("Ether", "src"): "06:00:00:00:00:01", hops: 1})]
        case 5:
            return [described.frame(number, sent_us, change=tagged, size=size + 4)]
        case 6:
            return [described.frame(number, LATE_US), clean]
        case 7:
            return [described.frame(number, 0)]
        case 8:
            return [described.frame(number, sent_us, size=size + 8)]
        case 9:
            return [ethernet(bytes(60), ether_type=0x0806), ethernet(bytes(46), dst=FLUSH_MAC)]
        case 10:
            return [clean[:30] + b"\xff" + clean[31:]]
        case 11:
            return [described.frame(number, sent_us, fields={hops: 3}), clean]
        case 12:
            return [clean[: described.headers.template.payload_at + 10]]
        case 13:
            return [described.frame(stop + number, sent_us)]
    return [clean]


def expected_of(described: Described, sent: range) -> Expected:
    return Expected(
        "s1",
        "198.18.1.2",
        "198.19.1.2",
        described.traffic.frame_size,
        len(sent),
        START_NS + STAMP_TOLERANCE_NS,
        first_sequence=sent.start,
        headers=described.headers,
    )


def check(counts: CaptureCounts, expected: Recount, described: Described) -> None:
    (stream,) = counts.streams
    packet = stream.packet
    assert packet is not None
    assert (counts.foreign_frames, counts.late_frames) == (expected.foreign, expected.late)
    assert (stream.received, stream.duplicates) == (expected.received, expected.duplicates)
    assert (stream.reordered, packet.reordered_in_flows) == (expected.reordered, expected.reordered_in_flows)
    order = [place.name for place in described.headers.compared]
    changed = sorted(expected.changed.items(), key=lambda item: ["headers", *order].index(item[0]))
    assert [field[:2] for field in packet.changed] == changed
    assert {field.name: field[3:] for field in packet.changed if field.name != OTHER_HEADERS} == expected.first
    names = "/".join(layer.name for layer in described.packet.expect or described.packet.layers)
    assert {field[3:] for field in packet.changed if field.name == OTHER_HEADERS} <= {
        (names, names.replace("Ether", "Ether/Dot1Q", 1))
    }
    assert packet.changed_frames == expected.changed_frames
    assert packet.lossy_flows == len(expected.lost_by_flow)
    for groups in packet.groups:
        assert sum(group.sent - group.received for group in groups.lossy) == expected.lost_by_flow.total()
    if described.traffic.frame_size.is_mix:
        assert {size: found.frames for size, found in stream.arrived_by_size.items()} == expected.by_size


CASES = [
    *((name, FrameSize.of(200), 0) for name in PACKETS),
    ("ipv6", FrameSize.of(200), 2**32 - 90),
    *((name, MIX, 2**32 - 90) for name in ("plain", "vlans", "geneve", "tcp", "pop")),
]


@pytest.mark.parametrize(("name", "frame_size", "first"), CASES, ids=str)
def test_every_frame_is_counted_where_it_belongs(tmp_path: Path, name: str, frame_size: FrameSize, first: int) -> None:
    described = Described.of(PACKETS[name], frame_size)
    sent, snap = range(first, first + 300), least_snap_length(described.headers)
    frames = arrivals(described, sent, range(1, 14))
    expected = expected_of(described, sent)
    result = recount(frames, described, sent, START_US)
    assert min(result.late, result.foreign, result.duplicates, result.reordered, result.changed["headers"]) > 0
    path = tmp_path / "c.pcap"
    snapped = [cut(frame, snap) for frame in frames]
    for content in (pcap(frames, nanoseconds=True), pcap(snapped, snap=snap), pcapng(snapped, snap=snap)):
        path.write_bytes(content)
        check(analyze_capture(path, [expected]), result, described)


@pytest.mark.parametrize(("name", "frame_size", "first"), CASES[::3], ids=str)
def test_a_pipe_has_the_counts_of_a_file(tmp_path: Path, name: str, frame_size: FrameSize, first: int) -> None:
    described = Described.of(PACKETS[name], frame_size)
    sent, snap = range(first, first + 200), least_snap_length(described.headers)
    frames = [cut(frame, snap) for frame in arrivals(described, sent, range(1, 13))]
    expected = expected_of(described, sent)
    path = tmp_path / "c.pcap"
    for content in (pcap(frames, snap=snap), pcap(frames, snap=snap)[:-20]):
        path.write_bytes(content)
        live = hear(content, [100] * 30, replace(expected, sent_frames=ANY_NUMBER))
        assert live.counts(expected) == analyze_capture(path, [expected])


def test_a_number_that_was_not_sent_makes_the_counts_of_a_pipe_unknown() -> None:
    described = Described.of(PACKETS["ipv6"], FrameSize.of(200))
    expected = expected_of(described, range(10))
    frames = [Frame(described.frame(number, START_US)) for number in range(11)]
    live = hear(pcap(frames), [], replace(expected, sent_frames=ANY_NUMBER))
    with pytest.raises(UsageError, match="frames with pktgen's header bear numbers it did not send"):
        live.counts(expected)


def test_padding_to_the_smallest_frame_is_no_change(tmp_path: Path) -> None:
    described = Described.of(PACKETS["pop"], FrameSize.of(66))
    frames = [described.frame(number, START_US).ljust(60 if number % 2 else 0, b"\0") for number in range(10)]
    assert {len(frame) for frame in frames} == {58, 60}
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap(Frame(frame) for frame in frames))
    (stream,) = analyze_capture(path, [expected_of(described, range(10))]).streams
    assert stream.packet is not None
    assert (stream.received, stream.packet.changed_frames) == (10, 0)


def test_frames_of_an_unsuitable_capture_are_refused(tmp_path: Path) -> None:
    described = Described.of(PACKETS["plain"], FrameSize.of(64))
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap([Frame(bytes(80))], link=113))
    with pytest.raises(UsageError, match="c.pcap: a capture of Linux cooked v1 frames"):
        analyze_capture(path, [expected_of(described, range(10))])


def test_the_expected_frames_travel_as_json() -> None:
    for name in PACKETS:
        described = Described.of(PACKETS[name], MIX)
        expected = expected_of(described, range(10))
        document = json.loads(json.dumps(expected.to_json()))
        assert Expected.from_json(document, MIX) == expected


def test_another_host_counts_the_same(tmp_path: Path) -> None:
    described = Described.of(PACKETS["tcp"], MIX)
    sent, path = range(200), tmp_path / "c.pcap"
    path.write_bytes(pcap(arrivals(described, sent, range(1, 14))))
    times = START_NS + STAMP_TOLERANCE_NS, START_NS + 10**9
    arguments = path, expected_of(described, sent), Sent(200, 0, 1.0, *times, 1, 0.0), described.traffic
    here = remote_capture_count.count(*arguments)
    request = json.loads(json.dumps(remote_capture_count.request(*arguments)))
    there = json.loads(json.dumps(remote_capture_count.execute(request)))
    assert TypeAdapter(InCapture).validate_python(there) == here
    assert here.received.packet is not None
    assert min(len(here.received.packet.changed), len(here.received.packet.groups[0].lossy)) > 1


@pytest.mark.parametrize(("packet", "around"), ANALYZED, ids=[packet.name for packet, _ in ANALYZED])
def test_an_analysis_shows_the_stream(tmp_path: Path, packet: Packet, around: tuple[str, ...]) -> None:
    described, path = Described.of(packet, FrameSize.of(250)), tmp_path / "c.pcap"
    path.write_bytes(pcap(Frame(described.frame(n, START_US), START_NS + 1000) for n in range(20) if n != 7))
    counts = analyze_capture(path)
    (stream,) = counts.streams
    is_ipv6 = [layer.name for layer in packet.layers if layer.name in ("IP", "IPv6")][-1] == "IPv6"
    traffic = described.traffic
    addresses = (traffic.src_ip6, traffic.dst_ip6) if is_ipv6 else (traffic.src_ip, traffic.dst_ip)
    assert (stream.src_ip, stream.dst_ip) == addresses
    assert (stream.received, stream.missing, stream.longest_loss_run) == (19, 1, 1)
    assert counts.encapsulated == ({around: 19} if around else {})
    assert (counts.foreign_frames, counts.undecoded) == (0, {})


@pytest.mark.parametrize("name", ["gre", "tcp", "macs"])
def test_an_analysis_of_many_sources_shows_one_stream(tmp_path: Path, name: str) -> None:
    described, path = Described.of(PACKETS[name], FrameSize.of(200)), tmp_path / "c.pcap"
    path.write_bytes(pcap(Frame(described.frame(n, START_US), START_NS + 1000) for n in range(1100) if n != 7))
    (stream,) = analyze_capture(path).streams
    assert (stream.src_ip, stream.received, stream.missing) == ("*", 1099, 1)


def test_a_popped_tunnel_is_as_much_shorter_as_its_headers() -> None:
    """The outer checksum needs 16 bits of the payload, which no UUT takes out."""
    sent = layers("Ether", "IPv6", "UDP", "VXLAN", "Ether", "IP", "UDP")
    described = Described.of(Packet("pop", sent, expect=layers("Ether", "IP", "UDP")), FrameSize.of(200))
    assert described.headers.longer == -(40 + 8 + 8 + 14)
    assert len(described.headers.template.frames[200]) == 196 - 70


def routed(sent: Layers) -> Layers:
    ethernet, ip, *inner = sent
    return ethernet, ip.with_fields(ttl=63), *inner


NAT = Packet(
    "nat",
    layers("Ether", ("IP", {"tos": 184}), "UDP"),
    (vary("IP.src", ListedValues((int(ip_address("198.18.1.5")), int(ip_address("198.18.1.6"))))),),
    expect=layers("Ether", ("IP", {"src": "192.0.2.9", "tos": 0}), "UDP"),
)


@pytest.mark.parametrize(
    ("packet", "at_uut", "arriving", "changed"),
    [
        (PACKETS["plain"], routed, {}, {"IP.ttl": ("64", "63", "64")}),
        (NAT, None, {("IP", "src"): "198.18.1.6"}, {"IP.src": ("198.18.1.6", "192.0.2.9", "198.18.1.6")}),
        (NAT, None, {("IP", "src"): "192.0.2.9", ("IP", "tos"): 184}, {"IP.tos": ("184", "0", "184")}),
        (PACKETS["pop"], None, {("IP", "src"): "1.2.3.4"}, {"IP.src": ("198.18.1.4", "198.18.1.4", "1.2.3.4")}),
    ],
)
def test_changed_fields_have_the_value_that_was_sent(tmp_path: Path, packet, at_uut, arriving, changed) -> None:
    described = Described.of(packet, FrameSize.of(200))
    headers = expected_headers(described.traffic, at_uut)
    path = tmp_path / "c.pcap"
    path.write_bytes(pcap([Frame(described.frame(3, START_US, fields=arriving))]))
    expected = replace(expected_of(described, range(4)), headers=headers)
    (stream,) = analyze_capture(path, [expected]).streams
    assert stream.packet is not None
    found = {field.name: tuple(field[2:]) for field in stream.packet.changed}
    sent, expected_sum, arrived = found.pop("IP.chksum")
    assert found == changed
    assert sent == (arrived if packet is PACKETS["plain"] else "")  # it differs between flows in the others
    assert expected_sum != arrived


LAYERS_OF = [
    *((packet.name, packet) for packet, _ in ANALYZED),
    ("routing", Packet("routing", layers("Ether", "IPv6", "IPv6ExtHdrHopByHop", "UDP"))),
]


@pytest.mark.parametrize(("name", "packet"), LAYERS_OF, ids=[name for name, _ in LAYERS_OF])
def test_layers_are_read_from_frames(name: str, packet: Packet) -> None:
    described = Described.of(packet, FrameSize.of(250))
    names = layer_names(described.frame(0, 0), described.headers.template.payload_at)
    written = [re.sub("IPv6ExtHdr.*", "IPv6ExtHdr", layer.name) for layer in packet.layers]
    last = {"ICMPv6EchoRequest": "ICMPv6"}
    assert names.split("/") == [last.get(layer, layer) for layer in written]
