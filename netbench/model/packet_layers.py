"""The headers that packets may have: names as in scapy, fields with widths and kinds of values, possible successors.

Fields that are left out have scapy's defaults; lengths, checksums and the types of following headers are computed.
Sizes and widths are those of IEEE 802.1Q, RFC 791, 8200, 768, 9293, 792, 4443, 3032, 7348, 8926, 2784, 2890 and
3GPP TS 29.281.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Literal

from netbench.model.frame_template import COMPLEMENT_BYTES, MOST_HEADER_BYTES, PAYLOAD_BYTES
from netbench.model.packet import AnyValue, FieldValue, Layer

Kind = Literal["number", "flags", "MAC", "IPv4", "IPv6", "bytes", "IPv6 list", "TCP options"]
# `free` fields may vary from frame to frame, `fixed` ones have one value in all frames. The others are computed, unless
# `next` fields, which are the type of the following header, have a usual value for that one.
Use = Literal["free", "fixed", "computed", "next"]
_ADDRESS_BITS = {"MAC": 48, "IPv4": 32, "IPv6": 128}
# The low bits in which the values of a varying field may differ.
VARYING_BITS = {"number": 32, "flags": 16, "MAC": 32, "IPv4": 32, "IPv6": 64}
LARGEST_HEADERS = MOST_HEADER_BYTES - PAYLOAD_BYTES - COMPLEMENT_BYTES  # bytes in front of pktgen's header


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field: its width in bits (0 for one without a fixed width), the kind of its values, and its use.

    `allowed` are the only possible numbers, if not all, for the given `reason`. `flags` are the names of bits from the
    lowest on. `needs` is the field that must be 1 for this one to be in the header.
    """

    name: str
    bits: int
    kind: Kind = "number"
    use: Use = "free"
    allowed: tuple[int, ...] = ()
    reason: str = ""
    flags: tuple[str, ...] = ()
    needs: str = ""

    @property
    def varies(self) -> bool:
        """Whether the field may change from frame to frame."""
        return self.use == "free" and self.bits > 0 and not self.allowed

    @property
    def largest(self) -> int:
        """The largest number that fits in."""
        return (1 << self.bits) - 1


@dataclass(frozen=True, slots=True)
class LayerSpec:
    """A header: its fields in their order on the wire, its size without options in bytes, and possible successors.

    `types` are the values of the `next` fields by successor, the usual one first. A header that `carries` may be the
    last one in front of pktgen's header. `shown` is the name in scapy's own messages, and in those of TRex.
    """

    name: str
    size: int
    fields: Mapping[str, FieldSpec]
    types: Mapping[str, tuple[int, ...]]
    carries: bool = False
    shown: str = ""


def _fields(*specs: FieldSpec) -> dict[str, FieldSpec]:
    return {spec.name: spec for spec in specs}


def _number(name: str, bits: int, needs: str = "") -> FieldSpec:
    return FieldSpec(name, bits, needs=needs)


def _fixed(name: str, bits: int, *allowed: int, reason: str = "") -> FieldSpec:
    return FieldSpec(name, bits, use="fixed", allowed=allowed, reason=reason)


def _address(name: str, kind: Kind) -> FieldSpec:
    return FieldSpec(name, _ADDRESS_BITS[kind], kind)


def _flags(name: str, bits: int, *names: str) -> FieldSpec:
    return FieldSpec(name, bits, "flags", "fixed", flags=names)


def _next(name: str, bits: int) -> FieldSpec:
    return FieldSpec(name, bits, use="next")


def _computed(name: str, bits: int) -> FieldSpec:
    return FieldSpec(name, bits, use="computed")


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
    fields = _fields(_number("prio", 3), _number("dei", 1), _number("vlan", 12), _next("type", 16))
    return LayerSpec(name, 4, fields, _ETHER_TYPES, shown=shown)


def _options_header(name: str, shown: str) -> LayerSpec:
    return LayerSpec(name, 8, _fields(_next("nh", 8), _computed("len", 8)), _BEHIND_IPV6, shown=shown)


def _echo(name: str, message_type: int, shown: str) -> LayerSpec:
    fields = _fields(
        _fixed("type", 8, message_type),
        _fixed("code", 8, 0),
        _computed("cksum", 16),
        _number("id", 16),
        _number("seq", 16),
    )
    return LayerSpec(name, 8, fields, {}, carries=True, shown=shown)


_LAYERS = (
    LayerSpec(
        "Ether",
        14,
        _fields(_address("dst", "MAC"), _address("src", "MAC"), _next("type", 16)),
        _ETHER_TYPES,
        shown="Ethernet",
    ),
    _tag("Dot1Q", "802.1Q"),
    _tag("Dot1AD", "802_1AD"),
    LayerSpec(
        "MPLS",
        4,
        _fields(_number("label", 20), _number("cos", 3), _fixed("s", 1), _number("ttl", 8)),
        {"MPLS": (), "IP": (), "IPv6": ()},
    ),
    LayerSpec(
        "IP",
        20,
        _fields(
            _fixed("version", 4, 4),
            _computed("ihl", 4),
            _number("tos", 8),
            _computed("len", 16),
            _number("id", 16),
            _flags("flags", 3, "MF", "DF", "evil"),
            _fixed("frag", 13, 0, reason=_NO_FRAGMENT),
            _number("ttl", 8),
            _next("proto", 8),
            _computed("chksum", 16),
            _address("src", "IPv4"),
            _address("dst", "IPv4"),
            FieldSpec("options", 0, "bytes", "fixed"),
        ),
        {**_IN_IP, "ICMP": (1,)},
    ),
    LayerSpec(
        "IPv6",
        40,
        _fields(
            _fixed("version", 4, 6),
            _number("tc", 8),
            _number("fl", 20),
            _computed("plen", 16),
            _next("nh", 8),
            _number("hlim", 8),
            _address("src", "IPv6"),
            _address("dst", "IPv6"),
        ),
        _IN_IPV6,
    ),
    _options_header("IPv6ExtHdrHopByHop", "IPv6 Extension Header - Hop-by-Hop Options Header"),
    _options_header("IPv6ExtHdrDestOpt", "IPv6 Extension Header - Destination Options Header"),
    LayerSpec(
        "IPv6ExtHdrRouting",
        8,
        _fields(
            _next("nh", 8),
            _computed("len", 8),
            _fixed("type", 8),
            _fixed("segleft", 8),
            _fixed("reserved", 32),
            FieldSpec("addresses", 0, "IPv6 list", "fixed"),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "IPv6ExtHdrSegmentRouting",
        8,
        _fields(
            _next("nh", 8),
            _computed("len", 8),
            _fixed("type", 8, 4),
            _fixed("segleft", 8),
            _computed("lastentry", 8),
            _fixed("tag", 16),
            FieldSpec("addresses", 0, "IPv6 list", "fixed"),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "IPv6ExtHdrFragment",
        8,
        _fields(
            _next("nh", 8),
            _fixed("res1", 8),
            _fixed("offset", 13, 0, reason=_NO_FRAGMENT),
            _fixed("res2", 2),
            _fixed("m", 1, 0, reason=_NO_FRAGMENT),
            _number("id", 32),
        ),
        _BEHIND_IPV6,
    ),
    LayerSpec(
        "UDP",
        8,
        _fields(
            _number("sport", 16),
            _number("dport", 16),
            _computed("len", 16),
            _computed("chksum", 16),
        ),
        _OVER_UDP,
        carries=True,
    ),
    LayerSpec(
        "TCP",
        20,
        _fields(
            _number("sport", 16),
            _number("dport", 16),
            _number("seq", 32),
            _number("ack", 32),
            _computed("dataofs", 4),
            _fixed("reserved", 3),
            _flags("flags", 9, *"FSRPAUECN"),
            _number("window", 16),
            _computed("chksum", 16),
            _number("urgptr", 16),
            FieldSpec("options", 0, "TCP options", "fixed"),
        ),
        {},
        carries=True,
    ),
    LayerSpec(
        "ICMP",
        8,
        _fields(
            _fixed("type", 8, 0, 8, reason="the payload of other messages is not free"),
            _fixed("code", 8, 0),
            _computed("chksum", 16),
            _number("id", 16),
            _number("seq", 16),
        ),
        {},
        carries=True,
    ),
    _echo("ICMPv6EchoRequest", 128, "ICMPv6 Echo Request"),
    _echo("ICMPv6EchoReply", 129, "ICMPv6 Echo Reply"),
    LayerSpec(
        "VXLAN",
        8,
        _fields(
            _fixed("flags", 8, 0x08, reason="extensions of VXLAN are not supported"),
            _number("vni", 24),
            _fixed("reserved2", 8),
        ),
        {"Ether": ()},
    ),
    LayerSpec(
        "GENEVE",
        8,
        _fields(
            _fixed("version", 2, 0),
            _computed("optionlen", 6),
            _fixed("oam", 1),
            _fixed("critical", 1),
            _fixed("reserved", 6),
            _next("proto", 16),
            _number("vni", 24),
            _fixed("reserved2", 8),
            FieldSpec("options", 0, "bytes", "fixed"),
        ),
        {"Ether": (0x6558,), "IP": (0x0800,), "IPv6": (0x86DD,)},
    ),
    LayerSpec(
        "GRE",
        4,
        _fields(
            _fixed("chksum_present", 1, 0, reason="a checksum over the whole payload is not supported"),
            _fixed("routing_present", 1, 0, reason="RFC 2784 has deprecated it"),
            _fixed("key_present", 1),
            _fixed("seqnum_present", 1),
            _fixed("strict_route_source", 1, 0, reason="RFC 2784 has deprecated it"),
            _fixed("recursion_control", 3, 0, reason="RFC 2784 has deprecated it"),
            _fixed("flags", 5, 0),
            _fixed("version", 3, 0),
            _next("proto", 16),
            _number("key", 32, "key_present"),
            _number("sequence_number", 32, "seqnum_present"),
        ),
        {"Ether": (0x6558,), "IP": (0x0800,), "IPv6": (0x86DD,), "MPLS": (0x8847,)},
    ),
    LayerSpec(
        "GTP_U_Header",
        8,
        _fields(
            _fixed("version", 3, 1),
            _fixed("PT", 1, 1),
            _fixed("reserved", 1),
            _fixed("E", 1, 0, reason="extension headers of GTP-U are not supported"),
            _fixed("S", 1),
            _fixed("PN", 1, 0, reason="N-PDU numbers are not supported"),
            _fixed("gtp_type", 8, 255, reason="other messages have no packet as payload"),
            _computed("length", 16),
            _number("teid", 32),
            _number("seq", 16, "S"),
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
FIELD_ALIASES: Mapping[tuple[str, str], str] = {("Dot1Q", "id"): "dei", ("Dot1AD", "id"): "dei"}
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


def header_bytes(layers: Iterable[Layer]) -> int:
    """Return the size of these headers with their options, in bytes."""
    return sum(map(layer_bytes, layers))


def layer_bytes(layer: Layer) -> int:
    """Return the size of a header with its options, in bytes."""
    values = dict(layer.fields)
    size = spec_of(layer).size
    if layer.name == "GRE":
        return size + 4 * (values.get("key_present") == 1) + 4 * (values.get("seqnum_present") == 1)
    if layer.name == "GTP_U_Header":
        return size + 4 * (values.get("S") == 1)
    if layer.name == "IPv6ExtHdrSegmentRouting":
        return size + 16 * len(_items(values.get("addresses", ("::1",))))
    if layer.name == "IPv6ExtHdrRouting":
        return size + 16 * len(_items(values.get("addresses", ())))
    if layer.name == "TCP":
        return size + _padded(sum(map(_tcp_option_bytes, _items(values.get("options", ())))))
    options = values.get("options", b"")
    return size + (_padded(len(options)) if isinstance(options, bytes) else 0)


def _items(value: FieldValue | AnyValue) -> tuple[FieldValue, ...]:
    return value if isinstance(value, tuple) else ()


def _tcp_option_bytes(option: FieldValue) -> int:
    name = option[0] if isinstance(option, tuple) and option else option
    return TCP_OPTIONS.get(str(name), 0)


def _padded(size: int) -> int:
    """Return the size of options in whole words of 4 bytes."""
    return -(-size // 4) * 4


def address_number(kind: Kind, text: str) -> int:
    """Return an address as a number; ValueError if it is none of this kind."""
    if kind == "MAC":
        parts = text.split(":")
        if len(parts) != 6 or any(len(part) not in (1, 2) or not _is_hex(part) for part in parts):
            raise ValueError(f"{text!r} is no MAC address")
        return int("".join(part.zfill(2) for part in parts), 16)
    if kind == "IPv6" and "%" in text:
        raise ValueError(f"{text!r} has a scope")
    return int(IPv4Address(text) if kind == "IPv4" else IPv6Address(text))


def _is_hex(text: str) -> bool:
    return all(character in "0123456789abcdefABCDEF" for character in text)


def address_text(kind: Kind, number: int) -> str:
    """Return an address as text, given its number."""
    if kind == "MAC":
        return ":".join(f"{byte:02x}" for byte in number.to_bytes(6))
    return str(IPv4Address(number) if kind == "IPv4" else IPv6Address(number))
