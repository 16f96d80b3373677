"""Packets that a source, sink, link or UUT cannot carry are refused before anything is touched, by layer and field."""

from contextlib import nullcontext

import pytest

from netbench.errors import UsageError
from netbench.model.topology import Topology
from netbench.testbed.resolved import resolve
from tests.unit.fakes import fake_ports
from tests.unit.inputs import profile, topology, topology_sending

PLAIN = "Ether()/IP()/UDP()"
BRIDGE: dict[str, object] = {"name": "bridge", "kind": "raw", "forward": "bridge"}
ROUTE: dict[str, object] = {"name": "route", "kind": "raw", "forward": "route"}


REFUSED = [
    ({"packet": "ipv6", "frame_sizes": [83]}, [], "frames of 83 bytes have no room for Ether/IPv6/UDP .* 84 bytes"),
    ({"packet": "vxlan", "frame_sizes": ["imix"]}, [], r"frames of 64 bytes \(of imix\) have no room for .* 112 bytes"),
    ({"packet": "ipv6", "generator": "pktgen", "frame_sizes": [200]}, [], ""),
    ({"packet": "Ether()/IP()/TCP()", "generator": "pktgen"}, [], "generator pktgen cannot send it: .*TCP"),
    ({"packet": "1m-flows", "generator": "pktgen"}, [], "generator pktgen cannot send it: combined fields"),
    (
        {"packet": PLAIN, "expect": "Ether()/Dot1Q()/IP()/UDP()", "frame_sizes": [1515]},
        [],
        "4 bytes longer",
    ),
    ({"packet": PLAIN, "expect": "Ether()/Dot1Q()/IP()/UDP()", "frame_sizes": [1514]}, [], ""),
    ({"packet": "vlan"}, [ROUTE], "no UUT can forward it: UUT route: Dot1Q: "),
    ({"packet": "vlan"}, [ROUTE, BRIDGE], ""),
    (
        {"packet": 'Ether()/IP(dst="198.19.1.1")/UDP()'},
        [ROUTE],
        "IP.dst: 198.19.1.1 is the UUT.s own address",
    ),
    ({"packet": 'Ether()/IP(dst="198.19.1.1")/UDP()'}, [BRIDGE], ""),
    ({"packet": 'Ether(src="01:00:5e:00:00:01")/IP()/UDP()'}, [BRIDGE], "Ether.src: a bridge drops frames from 01:00:"),
    ({"packet": 'Ether(dst="01:80:c2:00:00:0e")/IP()/UDP()'}, [BRIDGE], "Ether.dst: a bridge does not forward"),
]


@pytest.mark.parametrize(("keys", "uuts", "message"), REFUSED)
def test_a_packet_that_cannot_be_carried_is_refused_by_layer_and_field(keys, uuts, message):
    with pytest.raises(UsageError, match=message) if message else nullcontext():
        resolve(topology(uuts=uuts or [BRIDGE]), profile(**{"frame_sizes": [200], **keys}))


MACS, SOURCES, VLANS = "Ether.dst", "Ether.src", "Dot1Q.vlan"
TAGGED = "Ether()/Dot1Q()/IP()/UDP()"
FIRST = "02:00:00:00:00:00"
PRIORITIES = {"Dot1Q.prio": {"from": 0, "count": 8}, "combined": True}
# Each: headers, values that vary, and the fields that the message names; empty if the packet is sent.
ADDRESSES = {
    "most": (PLAIN, {MACS: {"from": FIRST, "count": 65_536}}, ""),
    "one more": (PLAIN, {MACS: {"from": FIRST, "count": 65_537}}, "Ether.dst: 65,537 combinations"),
    "sources": (PLAIN, {SOURCES: {"from": FIRST, "count": 65_537}}, ""),
    "priorities": (TAGGED, {MACS: {"from": FIRST, "count": 20_000}, **PRIORITIES}, ""),
    "VLANs": (
        TAGGED,
        {MACS: {"from": FIRST, "count": 20_000}, VLANS: {"list": [1, 2, 3, 4]}, "combined": True},
        "Ether.dst, Dot1Q.vlan: 80,000 combinations",
    ),
    "independent": (TAGGED, {MACS: {"from": FIRST, "count": 20_000}, VLANS: {"list": [1, 2, 3, 4]}}, ""),
}


@pytest.mark.parametrize("name", ADDRESSES)
def test_more_addresses_than_sinks_announce_are_refused_on_paths_outside(name):
    headers, values, fault = ADDRESSES[name]
    wanted = profile(frame_sizes=[200], packet={"name": "many", "headers": headers, "vary": values})
    message = f"^profile one: packet many: vary: {fault} of destination MAC address and VLAN.*stream s1"
    with pytest.raises(UsageError, match=message) if fault else nullcontext():
        resolve(fake_ports(), wanted)
    resolve(topology(uuts=[BRIDGE]), wanted)


@pytest.mark.parametrize(("field", "stream"), [(MACS, "s1"), (SOURCES, "back")])
def test_addresses_are_counted_in_both_directions(field, stream):
    streams = [*fake_ports().model_dump(exclude_defaults=True)["streams"], {"name": "back", "reverse": "s1"}]
    both_ways = Topology.model_validate({**fake_ports().model_dump(exclude_defaults=True), "streams": streams})
    many = {"name": "many", "headers": PLAIN, "vary": {field: {"from": FIRST, "count": 65_537}}}
    with pytest.raises(UsageError, match=rf"stream {stream}\)$"):
        resolve(both_ways, profile(frame_sizes=[200], packet=many))


def test_addresses_of_the_packet_of_a_stream_are_counted():
    many = {"name": "many", "headers": PLAIN, "vary": {MACS: {"from": FIRST, "count": 65_537}}}
    plain = fake_ports().model_dump(exclude_defaults=True)
    own = Topology.model_validate({**plain, "streams": [{**plain["streams"][0], "packet": many}]})
    with pytest.raises(UsageError, match="^stream s1: packet many: vary: Ether.dst: 65,537"):
        resolve(own, profile(frame_sizes=[200]))


def test_the_packet_of_a_stream_is_checked_too():
    own = {"name": "mine", "headers": "Ether()/IPv6()/UDP()/VXLAN()/Ether()/IPv6()/UDP()"}
    with pytest.raises(UsageError, match="stream s1: packet mine: frames of 100 bytes have no room"):
        resolve(topology_sending(own), profile(frame_sizes=[100]))
