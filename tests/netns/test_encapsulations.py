"""Described packets through UUTs of this machine's kernel and Open vSwitch: real frames, captured at the sink's NIC."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark.structures import ParameterSet
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw as Payload

from netbench.errors import MissingError
from netbench.hosts.base import run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost
from netbench.hosts.pipes import Tail, end
from netbench.linux.recovery_journal import clean
from netbench.linux.requirements import Feature, ProbeError, Probes, attempt
from netbench.model.packet import AnyValue, FieldRef, Layer, Packet, SteppedValues, VaryingField
from netbench.model.paths import StreamId, StreamPath
from netbench.model.topology_specs import UutSpec
from netbench.packets.headers import Addresses, sent_layers
from netbench.packets.scapy_layers import scapy_packet
from netbench.testbed.guest_specs import make_uut
from netbench.uut.base import ActiveGuest, UnitUnderTest
from netbench.uut.packet_support import PACKET_FEATURES
from tests.netns.yard import SEND, Yard, fresh_yard

pytestmark = pytest.mark.root
NEEDED = {
    "ovs": ("ovs-vswitchd", "needs Open vSwitch: apt-get install openvswitch-switch"),
    "container": ("lxc-start", "needs LXC: apt-get install lxc"),
}
MARK = b"netbench-encapsulations-test-payload"
FRAMES = 5
LIMIT_S = 20.0  # for frames that must arrive
DROPPED_S = 1.0  # how long frames that must not arrive are waited for
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


def as_sent(packet: Packet, path: StreamPath, active: ActiveGuest) -> tuple[Layer, ...]:
    """The headers with the addresses of the stream where the packet has none."""
    next_hop = active.ready.next_hop_macs[path.name]
    own = Addresses(path.source.mac, next_hop, path.src_ip, path.dst_ip, path.src_ip6_of(0), path.dst_ip6)
    return sent_layers(packet, own)


@contextmanager
def recording(yard: Yard, interface: str, host: str = "sink") -> Iterator[Tail]:
    process = yard.hosts[host].spawn([sys.executable, "-u", "-c", RECORD, interface])
    assert process.stdout
    output = Tail(process.stdout)
    try:
        assert output_with(output, 1, LIMIT_S)[:1] == ["ready"]
        yield output
    finally:
        process.kill()
        end(process)


def output_with(output: Tail, lines: int, limit_s: float) -> list[str]:
    wait_until(lambda: output.text().count("\n") >= lines, limit_s, 0.02)
    return output.text().splitlines()


def sent_and_received(
    yard: Yard,
    active: ActiveGuest,
    path: StreamPath,
    packet: Packet,
    source: str = "source",
    sink: str = "sink",
    limit_s: float = LIMIT_S,
) -> list[Any]:
    """Send frames of a packet; return those received within a time, and assert that nothing else is."""
    frame = bytes(scapy_packet(as_sent(packet, path, active)) / Payload(MARK))
    with recording(yard, path.sink.interface, sink) as output:
        run_checked(yard.hosts[source], [sys.executable, "-c", SEND, path.source.interface, str(FRAMES), frame.hex()])
        frames = [bytes.fromhex(line) for line in output_with(output, FRAMES + 1, limit_s)[1:]]
    assert [len(other) for other in frames if MARK not in other] == [], "only test frames"
    return [Ether(received) for received in frames]


def assert_as_expected(received: Any, packet: Packet, path: StreamPath, active: ActiveGuest) -> None:
    """Assert that a received frame has the headers that the UUT should send, byte for byte, but for ANY."""
    layers = active.ready.at_sink.get(path.name, lambda layers: layers)(as_sent(packet, path, active))
    wanted: Any = Ether(bytes(scapy_packet(layers) / Payload(MARK)))
    for number, layer in enumerate(layers):
        free = {name for name, value in layer.fields if isinstance(value, AnyValue)}
        got, should = received.getlayer(number), wanted.getlayer(number)
        assert got.name == should.name
        for field in set(got.fields) - free:
            assert got.fields[field] == should.fields[field], f"{layer.name}.{field}"
    checked: Any = received.copy()
    for kind in (IP, UDP):
        for number in range(1, 3):
            if (header := checked.getlayer(kind, number)) and header.chksum:
                before = header.chksum
                del header.chksum
                again: Any = Ether(bytes(checked))
                assert again.getlayer(kind, number).chksum == before


INNER = (layer("Ether"), layer("IP"), layer("UDP"))
PLAIN = described(*INNER)
IPV6 = described(layer("Ether"), layer("IPv6", tc=46), layer("UDP"))
ELSEWHERE = described(layer("Ether"), layer("IP", dst="198.19.77.5", ttl=9), layer("UDP"))
ELSEWHERE_6 = described(layer("Ether"), layer("IPv6", src="2001:db8::1", dst="2001:db8:1::7"), layer("UDP"))
EXTENDED = described(layer("Ether"), layer("IPv6"), layer("IPv6ExtHdrDestOpt"), layer("UDP"))
VLAN = described(layer("Ether"), layer("Dot1Q", vlan=100), layer("IP"), layer("UDP"))
QINQ = described(layer("Ether"), layer("Dot1AD", vlan=200), layer("Dot1Q", vlan=100), layer("IP"), layer("UDP"))
VXLAN_ = described(layer("Ether"), layer("IP"), layer("UDP"), layer("VXLAN", vni=42), *INNER)
VXLAN_6 = described(*VXLAN_.layers[:4], layer("Ether"), layer("IPv6"), layer("UDP"))


GENEVE_ = described(layer("Ether"), layer("IP"), layer("UDP"), layer("GENEVE", vni=42, proto=0x6558), *INNER)
GRE_ = described(layer("Ether"), layer("IP"), layer("GRE", key_present=1, key=42, proto=0x6558), *INNER)
TAGGED_INSIDE = described(*VXLAN_.layers[:4], *VLAN.layers)


def made(kind: str, options: dict[str, object]) -> UnitUnderTest:
    return make_uut(UutSpec.model_validate({"name": "u", "kind": kind, **options}))


@pytest.fixture
def yard():
    with fresh_yard("nbt-enc") as yard:
        yield yard


Case = tuple[str, dict[str, object], tuple[Packet, ...]]
ROUTE: dict[str, object] = {"forward": "route"}
CASES: dict[str, Case] = {
    "bridge: VLAN": ("raw", {}, (VLAN,)),
    "bridge: QinQ, IPv6 and VXLAN": ("raw", {}, (QINQ, IPV6, VXLAN_)),
    "tc: QinQ": ("raw", {"forward": "tc"}, (QINQ, IPV6)),
    "router: IPv6, IPv4, VXLAN as IP": ("raw", ROUTE, (IPV6, PLAIN, EXTENDED, VXLAN_)),
    "router: chosen destinations": ("raw", ROUTE, (ELSEWHERE, ELSEWHERE_6, PLAIN, IPV6)),
    "router: VXLAN terminated": (
        "raw",
        {**ROUTE, "terminate": "vxlan", "vni": 42},
        (VXLAN_, VXLAN_6, PLAIN, IPV6),
    ),
    "bridge: VXLAN terminated": ("raw", {"terminate": "vxlan", "vni": 42}, (VXLAN_, VXLAN_6, TAGGED_INSIDE)),
    "router: VXLAN originated": ("raw", {**ROUTE, "originate": "vxlan", "vni": 7}, (PLAIN, IPV6)),
    "bridge: VXLAN originated": ("raw", {"originate": "vxlan", "vni": 7}, (PLAIN, IPV6, VLAN)),
    "router: NAT of sources": ("raw", {**ROUTE, "nat": "source"}, (PLAIN,)),
    "router: NAT of destinations": ("raw", {**ROUTE, "nat": "destination"}, (PLAIN, ELSEWHERE)),
    "container, bridge": ("container", {}, (QINQ, IPV6)),
    "container, router": ("container", ROUTE, (IPV6, ELSEWHERE, ELSEWHERE_6, PLAIN)),
    "container, router: VXLAN terminated": (
        "container",
        {**ROUTE, "terminate": "vxlan", "vni": 42},
        (VXLAN_, VXLAN_6, PLAIN),
    ),
    "container, bridge: VXLAN terminated": ("container", {"terminate": "vxlan", "vni": 42}, (VXLAN_,)),
    "container, router: NAT of sources": ("container", {**ROUTE, "nat": "source"}, (PLAIN,)),
    "OVS: all pass": ("ovs", {}, (PLAIN, IPV6, VLAN, QINQ, VXLAN_)),
    "OVS: trunk": ("ovs", {"vlans": [100, 200]}, (VLAN,)),
    "OVS: tag popped": ("ovs", {"terminate": "vlan", "vlan": 100}, (VLAN,)),
    "OVS: tag pushed": ("ovs", {"originate": "vlan", "vlan": 100}, (PLAIN, IPV6, VLAN)),
    "OVS: tag replaced": ("ovs", {"retag": {100: 200}}, (VLAN,)),
    "OVS: VXLAN terminated": ("ovs", {"terminate": "vxlan", "vni": 42}, (VXLAN_, VXLAN_6)),
    "OVS: GENEVE terminated": ("ovs", {"terminate": "geneve", "vni": 42}, (GENEVE_,)),
    "OVS: GRE terminated": ("ovs", {"terminate": "gre", "key": 42}, (GRE_,)),
    "OVS: VXLAN originated": ("ovs", {"originate": "vxlan", "vni": 7}, (PLAIN, IPV6)),
    "OVS: GENEVE originated": ("ovs", {"originate": "geneve", "vni": 7}, (PLAIN, VLAN)),
    "OVS: GRE originated": ("ovs", {"originate": "gre", "key": 7}, (PLAIN,)),
    "OVS: VXLAN to VLAN": ("ovs", {"terminate": "vxlan", "vni": 42, "originate": "vlan", "vlan": 5}, (VXLAN_,)),
    "OVS: VLAN to GRE": ("ovs", {"terminate": "vlan", "vlan": 100, "originate": "gre"}, (VLAN,)),
}


def marked(cases: dict[str, Case]) -> list[ParameterSet]:
    needs = {
        kind: [pytest.mark.skipif(not shutil.which(command), reason=reason)]
        for kind, (command, reason) in NEEDED.items()
    }
    return [pytest.param(*case, id=name, marks=needs.get(case[0], [])) for name, case in cases.items()]


@pytest.mark.parametrize(("kind", "options", "packets"), marked(CASES))
def test_packets_arrive_with_the_headers_that_the_uut_should_send_and_nothing_else_does(yard, kind, options, packets):
    path, uut = yard.paths[0], made(kind, options)
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


DROPPED: dict[str, Case] = {
    "trunk": ("ovs", {"vlans": [100, 200]}, (described(layer("Ether"), layer("Dot1Q", vlan=101), *INNER[1:]), PLAIN)),
    "VXLAN of another VNI": ("raw", {"terminate": "vxlan", "vni": 43}, (VXLAN_, PLAIN)),
}


@pytest.mark.parametrize(("kind", "options", "packets"), marked(DROPPED))
def test_packets_that_are_refused_beforehand_would_indeed_be_dropped(yard, kind, options, packets):
    path, uut = yard.paths[0], made(kind, options)
    with yard.uut(uut, "u", (path,), packets=packets) as active:
        for packet in packets:
            assert uut.unsupported_reason(packet, (path,)) != ""
            assert sent_and_received(yard, active, path, packet, limit_s=DROPPED_S) == []


CHOSEN_ENDS = described(
    VXLAN_.layers[0], layer("IP", src="192.0.2.7", dst="203.0.113.9"), layer("UDP", dport=4789), *VXLAN_.layers[3:]
)
BOTH_WAYS: dict[str, Case] = {
    "bridge, chosen ends": ("raw", {"terminate": "vxlan", "vni": 42}, (CHOSEN_ENDS,)),
    "router, chosen ends": ("raw", {**ROUTE, "terminate": "vxlan", "vni": 42}, (CHOSEN_ENDS,)),
    "router, one chosen end": (
        "raw",
        {**ROUTE, "terminate": "vxlan", "vni": 42},
        (described(VXLAN_.layers[0], layer("IP", src="192.0.2.7"), *CHOSEN_ENDS.layers[2:]),),
    ),
    "router, usual ends, NAT": ("raw", {**ROUTE, "terminate": "vxlan", "vni": 42, "nat": "source"}, (VXLAN_,)),
    "OVS, chosen ends": ("ovs", {"terminate": "vxlan", "vni": 42}, (CHOSEN_ENDS,)),
}


@pytest.mark.parametrize(("kind", "options", "packets"), marked(BOTH_WAYS))
def test_answers_arrive_before_any_other_frame_and_nothing_is_left_of_their_tunnels(yard, kind, options, packets):
    forth = replace(yard.paths[0], has_reverse=True)
    back = replace(
        forth,
        name="back",
        number=9,
        source=forth.sink,
        ingress=forth.egress,
        egress=forth.ingress,
        sink=forth.source,
        reverse_of=StreamId(forth.name, forth.number),
    )
    before, uut = state(yard), made(kind, options)
    with yard.uut(uut, "u", (forth, back), packets=packets) as active:
        for packet in packets:
            assert uut.unsupported_reason(packet, (forth, back)) == ""
            for path, ends in ((back, ("sink", "source")), (forth, ("source", "sink"))):
                sent = uut.sent_packet(packet, path)
                received = sent_and_received(yard, active, path, sent, *ends)
                assert len(received) == FRAMES
                for frame in received:
                    assert_as_expected(frame, sent, path, active)
    assert state(yard) == before


FEATURES = {"vlan": "vlan-interface", "geneve": "geneve", "gre": "gre"}


def missing() -> list[Feature]:
    """The features of described packets that this kernel lacks, by their probes."""
    found = []
    with ExitStack() as stack:
        probes = Probes(stack, shutil.which)
        for prepare in (Probes.netns, Probes.veth, Probes.bridge):
            attempt(prepare, probes)
        for feature in PACKET_FEATURES.values():
            try:
                attempt(feature.probe, probes)
            except ProbeError:
                found.append(feature)
    return found


@pytest.mark.parametrize("kind", FEATURES)
def test_an_encapsulation_that_this_kernel_lacks_is_named_with_the_remedy(yard, kind):
    number = {"vlan": {"vlan": 5}, "geneve": {"vni": 5}}.get(kind, {})
    if PACKET_FEATURES[FEATURES[kind]] in missing():
        with (
            pytest.raises(MissingError, match=r"need a kernel with CONFIG_.* topology lab-encapsulations"),
            yard.uut(made("raw", {**ROUTE, "terminate": kind, **number}), "u", yard.paths[:1]),
        ):
            pass
    assert "nb-t-s1" not in run_checked(yard.hosts["uut"], ["ip", "link"])


def test_nothing_is_left_of_a_uut_whose_controller_was_killed(tmp_path):
    """Its router, tunnel and NAT are in a namespace that is not its own, and the journal undoes them."""
    script = tmp_path / "controller.py"
    script.write_text(KILLED)
    run_checked(LocalHost("local", "test"), ["sh", "-c", MADE])
    before = rules_of("nbt-kept")
    env = dict(os.environ, PYTHONPATH=str(Path(__file__).parents[2]))
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout
    try:
        assert process.stdout.readline() == "forwards\n"
        assert rules_of("nbt-kept") != before
        process.kill()
        process.wait()
        (cleaned,) = clean()
        assert cleaned.failures == ()
        assert rules_of("nbt-kept") == before
    finally:
        process.kill()
        run_checked(LocalHost("local", "test"), ["ip", "netns", "del", "nbt-kept"])


def rules_of(netns: str) -> str:
    commands = "sysctl -a --pattern 'net.ipv[46].conf'; ip -br link; ip -br address; ip rule; ip -6 rule; "
    commands += "ip route show table all; ip -6 route show table all; ip neigh; nft list ruleset"
    return run_checked(LocalHost("local", "test"), ["ip", "netns", "exec", netns, "sh", "-c", commands])


MADE = """ip netns add nbt-kept
ip netns exec nbt-kept sysctl -q net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1
ip -n nbt-kept link add in1 type veth peer name in1-peer
ip -n nbt-kept link add out1 type veth peer name out1-peer
for nic in in1 out1 in1-peer out1-peer; do ip -n nbt-kept link set $nic up; done
sleep 0.2"""
KILLED = """
import sys, time
from dataclasses import replace
from netbench.hosts.local import LocalHost
from netbench.linux.machine import Machine
from netbench.linux.recovery_journal import Journal
from netbench.model.packet import Layer, Packet
from netbench.model.stream_paths import stream_paths
from netbench.uut.base import Assignment, Site
from netbench.uut.packet_support import PACKET_FEATURES
from netbench.uut.raw import Raw, RawOptions
from tests.unit.inputs import topology

journal = Journal.create("nbt-kept")
machine = Machine(None, LocalHost("local", journal.run_id), record=journal)
(path,) = stream_paths(topology(1))
path = replace(
    path,
    ingress=replace(path.ingress, netns="nbt-kept", interface="in1"),
    egress=replace(path.egress, netns="nbt-kept", interface="out1"),
)
packets = (Packet("v6", (Layer("Ether"), Layer("IPv6", (("dst", "2001:db8::1"),)), Layer("UDP"))),)
options = {"forward": "route", "terminate": "vxlan", "vni": 5, "nat": "destination"}
Raw(RawOptions.model_validate(options)).provision(Site(Assignment("u", (path,), packets=packets), machine, {}))
print("forwards", flush=True)
time.sleep(60)
"""


def test_a_bridge_forwards_to_ten_thousand_addresses_that_it_has_beforehand(yard):
    many = VaryingField(FieldRef("Ether", "dst"), SteppedValues(0x02AA00000000, 1, 10_000))
    path = yard.paths[0]
    with yard.uut(made("raw", {}), "u", (path,), packets=(described(*INNER, vary=[many]),)):
        entries = run_checked(yard.hosts["uut"], ["bridge", "fdb", "show", "dev", "nb-out1"])
        assert len(re.findall(r"^02:aa:00:00:.* static", entries, re.MULTILINE)) == 10_000
