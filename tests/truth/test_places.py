"""Breakages at chosen places: a whole trial names the right point with the right count."""

from dataclasses import replace

import pytest

from netbench.model.verdict import ReasonKind
from tests.breakages import NOTHING, SENT, Broken, load_shipped, measured, ruled

pytestmark = pytest.mark.root

BETWEEN = "(between ingress NIC and egress NIC)"
SEVEN = "numgen inc mod 100 < 7"
ON_A_BRIDGE = [
    ruled(
        "ingress", "uut", "netdev ingress nb-in1", f"{SEVEN} counter drop", {"ingress NIC (nft netdev x c rule 2)": 14}
    ),
    ruled(
        "ingress, uncounted",
        "uut",
        "netdev ingress nb-in1",
        f"{SEVEN} drop",
        {"ingress NIC (nft netdev x c rule 2, which does not count)": 14},
    ),
    ruled("bridge", "uut", "bridge forward", f"{SEVEN} counter drop", {"bridge (nft bridge x c rule 2)": 14}),
    ruled(
        "egress", "uut", "netdev egress nb-out1", f"{SEVEN} counter drop", {"egress NIC (nft netdev x c rule 2)": 14}
    ),
    Broken(
        "a port that is blocked",
        "uut",
        "bridge link set dev nb-out1 state 0",
        "bridge link set dev nb-out1 state 3",
        {f"bridge {BETWEEN}": SENT},
    ),
    replace(
        ruled(
            "mangled on the way out",
            "uut",
            "netdev egress nb-out1",
            "numgen inc mod 100 < 4 ip saddr set 10.9.9.9",
            {},
            ReasonKind.UNEXPLAINED_FRAMES,
        ),
        unexplained=8,
    ),
    ruled(
        "sink, behind the capture",
        "sink",
        "netdev ingress nb-rx1",
        f"{SEVEN} counter drop",
        {},
        ReasonKind.TESTER_DROPPED,
    ),
]
AT_A_ROUTER = [
    ruled("forward", "uut", "ip forward", f"{SEVEN} counter drop", {"IP layer (nft ip x c rule 2)": 14}),
    ruled("ttl", "uut", "ip prerouting", f"{SEVEN} ip ttl set 1", {"IP layer (InHdrErrors)": 14}),
    Broken(
        "no route",
        "uut",
        "ip route del 198.19.1.0/24",
        "ip route add 198.19.1.0/24 dev nb-out1",
        {"IP layer (InNoRoutes)": SENT},
    ),
    Broken(
        "not for us",
        "uut",
        "sysctl -qw net.ipv4.ip_forward=0",
        "sysctl -qw net.ipv4.ip_forward=1",
        {"IP layer (InAddrErrors)": SENT},
    ),
]


@pytest.mark.parametrize(("forward", "breakages"), [("bridge", ON_A_BRIDGE), ("route", AT_A_ROUTER)])
def test_the_right_hop_is_named_with_the_right_count(forward, breakages, tmp_path):
    spec = next(uut for uut in load_shipped("netns").uuts if uut.name == forward)
    reported = measured(load_shipped("netns"), spec, breakages, tmp_path)
    assert reported == {breakage.name: breakage.outcome for breakage in [*breakages, NOTHING]}
