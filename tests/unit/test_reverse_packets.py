"""Answers through UUTs that change headers: packets of reverse streams, headers at their sinks, and refusals."""

import re
from dataclasses import replace
from typing import Any

import pytest

from netbench.errors import UsageError
from netbench.model.packet import ANY, Layers, Packet, VaryingField
from netbench.model.packet_description import parse_packet
from netbench.model.packet_notation import layers_text, parse_layers
from netbench.model.paths import StreamPath
from netbench.model.stream_paths import stream_paths
from netbench.packets.headers import Addresses, arriving_layers, sent_layers
from netbench.testbed.guest_specs import make_uut
from netbench.testbed.resolved import resolve
from netbench.uut.base import Assignment, UnitUnderTest
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_support import at_sink
from netbench.uut.raw import RawOptions
from tests.unit.inputs import profile, topology, topology_both_ways

FORTH, BACK = stream_paths(topology_both_ways())
BOTH = (FORTH, BACK)
ROUTE: dict[str, Any] = {"forward": "route"}
END: dict[str, Any] = {"terminate": "vxlan", "vni": 100}
BEGIN: dict[str, Any] = {"originate": "vxlan", "vni": 100}
PLAIN = "Ether()/IP()/UDP()"
GRE_OF_IP = "Ether()/IP()/GRE()/IP()/UDP()"
HEADERS_OF_VXLAN = "UDP(dport=4789)/VXLAN(flags=8,vni=100)"


def uut(kind: str = "raw", **options: object) -> UnitUnderTest:
    return make_uut(topology(uuts=[{"name": "u", "kind": kind, **options}]).uuts[0])


def packet(headers: str, **more: object) -> Packet:
    parsed = parse_packet({"headers": headers, **more} if more else headers)
    assert parsed
    return parsed


# Options, a packet and its varying fields; the answer to it, and the fields that vary there.
ANSWERS: list[tuple[dict[str, Any], str, dict[str, Any], str, list[str]]] = [
    (END, "vxlan", {}, PLAIN, []),
    (
        END,
        'Ether()/IP()/UDP(dport=4789)/VXLAN(vni=100)/Ether(src="02:00:00:00:00:01")/IP(src="10.0.0.1",ttl=9)/UDP(sport=5)',
        {
            "UDP.sport": {"list": [7, 8]},
            "IP:2.dst": {"list": ["10.0.0.2", "10.0.0.3"]},
            "UDP:2.dport": {"list": [1, 2]},
        },
        'Ether(dst="02:00:00:00:00:01")/IP(dst="10.0.0.1",ttl=9)/UDP(dport=5)',
        ["IP.src", "UDP.sport"],
    ),
    (
        BEGIN,
        'Ether()/IP(src="10.0.0.1")/UDP()',
        {"IP.dst": {"list": ["10.0.0.2", "10.0.0.3"]}, "UDP.sport": {"list": [1, 2]}},
        f'Ether()/IP(src="198.19.1.2",dst="198.19.1.1")/{HEADERS_OF_VXLAN}/Ether()/IP(dst="10.0.0.1")/UDP()',
        ["IP:2.src", "UDP:2.dport"],
    ),
    ({"terminate": "vlan", "vlan": 100}, "vlan", {}, PLAIN, []),
    ({"originate": "vlan", "vlan": 5}, "vlan", {}, "Ether()/Dot1Q(vlan=5)/Dot1Q(vlan=100)/IP()/UDP()", []),
    ({**END, "originate": "vlan", "vlan": 5}, "vxlan", {}, "Ether()/Dot1Q(vlan=5)/IP()/UDP()", []),
    ({**ROUTE, "terminate": "gre"}, GRE_OF_IP, {}, PLAIN, []),
    (
        {**ROUTE, "originate": "gre", "key": 3},
        PLAIN,
        {},
        'Ether()/IP(src="198.19.1.2",dst="198.19.1.1")/GRE(key_present=1,key=3,proto=0x6558)/Ether()/IP()/UDP()',
        [],
    ),
    ({**ROUTE, "nat": "source"}, PLAIN, {}, 'Ether()/IP(dst="10.18.1.2")/UDP()', []),
    ({**ROUTE, "nat": "destination"}, PLAIN, {}, 'Ether()/IP(src="10.19.1.2")/UDP()', []),
    ({**ROUTE, "nat": "source", **END}, "vxlan", {}, 'Ether()/IP(dst="10.18.1.2")/UDP()', []),
    ({**ROUTE, "nat": "source"}, 'Ether()/IP(src="198.18.7.8")/UDP()', {}, 'Ether()/IP(dst="10.18.7.8")/UDP()', []),
]


@pytest.mark.parametrize(("options", "headers", "vary", "answer", "varying"), ANSWERS)
def test_a_reverse_stream_answers_what_the_sink_receives(options, headers, vary, answer, varying):
    sent = uut(**options).sent_packet(packet(headers, **({"vary": vary} if vary else {})), BACK)
    assert layers_text(sent.layers) == layers_text(parse_layers(answer))
    assert [str(field.ref) for field in sent.vary] == varying


def test_values_of_answers_are_translated_one_by_one():
    answer = uut(**ROUTE, nat="source").sent_packet(packet("nat44"), BACK)
    assert [(str(field.ref), field.values.count) for field in answer.vary] == [("IP.dst", 100), ("UDP.dport", 10)]
    assert answer.combined
    first = answer.vary[0]
    assert isinstance(first, VaryingField)
    assert getattr(first.values, "first", None) == (10 << 24) + (18 << 16) + (128 << 8) + 1


# Packet that a tunnel terminates, and the source and destination of its outer header.
ENDS = [
    ("vxlan", "198.18.1.2", "198.18.1.1"),
    ('Ether()/IP(dst="10.0.0.9")/UDP(dport=4789)/VXLAN(vni=100)/Ether()/IP()/UDP()', "198.18.1.2", "10.0.0.9"),
    ('Ether()/IP(src="10.0.0.8")/UDP(dport=4789)/VXLAN(vni=100)/Ether()/IP()/UDP()', "10.0.0.8", "198.18.1.1"),
]


@pytest.mark.parametrize(("headers", "source", "destination"), ENDS)
@pytest.mark.parametrize("how", ["bridge", "route"])
def test_both_directions_of_a_tunnel_have_the_same_two_ends(how, headers, source, destination):
    tested, options = packet(headers), {"forward": how, **END}
    sent = uut(**options).sent_packet(tested, FORTH)
    assert (sent.layers[1].value("src"), sent.layers[1].value("dst")) == (source, destination)
    arriving = at_reverse_sink(options, tested)
    assert (arriving[1].value("src"), arriving[1].value("dst")) == (destination, source)
    steps = [step.command for step in uut(**options).plan(Assignment("u", BOTH, packets=(tested,))).steps]
    (tunnel,) = [step for step in steps if "type vxlan" in step]
    assert f"local {destination} remote {source}" in tunnel
    assert any(f"neigh replace {source} lladdr {FORTH.source.mac} dev nb-in1" in step for step in steps)
    one_way = uut(**options).plan(Assignment("u", (replace(FORTH, has_reverse=False),), packets=(tested,))).steps
    assert not [step.command for step in one_way if "remote" in step.command]


def at_reverse_sink(options: dict[str, Any], tested: Packet) -> Layers:
    """The headers of the answer to a packet at the reverse stream's sink."""
    wanted = RawOptions.model_validate(options)
    answer = uut(**options).sent_packet(tested, BACK)
    sent = sent_layers(answer, Addresses("02::1", "02::2", BACK.src_ip, BACK.dst_ip, "2001:2::1", "2001:2::2"), {})
    change = at_sink(BOTH, wanted.forward, PacketHandling(wanted, (tested,)))["back"]
    return arriving_layers(sent, answer, change)


# Options, a packet, the headers that the user expects at the sink, and the resulting fields at the reverse sink.
EXPECTED: list[tuple[dict[str, Any], str, str, str, dict[tuple[int, str], Any]]] = [
    (END, "vxlan", "Ether()/IP(src=any)/UDP()", "Ether/IP/UDP/VXLAN/Ether/IP/UDP", {(5, "dst"): ANY, (3, "vni"): 100}),
    (
        BEGIN,
        PLAIN,
        "Ether()/IP()/UDP(dport=4789)/VXLAN()/Ether()/IP(ttl=any)/UDP()",
        "Ether/IP/UDP",
        {(1, "ttl"): ANY, (1, "dst"): BACK.dst_ip},
    ),
    ({"terminate": "vlan", "vlan": 100}, "vlan", "Ether(src=any)/IP()/UDP()", "Ether/Dot1Q/IP/UDP", {(0, "dst"): ANY}),
    (
        {**ROUTE, "nat": "source"},
        PLAIN,
        'Ether()/IP(src="10.18.1.2")/UDP()',
        "Ether/IP/UDP",
        {(1, "dst"): "198.18.1.2"},
    ),
    ({**ROUTE, "nat": "source"}, PLAIN, "Ether()/IP(src=any)/UDP()", "Ether/IP/UDP", {(1, "dst"): ANY}),
    ({**ROUTE, "terminate": "gre"}, GRE_OF_IP, "Ether()/IP(tos=any)/UDP()", "Ether/IP/GRE/IP/UDP", {(3, "tos"): ANY}),
]


@pytest.mark.parametrize(("options", "headers", "expect", "names", "fields"), EXPECTED)
def test_expectations_of_the_user_are_those_of_answers_too(options, headers, expect, names, fields):
    arriving = at_reverse_sink(options, packet(headers, expect=expect))
    assert "/".join(layer.name for layer in arriving) == names
    assert {(at, name): arriving[at].value(name) for at, name in fields} == fields


CHOSEN = "Ether()/IP({})/UDP(dport=4789)/VXLAN(vni=100)/Ether()/IP()/UDP()"
REFUSED: list[tuple[dict[str, Any], Packet, tuple[StreamPath, ...], str]] = [
    (END, packet("vxlan"), BOTH, ""),
    ({**ROUTE, **END}, packet("vxlan"), BOTH, ""),
    ({**ROUTE, **END}, packet(PLAIN), BOTH, r"VXLAN: the UUT forwards only packets inside this header"),
    ({**ROUTE, **END}, packet(PLAIN), (replace(FORTH, has_reverse=False),), ""),
    ({**ROUTE, **END}, packet(PLAIN), (BACK,), ""),  # the stream has its own packet
    (BEGIN, replace(packet(PLAIN), name=""), BOTH, "IP: .*sinks recognise plain frames"),
    (END, replace(packet(PLAIN), name=""), (BACK,), "reverse stream back, .*: IP: .*sinks recognise plain frames"),
    (BEGIN, packet(PLAIN), BOTH, ""),
    (BEGIN, packet(PLAIN), (replace(BACK, packet=packet(PLAIN)),), "VXLAN: the UUT forwards only packets inside"),
    ({**ROUTE, **BEGIN}, packet(PLAIN), (replace(BACK, packet=packet(PLAIN)),), ""),
    (
        {"terminate": "geneve", "vni": 7},
        packet("geneve"),
        BOTH,
        r"GENEVE.vni: the UUT terminates VNI 7; send GENEVE\(vni=7\)",
    ),
    ({"terminate": "geneve", "vni": 7}, packet("geneve"), (replace(FORTH, has_reverse=False),), ""),
    (
        END,
        packet(CHOSEN.format(""), vary={"IP.src": {"from": "10.0.0.1", "count": 9}}),
        BOTH,
        "IP.src: .* two fixed ends",
    ),
    (
        BEGIN,
        packet(CHOSEN.format('src="10.0.0.1"')),
        (replace(BACK, packet=packet(CHOSEN.format('src="10.0.0.1"'))),),
        "IP.src: the tunnel ends at 198.19.1.2, not at 10.0.0.1; leave the field out",
    ),
    (
        {**ROUTE, **END},
        packet(CHOSEN.format('dst="10.0.0.9"').replace("IP()", 'IP(dst="10.0.0.9")')),
        BOTH,
        "IP:2.dst: 10.0.0.9 is the UUT's own address",
    ),
    ({**ROUTE, "nat": "source"}, packet(PLAIN), BOTH, ""),
    (
        {**ROUTE, "nat": "source"},
        packet('Ether()/IP(dst="10.0.0.1")/UDP()'),
        (replace(BACK, packet=packet('Ether()/IP(dst="10.0.0.1")/UDP()')),),
        "IP.dst: the UUT translates addresses of 10.18.0.0/16, and 10.0.0.1 is not one of them",
    ),
]


@pytest.mark.parametrize(("options", "tested", "paths", "reason"), REFUSED)
def test_packets_that_a_uut_cannot_forward_in_both_directions(options, tested, paths, reason):
    found = uut(**options).unsupported_reason(tested, paths)
    assert_matches(found, reason)


def assert_matches(text: str, pattern: str) -> None:
    assert re.search(pattern, text) if pattern else text == ""


DIFFERENT: list[tuple[dict[str, Any], list[str], str]] = [
    (END, [CHOSEN.format('src="10.0.0.1"'), CHOSEN.format("")], "packets .* have different outer addresses"),
    (
        {**ROUTE, "terminate": "gre"},
        [GRE_OF_IP, GRE_OF_IP.replace("GRE()", "GRE()/Ether()")],
        "with and without Ethernet",
    ),
    (END, [CHOSEN.format(""), "vxlan"], ""),
]


@pytest.mark.parametrize("kind", ["raw", "ovs"])
@pytest.mark.parametrize(("options", "headers", "message"), DIFFERENT)
def test_a_tunnel_answers_packets_of_one_pair_of_ends(kind, options, headers, message):
    if kind == "ovs":
        options = {name: value for name, value in options.items() if name != "forward"}
    packets = tuple(packet(text) for text in headers)
    one_way = (replace(FORTH, has_reverse=False),)
    uut(kind, **options).plan(Assignment("u", one_way, packets=packets))
    if message:
        with pytest.raises(UsageError, match=message):
            uut(kind, **options).plan(Assignment("u", BOTH, packets=packets))
    else:
        uut(kind, **options).plan(Assignment("u", BOTH, packets=packets))


def test_a_generator_must_support_the_answers():
    lab = topology_both_ways(uuts=[{"name": "u", "kind": "raw", **BEGIN}])
    with pytest.raises(UsageError, match="reverse stream back sends .*: the generator pktgen cannot send it: .*VXLAN"):
        resolve(lab, profile(packet=PLAIN, frame_sizes=[200], generator="pktgen"))


# Options, frame size, and the reason why no UUT can forward such frames in both directions.
SIZES = [
    ({**BEGIN}, 112, ""),
    ({**BEGIN}, 111, "reverse stream back sends Ether/IP/UDP/VXLAN/Ether/IP/UDP, whose smallest frames have 112 bytes"),
    ({**BEGIN}, 1468, ""),
    ({**BEGIN}, 1469, "it makes its frames 50 bytes longer"),
]


@pytest.mark.parametrize(("options", "size", "message"), SIZES)
def test_frames_need_room_for_the_headers_of_answers(options, size, message):
    lab = topology_both_ways(uuts=[{"name": "u", "kind": "raw", **options}])
    wanted = profile(packet=PLAIN, frame_sizes=[size])
    if message:
        with pytest.raises(UsageError, match=message):
            resolve(lab, wanted)
    else:
        resolve(lab, wanted)


def test_answers_longer_than_the_links_permit_are_refused():
    lab = topology_both_ways(uuts=[{"name": "u", "kind": "raw", **END}])
    with pytest.raises(UsageError, match="50 bytes longer, and the links of stream back"):
        resolve(lab, profile(packet="vxlan", frame_sizes=[1518]))


def test_the_order_of_streams_does_not_matter():
    tested = packet("vxlan")
    plans = [uut(**END).plan(Assignment("u", paths, packets=(tested,))).steps for paths in (BOTH, BOTH[::-1])]
    assert {step.command for step in plans[0]} == {step.command for step in plans[1]}
    assert FORTH.forth == FORTH
    assert BACK.forth == replace(FORTH, packet=None)
