"""The headers that packets may have: names as in scapy, fields with widths and kinds of values, possible successors.

Fields that are left out have scapy's defaults; lengths, checksums and the types of following headers are computed.
Sizes and widths are those of IEEE 802.1Q, RFC 791, 8200, 768, 9293, 792, 4443, 3032, 7348, 8926, 2784, 2890 and
3GPP TS 29.281.
"""

from collections.abc import Mapping

from netbench.model.layer_spec import (
    MOST_VLAN,
    FieldSpec,
    LayerSpec,
    address_field,
    by_name,
    computed_field,
    fixed_field,
    flags_field,
    next_field,
    number_field,
)
from netbench.model.packet import Layer

_NO_FRAGMENT = "fragments are not supported"
_ETHER_TYPES = {
    "Dot1Q": (0x8100, 0x88A8, 0x9100),
    "Dot1AD": (0x88A8,),
    "MPLS": (0x8847, 0x8848),
    "IP": (0x0800,),
    "IPv6": (0x86DD,),
}
_IN_IP = {"UDP": (17,), "TCP": (6,), "GRE": (47,), "IP": (4,), "IPv6": (41,)}
_IN_IPV6 = {
    "IPv6ExtHdrHopByHop": (0,),
    "IPv6ExtHdrDestOpt": (60,),
    "IPv6ExtHdrRouting": (43,),
    "IPv6ExtHdrSegmentRouting": (43,),
    "IPv6ExtHdrFragment": (44,),
    **_IN_IP,
    "ICMPv6EchoRequest": (58,),
    "ICMPv6EchoReply": (58,),
}
# RFC 8200, section 4.1: hop-by-hop options come first and only once.
_BEHIND_IPV6 = {name: types for name, types in _IN_IPV6.items() if name != "IPv6ExtHdrHopByHop"}
_OVER_UDP: dict[str, tuple[int, ...]] = {"VXLAN": (), "GENEVE": (), "GTP_U_Header": (), "MPLS": ()}  # RFC 7510


def _tag(name: str, shown: str) -> LayerSpec:
    vlan = FieldSpec("vlan", 12, most=MOST_VLAN, reason="4095 is reserved (IEEE 802.1Q)")
    fields = by_name(number_field("prio", 3), number_field("dei", 1), vlan, next_field("type", 16))
    return LayerSpec(name, 4, fields, _ETHER_TYPES, shown=shown)


def _options_header(name: str, shown: str) -> LayerSpec:
    return LayerSpec(name, 8, by_name(next_field("nh", 8), computed_field("len", 8)), _BEHIND_IPV6, shown=shown)


def _echo(name: str, message_type: int, shown: str) -> LayerSpec:
    fields = by_name(
        fixed_field("type", 8, message_type),
        fixed_field("code", 8, 0),
        computed_field("cksum", 16),
        number_field("id", 16),
        number_field("seq", 16),
    )
    return LayerSpec(name, 8, fields, {}, carries=True, shown=shown)


_LAYERS = (
    LayerSpec(
        "Ether",
        14,
        by_name(address_field("dst", "MAC"), address_field("src", "MAC"), next_field("type", 16)),
        _ETHER_TYPES,
        shown="Ethernet",
    ),
    _tag("Dot1Q", "802.1Q"),
    _tag("Dot1AD", "802_1AD"),
    LayerSpec(
        "MPLS",
        4,
        by_name(number_field("label", 20), number_field("cos", 3), fixed_field("s", 1), number_field("ttl", 8)),
        {"MPLS": (), "IP": (), "IPv6": ()},
    ),
    LayerSpec(
        "IP",
        20,
        by_name(
            fixed_field("version", 4, 4),
            computed_field("ihl", 4),
            number_field("tos", 8),
            computed_field("len", 16),
            number_field("id", 16),
            flags_field("flags", 3, "MF", "DF", "evil"),
            fixed_field("frag", 13, 0, reason=_NO_FRAGMENT),
            number_field("ttl", 8),
            next_field("proto", 8),
            computed_field("chksum", 16),
            address_field("src", "IPv4"),
            address_field("dst", "IPv4"),
            FieldSpec("options", 0, "bytes", "fixed"),
        ),
        {**_IN_IP, "ICMP": (1,)},
    ),
    LayerSpec(
        "IPv6",
        40,
        by_name(
            fixed_field("version", 4, 6),
            number_field("tc", 8),
            number_field("fl", 20),
            computed_field("plen", 16),
            next_field("nh", 8),
            number_field("hlim", 8),
            address_field("src", "IPv6"),
            address_field("dst", "IPv6"),
        ),
        _IN_IPV6,
    ),
    _options_header("IPv6ExtHdrHopByHop", "IPv6 Extension Header - Hop-by-Hop Options Header"),
    _options_header("IPv6ExtHdrDestOpt", "IPv6 Extension Header - Destination Options Header"),
    LayerSpec(
        "IPv6ExtHdrRouting",
        8,
        by_name(
            next_field("nh", 8),
            computed_field("len", 8),
            fixed_field("type", 8),
            fixed_field("segleft", 8),
            fixed_field("reserved", 32),
            FieldSpec("addresses", 0, "IPv6 list", "fixed"),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "IPv6ExtHdrSegmentRouting",
        8,
        by_name(
            next_field("nh", 8),
            computed_field("len", 8),
            fixed_field("type", 8, 4),
            fixed_field("segleft", 8),
            computed_field("lastentry", 8),
            fixed_field("tag", 16),
            FieldSpec("addresses", 0, "IPv6 list", "fixed"),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "IPv6ExtHdrFragment",
        8,
        by_name(
            next_field("nh", 8),
            fixed_field("res1", 8),
            fixed_field("offset", 13, 0, reason=_NO_FRAGMENT),
            fixed_field("res2", 2),
            fixed_field("m", 1, 0, reason=_NO_FRAGMENT),
            number_field("id", 32),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "UDP",
        8,
        by_name(
            number_field("sport", 16),
            number_field("dport", 16),
            computed_field("len", 16),
            computed_field("chksum", 16),
        ),
        _OVER_UDP,
        carries=True,
    ),
    LayerSpec(
        "TCP",
        20,
        by_name(
            number_field("sport", 16),
            number_field("dport", 16),
            number_field("seq", 32),
            number_field("ack", 32),
            computed_field("dataofs", 4),
            fixed_field("reserved", 3),
            flags_field("flags", 9, *"FSRPAUECN"),
            number_field("window", 16),
            computed_field("chksum", 16),
            number_field("urgptr", 16),
            FieldSpec("options", 0, "TCP options", "fixed"),
        ),
        {},
        carries=True,
    ),
    LayerSpec(
        "ICMP",
        8,
        by_name(
            fixed_field("type", 8, 0, 8, reason="the payload of other messages is not free"),
            fixed_field("code", 8, 0),
            computed_field("chksum", 16),
            number_field("id", 16),
            number_field("seq", 16),
        ),
        {},
        carries=True,
    ),
    _echo("ICMPv6EchoRequest", 128, "ICMPv6 Echo Request"),
    _echo("ICMPv6EchoReply", 129, "ICMPv6 Echo Reply"),
    LayerSpec(
        "VXLAN",
        8,
        by_name(
            fixed_field("flags", 8, 0x08, reason="extensions of VXLAN are not supported"),
            number_field("vni", 24),
            fixed_field("reserved2", 8),
        ),
        {"Ether": ()},
    ),
    LayerSpec(
        "GENEVE",
        8,
        by_name(
            fixed_field("version", 2, 0),
            computed_field("optionlen", 6),
            fixed_field("oam", 1),
            fixed_field("critical", 1),
            fixed_field("reserved", 6),
            next_field("proto", 16),
            number_field("vni", 24),
            fixed_field("reserved2", 8),
            FieldSpec("options", 0, "bytes", "fixed"),
        ),
        {"Ether": (0x6558,), "IP": (0x0800,), "IPv6": (0x86DD,)},
    ),
    LayerSpec(
        "GRE",
        4,
        by_name(
            fixed_field("chksum_present", 1, 0, reason="a checksum over the whole payload is not supported"),
            fixed_field("routing_present", 1, 0, reason="RFC 2784 has deprecated it"),
            fixed_field("key_present", 1),
            fixed_field("seqnum_present", 1),
            fixed_field("strict_route_source", 1, 0, reason="RFC 2784 has deprecated it"),
            fixed_field("recursion_control", 3, 0, reason="RFC 2784 has deprecated it"),
            fixed_field("flags", 5, 0),
            fixed_field("version", 3, 0),
            next_field("proto", 16),
            number_field("key", 32, "key_present"),
            number_field("sequence_number", 32, "seqnum_present"),
        ),
        {"Ether": (0x6558,), "IP": (0x0800,), "IPv6": (0x86DD,), "MPLS": (0x8847,)},
    ),
    LayerSpec(
        "GTP_U_Header",
        8,
        by_name(
            fixed_field("version", 3, 1),
            fixed_field("PT", 1, 1),
            fixed_field("reserved", 1),
            fixed_field("E", 1, 0, reason="extension headers of GTP-U are not supported"),
            fixed_field("S", 1),
            fixed_field("PN", 1, 0, reason="N-PDU numbers are not supported"),
            fixed_field("gtp_type", 8, 255, reason="other messages have no packet as payload"),
            computed_field("length", 16),
            number_field("teid", 32),
            number_field("seq", 16, "S"),
        ),
        {"IP": (), "IPv6": ()},
        shown="GTP-U Header",
    ),
)
LAYERS: Mapping[str, LayerSpec] = {spec.name: spec for spec in _LAYERS}
# Other names of layers, and of fields in some versions of scapy.
ALIASES: Mapping[str, str] = {
    "GTPU": "GTP_U_Header",
    "ICMPv6": "ICMPv6EchoRequest",
}
# Names of layers elsewhere, in small letters, and scapy's.
FOREIGN_NAMES: Mapping[str, str] = {
    "ethernet": "Ether",
    "eth": "Ether",
    "ip4": "IP",
    "ipv4": "IP",
    "ip6": "IPv6",
    "vlan": "Dot1Q",
    "dot1q": "Dot1Q",
    "qinq": "Dot1AD",
    "svlan": "Dot1AD",
    "dot1ad": "Dot1AD",
    "gtp": "GTP_U_Header",
}
FIELD_ALIASES: Mapping[tuple[str, str], str] = {("Dot1Q", "id"): "dei", ("Dot1AD", "id"): "dei"}
# Names of fields elsewhere, in small letters, and scapy's, by layer.
_TAG_FIELDS = {"vid": "vlan", "vlanid": "vlan", "vlan_id": "vlan", "pcp": "prio", "cfi": "dei"}
FOREIGN_FIELDS: Mapping[str, Mapping[str, str]] = {
    "Dot1Q": _TAG_FIELDS,
    "Dot1AD": _TAG_FIELDS,
    "MPLS": {"exp": "cos", "tc": "cos", "bos": "s"},
    "IP": {"tc": "tos", "hlim": "ttl", "protocol": "proto", "checksum": "chksum"},
    "IPv6": {"ttl": "hlim", "hop_limit": "hlim", "tos": "tc", "flow_label": "fl", "flow": "fl", "next_header": "nh"},
    "UDP": {"src": "sport", "dst": "dport", "checksum": "chksum"},
    "TCP": {"src": "sport", "dst": "dport", "checksum": "chksum"},
    "VXLAN": {"id": "vni", "vnid": "vni"},
    "GENEVE": {"id": "vni", "vnid": "vni"},
}
# Bytes of TCP options by name (RFC 9293, section 3.2; RFC 7323; RFC 2018), kind and length included.
TCP_OPTIONS: Mapping[str, int] = {"EOL": 1, "NOP": 1, "MSS": 4, "WScale": 3, "SAckOK": 2, "Timestamp": 10}


def spec_of(layer: Layer) -> LayerSpec:
    """Return the description of a layer's header."""
    return LAYERS[layer.name]


def layer_name(name: str) -> str:
    """Return scapy's name of a layer for one of its names; any other text unchanged."""
    return ALIASES.get(name, name)


def field_name(layer: str, field: str) -> str:
    """Return the name of a field, for one of its names; any other text unchanged."""
    return FIELD_ALIASES.get((layer, field), field)
