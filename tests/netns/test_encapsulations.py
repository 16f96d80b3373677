"""Described packets through UUTs of this machine's kernel and Open vSwitch: real frames, captured at the sink's NIC."""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import GRE, Dot1AD, Dot1Q, Ether
from scapy.layers.vxlan import VXLAN
from scapy.packet import Packet as ScapyPacket
from scapy.packet import Raw as Payload

from netbench.hosts.base import run_checked
from netbench.hosts.pipes import Tail, end
from netbench.model.packet import AnyValue, Layer, Packet, VaryingField
from netbench.model.paths import StreamPath
from netbench.uut.base import ActiveGuest
from netbench.uut.raw import Raw, RawOptions
from tests.netns.yard import SEND, Yard, fresh_yard

pytestmark = pytest.mark.root
NAMES = {kind.__name__: kind for kind in (Ether, Dot1Q, Dot1AD, IP, IPv6, IPv6ExtHdrDestOpt, UDP, ICMP, VXLAN, GRE)}
MARK = b"netbench-encapsulations-test-payload"
FRAMES = 5
# Prints each frame that an interface receives, in hexadecimal, with the VLAN tag that the kernel has removed.
RECORD = """
import socket, struct, sys
with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)) as receiver:
    receiver.setsockopt(263, 8, 1)  # PACKET_AUXDATA
    receiver.bind((sys.argv[1], 3))
    print("ready", flush=True)
    while True:
        frame, extra, _, address = receiver.recvmsg(65536, 64)
        if address[2] == 4:  # PACKET_OUTGOING
            continue
        for level, kind, data in extra:
            status, *_, tag, tpid = struct.unpack("IIIHHHH", data[:20])
            if status & 0x10:  # TP_STATUS_VLAN_VALID
                frame = frame[:12] + struct.pack("!HH", tpid, tag) + frame[12:]
        print(frame.hex(), flush=True)
"""


def layer(name: str, **fields: Any) -> Layer:
    return Layer(name, tuple(fields.items()))


def described(*layers: Layer, vary: Sequence[VaryingField] = ()) -> Packet:
    return Packet("tested", layers, tuple(vary))


def frame_of(layers: Sequence[Layer], path: StreamPath, next_hop: str) -> ScapyPacket:
    """The frame with these headers; addresses left out are those of the stream."""
    addresses: dict[str, dict[str, object]] = {
        "Ether": {"src": path.source.mac, "dst": next_hop},
        "IP": {"src": path.src_ip, "dst": path.dst_ip},
        "IPv6": {"src": path.src_ip6_of(0), "dst": path.dst_ip6},
        "UDP": {"sport": 9, **({} if any(one.name in ("VXLAN", "GENEVE") for one in layers) else {"dport": 9})},
    }
    packet: ScapyPacket | None = None
    for number, one in enumerate(layers):
        tunnel = one.name == "UDP" and number + 1 < len(layers)
        defaults = {} if tunnel else {"UDP": {"sport": 9, "dport": 9}}.get(one.name, addresses.get(one.name, {}))
        header = NAMES[one.name](**{**defaults, **dict(one.fields)})
        packet = header if packet is None else packet / header
    assert packet is not None
    return packet / Payload(MARK)


@contextmanager
def recording(yard: Yard, interface: str, host: str = "sink") -> Iterator[Tail]:
    process = yard.hosts[host].spawn([sys.executable, "-u", "-c", RECORD, interface])
    assert process.stdout
    output = Tail(process.stdout)
    try:
        assert output_with(output, 1)[0] == "ready"
        yield output
    finally:
        process.kill()
        end(process)


def output_with(output: Tail, lines: int, limit_s: float = 2.0) -> list[str]:
    from netbench.hosts.clock import wait_until

    wait_until(lambda: output.text().count("\n") >= lines, limit_s, 0.02)
    return output.text().splitlines()


def sent_and_received(yard: Yard, active: ActiveGuest, path: StreamPath, packet: Packet) -> list[ScapyPacket]:
    """Send frames of a packet; return those received, and assert that nothing else is."""
    frame = bytes(frame_of(packet.layers, path, active.ready.next_hop_macs[path.name]))
    with recording(yard, path.sink.interface) as output:
        run_checked(yard.hosts["source"], [sys.executable, "-c", SEND, path.source.interface, str(FRAMES), frame.hex()])
        frames = [bytes.fromhex(line) for line in output_with(output, FRAMES + 1, 1.0)[1:]]
    assert [len(other) for other in frames if MARK not in other] == [], "only test frames"
    return [Ether(received) for received in frames]


def assert_as_expected(received: ScapyPacket, packet: Packet, path: StreamPath, active: ActiveGuest) -> None:
    """Assert that a received frame has the headers that the UUT should send, byte for byte, but for ANY."""
    change = active.ready.at_sink.get(path.name, lambda layers: layers)
    sent = frame_of(packet.layers, path, active.ready.next_hop_macs[path.name])
    filled = tuple(
        Layer(
            one.name,
            (*{**{n: getattr(sent.getlayer(number), n) for n in address_names(one.name)}, **dict(one.fields)}.items(),),
        )
        for number, one in enumerate(packet.layers)
    )
    layers = change(filled)
    fixed = [Layer(one.name, tuple((n, v) for n, v in one.fields if not isinstance(v, AnyValue))) for one in layers]
    wanted = Ether(bytes(frame_of(fixed, path, "")))
    for number, one in enumerate(layers):
        free = {name for name, value in one.fields if isinstance(value, AnyValue)}
        got, should = received.getlayer(number), wanted.getlayer(number)
        assert got.name == should.name
        for field in set(got.fields) - free:
            assert got.fields[field] == should.fields[field], f"{one.name}.{field}"
    checked = received.copy()
    for one in (IP, UDP):
        for number in range(1, 3):
            if (header := checked.getlayer(one, number)) and header.chksum:
                before = header.chksum
                del header.chksum
                assert Ether(bytes(checked)).getlayer(one, number).chksum == before


def address_names(name: str) -> tuple[str, ...]:
    return ("src", "dst") if name in ("Ether", "IP", "IPv6") else ()


INNER = (layer("Ether"), layer("IP"), layer("UDP"))
PLAIN = described(*INNER)
IPV6 = described(layer("Ether"), layer("IPv6", tc=46), layer("UDP"))
ELSEWHERE = described(layer("Ether"), layer("IP", dst="198.19.77.5", ttl=9), layer("UDP"))
ELSEWHERE_6 = described(layer("Ether"), layer("IPv6", src="2001:db8::1", dst="2001:db8:1::7"), layer("UDP"))
EXTENDED = described(layer("Ether"), layer("IPv6"), layer("IPv6ExtHdrDestOpt"), layer("UDP"))
VLAN = described(layer("Ether"), layer("Dot1Q", vlan=100), layer("IP"), layer("UDP"))
QINQ = described(layer("Ether"), layer("Dot1AD", vlan=200), layer("Dot1Q", vlan=100), layer("IP"), layer("UDP"))
VXLAN_ = described(layer("Ether"), layer("IP"), layer("UDP"), layer("VXLAN", vni=42, flags=8), *INNER)
VXLAN_6 = described(*VXLAN_.layers[:4], layer("Ether"), layer("IPv6"), layer("UDP"))


def raw(**options: object) -> Raw:
    return Raw(RawOptions.model_validate(options))


@pytest.fixture
def yard():
    with fresh_yard("nbt-enc") as yard:
        yield yard


CASES = {
    "bridged: VLAN": ({}, (VLAN,)),
    "bridged: QinQ, IPv6 and VXLAN": ({}, (QINQ, IPV6, VXLAN_)),
    "tc: QinQ": ({"forward": "tc"}, (QINQ, IPV6)),
    "routed: IPv6, IPv4, VXLAN as IP": ({"forward": "route"}, (IPV6, PLAIN, EXTENDED, VXLAN_)),
    "routed: chosen destinations": ({"forward": "route"}, (ELSEWHERE, ELSEWHERE_6, PLAIN, IPV6)),
    "VXLAN terminated by a router": (
        {"forward": "route", "terminate": "vxlan", "vni": 42},
        (VXLAN_, VXLAN_6, PLAIN, IPV6),
    ),
    "VXLAN terminated by a bridge": ({"terminate": "vxlan", "vni": 42}, (VXLAN_, VXLAN_6)),
    "VXLAN originated by a router": ({"forward": "route", "originate": "vxlan", "vni": 7}, (PLAIN, IPV6)),
    "VXLAN originated by a bridge": ({"originate": "vxlan", "vni": 7}, (PLAIN, IPV6)),
    "NAT of sources": ({"forward": "route", "nat": "source"}, (PLAIN,)),
    "NAT of destinations": ({"forward": "route", "nat": "destination"}, (PLAIN, ELSEWHERE)),
}


@pytest.mark.parametrize(("options", "packets"), CASES.values(), ids=CASES)
def test_packets_arrive_with_the_headers_that_the_uut_should_send_and_nothing_else_does(yard, options, packets):
    path, uut = yard.paths[0], raw(**options)
    before = state(yard)
    for packet in packets:
        assert uut.unsupported_reason(packet, (path,)) == ""
    with yard.uut(uut, "u", (path,), packets=packets) as active:
        for packet in packets:
            received = sent_and_received(yard, active, path, packet)
            assert len(received) == FRAMES
            for frame in received:
                assert_as_expected(frame, packet, path, active)
    assert state(yard) == before


def state(yard: Yard) -> dict[str, str]:
    """The settings of IPv6 and IPv4, interfaces, rules, routes, neighbours and tables of the UUT's namespace."""
    commands = (
        "sysctl -a --pattern net.ipv[46].conf",
        "ip -j -d address",
        "ip rule",
        "ip -6 rule",
        "ip route show table all",
        "ip -6 route show table all",
        "ip neigh show nud permanent",
        "nft list ruleset",
    )
    found = {command: run_checked(yard.hosts["uut"], command.split()) for command in commands}
    links = json.loads(found.pop("ip -j -d address"))
    kept = ("ifname", "master", "promiscuity", "addr_info")
    return found | {link["ifname"]: str({key: link.get(key) for key in kept}) for link in links}
