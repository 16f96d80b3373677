"""Packet code of TRex, as in the examples of its folder scripts/stl: its packet, or what is unsupported."""

import pytest

from netbench.model.packet_description import parse_packet, written_packet
from netbench.model.packet_values import DescriptionError

PLAIN = 'Ether()/IP(src="16.0.0.1",dst="48.0.0.1")/UDP(dport=12,sport=1025)'
WRITTEN = "Ether()/IP(src='16.0.0.1', dst='48.0.0.1')/UDP(dport=12, sport=1025)"
PAYLOAD = "/(10*'x')"


def built(pkt: str = PLAIN + PAYLOAD, *commands: str) -> str:
    return f"STLPktBuilder(pkt={pkt}, vm=STLScVmRaw([{', '.join(commands)}]))"


def counter(least: object = 1, most: object = 10, size: int = 1, more: str = 'op="inc"') -> str:
    return f'STLVmFlowVar(name="v", min_value={least!r}, max_value={most!r}, size={size}, {more})'


def put(offset: object, more: str = "") -> str:
    return f'STLVmWrFlowVar(fv_name="v", pkt_offset={offset!r}{more})'


def masked(offset: object, more: str) -> str:
    return f'STLVmWrMaskFlowVar(fv_name="v", pkt_offset={offset!r}, {more})'


def steps(first: object, count: int, step: int = 1) -> dict[str, object]:
    return {"from": first, "step": step, "count": count}


SOURCES = {"IP.src": steps("16.0.0.1", 254)}
DESTINATIONS = 'min_value="48.0.0.1", max_value="48.0.0.255"'
HARDWARE = 'STLVmFixChecksumHw(l3_offset="IP", l4_offset="UDP", l4_type=CTRexVmInsFixHwCs.L4_TYPE_UDP)'
TAG = masked("802|1Q:1.vlan", "pkt_cast_size=2, mask=0xfff")
LABEL = masked("MPLS:1.label", "pkt_cast_size=4, mask=0xFFFFF000, shift=12")
CLIENT = 'Ether(src="00:00:dd:dd:00:01")/IP(src="55.55.1.1")/UDP()'
IPS = counter("16.0.0.1", "16.0.0.254", 4)
FIX = 'STLVmFixIpv4(offset="IP")'

# A whole profile, with the usual code around the packet.
PROFILE = """
from trex_stl_lib.api import *
import argparse

class STLS1(object):
    def __init__(self):
        self.fsize = 64
        self.clients = 300

    def create_stream(self, direction, cache_size):
        size = self.fsize - 4
        near, far = '16.0.0.1', '48.0.0.1'
        if direction:
            near, far = far, near
        base = Ether()
        base /= IP(src=near, dst=far)
        base /= UDP(dport=12, sport=1025)
        pad = max(0, size - len(base)) * 'x'
        vm = STLScVmRaw([STLVmFlowVar("c", min_value=1, max_value=self.clients, size=2, op="inc"),
                         STLVmWrFlowVar("c", "IP.src", offset_fixup=2), STLVmFixIpv4("IP")], cache_size=cache_size)
        return STLStream(packet=STLPktBuilder(pkt=base/pad, vm=vm), mode=STLTXCont(pps=10))

    def get_streams(self, direction, tunables, **kwargs):
        parser = argparse.ArgumentParser(description='for {}'.format(os.path.basename(__file__)))
        args = parser.parse_args(tunables)
        return [self.create_stream(direction, args.cache_size)]

def register():
    return STLS1()
"""
BY_METHODS = f"""
vm = STLVM()
vm.var(name="v", min_value="16.0.0.1", max_value="16.0.0.254", size=4, op="inc")
vm.write(fv_name="v", pkt_offset="IP.src")
vm.fix_chksum()
vm.set_cached(255)
STLPktBuilder(pkt={PLAIN}, vm=vm)
"""
BY_ITEMS = f"""
limits = {{'src': {{'start': "10.0.0.1", 'end': "10.0.0.9"}}}}
if (direction == 0):
    used = limits['src']
else:
    used = limits['dst']
vm = STLVM()
vm.var(name="v", min_value=used['start'], max_value=used['end'], size=4, op='inc', split_to_cores=False)
vm.write(fv_name="v", pkt_offset='IP.src')
STLPktBuilder(pkt={PLAIN}, vm=vm)
"""
CHAINED = f"""
vm = STLVM()
vm.var(name="a", min_value=1, max_value=3, size=1, op="inc", next_var="b")
vm.var(name="b", min_value=1, max_value=2, size=1, op="inc")
vm.write("b", "IP.ttl")
vm.write("a", "IP.tos")
STLPktBuilder(pkt={PLAIN}, vm=vm)
"""
TUPLES = 'STLVmTupleGen(ip_min="16.0.0.1", ip_max="16.0.0.{}", port_min=1025, port_max={}, name="t"{})'
PAIR = 'STLVmWrFlowVar("t.ip", "IP.src")', 'STLVmWrFlowVar("t.port", "UDP.sport")'


@pytest.mark.parametrize(
    ("code", "headers", "vary"),
    [
        # packets that do not vary
        (f"STLPktBuilder(pkt={PLAIN})", WRITTEN, {}),
        (f"STLPktBuilder({PLAIN}{PAYLOAD})", WRITTEN, {}),
        (f"STLPktBuilder(pkt={PLAIN}{PAYLOAD}, vm=[])", WRITTEN, {}),
        (f"STLPktBuilder(pkt={PLAIN}/'sixteen characters', vm=None)", WRITTEN, {}),
        (f"STLPktBuilder(pkt={PLAIN}/Raw(load='x'))", WRITTEN, {}),
        (f"base = {PLAIN}\npad = max(0, 60 - len(base)) * 'x'\nSTLPktBuilder(pkt=base/pad)", WRITTEN, {}),
        (f"a = Ether()\nb = {PLAIN.removeprefix('Ether()/')}\nSTLPktBuilder(pkt=a/b)", WRITTEN, {}),
        (f"    base = {PLAIN}\n    return STLStream(packet=STLPktBuilder(pkt=base), mode=STLTXCont())", WRITTEN, {}),
        (f"STLStream(packet=STLPktBuilder(pkt={PLAIN}), mode=STLTXSingleBurst(pps=1, total_pkts=17))", WRITTEN, {}),
        (f"p = STLPktBuilder(pkt={PLAIN})\nq = STLPktBuilder(pkt={PLAIN}/'x')", WRITTEN, {}),
        (
            'STLPktBuilder(pkt=Ether(dst="60:60:60:60:60:60")/IP()/UDP())',
            "Ether(dst='60:60:60:60:60:60')/IP()/UDP()",
            {},
        ),
        (
            "STLPktBuilder(pkt=Ether()/Dot1Q(prio=1,vlan=11)/IP()/UDP())",
            "Ether()/Dot1Q(prio=1, vlan=11)/IP()/UDP()",
            {},
        ),
        (
            "STLPktBuilder(pkt=Ether(type=0x88A8)/Dot1Q(vlan=19)/Dot1Q(vlan=11)/IP()/UDP())",
            "Ether(type=34984)/Dot1Q(vlan=19)/Dot1Q(vlan=11)/IP()/UDP()",
            {},
        ),
        (
            "STLPktBuilder(pkt=Ether()/MPLS(label=17,cos=1,s=0,ttl=255)/MPLS(label=12,s=1)/IP()/UDP()/('x'*20))",
            "Ether()/MPLS(label=17, cos=1, s=0, ttl=255)/MPLS(label=12, s=1)/IP()/UDP()",
            {},
        ),
        (
            "STLPktBuilder(pkt=Ether()/IP()/UDP(sport=1337,dport=4789)/VXLAN(vni=42)/Ether()/IP()/UDP()/('x'*20))",
            "Ether()/IP()/UDP(sport=1337, dport=4789)/VXLAN(vni=42)/Ether()/IP()/UDP()",
            {},
        ),
        ('STLPktBuilder(pkt=Ether()/IPv6(src="::5")/TCP(dport=12))', "Ether()/IPv6(src='::5')/TCP(dport=12)", {}),
        (
            'opt = IPOption(b"\\x01\\x01\\x01\\x00")\nSTLPktBuilder(pkt=Ether()/IP(options=opt)/UDP())',
            "Ether()/IP(options=b'\\x01\\x01\\x01\\x00')/UDP()",
            {},
        ),
        (
            "\n".join(f"STLPktBuilder(pkt={PLAIN.replace('16.0.0.1', source)})" for source in ("16.0.0.1", "16.0.0.5")),
            WRITTEN,
            {"IP.src": {"list": ["16.0.0.1", "16.0.0.5"]}},
        ),
        # one variable
        (built(PLAIN, IPS, put("IP.src"), FIX), WRITTEN, SOURCES),
        (f"STLPktBuilder(pkt={PLAIN}, vm=[{IPS}, {put('IP.src')}])", WRITTEN, SOURCES),
        (f"STLPktBuilder(pkt={PLAIN}, vm=[{IPS}, {put(26)}])", WRITTEN, SOURCES),
        (f"STLPktBuilder(pkt={PLAIN}, vm=[{IPS}, {put(20, ', offset_fixup=6')}])", WRITTEN, SOURCES),
        (BY_METHODS, WRITTEN, SOURCES),
        (BY_ITEMS, WRITTEN, {"IP.src": steps("10.0.0.1", 9)}),
        (PROFILE, WRITTEN, {"IP.src": steps("16.0.0.1", 300)}),
        (built(PLAIN, counter(1, 10, 1, 'op="dec"'), put("IP.ttl")), WRITTEN, {"IP.ttl": steps(10, 10, -1)}),
        (built(PLAIN, counter(1, 35, 1, 'op="dec", step=7'), put("IP.ttl")), WRITTEN, {"IP.ttl": steps(35, 5, -7)}),
        (built(PLAIN, counter(0, 10, 1, "step=3"), put("IP.ttl")), WRITTEN, {"IP.ttl": steps(0, 4, 3)}),
        (built(PLAIN, counter(1, 10), put("IP.ttl", ", add_val=5")), WRITTEN, {"IP.ttl": steps(6, 10)}),
        (
            built(PLAIN, 'STLVmFlowVar(name="v", value_list=["16.0.0.1", "16.0.0.9"], op="dec")', put("IP.src")),
            WRITTEN,
            {"IP.src": {"list": ["16.0.0.9", "16.0.0.1"]}},
        ),
        (
            built(PLAIN, counter(1025, 65000, 2, 'op="random"'), put("UDP.sport")),
            WRITTEN,
            {"UDP.sport": {"random": "1025-65000", "count": 63976}},
        ),
        (
            built(PLAIN, counter("16.0.0.0", "18.0.0.254", 4, 'op="random"'), put("IP.src")),
            WRITTEN,
            {"IP.src": {"random": "16.0.0.0-18.0.0.254", "count": 1 << 20}},
        ),
        (
            built(PLAIN, counter("16.0.0.0", "18.0.0.254", 4), put("IP.src")),
            WRITTEN,
            {"IP.src": {"from": "16.0.0.0", "count": 1 << 20}},
        ),
        (
            built(PLAIN, f'STLVmFlowVarRepeatableRandom("v", 4, 16, 7, {DESTINATIONS})', put("IP.dst")),
            WRITTEN,
            {"IP.dst": {"random": "48.0.0.1-48.0.0.255", "count": 16}},
        ),
        # parts of fields
        (built(PLAIN, counter(1, 10), put(11)), WRITTEN, {"Ether.src": steps("02:00:00:00:00:01", 10)}),
        (
            built(PLAIN, counter(1, 100, 1, "step=2"), put(10)),
            WRITTEN,
            {"Ether.src": steps("02:00:00:00:01:00", 50, 512)},
        ),
        (
            built('Ether(src="00:bb:12:34:56:01")/IP()/UDP()', counter(1, 10), put(11)),
            "Ether(src='00:bb:12:34:56:01')/IP()/UDP()",
            {"Ether.src": steps("00:bb:12:34:56:01", 10)},
        ),
        (built(PLAIN, counter(7, 7), put(11)), WRITTEN.replace("Ether()", "Ether(src='02:00:00:00:00:07')"), {}),
        (
            built(PLAIN, counter(1, 30, 2), masked(11, "pkt_cast_size=1, mask=0xff")),
            WRITTEN,
            {"Ether.src": steps("02:00:00:00:00:01", 30)},
        ),
        (
            built(PLAIN, counter(1, 30, 2), masked(10, "pkt_cast_size=2, mask=0xff00, shift=8")),
            WRITTEN,
            {"Ether.src": steps("02:00:00:00:01:00", 30, 256)},
        ),
        (
            built(PLAIN, counter(0, 10, 2), masked(10, "pkt_cast_size=1, mask=0xff, add_value=5, shift=0")),
            WRITTEN,
            {"Ether.src": steps("02:00:00:00:05:00", 11, 256)},
        ),
        (
            built("Ether()/Dot1Q(prio=5)/IP()/UDP()", counter(1, 100, 2), put("Dot1Q.vlan")),
            "Ether()/Dot1Q(prio=0)/IP()/UDP()",
            {"Dot1Q.vlan": steps(1, 100)},
        ),
        (
            built("Ether()/Dot1Q()/Dot1Q(prio=5)/IP()/UDP()", counter(1, 100, 2), TAG),
            "Ether()/Dot1Q()/Dot1Q(prio=5)/IP()/UDP()",
            {"Dot1Q:2.vlan": steps(1, 100)},
        ),
        (
            built("Ether()/MPLS()/MPLS()/IP()/UDP()", counter(1, 2000, 2), LABEL),
            "Ether()/MPLS()/MPLS()/IP()/UDP()",
            {"MPLS:2.label": steps(1, 2000)},
        ),
        (
            built('Ether()/IPv6(src="2001:4860::68")/UDP()', IPS, put("IPv6.src", ", offset_fixup=12")),
            "Ether()/IPv6(src='2001:4860::68')/UDP()",
            {"IPv6.src": steps("2001:4860::1000:1", 254)},
        ),
        (
            built("Ether()/IP()/IPv6()/IP()/UDP()", IPS, put("IP:1.src")),
            "Ether()/IP()/IPv6()/IP()/UDP()",
            {"IP:2.src": steps("16.0.0.1", 254)},
        ),
        # several fields
        (
            built(CLIENT, counter(1, 300, 2), put(10), put("IP.src", ", offset_fixup=2")),
            "Ether(src='00:00:dd:dd:00:01')/IP(src='55.55.1.1')/UDP()",
            {"Ether.src": steps("00:00:dd:dd:00:01", 300), "IP.src": steps("55.55.0.1", 300)},
        ),
        (CHAINED, WRITTEN, {"IP.tos": steps(1, 3), "IP.ttl": steps(1, 2), "combined": True}),
        (
            built(PLAIN, TUPLES.format(2, 2048, ""), *PAIR, HARDWARE),
            WRITTEN,
            {"IP.src": steps("16.0.0.1", 2), "UDP.sport": steps(1025, 1024), "combined": True},
        ),
        (
            built(PLAIN, TUPLES.format(10, 65535, ""), *reversed(PAIR)),
            WRITTEN,
            {"IP.src": steps("16.0.0.1", 10), "UDP.sport": steps(1025, 10_000), "combined": True},
        ),
        (
            built(PLAIN, TUPLES.format(10, 65535, ", limit_flows=5"), *PAIR),
            WRITTEN,
            {"IP.src": steps("16.0.0.1", 5), "combined": True},
        ),
    ],
)
def test_code_of_trex_describes_a_packet(code, headers, vary):
    expected = parse_packet({"headers": headers, **({"vary": vary} if vary else {})})
    assert parse_packet(code) == parse_packet({"trex": code}) == expected
    assert parse_packet(written_packet(expected)) == expected


@pytest.mark.parametrize(
    ("code", "begins"),
    [
        ("STLVM()", "STLPktBuilder: is missing"),
        ("STLPktBuilder()", "STLPktBuilder: pkt is missing"),
        ('STLPktBuilder(pkt="capture.pcap")', "pkt: is no packet in scapy's notation; capture files"),
        (f"STLPktBuilder(packet={PLAIN})", "STLPktBuilder: packet is not supported; arguments are pkt,"),
        (
            f"a = STLPktBuilder(pkt={PLAIN})\nSTLPktBuilder(pkt=Ether()/IP()/UDP())",
            "STLPktBuilder: 2 different packets",
        ),
        ("STLPktBuilder(pkt=Ether()/IP()/UDP()/DNS())", "DNS: no such layer"),
        ("STLPktBuilder(pkt=Ether()/ARP(psrc='55.55.1.1'))", "ARP: no such layer"),
        ("STLPktBuilder(pkt=Ether()/IP(ttl=300)/UDP())", "IP.ttl: 300 is not allowed"),
        ("STLPktBuilder(pkt=Ether()/IP()/(30*'x'))", "IP: cannot be the last layer"),
        (
            "STLPktBuilder(pkt=fragment(Ether()/IP()/UDP(), fragsize=20)[0])",
            "fragment: is not supported in TRex packet",
        ),
        ("STLPktBuilder(pkt=Ether(binascii.unhexlify('00')))", "binascii.unhexlify: is not supported"),
        ("STLPktBuilder(pkt=base/pad)", "base: the code does not define it"),
        (f"STLPktBuilder(pkt={PLAIN}, vm=vm)", "vm: the code does not define it"),
        (
            f"def create_stream(self, vm):\n  return STLPktBuilder(pkt={PLAIN}, vm=vm)\ncreate_stream(STLVM())",
            "vm: is a parameter of create_stream(), and calls are not followed; paste STLPktBuilder with vm=[…]",
        ),
        (
            "def packet(src):\n  return STLPktBuilder(pkt=Ether()/IP(src=src)/UDP())",
            "src: is a parameter of packet(), and calls are not followed; paste STLPktBuilder with the value of src",
        ),
        (f"def f(os):\n  os.system('x')\n  STLPktBuilder(pkt={PLAIN})", "os.system: is not supported"),
        (f"STLPktBuilder(pkt={PLAIN}, vm=5)", "vm: is no field engine"),
        ("import os\nSTLPktBuilder(pkt=Ether()/IP()/UDP())", "trex: imports os"),
        ("from os import system\nSTLPktBuilder(pkt=Ether()/IP()/UDP())", "trex: imports from os"),
        ("while True:\n  STLPktBuilder(pkt=Ether()/IP()/UDP())", "trex: line 1: while is not supported"),
        (f"if size > 9:\n  pass\nSTLPktBuilder(pkt={PLAIN})", "trex: line 1: if is not supported"),
        (
            built(PLAIN, "STLVmFlowVr()"),
            "STLVmFlowVr: no such instruction; did you mean STLVmFlowVar? instructions are STLVmFlowVar, ",
        ),
        (built(PLAIN, 'STLVmTrimPktSize("v")'), "STLVmTrimPktSize: is not supported: write sizes as `frame_sizes`"),
        (built(PLAIN, put("IP.src")), "STLVmWrFlowVar: no variable 'v' before"),
        (built(PLAIN, IPS, IPS), "v: is the name of two variables"),
        (built(PLAIN, IPS, put("IP.scr")), "IP.scr: no such field"),
        (built(PLAIN, IPS, put("TCP.sport")), "TCP.sport: the packet has no TCP"),
        (built(PLAIN, counter(1, 9, 2), put("IP.len")), "IP.len: cannot vary: it is computed"),
        (built(PLAIN, counter(1, 9), put("Raw.load")), "Raw.load: STLVmWrFlowVar: the payload is pktgen's header"),
        (built(PLAIN, counter(1, 9), put(42)), "STLVmWrFlowVar: byte 42 of the frame is in no field: it is payload"),
        (built(PLAIN, counter(1, 300, 2), put("IP.ttl")), "IP.ttl: STLVmWrFlowVar writes a part of v"),
        (built(PLAIN, counter(1, 9), put("IP.ttl", ", is_big=False")), "STLVmWrFlowVar: little-endian"),
        (built(PLAIN, counter(1, 9), put("IP.ttl", ", add_val=-5")), "STLVmWrFlowVar: add_val: values from -4 to 4"),
        (built(PLAIN, counter(1, 30, 2), masked(10, "mask=0x1, shift=-1")), "Ether.src: STLVmWrMaskFlowVar writes"),
        (built(PLAIN, counter(1, 30, 2), masked(10, "pkt_cast_size=1, mask=0x5")), "STLVmWrMaskFlowVar: mask 0x5"),
        (built(PLAIN, counter(1, 9, 1, 'op="incr"'), put("IP.ttl")), "STLVmFlowVar: op: 'incr' is not allowed"),
        (built(PLAIN, counter(9, 1), put("IP.ttl")), "STLVmFlowVar: 9 to 1 is no range of 1 bytes"),
        (built(PLAIN, counter(1, 300), put("IP.ttl")), "STLVmFlowVar: 1 to 300 is no range of 1 bytes"),
        (built(PLAIN, counter("a", "b"), put("IP.ttl")), "STLVmFlowVar: min_value: 'a' is no number"),
        (built(PLAIN, counter(1, 9, 3), put("IP.ttl")), "STLVmFlowVar: size: 3, step: 1"),
        (built(PLAIN, IPS, put("IP.src"), put("IP.src")), "IP.src: varies twice"),
        (built(PLAIN, TUPLES.format(9, 9, ""), *PAIR), "STLVmTupleGen: a range ends before it begins"),
        (built(PLAIN, TUPLES.format(9, 2000, ""), IPS, *PAIR, put("IP.dst")), "STLVmTupleGen: goes with no other"),
        (CHAINED.replace('"b", "IP.ttl"', '"a", "IP.ttl"'), "next_var: b is written to no field"),
        (BY_METHODS.replace("fix_chksum", "fix_sum"), "STLVM.fix_sum: no such method; did you mean fix_chksum?"),
        (BY_ITEMS.replace("'end': ", "'stop': "), "used['end']: is no item of a list or mapping"),
        (PROFILE.replace("/pad", "/self.pad(9)"), "packet: an attribute is no layer"),
    ],
)
def test_code_of_trex_with_anything_else_is_refused_with_layer_field_or_command(code, begins):
    with pytest.raises(DescriptionError) as refused:
        parse_packet({"trex": code})
    assert str(refused.value).startswith(begins)
