"""Ethernet headers from which bridges learn where the sink of a described packet is: one for each address and VLAN.

Bridges forward by destination MAC address and VLAN (IEEE 802.1Q, section 8.8), and flood frames to addresses that they
have not learned from a source address. RFC 2544, section 23, therefore lets the receiver send learning frames.
"""

import numpy as np
import numpy.typing as npt

from netbench.model.frame_template import ExpectedHeaders, FrameTemplate, VaryingPlace
from netbench.packets.flow_values import first_bytes, value_numbers

MOST_LEARNED = 65_536  # combinations of destination MAC address and VLANs
_MAC_BYTES, _TAG_BYTES = 6, 4
_TPIDS = (b"\x81\x00", b"\x88\xa8", b"\x91\x00")
_GROUP_BIT = 1  # of the first byte of a MAC address
_VLAN_MASK = b"\x0f\xff"


def learning_headers(headers: ExpectedHeaders, source_mac: str, sink_mac: str) -> list[bytes]:
    """Return the headers of learning frames, up to the EtherType, in the order of the flows that need them.

    There is one for each combination of destination MAC address and VLANs of the frames that arrive. It is the header
    of the first such frame with the MAC addresses exchanged. Addresses that are unknown at the sink are those of source
    and sink (text). Tags from the first unknown VLAN on are left out. Group addresses, which no bridge learns, have
    none.
    """
    template = headers.template
    size = _header_bytes(headers)
    free = [_is_free(headers, at) for at in (0, _MAC_BYTES)]
    found: dict[bytes, bytes] = {}
    for header in first_bytes(template, _first_flows(template, learned_fields(template, size)), size):
        dst, src = (
            bytes.fromhex(mac.replace(":", "")) if unknown else header[at : at + _MAC_BYTES]
            for mac, unknown, at in zip((sink_mac, source_mac), free, (0, _MAC_BYTES), strict=True)
        )
        tags = header[2 * _MAC_BYTES :]
        if not dst[0] & _GROUP_BIT:
            found.setdefault(dst + _without_priorities(tags), src + dst + tags)
    return list(found.values())


def learned_fields(template: FrameTemplate, size: int | None = None) -> tuple[VaryingPlace, ...]:
    """Return the varying fields by which bridges forward: destination MAC address, and VLANs.

    Only those in the first `size` bytes count; None: up to the EtherType.
    """
    end = _tags_end(template) if size is None else size
    return tuple(
        field
        for field in template.varying
        if field.place is not None and field.place.at < end and (field.place.at == 0 or _is_vlan(field.name))
    )


def combinations(template: FrameTemplate) -> int:
    """Return the number of combinations of values that `learned_fields` have in the frames of a template."""
    return len(_first_flows(template, learned_fields(template)))


def _first_flows(template: FrameTemplate, fields: tuple[VaryingPlace, ...]) -> npt.NDArray[np.int64]:
    """Return the first flow with each combination of values of these fields, ascending: shape (combinations,)."""
    if not fields:
        return np.zeros(1, np.int64)
    flows = np.arange(template.flows, dtype=np.int64)
    numbers, first = np.zeros_like(flows), flows[:1]
    for field in fields:
        both = numbers * field.values.count + value_numbers(field, flows)
        _, first, numbers = np.unique(both, return_index=True, return_inverse=True)
    return np.sort(first).astype(np.int64)


def _header_bytes(headers: ExpectedHeaders) -> int:
    """Return the size of the headers of learning frames in bytes: MAC addresses, and tags with known VLANs."""
    end = _tags_end(headers.template)
    vlans = range(2 * _MAC_BYTES + _TAG_BYTES - 1, end, _TAG_BYTES)  # the last byte of each VLAN
    return next((at - _TAG_BYTES + 1 for at in vlans if _is_free(headers, at)), end)


def _tags_end(template: FrameTemplate) -> int:
    """Return the byte of the EtherType behind the outer tags."""
    frame, at = next(iter(template.frames.values())), 2 * _MAC_BYTES
    while frame[at : at + 2] in _TPIDS:
        at += _TAG_BYTES
    return at


def _is_vlan(name: str) -> bool:
    return name.endswith(".vlan")


def _is_free(headers: ExpectedHeaders, at: int) -> bool:
    return any(start <= at < stop for start, stop in headers.ignored)


def _without_priorities(tags: bytes) -> bytes:
    """Return tags with priority 0: bridges do not distinguish priorities."""
    mask = (b"\xff\xff" + _VLAN_MASK) * (len(tags) // _TAG_BYTES)
    return bytes(byte & bits for byte, bits in zip(tags, mask, strict=True))
