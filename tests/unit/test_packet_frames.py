"""Frames of described packets: every one is what scapy builds from the values of its flow, and from its number."""

import ipaddress
import json
from functools import partial
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scapy.layers.l2 import Ether

from netbench.errors import UsageError
from netbench.generators.frames import FrameBlock
from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import ExpectedHeaders, FieldPlace, FrameTemplate
from netbench.model.packet import (
    ANY,
    Layer,
    Layers,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    Values,
    VariedValue,
)
from netbench.packets.build import build_template, expected_headers, smallest_frame
from netbench.packets.flow_values import checksums_of, flow_bytes, values_of
from netbench.uut.packet_headers import retagged
from tests.unit.described_packets import Described, vary
from tests.unit.inputs import stream_traffic

TIME_NS = 1_700_000_001_234_567_899


def layers(*names: str, **fields) -> Layers:
    """Layers by name, with the fields `NAME_field`."""
    made = []
    for name in names:
        own = {key.partition("__")[2]: value for key, value in fields.items() if key.partition("__")[0] == name}
        made.append(Layer(name, tuple(own.items())))
    return tuple(made)


IP_RANGE = SteppedValues(int(ipaddress.ip_address("198.18.1.1")), 1, 300)
IP6_RANGE = SteppedValues(int(ipaddress.ip_address("2001:2::ffff:fffe")), 1, 5)
PORTS = RandomValues(1024, 65535, 7)
VLANS = ListedValues((10, 20, 4094))
MACS = SteppedValues(0x02_00_00_00_FF_FE, 1, 9)
TWO_PRIORITIES = ListedValues((0, 184))
BACKWARDS = SteppedValues(int(ipaddress.ip_address("198.18.1.1")), -7, 40)
# The layers, the fields that vary, and whether these are combined.
DESCRIBED: dict[str, tuple[str, dict[str, Values], bool]] = {
    "plain": ("Ether/IP/UDP", {}, False),
    "addresses": ("Ether/IP/UDP", {"IP.src": IP_RANGE, "Ether.src": MACS}, False),
    "both addresses": ("Ether/IP/UDP", {"IP.src": IP_RANGE, "IP.dst": IP_RANGE}, False),
    "combined": ("Ether/IP/UDP", {"UDP.dport": PORTS, "IP.tos": TWO_PRIORITIES}, True),
    "back": ("Ether/IP/UDP", {"IP.src": BACKWARDS}, False),
    "TTL": ("Ether/IP/UDP", {"IP.ttl": SteppedValues(60, 1, 4)}, False),
    "id and TTL": ("Ether/IP/UDP", {"IP.id": PORTS, "IP.ttl": SteppedValues(60, 1, 4)}, False),
    "urgent pointer": ("Ether/IP/TCP", {"TCP.urgptr": SteppedValues(0, 1, 50)}, False),
    "window": ("Ether/IP/TCP", {"TCP.window": SteppedValues(9, -1, 9), "TCP.urgptr": PORTS}, False),
    "VLAN": ("Ether/Dot1Q/IPv6/UDP", {"Dot1Q.vlan": VLANS, "UDP.sport": PORTS}, False),
    "priority": ("Ether/Dot1Q/IP/UDP", {"Dot1Q.prio": SteppedValues(0, 1, 8)}, False),
    "QinQ": ("Ether/Dot1AD/Dot1Q/IP/UDP", {"Dot1AD.vlan": VLANS, "Dot1Q.vlan": SteppedValues(1, 1, 5)}, False),
    "IPv6": (
        "Ether/IPv6/UDP",
        {"IPv6.src": IP6_RANGE, "IPv6.fl": RandomValues(0, 0xFFFFF, 11), "IPv6.tc": TWO_PRIORITIES},
        False,
    ),
    "MPLS": ("Ether/MPLS/MPLS/IP/UDP", {"MPLS.label": SteppedValues(1000, 3, 6)}, False),
    "TCP": ("Ether/IP/TCP", {"TCP.sport": PORTS, "TCP.seq": RandomValues(0, 2**32 - 1, 5)}, False),
    "ICMP": ("Ether/IP/ICMP", {"ICMP.seq": SteppedValues(0, 1, 50)}, False),
    "ICMPv6": ("Ether/IPv6/ICMPv6EchoRequest", {"IPv6.dst": IP6_RANGE}, False),
    "VXLAN": (
        "Ether/IP/UDP/VXLAN/Ether/IPv6/UDP",
        {"VXLAN.vni": SteppedValues(1, 1, 3), "UDP.sport": PORTS, "IPv6.src": IP6_RANGE, "UDP:2.dport": PORTS},
        False,
    ),
    "VXLAN over IPv6": ("Ether/IPv6/UDP/VXLAN/Ether/IP/TCP", {"IP.src": IP_RANGE, "IPv6.dst": IP6_RANGE}, False),
    "GENEVE": ("Ether/IP/UDP/GENEVE/Ether/IP/UDP", {"GENEVE.vni": SteppedValues(9, 2, 4)}, False),
    "GRE": ("Ether/IP/GRE/IP/UDP", {"IP:2.src": IP_RANGE, "IP.dst": IP_RANGE}, False),
    "GTP-U": ("Ether/IP/UDP/GTP_U_Header/IPv6/UDP", {"GTP_U_Header.teid": RandomValues(1, 2**31, 9)}, False),
    "extension header": ("Ether/IPv6/IPv6ExtHdrHopByHop/UDP", {"UDP.sport": PORTS}, False),
}
PACKETS = {
    name: Packet("p", layers(*names.split("/")), tuple(map(vary, fields, fields.values())), combined)
    for name, (names, fields, combined) in DESCRIBED.items()
}


def assert_frames_as_scapy_builds_them(packet: Packet, frame_size: FrameSize, first: int, count: int) -> None:
    described = Described.of(packet, frame_size)
    template = build_template(described.traffic)
    assert FrameTemplate.from_json(json.loads(json.dumps(template.to_json()))) == template
    block = FrameBlock(described.traffic, count, template)
    row = block.stamp(first, count, TIME_NS)
    for place in range(count):
        frame = bytes(block.buffer[row + place][: block.lengths[row + place]])
        assert frame.hex() == described.frame(first + place, TIME_NS // 1000).hex()


@pytest.mark.parametrize("name", PACKETS)
@pytest.mark.parametrize("first", [0, 2**32 - 40, 2**40 + 17])
def test_every_frame_is_what_scapy_builds_from_its_description(name, first):
    """Lengths and checksums are those that scapy computes over the real payload."""
    assert_frames_as_scapy_builds_them(PACKETS[name], FrameSize("mix", (256, 300, 256, 1518)), first, 64)


def test_a_udp_checksum_of_zero_is_sent_as_all_ones():
    packet = Packet("p", layers("Ether", "IPv6", "UDP"), (vary("UDP.sport", SteppedValues(0, 1, 1 << 16)),))
    traffic = stream_traffic(packet=packet, frame_size=FrameSize.of(84))
    template = build_template(traffic)
    block = FrameBlock(traffic, packet.flows, template)
    block.stamp(0, packet.flows, TIME_NS)
    (checksum,) = template.checksums
    values = block.buffer[:, checksum.at : checksum.at + 2].view(">u2")
    assert 0 not in values
    assert 0xFFFF in values


@pytest.mark.parametrize(
    ("names", "least"),
    [
        (("Ether", "IP", "UDP"), 64),
        (("Ether", "Dot1Q", "IP", "UDP"), 66),
        (("Ether", "IPv6", "UDP"), 84),
        (("Ether", "IP", "TCP"), 76),
        (("Ether", "IP", "UDP", "VXLAN", "Ether", "IP", "UDP"), 112),
    ],
)
def test_the_smallest_frame_has_room_for_all_headers_and_one_byte_less_has_not(names, least):
    packet = Packet("p", layers(*names))
    assert smallest_frame(packet) == least
    frames = build_template(stream_traffic(packet=packet, frame_size=FrameSize.of(least))).frames
    assert len(frames[least]) == least - 4
    if least > 64:
        with pytest.raises(UsageError, match=f"{least - 1} bytes have no room .* smallest have {least} bytes"):
            build_template(stream_traffic(packet=packet, frame_size=FrameSize.of(least - 1)))


@given(st.integers(0, 2**32 - 1), st.integers(1, 1 << 20), st.integers(0, 2**64 - 1))
def test_random_values_are_different_and_within_their_range(seed, span, least):
    values = values_of(RandomValues(least, least + span - 1, min(span, 500)), seed).tolist()
    assert len(set(values)) == len(values) == min(span, 500)
    assert all((value - least) % 2**64 < span for value in values)


def test_combinations_beyond_the_limit_start_again():
    fields = vary("IP.src", SteppedValues(0, 1, 65_278)), vary("UDP.sport", RandomValues(1024, 65535, 64_512))
    packet = Packet("p", layers("Ether", "IP", "UDP"), fields)
    assert (packet.combinations, packet.flows) == (65_278 * 64_512 // 2, 1 << 20)


def routed(of: Layers) -> Layers:
    changes: Any = {"Ether": {"src": "02:00:00:00:00:03", "dst": "02:00:00:00:00:04"}, "IP": {"ttl": 63}}
    return tuple(layer.with_fields(**changes.get(layer.name, {})) for layer in of)


PLAIN = "Ether", "IP", "UDP"
ROUTED = {"Ether.src": "020000000003", "Ether.dst": "020000000004", "IP.ttl": "3f"}
TRANSLATED = {"IP.src": "c0000201", "UDP.sport": "0fa0", "UDP.dport": "0009"}
# The description, what the UUT does, values at the sink, and by how many bytes frames are longer there.
EXPECTATIONS = {
    "as sent": (None, None, {}, 0),
    "routed": (None, routed, ROUTED, 0),
    "translated": (layers(*PLAIN, IP__src="192.0.2.1", UDP__sport=4000), None, TRANSLATED, 0),
    "translated and routed": (layers(*PLAIN, IP__src="192.0.2.1"), routed, {"IP.src": "c0000201", "IP.ttl": "3f"}, 0),
    "any source": (layers(*PLAIN, IP__src=ANY), None, {"IP.dst": "c6120002"}, 0),
    "tagged": (layers("Ether", "Dot1Q", "IP", "UDP", Dot1Q__vlan=7), None, {"Dot1Q.vlan": "0007"}, 4),
    "in a tunnel": (layers(*PLAIN, "VXLAN", *PLAIN, VXLAN__vni=9), None, {"VXLAN.vni": "000009"}, 50),
}


@pytest.mark.parametrize("name", EXPECTATIONS)
def test_a_sink_expects_what_the_uut_and_the_description_make_of_the_frames(name):
    expect, at_uut, values, longer = EXPECTATIONS[name]
    packet = Packet("p", layers("Ether", "IP", "UDP"), (vary("UDP.sport", PORTS),), expect=expect)
    traffic = stream_traffic(packet=packet, frame_size=FrameSize.of(200))
    headers = expected_headers(traffic, at_uut)
    assert ExpectedHeaders.from_json(json.loads(json.dumps(headers.to_json()))) == headers
    frame, places = headers.template.frames[200], {place.name: place for place in headers.compared}
    assert (headers.longer, len(frame)) == (longer, 196 + longer)
    for field, value in values.items():
        place = places[field]
        word = int.from_bytes(frame[place.at : place.at + place.size]) & place.mask
        assert f"{word:0{2 * place.size}x}" == value, field
    dissected, end = Ether(frame), headers.template.payload_at
    del dissected["IP"].chksum
    assert bytes(dissected)[:end] == frame[:end], "the checksum that is expected is right"
    assert [varying.name for varying in headers.varying] == ["UDP.sport"]


def with_hop_less(of: Layers) -> Layers:
    """A router's headers: other MAC addresses, and a TTL that may vary."""
    ether, ip, *rest = routed(of)
    ttl = of[1].value("ttl", 64)
    return ether, ip.with_fields(ttl=ttl.plus(-1) if isinstance(ttl, VariedValue) else 63), *rest


def with_translated_source(of: Layers) -> Layers:
    ether, ip, *rest = with_hop_less(of)
    source = ip.value("src")
    assert isinstance(source, VariedValue)
    return ether, ip.with_fields(src=source.plus(-DISTANCE)), *rest


TRANSLATED_FROM, TRANSLATED_TO = (int(ipaddress.ip_address(network)) for network in ("198.18.0.0", "10.18.0.0"))
DISTANCE = TRANSLATED_FROM - TRANSLATED_TO
CHECKED = layers(*PLAIN, UDP__chksum=None)
TTLS = ListedValues((64, 2, 255, 33, 128))
SHUFFLED = RandomValues(TRANSLATED_FROM, TRANSLATED_FROM + 0xFFFF, 6)
TAGS = {10: 30, 20: 30, 4094: 1}
MIRRORED_TAGS = {vlan: 10 - vlan for vlan in range(1, 10)}


def lowered(value: int) -> int:
    return value - 1


def translated(value: int) -> int:
    return value - DISTANCE


# The sent headers, the fields that vary, what the UUT does, and what becomes of the values that it changes.
CHANGED: dict[str, tuple[Layers, dict[str, Values], Any, dict[str, Any]]] = {
    "TTL": (CHECKED, {"IP.ttl": TTLS}, with_hop_less, {"IP.ttl": lowered}),
    "source": (
        CHECKED,
        {"IP.src": IP_RANGE, "IP.ttl": TTLS},
        with_translated_source,
        {"IP.src": translated, "IP.ttl": lowered},
    ),
    "source back": (CHECKED, {"IP.src": BACKWARDS}, with_translated_source, {"IP.src": translated}),
    "random source": (
        CHECKED,
        {"IP.src": SHUFFLED, "UDP.sport": PORTS},
        with_translated_source,
        {"IP.src": translated},
    ),
    "MAC": (CHECKED, {"Ether.src": MACS, "IP.src": IP_RANGE}, with_hop_less, {"Ether.src": lambda _: 0x020000000003}),
    "VLAN": (
        layers("Ether", "Dot1Q", "IPv6", "UDP"),
        {"Dot1Q.vlan": VLANS, "UDP.sport": PORTS},
        partial(retagged, tags=TAGS),
        {"Dot1Q.vlan": TAGS.__getitem__},
    ),
    "random VLAN": (
        layers("Ether", "Dot1Q", "IP", "UDP"),
        {"Dot1Q.vlan": RandomValues(1, 9, 9)},
        partial(retagged, tags=MIRRORED_TAGS),
        {"Dot1Q.vlan": MIRRORED_TAGS.__getitem__},
    ),
}


def frame_of_flow(headers: ExpectedHeaders, flow: int) -> bytes:
    """The frame of a flow as sinks expect it: the template's, with its words and checksums."""
    varying, (frame,) = flow_bytes(headers.template), headers.template.frames.values()
    found = bytearray(frame)
    for at, word in zip(varying.words_at, varying.words[flow], strict=True):
        found[at : at + 4] = word.tobytes()
    for at, checksum in zip(varying.sums_at, checksums_of(varying, frame)[flow], strict=True):
        found[at : at + 2] = int(checksum).to_bytes(2, "big")
    return bytes(found)


def value_in(frame: bytes, place: FieldPlace) -> int:
    return (int.from_bytes(frame[place.at : place.at + place.size]) & place.mask) >> place.shift


@pytest.mark.parametrize("name", CHANGED)
def test_every_flow_at_the_sink_has_what_the_uut_makes_of_its_values_and_right_checksums(name):
    layers_sent, fields, at_uut, changed = CHANGED[name]
    packet = Packet("p", layers_sent, tuple(map(vary, fields, fields.values())))
    traffic = stream_traffic(packet=packet, frame_size=FrameSize.of(200), seed=5)
    headers, as_sent = expected_headers(traffic, at_uut), expected_headers(traffic)
    assert ExpectedHeaders.from_json(json.loads(json.dumps(headers.to_json()))) == headers
    assert headers.ignored == (), "all fields are compared"
    assert headers.varying == as_sent.template.varying, "flows are those of the packet as sent"
    places = {place.name: place for place in headers.compared}
    for flow in range(min(packet.flows, 40)):
        frame, sent = frame_of_flow(headers, flow), frame_of_flow(as_sent, flow)
        for field in fields:
            before = value_in(sent, places[field])
            expected = changed[field](before) if field in changed else before
            assert value_in(frame, places[field]) == expected, (field, flow)
        assert with_computed_checksums(frame) == frame, flow


def with_computed_checksums(frame: bytes) -> bytes:
    """The frame with the checksums that scapy computes; 0 in UDP means none."""
    rebuilt = Ether(frame)
    for layer in rebuilt.iterpayloads():
        if getattr(layer, "chksum", None):
            del layer.chksum
    return bytes(rebuilt)


TAG, OUTER = layers("Dot1Q", Dot1Q__vlan=300), layers(*PLAIN, "VXLAN", IP__src="192.0.2.1", UDP__dport=4789)
# The sent headers, the field that varies, what the UUT does, and values of the first frame at the sink.
ADDED_AND_REMOVED = {
    "a tag is added": (
        ("Ether", "Dot1Q", "IP", "UDP"),
        "Dot1Q.vlan",
        lambda of: (of[0], *TAG, *of[1:]),
        {"Dot1Q.vlan": 300, "Dot1Q:2.vlan": 5},
    ),
    "a tunnel is added": (PLAIN, "IP.src", lambda of: (*OUTER, *of), {"IP.src": 0xC0000201, "IP:2.src": 5}),
    "a tunnel is removed": ((*PLAIN, "VXLAN", *PLAIN), "IP:2.src", lambda of: of[4:], {"IP.src": 5}),
    "the header that varies is removed": (
        (*PLAIN, "VXLAN", *PLAIN),
        "IP.src",
        lambda of: of[4:],
        {"IP.src": 0xC6120001},
    ),
}


@pytest.mark.parametrize("name", ADDED_AND_REMOVED)
def test_the_first_frame_at_the_sink_varies_in_the_layer_that_is_sent_so(name):
    names, field, at_uut, values = ADDED_AND_REMOVED[name]
    packet = Packet("p", layers(*names), (vary(field, SteppedValues(5, 1, 20)),))
    headers = expected_headers(stream_traffic(packet=packet, frame_size=FrameSize.of(200)), at_uut)
    frame, places = headers.template.frames[200], {place.name: place for place in headers.compared}
    for name_of, value in values.items():
        place = places[name_of]
        word = int.from_bytes(frame[place.at : place.at + place.size]) & place.mask
        assert word >> place.shift == value, name_of


def test_fields_of_any_value_and_the_checksums_over_them_are_not_compared():
    packet = Packet("p", layers("Ether", "IPv6", "UDP"), expect=layers("Ether", "IPv6", "UDP", IPv6__src=ANY))
    headers = expected_headers(stream_traffic(packet=packet, frame_size=FrameSize.of(100)))
    names = {place.name for place in headers.compared}
    assert names.isdisjoint({"IPv6.src", "UDP.chksum"})
    assert {"IPv6.dst", "UDP.sport", "Ether.src"} <= names
    assert headers.ignored == ((22, 38), (60, 62))


def test_offsets_of_missing_and_additional_tags_are_looked_at():
    packet = Packet("p", layers("Ether", "Dot1Q", "IP", "UDP"), expect=layers("Ether", "IP", "UDP"))
    headers = expected_headers(stream_traffic(packet=packet, frame_size=FrameSize.of(100)))
    assert (headers.template.payload_at, headers.also_at, headers.longer) == (42, (46, 38), -4)


@pytest.mark.parametrize(
    ("names", "payload_at", "without_tunnel"),
    [
        ("Ether/Dot1Q/IP/UDP", 46, ()),
        ("Ether/IP/UDP/VXLAN/Ether/Dot1Q/IP/UDP", 96, (46,)),
        ("Ether/MPLS/MPLS/IPv6/UDP", 70, (62,)),
        ("Ether/IP/GRE/IP/UDP", 66, (42,)),
        ("Ether/IP/UDP/GTP_U_Header/IP/TCP", 90, (54,)),
        ("Ether/IPv6/IP/GRE/Ether/IP/UDP", 120, (80, 42)),
    ],
)
def test_offsets_of_frames_without_their_tunnel_are_looked_at(names, payload_at, without_tunnel):
    packet = Packet("p", layers(*names.split("/")))
    headers = expected_headers(stream_traffic(packet=packet, frame_size=FrameSize.of(200)))
    assert headers.template.payload_at == payload_at
    assert headers.also_at == (payload_at + 4, payload_at - 4, *without_tunnel)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_words_and_checksums_of_all_fields_together(count):
    """Each subset of varying fields, at all offsets: neighbours share words of four bytes."""
    fields: dict[str, Values] = {
        "IP.tos": ListedValues((1, 2)),
        "IP.ttl": SteppedValues(9, 1, 3),
        "IP.src": IP_RANGE,
        "UDP.sport": PORTS,
        "UDP.dport": PORTS,
    }
    for names in product(fields, repeat=count):
        if len(set(names)) < count:
            continue
        packet = Packet("p", layers("Ether", "IP", "UDP"), tuple(vary(name, fields[name]) for name in names))
        assert_frames_as_scapy_builds_them(packet, FrameSize.of(100), 0, 8)
