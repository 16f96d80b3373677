"""Frames of described packets for tests: every frame is built by scapy alone, from the number of its flow."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from typing import Any, NamedTuple

from netbench.model.frame_size import FrameSize
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.packet import (
    AnyValue,
    FieldRef,
    FieldValue,
    Layer,
    ListedValues,
    Packet,
    RandomValues,
    SteppedValues,
    Values,
    VaryingField,
)
from netbench.model.traffic import PKTGEN_MAGIC, Traffic
from netbench.packets.build import expected_headers
from netbench.packets.flow_values import values_of
from netbench.packets.scapy_layers import scapy_classes

START_NS = 1_700_000_000_000_000_000
_SOURCE, _SINK = "02:00:00:00:00:01", "02:00:00:00:00:02"
_SRC_IP, _DST_IP = "198.18.1.2", "198.19.1.2"


def layers(*described: str | tuple[str, Mapping[str, FieldValue | AnyValue]]) -> tuple[Layer, ...]:
    return tuple(Layer(item) if isinstance(item, str) else Layer(item[0], tuple(item[1].items())) for item in described)


def traffic_of_packet(packet: Packet, frame_size: FrameSize) -> Traffic:
    return Traffic("s1", _SOURCE, _SINK, _SRC_IP, _DST_IP, frame_size, 1000.0, 1.0, 1, 1, packet=packet)


class Described(NamedTuple):
    """A packet of a stream, what the sink expects of it, and scapy's layers as they arrive without any change."""

    packet: Packet
    traffic: Traffic
    headers: ExpectedHeaders

    @classmethod
    def of(cls, packet: Packet, frame_size: FrameSize) -> "Described":
        traffic = traffic_of_packet(packet, frame_size)
        return cls(packet, traffic, expected_headers(traffic))

    def sent_size(self, number: int) -> int:
        genome = self.traffic.frame_size.genome
        return genome[number % len(genome)]

    def values(self, number: int) -> dict[FieldRef, int]:
        """Return the values of the varying fields in the frame with this number."""
        flow, found = number % self.packet.flows, {}
        for place, field in zip(self.headers.varying, self.packet.vary, strict=True):
            values = values_of(field.values, place.seed).tolist()
            index = self.packet.vary.index(field)
            found[field.ref] = values[flow // self.packet.frames_per_value(index) % len(values)]
        return found

    def frame(
        self,
        number: int,
        sent_us: int,
        *,
        change: Callable[[Any], Any] = lambda packet: packet,
        fields: Mapping[tuple[str, str], Any] | None = None,
        size: int = 0,
    ) -> bytes:
        """Return the frame with this number; `change` and `fields` change scapy's packet before it is built."""
        packet = self._scapy_packet()
        for ref, value in self.values(number).items():
            layer = packet.getlayer(scapy_classes()[ref.layer], ref.occurrence)
            if layer is not None:
                layer.setfieldval(ref.field, _scapy_value(ref, value))
        for (name, field), value in (fields or {}).items():
            packet.getlayer(scapy_classes()[name]).setfieldval(field, value)
        packet = change(packet)
        seconds, microseconds = divmod(sent_us, 10**6)
        payload = b"".join(word.to_bytes(4) for word in (PKTGEN_MAGIC, number % 2**32, seconds, microseconds))
        if self.headers.template.complement_at is not None:
            total = sum(int.from_bytes(payload[at : at + 2]) for at in range(4, 16, 2))
            while total > 0xFFFF:
                total = (total & 0xFFFF) + (total >> 16)
            payload += (0xFFFF - total).to_bytes(2)
        size = size or self.sent_size(number) + self.headers.longer
        room = size - 4 - len(packet)
        return bytes(packet / scapy_classes()["Raw"](payload.ljust(room, b"\0")))

    def _scapy_packet(self) -> Any:
        """Return scapy's packet with netbench's own addresses and ports in all layers that have none."""
        built = None
        expect = self.packet.expect or self.packet.layers
        for number, layer in enumerate(expect):
            given: dict[str, Any] = {name: list(v) if isinstance(v, tuple) else v for name, v in layer.fields}
            own: dict[str, Any] = {
                "Ether": {"src": _SOURCE, "dst": _SINK},
                "IP": {"src": _SRC_IP, "dst": _DST_IP},
                "IPv6": {"src": self.traffic.src_ip6, "dst": self.traffic.dst_ip6},
            }.get(layer.name, {})
            if layer.name == "UDP":
                over = next(outer.name for outer in reversed(expect[:number]) if outer.name in ("IP", "IPv6"))
                own = {"chksum": 0} if over == "IP" else {}
                own |= {"sport": 9, "dport": 9} if number == len(expect) - 1 else {}
            if layer.name == "VXLAN":
                own = {"flags": 0x08}
            if layer.name == "MPLS" and expect[number + 1].name == "MPLS":
                own = {"s": 0}
            scapy_layer = scapy_classes()[layer.name](**(own | given))
            built = scapy_layer if built is None else built / scapy_layer
        return built


def _scapy_value(ref: FieldRef, value: int) -> Any:
    if ref.field in ("src", "dst"):
        if ref.layer == "Ether":
            return value.to_bytes(6).hex(":")
        return str(ip_address(value if ref.layer == "IP" else int(ip_address("2001:2::")) | value))
    return value


def vary(field: str, values: Values) -> VaryingField:
    """Return a field that varies: `IP.src`, or `IP:2.src` of the second IP header."""
    layer, _, name = field.partition(".")
    layer, _, occurrence = layer.partition(":")
    return VaryingField(FieldRef(layer, name, int(occurrence or 1)), values)


SOURCES = SteppedValues(int(ip_address("198.18.1.1")), 1, 3000)
PACKETS = {
    packet.name: packet
    for packet in (
        Packet("plain", layers("Ether", "IP", "UDP")),
        Packet(
            "ipv6",
            layers("Ether", "IPv6", "UDP"),
            (vary("IPv6.src", SteppedValues(int(ip_address("2001:2::10")), 1, 5)),),
        ),
        Packet("vlan", layers("Ether", ("Dot1Q", {"vlan": 100}), "IP", "UDP")),
        Packet(
            "vlans",
            layers("Ether", "Dot1Q", "IP", "UDP"),
            (vary("Dot1Q.vlan", ListedValues((10, 20, 30))), vary("UDP.sport", RandomValues(1024, 65535, 100))),
            combined=True,
        ),
        Packet("qinq", layers("Ether", ("Dot1AD", {"vlan": 200}), ("Dot1Q", {"vlan": 100}), "IP", "UDP")),
        Packet("mpls", layers("Ether", ("MPLS", {"label": 7}), ("MPLS", {"label": 16}), "IP", "UDP")),
        Packet("gre", layers("Ether", "IP", "GRE", "IP", "UDP"), (vary("IP:2.src", SOURCES),)),
        Packet("vxlan", layers("Ether", "IP", "UDP", ("VXLAN", {"vni": 42}), "Ether", "IP", "UDP")),
        Packet("geneve", layers("Ether", "IP", "UDP", ("GENEVE", {"vni": 42}), "Ether", "IPv6", "UDP")),
        Packet("gtp", layers("Ether", "IP", "UDP", ("GTP_U_Header", {"teid": 7}), "IP", "UDP")),
        Packet(
            "tcp",
            layers("Ether", "IP", "TCP"),
            (vary("IP.src", SOURCES), vary("TCP.dport", RandomValues(1, 500, 7))),
        ),
        Packet(
            "macs",
            layers("Ether", "IP", ("UDP", {"sport": 5, "dport": 7})),
            (vary("Ether.src", SteppedValues(0x020000001000, 1, 64)), vary("IP.src", SOURCES)),
        ),
        Packet(
            "pop",
            layers("Ether", ("Dot1Q", {"vlan": 3}), "IP", "UDP"),
            (vary("Dot1Q.vlan", ListedValues((3, 4))), vary("IP.src", SOURCES)),
            expect=layers("Ether", "IP", "UDP"),
        ),
    )
}

# Packets of which an analysis finds the streams; its headers around IP are the names of the second value.
ANALYZED = (
    (PACKETS["plain"], ()),
    (PACKETS["vlan"], ("VLAN",)),
    (PACKETS["qinq"], ("VLAN", "VLAN")),
    (PACKETS["mpls"], ("MPLS", "MPLS")),
    (PACKETS["vxlan"], ("VXLAN",)),
    (PACKETS["geneve"], ("GENEVE",)),
    (PACKETS["gtp"], ("GTP",)),
    (Packet("extensions", layers("Ether", "IPv6", "IPv6ExtHdrHopByHop", "IPv6ExtHdrDestOpt", "UDP")), ()),
    (Packet("gre key", layers("Ether", "IP", ("GRE", {"key_present": 1, "key": 7}), "IP", "UDP")), ("GRE",)),
    (Packet("gre 6", layers("Ether", "IPv6", "GRE", "IPv6", "UDP")), ("GRE",)),
    (Packet("icmp", layers("Ether", "IP", "ICMP")), ()),
    (Packet("icmp6", layers("Ether", "IPv6", "ICMPv6EchoRequest")), ()),
    (Packet("tcp6", layers("Ether", "Dot1Q", "IPv6", "TCP")), ("VLAN",)),
    (
        Packet(
            "5g",
            layers(
                "Ether", "IP", "UDP", ("GTP_U_Header", {"E": 1, "next_ex": 0x85}), "GTPPDUSessionContainer", "IP", "UDP"
            ),
        ),
        ("GTP",),
    ),
)
