"""The packet at the sink as users describe it: its headers, or a mapping of headers and the values of varying fields.

`expect: Ether()/IP(src=any)/UDP()`, or `expect: {headers: …, vary: {IP.src: {from: 192.0.2.1, count: 100}}}`.
"""

from collections.abc import Mapping

from netbench.model.layer_order import check_expected
from netbench.model.packet import (
    Layer,
    Layers,
    Packet,
    RandomValues,
    VariedValue,
    VaryingField,
    layer_ids,
    references,
)
from netbench.model.packet_notation import layers_text, parse_layers
from netbench.model.packet_values import DescriptionError
from netbench.model.packet_variation import COMBINED, parse_vary, written_fields
from netbench.model.suggestions import choices

_KEYS = ("headers", "vary")
_FORMS = "text such as Ether()/IP(src=any)/UDP(), or a mapping of headers and vary"


def parse_expect(value: object, packet: Packet) -> Layers:
    """Return the headers at the sink of a packet that users expect; DescriptionError if they are wrong."""
    if isinstance(value, str):
        return _parse_headers(value, packet)
    if not isinstance(value, Mapping):
        raise DescriptionError("expect", f"{str(value)[:40]!r} is not allowed: it must be {_FORMS}")
    for key in value:
        if key not in _KEYS:
            raise DescriptionError(
                str(key), f"no such key of expect; {choices(str(key), _KEYS, 'keys')}", (key,), is_key=True
            )
    headers = value.get("headers")
    if not isinstance(headers, str):
        raise DescriptionError("headers", "must be text; write for example {headers: Ether()/IP(src=any)/UDP()}")
    try:
        layers = _parse_headers(headers, packet)
    except DescriptionError as error:
        raise error.below("headers") from error
    if value.get("vary") is None:
        return layers
    try:
        return _with_values(layers, value["vary"], packet)
    except DescriptionError as error:
        raise error.below("vary") from error


def written_expect(expected: Layers) -> object:
    """Return expected headers as users write them: text, or a mapping if fields vary."""
    varying = [
        VaryingField(ref._replace(field=name), value.values)
        for ref, layer in zip(references(expected), expected, strict=True)
        for name, value in layer.fields
        if isinstance(value, VariedValue)
    ]
    text = layers_text(expected)
    return {"headers": text, "vary": written_fields(varying)} if varying else text


def _parse_headers(text: str, packet: Packet) -> Layers:
    layers = parse_layers(text, expected=True)
    check_expected(layers, packet.layers)
    return layers


def _with_values(layers: Layers, vary: object, packet: Packet) -> Layers:
    """Return expected layers with the values of their varying fields; `vary` is as users write it."""
    fields, _ = parse_vary(vary, layers)
    assert isinstance(vary, Mapping)
    if COMBINED in vary:
        raise DescriptionError(COMBINED, "leave it out: frames arrive in the order in which they are sent", (COMBINED,))
    found = list(layers)
    for key, field in zip(vary, fields, strict=True):
        try:
            number = _sent_number(layers, field, packet)
            _check_order(field, packet.vary[number])
        except DescriptionError as error:
            raise error.below(key) from error
        index = field.ref.index_in(layers)
        fixed = tuple(item for item in found[index].fields if item[0] != field.ref.field)
        varied = field.ref.field, VariedValue(number, field.values)
        found[index] = Layer(found[index].name, (*fixed, varied))
    return tuple(found)


def _sent_number(layers: Layers, field: VaryingField, packet: Packet) -> int:
    """Return the index in the packet's `vary` of the field that an expected one was before."""
    identity = layer_ids(layers)[field.ref.index_in(layers)]
    sent = dict(zip(layer_ids(packet.layers), references(packet.layers), strict=True))
    ref = sent[identity]._replace(field=field.ref.field) if identity in sent else None
    for number, varying in enumerate(packet.vary):
        if varying.ref == ref:
            return number
    names = ", ".join(str(varying.ref) for varying in packet.vary)
    remedy = f"only fields that it varies can vary here: {names}" if names else "write vary beside expect, too"
    raise DescriptionError(str(field.ref), f"does not vary in the packet as sent; {remedy}")


def _check_order(expected: VaryingField, sent: VaryingField) -> None:
    """Raise DescriptionError if expected values are not as many as the sent ones, or in another order."""
    title, count = str(expected.ref), sent.values.count
    if isinstance(sent.values, RandomValues):
        width = sent.values.most - sent.values.least
        values = expected.values
        if not isinstance(values, RandomValues) or (values.most - values.least, values.count) != (width, count):
            only = "" if count == width + 1 else f", and count: {count}"
            fault = "the packet sends random values of this field"
            raise DescriptionError(title, f"{fault}; write random with a range of {width + 1:,} values{only}")
    elif isinstance(expected.values, RandomValues):
        raise DescriptionError(
            title, "random: the packet sends this field's values in another order; write from or list"
        )
    elif expected.values.count != count:
        raise DescriptionError(
            title, f"{expected.values.count:,} values, but the packet sends {count:,} of this field; write as many"
        )
