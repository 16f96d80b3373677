"""Headers of packets on their way through a UUT, which changes some of them."""

from collections.abc import Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address
from typing import Literal, NamedTuple

from netbench.model.packet import (
    ANY,
    TUNNEL_PORTS,
    VXLAN_FLAGS,
    AnyValue,
    FieldRef,
    FieldValue,
    Layer,
    Layers,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    Values,
    VariedValue,
)
from netbench.model.packet_options import Encapsulation, PacketOptions
from netbench.model.paths import StreamPath

Address = IPv4Address | IPv6Address

ROUTED = {"IP": "ttl", "IPv6": "hlim"}  # the headers that a router forwards by, and their fields that it lowers
LAYER_OF: dict[Encapsulation, str] = {"vlan": "Dot1Q", "vxlan": "VXLAN", "geneve": "GENEVE", "gre": "GRE"}
USUAL_HOPS = 64  # of scapy, in both fields
_MOST_LISTED = 4096  # values of a varying field that are tried one by one


class Translation(NamedTuple):
    """A translation of addresses: the field of the IP header, and its network before and behind the UUT."""

    field: Literal["src", "dst"]
    before: IPv4Network
    after: IPv4Network

    @property
    def reversed(self) -> "Translation":
        """The translation of the answers."""
        return Translation("dst" if self.field == "src" else "src", self.after, self.before)


TRANSLATIONS = {
    "source": Translation("src", IPv4Network("198.18.0.0/16"), IPv4Network("10.18.0.0/16")),
    "destination": Translation("dst", IPv4Network("198.19.0.0/16"), IPv4Network("10.19.0.0/16")),
}


def without_fields(layer: Layer, *names: str) -> Layer:
    """Return the layer without fields, which thereby have the values that follow from other headers."""
    return Layer(layer.name, tuple((name, value) for name, value in layer.fields if name not in names))


def position_of(layers: Sequence[Layer], name: str) -> int | None:
    """Return the index of the outermost layer with this name; None without one."""
    return next((number for number, layer in enumerate(layers) if layer.name == name), None)


def values_of_field(packet: Packet, ref: FieldRef) -> Iterator[FieldValue]:
    """Yield the values of a field: all that vary if they are few, else first and last; or the fixed one, if given."""
    for field in packet.vary:
        if field.ref == ref:
            yield from _some_of(field.values)
            return
    same = [layer for layer in packet.layers if layer.name == ref.layer]
    value = same[ref.occurrence - 1].value(ref.field) if len(same) >= ref.occurrence else None
    if value is not None and not isinstance(value, AnyValue | VariedValue):
        yield value


def address_runs(packet: Packet, ref: FieldRef) -> Iterator[tuple[int, int, int]]:
    """Yield the MAC addresses of a field that are known in advance: the first one as a number, distance and count."""
    values = next((field.values for field in packet.vary if field.ref == ref), None)
    match values:
        case SteppedValues(first, step, count):
            yield first, step, count
        case ListedValues(listed):
            yield from ((value, 1, 1) for value in listed)
        case None:
            for value in values_of_field(packet, ref):
                yield int(value.replace(":", ""), 16) if isinstance(value, str) else int(str(value)), 1, 1


def is_chosen(packet: Packet, ref: FieldRef) -> bool:
    """Return whether the user has chosen the value of a field, or varies it."""
    return next(values_of_field(packet, ref), None) is not None


def _some_of(values: Values) -> Iterator[int]:
    match values:
        case ListedValues(listed):
            yield from listed
        case SteppedValues(first, step, count):
            numbers = range(count) if count <= _MOST_LISTED else (0, count - 1)
            yield from (first + step * number for number in numbers)
        case RandomValues(least, most, _):
            yield from (least, most)


def address_of(layer: str, value: FieldValue) -> Address | None:
    """Return the value of a field of an IP or IPv6 header as an address; None if it is none."""
    try:
        if isinstance(value, int):
            return IPv4Address(value) if layer == "IP" else IPv6Address(value)
        return ip_address(str(value))
    except ValueError:
        return None  # the reader of packets refuses it


def encapsulated_at(layers: Sequence[Layer], kind: Encapsulation) -> int | None:
    """Return the index of the header that a terminating interface removes last; None without such headers."""
    at = position_of(layers, LAYER_OF[kind])
    if at is None or (kind == "vlan" and at != 1):
        return None
    if port := TUNNEL_PORTS.get(kind):
        outer = layers[at - 1]
        return at if outer.name == "UDP" and outer.value("dport", port) == port else None
    return at


def terminates(layers: Layers, options: PacketOptions) -> bool:
    """Return whether headers have the encapsulation that a kernel terminates."""
    return options.terminate is not None and encapsulated_at(layers, options.terminate) is not None


def without_terminated(layers: Layers, options: PacketOptions) -> Layers:
    """Return the headers inside the encapsulation that a kernel terminates; all of them if they have none."""
    return decapsulated(layers, options.terminate) if options.terminate and terminates(layers, options) else layers


def routed(layers: Layers, path: StreamPath) -> Layers:
    """Return the headers that a router between a path's NICs sends: other MAC addresses, and a hop less."""
    assert path.egress
    ether, header, *rest = layers
    hops = ROUTED[header.name]
    match header.value(hops, USUAL_HOPS):
        case int(before):
            changed = header.with_fields(**{hops: before - 1})
        case VariedValue() as varied:
            changed = header.with_fields(**{hops: varied.plus(-1)})
        case _:
            changed = header.with_fields(**{hops: ANY})
    return (ether.with_fields(src=path.egress.mac, dst=path.sink.mac), changed, *rest)


def translated(layers: Layers, translation: Translation) -> Layers:
    """Return the headers with a translated address, or all its values; ANY where the address is left out."""
    ether, header, *rest = layers
    field, before, after = translation
    difference, value = int(after.network_address) - int(before.network_address), header.value(field)
    if isinstance(value, VariedValue):
        return (ether, header.with_fields(**{field: value.plus(difference)}), *rest)
    address = address_of("IP", value) if isinstance(value, int | str) else None
    changed = ANY if address is None else str(address + difference)
    return (ether, header.with_fields(**{field: changed}), *rest)


def decapsulated(layers: Layers, kind: Encapsulation) -> Layers:
    """Return the headers without an encapsulation: from Ethernet on, which GRE may lack inside."""
    at = encapsulated_at(layers, kind)
    assert at is not None
    if kind == "vlan":
        return (without_fields(layers[0], "type"), *layers[2:])
    inner = layers[at + 1 :]
    return inner if inner and inner[0].name == "Ether" else (Layer("Ether"), *inner)


def retagged(layers: Layers, tags: Mapping[int, int]) -> Layers:
    """Return the headers with another VLAN in the outermost tag; `tags` has the new VLAN of each."""
    ether, tag, *rest = layers
    match tag.value("vlan", 1):
        case int(vlan):
            changed = tag.with_fields(vlan=tags.get(vlan, ANY))
        case VariedValue() as varied:
            changed = tag.with_fields(vlan=varied.replaced(tags))
        case _:
            changed = tag.with_fields(vlan=ANY)
    return (ether, changed, *rest)


class TunnelEnds(NamedTuple):
    """The IPv4 addresses of a tunnel's ends: the UUT's, and that of the other end; the latter is empty for any.

    `is_bare`: it carries IP without Ethernet (GRE only).
    """

    local: str
    remote: str
    is_bare: bool = False


def encapsulated(layers: Layers, options: PacketOptions, path: StreamPath, ends: TunnelEnds) -> Layers:
    """Return the headers in the encapsulation that a UUT originates. The kernel chooses some outer fields: ANY.

    `options` are those for the direction of the path, `ends` those of a tunnel.
    """
    kind = options.originate
    assert kind
    assert path.egress
    number = options.id_of(kind)
    if kind == "vlan":
        return (without_fields(layers[0], "type"), tunnel_header(kind, number), *layers[1:])
    chosen = dict.fromkeys(("tos", "id", "flags", "chksum"), ANY)
    outer = (
        Layer("Ether", (("src", path.egress.mac), ("dst", path.sink.mac))),
        Layer("IP", (("src", ends.local), ("dst", ends.remote), ("ttl", USUAL_HOPS), *chosen.items())),
    )
    header = tunnel_header(kind, number, is_bare=ends.is_bare)
    if kind == "gre":
        return (*outer, header, *layers[1 if ends.is_bare else 0 :])
    udp = Layer("UDP", (("sport", ANY), ("dport", TUNNEL_PORTS[kind]), ("chksum", 0)))
    return (*outer, udp, header, *layers)


def tunnel_header(kind: Encapsulation, number: int | None, *, is_bare: bool = False) -> Layer:
    """Return the header of an encapsulation with its id; `is_bare` GRE carries IP without Ethernet."""
    match kind:
        case "vlan":
            return Layer("Dot1Q", (("vlan", number or 0),))
        case "gre":
            key = () if number is None else (("key_present", 1), ("key", number))
            return Layer("GRE", key if is_bare else (*key, ("proto", 0x6558)))
        case "vxlan":
            return Layer("VXLAN", (("flags", VXLAN_FLAGS), ("vni", number or 0)))
        case "geneve":
            return Layer("GENEVE", (("proto", 0x6558), ("vni", number or 0)))
