"""Described packets of pktgen: the headers of its device, after any other packet, and packets that it cannot send."""

from contextlib import closing
from dataclasses import replace

import pytest

from netbench.generators.pktgen.packet_settings import unsupported_part
from netbench.generators.pktgen.pktgen import PktGen
from netbench.model.packet_description import parse_packet
from tests.unit.pktgen_kernel import TRAFFIC, host, impatient, kernel, opened, trial

__all__ = ["host", "impatient", "kernel"]  # fixtures

IPV6 = {"IPV6", "UDPCSUM"}
# The device with each packet: its tags, its label stack, and its flags.
PACKETS = {
    "Ether()/IP()/UDP()": ({}, [], set()),
    "Ether()/IPv6()/UDP()": ({}, [], IPV6),
    "Ether()/IP(ttl=32)/UDP()": ({}, [], set()),
    "Ether()/IPv6(hlim=32)/UDP()": ({}, [], IPV6),
    "Ether()/Dot1Q(vlan=100,prio=5)/IP()/UDP()": ({"vlan_id": "100", "vlan_p": "5", "vlan_cfi": "0"}, [], set()),
    "Ether()/Dot1Q(dei=1)/IPv6()/UDP()": ({"vlan_id": "1", "vlan_p": "0", "vlan_cfi": "1"}, [], IPV6),
    "Ether()/Dot1Q(vlan=200)/Dot1Q(vlan=100)/IP()/UDP()": (
        {
            "svlan_id": "200",
            "svlan_p": "0",
            "svlan_cfi": "0",
            "vlan_id": "100",
            "vlan_p": "0",
            "vlan_cfi": "0",
        },
        [],
        set(),
    ),
    "Ether()/MPLS(label=16,ttl=9)/MPLS(cos=7,s=1)/IP()/UDP()": ({}, [0x10009, 0x3E00], set()),
    "Ether()/MPLS(label=1048575,ttl=255)/IPv6()/UDP()": ({}, [0xFFFFF0FF], IPV6),
}


@pytest.mark.parametrize("before", PACKETS)
@pytest.mark.parametrize("packet", PACKETS)
def test_a_device_has_the_headers_of_its_packet_only(kernel, host, before, packet):
    with closing(opened(host)) as source:
        for headers in (before, packet, packet):
            sent = trial(source, replace(TRAFFIC, packet=parse_packet(headers)))
            assert sent.error == ""
            device = kernel.devices()["nb-tx1@0"]
            assert (device.tags, device.labels, device.flags - {"NO_TIMESTAMP"}) == PACKETS[headers]


def test_plain_frames_follow_a_described_packet_without_its_headers(kernel, host):
    with closing(opened(host)) as source:
        trial(source, replace(TRAFFIC, packet=parse_packet("Ether()/Dot1Q()/IPv6(tc=8)/UDP(dport=53)")))
        trial(source)
        device = kernel.devices()["nb-tx1@0"]
    assert (device.tags, device.labels, device.flags, device.values["traffic_class"]) == ({}, [], set(), "00")
    assert (device.values["udp_dst_min"], device.values["udp_dst_max"]) == ("9", "9")


LABELS = "/".join(["MPLS(ttl=1)"] * 16)


@pytest.mark.parametrize(
    ("headers", "vary", "words"),
    [
        ("Ether()/IP()/TCP()", {}, "layer TCP: pktgen has Ether,"),
        ("Ether()/IP(ttl=9)/UDP()", {}, "IP.ttl: pktgen cannot set it (only src, dst, tos); its value is 32"),
        ("Ether()/IP(id=9)/UDP()", {}, "IP.id: pktgen cannot set it (only src, dst, tos)"),
        ("Ether()/IPv6(hlim=64)/UDP()", {}, "IPv6.hlim: pktgen cannot set it (only src, dst, tc); its value is 32"),
        ("Ether()/IP()/UDP()/VXLAN()/Ether()/IP()/UDP()", {}, "layer VXLAN:"),
        ("Ether()/Dot1Q()/Dot1Q()/Dot1Q()/IP()/UDP()", {}, "3 layers Dot1Q: pktgen has two"),
        ("Ether()/Dot1Q()/MPLS()/IP()/UDP()", {}, "layers Dot1Q and MPLS"),
        (f"Ether()/{LABELS}/IP()/UDP()", {}, "16 layers MPLS: pktgen has 15"),
        ("Ether()/MPLS(label=0)/IP()/UDP()", {}, "MPLS.label: to pktgen, label 0 with cos 0 and ttl 0"),
        ("Ether()/IP()/UDP()", {"UDP.sport": {"from": 65_000, "to": 65_535}}, "varies it up to 65534 only"),
        ("Ether()/IP()/UDP()", {"UDP.sport": {"from": 1, "to": 9, "step": 2}}, "in steps of 1 only"),
        (
            "Ether()/Dot1Q()/IP()/UDP()",
            {"Dot1Q.vlan": {"list": [1, 2]}},
            "Dot1Q.vlan: pktgen cannot vary it (only IP.src,",
        ),
    ],
)
def test_packets_that_it_cannot_send_are_refused_with_layer_and_field(headers, vary, words):
    packet = parse_packet({"headers": headers, "vary": vary} if vary else headers)
    assert packet is not None
    assert words in unsupported_part(packet)


@pytest.mark.parametrize("headers", PACKETS)
def test_packets_that_it_sends_and_those_whose_checksum_it_leaves_to_the_nic(headers):
    packet = parse_packet(headers)
    assert packet is not None
    assert unsupported_part(packet) == ""
    assert PktGen.leaves_checksums(packet) == ("IPv6" in headers)
