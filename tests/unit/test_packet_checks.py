"""Packets that a source, sink, link or UUT cannot carry are refused before anything is touched, by layer and field."""

import json

import pytest

from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.topology import Topology
from netbench.testbed.resolved import resolve

PLAIN = "Ether()/IP()/UDP()"
BRIDGE: dict[str, object] = {"name": "bridge", "kind": "raw", "forward": "bridge"}
ROUTE: dict[str, object] = {"name": "route", "kind": "raw", "forward": "route"}


def topology(*uuts: dict[str, object], mtu: int | None = None, packet: object = None) -> Topology:
    more = {} if mtu is None else {"mtu": mtu}
    stream: dict[str, object] = {
        "name": "s1",
        "source": "source/tx1",
        "ingress": "uut/in1",
        "egress": "uut/out1",
        "sink": "sink/rx1",
    }
    return Topology.model_validate(
        {
            "name": "t",
            "hosts": {"source": {}, "uut": {}, "sink": {}},
            "links": [
                {"ends": ["source/tx1", "uut/in1"], "rate": "1Gbit/s", **more},
                {"ends": ["uut/out1", "sink/rx1"], "rate": "1Gbit/s", **more},
            ],
            "streams": [stream | ({"packet": packet} if packet else {})],
            "uuts": list(uuts) or [BRIDGE],
        }
    )


def profile(packet: object, **more: object) -> Profile:
    return Profile.model_validate({"name": "p", "frame_sizes": [200], "loads": ["1kfps"], "packet": packet, **more})


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
    (
        {"packet": PLAIN, "frame_sizes": [1500]},
        [{**BRIDGE, "originate": "vxlan", "vni": 7}],
        "UUT bridge: it makes its frames 50 bytes longer, .* at most 1468 bytes",
    ),
    ({"packet": PLAIN, "frame_sizes": [1468]}, [{**BRIDGE, "originate": "vxlan", "vni": 7}], ""),
]


@pytest.mark.parametrize(("keys", "uuts", "message"), REFUSED)
def test_what_cannot_be_carried_is_named(keys, uuts, message):
    wanted = profile(**keys)
    if not message:
        resolve(topology(*uuts), wanted)
        return
    with pytest.raises(UsageError, match=message):
        resolve(topology(*uuts), wanted)


def test_a_streams_own_packet_is_checked_as_well():
    own = json.loads('{"name": "mine", "headers": "Ether()/IPv6()/UDP()/VXLAN()/Ether()/IPv6()/UDP()"}')
    with pytest.raises(UsageError, match="stream s1: packet mine: frames of 100 bytes have no room"):
        resolve(topology(packet=own), profile("plain", frame_sizes=[100]))


def test_larger_links_carry_what_a_uut_adds():
    uut = {**BRIDGE, "originate": "vxlan", "vni": 7}
    resolve(topology(uut, mtu=1550), profile(PLAIN, frame_sizes=[1518]))
