"""Frames of described packets, built by scapy in the controller: templates for sources, expectations for sinks.

The payload is pktgen's header (magic, sequence, seconds, microseconds, each 32 bits and big endian: `struct pktgen_hdr`
in the kernel's net/core/pktgen.c), then zeros. Where a checksum covers the payload, 16 bits behind that header keep its
sum constant (RFC 7820, section 3.2).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

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
    SentValue,
    VaryingPlace,
)
from netbench.model.packet import (
    ANY,
    IP_LAYERS,
    TAGS,
    AnyValue,
    FieldRef,
    FieldValue,
    Layer,
    LayerId,
    Layers,
    LayersChange,
    LayerValue,
    ListedValues,
    Packet,
    RandomValues,
    VariedValue,
    VaryingField,
    high_bits,
    layer_ids,
)
from netbench.model.packet_layers import LAYERS
from netbench.model.traffic import PKTGEN_MAGIC, Traffic
from netbench.packets.headers import Addresses, arriving_layers, sent_layers, with_varied_values
from netbench.packets.scapy_layers import field_places, placed_layers, scapy_classes, scapy_packet

_FLOW_PORTS = 1024, 65_535
_ALL_BYTES = 1 << 16  # longer than any frame
_NEXT_SEED = 1_000_003  # each varying field draws its own values
_ADDRESSES = {"IP": (12, 20), "IPv6": (8, 40)}  # bytes of an IP header that pseudo headers contain
_TAG_BYTES, _ETHERNET_BYTES = 4, 14
_MOST_DRAWN = 4096  # random values that are listed: all VLANs
_MOST_OTHER_OFFSETS = 8  # of pktgen's header, that the sink bpf looks at
_ANY_ADDRESSES = Addresses(
    "02:00:00:00:00:01", "02:00:00:00:00:02", "198.18.0.2", "198.19.0.2", "2001:2::2", "2001:2::3"
)


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
    return _Build(_sent(packet, Addresses.of(traffic))).template(packet, traffic.frame_size, traffic.seed)


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
    sent_build = _Build(sent)
    build = _Build(arriving, sent_build)
    free = [place for place, value in build.written() if value is ANY]
    ranges = [(place.at, place.at + place.size) for place in free]
    payload_varies = own_fields or sent_build.complement_at is None
    payload = [(build.payload_at, build.payload_at + PAYLOAD_BYTES)] if payload_varies else []
    unknown = [checksum.at for checksum in build.checksums() if _overlap(checksum.covers, ranges + payload)]
    compared = [
        place for place in build.places() if place not in free and not (place.size == 2 and place.at in unknown)
    ]
    near = build.payload_at + _TAG_BYTES, build.payload_at - _TAG_BYTES
    offsets = dict.fromkeys((sent_build.payload_at, *near, *sent_build.payload_without_tunnel()))
    offsets.pop(build.payload_at, None)
    return ExpectedHeaders(
        template=build.template(packet, traffic.frame_size, traffic.seed),
        compared=tuple(compared),
        ignored=(*ranges, *((at, at + 2) for at in unknown)),
        also_at=tuple(at for at in offsets if at > 0)[:_MOST_OTHER_OFFSETS],
        longer=build.longer,
        varying=sent_build.varying(packet, traffic.seed),
        sent=tuple(build.sent_values(sent_build, packet, traffic)),
        layers=_names(arriving),
        sent_layers=_names(sent),
    )


def _names(layers: Layers) -> str:
    return "/".join(layer.name for layer in layers)


def smallest_frame(packet: Packet) -> int:
    """Return the size of the smallest frame that has room for all headers of a packet, in bytes with FCS."""
    build = _Build(_sent(packet, _ANY_ADDRESSES))
    return max(MIN_FRAME_SIZE, build.header_bytes + FCS_BYTES)


def covered_payload(packet: Packet) -> str:
    """Return the first checksum of a packet that covers its payload, as a field: `UDP.chksum`; empty if none does."""
    build = _Build(_sent(packet, _ANY_ADDRESSES))
    covering = {checksum.at for checksum in build.checksums() if _covers_payload(checksum)}
    return next((place.name for place in build.places() if place.at in covering and place.size == 2), "")


def added_bytes(packet: Packet) -> int:
    """Return by how many bytes `expect` makes frames longer than they were sent; 0 without it."""
    sent = _sent(packet, _ANY_ADDRESSES)
    return _Build(arriving_layers(sent, packet, None), _Build(sent)).longer


def check_varying_fields(packet: Packet, size: FrameSize) -> None:
    """Raise UsageError if more varies in frames of this size than sources can write, or sinks compare."""
    from netbench.packets.flow_values import check_layout  # noqa: PLC0415 - loads numpy

    sent = _sent(packet, _ANY_ADDRESSES)
    sent_build = _Build(sent)
    for build in (sent_build, _Build(arriving_layers(sent, packet, None), sent_build)):
        check_layout(build.template(packet, size, 1))


def check_learned_addresses(packet: Packet, size: FrameSize) -> None:
    """Raise UsageError if bridges would have to learn more addresses than the sink announces in learning frames."""
    from netbench.packets.learning import MOST_LEARNED, combinations, learned_fields  # noqa: PLC0415 - loads numpy

    sent = _sent(packet, _ANY_ADDRESSES)
    template = _Build(arriving_layers(sent, packet, None), _Build(sent)).template(packet, size, 1)
    if (many := combinations(template)) > MOST_LEARNED:
        raise UsageError(
            f"{', '.join(field.name for field in learned_fields(template))}: {many:,} combinations of destination MAC "
            f"address and VLAN, and the sink announces at most {MOST_LEARNED:,} to bridges outside netbench's control, "
            "which flood all other frames; write fewer values"
        )


def _sent(
    packet: Packet, addresses: Addresses, own_fields: Mapping[FieldRef, FieldValue | AnyValue] | None = None
) -> Layers:
    """Return the layers that are sent, with all values of the fields that vary; `own_fields` as in sent_layers."""
    return with_varied_values(sent_layers(packet, addresses, own_fields), packet)


def _with_drawn_values(layers: Layers, seed: int) -> Layers:
    """Return the layers with random values listed in their order, if there are few: a UUT may replace each of them."""
    from netbench.packets.flow_values import values_of  # noqa: PLC0415 - loads numpy

    def drawn(value: LayerValue) -> LayerValue:
        match value:
            case VariedValue(number, RandomValues(count=count) as values) if count <= _MOST_DRAWN:
                numbers = values_of(values, field_seed(seed, number)).tolist()
                return VariedValue(number, ListedValues(tuple(high_bits(values) | low for low in numbers)))
        return value

    return _with_values(layers, drawn)


def _of_first_flow(layers: Layers, seed: int) -> Layers:
    """Return the layers with the values of flow 0 in the fields that vary."""
    from netbench.packets.flow_values import values_of  # noqa: PLC0415 - loads numpy

    def first(value: LayerValue) -> LayerValue:
        if not isinstance(value, VariedValue):
            return value
        number = high_bits(value.values) | int(values_of(value.values, field_seed(seed, value.number))[0])
        return VariedValue(value.number, ListedValues((number,)))

    return _with_values(layers, first)


def _with_values(layers: Layers, change: Callable[[LayerValue], LayerValue]) -> Layers:
    return tuple(Layer(layer.name, tuple((name, change(value)) for name, value in layer.fields)) for layer in layers)


class _Build:
    """The headers of a packet, built by scapy, for frames of any size."""

    def __init__(self, layers: Layers, sent: "_Build | None" = None) -> None:
        """`sent` is the packet of which this one is what arrives: both have the same payload."""
        self._layers = layers
        self._placed = list(placed_layers(scapy_packet(layers), layers))
        last = self._placed[-1]
        self.payload_at = last.at + last.size
        self.longer = self.payload_at - sent.payload_at if sent else 0
        has_complement = sent.complement_at is not None if sent else any(map(_covers_payload, self.checksums()))
        self.complement_at: int | None = self.payload_at + PAYLOAD_BYTES if has_complement else None
        self.header_bytes = self.payload_at + PAYLOAD_BYTES + (COMPLEMENT_BYTES if has_complement else 0)
        if self.header_bytes > MOST_HEADER_BYTES:
            raise UsageError(f"its headers take {self.header_bytes} bytes of a frame: at most {MOST_HEADER_BYTES}")

    def template(self, packet: Packet, frame_size: FrameSize, seed: int) -> FrameTemplate:
        """Return the frames of all sizes, and their varying fields; `seed` is for random values."""
        varying = self.varying(packet, seed)
        of_first_flow = scapy_packet(_of_first_flow(self._layers, seed))
        halves = [(place.at, place.at + place.size) for field in varying if (place := field.place) is not None]
        return FrameTemplate(
            frames={size: self._frame(of_first_flow, size) for size in frame_size.sizes},
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
            name = placed.ref.layer
            if name == "Ether" and outer:
                yield self.payload_at - placed.at
            elif name in IP_LAYERS and outer not in ("", "Ether", *TAGS):
                yield self.payload_at - placed.at + _ETHERNET_BYTES
            outer = name

    def checksums(self) -> Iterator[Checksum]:
        """Yield all checksums of the frame that are not switched off."""
        addresses: tuple[tuple[int, int], ...] = ()
        for placed in self._placed:
            layer, at = placed.layer, placed.at
            if placed.ref.layer in _ADDRESSES:
                start, stop = _ADDRESSES[placed.ref.layer]
                addresses = ((at + start, at + stop),)
            everything = (at, _ALL_BYTES)
            match placed.ref.layer:
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
            yield from field_places(placed)

    def written(self) -> Iterator[tuple[FieldPlace, LayerValue]]:
        """Yield the places of the fields that the layers have, with their values."""
        for placed, layer in zip(self._placed, self._layers, strict=True):
            values = {str(placed.ref._replace(field=name)): value for name, value in layer.fields}
            yield from ((place, values[place.name]) for place in field_places(placed) if place.name in values)

    def sent_values(self, sent: "_Build", packet: Packet, traffic: Traffic) -> Iterator[SentValue]:
        """Yield the values with which the fields of these layers were sent, if the sent packet has them.

        Those of a field with several parts, and numbers that depend on the flow or on the frame size, are left out.
        """
        template = sent.template(packet, traffic.frame_size, traffic.seed)
        free = {place.name for place, value in sent.written() if value is ANY}
        free |= {place.name for place in sent.places() if place.at in {checksum.at for checksum in template.checksums}}
        varying = {field.name: number for number, field in enumerate(template.varying)}
        before = {field: place for field, place in sent._identified() if place.name not in free}
        for field, place in self._identified():
            if (origin := before.get(field)) is None:
                continue
            if origin.name in varying:
                yield SentValue(place.name, None, varying[origin.name])
            elif len(numbers := {origin.number_in(frame) for frame in template.frames.values()}) == 1:
                yield SentValue(place.name, numbers.pop())

    def _identified(self) -> Iterator[tuple[tuple[LayerId, str], FieldPlace]]:
        """Yield each field by the identity of its layer and its name, with its place, if it has one part only."""
        for identity, placed in zip(layer_ids(self._layers), self._placed, strict=True):
            places = list(field_places(placed))
            parts = Counter(place.name for place in places)
            yield from (
                ((identity, place.name.rpartition(".")[2]), place) for place in places if parts[place.name] == 1
            )

    def varying(self, packet: Packet, seed: int) -> tuple[VaryingPlace, ...]:
        """Return all varying fields of a packet, with the values that they have here."""
        here = {value.number: (place, value) for place, value in self.written() if isinstance(value, VariedValue)}
        return tuple(
            VaryingPlace(
                str(field.ref),
                here[number][0] if number in here else None,
                here[number][1].values if number in here else field.values,
                packet.frames_per_value(number),
                LAYERS[field.ref.layer].fields[field.ref.field].kind,
                field_seed(seed, number),
            )
            for number, field in enumerate(packet.vary)
        )

    def _frame(self, packet: Any, size: int) -> bytes:  # noqa: ANN401 - scapy has no types
        """Return the frame for a sent frame of this size in bytes with FCS; `packet` has its headers."""
        room = size - FCS_BYTES + self.longer
        if room < self.header_bytes:
            least = max(MIN_FRAME_SIZE, self.header_bytes - self.longer + FCS_BYTES)
            raise UsageError(f"frames of {size} bytes have no room for its headers; the smallest have {least} bytes")
        payload = PKTGEN_MAGIC.to_bytes(4, "big").ljust(PAYLOAD_BYTES, b"\0")
        if self.complement_at is not None:
            payload += b"\xff\xff"
        return bytes(packet / scapy_classes()["Raw"](payload.ljust(room - self.payload_at, b"\0")))


def field_seed(seed: int, number: int) -> int:
    """Return the seed of the random values of the varying field with this index, from the seed of the trial."""
    return (seed + _NEXT_SEED * number) % 2**32


def _covers_payload(checksum: Checksum) -> bool:
    return any(stop == _ALL_BYTES for _, stop in checksum.covers)


def _overlap(some: Sequence[tuple[int, int]], others: Sequence[tuple[int, int]]) -> bool:
    return any(start < stop_2 and start_2 < stop for start, stop in some for start_2, stop_2 in others)
