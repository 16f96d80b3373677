"""Headers and their fields as data: widths, kinds of values, and uses."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from netbench.model.packet import Layer

Kind = Literal["number", "flags", "MAC", "IPv4", "IPv6", "bytes", "IPv6 list", "TCP options"]
# `free` fields may vary from frame to frame; `fixed` ones have one value in all frames. `computed` ones are lengths and
# checksums; `next` ones are the type of the following header, which is computed, too.
Use = Literal["free", "fixed", "computed", "next"]
_ADDRESS_BITS = {"MAC": 48, "IPv4": 32, "IPv6": 128}
MOST_VLAN = 4094  # IEEE 802.1Q, table 9-2: 4095 is reserved
# The low bits in which the values of a varying field may differ.
VARYING_BITS = {"number": 32, "flags": 16, "MAC": 32, "IPv4": 32, "IPv6": 64}


@dataclass(frozen=True, slots=True)
class FieldSpec:
    """A field: its width in bits (0 for one without a fixed width), the kind of its values, and its use.

    `allowed` are the only possible numbers, if not all, or `most` is the largest one, for the given `reason`. `flags`
    are the names of bits from the lowest on. `needs` is the field that must be 1 for this one to be in the header.
    """

    name: str
    bits: int
    kind: Kind = "number"
    use: Use = "free"
    allowed: tuple[int, ...] = ()
    reason: str = ""
    flags: tuple[str, ...] = ()
    needs: str = ""
    most: int | None = None

    @property
    def varies(self) -> bool:
        """Whether the field may change from frame to frame."""
        return self.use == "free" and self.bits > 0 and not self.allowed

    @property
    def is_address(self) -> bool:
        """Whether its values are addresses."""
        return self.kind in _ADDRESS_BITS

    @property
    def takes_list(self) -> bool:
        """Whether its value is a list."""
        return self.kind in ("IPv6 list", "TCP options")

    @property
    def largest(self) -> int:
        """The largest possible number."""
        return (1 << self.bits) - 1 if self.most is None else self.most

    def is_in(self, layer: Layer) -> bool:
        """Return whether the field is in the header of this layer."""
        return not self.needs or layer.value(self.needs) == 1


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


def by_name(*specs: FieldSpec) -> dict[str, FieldSpec]:
    """Return fields by name."""
    return {spec.name: spec for spec in specs}


def number_field(name: str, bits: int, needs: str = "") -> FieldSpec:
    """Return a field that may vary; with `needs`, it is in the header only if that field is 1."""
    return FieldSpec(name, bits, needs=needs)


def fixed_field(name: str, bits: int, *allowed: int, reason: str = "") -> FieldSpec:
    """Return a field with one value in all frames, one of `allowed` if there are any."""
    return FieldSpec(name, bits, use="fixed", allowed=allowed, reason=reason)


def address_field(name: str, kind: Kind) -> FieldSpec:
    """Return a field with addresses."""
    return FieldSpec(name, _ADDRESS_BITS[kind], kind)


def flags_field(name: str, bits: int, *names: str) -> FieldSpec:
    """Return a field of flags, by the names of its bits from the lowest on."""
    return FieldSpec(name, bits, "flags", "fixed", flags=names)


def next_field(name: str, bits: int) -> FieldSpec:
    """Return the type of the following header."""
    return FieldSpec(name, bits, use="next")


def computed_field(name: str, bits: int) -> FieldSpec:
    """Return a length or checksum."""
    return FieldSpec(name, bits, use="computed")
