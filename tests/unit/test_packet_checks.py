"""Packets that a source, sink, link or UUT cannot carry are refused before anything is touched, by layer and field."""

from contextlib import nullcontext

import pytest

from netbench.errors import UsageError
from netbench.testbed.resolved import resolve
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


def test_the_packet_of_a_stream_is_checked_too():
    own = {"name": "mine", "headers": "Ether()/IPv6()/UDP()/VXLAN()/Ether()/IPv6()/UDP()"}
    with pytest.raises(UsageError, match="stream s1: packet mine: frames of 100 bytes have no room"):
        resolve(topology_sending(own), profile(frame_sizes=[100]))
