"""Descriptions of packets: what they mean, what is refused with layer and field, and that none of them is executed."""

import sys
import time
from dataclasses import replace
from ipaddress import ip_address
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.errors import UsageError
from netbench.model.documents import plain
from netbench.model.header_sizes import header_bytes
from netbench.model.packet import (
    ANY,
    FieldRef,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    VariedValue,
    VaryingField,
)
from netbench.model.packet import (
    TAGS as TAG_LAYERS,
)
from netbench.model.packet_description import parse_packet, parse_packets, shipped_packets, written_packet
from netbench.model.packet_layers import LAYERS
from netbench.model.packet_notation import layers_text, parse_layers
from netbench.model.packet_values import DescriptionError
from netbench.model.profile import Profile
from netbench.model.stream_paths import stream_paths
from netbench.model.topology_specs import StreamSpec
from netbench.testbed.guest_specs import make_uut
from tests.unit.described_packets import layers
from tests.unit.inputs import profile, topology

UDP4 = "Ether()/IP()/UDP()"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (UDP4, [("Ether", {}), ("IP", {}), ("UDP", {})]),
        (
            "Ether()/Dot1Q(vlan=100)/IPv6(tc=46)/UDP(dport=53)",
            [("Ether", {}), ("Dot1Q", {"vlan": 100}), ("IPv6", {"tc": 46}), ("UDP", {"dport": 53})],
        ),
        (
            "Ether(dst='02:AA:00:00:00:1')/IP(src=\"10.0.0.1\", ttl=0x20)/UDP()",
            [("Ether", {"dst": "02:aa:00:00:00:01"}), ("IP", {"src": "10.0.0.1", "ttl": 32}), ("UDP", {})],
        ),
        ("Ether()/ IPv6(src='2001:2:0::1')\n / UDP()", [("Ether", {}), ("IPv6", {"src": "2001:2::1"}), ("UDP", {})]),
        ("Ether()/(IP()/UDP())  # a comment", [("Ether", {}), ("IP", {}), ("UDP", {})]),
        (
            "Ether()/IP(flags='DF', options=b'\\x01\\x01\\x01\\x00')"
            "/TCP(flags='SA', options=[('MSS', 1460), ('NOP', None)])",
            [
                ("Ether", {}),
                ("IP", {"flags": "DF", "options": b"\1\1\1\0"}),
                ("TCP", {"flags": "SA", "options": (("MSS", 1460), ("NOP", b""))}),
            ],
        ),
        (
            "Ether()/IP()/UDP(dport=2152)/GTPU(teid=7)/IPv6()/ICMPv6(id=1)",
            [
                ("Ether", {}),
                ("IP", {}),
                ("UDP", {"dport": 2152}),
                ("GTP_U_Header", {"teid": 7}),
                ("IPv6", {}),
                ("ICMPv6EchoRequest", {"id": 1}),
            ],
        ),
        (
            "Ether(type=0x88A8)/Dot1Q(id=1)/IPv6()/IPv6ExtHdrSegmentRouting(addresses=['2001:2::5'])/UDP(chksum=0)",
            [
                ("Ether", {"type": 0x88A8}),
                ("Dot1Q", {"dei": 1}),
                ("IPv6", {}),
                ("IPv6ExtHdrSegmentRouting", {"addresses": ("2001:2::5",)}),
                ("UDP", {"chksum": 0}),
            ],
        ),
    ],
)
def test_the_notation_is_that_of_scapy_and_is_written_back(text, expected):
    found = parse_layers(text)
    assert found == layers(*expected)
    assert parse_layers(layers_text(found)) == found


def packet(headers: str = UDP4, **more) -> dict[str, object]:
    return {"headers": headers, **more}


def described(value: object) -> Packet:
    found = parse_packet(value)
    assert found is not None
    return found


def vary(field: str, headers: str = UDP4, /, **values) -> dict[str, object]:
    return packet(headers, vary={field: values})


def arriving(sent: dict[str, object], /, **expected) -> dict[str, object]:
    """A packet with these varying fields, if any, and those that are expected."""
    return packet(vary=sent or None, expect={"headers": UDP4, "vary": expected})


NUMBERS = {"from": 1}
ROUTED = f"Ether()/IPv6()/IPv6ExtHdrSegmentRouting(addresses={['2001:2::9'] * 8})/UDP()"
TAGGED = "Ether()/" + "Dot1Q()/" * 17 + "IP()/UDP()"
TAGS = {f"Dot1Q:{number}.vlan": {"from": 1, "count": 2} for number in range(1, 18)}
# Descriptions, each with the layer and the field, or the key, that its message begins with.
WRONG = [
    # layers
    ("", "packet: is empty"),
    ("  \n ", "packet: is empty"),
    ("Ethr()/IP()/UDP()", "Ethr: no such layer; did you mean Ether?"),
    ("Ether()/IPV4()/UDP()", "IPV4: no such layer; write IP()"),
    ("Ether()/ARP()", "ARP: no such layer; layers are Ether, Dot1Q,"),
    ("Ether()/IPv4()/UDP()", "IPv4: no such layer; write IP()"),
    ("Ether()/VLAN(vlan=5)/IP()/UDP()", "VLAN: no such layer; write Dot1Q()"),
    ("Ether()/Dot1q()/IP()/UDP()", "Dot1q: no such layer; write Dot1Q()"),
    ("Ether()/QinQ()/IP()/UDP()", "QinQ: no such layer; write Dot1AD()"),
    ("Ethernet()/IP()/UDP()", "Ethernet: no such layer; write Ether()"),
    ("Ether()/IP6()/UDP()", "IP6: no such layer; write IPv6()"),
    ("Ether()/IP()/UDP()/GTP()/IP()/UDP()", "GTP: no such layer; write GTP_U_Header()"),
    ("IPv4", "IPv4: no such layer; write IP(), behind Ether()/"),
    ("IP()/UDP()", "IP: is not the first layer of a frame"),
    ("UDP()", "UDP: is not the first layer"),
    ("Ether", "Ether: has no parentheses; write a whole packet, for example Ether()/IP()/UDP()"),
    ("IP", "IP: has no parentheses; write a whole packet, for example Ether()/IP()/UDP()"),
    ("VXLAN", "packet: there is no 'VXLAN'; did you mean vxlan?"),
    ("IPv6", "packet: there is no 'IPv6'; did you mean ipv6?"),
    ("QinQ", "packet: there is no 'QinQ'; did you mean qinq?"),
    ("Ether()/IP/UDP()", "IP: has no parentheses; write IP()"),
    ("Ether()/UDP()", "UDP: cannot follow Ether; possible are Dot1Q,"),
    ("Ether()/IP()/Dot1Q()/UDP()", "Dot1Q: cannot follow IP"),
    ("Ether()/IP()/VXLAN()/Ether()/IP()/UDP()", "VXLAN: cannot follow IP"),
    ("Ether()/IP()/UDP()/IP()/UDP()", "IP: cannot follow UDP"),
    ("Ether()/IP()/TCP()/UDP()", "UDP: cannot follow TCP; it is the last layer"),
    ("Ether()/IP()/ICMPv6()", "ICMPv6EchoRequest: cannot follow IP"),
    ("Ether()/IPv6()/ICMP()", "ICMP: cannot follow IPv6"),
    ("Ether()/IPv6()/IPv6ExtHdrDestOpt()/IPv6ExtHdrHopByHop()/UDP()", "IPv6ExtHdrHopByHop: cannot follow"),
    ("Ether()", "Ether: cannot be the last layer: pktgen's header follows one of UDP, TCP, ICMP,"),
    ("Ether()/IP()", "IP: cannot be the last layer"),
    ("Ether()/IP()/GRE()", "GRE: cannot be the last layer"),
    ("Ether()/IP()/UDP()/VXLAN()", "VXLAN: cannot be the last layer"),
    (ROUTED, "UDP: ends 198 bytes behind the beginning of the frame: at most 174"),
    ("Ether()/" + "Dot1Q()/" * 40 + "IP()/UDP()", "packet: has more than 32 layers"),
    (UDP4 + "/'text'", "payload: cannot be described"),
    (UDP4 + "/Raw(load='x')", "Raw: no such layer; leave it out: the payload is pktgen's header"),
    (UDP4 + "/(10*'x')", "packet: a computation is no layer"),
    # notation
    ("Ether()/IP(src=10.0.0.1)/UDP()", 'IP.src: write addresses in quotes: "10.0.0.1"'),
    ("Ether(src=02:00:00:00:00:01)/IP()/UDP()", 'Ether.src: write addresses in quotes: "02:00:00:00:00:01"'),
    ("Ether()/IPv6(tc=1, dst=2001:2::1)/UDP()", 'IPv6.dst: write addresses in quotes: "2001:2::1"'),
    ("Ether()/IPv6(dst=::1)/UDP()", 'IPv6.dst: write addresses in quotes: "::1"'),
    (
        "Ether()/IPv6()/IPv6ExtHdrRouting(addresses=[2001:2::1])/UDP()",
        'IPv6ExtHdrRouting.addresses: write addresses in quotes: "2001:2::1"',
    ),
    (
        "Ether(src='02:00:00:00:00:01')/IP(src='(=', dst=10.0.0.1)/UDP()",
        'IP.dst: write addresses in quotes: "10.0.0.1"',
    ),
    ("Ether()/\nIP(src=10.0.0.1)/UDP()", 'IP.src: write addresses in quotes: "10.0.0.1"'),
    (
        "Ether()/IP(src=10.0.0.0/24)/UDP()",
        'IP.src: write one address in quotes, "10.0.0.0"; to send from many, write vary: {IP.src: {random: '
        "10.0.0.0/24}}",
    ),
    ("STLPktBuilder(pkt=Ether()/IP(src=16.0.0.1)/UDP())", 'IP.src: write addresses in quotes: "16.0.0.1"'),
    ("Ether()/IP(src='10.0.0.1'/UDP()", "IP: column 11: '(' is not closed; add ')'"),
    ("Ether()/IP()/UDP(", "UDP: column 17: '(' is not closed; add ')'"),
    ("Ether()/IP)/UDP()", "packet: column 11: ')' closes no bracket; remove it"),
    ("Ether()/IP(ttl=[1)/UDP()", "IP: column 18: ')' does not close '['; write ']' instead"),
    ("Ether()/IP(src='10.0.0.1)/UDP()", 'IP: column 16, at "\'10.0.0.1)/UDP()": the quote is not closed'),
    ("Ether()/IP(ttl=5 tos=3)/UDP()", "IP: column 18, at 'tos=3)/UDP()': a comma is missing here; write commas"),
    ("Ether()/IP(ttl=5, # a b\n tos=3 id=1)/UDP()", "IP: line 2, column 8, at 'id=1)/UDP()': a comma is missing here"),
    (
        "STLPktBuilder(pkt=Ether()/IP(src='16.0.0.1')/UDP(dport=12) # comment\n  vm=[])",
        "STLPktBuilder: line 2, column 3, at 'vm=[])': a comma is missing here; write commas between values, for "
        "example STLPktBuilder(pkt=…, vm=[…])",
    ),
    (
        "STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=[STLVmFlowVar('a') STLVmWrFlowVar('a', 'IP.ttl')])",
        "STLPktBuilder: column 61, at \"STLVmWrFlowVar('a', …\": a comma is missing here",
    ),
    ("Ether()/\nIP(ttl=)/UDP()", "IP: line 2, column 8, at ')/UDP()': is not in scapy's notation; write for example"),
    ("STLPktBuilder(\npkt=Ether()/IP(ttl=)/UDP())", "IP: line 2, column 20, at ')/UDP())': is not in"),
    ("Ether()/IP()/", "packet: is not in scapy's notation at its end; write for example"),
    # fields
    ("Ether()/IP(dscp=46)/UDP()", "IP.dscp: no such field; write tos=184"),
    ("Ether()/IPv6(dscp=46)/UDP()", "IPv6.dscp: no such field; write tc=184"),
    ("Ether()/IP(dscp=64)/UDP()", "IP.dscp: no such field; write tos, which is 4 × DSCP"),
    (
        "Ether()/Dot1Q(100)/IP()/UDP()",
        "Dot1Q: a value without the name of its field; write for example Dot1Q(vlan=100)",
    ),
    ("Ether()/Dot1Q(vid=5)/IP()/UDP()", "Dot1Q.vid: no such field; write vlan"),
    ("Ether()/Dot1Q(PCP=5)/IP()/UDP()", "Dot1Q.PCP: no such field; write prio"),
    ("Ether()/Dot1AD(vid=5)/IP()/UDP()", "Dot1AD.vid: no such field; write vlan"),
    ("Ether()/Dot1Q(foo=5)/IP()/UDP()", "Dot1Q.foo: no such field; fields are prio, dei, vlan, type"),
    (
        "Ether()/Dot1Q(id=100)/IP()/UDP()",
        "Dot1Q.id: is scapy's old name of dei, which is 0 or 1; for VLAN 100 write vlan=100",
    ),
    ("Ether()/MPLS(exp=5)/IP()/UDP()", "MPLS.exp: no such field; write cos"),
    ("Ether()/IPv6(ttl=5)/UDP()", "IPv6.ttl: no such field; write hlim"),
    (vary("Dot1Q.vid", "vlan", list=[1, 2]), "vary: Dot1Q.vid: no such field; write vlan"),
    ("Ether()/IP(dest='10.0.0.1')/UDP()", "IP.dest: no such field; did you mean dst?"),
    ("Ether()/IPv6(tos=4)/UDP()", "IPv6.tos: no such field"),
    ("Ether()/IP(ttl=1, ttl=2)/UDP()", "IP.ttl: is given twice"),
    (
        "Ether()/IP('10.0.0.1')/UDP()",
        'IP: a value without the name of its field; write for example IP(src="10.0.0.1")',
    ),
    ("Ether()/IP(**{'ttl': 1})/UDP()", "IP: an unpacked mapping is no field"),
    ("Ether()/IP(*[1])/UDP()", "IP: a value without the name of its field"),
    # values
    ("Ether()/Dot1Q(vlan=5000)/IP()/UDP()", "Dot1Q.vlan: 5000 is not allowed: 0 to 4094"),
    (
        "Ether()/Dot1AD(vlan=4095)/IP()/UDP()",
        "Dot1AD.vlan: 4095 is not allowed: 0 to 4094; 4095 is reserved (IEEE 802.1Q)",
    ),
    ("Ether()/IP(ttl=-1)/UDP()", "IP.ttl: -1 is not allowed: 0 to 255"),
    ("Ether()/IP()/UDP(dport=65536)", "UDP.dport: 65536 is not allowed"),
    ("Ether()/MPLS(label=1048576)/IP()/UDP()", "MPLS.label: 1048576 is not allowed"),
    ("Ether()/IPv6(fl=1048576)/UDP()", "IPv6.fl: 1048576 is not allowed"),
    ("Ether()/IP()/UDP()/VXLAN(vni=16777216)/Ether()/IP()/UDP()", "VXLAN.vni: 16777216 is not allowed"),
    ("Ether()/IP(src='300.1.1.1')/UDP()", "IP.src: '300.1.1.1' is no IPv4 address"),
    ("Ether()/IP(src='10.0.0.1/8')/UDP()", "IP.src: '10.0.0.1/8' is no IPv4 address"),
    # several values
    (
        "Ether()/IP(src='10.0.0.0/8')/UDP()",
        'IP.src: "10.0.0.0/8" is more than one value; write vary: {IP.src: {random: 10.0.0.0/8, count: 1048576}}',
    ),
    (
        "Ether()/IP(src='10.0.0.1-10.0.0.9')/UDP()",
        'IP.src: "10.0.0.1-10.0.0.9" is more than one value; write vary: {IP.src: {random: 10.0.0.1-10.0.0.9}}',
    ),
    (
        "Ether()/IP()/UDP(sport=(1,100))",
        "UDP.sport: (1, 100) is more than one value; write vary: {UDP.sport: {random: 1-100}}",
    ),
    (
        "Ether()/IP(src=RandIP())/UDP()",
        "IP.src: RandIP() is more than one value; write vary: {IP.src: {random: 198.18.0.1-198.18.0.254}}",
    ),
    (
        "Ether()/IP()/UDP()/VXLAN()/Ether()/IP()/UDP(dport=RandShort())",
        "UDP.dport: RandShort() is more than one value; write vary: {UDP:2.dport: {random: 1024-65535}}",
    ),
    ("Ether()/IP(version=[4, 6])/UDP()", "IP.version: [4, 6] is not allowed: one value"),
    ("Ether()/IP(ttl=[])/UDP()", "IP.ttl: [] is not allowed: one value"),
    # values
    ("Ether()/IP(src=167772161)/UDP()", "IP.src: 167772161 is no IPv4 address"),
    ("Ether()/IP(dst='2001:2::1')/UDP()", "IP.dst: '2001:2::1' is no IPv4 address"),
    ("Ether()/IPv6(dst='10.0.0.1')/UDP()", "IPv6.dst: '10.0.0.1' is no IPv6 address"),
    ("Ether()/IPv6(src='fe80::1%eth0')/UDP()", "IPv6.src: 'fe80::1%eth0' is no IPv6 address"),
    ("Ether(dst='02:00:00:00:00')/IP()/UDP()", "Ether.dst: '02:00:00:00:00' is no MAC address"),
    ("Ether(src='02:00:00:00:00:0g')/IP()/UDP()", "Ether.src: '02:00:00:00:00:0g' is no MAC address"),
    ("Ether()/IP(ttl='64')/UDP()", "IP.ttl: '64' is not allowed: a number"),
    ("Ether()/IP(ttl=6.5)/UDP()", "IP.ttl: 6.5 is no value"),
    ("Ether()/IP(ttl=True)/UDP()", "IP.ttl: True is no value"),
    ("Ether()/IP(ttl=None)/UDP()", "IP.ttl: None is no value"),
    ("Ether()/IP(ttl=[1, 2])/UDP()", "IP.ttl: [1, 2] is more than one value; write vary: {IP.ttl: {list: [1, 2]}}"),
    ("Ether()/IP(flags='XF')/UDP()", "IP.flags: 'XF' is not allowed: "),
    ("Ether()/IP()/TCP(flags='X')", "TCP.flags: 'X' is not allowed: flags are F, S, R"),
    ("Ether()/IP()/TCP(options=[('XYZ', 1)])", "TCP.options: ('XYZ', 1) is not allowed"),
    ("Ether()/IP(options='abcd')/UDP()", "IP.options: 'abcd' is not allowed"),
    ("Ether()/IP(options=b'abc')/UDP()", "IP.options: b'abc' is not allowed: a multiple of 4 bytes"),
    (f"Ether()/IP(options={bytes(44)!r})/UDP()", "IP.options: 44 bytes: at most 40"),
    ("Ether()/IPv6()/IPv6ExtHdrRouting(addresses='2001:2::1')/UDP()", "IPv6ExtHdrRouting.addresses: "),
    # fields that netbench computes, and values that contradict the rest
    ("Ether()/IP(len=60)/UDP()", "IP.len: is computed; leave it out"),
    ("Ether()/IP(ihl=5)/UDP()", "IP.ihl: is computed"),
    ("Ether()/IP(chksum=1)/UDP()", "IP.chksum: is computed"),
    ("Ether()/IP()/UDP(chksum=0x1234)", "UDP.chksum: is computed"),
    ("Ether()/IPv6(plen=9)/UDP()", "IPv6.plen: is computed"),
    ("Ether()/IP()/TCP(dataofs=5)", "TCP.dataofs: is computed"),
    ("Ether()/IP(version=6)/UDP()", "IP.version: 6 is not allowed: 4"),
    ("Ether(type=0x86DD)/IP()/UDP()", "Ether.type: 0x86dd does not announce IP, 0x800"),
    ("Ether()/IP(proto=6)/UDP()", "IP.proto: 0x6 does not announce UDP, 0x11"),
    ("Ether()/IPv6(nh=6)/IPv6ExtHdrFragment()/UDP()", "IPv6.nh: 0x6 does not announce IPv6ExtHdrFragment"),
    ("Ether()/MPLS(s=0)/IP()/UDP()", "MPLS.s: 0, but this label is the bottom of the stack (1); leave it"),
    ("Ether()/MPLS(s=1)/MPLS()/IP()/UDP()", "MPLS.s: 1, but another label follows this one (0); leave"),
    ("Ether()/IP(flags='MF')/UDP()", "IP.flags: 'MF' is not allowed: fragments"),
    ("Ether()/IP(flags=1)/UDP()", "IP.flags: 1 is not allowed: fragments"),
    ("Ether()/IP(frag=100)/UDP()", "IP.frag: 100 is not allowed: 0; fragments are not supported"),
    ("Ether()/IPv6()/IPv6ExtHdrFragment(m=1)/UDP()", "IPv6ExtHdrFragment.m: 1 is not allowed: 0; fragments"),
    ("Ether()/IPv6()/IPv6ExtHdrFragment(offset=8)/UDP()", "IPv6ExtHdrFragment.offset: 8 is not allowed"),
    ("Ether()/IP()/ICMP(type=3)", "ICMP.type: 3 is not allowed: 0 or 8"),
    ("Ether()/IP()/GRE(key=5)/IP()/UDP()", "GRE.key: is not in the header without key_present=1"),
    ("Ether()/IP()/GRE(chksum_present=1)/IP()/UDP()", "GRE.chksum_present: 1 is not allowed: 0"),
    ("Ether()/IP()/UDP()/GTPU(E=1)/IP()/UDP()", "GTP_U_Header.E: 1 is not allowed"),
    ("Ether()/IP(ttl=any)/UDP()", "IP.ttl: the name any is no value; any is for expect only"),
    # no packet
    ("vxlann", "packet: there is no 'vxlann'; did you mean vxlan?"),
    ("7", "packet: there is no '7'; packets are plain, ipv6,"),
    (7, "packet: '7' is no packet; write a name"),
    ({}, "packet: '{}' is no packet"),
    ({"header": UDP4}, "header: no such key of a packet; did you mean headers?"),
    ({"name": "x"}, "headers: is missing"),
    ({"headers": UDP4, "trex": "STLPktBuilder()"}, "headers: and trex exclude each other"),
    ({"headers": 5}, "headers: '5' is not allowed: it must be text"),
    (packet(name="plain"), "name: 'plain' is not allowed"),
    (packet(name="a/b"), "name: 'a/b' is not allowed"),
    (packet(name=""), "name: '' is not allowed"),
    # what varies
    (packet(vary=5), "vary: is a mapping of fields"),
    (packet(vary={}), "vary: is a mapping of fields"),
    (packet(vary={"combined": True}), "vary: names no field"),
    (packet(vary={"combined": "yes", "IP.src": NUMBERS}), "vary: combined: 'yes' is not allowed: true or false"),
    (vary("IP", **NUMBERS), "vary: IP: is no field; write LAYER.FIELD"),
    (vary("IP.scr", list=[1]), "vary: IP.scr: no such field; did you mean src?"),
    (vary("TCP.sport", list=[1]), "vary: TCP.sport: the packet has no TCP; layers are Ether, IP, UDP"),
    (vary("IP:2.src", list=["10.0.0.1"]), "vary: IP:2.src: the packet has no IP number 2"),
    (vary("IP:0.src", list=["10.0.0.1"]), "vary: IP:0.src: the packet has no IP number 0"),
    (vary("IP.len", list=[60]), "vary: IP.len: cannot vary: it is computed; of IP can vary: tos, id, ttl, src, dst"),
    (vary("IP.chksum", list=[60]), "vary: IP.chksum: cannot vary: it is computed"),
    (vary("IP.proto", list=[6, 17]), "vary: IP.proto: cannot vary: it is the type of the following header"),
    (vary("Ether.type", list=[6, 17]), "vary: Ether.type: cannot vary"),
    (vary("IP.version", list=[4]), "vary: IP.version: cannot vary: it has one value"),
    (vary("IP.options", list=[4]), "vary: IP.options: cannot vary"),
    (vary("IP.frag", list=[0]), "vary: IP.frag: cannot vary"),
    (vary("GRE.key", "Ether()/IP()/GRE()/IP()/UDP()", list=[1]), "vary: GRE.key: cannot vary: it is not in the header"),
    (
        vary("UDP.dport", "vxlan", list=[1]),
        "vary: UDP.dport: cannot vary: it announces VXLAN; of UDP can vary: sport; UDP:2.dport can vary, too",
    ),
    (
        vary("UDP:2.len", "vxlan", list=[1]),
        "vary: UDP:2.len: cannot vary: it is computed; of UDP:2 can vary: sport, dport",
    ),
    (
        vary("IPv6.dst", "Ether()/IPv6()/IPv6ExtHdrRouting()/UDP()", list=["2001:2::1"]),
        "vary: IPv6.dst: cannot vary: a routing header follows",
    ),
    (vary("IP.src", list=[]), "vary: IP.src: list: is a list of values"),
    (vary("IP.src", list=["10.0.0.300"]), "vary: IP.src: '10.0.0.300' is no IPv4 address"),
    (vary("UDP.sport", list=[1, 2, 1]), "vary: UDP.sport: 1 is in the list twice"),
    (vary("UDP.sport", list=[1], count=1), "vary: UDP.sport: count does not go with list"),
    (vary("UDP.sport", random="1-9", step=1), "vary: UDP.sport: step does not go with random"),
    (vary("UDP.sport", **{"from": 1}), "vary: UDP.sport: to or count is missing"),
    (vary("UDP.sport", to=1), "vary: UDP.sport: from is missing"),
    (vary("UDP.sport", **{"from": 1, "to": 9, "stp": 2}), "vary: UDP.sport: no key 'stp' here"),
    (vary("UDP.sport", **{"from": 1, "to": 70_000}), "vary: UDP.sport: 70000 is not allowed: 0 to 65535"),
    (vary("UDP.sport", **{"from": 9, "to": 1}), "vary: UDP.sport: to is below from: write step: -1"),
    (vary("UDP.sport", **{"from": 1, "to": 9, "step": 0}), "vary: UDP.sport: step: 0 is not allowed"),
    (vary("UDP.sport", **{"from": 1, "to": 9, "step": "1"}), "vary: UDP.sport: step: '1' is not allowed"),
    (
        vary("UDP.sport", **{"from": 1, "to": 9, "count": 10}),
        "vary: UDP.sport: to and count exclude each other; leave one",
    ),
    (vary("UDP.sport", **{"from": 10, "to": 20, "count": 5}), "vary: UDP.sport: to and count exclude each other"),
    (
        vary("UDP.sport", start=1, end=9),
        "vary: UDP.sport: no key 'start' or 'end' here: write from for start and to for end, as in {from: …, to: …",
    ),
    (vary("UDP.sport", **{"from": 1, "end": 9}), "vary: UDP.sport: no key 'end' here: write to for end, as in"),
    (
        vary("UDP.sport", random="5", count=3),
        "vary: UDP.sport: random: '5' is no range; write for example 1024-65535",
    ),
    (
        vary("UDP.sport", a=5),
        "vary: UDP.sport: no key 'a' here: write {from: …, to: …, step: 1}, {from: …, count: 100}, "
        "{random: 1024-65535} or {list: [10, 20]}",
    ),
    (
        vary("UDP.sport", **{"from": 65_000, "count": 1000}),
        "vary: UDP.sport: its last value would be 65999, beyond 65535; write count: 536 or less",
    ),
    (
        vary("UDP.sport", **{"from": 100, "count": 99, "step": -10}),
        "vary: UDP.sport: its last value would be -880, beyond 0; write count: 11 or less",
    ),
    (
        vary("IP.src", **{"from": "255.255.255.1", "count": 999}),
        "vary: IP.src: its last value would be beyond 255.255.255.255; write count: 255 or less",
    ),
    (
        vary("Dot1Q.vlan", "vlan", **{"from": 4000, "count": 96}),
        "vary: Dot1Q.vlan: its last value would be 4095, beyond 4094; write count: 95 or less",
    ),
    (vary("Dot1Q.vlan", "vlan", random="1-4095"), "vary: Dot1Q.vlan: 4095 is not allowed: 0 to 4094; 4095 is reserved"),
    (
        vary("IP.src", **{"from": "10.0.0.1", "count": 9, "step": "0.0.1.0"}),
        "vary: IP.src: step: '0.0.1.0' is not allowed: a whole number other than 0; write step: 256",
    ),
    (
        vary("IP.src", random="10.0.0.5/24"),
        "vary: IP.src: random: '10.0.0.5/24' is no range; write for example 10.0.0.0/24",
    ),
    (
        vary("IP.src", random="2001:2::/64"),
        "vary: IP.src: random: '2001:2::/64' is no range; write for example 198.18.0.1-",
    ),
    (
        vary("IPv6.src", "ipv6", random="x"),
        "vary: IPv6.src: random: 'x' is no range; write for example 2001:2::1-2001:2::fe",
    ),
    (
        vary("Ether.src", random="x"),
        "vary: Ether.src: random: 'x' is no range; write for example 02:00:00:00:00:01-02:",
    ),
    (vary("Dot1Q.vlan", "vlan", random="x"), "vary: Dot1Q.vlan: random: 'x' is no range; write for example 0-4094"),
    (vary("UDP.sport", **{"from": 1, "count": 0}), "vary: UDP.sport: count: 0 is not allowed: 1 to 1048576"),
    (vary("UDP.sport", random="9-1"), "vary: UDP.sport: random: the range ends before it begins"),
    (vary("UDP.sport", random="1024"), "vary: UDP.sport: random: '1024' is no range"),
    (vary("UDP.sport", random="1-9", count=10), "vary: UDP.sport: count: 10, but the range has 9 values"),
    (vary("IP.src", **{"from": "10.0.0.0", "to": "11.0.0.0"}), "vary: IP.src: 16,777,217 values: at most 1,048,576"),
    (
        vary("IP.src", random="10.0.0.0/8"),
        "vary: IP.src: random: 16,777,214 values: at most 1,048,576 are possible; add count: 1048576, or write a",
    ),
    (
        packet(
            vary={"UDP.dport": {"from": 1, "count": 5000}, "UDP.sport": {"from": 1, "count": 1000}, "combined": True}
        ),
        "vary: combined: 5,000 × 1,000 values make 5,000,000 flows: at most 1,048,576 are possible; write fewer "
        "values, for example 209 of UDP.sport, or leave combined out",
    ),
    (
        packet(
            vary={name: {"from": 1, "count": 1025} for name in ("UDP.dport", "UDP.sport", "IP.id")} | {"combined": True}
        ),
        "vary: combined: 1,025 × 1,025 × 1,025 values make 1,076,890,625 flows: at most 1,048,576 are possible; "
        "vary fewer fields, or leave combined out",
    ),
    (
        packet(combined=True),
        "combined: is no key of a packet; write it inside vary: {UDP.sport: …, UDP.dport: …, combined",
    ),
    (
        packet(combine=True),
        "combine: is no key of a packet; write it inside vary: {UDP.sport: …, UDP.dport: …, combined",
    ),
    (
        packet(vary={"combine": True}),
        "vary: combine: is no field; write LAYER.FIELD, for example IP.src, or IP:2.src for",
    ),
    (
        vary("Ether.src", list=["02:00:00:00:00:01", "04:00:00:00:00:01"]),
        "vary: Ether.src: its values differ in more than the low 32 bits",
    ),
    (
        vary("IPv6.src", "ipv6", list=["2001:2::1", "2001:2:1::1"]),
        "vary: IPv6.src: its values differ in more than the low 64 bits",
    ),
    (
        packet(TAGGED, vary=TAGS),
        "vary: 17 fields: at most 16 can vary",
    ),
    # what arrives
    (packet(expect=5), "expect: '5' is not allowed: it must be text"),
    (packet(expect=""), "expect: is empty"),
    (packet(expect="Ether()/IP(ttl=300)/UDP()"), "expect: IP.ttl: 300 is not allowed"),
    (
        packet(expect="Ether()/IP(ttl=*)/UDP()"),
        "expect: IP.ttl: * is no value; in expect write ttl=any, elsewhere leave",
    ),
    (packet(expect="Ether()/IP(ttl='*')/UDP()"), "expect: IP.ttl: * is no value; write ttl=any"),
    (packet(expect="Ether()/IP(tll=any)/UDP()"), "expect: IP.tll: no such field"),
    (packet(expect="IP()/UDP()"), "expect: IP: is not the first layer"),
    (
        packet(expect="Ether()/IP(src=ANY)/UDP()"),
        "expect: IP.src: the name ANY is no value; write any, in small letters",
    ),
    (
        packet(expect="Ether()/IP()/TCP()"),
        "expect: TCP: is the last layer, but that of the packet is UDP; end with UDP()",
    ),
    (packet("vxlan", expect="Ether()/IP()/ICMP()"), "expect: ICMP: is the last layer, but that of the packet is UDP"),
    # values of varying fields that arrive
    (packet(expect={}), "expect: headers: must be text"),
    (packet(expect={"vary": {"IP.ttl": {"list": [1]}}}), "expect: headers: must be text"),
    (packet(expect={"headers": UDP4, "vray": 1}), "expect: vray: no such key of expect; did you mean vary?"),
    (packet(expect={"headers": "Ether()/IP(tll=1)/UDP()"}), "expect: IP.tll: no such field"),
    (packet(expect={"headers": UDP4, "vary": 1}), "expect: vary: is a mapping of fields"),
    (arriving({}, **{"IP.src": {"list": [1]}}), "expect: IP.src: 1 is no IPv4 address"),
    (
        arriving({}, **{"IP.ttl": {"list": [1]}}),
        "expect: IP.ttl: does not vary in the packet as sent; write vary",
    ),
    (
        arriving({"UDP.sport": {"list": [1, 2]}}, **{"UDP.dport": {"list": [1, 2]}}),
        "expect: UDP.dport: does not vary in the packet as sent; only fields that it varies can vary here: UDP.sport",
    ),
    (
        arriving({"IP.ttl": {"list": [1, 2, 3]}}, **{"IP.ttl": {"list": [1, 2]}}),
        "expect: IP.ttl: 2 values, but the packet sends 3 of this field; write as many",
    ),
    (
        arriving({"IP.ttl": {"list": [1, 2]}}, **{"IP.ttl": {"random": "1-2"}}),
        "expect: IP.ttl: random: the packet sends this field's values in another order; write from or list",
    ),
    (
        arriving({"UDP.sport": {"random": "1024-65535"}}, **{"UDP.sport": {"from": 1024, "to": 65535}}),
        "expect: UDP.sport: the packet sends random values of this field; write random with a range of 64,512 values",
    ),
    (
        arriving({"UDP.sport": {"random": "1-9", "count": 4}}, **{"UDP.sport": {"random": "11-19"}}),
        "expect: UDP.sport: the packet sends random values of this field; write random with a range of 9 values, and "
        "count: 4",
    ),
    (
        arriving({"IP.ttl": {"list": [1, 2]}}, combined=True, **{"IP.ttl": {"list": [1, 2]}}),
        "expect: combined: leave it out: frames arrive in the order in which they are sent",
    ),
]


@pytest.mark.parametrize(("described", "begins"), WRONG)
def test_a_wrong_description_is_refused_with_layer_and_field(described, begins):
    with pytest.raises(DescriptionError) as refused:
        parse_packet(described)
    assert str(refused.value).startswith(begins)


HOSTILE = [
    "__import__('os').system('touch {}')",
    "Ether()/IP(src=__import__('os').system('touch {}'))/UDP()",
    "Ether()/IP(ttl=open('{}', 'w'))/UDP()",
    "(lambda: open('{}', 'w'))()",
    "Ether(src=(lambda: open('{}', 'w'))())/IP()/UDP()",
    "[open('{}', 'w') for _ in 'x'][0]",
    "Ether()/IP(ttl=[open('{}', 'w') for _ in 'x'])/UDP()",
    "Ether(dst=(x := open('{}', 'w')))/IP()/UDP()",
    "Ether(dst=f\"{{open('{}', 'w')}}\")/IP()/UDP()",
    "Ether().__class__.__bases__[0].__subclasses__()",
    "Ether().fields",
    "Ether()/IP(src=os.environ)/UDP()",
    "Ether()/IP(ttl=9**9**9)/UDP()",
    "9**9**9",
    "Ether()/IP(src='a' * 10**12)/UDP()",
    "Ether()/IP(ttl=1 if open('{}', 'w') else 2)/UDP()",
    "import os",
    "Ether()/IP()/UDP(); open('{}', 'w')",
    "Ether()/IP()/UDP()) or (open('{}', 'w')",
    "await Ether()",
    "yield Ether()",
    "exec(\"open('{}', 'w')\")",
    "eval('1')",
    "Ether()/IP(src={{'a': 1}})/UDP()",
    "Ether()/IP(src={{1, 2}})/UDP()",
    "STLPktBuilder(pkt=Ether()/IP(src=__import__('os').system('touch {}'))/UDP())",
    "import os\nos.system('touch {}')\nSTLPktBuilder(pkt=Ether()/IP()/UDP())",
    "os.system('touch {}')\nSTLPktBuilder(pkt=Ether()/IP()/UDP())",
    "x = open('{}', 'w')\nSTLPktBuilder(pkt=Ether()/IP()/UDP())",
    "STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=[open('{}', 'w')])",
    "STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=STLScVmRaw([STLVmFlowVar(name=open('{}', 'w'))]))",
    "for i in range(9): STLPktBuilder(pkt=Ether()/IP()/UDP())",
    "a = a\nSTLPktBuilder(pkt=a)",
    "a = b\nb = a\na = b\nSTLPktBuilder(pkt=a)",
    "STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=(lambda: 1)())",
    "(" * 3000 + "Ether()" + ")" * 3000,
    "-" * 4000 + "1",
    "not " * 900 + "1",
    "a." * 2000 + "b",
    "Ether()" + "/IP()" * 700,
    "[" * 90 + "]" * 90,
    "Ether(src=" + "[" * 90 + "]" * 90 + ")",
    "Ether()\0/IP()/UDP()",
    "Ether()/IP(src='\0')/UDP()",
    "Ether()/IP(ttl=" + "9" * 3900 + ")/UDP()",
    "x" * (1 << 20),
    "Ether()/" * (1 << 17),
    "STLPktBuilder(" * (1 << 16),
    "STLPktBuilder(pkt=" + "Ether()/" * 8000 + "IP())",
    "STLPktBuilder(pkt=" + "-" * 60_000 + "1)",
    "STLPktBuilder(pkt=" + "not " * 15_000 + "1)",
    "STLPktBuilder(pkt=" + "a." * 30_000 + "b)",
    "Ether()/IP(ttl=0x" + "f" * 3900 + ")/UDP()",
    "Ether()/IP(ttl=[0x" + "f" * 3900 + "])/UDP()",
    "Ether()/IP(0x" + "f" * 3900 + ")/UDP()",
    "STLPktBuilder(pkt=Ether()/IP()/UDP(), vm=[STLVmFlowVar('a', min_value=0x"
    + "f" * 3900
    + ", max_value=3, op='inc')])",
    "STLPktBuilder(a=" + " " * 60_000,
    "Ether(" + '"\\' * 2000,
    "STLPktBuilder(" + "'" + '\\"' * 30_000,
    "STLPktBuilder(" + "a=1.2.3.4" * 7000,
    "STLPktBuilder(a=" + ":" * 60_000,
    "\ud800",
    "Ether()\r\n/ٱ()",
]


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_python_that_is_no_description_is_refused_in_no_time_and_never_runs(text, tmp_path, monkeypatch):
    ran: list[str] = []
    active = True

    def note(event, arguments):
        if active and event in ("exec", "import", "open", "os.system") and arguments[0] != "<unknown>":
            ran.append(event)  # but for the parser's own look for the source of what it cannot read

    sys.addaudithook(note)
    began = time.process_time()
    touched = tmp_path / "touched"
    with pytest.raises(DescriptionError):
        parse_packet(text.replace("{}", str(touched)).replace("{{", "{").replace("}}", "}"))
    active = False
    assert time.process_time() - began < 2
    assert not touched.exists()
    assert ran == []


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60) | st.text("Ether()/IPUDv6srcdt=.,:'\"[]*-0123456789 \n", max_size=80))
def test_any_text_is_read_or_refused(text):
    try:
        found = parse_packet(text)
    except DescriptionError:
        return
    assert found is None or found.layers[0].name == "Ether"


VALUES = [
    ("IP.src", {"from": "198.18.1.1", "to": "198.18.1.9", "step": 2}, SteppedValues(0xC6120101, 2, 5)),
    ("IP.src", {"from": "198.18.1.9", "to": "198.18.1.1", "step": -3}, SteppedValues(0xC6120109, -3, 3)),
    ("IP.dst", {"from": "198.18.1.1", "count": 4}, SteppedValues(0xC6120101, 1, 4)),
    ("UDP.sport", {"random": "1024-65535"}, RandomValues(1024, 65535, 64512)),
    ("UDP.sport", {"random": " 1024 - 65535", "count": 10}, RandomValues(1024, 65535, 10)),
    ("IP.src", {"random": "10.0.0.0-10.255.255.255", "count": 1 << 20}, RandomValues(0x0A000000, 0x0AFFFFFF, 1 << 20)),
    ("IP.src", {"random": "10.0.0.0-10.15.255.255"}, RandomValues(0x0A000000, 0x0A0FFFFF, 1 << 20)),
    ("IP.src", {"random": "10.0.0.0/24"}, RandomValues(0x0A000001, 0x0A0000FE, 254)),
    ("IP.src", {"random": "10.0.0.4/31", "count": 1}, RandomValues(0x0A000004, 0x0A000005, 1)),
    ("IP.src", {"random": "10.0.0.4/32"}, RandomValues(0x0A000004, 0x0A000004, 1)),
    ("Dot1Q.vlan", {"list": [10, 20]}, ListedValues((10, 20))),
    ("Ether.src", {"from": "02:00:00:00:00:01", "count": 2}, SteppedValues(0x020000000001, 1, 2)),
]


@pytest.mark.parametrize(("field", "values", "expected"), VALUES)
def test_values_are_stepped_random_or_listed(field, values, expected):
    found = described(vary(field, "Ether()/Dot1Q()/IP()/UDP()", **values))
    assert found.vary == (VaryingField(FieldRef(*field.split(".")), expected),)
    assert parse_packet(written_packet(found)) == found


def test_a_field_of_the_second_header_of_a_kind_may_vary_and_expected_fields_may_have_any_value():
    found = described(
        packet(
            "vxlan",
            name="mine",
            vary={"IP:2.src": {"from": "198.18.1.1", "count": 3}, "VXLAN.vni": {"list": [1, 2]}, "combined": True},
            expect="Ether()/IP(ttl=any)/UDP()",
        )
    )
    assert found.vary[0].ref == FieldRef("IP", "src", 2)
    assert (found.name, found.flows, found.combined) == ("mine", 6, True)
    assert found.expect == layers(("Ether", {}), ("IP", {"ttl": ANY}), ("UDP", {}))
    assert parse_packet(written_packet(found)) == found


SOURCES = {"from": "198.18.1.1", "count": 100}
TRANSLATED = {"from": "192.0.2.1", "step": -1, "count": 100}
FIRST_TRANSLATED = int(ip_address("192.0.2.1"))


@pytest.mark.parametrize(
    ("sent", "vary", "expected", "arriving_vary", "found"),
    [
        (UDP4, {"IP.src": SOURCES}, UDP4, {"IP.src": TRANSLATED}, {(1, "src"): (0, -1)}),
        (
            UDP4,
            {"UDP.sport": {"list": [1, 2]}, "IP.src": SOURCES},
            "Ether()/IP(src=any,ttl=any)/UDP()",
            {"IP.src": TRANSLATED},
            {(1, "src"): (1, -1)},
        ),
        (UDP4, {"IP.src": SOURCES}, "Ether()/IP()/GRE()/IP()/UDP()", {"IP:2.src": TRANSLATED}, {(3, "src"): (0, -1)}),
        ("Ether()/IP()/GRE()/IP()/UDP()", {"IP:2.src": SOURCES}, UDP4, {"IP.src": TRANSLATED}, {(1, "src"): (0, -1)}),
    ],
)
def test_expected_values_belong_to_the_same_header_whatever_is_around_it(sent, vary, expected, arriving_vary, found):
    made = described(packet(sent, vary=vary, expect={"headers": expected, "vary": arriving_vary}))
    assert made.expect is not None
    values = {
        (index, name): value
        for index, layer in enumerate(made.expect)
        for name, value in layer.fields
        if isinstance(value, VariedValue)
    }
    assert values == {
        at: VariedValue(number, SteppedValues(FIRST_TRANSLATED, step, 100)) for at, (number, step) in found.items()
    }
    assert parse_packet(written_packet(made)) == made
    assert made.mirrored.mirrored == made


def test_vary_of_a_profile_replaces_that_of_its_packet_under_the_expected_values():
    mine = packet(name="mine", vary={"IP.src": SOURCES}, expect={"headers": UDP4, "vary": {"IP.src": TRANSLATED}})
    made = profile(packet=mine, vary={"UDP.sport": {"list": [1, 2]}, "IP.src": SOURCES}).packets["mine"]
    assert made.expect is not None
    assert made.expect[1].value("src") == VariedValue(1, SteppedValues(FIRST_TRANSLATED, -1, 100))
    alone = profile(packet=UDP4, vary={"IP.src": SOURCES}, expect={"headers": UDP4, "vary": {"IP.src": TRANSLATED}})
    assert Profile.model_validate(plain(alone)).packets == alone.packets


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (UDP4, "Ether()/IP()/UDP()/VXLAN()/Ether()/IP()/UDP()"),
        ("vxlan", UDP4),
        (UDP4, "Ether()/Dot1Q(vlan=5)/IP()/UDP()"),
        ("Ether()/IPv6()/UDP()", UDP4),
        ("Ether()/IPv6()/ICMPv6()", "Ether()/IP()/ICMP()"),
    ],
)
def test_headers_at_the_sink_may_be_more_or_fewer_or_translated_to_the_other_version_of_ip(sent, expected):
    assert described(packet(sent, expect=expected)).expect == parse_layers(expected)


def test_independent_fields_with_more_flows_than_a_packet_has_send_all_their_values():
    sources = {"from": "198.18.1.2", "to": "198.18.255.254"}
    found = described(packet(vary={"IP.src": sources, "UDP.sport": {"random": "1024-65535"}}))
    assert found.flows == 1 << 20
    assert found.summary == "Ether/IP/UDP, 1,048,576 of 467,905,536 flows by IP.src, UDP.sport"
    assert all(field.values.count <= found.flows for field in found.vary)
    allowed = {"UDP.dport": {"from": 1, "count": 1024}, "UDP.sport": {"from": 1, "count": 1024}, "combined": True}
    assert described(packet(vary=allowed)).flows == 1 << 20


def test_shipped_packets_have_the_flows_of_their_names():
    flows = {shipped.name: shipped.flows for shipped in shipped_packets()}
    assert (flows["1k-flows"], flows["100k-flows"], flows["1m-flows"]) == (1_000, 100_000, 1_000_000)
    assert {"ipv6", "vlan", "qinq", "vxlan", "geneve", "gre", "nat44", "imix-v6"} < set(flows)
    for shipped in shipped_packets():
        assert parse_packet(shipped.name) == shipped == parse_packet(written_packet(shipped))


def test_several_packets_have_different_names():
    found = parse_packets(["plain", UDP4, "vlan", "Ether()/IPv6()/UDP()"])
    assert [found_packet and found_packet.name for found_packet in found] == [None, "packet-1", "vlan", "packet-2"]
    assert [found_packet and found_packet.name for found_packet in parse_packets(UDP4)] == ["packet"]
    for twice in (["vlan", "vlan"], ["plain", "plain"], [packet(name="a"), packet(name="a")]):
        with pytest.raises(DescriptionError, match="is the name of two packets"):
            parse_packets(twice)
    with pytest.raises(DescriptionError, match="the list is empty"):
        parse_packets([])


def test_a_profile_has_packets_by_name_and_writes_what_it_reads():
    made = profile(packet=["plain", "1k-flows", packet(name="mine", vary={"UDP.sport": {"list": [1, 2]}})])
    assert made.packet_names == ("", "1k-flows", "mine")
    assert list(made.packets) == ["1k-flows", "mine"]
    assert Profile.model_validate(plain(made)) == made
    assert profile().packets == {}
    assert profile().packet_names == ("",)
    alone = profile(packet=UDP4, vary={"UDP.sport": {"list": [1, 2]}}, expect="Ether()/IP(ttl=63)/UDP()")
    assert isinstance(alone.packets["packet"], Packet)
    assert alone.packets["packet"].flows == 2
    assert alone.packets["packet"].expect is not None
    assert Profile.model_validate(plain(alone)).packets == alone.packets


def test_a_stream_has_a_packet():
    spec = {"name": "s1", "source": "a/b", "sink": "c/d"}
    made = StreamSpec.model_validate({**spec, "packet": vary("IPv6.fl", "ipv6", **{"from": 1, "count": 9})})
    assert made.packet is not None
    assert made.packet.flows == 9
    assert StreamSpec.model_validate(plain(made)) == made
    assert StreamSpec.model_validate(spec).packet is None


HEAD = "frame_sizes: 128\nloads: 1kfps\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("packet: Ether()/Dot1Q(vlan=5000)/IP()/UDP()", ":3:9: packet: Dot1Q.vlan: 5000 is not allowed: 0 to 4094"),
        (
            "packet:\n- vlan\n- headers: Ether()/IP(tll=1)/UDP()",
            ":5:12: packet: IP.tll: no such field; did you mean ttl?",
        ),
        ("packet: vlan\nvary:\n  UDP.sport: {list: [1]}\n  IP.len: {list: [1]}", ":6:3: vary: IP.len: cannot vary"),
        ("packet: vlan\nvary:\n  UDP.sport: {from: 1, to: 9, step: 0}", ":5:37: vary: UDP.sport: step: 0"),
        ("packet: [ipv6, vlan]\nvary: {UDP.sport: {list: [1]}}", ":4:1: vary: with 2 packets, write it in the mapping"),
        (
            "vary: {UDP.sport: {list: [1]}}",
            ":3:1: vary: needs a described packet; add packet: Ether()/IP()/UDP() beside vary",
        ),
        (
            "expect: Ether()/IP()/UDP()",
            ":3:9: expect: needs a described packet; add packet: Ether()/IP()/UDP() beside expect",
        ),
        ("packet: vlan\nexpect: Ether()/IP(ttl=256)/UDP()", ":4:9: expect: IP.ttl: 256 is not allowed"),
        ("packet: vlan\nexpect: 5", ":4:9: expect: '5' is not allowed: it must be text"),
        ("packet: vlan\nexpect:\n  headers: Ether()/IP()/UDP(spot=1)", ":5:12: expect: UDP.spot: no such field"),
        (
            "packet: vlan\nexpect:\n  headers: Ether()/IP()/UDP()\n  vary:\n    UDP.sport: {list: [1]}",
            ":7:5: expect: UDP.sport: does not vary in the packet as sent",
        ),
        ("packet:\n  headers: vlan\n  vray: {}", ":5:3: packet: vray: no such key of a packet; did you mean vary?"),
        ("packet: vlan\nvary:\n  IP.id: {from: 1, stp: 2}", ":5:20: vary: IP.id: no key 'stp' here"),
        (
            "packet: vlan\nflows: 10",
            ":4:8: flows: are the UDP port pairs of the plain packet; remove flows; write vary: {UDP.sport: {random: "
            "1024-65535, count: 10}}",
        ),
        (
            "packet: [plain, vlan]\nflows: 10",
            ":4:8: flows: are the UDP port pairs of the plain packet; remove flows; write in the mapping of a packet "
            "vary: {UDP.sport: {random: 1024-65535, count: 10}}",
        ),
        (
            "packet: Ether()/IP()/TCP()\nflows: 7",
            ":4:8: flows: are the UDP port pairs of the plain packet; remove flows; "
            "write vary: {TCP.sport: {random: 1024-65535, count: 7}}",
        ),
        (
            "packet: 1k-flows\nflows: 10",
            ":4:8: flows: are the UDP port pairs of the plain packet; remove flows: `vary` determines their number",
        ),
        ("packet: Ether()/IP(src=10.0.0.1)/UDP()", ':3:9: packet: IP.src: write addresses in quotes: "10.0.0.1"'),
        ("packet: [vlan, vlan]", ":3:16: packet: vlan: is the name of two packets"),
    ],
)
def test_a_wrong_packet_of_a_profile_is_reported_with_its_position(text, message, tmp_path):
    path = tmp_path / "x.yaml"
    path.write_text(HEAD + text)
    with pytest.raises(UsageError) as refused:
        load_profile(path, profile_kinds())
    assert str(refused.value).startswith(f"{path}{message}")


@pytest.mark.parametrize(
    ("override", "names"),
    [
        ("packet=[ipv6, vlan]", ("ipv6", "vlan")),
        ("packet=ipv6,plain", ("ipv6", "")),
        ('packet=Ether()/IP(src="10.0.0.1", ttl=3)/UDP()', ("packet",)),
    ],
)
def test_a_packet_is_overridden_on_the_command_line(override, names, tmp_path: Path):
    (tmp_path / "x.yaml").write_text(HEAD)
    assert load_profile(tmp_path / "x.yaml", profile_kinds(), [override]).packet_names == names


def test_sizes_of_headers_are_those_of_all_layers():
    assert header_bytes(parse_layers("Ether()/Dot1Q()/IPv6()/IPv6ExtHdrHopByHop()/UDP()")) == 14 + 4 + 40 + 8 + 8
    assert (
        header_bytes(parse_layers("Ether()/IP()/GRE(key_present=1,seqnum_present=1)/IP()/TCP()")) == 14 + 20 + 12 + 40
    )
    assert all(spec.name == name for name, spec in LAYERS.items())


def page_examples() -> list[str]:
    page = (Path(__file__).parents[2] / "docs/describe-packets.md").read_text()
    return [block.partition("```")[0] for block in page.split("```yaml\n")[1:]]


@pytest.mark.parametrize("example", page_examples())
def test_the_examples_of_the_page_about_packets_are_accepted(example, tmp_path):
    lines = [line for line in HEAD.splitlines() if line.partition(":")[0] not in example]
    (tmp_path / "x.yaml").write_text("\n".join([*lines, example]))
    packets = load_profile(tmp_path / "x.yaml", profile_kinds()).packets
    assert packets
    router = make_uut(topology(uuts=[{"name": "u", "kind": "raw", "forward": "route"}]).uuts[0])
    for described_packet in packets.values():
        untagged = replace(
            described_packet,
            layers=tuple(layer for layer in described_packet.layers if layer.name not in TAG_LAYERS),
            vary=tuple(field for field in described_packet.vary if field.ref.layer not in TAG_LAYERS),
        )
        assert "own address" not in router.unsupported_reason(untagged, stream_paths(topology(1)))


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("IPv6.src", "{from: 2001:2::1, to: 2001:2::ff, step: 2}"),
        ("IPv6.src", "{random: 2001:2::1-2001:2::ff}"),
        ("IPv6.src", "{random: 2001:2::/112}"),
        ("Ether.src", "{from: 00:00:00:00:00:10, count: 20}"),
        ("Ether.dst", "{list: [12:34:00:00:00:01, 12:34:56:01:02:03]}"),
        ("UDP.sport", "{random: 1024-65535}"),
    ],
)
def test_values_need_no_quotes_in_a_file(field, values, tmp_path):
    (tmp_path / "x.yaml").write_text(f"{HEAD}packet: ipv6\nvary: {{{field}: {values}}}\n")
    assert load_profile(tmp_path / "x.yaml", profile_kinds()).packets["ipv6"].flows > 1
