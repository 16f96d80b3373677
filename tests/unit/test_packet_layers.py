"""The table of layers: as scapy has them, and as it builds and dissects them."""

from dataclasses import replace
from typing import Any

import pytest
from scapy.layers.l2 import Ether

from netbench.model.frame_size import IMIX_V6, FrameSize
from netbench.model.header_sizes import header_bytes
from netbench.model.packet import Packet
from netbench.model.packet_description import parse_packet
from netbench.model.packet_layers import ALIASES, FIELD_ALIASES, FOREIGN_NAMES, LAYERS
from netbench.model.packet_notation import parse_layers
from netbench.packets.build import build_template, smallest_frame
from netbench.packets.scapy_layers import scapy_classes
from tests.unit.inputs import stream_traffic

# Fields of scapy's that are not in the header without others that netbench does not support, or never.
LEFT_OUT = {
    ("IPv6ExtHdrHopByHop", "autopad"),
    ("IPv6ExtHdrHopByHop", "options"),
    ("IPv6ExtHdrDestOpt", "autopad"),
    ("IPv6ExtHdrDestOpt", "options"),
    *(("IPv6ExtHdrSegmentRouting", name) for name in ("unused1", "protected", "oam", "alert", "hmac", "unused2")),
    ("IPv6ExtHdrSegmentRouting", "tlv_objects"),
    *(("ICMPv6EchoRequest", "data"), ("ICMPv6EchoReply", "data")),
    *(("VXLAN", name) for name in ("reserved0", "reserved1", "NextProtocol", "gpflags", "gpid")),
    *(("GRE", "chksum"), ("GRE", "offset")),
    *(("GTP_U_Header", "npdu"), ("GTP_U_Header", "next_ex")),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_and_their_fields_have_scapys_names_and_widths(name):
    theirs = {}
    for field in scapy_classes()[name].fields_desc:
        inner = getattr(field, "fld", field)
        theirs[field.name] = getattr(inner, "size", None) or round(8 * inner.sz)
    ours = LAYERS[name].fields
    absent = {"ts_ori", "ts_rx", "ts_tx", "gw", "ptr", "reserved", "length", "addr_mask", "nexthopmtu", "unused"}
    messages = absent | {"extpad", "ext"} if name == "ICMP" else set()
    assert [field for field in theirs if field in ours] == list(ours)
    assert {field for field in theirs if (name, field) not in LEFT_OUT} - messages == set(ours)
    for field in ours.values():
        assert field.bits in (0, theirs[field.name])


def test_other_names_stand_for_names_of_the_table():
    assert set(ALIASES.values()) <= set(LAYERS)
    assert not set(ALIASES) & set(LAYERS)
    assert set(FOREIGN_NAMES.values()) <= set(LAYERS)
    assert all(name == name.lower() and name not in LAYERS for name in FOREIGN_NAMES)
    assert all(field in LAYERS[layer].fields for (layer, _), field in FIELD_ALIASES.items())


@pytest.mark.parametrize(
    "text",
    [
        "Ether()/IP()/UDP()",
        "Ether()/Dot1AD(vlan=200)/Dot1Q(vlan=100)/IP()/TCP(flags='SA')",
        "Ether()/MPLS(label=16)/MPLS()/IPv6()/UDP()",
        "Ether()/Dot1Q()/Dot1Q()/MPLS()/IP()/UDP()",
        "Ether()/IPv6()/IPv6ExtHdrHopByHop()/IPv6ExtHdrDestOpt()/IPv6ExtHdrFragment(id=5)/UDP()",
        "Ether()/IPv6()/IPv6ExtHdrRouting(addresses=['2001:2::5'])/TCP()",
        "Ether()/IPv6()/IPv6ExtHdrSegmentRouting(addresses=['2001:2::5', '2001:2::6'])/UDP()",
        "Ether()/IP(options=b'\\x01\\x01\\x01\\x00')/TCP(options=[('MSS', 1460), ('NOP', None), ('WScale', 3)])",
        "Ether()/IP(flags='DF+evil')/TCP(options=[('SAckOK', b''), ('Timestamp', (1, 2)), ('EOL', None)])",
        "Ether()/IP()/ICMP(id=3, seq=2)",
        "Ether()/IPv6()/ICMPv6(id=1)",
        "Ether()/IPv6()/ICMPv6EchoReply()",
        "Ether()/IP()/IP()/UDP()",
        "Ether()/IP()/IPv6()/UDP()",
        "Ether()/IPv6()/GRE()/IP()/ICMP()",
        "Ether()/IP()/GRE(key_present=1, key=7, seqnum_present=1, sequence_number=1)/IPv6()/TCP()",
        "Ether()/IP()/GRE()/Ether()/IP()/UDP()",
        "Ether()/IP()/GRE()/MPLS()/IP()/UDP()",
        "Ether()/IP()/UDP()/VXLAN(vni=5)/Ether()/Dot1Q(vlan=3)/IPv6()/TCP()",
        "Ether()/IP()/UDP()/GENEVE(options=b'\\x01\\x02\\x80\\x00')/IPv6()/UDP()",
        "Ether()/IP()/UDP(dport=2152)/GTPU(teid=7)/IP()/UDP()",
        "Ether()/IP()/UDP(dport=2152)/GTPU(S=1, seq=2)/IPv6()/UDP()",
    ],
)
def test_scapy_builds_and_dissects_each_layer_with_the_size_of_the_table(text):
    layers = parse_layers(text)
    traffic = replace(stream_traffic(), packet=Packet("x", layers), frame_size=FrameSize.of(300))
    template = build_template(traffic)
    assert template.payload_at == header_bytes(layers)
    dissected: Any = Ether(template.frames[300])
    for layer in layers:
        assert type(dissected).__name__ == layer.name
        dissected = dissected.payload


def test_the_mix_for_ipv6_has_room_for_it():
    packet = parse_packet("imix-v6")
    assert packet is not None
    assert smallest_frame(packet) == min(IMIX_V6.sizes)
