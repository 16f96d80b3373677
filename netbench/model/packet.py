"""Packets: the headers of a stream's frames, the fields that vary from frame to frame, and the packet at the sink.

Headers are described in scapy's notation. Layers and fields have scapy's names. This module has only data: it is
loaded on other hosts, too.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod
from typing import NamedTuple, Self

MAX_FLOWS = 1 << 20
MAX_VARYING_FIELDS = 16
TAGS = ("Dot1Q", "Dot1AD")  # layers with a VLAN id
IP_LAYERS = ("IP", "IPv6")
TUNNEL_PORTS = {"vxlan": 4789, "geneve": 6081}  # of UDP: RFC 7348, section 5; RFC 8926, section 3.3
VXLAN_FLAGS = 0x08  # the VNI is valid (RFC 7348, section 5)
_USUAL_VLAN = 1  # scapy's default
_OPPOSITE = {"src": "dst", "dst": "src", "sport": "dport", "dport": "sport"}
_TUNNELS = ("VXLAN", "GENEVE", "GTP_U_Header", "MPLS")  # whose UDP ports have fixed roles in either direction
# A literal of the notation: a number, text (an address), bytes, or a list of literals (TCP options). None is the
# computed value of a checksum.
FieldValue = int | str | bytes | tuple["FieldValue", ...] | None


@dataclass(frozen=True, slots=True)
class AnyValue:
    """The value of a field that is not compared at the sink, written `any` in `expect`."""


ANY = AnyValue()


@dataclass(frozen=True, slots=True)
class SteppedValues:
    """`count` values from `first` on, `step` apart. Addresses are numbers."""

    first: int
    step: int
    count: int


@dataclass(frozen=True, slots=True)
class RandomValues:
    """`count` different values from `least` to `most`, in an order that the seed of the profile determines."""

    least: int
    most: int
    count: int


@dataclass(frozen=True, slots=True)
class ListedValues:
    """Values in the order of a list."""

    values: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of values."""
        return len(self.values)


Values = SteppedValues | RandomValues | ListedValues


def first_value(values: Values) -> int:
    """Return the first value of a field; the least of random ones."""
    match values:
        case SteppedValues(first=value) | RandomValues(least=value) | ListedValues(values=(value, *_)):
            return value
    raise ValueError("a field without values")


def high_bits(values: Values) -> int:
    """Return the bits above the low 64 of the values of a field: they are the same in all of them."""
    return first_value(values) >> 64 << 64


@dataclass(frozen=True, slots=True)
class VariedValue:
    """The values of a varying field at one point of the path: those of entry `number` of `vary`, in the same order.

    As sent, they are the values in `vary`. A UUT changes each of them in the same way.
    """

    number: int
    values: Values

    def plus(self, difference: int) -> "VariedValue":
        """Return the values, each with a number added to it."""
        match self.values:
            case SteppedValues(first, step, count):
                changed: Values = SteppedValues(first + difference, step, count)
            case RandomValues(least, most, count):  # the order depends on the width of the range, not on its beginning
                changed = RandomValues(least + difference, most + difference, count)
            case ListedValues(values):
                changed = ListedValues(tuple(value + difference for value in values))
        return replace(self, values=changed)

    def replaced(self, replacements: Mapping[int, int]) -> "VariedValue | AnyValue":
        """Return the values, each replaced by another one if there is one for it; ANY for those in a random order."""
        match self.values:
            case SteppedValues(first, step, count):
                values = tuple(first + step * number for number in range(count))
            case ListedValues(values):
                pass
            case RandomValues():
                return ANY
        return replace(self, values=ListedValues(tuple(replacements.get(value, value) for value in values)))


LayerValue = FieldValue | AnyValue | VariedValue


@dataclass(frozen=True, slots=True)
class Layer:
    """One header: its name in scapy (`IPv6`), and its fields in the order in which they are written."""

    name: str
    fields: tuple[tuple[str, LayerValue], ...] = ()

    def value(self, field: str, default: LayerValue = None) -> LayerValue:
        """Return the value of a field; `default` if the description leaves it out."""
        return dict(self.fields).get(field, default)

    def with_fields(self, **values: LayerValue) -> "Layer":
        """Return the layer with other values of fields; new fields follow the existing ones."""
        return Layer(self.name, tuple((dict(self.fields) | values).items()))

    def with_defaults(self, **values: LayerValue) -> "Layer":
        """Return the layer with these values of the fields that it leaves out."""
        return Layer(self.name, tuple((values | dict(self.fields)).items()))


Layers = tuple[Layer, ...]
LayersChange = Callable[[Layers], Layers]


class LayerId(NamedTuple):
    """A layer of a packet: its name, and how many layers of that name are inside it."""

    name: str
    inside: int


def layer_ids(layers: Layers) -> list[LayerId]:
    """Return the identities of all layers, in their order.

    Layers of two packets belong together if their identities are equal: the innermost IP header of one is that of the
    other, whatever is around it.
    """
    ids: list[LayerId] = []
    seen: Counter[str] = Counter()
    for layer in reversed(layers):
        ids.insert(0, LayerId(layer.name, seen[layer.name]))
        seen[layer.name] += 1
    return ids


class FieldRef(NamedTuple):
    """A field of a packet: `IP.src` is that of the outermost IP header, `IP:2.src` that of the next one inside."""

    layer: str
    field: str
    occurrence: int = 1

    def __str__(self) -> str:
        return f"{self.layer}{f':{self.occurrence}' if self.occurrence > 1 else ''}.{self.field}"

    def index_in(self, layers: Sequence[Layer]) -> int:
        """Return the index of the layer that has the field; ValueError if there are fewer such layers."""
        return references(layers).index(self._replace(field=""))


def references(layers: Sequence[Layer]) -> list[FieldRef]:
    """Return a reference to each layer, with an empty field."""
    seen: Counter[str] = Counter()
    found = []
    for layer in layers:
        seen[layer.name] += 1
        found.append(FieldRef(layer.name, "", seen[layer.name]))
    return found


@dataclass(frozen=True, slots=True)
class VaryingField:
    """A field that changes from frame to frame, and its values, which it takes in turn."""

    ref: FieldRef
    values: Values


@dataclass(frozen=True, slots=True)
class Packet:
    """The headers of a stream's frames, from Ethernet to the last header before pktgen's, which is the payload.

    Independent fields all take their next value at each frame. Combined fields go through all combinations: the first
    one changes at each frame, the next one whenever the first one starts again. `expect` are the headers at the sink,
    None if the UUT changes only the fields that it is configured to change. `name` is the packet's name
    in results.
    """

    name: str
    layers: tuple[Layer, ...]
    vary: tuple[VaryingField, ...] = ()
    combined: bool = False
    expect: tuple[Layer, ...] | None = None

    @property
    def combinations(self) -> int:
        """The number of frames after which all fields have their first values again."""
        counts = [field.values.count for field in self.vary]
        return prod(counts) if self.combined else lcm(*counts)

    @property
    def flows(self) -> int:
        """The number of flows: all combinations of values, at most MAX_FLOWS, after which the first one follows."""
        return min(self.combinations, MAX_FLOWS)

    @property
    def headers(self) -> str:
        """The names of its layers, the outermost first: `Ether/Dot1Q/IP/UDP`."""
        return "/".join(layer.name for layer in self.layers)

    @property
    def summary(self) -> str:
        """The packet in one line: `Ether/Dot1Q/IP/UDP, 1,000 flows by UDP.sport`."""
        of_all = f" of {self.combinations:,}" if self.combinations > MAX_FLOWS else ""
        many = f"{self.flows:,}{of_all} flow{'' if self.flows == 1 else 's'}"
        return f"{self.headers}, {many}" + (
            f" by {', '.join(str(field.ref) for field in self.vary)}" if self.vary else ""
        )

    @property
    def vlan_ids(self) -> tuple[int, ...]:
        """The VLAN ids of its tags, the outermost first; empty without tags, or if an id varies."""
        if any(field.ref.layer in TAGS and field.ref.field == "vlan" for field in self.vary):
            return ()
        ids = [layer.value("vlan", _USUAL_VLAN) for layer in self.layers if layer.name in TAGS]
        return tuple(number for number in ids if isinstance(number, int))

    @property
    def mirrored(self) -> Self:
        """The packet in the other direction: source and destination of each header are exchanged, as in an answer.

        These are addresses, and ports of UDP and TCP; those of a UDP header in front of a tunnel stay.
        """
        return replace(
            self,
            layers=_mirrored(self.layers),
            vary=tuple(replace(field, ref=self._mirrored_ref(field.ref)) for field in self.vary),
            expect=None if self.expect is None else _mirrored(self.expect),
        )

    def _mirrored_ref(self, ref: FieldRef) -> FieldRef:
        """Return the field that has the values of `ref` in the mirrored packet."""
        stays = _is_tunnel_port(self.layers, ref.index_in(self.layers))
        return ref if stays else ref._replace(field=_OPPOSITE.get(ref.field, ref.field))

    def frames_per_value(self, number: int) -> int:
        """Return after how many frames the field with this index in `vary` takes its next value."""
        return prod(field.values.count for field in self.vary[:number]) if self.combined else 1


def _mirrored(layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Return headers with source and destination of each exchanged."""
    return tuple(
        layer
        if _is_tunnel_port(layers, number)
        else replace(layer, fields=tuple((_OPPOSITE.get(name, name), value) for name, value in layer.fields))
        for number, layer in enumerate(layers)
    )


def _is_tunnel_port(layers: tuple[Layer, ...], number: int) -> bool:
    """Return whether a header is the UDP header of a tunnel."""
    return layers[number].name == "UDP" and number + 1 < len(layers) and layers[number + 1].name in _TUNNELS


PLAIN_PACKET = Packet("", (Layer("Ether"), Layer("IP"), Layer("UDP")))  # the headers of frames without a description
