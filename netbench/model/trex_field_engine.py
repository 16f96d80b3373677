"""TRex's field engine: variables that are written into a packet, as varying fields."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.header_sizes import layer_bytes
from netbench.model.layer_spec import FieldSpec
from netbench.model.packet import (
    MAX_FLOWS,
    FieldRef,
    Layer,
    ListedValues,
    RandomValues,
    SteppedValues,
    Values,
    VaryingField,
    references,
)
from netbench.model.packet_layers import LAYERS, layer_name, spec_of
from netbench.model.packet_values import DescriptionError, address_number
from netbench.model.packet_variation import listed_values, random_values, stepped_values, value_text, variable_field
from netbench.model.suggestions import choices
from netbench.model.trex_commands import FIXES, Arguments

_USUAL_LIMIT = 100_000  # flows of STLVmTupleGen
_ADDRESSES = {"MAC": "02:00:00:00:00:00", "IPv4": "198.18.0.0", "IPv6": "2001:2::"}  # that are written in part only
_NAMES = {spec.shown: spec.name for spec in LAYERS.values() if spec.shown} | {"802|1Q": "Dot1Q", "Raw": "payload"}


@dataclass(frozen=True, slots=True)
class _Variable:
    """A variable of the field engine: values, bytes, and the variable that changes when this one starts again."""

    values: Values
    size: int
    next: str = ""

    @property
    def bounds(self) -> tuple[int, int]:
        """Its least and its largest value."""
        match self.values:
            case SteppedValues(first, step, count):
                last = first + step * (count - 1)
                return min(first, last), max(first, last)
            case RandomValues(least, most):
                return least, most
            case ListedValues(values):
                return min(values), max(values)


@dataclass(frozen=True, slots=True)
class _Place:
    """A field of the packet and its bits, from the beginning of the frame."""

    ref: FieldRef
    field: FieldSpec
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class _Part:
    """The bits of a value that a field has: from bit `low` on those of `mask`, moved to the left by `move`.

    `bits` are all bits of the field that are written.
    """

    low: int
    mask: int
    move: int
    bits: int

    def of(self, value: int) -> int:
        """Return these bits of a value where the field has them."""
        return (value >> self.low & self.mask) << self.move


class FieldEngineReader:
    """Translates the commands for the packet of `layers`."""

    def __init__(self, layers: Sequence[Layer]) -> None:
        self.layers = tuple(layers)
        self._places = list(_places(layers))
        self._variables: dict[str, _Variable] = {}
        self._tuples: dict[str, int] = {}
        self._fields: dict[str, list[VaryingField]] = {}

    def command(self, name: str, given: Arguments) -> None:
        """Translate a command."""
        match name:
            case "STLVmFlowVar":
                self._define(given.text("name"), _counting(given))
            case "STLVmFlowVarRepeatableRandom":
                size = given.number("size", 4)
                least, most = given.number("min_value", 0), given.number("max_value", (1 << 8 * size) - 1)
                count = min(given.number("limit", 100), most - least + 1, MAX_FLOWS)
                self._define(
                    given.text("name"), _Variable(RandomValues(least, most, count), size, given.text("next_var"))
                )
            case "STLVmTupleGen":
                self._tuple(given)
            case "STLVmWrFlowVar":
                variable = self._variable(given)
                bits = 8 * variable.size
                self._write(given, variable, given.number("add_val", 0), bits, (1 << bits) - 1, 0)
            case "STLVmWrMaskFlowVar":
                bits = 8 * given.number("pkt_cast_size", 1)
                mask, shift = given.number("mask", 0xFF), given.number("shift", 0)
                self._write(given, self._variable(given), given.number("add_value", 0), bits, mask, shift)
            case _:
                assert name in FIXES

    def varying(self) -> tuple[tuple[VaryingField, ...], bool]:
        """Return the varying fields, and whether they are combined."""
        written = {name: self._variables[name] for name in self._fields}
        if self._tuples and set(written) - set(self._tuples):
            other = min(set(written) - set(self._tuples))
            raise DescriptionError("STLVmTupleGen", f"goes with no other variable, such as {other}")
        is_chain = any(variable.next for variable in written.values())
        order = self._chain(written) if is_chain else sorted(written, key=lambda name: self._tuples.get(name, 0))
        return tuple(field for name in order for field in self._fields[name]), is_chain or bool(self._tuples)

    def _chain(self, written: Mapping[str, _Variable]) -> list[str]:
        """Return the variables that `next_var` connects, in their order."""
        following = {variable.next for variable in written.values()}
        order = [name for name in written if name not in following][:1]
        while order and (name := written[order[-1]].next) and name not in order:
            if name not in written:
                raise DescriptionError("next_var", f"{name} is written to no field")
            order.append(name)
        if set(order) != set(written) or any(len(self._fields[name]) > 1 for name in order):
            raise DescriptionError("next_var", "must connect all variables, each written to one field")
        return order

    def _define(self, name: str, variable: _Variable) -> None:
        if name in self._variables or not name:
            raise DescriptionError(name or "name", "is the name of two variables" if name else "is missing")
        self._variables[name] = variable

    def _tuple(self, given: Arguments) -> None:
        name, limit = given.text("name"), given.number("limit_flows", _USUAL_LIMIT) or MAX_FLOWS
        first, port = given.number("ip_min", 1), given.number("port_min", 1025)
        addresses = min(given.number("ip_max", 10) - first + 1, limit)
        ports = min(given.number("port_max", 65_535) - port + 1, max(limit // max(addresses, 1), 1))
        if addresses < 1 or ports < 1:
            raise DescriptionError(given.command, "a range ends before it begins")
        self._define(f"{name}.ip", _Variable(SteppedValues(first, 1, addresses), 4))
        self._define(f"{name}.port", _Variable(SteppedValues(port, 1, ports), 2))
        self._tuples |= {f"{name}.ip": 0, f"{name}.port": 1}

    def _variable(self, given: Arguments) -> _Variable:
        name = given.text("fv_name")
        if name not in self._variables:
            raise DescriptionError(
                given.command, f"no variable {name!r} before; {choices(name, self._variables, 'variables')}"
            )
        return self._variables[name]

    def _write(self, given: Arguments, variable: _Variable, add: int, bits: int, mask: int, shift: int) -> None:
        """Translate writing `(value + add) << shift` into a word of so many bits, where `mask` is set."""
        if given.is_false("is_big") or given.text("byte_order", "big") != "big":
            raise DescriptionError(given.command, "little-endian values are not supported")
        least_bit = (mask & -mask).bit_length() - 1
        if mask <= 0 or mask >> bits or mask + (1 << least_bit) & mask:
            raise DescriptionError(given.command, f"mask {mask:#x} is not one run of bits of the field")
        end = 8 * self._offset(given) + bits
        window = range(end - mask.bit_length(), end - least_bit)
        places = self._places_in(window, given.command)
        lowest, highest = (bound + add for bound in variable.bounds)
        if lowest < 0 or highest >> 64:
            raise DescriptionError(given.command, f"add_val: values from {lowest} to {highest} are not possible")
        for place in places:
            part = _part_of(place, window, end - shift)
            if lowest >> part.low == highest >> part.low:
                self._set(place, part, lowest)
            elif part.low or lowest & ~part.mask != highest & ~part.mask:
                raise DescriptionError(
                    str(place.ref),
                    f"{given.command} writes a part of {given.text('fv_name')} there, whose values repeat",
                )
            else:
                self._vary(place, part, add, given, variable)

    def _places_in(self, window: range, command: str) -> list[_Place]:
        """Return the fields that have these bits of the frame; DescriptionError for bits of the payload."""
        places = [place for place in self._places if place.start < window.stop and place.stop > window.start]
        covered = sum(min(place.stop, window.stop) - max(place.start, window.start) for place in places)
        if covered != len(window):
            raise DescriptionError(command, f"byte {window.start // 8} of the frame is in no field: it is payload")
        return places

    def _set(self, place: _Place, part: _Part, value: int) -> None:
        """Give a field the constant bits of a value."""
        number = part.of(value) | self._base(place) & ~part.bits
        if number != self._base(place):
            variable_field(str(place.ref), self.layers)
            index = place.ref.index_in(self.layers)
            changed = self.layers[index].with_fields(**{place.ref.field: value_text(place.field, number)})
            self.layers = (*self.layers[:index], changed, *self.layers[index + 1 :])

    def _vary(self, place: _Place, part: _Part, add: int, given: Arguments, written: _Variable) -> None:
        """Let a field have the bits of a variable."""
        title = str(place.ref)
        _, field = variable_field(title, self.layers)
        rest = self._base(place) & ~part.bits
        values: Values
        match written.values:
            case SteppedValues(first, step, count):
                values = stepped_values(title, field, rest | part.of(first + add), step << part.move, count)
            case RandomValues(least, most, count) if part.move == 0:
                values = random_values(title, field, rest | part.of(least + add), rest | part.of(most + add), count)
            case RandomValues():
                raise DescriptionError(title, f"{given.command} shifts random values, which is not supported")
            case ListedValues(listed):
                values = listed_values(title, field, [rest | part.of(value + add) for value in listed])
        fields = self._fields.setdefault(given.text("fv_name"), [])
        if fields and isinstance(values, RandomValues):
            raise DescriptionError(title, f"{fields[0].ref} has the same random variable: only one field can have it")
        fields.append(VaryingField(place.ref, values))

    def _base(self, place: _Place) -> int:
        """Return the value of a field in the packet; where it has none, of the networks for benchmarks."""
        layer = self.layers[place.ref.index_in(self.layers)]
        value = layer.value(place.ref.field, _ADDRESSES.get(place.field.kind, 0))
        if isinstance(value, str) and place.field.is_address:
            return address_number(place.field.kind, value)
        return value if isinstance(value, int) else 0

    def _offset(self, given: Arguments) -> int:
        """Return the byte that a command writes first."""
        offset = given.value("pkt_offset")
        fixup = given.number("offset_fixup", 0)
        if isinstance(offset, int):
            return offset + fixup
        layer, _, field = given.text("pkt_offset").partition(".")
        name, _, number = layer.partition(":")
        ref = FieldRef(layer_name(_NAMES.get(name, name)), field, 1 + int(number if number.isdecimal() else 0))
        for place in self._places:
            if place.ref == ref:
                return place.start // 8 + fixup
        if ref.layer == "payload":
            raise DescriptionError(given.text("pkt_offset"), f"{given.command}: the payload is pktgen's header")
        variable_field(str(ref), self.layers)  # raises the error of an unknown layer or field
        raise DescriptionError(str(ref), f"{given.command}: is not in the header")


def _part_of(place: _Place, window: range, end: int) -> _Part:
    """Return the bits that a field has of a value whose lowest bit is the one before bit `end` of the frame.

    Only bits of the frame in `window` are written.
    """
    first, last = max(place.start, window.start), min(place.stop, window.stop)
    low, high = max(end - last, 0), max(end - first, 0)
    below = place.stop - last
    return _Part(low, (1 << (high - low)) - 1, below + max(last - end, 0), ((1 << (last - first)) - 1) << below)


def _places(layers: Sequence[Layer]) -> Iterator[_Place]:
    """Yield the fields of fixed width with their bits from the beginning of the frame."""
    begin = 0
    for layer, ref in zip(layers, references(layers), strict=True):
        at = begin
        for field in spec_of(layer).fields.values():
            if field.bits and field.is_in(layer):
                yield _Place(ref._replace(field=field.name), field, at, at + field.bits)
                at += field.bits
        begin += 8 * layer_bytes(layer)


def _counting(given: Arguments) -> _Variable:
    """Return the variable of STLVmFlowVar."""
    size, step, following = given.number("size", 4), given.number("step", 1), given.text("next_var")
    operation = given.text("op", "inc")
    if operation not in ("inc", "dec", "random"):
        raise DescriptionError(given.command, f"op: {operation!r} is not allowed: inc, dec or random")
    if size not in (1, 2, 4, 8) or step < 1:
        raise DescriptionError(given.command, f"size: {size}, step: {step}: sizes are 1, 2, 4, 8 and steps at least 1")
    if "value_list" in given.values and (values := given.value("value_list")) is not None:
        if not isinstance(values, tuple) or operation == "random":
            raise DescriptionError(given.command, f"value_list: {values!r} is no list for {operation}")
        numbers = [given.as_number("value_list", value) for value in values]
        return _Variable(ListedValues(tuple(numbers if operation == "inc" else numbers[::-1])), size, following)
    least, most = given.number("min_value", 0), given.number("max_value", 255)
    if not 0 <= least <= most < 1 << 8 * size:
        raise DescriptionError(given.command, f"{least} to {most} is no range of {size} bytes")
    if step > 1 and given.number("init_value", least) != least:
        raise DescriptionError(given.command, "init_value other than min_value is not supported with a step")
    if operation == "random":
        return _Variable(RandomValues(least, most, min(most - least + 1, MAX_FLOWS)), size, following)
    count = min((most - least) // step + 1, MAX_FLOWS)
    return _Variable(
        SteppedValues(least, step, count) if operation == "inc" else SteppedValues(most, -step, count), size, following
    )
