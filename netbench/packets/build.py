"""Frames of described packets, built by scapy in the controller: templates for sources, expectations for sinks.

The payload is pktgen's header (magic, sequence, seconds, microseconds, each 32 bits and big endian: `struct pktgen_hdr`
in the kernel's net/core/pktgen.c), then zeros. Where a checksum covers the payload, 16 bits behind that header keep its
sum constant (RFC 7820, section 3.2).
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address
from typing import Any, NamedTuple

from netbench.errors import UsageError
from netbench.model.frame_size import FCS_BYTES, MIN_FRAME_SIZE, FrameSize
from netbench.model.frame_template import (
    COMPLEMENT_BYTES,
    MOST_HEADER_BYTES,
    PAYLOAD_BYTES,
    Checksum,
    ExpectedHeaders,
    FieldPlace,
    FrameTemplate,
    VaryingPlace,
)
from netbench.model.packet import (
    ANY,
    AnyValue,
    FieldRef,
    FieldValue,
    Layer,
    Layers,
    LayersChange,
    LayerValue,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    Values,
    VariedValue,
    VaryingField,
)
from netbench.model.traffic import PKTGEN_MAGIC, Traffic
from netbench.packets.headers import Addresses, arriving_layers, sent_layers, with_varied_values

_FLOW_PORTS = 1024, 65_535
_ALL_BYTES = 1 << 16  # longer than any frame
_LONGEST_FIELD = 16
_NEXT_SEED = 1_000_003  # each varying field draws its own values
_IP_LAYERS = ("IP", "IPv6")
_TAGS = ("Dot1Q", "Dot1AD")
_ADDRESSES = {"IP": (12, 20), "IPv6": (8, 40)}  # bytes of an IP header that pseudo headers contain
_TAG_BYTES, _ETHERNET_BYTES = 4, 14
_MOST_DRAWN = 4096  # random values that are listed: all VLANs
_MOST_OTHER_OFFSETS = 8  # of pktgen's header, that the sink bpf looks at


def packet_of(traffic: Traffic) -> Packet:
    """Return the packet of a trial: the described one, or the plain one.

    The plain packet's ports are random (RFC 4814, section 4) if there are several flows, different in each flow.
    """
    if traffic.packet is not None:
        return traffic.packet
    layers = Layer("Ether"), Layer("IP", (("id", 0),)), Layer("UDP")
    ports = RandomValues(*_FLOW_PORTS, traffic.flows)
    both = (VaryingField(FieldRef("UDP", field), ports) for field in ("sport", "dport"))
    return Packet("", layers, tuple(both) if traffic.flows > 1 else ())


def build_template(traffic: Traffic) -> FrameTemplate:
    """Return the frames of a trial as they are sent; UsageError if a size has no room for the headers."""
    packet = packet_of(traffic)
    return _Build(_sent(packet, Addresses.of(traffic)), traffic.frame_size).template(packet, traffic.seed)


def expected_headers(
    traffic: Traffic,
    at_uut: LayersChange | None = None,
    own_fields: Mapping[FieldRef, FieldValue | AnyValue] | None = None,
) -> ExpectedHeaders:
    """Return the headers that the sink should receive in a trial; `at_uut` returns the layers behind the UUT.

    `own_fields` are as in Source.own_fields. The checksums over fields with any value are free, too. UsageError if a
    size has no room for the headers.
    """
    packet = packet_of(traffic)
    sent = _sent(packet, Addresses.of(traffic), own_fields)
    arriving = arriving_layers(_with_drawn_values(sent, traffic.seed) if at_uut else sent, packet, at_uut)
    sent_build = _Build(sent, traffic.frame_size)
    build = _Build(arriving, traffic.frame_size, sent_build)
    template = build.template(packet, traffic.seed)
    free = [place for place, value in build.written() if value is ANY]
    ranges = [(place.at, place.at + place.size) for place in free]
    varies = own_fields or sent_build.complement_at is None
    payload = [(build.payload_at, build.payload_at + PAYLOAD_BYTES)] if varies else []
    unknown = [checksum.at for checksum in build.checksums() if _overlap(checksum.covers, ranges + payload)]
    compared = [
        place for place in build.places() if place not in free and not (place.size == 2 and place.at in unknown)
    ]
    near = build.payload_at + _TAG_BYTES, build.payload_at - _TAG_BYTES
    offsets = dict.fromkeys((sent_build.payload_at, *near, *sent_build.payload_without_tunnel()), None)
    offsets.pop(build.payload_at, None)
    return ExpectedHeaders(
        template=template,
        compared=tuple(compared),
        ignored=(*ranges, *((at, at + 2) for at in unknown)),
        also_at=tuple(at for at in offsets if at > 0)[:_MOST_OTHER_OFFSETS],
        longer=build.longer,
        varying=sent_build.template(packet, traffic.seed).varying,
    )


def smallest_frame(packet: Packet) -> int:
    """Return the size of the smallest frame that has room for all headers of a packet, in bytes with FCS."""
    build = _Build(_sent(packet, _ANY_ADDRESSES), None)
    return max(MIN_FRAME_SIZE, build.header_bytes + FCS_BYTES)


def covered_payload(packet: Packet) -> str:
    """Return the first checksum of a packet that covers its payload, as a field: `UDP.chksum`; empty if none does."""
    build = _Build(_sent(packet, _ANY_ADDRESSES), None)
    covering = {checksum.at for checksum in build.checksums() if any(stop == _ALL_BYTES for _, stop in checksum.covers)}
    return next((place.name for place in build.places() if place.at in covering and place.size == 2), "")


def added_bytes(packet: Packet) -> int:
    """Return by how many bytes `expect` makes frames longer than they were sent; 0 without it."""
    sent = _sent(packet, _ANY_ADDRESSES)
    return _Build(arriving_layers(sent, packet, None), None, _Build(sent, None)).longer


def check_varying_fields(packet: Packet, size: FrameSize) -> None:
    """Raise UsageError if more varies in frames of this size than sources can write, or sinks compare."""
    from netbench.packets.flow_values import check_layout  # noqa: PLC0415 - loads numpy

    sent = _sent(packet, _ANY_ADDRESSES)
    build = _Build(sent, size)
    for made in (build, _Build(arriving_layers(sent, packet, None), size, build)):
        check_layout(made.template(packet, 1))


_ANY_ADDRESSES = Addresses(
    "02:00:00:00:00:01", "02:00:00:00:00:02", "198.18.0.2", "198.19.0.2", "2001:2::2", "2001:2::3"
)


def _sent(
    packet: Packet, addresses: Addresses, own_fields: Mapping[FieldRef, FieldValue | AnyValue] | None = None
) -> Layers:
    """Return the layers that are sent, with all values of the fields that vary; `own_fields` as in sent_layers."""
    return with_varied_values(sent_layers(packet, addresses, own_fields or {}), packet)


def _with_drawn_values(layers: Layers, seed: int) -> Layers:
    """Return the layers with random values listed in their order, if there are few: a UUT may replace each of them."""
    from netbench.packets.flow_values import values_of  # noqa: PLC0415 - loads numpy

    def drawn(value: LayerValue) -> LayerValue:
        match value:
            case VariedValue(number, RandomValues(count=count) as values) if count <= _MOST_DRAWN:
                numbers = values_of(values, field_seed(seed, number)).tolist()
                high_bits = _high_bits(values)
                return VariedValue(number, ListedValues(tuple(high_bits | each for each in numbers)))
        return value

    return tuple(Layer(layer.name, tuple((name, drawn(value)) for name, value in layer.fields)) for layer in layers)


class _Placed(NamedTuple):
    """A layer of a packet of scapy: its identity, the byte at which it begins, and its own bytes."""

    layer: Any
    name: str
    occurrence: int
    at: int
    size: int


class _Build:
    """One packet of scapy, for frames of every size of a trial."""

    def __init__(self, layers: Layers, frame_size: FrameSize | None, sent: "_Build | None" = None) -> None:
        """`sent` is the packet of which this one is what arrives: both have the same payload."""
        self._layers, self._frame_size = layers, frame_size
        self._placed = list(_placed(_scapy_packet(layers), layers))
        last = self._placed[-1]
        self.payload_at = last.at + last.size
        self.longer = self.payload_at - sent.payload_at if sent else 0
        needs_complement = any(stop == _ALL_BYTES for checksum in self.checksums() for _, stop in checksum.covers)
        if sent:
            needs_complement = sent.complement_at is not None
        self.complement_at: int | None = self.payload_at + PAYLOAD_BYTES if needs_complement else None
        self.header_bytes = self.payload_at + PAYLOAD_BYTES + (COMPLEMENT_BYTES if needs_complement else 0)
        if self.header_bytes > MOST_HEADER_BYTES:
            raise UsageError(f"its headers take {self.header_bytes} bytes of a frame: at most {MOST_HEADER_BYTES}")

    def template(self, packet: Packet, seed: int) -> FrameTemplate:
        """Return the frames of all sizes, and what varies in them; `seed` is for random values."""
        assert self._frame_size is not None
        varying = tuple(self._varying(packet, seed))
        halves = [(place.at, place.at + place.size) for field in varying if (place := field.place) is not None]
        first_flow = _scapy_packet(_of_first_flow(self._layers, seed))
        return FrameTemplate(
            frames={size: self._frame(first_flow, size) for size in self._frame_size.sizes},
            payload_at=self.payload_at,
            flows=packet.flows,
            complement_at=self.complement_at,
            varying=varying,
            checksums=tuple(checksum for checksum in self.checksums() if _overlap(checksum.covers, halves)),
        )

    def payload_without_tunnel(self) -> Iterator[int]:
        """Yield the bytes at which pktgen's header begins if a UUT removes all headers around an inner frame."""
        outer = ""
        for placed in self._placed:
            if placed.name == "Ether" and outer:
                yield self.payload_at - placed.at
            elif placed.name in _IP_LAYERS and outer not in ("", "Ether", *_TAGS):
                yield self.payload_at - placed.at + _ETHERNET_BYTES
            outer = placed.name

    def checksums(self) -> Iterator[Checksum]:
        """Yield all checksums of the frame that are not switched off."""
        addresses: tuple[tuple[int, int], ...] = ()
        for placed in self._placed:
            layer, at = placed.layer, placed.at
            if placed.name in _IP_LAYERS:
                start, stop = _ADDRESSES[placed.name]
                addresses = ((at + start, at + stop),)
            everything = (at, _ALL_BYTES)
            match placed.name:
                case "IP":
                    yield Checksum(at + 10, ((at, at + placed.size),))
                case "UDP" if layer.chksum != 0:
                    yield Checksum(at + 6, (everything, *addresses), is_udp=True)
                case "TCP":
                    yield Checksum(at + 16, (everything, *addresses))
                case "ICMP":
                    yield Checksum(at + 2, (everything,))
                case name if name.startswith("ICMPv6"):
                    yield Checksum(at + 2, (everything, *addresses))
                case "GRE" if layer.chksum_present:
                    yield Checksum(at + 4, (everything,))

    def places(self) -> Iterator[FieldPlace]:
        """Yield the places of all fields, in their order; those longer than 16 bytes in parts."""
        for placed in self._placed:
            prefix = str(FieldRef(placed.name, "", placed.occurrence))
            for name, first_bit, bits in _field_bits(placed.layer):
                yield from _field_places(f"{prefix}{name}", 8 * placed.at + first_bit, bits)

    def written(self) -> Iterator[tuple[FieldPlace, object]]:
        """Yield the places of the fields that the layers have, with their values."""
        by_name: dict[str, list[FieldPlace]] = {}
        for place in self.places():
            by_name.setdefault(place.name, []).append(place)
        for placed, layer in zip(self._placed, self._layers, strict=True):
            for name, value in layer.fields:
                for place in by_name.get(str(FieldRef(placed.name, name, placed.occurrence)), ()):
                    yield place, value

    def _frame(self, packet: Any, size: int) -> bytes:  # noqa: ANN401 - scapy has no types
        """Return the frame of one sent size with the headers of a packet of scapy."""
        room = size - FCS_BYTES + self.longer
        if room < self.header_bytes:
            least = max(MIN_FRAME_SIZE, self.header_bytes - self.longer + FCS_BYTES)
            raise UsageError(f"frames of {size} bytes have no room for its headers; the smallest have {least} bytes")
        payload = PKTGEN_MAGIC.to_bytes(4, "big").ljust(PAYLOAD_BYTES, b"\0")
        if self.complement_at is not None:
            payload += b"\xff\xff"
        return bytes(packet / _raw(payload.ljust(room - self.payload_at, b"\0")))

    def _varying(self, packet: Packet, seed: int) -> Iterator[VaryingPlace]:
        """Yield all varying fields, with the values that they have in this packet."""
        found: dict[int, tuple[FieldPlace, VariedValue]] = {}
        for place, value in self.written():
            if isinstance(value, VariedValue):
                found[value.number] = place, value
        for number, field in enumerate(packet.vary):
            here = found.get(number)
            yield VaryingPlace(
                str(field.ref),
                here[0] if here else None,
                here[1].values if here else field.values,
                packet.frames_per_value(number),
                _kind(field.ref),
                field_seed(seed, number),
            )


def field_seed(seed: int, number: int) -> int:
    """Return the seed of the random values of the varying field with this index, from the seed of the trial."""
    return (seed + _NEXT_SEED * number) % 2**32


def _high_bits(values: Values) -> int:
    """Return the bits of all values of a field above the low 64, in which they do not differ."""
    match values:
        case SteppedValues(first=one) | RandomValues(least=one):
            return one >> 64 << 64
        case ListedValues(values=(one, *_)):
            return one >> 64 << 64
    return 0


def _kind(ref: FieldRef) -> str:
    if ref.field in ("src", "dst"):
        return {"Ether": "MAC", "IP": "IPv4", "IPv6": "IPv6"}.get(ref.layer, "number")
    return "number"


def _overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(start < stop_2 and start_2 < stop for start, stop in some for start_2, stop_2 in others)


def _of_first_flow(layers: Layers, seed: int) -> Layers:
    """Return the layers with the values of flow 0 in the fields that vary."""
    from netbench.packets.flow_values import values_of  # noqa: PLC0415 - loads numpy

    def first(value: LayerValue) -> LayerValue:
        if not isinstance(value, VariedValue):
            return value
        number = _high_bits(value.values) | int(values_of(value.values, field_seed(seed, value.number))[0])
        return VariedValue(value.number, ListedValues((number,)))

    return tuple(Layer(layer.name, tuple((name, first(value)) for name, value in layer.fields)) for layer in layers)


def _field_places(name: str, first_bit: int, bits: int) -> Iterator[FieldPlace]:
    """Yield the place of a field; a longer one than 16 bytes in parts."""
    while bits > 0:
        at, within = divmod(first_bit, 8)
        part = min(bits, 8 * _LONGEST_FIELD - within)
        size = (within + part + 7) // 8
        yield FieldPlace(name, at, size, ((1 << part) - 1) << (8 * size - within - part))
        first_bit, bits = first_bit + part, bits - part


def _field_bits(layer: Any) -> Iterator[tuple[str, int, int]]:  # noqa: ANN401 - scapy has no types
    """Yield the fields of a layer of scapy: name, first bit in the layer, and number of bits; those present only."""
    built: Any = b""
    for field in layer.fields_desc:
        before = _bits(built)
        built = field.addfield(layer, built, layer.getfieldval(field.name))
        if _bits(built) > before:
            yield field.name, before, _bits(built) - before


def _bits(built: Any) -> int:  # noqa: ANN401 - scapy's bit fields pass on (bytes, bits of the next byte, its value)
    if isinstance(built, tuple):
        return 8 * len(built[0]) + int(built[1])
    return 8 * len(built)


def _placed(packet: Any, layers: Layers) -> Iterator[_Placed]:  # noqa: ANN401 - scapy has no types
    """Yield the layers of a packet of scapy, with their places."""
    at, seen = 0, dict.fromkeys((layer.name for layer in layers), 0)
    layer = packet
    for described in layers:
        seen[described.name] += 1
        size = len(layer) - len(layer.payload)
        yield _Placed(layer, described.name, seen[described.name], at, size)
        at, layer = at + size, layer.payload


def _scapy_packet(layers: Layers) -> Any:  # noqa: ANN401 - scapy has no types
    """Return scapy's packet of these layers; fields with any value have scapy's default, those that vary one value."""
    classes = scapy_classes()
    packet: Any = None
    for layer in layers:
        fields = {
            name: _scapy_value(FieldRef(layer.name, name), value) for name, value in layer.fields if value is not ANY
        }
        built = classes[layer.name](**fields)
        packet = built if packet is None else packet / built
    return packet


def _scapy_value(ref: FieldRef, value: LayerValue) -> object:
    """Return a value of a field as scapy's: lists instead of tuples at the outside, and addresses as text."""
    match value:
        case VariedValue(values=SteppedValues(first=number) | RandomValues(least=number)):
            return _scapy_number(ref, number)
        case VariedValue(values=ListedValues(values=(number, *_))):
            return _scapy_number(ref, number)
        case tuple():
            return list(value)
    return value


def _scapy_number(ref: FieldRef, number: int) -> int | str:
    """Return a number as scapy's value of a field: text for addresses."""
    match _kind(ref):
        case "MAC":
            return number.to_bytes(6, "big").hex(":")
        case "IPv4":
            return str(IPv4Address(number))
        case "IPv6":
            return str(IPv6Address(number))
    return number


def _raw(payload: bytes) -> Any:  # noqa: ANN401 - scapy has no types
    return scapy_classes()["Raw"](payload)


@lru_cache(maxsize=1)
def scapy_classes() -> Mapping[str, Any]:
    """Return scapy's classes of all layers by name. The first call takes a moment: make it before a trial starts."""
    logging.getLogger("scapy").setLevel(logging.ERROR)
    from scapy.contrib import geneve, gtp, mpls  # noqa: PLC0415 - only the controller has scapy
    from scapy.layers import inet, inet6, l2, vxlan  # noqa: PLC0415
    from scapy.packet import Packet as ScapyPacket  # noqa: PLC0415
    from scapy.packet import Raw  # noqa: PLC0415

    found: dict[str, Any] = {"Raw": Raw}
    for module in (l2, inet, inet6, vxlan, mpls, geneve, gtp):
        for name, value in vars(module).items():
            if isinstance(value, type) and issubclass(value, ScapyPacket) and value.__module__ == module.__name__:
                found.setdefault(name, value)
    return found
