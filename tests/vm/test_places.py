"""Breakages in a guest and at its NICs are named with the right count."""

import pytest

from netbench.model.topology_specs import UutSpec
from tests.breakages import NOTHING, SENT, Broken, load_shipped, measured, no_route_in_guest, ruled

pytestmark = [pytest.mark.root, pytest.mark.vm]

SEVEN = "numgen inc mod 100 < 7 counter drop"
BREAKAGES = [
    ruled("before the tap", "uut", "netdev egress nb-ti-s1", SEVEN, {"ingress tap (nft netdev x c rule 2)": 14}),
    no_route_in_guest("eth1"),
    Broken(
        "the guest forwards nothing",
        "guest",
        "sysctl -w net.ipv4.ip_forward=0",
        "sysctl -w net.ipv4.ip_forward=1",
        {"guest IP layer (InAddrErrors)": SENT},
    ),
    ruled("behind the tap", "uut", "netdev ingress nb-te-s1", SEVEN, {"egress tap (nft netdev x c rule 2)": 14}),
    ruled("at the door", "uut", "netdev egress nb-out1", SEVEN, {"egress NIC (nft netdev x c rule 2)": 14}),
]


def test_in_a_guest_and_at_its_doors_the_right_hop_is_named_with_the_right_count(tmp_path):
    spec = UutSpec.model_validate({"name": "guest", "kind": "qemu", "nic": "e1000", "forward": "route"})
    reported = measured(load_shipped("netns"), spec, BREAKAGES, tmp_path)
    assert reported == {breakage.name: breakage.outcome for breakage in [*BREAKAGES, NOTHING]}
