"""scapy's packets of described layers, and the places of their headers and fields. Only the controller has scapy."""

import logging
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from netbench.model.frame_template import FieldPlace
from netbench.model.layer_spec import FieldSpec
from netbench.model.packet import ANY, FieldRef, Layers, LayerValue, VariedValue, first_value, references
from netbench.model.packet_layers import LAYERS, spec_of
from netbench.model.packet_variation import value_text

_LONGEST_FIELD = 16


class PlacedLayer(NamedTuple):
    """A layer of a packet of scapy: a reference to it, the byte at which it begins, and its own bytes."""

    layer: Any
    ref: FieldRef
    at: int
    size: int


def scapy_packet(layers: Layers) -> Any:  # noqa: ANN401 - scapy has no types
    """Return scapy's packet of these layers; fields with any value have scapy's default, those that vary one value."""
    classes = scapy_classes()
    packet: Any = None
    for layer in layers:
        specs = spec_of(layer).fields if layer.name in LAYERS else {}
        fields = {name: _scapy_value(specs.get(name), value) for name, value in layer.fields if value is not ANY}
        built = classes[layer.name](**fields)
        packet = built if packet is None else packet / built
    return packet


def _scapy_value(field: FieldSpec | None, value: LayerValue) -> object:
    """Return a value of a field as scapy's: lists instead of tuples at the outside, and addresses as text."""
    match value:
        case VariedValue(values=values):
            assert field
            return value_text(field, first_value(values))
        case tuple():
            return list(value)
    return value


def placed_layers(packet: Any, layers: Layers) -> Iterator[PlacedLayer]:  # noqa: ANN401 - scapy has no types
    """Yield the layers of a packet of scapy, with their places."""
    at, layer = 0, packet
    for ref in references(layers):
        size = len(layer) - len(layer.payload)
        yield PlacedLayer(layer, ref, at, size)
        at, layer = at + size, layer.payload


def field_places(placed: PlacedLayer) -> Iterator[FieldPlace]:
    """Yield the places of the fields that are in a layer; those longer than 16 bytes in parts."""
    built: Any = b""
    specs = LAYERS[placed.ref.layer].fields if placed.ref.layer in LAYERS else {}
    for field in placed.layer.fields_desc:
        kind = specs[field.name].kind if field.name in specs else "number"
        begin = 8 * placed.at + _bits(built)
        built = field.addfield(placed.layer, built, placed.layer.getfieldval(field.name))
        end = 8 * placed.at + _bits(built)
        while begin < end:
            at, within = divmod(begin, 8)
            part = min(end - begin, 8 * _LONGEST_FIELD - within)
            size = (within + part + 7) // 8
            mask = ((1 << part) - 1) << (8 * size - within - part)
            yield FieldPlace(str(placed.ref._replace(field=field.name)), at, size, mask, kind)
            begin += part


def _bits(built: Any) -> int:  # noqa: ANN401 - scapy's bit fields pass on (bytes, bits of the next byte, its value)
    if isinstance(built, tuple):
        return 8 * len(built[0]) + int(built[1])
    return 8 * len(built)


@lru_cache(maxsize=1)
def scapy_classes() -> Mapping[str, Any]:
    """Return scapy's classes of all layers by name. The first call takes a moment: make it before a trial starts."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib import geneve, gtp, mpls  # noqa: PLC0415 - only the controller has scapy
    from scapy.layers import inet, inet6, l2, vxlan  # noqa: PLC0415 - scapy is slow to import
    from scapy.packet import Packet as ScapyPacket  # noqa: PLC0415 - scapy is slow to import
    from scapy.packet import Raw  # noqa: PLC0415 - scapy is slow to import

    found: dict[str, Any] = {"Raw": Raw}
    for module in (l2, inet, inet6, vxlan, mpls, geneve, gtp):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, ScapyPacket) and value.__module__ == module.__name__:
                found.setdefault(name, value)
    return found
