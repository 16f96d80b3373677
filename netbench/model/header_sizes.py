"""Sizes of headers with their options."""

from collections.abc import Iterable

from netbench.model.frame_template import COMPLEMENT_BYTES, MOST_HEADER_BYTES, PAYLOAD_BYTES
from netbench.model.layer_spec import FieldSpec
from netbench.model.packet import FieldValue, Layer
from netbench.model.packet_layers import TCP_OPTIONS, spec_of

LARGEST_HEADERS = MOST_HEADER_BYTES - PAYLOAD_BYTES - COMPLEMENT_BYTES  # bytes in front of pktgen's header
_WORD_BYTES, _ADDRESS_BYTES = 4, 16
_USUAL_ADDRESSES = {"IPv6ExtHdrSegmentRouting": ("::1",)}  # scapy's default


def header_bytes(layers: Iterable[Layer]) -> int:
    """Return the size of these headers with their options, in bytes."""
    return sum(map(layer_bytes, layers))


def layer_bytes(layer: Layer) -> int:
    """Return the size of a header with its options, in bytes."""
    spec = spec_of(layer)
    return spec.size + sum(_option_bytes(layer, field) for field in spec.fields.values())


def _option_bytes(layer: Layer, field: FieldSpec) -> int:
    """Return the bytes of a field that not all headers of its kind have; 0 for other fields."""
    match field.kind, layer.value(field.name, _USUAL_ADDRESSES.get(layer.name)):
        case "bytes", bytes() as options:
            return _padded(len(options))
        case "IPv6 list", tuple() as addresses:
            return _ADDRESS_BYTES * len(addresses)
        case "TCP options", tuple() as options:
            return _padded(sum(map(_tcp_option_bytes, options)))
    return _WORD_BYTES if field.needs and field.is_in(layer) else 0


def _tcp_option_bytes(option: FieldValue) -> int:
    name = option[0] if isinstance(option, tuple) and option else option
    return TCP_OPTIONS.get(str(name), 0)


def _padded(size: int) -> int:
    """Return the size of options in whole words of 4 bytes."""
    return -(-size // _WORD_BYTES) * _WORD_BYTES
