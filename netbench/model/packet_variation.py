"""Fields that vary from frame to frame, as users describe them: `{IP.src: {from: 198.18.1.1, to: 198.18.1.250}}`."""

import re
from collections.abc import Mapping, Sequence
from math import prod

from netbench.model.layer_spec import VARYING_BITS, FieldSpec, Kind
from netbench.model.packet import (
    MAX_FLOWS,
    MAX_VARYING_FIELDS,
    FieldRef,
    Layer,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    Values,
    VaryingField,
    references,
)
from netbench.model.packet_notation import field_spec, layer_spec
from netbench.model.packet_values import (
    DescriptionError,
    address_number,
    address_text,
    address_value,
    example_range,
    network_hosts,
    number_value,
)
from netbench.model.suggestions import did_you_mean

COMBINED = "combined"
_REFERENCE = re.compile(r"(?P<layer>\w{1,40})(?::(?P<occurrence>\d{1,2}))?\.(?P<field>\w{1,40})", re.ASCII)
_RANGE = re.compile(r"\s*([^\s-]+)\s*-\s*([^\s-]+)\s*")
_FORMS = "{from: …, to: …, step: 1}, {from: …, count: 100}, {random: 1024-65535} or {list: [10, 20]}"
_FOREIGN_KEYS = {"start": "from", "first": "from", "min": "from", "end": "to", "stop": "to", "last": "to", "max": "to"}
_STEPPED = {"from", "to", "step", "count"}
_RANDOM = {"random", "count"}


def parse_vary(value: object, layers: Sequence[Layer]) -> tuple[tuple[VaryingField, ...], bool]:
    """Return the varying fields of these layers, and whether they are combined; DescriptionError for wrong ones."""
    if not isinstance(value, Mapping) or not value:
        raise DescriptionError("vary", f"is a mapping of fields, for example {{UDP.sport: {_FORMS}}}")
    combined = value.get(COMBINED, False)
    if not isinstance(combined, bool):
        raise DescriptionError(COMBINED, f"{combined!r} is not allowed: true or false", (COMBINED,))
    found: list[VaryingField] = []
    for name, values in value.items():
        if name != COMBINED:
            try:
                found.append(_varying_field(str(name), values, layers))
            except DescriptionError as error:
                raise error.below(name) from error
    if not found:
        raise DescriptionError("vary", f"names no field; write for example {{UDP.sport: {_FORMS}}}")
    check_varying(found)
    if combined:
        check_combined(COMBINED, found, "leave combined out")
    return tuple(found), combined


def check_varying(fields: Sequence[VaryingField]) -> None:
    """Raise DescriptionError for too many fields, or for one that varies twice."""
    if len(fields) > MAX_VARYING_FIELDS:
        raise DescriptionError("vary", f"{len(fields)} fields: at most {MAX_VARYING_FIELDS} can vary")
    refs = [field.ref for field in fields]
    for number, ref in enumerate(refs):
        if ref in refs[:number]:
            raise DescriptionError(str(ref), "varies twice")


def check_combined(title: str, fields: Sequence[VaryingField], remedy: str) -> None:
    """Raise DescriptionError if fields have more combinations than a packet has flows; `remedy` is another way."""
    counts = [field.values.count for field in fields]
    if (flows := prod(counts)) <= MAX_FLOWS:
        return
    others, last = prod(counts[:-1]), fields[-1].ref
    fewer = f"write fewer values, for example {MAX_FLOWS // others:,} of {last}" if others <= MAX_FLOWS else ""
    text = f"{' × '.join(f'{number:,}' for number in counts)} values make {flows:,} flows"
    path = (COMBINED,) if title == COMBINED else ()
    remedies = ", or ".join(filter(None, (fewer or "vary fewer fields", remedy)))
    raise DescriptionError(title, f"{text}: at most {MAX_FLOWS:,} are possible; {remedies}", path)


def _varying_field(name: str, values: object, layers: Sequence[Layer]) -> VaryingField:
    ref, field = variable_field(name, layers)
    return VaryingField(ref, _values(str(ref), field, values))


def variable_field(name: str, layers: Sequence[Layer]) -> tuple[FieldRef, FieldSpec]:
    """Return the field `Layer.field` or `Layer:2.field` of these layers; DescriptionError if it cannot vary there."""
    match = _REFERENCE.fullmatch(name)
    if not match:
        hint = did_you_mean(name, [COMBINED])
        raise DescriptionError(
            name, f"is no field; write LAYER.FIELD, for example IP.src, or IP:2.src for the second IP{hint}"
        )
    spec = layer_spec(match["layer"])
    field = field_spec(spec, match["field"])
    ref = FieldRef(spec.name, field.name, int(match["occurrence"] or 1))
    if ref._replace(field="") not in references(layers):
        title = spec.name if ref.occurrence == 1 else f"{spec.name} number {ref.occurrence}"
        raise DescriptionError(name, f"the packet has no {title}; layers are {', '.join(part.name for part in layers)}")
    index = ref.index_in(layers)
    if reason := _constant_reason(field, layers[index], layers[index + 1 :]):
        raise DescriptionError(str(ref), f"cannot vary: {reason}; {_varying_instead(ref, layers)}")
    return ref, field


def _varying_instead(ref: FieldRef, layers: Sequence[Layer]) -> str:
    """Return the fields that can vary in the header of a field, and the same field of other headers, if it can."""
    can_vary, same_elsewhere = [], []
    for index, other in enumerate(references(layers)):
        if other.layer == ref.layer:
            for field in layer_spec(ref.layer).fields.values():
                if not _constant_reason(field, layers[index], layers[index + 1 :]):
                    if other.occurrence == ref.occurrence:
                        can_vary.append(field.name)
                    elif field.name == ref.field:
                        same_elsewhere.append(str(other._replace(field=field.name)))
    header = str(ref._replace(field="")).rstrip(".")
    text = f"of {header} can vary: {', '.join(can_vary) or 'no field'}"
    return f"{text}; {', '.join(same_elsewhere)} can vary, too" if same_elsewhere else text


def _constant_reason(field: FieldSpec, layer: Layer, inside: Sequence[Layer]) -> str:
    """Return why a field has one value in all frames; empty if it can vary."""
    if field.use == "computed":
        return "it is computed"
    if field.use == "next":
        return "it is the type of the following header"
    if not field.varies:
        return "it has one value in all frames of a stream"
    if not field.is_in(layer):
        return f"it is not in the header without {field.needs}=1"
    following = inside[0].name if inside else ""
    if (layer.name, field.name) == ("UDP", "dport") and following:
        return f"it announces {following}"
    if (layer.name, field.name) == ("IPv6", "dst") and any("Routing" in inner.name for inner in inside):
        return "a routing header follows, which has the last destination"
    return ""


def _values(title: str, field: FieldSpec, written: object) -> Values:
    if not isinstance(written, Mapping) or not written:
        raise DescriptionError(title, f"its values are {_FORMS}")
    keys = {str(key) for key in written}
    form = _RANDOM if "random" in keys else {"list"} if "list" in keys else _STEPPED
    if (foreign := [str(key) for key in written if key in _FOREIGN_KEYS]) and not keys & {"random", "list"}:
        remedy = " and ".join(f"{_FOREIGN_KEYS[key]} for {key}" for key in foreign)
        names = " or ".join(map(repr, foreign))
        raise DescriptionError(
            title, f"no key {names} here: write {remedy}, as in {_FORMS}", (foreign[0],), is_key=True
        )
    if unknown := sorted(keys - form):
        if unknown[0] not in _STEPPED | _RANDOM | {"list"}:
            hint = did_you_mean(unknown[0], sorted(_STEPPED | _RANDOM | {"list"}))
            raise DescriptionError(
                title, f"no key {unknown[0]!r} here: write {_FORMS}{hint}", (unknown[0],), is_key=True
            )
        kind = "random" if "random" in keys else "list"
        raise DescriptionError(title, f"{unknown[0]} does not go with {kind}: write {_FORMS}", (unknown[0],))
    if "random" in keys:
        return random_values(title, field, *_range(title, field, written["random"]), _count(title, written))
    if "list" in keys:
        return _listed(title, field, written["list"])
    return _stepped(title, field, written)


def _stepped(title: str, field: FieldSpec, written: Mapping[str, object]) -> SteppedValues:
    if "from" not in written:
        raise DescriptionError(title, f"from is missing; write {_FORMS}")
    first, step, count = number_of(title, field, written["from"]), written.get("step", 1), _count(title, written)
    if type(step) is not int or step == 0 or abs(step) > field.largest:
        raise DescriptionError(
            title, f"step: {step!r} is not allowed: a whole number other than 0{_step_remedy(step)}", ("step",)
        )
    if "to" in written and count is not None:
        raise DescriptionError(title, "to and count exclude each other; leave one of them out", ("count",), is_key=True)
    if "to" in written:
        last = number_of(title, field, written["to"])
        if (last - first) * step < 0:
            direction = "below" if step > 0 else "above"
            raise DescriptionError(title, f"to is {direction} from: write step: {-step}", ("to",))
        count = (last - first) // step + 1
    elif count is None:
        raise DescriptionError(title, f"to or count is missing; write {_FORMS}")
    else:
        most = ((field.largest - first) if step > 0 else first) // abs(step) + 1
        if most < count <= MAX_FLOWS:
            last = first + step * (count - 1)
            limit = value_text(field, field.largest if step > 0 else 0)
            beyond = f"beyond {limit}" if field.is_address else f"{last}, beyond {limit}"
            raise DescriptionError(title, f"its last value would be {beyond}; write count: {most} or less", ("count",))
    return stepped_values(title, field, first, step, count)


def _step_remedy(step: object) -> str:
    """Return the number for a step that is written as an address; empty for anything else."""
    kind: Kind
    for kind in ("IPv4", "IPv6", "MAC"):
        try:
            return f"; write step: {address_number(kind, str(step))}"
        except ValueError:
            continue
    return ""


def stepped_values(title: str, field: FieldSpec, first: int, step: int, count: int) -> SteppedValues:
    """Return stepped values of a field; DescriptionError if there are too many, or if the field cannot have them."""
    if count > MAX_FLOWS:
        raise DescriptionError(
            title, f"{count:,} values: at most {MAX_FLOWS:,} are possible; write a larger step, or count: {MAX_FLOWS}"
        )
    last = first + step * (count - 1)
    if not 0 <= last <= field.largest:
        raise DescriptionError(title, f"its last value would be {last}: 0 to {field.largest} are possible")
    _check_high_bits(title, field, (first, last))
    return SteppedValues(first, step, count)


def random_values(title: str, field: FieldSpec, least: int, most: int, count: int | None) -> RandomValues:
    """Return random values of a field, all of the range or (`count`) as many; DescriptionError for impossible ones."""
    if least > most:
        raise DescriptionError(title, "random: the range ends before it begins", ("random",))
    span = most - least + 1
    if count is not None and count > span:
        raise DescriptionError(title, f"count: {count:,}, but the range has {span:,} values", ("count",))
    if count is None and span > MAX_FLOWS:
        fault = f"random: {span:,} values: at most {MAX_FLOWS:,} are possible"
        raise DescriptionError(title, f"{fault}; add count: {MAX_FLOWS}, or write a smaller range", ("random",))
    _check_high_bits(title, field, (least, most))
    return RandomValues(least, most, span if count is None else count)


def listed_values(title: str, field: FieldSpec, values: Sequence[int]) -> ListedValues:
    """Return listed values of a field; DescriptionError if one of them repeats."""
    for number, value in enumerate(values):
        if value in values[:number]:
            raise DescriptionError(title, f"{value_text(field, value)} is in the list twice", ("list",))
    _check_high_bits(title, field, values)
    return ListedValues(tuple(values))


def _listed(title: str, field: FieldSpec, written: object) -> ListedValues:
    if not isinstance(written, list | tuple) or not written:
        raise DescriptionError(title, "list: is a list of values, for example [10, 20]", ("list",))
    return listed_values(title, field, [number_of(title, field, value) for value in written])


def _check_high_bits(title: str, field: FieldSpec, values: Sequence[int]) -> None:
    bits = VARYING_BITS[field.kind]
    if len({value >> bits for value in values}) > 1:
        raise DescriptionError(title, f"its values differ in more than the low {bits} bits: only those can vary")


def _range(title: str, field: FieldSpec, written: object) -> tuple[int, int]:
    if isinstance(written, str) and (hosts := network_hosts(field.kind, written)):
        return hosts
    match = _RANGE.fullmatch(written) if isinstance(written, str) else None
    if not match:
        raise DescriptionError(
            title, f"random: {written!r} is no range; write for example {example_range(field, written)}", ("random",)
        )
    least, most = (int(text) if text.isdecimal() and len(text) < 12 else text for text in match.groups())
    return number_of(title, field, least), number_of(title, field, most)


def _count(title: str, written: Mapping[str, object]) -> int | None:
    count = written.get("count")
    if count is not None and (type(count) is not int or not 1 <= count <= MAX_FLOWS):
        raise DescriptionError(title, f"count: {count!r} is not allowed: 1 to {MAX_FLOWS}", ("count",))
    return count


def number_of(title: str, field: FieldSpec, value: object) -> int:
    """Return a value of a field as users write it as a number; DescriptionError if the field cannot have it."""
    if field.is_address:
        return address_value(title, field, value)
    return number_value(title, field, value)


def value_text(field: FieldSpec, value: int) -> int | str:
    """Return a value of a field as users write it."""
    return address_text(field.kind, value) if field.is_address else value


def written_vary(packet: Packet) -> dict[str, object]:
    """Return the varying fields of a packet as users write them."""
    written = written_fields(packet.vary)
    return {**written, COMBINED: True} if packet.combined else written


def written_fields(fields: Sequence[VaryingField]) -> dict[str, object]:
    """Return varying fields and their values as users write them."""
    return {str(field.ref): _written_values(field) for field in fields}


def _written_values(varying: VaryingField) -> dict[str, object]:
    field = layer_spec(varying.ref.layer).fields[varying.ref.field]
    match varying.values:
        case SteppedValues(first, step, count):
            return {"from": value_text(field, first), "step": step, "count": count}
        case RandomValues(least, most, count):
            return {"random": f"{value_text(field, least)}-{value_text(field, most)}", "count": count}
        case ListedValues(values):
            return {"list": [value_text(field, value) for value in values]}
