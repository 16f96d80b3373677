"""The packets that come with netbench, by name: a summary, and the description as users write it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ShippedPacket:
    """One line for `netbench list`, the headers in scapy's notation, and the fields that vary."""

    summary: str
    headers: str
    vary: Mapping[str, object] = field(default_factory=dict)


def _port_pairs(sources: int, destinations: int) -> dict[str, object]:
    """Return all combinations of UDP ports (RFC 4814, section 4, has both vary), which no UUT needs a route for."""
    return {
        "UDP.sport": {"from": 10_000, "count": sources},
        "UDP.dport": {"from": 10_000, "count": destinations},
        "combined": True,
    }


SHIPPED_PACKETS: Mapping[str, ShippedPacket] = {
    "ipv6": ShippedPacket("IPv6 and UDP", "Ether()/IPv6()/UDP()"),
    "vlan": ShippedPacket("one 802.1Q tag, VLAN 100", "Ether()/Dot1Q(vlan=100)/IP()/UDP()"),
    "qinq": ShippedPacket(
        "outer 802.1ad tag, VLAN 200, inner 802.1Q tag, VLAN 100",
        "Ether()/Dot1AD(vlan=200)/Dot1Q(vlan=100)/IP()/UDP()",
    ),
    "vxlan": ShippedPacket(
        "VXLAN, VNI 100, with an Ethernet frame of IPv4 and UDP inside",
        "Ether()/IP()/UDP(sport=49152,dport=4789)/VXLAN(vni=100)/Ether()/IP()/UDP()",
    ),
    "geneve": ShippedPacket(
        "GENEVE, VNI 100, with an Ethernet frame of IPv4 and UDP inside",
        "Ether()/IP()/UDP(sport=49152,dport=6081)/GENEVE(vni=100)/Ether()/IP()/UDP()",
    ),
    "gre": ShippedPacket("GRE with IPv4 and UDP inside", "Ether()/IP()/GRE()/IP()/UDP()"),
    "nat44": ShippedPacket(
        "100 IPv4 sources with 10 UDP ports each, for a UUT that translates addresses",
        "Ether()/IP()/UDP()",
        {
            "IP.src": {"from": "198.18.128.1", "count": 100},
            "UDP.sport": {"from": 10_000, "count": 10},
            "combined": True,
        },
    ),
    "1k-flows": ShippedPacket("1,000 flows: UDP port pairs", "Ether()/IP()/UDP()", _port_pairs(100, 10)),
    "100k-flows": ShippedPacket("100,000 flows: UDP port pairs", "Ether()/IP()/UDP()", _port_pairs(1000, 100)),
    "1m-flows": ShippedPacket("1,000,000 flows: UDP port pairs", "Ether()/IP()/UDP()", _port_pairs(1000, 1000)),
    "imix-v6": ShippedPacket("IPv6 and UDP, for frame sizes imix-v6", "Ether()/IPv6()/UDP()"),
}
