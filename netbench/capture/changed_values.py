"""Values of changed header fields as text: as sent, as expected, and as they arrived, in the first changed frame.

It imports only numpy and the standard library: other hosts load it.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from netbench.capture.frames import IPV4, VLAN_TAGS, address_text
from netbench.model.frame_template import ExpectedHeaders, FieldPlace
from netbench.model.packet import high_bits
from netbench.model.packet_counts import OTHER_HEADERS, ChangedField
from netbench.packets.flow_values import value_numbers, values_of

_MAC_BYTES = 6
_HEXADECIMAL = ("chksum", "cksum", "type")  # fields that scapy shows so
_IPV6, _ETHERNET, _DOT1Q, _MPLS = 0x86DD, 0x6558, 0x8100, (0x8847, 0x8848)
_PROTOCOLS = {1: "ICMP", 4: "IP", 6: "TCP", 17: "UDP", 41: "IPv6", 47: "GRE", 58: "ICMPv6"}
_EXTENSIONS = (0, 43, 60)  # hop by hop, routing, destination options: RFC 8200, section 4
_GTP_EXTENSION, _EXTENDED = -1, 4  # 3GPP TS 29.281, section 5.1
_INSIDE_UDP = {-2152: "GTP_U_Header", -4789: "VXLAN", -6081: "GENEVE", _GTP_EXTENSION: "GTPPDUSessionContainer"}
_NOTHING = -(1 << 16)
_UNKNOWN = "…"


class FirstChange(NamedTuple):
    """The first frame that was changed in a field: its number, and its first bytes, as expected and as arrived."""

    number: int
    expected: bytes
    arrived: bytes


def changed_field(headers: ExpectedHeaders, name: str, frames: int, first: FirstChange | None) -> ChangedField:
    """Return the counts of a changed field with its values; these are empty if the field has several parts."""
    places = [place for place in headers.compared if place.name == name]
    if first is None or len(places) != 1:
        return ChangedField(name, frames)
    (place,) = places
    expected, arrived = (_text(place, place.number_in(frame)) for frame in (first.expected, first.arrived))
    return ChangedField(name, frames, _sent_text(headers, place, first.number), expected, arrived)


def changed_headers(headers: ExpectedHeaders, frames: int, arrived: bytes, payload_at: int) -> ChangedField:
    """Return the count of frames with other layers, and these; pktgen's header begins at byte `payload_at`."""
    layers = layer_names(arrived, payload_at) if arrived else ""
    return ChangedField(OTHER_HEADERS, frames, headers.sent_layers, headers.layers, layers)


def number_text(number: int, kind: str) -> str:
    """Return a value of a field as text: `100`, `198.18.1.0`, `2001:2::1`, `02:…`; `kind` as in VaryingPlace."""
    match kind:
        case "IPv4":
            return address_text(number)
        case "IPv6":
            return address_text(number, 6)
        case "MAC":
            return number.to_bytes(_MAC_BYTES).hex(":")
    return str(number)


def _text(place: FieldPlace, number: int) -> str:
    bits = place.mask.bit_count()
    if place.name.rpartition(".")[2] in _HEXADECIMAL and bits >= 16:
        return f"{number:#06x}"
    return number_text(number, place.kind)


def _sent_text(headers: ExpectedHeaders, place: FieldPlace, number: int) -> str:
    """Return the value with which a field of frame `number` was sent; empty if it is unknown."""
    for value in headers.sent:
        if value.name == place.name and value.number is not None:
            return _text(place, value.number)
        if value.name == place.name and value.varying is not None:
            varying = headers.varying[value.varying]
            (index,) = value_numbers(varying, np.array([number % headers.flows]))
            return _text(place, high_bits(varying.values) | int(values_of(varying.values, varying.seed)[index]))
    return ""


def layer_names(frame: bytes, payload_at: int) -> str:
    """Return the layers in front of byte `payload_at`: `Ether/Dot1Q/IP/UDP`; `…` for unknown headers."""
    return "/".join(_layers(frame[:payload_at]))


def _layers(frame: bytes) -> Iterator[str]:
    at, ether_type, protocol = 0, _ETHERNET, _NOTHING  # of the next header
    while at < len(frame):
        name, size = _next_layer(frame, at, ether_type, protocol)
        yield name
        if not size:
            return
        ether_type, protocol, at = *_following(name, frame, at, size), at + size


def _next_layer(frame: bytes, at: int, ether_type: int, protocol: int) -> tuple[str, int]:
    """Return the name of the layer at byte `at`, and its size in bytes, 0 for the last one that is known."""
    if ether_type == _ETHERNET:
        return "Ether", 14
    if ether_type in VLAN_TAGS:
        return "Dot1Q" if ether_type == _DOT1Q else "Dot1AD", 4
    if ether_type in _MPLS:
        return "MPLS", 4
    if ether_type == IPV4:
        return "IP", 4 * (frame[at] & 0xF)
    if ether_type == _IPV6:
        return "IPv6", 40
    if protocol in _EXTENSIONS and len(frame) > at + 1:
        return "IPv6ExtHdr", 8 * (frame[at + 1] + 1)
    name = _PROTOCOLS.get(protocol, _INSIDE_UDP.get(protocol, _UNKNOWN))
    return name, _size_of(name, frame[at:])


def _size_of(name: str, header: bytes) -> int:
    match name:
        case "UDP" | "VXLAN":
            return 8
        case "GENEVE":
            return 8 + 4 * (header[0] & 0x3F)
        case "GRE":
            return 4 + 4 * (header[0] & 0xB0).bit_count()
        case "GTP_U_Header":
            return 12 if header[0] & 7 else 8
        case "GTPPDUSessionContainer":
            return 4 * header[0]
    return 0


def _following(name: str, frame: bytes, at: int, size: int) -> tuple[int, int]:
    """Return the EtherType of the layer behind one, or -1 and its protocol: that of IP, or −port of a tunnel."""

    def word(behind: int) -> int:
        return int.from_bytes(frame[at + behind : at + behind + 2])

    match name:
        case "Ether":
            return word(12), _NOTHING
        case "Dot1Q" | "Dot1AD" | "GRE" | "GENEVE":
            return word(2), _NOTHING
        case "MPLS" if not frame[at + 2] & 1:
            return _MPLS[0], _NOTHING
        case "GTP_U_Header" if frame[at] & _EXTENDED and frame[at + size - 1]:
            return -1, _GTP_EXTENSION
        case "GTPPDUSessionContainer" if frame[at + size - 1]:
            return -1, _GTP_EXTENSION
        case "MPLS" | "GTP_U_Header" | "GTPPDUSessionContainer":
            return (_IPV6 if len(frame) > at + size and frame[at + size] >> 4 == 6 else IPV4), _NOTHING
        case "IP":
            return -1, frame[at + 9]
        case "IPv6":
            return -1, frame[at + 6]
        case "IPv6ExtHdr":
            return -1, frame[at]
        case "VXLAN":
            return _ETHERNET, _NOTHING
        case "UDP":
            return -1, -word(2)
    return -1, _NOTHING
