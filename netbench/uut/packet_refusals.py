"""The packets that a UUT cannot forward, each with the reason: the layer and the field at fault."""

from collections.abc import Collection, Iterable, Sequence
from ipaddress import ip_address, ip_network

from netbench.model.packet import (
    TUNNEL_PORTS,
    VXLAN_FLAGS,
    FieldRef,
    FieldValue,
    Layers,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
)
from netbench.model.packet_options import Encapsulation, PacketOptions
from netbench.model.paths import StreamPath
from netbench.uut.packet_headers import (
    LAYER_OF,
    ROUTED,
    Address,
    Translation,
    address_of,
    address_runs,
    encapsulated_at,
    is_chosen,
    values_of_field,
)

_LINK_LOCAL = 0x0180C2000000  # and up to …0f: IEEE 802.1Q, table 8-1
# 1 in these ranges is a loopback address, that of no interface, or one of several (RFC 6890).
_NOT_FORWARDED = tuple(map(ip_network, ("0.0.0.0/8", "127.0.0.0/8", "224.0.0.0/3", "::/127", "fe80::/10", "ff00::/8")))


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
            address = address_of(header.name, value)
            if address and any(address in network for network in _NOT_FORWARDED):
                fault = f"a router does not forward packets with the address {address}"
                return f"{header.name}.{field}: {fault}; write another"
    return ""


def own_address_reason(packet: Packet, layers: Layers, paths: Sequence[StreamPath], more: Iterable[str] = ()) -> str:
    """Return which address of a routed packet is one of the router itself, which drops such packets; empty if none is.

    It accepts packets to itself, and Linux drops those from itself as martian (RFC 1812, section 5.3.7). `layers` are
    those of the packet from the routed Ethernet header on. `more` are addresses of the router in addition to those of
    its NICs.
    """
    header = layers[1].name
    names = {"IP": ("ingress_ip", "egress_ip"), "IPv6": ("ingress_ip6", "egress_ip6")}[header]
    own = {ip_address(getattr(path, name)) for path in paths for name in names} | set(map(ip_address, more))
    for field in ("src", "dst"):
        ref = _ref(packet, len(packet.layers) - len(layers) + 1, field)
        if sent := sorted((address for address in own if _is_sent(packet, ref, address)), key=int):
            fault = f"{ref}: {sent[0]} is the UUT's own address; a router does not forward such packets"
            return f"{fault}: {_remedy_for_own(packet, ref, own)}"
    return ""


def _is_sent(packet: Packet, ref: FieldRef, address: Address) -> bool:
    """Return whether frames of a packet have an address in a field; False if only some values of a range are drawn."""
    values, number = next((field.values for field in packet.vary if field.ref == ref), None), int(address)
    match values:
        case SteppedValues(first, step, count):
            return (number - first) % step == 0 and 0 <= (number - first) // step < count
        case RandomValues(least, most, count):
            return least <= number <= most and count == most - least + 1
    return any(address_of(ref.layer, value) == address for value in values_of_field(packet, ref))


def _remedy_for_own(packet: Packet, ref: FieldRef, own: Collection[Address]) -> str:
    """Return how to leave out the router's own addresses of a field that has one."""
    values = next((field.values for field in packet.vary if field.ref == ref), None)
    match values:
        case SteppedValues(first, step, count):
            free = [address_of(ref.layer, first + step * number) for number in range(min(count, len(own) + 1))]
            start = next((address for address in free if address not in own), None)
            return f"start at {start}" if start and free[0] in own else "choose a range without it"
        case RandomValues():
            return "choose a range without it"
        case ListedValues():
            return "take it out of the list"
    return "choose another"


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
        address = address_of("IP", value)
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
        fault = "the UUT forwards only packets inside this header, and the packet lacks it there"
        return f"{LAYER_OF[kind]}: {fault}; send {_terminated_headers(kind, options.id_of(kind))}"
    ref, number = _ref(packet, at, {"vlan": "vlan", "gre": "key"}.get(kind, "vni")), options.id_of(kind)
    default: list[FieldValue | None] = [{"vlan": 1, "gre": None}.get(kind, 0)]  # scapy's
    if not (kind == "geneve" and any_vni) and number not in (list(values_of_field(packet, ref)) or default):
        return f"{ref}: the UUT terminates {_id_text(kind, number)}; send {_id_layer(kind, number)}"
    if kind == "vxlan" and set(values_of_field(packet, _ref(packet, at, "flags"))) - {VXLAN_FLAGS, "Instance"}:
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
