"""The headers of a packet as they are sent, and as they should arrive: layers with all their addresses."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from netbench.model.packet import (
    ANY,
    IP_LAYERS,
    VXLAN_FLAGS,
    AnyValue,
    FieldRef,
    FieldValue,
    Layers,
    LayersChange,
    LayerValue,
    Packet,
    VariedValue,
    layer_ids,
)
from netbench.model.traffic import DISCARD_PORT, Traffic


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of layers that have none: those of a stream in one trial, as text."""

    src_mac: str
    dst_mac: str
    src_ip: str
    dst_ip: str
    src_ip6: str
    dst_ip6: str

    @classmethod
    def of(cls, traffic: Traffic) -> "Addresses":
        """Return the addresses of a trial."""
        names = cls.__slots__
        return cls(**{name: getattr(traffic, name) for name in names})

    def of_layer(self, name: str) -> dict[str, str]:
        """Return source and destination of a layer of this name; empty if it has none."""
        by_layer = {
            "Ether": (self.src_mac, self.dst_mac),
            "IP": (self.src_ip, self.dst_ip),
            "IPv6": (self.src_ip6, self.dst_ip6),
        }
        return dict(zip(("src", "dst"), by_layer[name], strict=True)) if name in by_layer else {}


def sent_layers(
    packet: Packet, addresses: Addresses, own_fields: Mapping[FieldRef, FieldValue | AnyValue] | None = None
) -> Layers:
    """Return the layers that are sent, with the fields that netbench sets where the description has none.

    These are addresses, `own_fields` (as in Source.own_fields) and, as in pktgen, the discard port and no checksum for
    UDP over IPv4 (RFC 768). UDP over IPv6 has a checksum (RFC 8200, section 8.1). VXLAN is that of RFC 7348, not GPE as
    scapy's with Ethernet inside, which kernels drop. The label stack of MPLS ends at its last label (RFC 3032).
    """
    layers = []
    for number, layer in enumerate(packet.layers):
        inner = packet.layers[number + 1 :]
        defaults: dict[str, LayerValue] = {**addresses.of_layer(layer.name)}
        defaults |= {ref.field: value for ref, value in (own_fields or {}).items() if ref.layer == layer.name}
        if layer.name == "UDP":
            if _ip_around(packet.layers, number) == "IP":
                defaults["chksum"] = 0
            if not inner:
                defaults |= {"sport": DISCARD_PORT, "dport": DISCARD_PORT}
        if layer.name == "VXLAN":
            defaults["flags"] = VXLAN_FLAGS
        if layer.name == "MPLS" and inner and inner[0].name == "MPLS":
            defaults["s"] = 0
        layers.append(layer.with_defaults(**defaults))
    return tuple(layers)


def with_varied_values(sent: Layers, packet: Packet) -> Layers:
    """Return the layers that are sent, with all values of the fields that vary."""
    varied: defaultdict[int, dict[str, LayerValue]] = defaultdict(dict)
    for number, field in enumerate(packet.vary):
        varied[field.ref.index_in(sent)][field.ref.field] = VariedValue(number, field.values)
    return tuple(layer.with_fields(**varied[index]) for index, layer in enumerate(sent))


def arriving_layers(sent: Layers, packet: Packet, at_uut: LayersChange | None) -> Layers:
    """Return the layers that should arrive at the sink, with all values of the fields that vary there.

    They are those that the UUT makes of the sent ones. If the user describes them (`expect`), fields that this
    description leaves out are those of the same layer behind the UUT. Addresses of a header that only `expect` has are
    free.
    """
    expect = packet.expect
    forwarded = sent if at_uut is None else at_uut(sent)
    if expect is None:
        return forwarded
    known = dict(zip(layer_ids(forwarded), forwarded, strict=True))
    arriving = []
    for number, (name, layer) in enumerate(zip(layer_ids(expect), expect, strict=True)):
        base = dict(known[name].fields) if name in known else _of_new_layer(expect, number)
        arriving.append(layer.with_defaults(**base))
    return tuple(arriving)


def _of_new_layer(layers: Layers, number: int) -> dict[str, LayerValue]:
    """Return the fields of a header that the UUT adds: its addresses and its ports are unknown, for example."""
    layer = layers[number]
    match layer.name:
        case "Ether":
            return {"src": ANY, "dst": ANY}
        case "IP":
            return {"src": ANY, "dst": ANY, "id": ANY, "flags": ANY, "ttl": ANY}
        case "IPv6":
            return {"src": ANY, "dst": ANY, "fl": ANY, "hlim": ANY}
        case "UDP":
            return {"sport": ANY, "chksum": 0 if _ip_around(layers, number) == "IP" else ANY}
    return {}


def _ip_around(layers: Layers, number: int) -> str:
    """Return the name of the IP header around a layer; empty if there is none."""
    return next((outer.name for outer in reversed(layers[:number]) if outer.name in IP_LAYERS), "")
