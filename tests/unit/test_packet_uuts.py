"""What UUTs do to described packets, and which they refuse, with layer and reason."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from ipaddress import ip_address, ip_network
from itertools import starmap
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pydantic import ValidationError

from netbench.errors import ChangeError, MissingError, TestbedError, UsageError
from netbench.hosts.base import Completed
from netbench.linux.changes import (
    AddAddress,
    AddBridge,
    AddForwardingEntries,
    AddRoute,
    AddRule,
    AddTable,
    AddTunnel,
    AddVlan,
    AddVlanInterface,
    SetSysctl,
)
from netbench.linux.changes.base import MachineState
from netbench.linux.recovery_journal import from_json, to_json
from netbench.model.frame_size import FrameSize
from netbench.model.packet import (
    ANY,
    PLAIN_PACKET,
    FieldRef,
    Layer,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    VariedValue,
    VaryingField,
)
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.packets.build import expected_headers
from netbench.packets.flow_values import values_of
from netbench.packets.headers import with_varied_values
from netbench.plan.schedule import CampaignPlan
from netbench.plan.warnings import unsupported_packets as warnings_of
from netbench.testbed.guest_specs import make_uut
from netbench.testbed.resolved import resolve, resolve_guests, unsupported_packets
from netbench.uut.base import Assignment, UnitUnderTest
from netbench.uut.packet_headers import retagged
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_support import at_sink, missing_feature, require_ipv6
from netbench.uut.raw import RawOptions
from tests.unit.described_packets import vary as varying
from tests.unit.fakes import FakeHost
from tests.unit.inputs import profile, stream_traffic, topology, topology_both_ways

PATHS = stream_paths(topology(2))
(OUTSIDE,) = (
    replace(path, ingress=replace(path.ingress, netns=None), egress=replace(path.egress, netns=None))
    for path in PATHS[:1]
    if path.ingress and path.egress
)


def layer(name: str, **fields: Any) -> Layer:
    return Layer(name, tuple(fields.items()))


def packet(*layers: Layer, vary: Mapping[str, Any] | None = None) -> Packet:
    return Packet("tested", layers, tuple(starmap(varying, (vary or {}).items())))


ETHER, IP, IPV6, UDP = layer("Ether"), layer("IP"), layer("IPv6"), layer("UDP")
TAG = layer("Dot1Q", vlan=100)
VLAN = packet(ETHER, TAG, IP, UDP)
QINQ = packet(ETHER, layer("Dot1AD", vlan=200), TAG, IP, UDP)
MPLS = packet(ETHER, layer("MPLS", label=3), IP, UDP)
VXLAN = packet(ETHER, IP, UDP, layer("VXLAN", vni=42), ETHER, IP, UDP)
VXLAN_6 = packet(ETHER, IPV6, UDP, layer("VXLAN", vni=42), ETHER, IP, UDP)
GRE_OF_IP = packet(ETHER, IP, layer("GRE"), IP, UDP)


def uut(kind: str = "raw", **options: object) -> UnitUnderTest:
    lab = topology(uuts=[{"name": "u", "kind": kind, **options}])
    return make_uut(lab.uuts[0])


ROUTE = {"forward": "route"}
SUPPORTED = [
    ({}, "raw", [PLAIN_PACKET, VLAN, QINQ, MPLS, VXLAN, GRE_OF_IP, packet(ETHER, IPV6, UDP)]),
    ({"forward": "tc"}, "raw", [MPLS, QINQ]),
    ({"forward": "xdp"}, "raw", [MPLS, QINQ]),
    (ROUTE, "raw", [PLAIN_PACKET, VXLAN, VXLAN_6, GRE_OF_IP, packet(ETHER, IPV6, UDP)]),
    (ROUTE, "container", [PLAIN_PACKET, packet(ETHER, IPV6, UDP)]),
    (ROUTE, "qemu", [PLAIN_PACKET, packet(ETHER, IPV6, UDP)]),
    ({"vlans": [7, 100]}, "raw", [VLAN, packet(ETHER, layer("Dot1Q"), IP, vary={"Dot1Q.vlan": ListedValues((5, 7))})]),
    ({"vlans": [7]}, "raw", [packet(ETHER, TAG, IP, vary={"Dot1Q.vlan": RandomValues(1, 4094, 9)})]),
    ({**ROUTE, "terminate": "vlan", "vlan": 100}, "raw", [VLAN, PLAIN_PACKET, packet(ETHER, TAG, IPV6, UDP)]),
    (
        ROUTE,
        "raw",
        [
            packet(ETHER, IP, vary={"IP.src": SteppedValues(0xC6120102, 1, 250)}),
            packet(ETHER, IP, vary={"IP.src": SteppedValues(0xC6120100, 2, 100)}),
            packet(ETHER, IP, vary={"IP.src": SteppedValues(0xC61201F0, -1, 239)}),
            packet(ETHER, IP, vary={"IP.src": RandomValues(0xC6120001, 0xC612FFFE, 9)}),
        ],
    ),
    ({**ROUTE, "terminate": "gre"}, "raw", [GRE_OF_IP, PLAIN_PACKET]),
    ({"terminate": "vlan", "vlan": 100}, "raw", [VLAN]),
    ({"retag": {100: 200}}, "ovs", [VLAN]),
    ({"terminate": "geneve", "vni": 1}, "ovs", [packet(ETHER, IP, UDP, layer("GENEVE", vni=1), ETHER, IP)]),
    ({}, "forwarder", [MPLS, QINQ]),
    ({}, "external", [MPLS, QINQ]),
]


@pytest.mark.parametrize(("options", "kind", "packets"), SUPPORTED)
def test_packets_that_a_uut_forwards(options, kind, packets):
    assert [uut(kind, **options).unsupported_reason(tested, PATHS[:1]) for tested in packets] == [""] * len(packets)


REFUSED = [
    (
        "raw",
        ROUTE,
        VLAN,
        "Dot1Q: a router forwards only IP and IPv6 behind Ether; use forward: bridge, or terminate: vlan$",
    ),
    ("container", ROUTE, QINQ, "Dot1AD: a router .*; use forward: bridge$"),
    ("qemu", {"forward": "flowtable"}, MPLS, "MPLS: a router"),
    ("raw", ROUTE, packet(ETHER), r"Ether: .* no header follows; add IP\(\) or"),
    ("raw", ROUTE, packet(layer("Ether", dst="02:00:00:00:00:01"), IP, UDP), "Ether.dst: "),
    ("raw", ROUTE, packet(ETHER, IP, vary={"Ether.dst": SteppedValues(2 << 40, 1, 9)}), "Ether.dst: "),
    ("raw", ROUTE, packet(ETHER, layer("IP", ttl=1), UDP), "IP.ttl: .*; write 2 or more"),
    ("raw", ROUTE, packet(ETHER, IP, UDP, vary={"IP.ttl": SteppedValues(1, 1, 64)}), "IP.ttl: "),
    ("raw", ROUTE, packet(ETHER, layer("IPv6", hlim=1), UDP), "IPv6.hlim: "),
    ("raw", ROUTE, packet(ETHER, layer("IP", chksum=5), UDP), "IP.chksum: "),
    ("raw", ROUTE, packet(ETHER, layer("IP", dst="224.0.0.5"), UDP), "IP.dst: .*224.0.0.5; write another"),
    ("raw", ROUTE, packet(ETHER, layer("IP", src="127.0.0.1"), UDP), "IP.src: .*127.0.0.1"),
    ("raw", ROUTE, packet(ETHER, layer("IPv6", dst="ff02::1"), UDP), "IPv6.dst: .*ff02::1"),
    ("raw", ROUTE, packet(ETHER, layer("IPv6", src="fe80::1"), UDP), "IPv6.src: .*fe80::1"),
    ("raw", ROUTE, packet(ETHER, IP, vary={"IP.dst": SteppedValues(0xDFFFFFF0, 1, 99)}), "IP.dst: .*224.0.0.0"),
    (
        "raw",
        ROUTE,
        packet(ETHER, IP, vary={"IP.src": SteppedValues(0xC6120101, 1, 99)}),
        "IP.src: 198.18.1.1 is the UUT's own address; a router does not forward such packets: start at 198.18.1.2$",
    ),
    (
        "raw",
        ROUTE,
        packet(ETHER, IP, vary={"IP.src": SteppedValues(0xC6120001, 1, 65_000)}),
        "IP.src: 198.18.1.1 is .*: choose a range without it$",
    ),
    (
        "container",
        ROUTE,
        packet(ETHER, IP, vary={"IP.src": RandomValues(0xC6120101, 0xC61201FE, 254)}),
        "IP.src: 198.18.1.1 is .*: choose a range without it$",
    ),
    (
        "qemu",
        ROUTE,
        packet(ETHER, IP, vary={"IP.src": ListedValues((0xC6120105, 0xC6120101))}),
        "IP.src: 198.18.1.1 is .*: take it out of the list$",
    ),
    ("raw", ROUTE, packet(ETHER, layer("IP", src="198.19.1.1"), UDP), "IP.src: 198.19.1.1 is .*: choose another$"),
    ("raw", ROUTE, packet(ETHER, layer("IPv6", src="2001:2:0:1801::1"), UDP), "IPv6.src: 2001:2:0:1801::1 is .*own"),
    ("raw", {"vlans": [7]}, VLAN, r"Dot1Q.vlan: .* VLANs 7; send Dot1Q\(vlan=7\)"),
    ("raw", {"vlans": [7]}, PLAIN_PACKET, r"Dot1Q: .* no 802.1Q tag behind Ether; send Ether\(\)/Dot1Q\(vlan=7\)/"),
    ("raw", {"vlans": [100]}, QINQ, "Dot1Q: .* no 802.1Q tag behind Ether"),
    ("ovs", {"retag": {7: 8}}, VLAN, "Dot1Q.vlan: "),
    ("raw", {"terminate": "vlan", "vlan": 100}, PLAIN_PACKET, r"Dot1Q: .*; send Ether\(\)/Dot1Q\(vlan=100\)/"),
    ("raw", {"terminate": "vlan", "vlan": 100}, QINQ, "Dot1Q: "),
    (
        "raw",
        {**ROUTE, "terminate": "vlan", "vlan": 9},
        VLAN,
        r"Dot1Q.vlan: the UUT terminates VLAN 9; send Dot1Q\(vlan=9\)",
    ),
    (
        "raw",
        {**ROUTE, "terminate": "vxlan", "vni": 9},
        VXLAN,
        r"VXLAN.vni: the UUT terminates VNI 9; send VXLAN\(vni=9\)",
    ),
    (
        "raw",
        {**ROUTE, "terminate": "vxlan", "vni": 42},
        VXLAN_6,
        r"IPv6: the UUT terminates tunnels over IP .*; send Ether\(\)/IP\(\)/",
    ),
    (
        "raw",
        {"terminate": "vxlan", "vni": 42},
        replace(VXLAN, layers=(layer("Ether", dst="02::"), *VXLAN.layers[1:])),
        "Ether.dst: ",
    ),
    (
        "raw",
        {**ROUTE, "terminate": "vxlan", "vni": 42},
        packet(ETHER, IP, UDP, layer("VXLAN", vni=42, flags=12), ETHER, IP, UDP),
        "VXLAN.flags: ",
    ),
    ("raw", {**ROUTE, "nat": "source"}, PLAIN_PACKET, "IP: .*sinks recognise plain frames"),
    ("ovs", {"originate": "vlan", "vlan": 5}, PLAIN_PACKET, "IP: .*sinks recognise plain frames"),
    (
        "raw",
        {**ROUTE, "terminate": "gre", "key": 5},
        GRE_OF_IP,
        r"GRE.key: the UUT terminates GRE with key 5; send GRE\(key_present=1, key=5\)",
    ),
    (
        "raw",
        {**ROUTE, "terminate": "gre"},
        packet(ETHER, IP, layer("GRE", key_present=1, key=5), IP, UDP),
        r"GRE.key: the UUT terminates GRE without a key; send GRE\(\)",
    ),
    ("raw", {"terminate": "gre"}, GRE_OF_IP, r"GRE: .* no Ether inside; send GRE\(\)/Ether\(\)/"),
    (
        "raw",
        {"terminate": "vxlan", "vni": 42},
        PLAIN_PACKET,
        r"VXLAN: .*; send Ether\(\)/IP\(\)/UDP\(dport=4789\)/VXLAN\(vni=42\)/",
    ),
    (
        "raw",
        {**ROUTE, "nat": "source"},
        packet(ETHER, layer("IP", src="10.0.0.1"), UDP),
        "IP.src: .*10.0.0.1 is not .*; send one of them",
    ),
    (
        "raw",
        {**ROUTE, "nat": "source"},
        packet(ETHER, IPV6, UDP),
        r"IPv6: .*NAT44.; send Ether\(\)/IP\(\)/…, or leave nat out",
    ),
    (
        "raw",
        {**ROUTE, "nat": "destination"},
        packet(ETHER, IP, vary={"IP.dst": SteppedValues(0xC613FFF0, 1, 99)}),
        "IP.dst: .*198.20.0.0",
    ),
    (
        "ovs",
        {"terminate": "vxlan", "vni": 42},
        replace(VXLAN, vary=(VaryingField(FieldRef("IP", "dst"), SteppedValues(1, 1, 3)),)),
        "IP.dst: the tunnel has one address",
    ),
]


@pytest.mark.parametrize(("kind", "options", "tested", "reason"), REFUSED)
def test_packets_that_a_uut_refuses_with_layer_and_field(kind, options, tested, reason):
    found = uut(kind, **options).unsupported_reason(tested, PATHS[:1])
    assert re.match(reason, found), found


WRONG_OPTIONS = [
    ("raw", {**ROUTE, "vlans": [1]}, "vlans: .*forward: bridge"),
    ("raw", {"vlans": [4095]}, "4094"),
    ("raw", {"nat": "source"}, "nat: .*forward: route"),
    (
        "raw",
        {"forward": "tc", "terminate": "vlan", "vlan": 1},
        "terminate: tc redirects frames as they are; set forward: route or bridge",
    ),
    ("raw", {"terminate": "vlan"}, "terminate: vlan needs the VLAN ID; add vlan: 100"),
    ("raw", {"originate": "vxlan"}, "originate: vxlan needs the VNI; add vni: 100"),
    ("raw", {"vni": 4}, "vni: it is for terminate or originate: vxlan or geneve"),
    ("raw", {"terminate": "gre", "key": 1, "vlan": 3}, "vlan: it is for"),
    ("raw", {"terminate": "vlan", "originate": "vlan", "vlan": 3}, "originate: vlan is terminated already"),
    ("raw", {"terminate": "vxlan", "originate": "geneve", "vni": 3}, "originate: VXLAN and GENEVE"),
    ("raw", {"terminate": "vlan", "vlan": 3, "vlans": [3]}, "vlans: leave it out"),
    ("ovs", {"retag": {1: 2}, "vlans": [3]}, "retag: leave it out with vlans"),
    ("ovs", {"terminate": "gre", "originate": "vxlan", "vni": 3}, "originate: .*one tunnel"),
    ("raw", {"forward": "flowtable", "terminate": "gre"}, "terminate: a flowtable contains NICs only"),
    ("ovs", {"nat": "source"}, "nat: is an option of UUTs of kind raw and of guests only; remove it"),
    ("raw", {"retag": {1: 2}}, "retag: is an option of UUTs of kind ovs only; remove it"),
    ("container", {"retag": {1: 2}}, "retag: is an option of UUTs of kind ovs only"),
    ("qemu", {"nat": "source"}, "nat: .*forward: route"),
]


@pytest.mark.parametrize(("kind", "options", "message"), WRONG_OPTIONS)
def test_options_that_make_no_sense_are_refused_by_their_key(kind, options, message):
    with pytest.raises(ValidationError, match=message):
        uut(kind, **options)


WRONG_PATHS = [
    ("raw", {**ROUTE, "nat": "source"}, (OUTSIDE,), "nat: .*kind netns"),
    ("raw", {**ROUTE, "terminate": "vxlan", "vni": 1}, (OUTSIDE,), "terminate: .*kind netns"),
    ("raw", {**ROUTE, "originate": "vxlan", "vni": 1}, PATHS, "originate: .*a single stream"),
    ("container", {**ROUTE, "terminate": "geneve", "vni": 1}, PATHS, "terminate: .*a single stream"),
    ("ovs", {"retag": {1: 2}}, (replace(PATHS[0], has_reverse=True),), "retag: .*reverse stream"),
    ("ovs", {"datapath": "system", "terminate": "gre"}, PATHS[:1], "terminate: .*datapath: netdev"),
]


@pytest.mark.parametrize(("kind", "options", "paths", "message"), WRONG_PATHS)
def test_options_that_paths_do_not_allow(kind, options, paths, message):
    with pytest.raises(UsageError, match=message):
        uut(kind, **options).check(paths)


def test_ipv6_is_not_routed_outside_namespaces():
    """It would change all interfaces of the machine, and stop its router advertisements."""
    reason = uut(**ROUTE).unsupported_reason(packet(ETHER, IPV6, UDP), (OUTSIDE,))
    assert re.match("IPv6: .*kind netns", reason)
    assert uut("qemu", **ROUTE).unsupported_reason(packet(ETHER, IPV6, UDP), (OUTSIDE,)) == ""
    plan = uut(**ROUTE).plan(Assignment("u", (OUTSIDE,)))
    assert not [step for step in plan.steps if "ipv6" in step.command]


def test_a_plain_packet_changes_nothing_in_what_a_router_did_before():
    """No IPv6, no rules, no tunnels: their cost would be that of other packets."""
    steps = uut(**ROUTE).plan(Assignment("u", PATHS, packets=(PLAIN_PACKET,))).steps
    assert not [step for step in steps if isinstance(step, AddRule | AddRoute | AddTunnel)]
    assert not [step for step in steps if "ipv6" in step.command or ":" in getattr(step, "address", "")]


def test_ipv6_is_on_only_on_the_nics_of_routed_streams_and_silent_before_it_is_on():
    steps = uut(**ROUTE).plan(Assignment("u", PATHS[:1], packets=(packet(ETHER, IPV6, UDP),))).steps
    settings = [step for step in steps if isinstance(step, SetSysctl) and "ipv6" in step.key]
    assert [step.key.split(".")[3] for step in settings] == ["all", *["nb-in1"] * 5, *["nb-out1"] * 5]
    assert [step.key.rpartition(".")[2] for step in settings[1:6]][-1] == "disable_ipv6"
    addresses = [step for step in steps if isinstance(step, AddAddress) and ":" in step.address]
    assert [(step.address, step.line[-1]) for step in addresses] == [
        ("2001:2:0:1801::1", "nodad"),
        ("2001:2:0:1901::1", "nodad"),
    ]


def test_addresses_of_streams_are_of_rfc_5180_and_unlike_each_other():
    addresses = {getattr(path, name) for path in PATHS for name in ("ingress_ip6", "egress_ip6", "dst_ip6")}
    addresses |= {path.src_ip6_of(trial) for path in PATHS for trial in range(253)}
    assert len(addresses) == 2 * (3 + 253)
    assert all(ip_address(address) in ip_network("2001:2::/48") for address in addresses)
    assert ip_address(PATHS[0].src_ip6_of(0)) in ip_network(f"{PATHS[0].ingress_ip6}/64", strict=False)


AT_SINK = [
    (ROUTE, (ETHER, layer("IP", ttl=9), UDP), [("Ether", {"src": "E", "dst": "S"}), ("IP", {"ttl": 8}), ("UDP", {})]),
    (ROUTE, (ETHER, IPV6, UDP), [("Ether", {"src": "E", "dst": "S"}), ("IPv6", {"hlim": 63}), ("UDP", {})]),
    (ROUTE, (ETHER, layer("IP", ttl=ANY)), [("Ether", {"src": "E", "dst": "S"}), ("IP", {"ttl": ANY})]),
    ({"terminate": "vlan", "vlan": 100}, VLAN.layers, [("Ether", {}), ("IP", {}), ("UDP", {})]),
    (
        {"originate": "vlan", "vlan": 5},
        VLAN.layers,
        [("Ether", {}), ("Dot1Q", {"vlan": 5}), ("Dot1Q", {"vlan": 100}), ("IP", {}), ("UDP", {})],
    ),
    ({"terminate": "vxlan", "vni": 42}, VXLAN.layers, [("Ether", {}), ("IP", {}), ("UDP", {})]),
    (
        {**ROUTE, "terminate": "gre"},
        GRE_OF_IP.layers,
        [("Ether", {"src": "E", "dst": "S"}), ("IP", {"ttl": 63}), ("UDP", {})],
    ),
    (
        {**ROUTE, "nat": "source"},
        (ETHER, layer("IP", src="198.18.3.4"), UDP),
        [("Ether", {"src": "E", "dst": "S"}), ("IP", {"src": "10.18.3.4", "ttl": 63}), ("UDP", {})],
    ),
    (
        {**ROUTE, "nat": "destination"},
        (ETHER, layer("IP", dst="198.19.3.4"), UDP),
        [("Ether", {"src": "E", "dst": "S"}), ("IP", {"dst": "10.19.3.4", "ttl": 63}), ("UDP", {})],
    ),
    ({**ROUTE, "nat": "source"}, (ETHER, IP), [("Ether", {"src": "E", "dst": "S"}), ("IP", {"src": ANY, "ttl": 63})]),
    (
        {**ROUTE, "originate": "geneve", "vni": 6},
        (ETHER, IP, UDP),
        [
            *(
                ("Ether", {"src": "E", "dst": "S"}),
                ("IP", None),
                ("UDP", None),
                ("GENEVE", {"proto": 0x6558, "vni": 6}),
            ),
            *(("Ether", None), ("IP", {"ttl": 63}), ("UDP", {})),
        ],
    ),
]


@pytest.mark.parametrize(("options", "sent", "expected"), AT_SINK)
def test_headers_at_the_sink(options, sent, expected):
    path = PATHS[0]
    wanted = RawOptions.model_validate(options)
    arriving = at_sink((path,), wanted.forward, PacketHandling(wanted))["s1"](sent)
    assert path.egress
    names = {"E": path.egress.mac, "S": path.sink.mac}
    for header, (name, fields) in zip(arriving, expected, strict=True):
        assert header.name == name
        if fields is not None:
            assert dict(header.fields) == {key: names.get(value, value) for key, value in fields.items()}


NAT_RANGE = SteppedValues(int(ip_address("198.18.128.1")), 1, 100)
BACK = SteppedValues(int(ip_address("198.19.0.9")), -2, 4)
SHUFFLED = RandomValues(int(ip_address("198.18.0.0")), int(ip_address("198.18.3.255")), 5)
# Options of the UUT, a field that varies, and its values at the sink: None where it has one value, or is removed.
VARIED_AT_SINK = [
    ({}, "IP.src", NAT_RANGE, NAT_RANGE),
    (ROUTE, "IP.src", NAT_RANGE, NAT_RANGE),
    (ROUTE, "IP.ttl", SteppedValues(64, -1, 60), SteppedValues(63, -1, 60)),
    (ROUTE, "IP.ttl", ListedValues((2, 255)), ListedValues((1, 254))),
    (ROUTE, "IP.ttl", RandomValues(10, 50, 9), RandomValues(9, 49, 9)),
    ({"forward": "flowtable"}, "IP.ttl", ListedValues((2, 255)), ListedValues((1, 254))),
    (ROUTE, "Ether.src", SteppedValues(0x020000000001, 1, 9), None),
    (
        {**ROUTE, "nat": "source"},
        "IP.src",
        NAT_RANGE,
        SteppedValues(int(ip_address("10.18.128.1")), 1, 100),
    ),
    ({**ROUTE, "nat": "source"}, "IP.dst", BACK, BACK),
    ({**ROUTE, "nat": "destination"}, "IP.dst", BACK, SteppedValues(int(ip_address("10.19.0.9")), -2, 4)),
    (
        {**ROUTE, "nat": "source"},
        "IP.src",
        SHUFFLED,
        RandomValues(int(ip_address("10.18.0.0")), int(ip_address("10.18.3.255")), 5),
    ),
    ({"terminate": "vlan", "vlan": 100}, "Dot1Q.vlan", ListedValues((100, 200)), None),
    ({"originate": "vxlan", "vni": 7}, "IP.src", NAT_RANGE, NAT_RANGE),
    ({"retag": {10: 20, 30: 20}}, "Dot1Q.vlan", ListedValues((30, 10)), ListedValues((20, 20))),
    ({"retag": {1: 9, 3: 1}}, "Dot1Q.vlan", SteppedValues(1, 1, 3), ListedValues((9, 2, 1))),
]


@pytest.mark.parametrize(("options", "name", "sent", "expected"), VARIED_AT_SINK)
def test_each_value_of_a_field_that_varies_at_the_sink(options, name, sent, expected):
    """The UUT changes all values in the same way, and a field that it sets does not vary any more."""
    tags = [TAG] if name.startswith("Dot1Q") else []
    tested = packet(ETHER, *tags, IP, UDP, vary={name: sent})
    layers = with_varied_values(tested.layers, tested)
    path = PATHS[0]
    if "retag" in options:
        arriving = retagged(layers, options["retag"])
    else:
        wanted = RawOptions.model_validate(options)
        arriving = at_sink((path,), wanted.forward, PacketHandling(wanted)).get("s1", tuple)(layers)
    values = [value for layer in arriving for _, value in layer.fields if isinstance(value, VariedValue)]
    assert values == ([] if expected is None else [VariedValue(0, expected)])
    if name.startswith("Ether"):
        assert path.egress
        assert arriving[0].value("src") == path.egress.mac


def test_random_vlans_are_replaced_in_the_order_in_which_they_are_sent():
    tested = packet(ETHER, TAG, IP, UDP, vary={"Dot1Q.vlan": RandomValues(1, 50, 20)})
    tags = {vlan: vlan + 1000 for vlan in range(1, 51)}
    traffic = stream_traffic(packet=tested, frame_size=FrameSize.of(100), seed=3)
    headers = expected_headers(traffic, partial(retagged, tags=tags))
    (sent,), (arriving,) = headers.varying, headers.template.varying
    assert values_of(arriving.values, arriving.seed).tolist() == (values_of(sent.values, sent.seed) + 1000).tolist()


def test_a_bridge_changes_no_headers():
    assert at_sink(PATHS, "bridge", PacketHandling(RawOptions())) == {}


LEARNED = [
    (packet(layer("Ether", dst="02:00:00:00:00:05"), IP), {}, ["02:00:00:00:00:05 dev nb-out1 master static"]),
    (
        packet(ETHER, IP, vary={"Ether.src": SteppedValues(0x020000000001, 2, 1000)}),
        {},
        ["02:00:00:00:00:01 dev nb-in1 master static  # and 999 more addresses, 2 apart"],
    ),
    (
        packet(ETHER, TAG, IP, vary={"Ether.dst": ListedValues((7, 9))}),
        {"vlans": [100]},
        [f"00:00:00:00:00:0{last} dev nb-out1 master static vlan 100" for last in (7, 9)],
    ),
    (packet(ETHER, IP, vary={"Ether.dst": RandomValues(1, 99, 5)}), {}, []),
    (VLAN, {}, []),
]


@pytest.mark.parametrize(("tested", "options", "entries"), LEARNED)
def test_a_bridge_has_the_addresses_of_packets_before_the_first_trial(tested, options, entries):
    steps = uut(**options).plan(Assignment("u", PATHS[:1], packets=(tested,))).steps
    found = [step.command for step in steps if isinstance(step, AddForwardingEntries)]
    assert [command.partition("replace ")[2] for command in found] == entries


BOTH = stream_paths(topology_both_ways())
MACS = packet(layer("Ether", src="02:00:00:00:00:05", dst="02:00:00:00:00:06"), IP)


@pytest.mark.parametrize(
    ("own", "entries"),
    [
        (None, {"00:05 dev nb-in1", "00:06 dev nb-out1"}),
        (replace(MACS, layers=MACS.mirrored.layers), {"00:05 dev nb-in1", "00:06 dev nb-out1"}),
        (
            packet(layer("Ether", src="02:00:00:00:00:09"), IP),
            {"00:05 dev nb-in1", "00:06 dev nb-out1", "00:09 dev nb-out1"},
        ),
    ],
)
def test_each_address_is_on_one_side_of_a_bridge_for_both_directions(own, entries):
    paths = (BOTH[0], replace(BOTH[1], packet=own))
    packets = (MACS, *([own] if own else []))
    steps = uut().plan(Assignment("u", paths, packets=packets)).steps
    found = [step.command for step in steps if isinstance(step, AddForwardingEntries)]
    assert {part for command in found for part in re.findall("00:0. dev [^ ]+", command)} == entries


def test_a_router_routes_answers_by_their_addresses_and_refuses_those_to_another_mac():
    chosen = packet(ETHER, layer("IP", src="10.0.0.1"), UDP)
    for paths, routed in ((BOTH, True), (BOTH[:1], False)):
        steps = uut(**ROUTE).plan(Assignment("u", paths, packets=(chosen,))).steps
        assert any(isinstance(step, AddRule) for step in steps) is routed
    reason = uut(**ROUTE).unsupported_reason(packet(layer("Ether", src="02:00:00:00:00:05"), IP), BOTH)
    assert reason.startswith("reverse stream back, which exchanges source and destination: Ether.dst: ")


CHANGES = [
    (AddVlanInterface("ns", "nb-t-s1", "in1", 5), "CONFIG_VLAN_8021Q"),
    (AddTunnel("ns", "nb-t-s1", "geneve", 5), "CONFIG_GENEVE"),
    (AddTunnel("ns", "nb-t-s1", "gretap", None, local="198.18.1.1"), "CONFIG_NET_IPGRE"),
    (AddBridge("ns", "nb-br-s1", filters=True), "CONFIG_BRIDGE_VLAN_FILTERING"),
    (AddTable("ns", "ip", "nb-u-nat", "rules"), "CONFIG_NFT_NAT"),
    (AddRule("ns", 6, "in1", 198001), "CONFIG_IP_MULTIPLE_TABLES"),
    (AddBridge("ns", "nb-br-s1"), None),
    (AddVlan("ns", "in1", 5), None),
    (AddForwardingEntries("ns", "in1", 5, 1, 9, vlan=3), None),
]


@pytest.mark.parametrize(("change", "option"), CHANGES)
def test_the_feature_is_named_without_which_a_kernel_rejects_a_change(change, option):
    error = missing_feature(ChangeError("failed", change, "Error: Unknown device type.\nmore"), "this kernel")
    assert (error is None) == (option is None)
    if option and error:
        assert option in str(error)
        assert "Unknown device type; leave this UUT out (--uut), or measure inside a VM" in str(error)
    existing = ChangeError("failed", change, "RTNETLINK answers: File exists")
    assert missing_feature(existing, "this kernel") is None


@pytest.mark.parametrize("change", [*(change for change, _ in CHANGES), AddRoute("ns", 6, "out1", 198001, "fe80::2")])
def test_changes_are_read_from_the_journal_as_they_were_written(change):
    assert from_json(to_json(change)) == change


LINES = [
    (
        AddRule("ns", 6, "in1", 5),
        "ip -6 -n ns rule add pref 1000 iif in1 lookup 5",
        "rule del pref 1000 iif in1 lookup 5",
    ),
    (
        AddRule(None, 4, "in1", 5, "ipproto gre", 999),
        "ip -4 rule add pref 999 iif in1 ipproto gre lookup 5",
        "rule del pref 999 iif in1 ipproto gre lookup 5",
    ),
    (
        AddRoute("ns", 4, "out1", 5, "198.19.1.2"),
        "ip -4 -n ns route add 0.0.0.0/0 via 198.19.1.2 dev out1 onlink table 5",
        "route del 0.0.0.0/0 via 198.19.1.2 dev out1 onlink table 5",
    ),
    (AddRoute("ns", 4, "in1", 5), "ip -4 -n ns route add local 0.0.0.0/0 dev in1 table 5", None),
    (AddAddress("ns", "in1", "2001:2::1", 64), "ip -n ns address add 2001:2::1/64 dev in1 nodad", None),
    (AddVlan("ns", "in1", 5), "bridge -n ns vlan add dev in1 vid 5", ""),
    (
        AddTunnel("ns", "t", "vxlan", 5, "02:00:00:00:00:01", "198.19.1.1", "198.19.1.2"),
        "ip -n ns link add name t address 02:00:00:00:00:01 type vxlan id 5 local 198.19.1.1 remote 198.19.1.2 "
        "dstport 4789 nolearning noudpcsum",
        "link del t",
    ),
    (AddTunnel("ns", "t", "geneve", 5), "ip -n ns link add name t type geneve external dstport 6081", "link del t"),
    (
        AddTunnel("ns", "t", "gretap", 5, "02:00:00:00:00:01", "1.2.3.4", "1.2.3.5"),
        "ip -n ns link add name t address 02:00:00:00:00:01 type gretap local 1.2.3.4 remote 1.2.3.5 ttl 64 key 5",
        "link del t",
    ),
    (AddTunnel("ns", "t", "gre", 5, local="1.2.3.4"), "ip -n ns link add name t type gre local 1.2.3.4 key 5", None),
]


@pytest.mark.parametrize(("change", "command", "undo"), LINES)
def test_commands_of_changes(change, command, undo):
    assert change.command == command
    if undo is not None:
        assert " ".join(change.undo_line) == undo


def test_a_routing_table_of_somebody_else_is_not_touched():
    host = FakeHost({"ip": Completed((), 0, '[{"priority": 5, "table": "198001"}]', "")})
    for change in (AddRule(None, 4, "in1", 198001), AddRoute(None, 4, "out1", 198001, "198.19.1.2")):
        with pytest.raises(TestbedError, match="198001 exists already and is not netbench's"):
            change.with_former_state(MachineState(cast(Any, host)))


def guests_of(lab: Topology) -> Any:
    return {spec.name: resolve_guests(lab, spec) for spec in lab.uuts}


def test_trials_of_packets_that_one_uut_cannot_forward_are_left_out_with_the_reason():
    lab = topology(uuts=[{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", **ROUTE}])
    asked: Any = SimpleNamespace(name="p", packets={"vlan": VLAN}, packet_names=("", "vlan"))
    found = unsupported_packets(asked, guests_of(lab))
    assert found.keys() == {"route"}
    assert found["route"].keys() == {"vlan"}
    plan = CampaignPlan(lab, profile(), ("bridge", "route"), (), unsupported=found)
    tagged, plain = FrameSize.of(64).with_packet("vlan"), FrameSize.of(64)
    assert [plan.carries(name, size) for name in ("bridge", "route") for size in (plain, tagged)] == [
        True,
        True,
        True,
        False,
    ]
    (warning,) = warnings_of(found)
    assert "UUT route is not measured with the packet vlan" in warning.text
    assert "Dot1Q: a router" in warning.text


def test_a_refused_packet_may_have_the_name_of_a_size():
    lab = topology(uuts=[{"name": "bridge", "kind": "raw"}, {"name": "route", "kind": "raw", **ROUTE}])
    tagged = {"name": "128", "headers": "Ether()/Dot1Q()/IP()/UDP()"}
    wanted = profile(packet=["plain", tagged], frame_sizes=[128])
    plan = CampaignPlan(lab, wanted, ("route",), (), unsupported=resolve(lab, wanted).unsupported)
    assert [plan.carries("route", size) for size in wanted.all_frame_sizes] == [True, False]


ORIGINATES = {"forward": "route", "originate": "vxlan", "vni": 5}


@pytest.mark.parametrize(
    ("uut", "mtu", "sizes", "refused"),
    [
        ({"kind": "raw", **ORIGINATES}, 1500, [64, 1468, 1469, 1518], ["1469 p", "1518 p"]),
        ({"kind": "raw", **ORIGINATES}, 9000, [64, 1518, 9018], ["9018 p"]),
        ({"kind": "raw", **ORIGINATES, "forward": "bridge"}, 1500, [1518, "imix"], ["1518 p", "imix p"]),
        ({"kind": "ovs", "originate": "vxlan", "vni": 5}, 1500, [1518], ["1518 p"]),
        ({"kind": "ovs", "originate": "vlan", "vlan": 5}, 1500, [1518], []),
        ({"kind": "raw", **ROUTE, "terminate": "vxlan", "vni": 100}, 1500, [1518], []),
        ({"kind": "container", **ORIGINATES}, 1500, [1468, 1518], ["1518 p"]),
        ({"kind": "raw", **ROUTE}, 1500, [1518], []),
    ],
)
def test_frames_that_a_uut_makes_too_long_for_the_links_are_left_out_with_the_reason(uut, mtu, sizes, refused):
    ends = ["source/tx1", "uut/in1"], ["uut/out1", "sink/rx1"]
    uuts = {"name": "a", **uut}, {"name": "b", "kind": "raw"}
    lab = topology(uuts=uuts, links=[{"ends": pair, "rate": "1Gbit/s", "mtu": mtu} for pair in ends])
    wanted = profile(frame_sizes=sizes, packet=[{"name": "p", "headers": "Ether()/IP()/UDP()"}])
    found = resolve(lab, wanted).unsupported.get("a", {})
    assert list(found) == refused
    plan = CampaignPlan(lab, wanted, ("a",), (), unsupported={"a": found})
    assert [str(size) for size in wanted.all_frame_sizes if not plan.carries("a", size)] == refused
    for warning in warnings_of({"a": found}):
        assert f"links of stream s1 take at most {mtu + 18} bytes" in warning.text
        assert f"frames of at most {mtu - 32} bytes" in warning.text


def test_frames_that_each_uut_makes_too_long_are_an_error():
    lab = topology(uuts=[{"name": name, "kind": "raw", **ORIGINATES} for name in ("a", "b")])
    wanted = profile(frame_sizes=[64, 1518], packet=[{"name": "p", "headers": "Ether()/IP()/UDP()"}])
    fault = "profile one: frames 1518 p: no UUT can forward them: UUT a: it makes .* 50 bytes longer.*; UUT b: "
    with pytest.raises(UsageError, match=fault):
        resolve(lab, wanted)


def test_a_packet_that_no_uut_forwards_is_an_error_with_all_reasons():
    lab = topology(uuts=[{"name": "a", "kind": "raw", **ROUTE}, {"name": "b", "kind": "raw", "vlans": [7]}])
    asked: Any = SimpleNamespace(name="p", packets={"vlan": VLAN}, packet_names=("vlan",))
    with pytest.raises(UsageError, match=r"packet vlan: no UUT can forward it: UUT a: Dot1Q: .*; UUT b: Dot1Q.vlan: "):
        unsupported_packets(asked, guests_of(lab))


def test_a_kernel_without_ipv6_is_refused_with_the_remedy():
    machine: Any = SimpleNamespace(host=lambda: FakeHost({"test": Completed((), 1, "", "")}))
    handling = PacketHandling(packets=(packet(ETHER, IPV6, UDP),))
    with pytest.raises(MissingError, match="ipv6.disable=1.*remove the boot option"):
        require_ipv6(machine, handling, "route")
    require_ipv6(machine, handling, "bridge")
    require_ipv6(machine, PacketHandling(packets=(VLAN,)), "route")
