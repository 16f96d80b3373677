"""Headers of packets on their way through a UUT: those it cannot forward, and those that it changes."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, ip_address, ip_network
from typing import Literal, NamedTuple

from netbench.model.packet import (
    ANY,
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

PLAIN = Packet("", (Layer("Ether"), Layer("IP"), Layer("UDP")))
ROUTED = {"IP": "ttl", "IPv6": "hlim"}  # the headers that a router forwards by, and their fields that it lowers
LAYER_OF: dict[Encapsulation, str] = {"vlan": "Dot1Q", "vxlan": "VXLAN", "geneve": "GENEVE", "gre": "GRE"}
TUNNEL_PORTS = {"vxlan": 4789, "geneve": 6081}  # RFC 7348, section 5; RFC 8926, section 3.3
_VXLAN_FLAGS = 0x08  # RFC 7348, section 5
_USUAL_HOPS = 64  # of scapy, in both fields
_MOST_LISTED = 4096  # values of a varying field that are tried one by one
_LINK_LOCAL = 0x0180C2000000  # and up to …0f: IEEE 802.1Q, table 8-1
# 1 in these ranges is a loopback address, that of no interface, or one of several (RFC 6890).
_NOT_FORWARDED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8")))


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


def unroutable_reason(packet: Packet, layers: Layers) -> str:
    """Return why a router cannot forward these headers of a packet, with layer and field; empty if it can.

    `layers` are those of the packet from one of its Ethernet headers on.
    """
    if layers[0].name != "Ether":
        return f"{layers[0].name}: a router expects Ether as the outermost header"
    if len(layers) < 2:
        return "Ether: a router forwards only IP and IPv6, and no header follows; add IP() or IPv6()"
    header = layers[1]
    if header.name not in ROUTED:
        remedy = ", or terminate: vlan" if header.name == "Dot1Q" and layers == packet.layers else ""
        return f"{header.name}: a router forwards only IP and IPv6 behind Ether; use forward: bridge{remedy}"
    skipped = len(packet.layers) - len(layers)
    if is_chosen(packet, _ref(packet, skipped, "dst")):
        return "Ether.dst: a router accepts only frames to its own address; leave the field out"
    of_header = skipped + 1
    hops = ROUTED[header.name]
    if any(isinstance(value, int) and value < 2 for value in values_of_field(packet, _ref(packet, of_header, hops))):
        return f"{header.name}.{hops}: a router drops packets with less than 2; write 2 or more"
    if header.name == "IP" and is_chosen(packet, _ref(packet, of_header, "chksum")):
        return "IP.chksum: a router drops packets whose header checksum is wrong; leave the field out"
    for field in ("src", "dst"):
        for value in values_of_field(packet, _ref(packet, of_header, field)):
            address = _address(header.name, value)
            if address and any(address in network for network in _NOT_FORWARDED):
                fault = f"a router does not forward packets with the address {address}"
                return f"{header.name}.{field}: {fault}; write another"
    return ""


def own_address_reason(packet: Packet, layers: Layers, paths: Sequence[StreamPath], more: Iterable[str] = ()) -> str:
    """Return which destination of a routed packet is an address of the router itself, and so not forwarded; or empty.

    `layers` are those of the packet from the routed Ethernet header on. `more` are addresses of the router in addition
    to those of its NICs.
    """
    header = layers[1].name
    own = {"IP": ("ingress_ip", "egress_ip"), "IPv6": ("ingress_ip6", "egress_ip6")}[header]
    addresses = {ip_address(getattr(path, name)) for path in paths for name in own} | set(map(ip_address, more))
    ref = _ref(packet, len(packet.layers) - len(layers) + 1, "dst")
    for value in values_of_field(packet, ref):
        if (address := _address(header, value)) in addresses:
            return f"{ref}: {address} is the UUT's own address, and it forwards no such packets; choose another"
    return ""


def unbridgeable_reason(packet: Packet) -> str:
    """Return why a bridge drops a packet for its MAC addresses (IEEE 802.1Q, 8.6.3 and 8.8); empty if it does not."""
    for first, step, count in address_runs(packet, FieldRef("Ether", "src")):
        for mac in (first, first + step * (count - 1)):
            if mac >> 40 & 1 or not mac:
                return f"Ether.src: a bridge drops frames from {_mac_text(mac)}; choose the address of one station"
    for first, step, count in address_runs(packet, FieldRef("Ether", "dst")):
        for mac in (first, first + step * (count - 1)):
            if mac >> 4 == _LINK_LOCAL >> 4:
                return f"Ether.dst: a bridge does not forward frames to {_mac_text(mac)}; choose another address"
    return ""


def _mac_text(mac: int) -> str:
    return mac.to_bytes(6, "big").hex(":")


def _ref(packet: Packet, position: int, field: str) -> FieldRef:
    """Return a field of the layer at a position of the packet."""
    name = packet.layers[position].name
    return FieldRef(name, field, sum(layer.name == name for layer in packet.layers[: position + 1]))


def _address(layer: str, value: FieldValue) -> Address | None:
    try:
        if isinstance(value, int):
            return IPv4Address(value) if layer == "IP" else IPv6Address(value)
        return ip_address(str(value))
    except ValueError:
        return None  # the reader of packets refuses it


def unfiltered_reason(packet: Packet, vlans: Sequence[int]) -> str:
    """Return why none of a packet's frames passes a bridge that carries only these VLANs; empty if some do."""
    listed = ", ".join(map(str, vlans))
    if len(packet.layers) < 2 or packet.layers[1].name != "Dot1Q":
        fault = f"the bridge carries only VLANs {listed}, and the packet has no 802.1Q tag behind Ether"
        return f"Dot1Q: {fault}; send Ether()/Dot1Q(vlan={vlans[0]})/…"
    tags = list(values_of_field(packet, FieldRef("Dot1Q", "vlan"))) or [1]  # scapy's default
    spans = [field.values for field in packet.vary if field.ref == FieldRef("Dot1Q", "vlan")]
    if any(isinstance(span, RandomValues) for span in spans) or set(tags) & set(vlans):
        return ""
    return f"Dot1Q.vlan: the bridge carries only VLANs {listed}; send Dot1Q(vlan={vlans[0]})"


def untranslatable_reason(packet: Packet, layers: Layers, translation: Translation) -> str:
    """Return why NAT cannot translate these headers of a packet, with layer and field; empty if it can."""
    if layers[1].name != "IP":
        return f"{layers[1].name}: the UUT translates addresses of IP (NAT44); send Ether()/IP()/…, or leave nat out"
    field, network, _ = translation
    for value in values_of_field(packet, _ref(packet, len(packet.layers) - len(layers) + 1, field)):
        address = _address("IP", value)
        if address and address not in network:
            fault = f"the UUT translates addresses of {network}, and {address} is not one of them"
            return f"IP.{field}: {fault}; send one of them, or leave the field out"
    return ""


def unterminated_reason(packet: Packet, options: PacketOptions, *, any_vni: bool) -> str:
    """Return why the UUT does not remove the encapsulation that it terminates from a packet; empty if it does.

    `any_vni`: its GENEVE interface accepts any VNI, because it has no other end.
    """
    kind = options.terminate
    assert kind
    at = encapsulated_at(packet.layers, kind)
    if at is None:
        fault = "the UUT forwards only what this header encapsulates, and the packet has none there"
        return f"{LAYER_OF[kind]}: {fault}; send {_terminated_headers(kind, options.id_of(kind))}"
    ref, number = _ref(packet, at, {"vlan": "vlan", "gre": "key"}.get(kind, "vni")), options.id_of(kind)
    default: list[FieldValue | None] = [{"vlan": 1, "gre": None}.get(kind, 0)]  # scapy's
    if not (kind == "geneve" and any_vni) and number not in (list(values_of_field(packet, ref)) or default):
        return f"{ref}: the UUT terminates {_id_text(kind, number)}; send {_id_layer(kind, number)}"
    if kind == "vxlan" and set(values_of_field(packet, _ref(packet, at, "flags"))) - {_VXLAN_FLAGS, "Instance"}:
        return (
            f"{LAYER_OF[kind]}.flags: the UUT drops VXLAN with other flags than 8 (RFC 7348, section 5); leave it out"
        )
    if kind != "vlan" and packet.layers[1].name != "IP":
        return f"{packet.layers[1].name}: the UUT terminates tunnels over IP that follows Ether; send Ether()/IP()/…"
    return ""


def _id_text(kind: Encapsulation, number: int | None) -> str:
    """Return an encapsulation with its id in words."""
    if kind == "gre":
        return "GRE without a key" if number is None else f"GRE with key {number}"
    return f"{'VLAN' if kind == 'vlan' else 'VNI'} {number}"


def _id_layer(kind: Encapsulation, number: int | None) -> str:
    """Return the header of an encapsulation with its id, in scapy's notation."""
    if kind == "gre":
        return "GRE()" if number is None else f"GRE(key_present=1, key={number})"
    return f"{LAYER_OF[kind]}({'vlan' if kind == 'vlan' else 'vni'}={number})"


def _terminated_headers(kind: Encapsulation, number: int | None) -> str:
    """Return the headers up to that of an encapsulation, in scapy's notation."""
    port = TUNNEL_PORTS.get(kind)
    outer = {"vlan": "", "gre": "IP()/"}.get(kind, f"IP()/UDP(dport={port})/")
    return f"Ether()/{outer}{_id_layer(kind, number)}/…"


def routed(layers: Layers, path: StreamPath) -> Layers:
    """Return the headers that a router between a path's NICs sends: other MAC addresses, and a hop less."""
    assert path.egress
    ether, header, *rest = layers
    hops = ROUTED[header.name]
    match header.value(hops, _USUAL_HOPS):
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
    address = _address("IP", value) if isinstance(value, int | str) else None
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
        Layer("IP", (("src", ends.local), ("dst", ends.remote), ("ttl", _USUAL_HOPS), *chosen.items())),
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
            return Layer("VXLAN", (("flags", _VXLAN_FLAGS), ("vni", number or 0)))
        case "geneve":
            return Layer("GENEVE", (("proto", 0x6558), ("vni", number or 0)))
