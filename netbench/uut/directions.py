"""Both directions of a stream through a UUT that changes encapsulations: the ends of tunnels, and the answers.

The tunnel at the ingress leads from the UUT to the stream's source, and the one at the egress to its sink. In the
direction of a stream the UUT terminates the first and originates the second. For its reverse stream, the same tunnels
do the opposite: the source of the reverse stream sends the answers to the packets at the stream's sink, and its sink
receives the answers to the packets as the stream's source sends them.
"""

from collections.abc import Sequence
from dataclasses import replace
from ipaddress import IPv4Address

from netbench.errors import UsageError
from netbench.model.packet import (
    ANY,
    TUNNEL_PORTS,
    FieldRef,
    Layer,
    Layers,
    LayerValue,
    Packet,
    VariedValue,
    VaryingField,
    references,
)
from netbench.model.packet_options import Encapsulation, PacketOptions
from netbench.model.paths import StreamPath
from netbench.packets.headers import with_varied_values
from netbench.uut.packet_headers import (
    TRANSLATIONS,
    Translation,
    TunnelEnds,
    decapsulated,
    encapsulated_at,
    translated,
    tunnel_header,
    values_of_field,
    without_fields,
    without_terminated,
)

_OUTER_IP = FieldRef("IP", "")


def options_of(path: StreamPath, options: PacketOptions) -> PacketOptions:
    """Return the options of a UUT for the packets of a stream: the opposite ones for a reverse stream."""
    return options.reversed if path.reverse_of else options


def is_tunnel(kind: Encapsulation | None) -> bool:
    """Return whether an encapsulation has ends with addresses: frames to them have the UUT's MAC address."""
    return kind in (*TUNNEL_PORTS, "gre")


def ingress_ends(path: StreamPath, kind: Encapsulation, packets: Sequence[Packet]) -> TunnelEnds:
    """Return the ends of the tunnel between a stream's source and the UUT, as its packets have them.

    Addresses that they leave out are those of the stream. Without a reverse stream, the other end may be any.
    """
    forth = path.forth
    local, remote = (forth.ingress_ip, forth.src_ip) if path.has_reverse else (forth.dst_ip, "")
    for packet in packets:
        if encapsulated_at(packet.layers, kind) is not None:
            ends = _ends_of(packet, kind, local, remote)
            return ends if path.has_reverse else ends._replace(remote="")
    return TunnelEnds(local, remote)


def egress_ends(path: StreamPath) -> TunnelEnds:
    """Return the ends of the tunnel between the UUT and a stream's sink."""
    forth = path.forth
    return TunnelEnds(forth.egress_ip, forth.dst_ip)


def originating_ends(path: StreamPath, options: PacketOptions, packets: Sequence[Packet]) -> TunnelEnds:
    """Return the ends of the tunnel that the UUT adds in the direction of a path; meaningless for VLANs."""
    if path.reverse_of and options.terminate:
        return ingress_ends(path, options.terminate, packets)
    return egress_ends(path)


def translation_of(path: StreamPath, options: PacketOptions) -> Translation | None:
    """Return how a UUT translates the addresses of a stream; for a reverse stream, the opposite."""
    if options.nat is None:
        return None
    translation = TRANSLATIONS[options.nat]
    return translation.reversed if path.reverse_of else translation


def check_ends(paths: Sequence[StreamPath], options: PacketOptions, packets: Sequence[Packet]) -> None:
    """Raise UsageError for packets of tunnels with different ends, of which answers can only go to one."""
    kind = options.terminate
    if not kind or not is_tunnel(kind):
        return
    for path in paths:
        if path.has_reverse and not path.reverse_of:
            found: dict[TunnelEnds, Packet] = {}
            for packet in packets:
                if encapsulated_at(packet.layers, kind) is not None:
                    found.setdefault(ingress_ends(path, kind, (packet,)), packet)
            if len(found) > 1:
                (ends, first), (other_ends, second), *_ = found.items()
                differ = (
                    "GRE with and without Ethernet inside"
                    if ends[:2] == other_ends[:2]
                    else "different outer addresses"
                )
                raise UsageError(
                    f"terminate: packets {first.name} and {second.name} have {differ}, and the tunnel of stream "
                    f"{path.name} has one other end for its reverse stream; measure them one by one"
                )


def ends_reason(packet: Packet, path: StreamPath, options: PacketOptions) -> str:
    """Return why a tunnel with two ends does not accept a packet, with layer and field; empty if it does.

    `options` are those of the UUT, whatever the direction of the path.
    """
    kind = options_of(path, options).terminate
    if not path.has_reverse or not kind or not is_tunnel(kind) or encapsulated_at(packet.layers, kind) is None:
        return ""
    for field in ("src", "dst"):
        if any(varying.ref == _OUTER_IP._replace(field=field) for varying in packet.vary):
            return f"IP.{field}: with a reverse stream, the tunnel has two fixed ends: the outer address must not vary"
    chosen, ends = _ends_of(packet, kind, "", ""), egress_ends(path)
    for field, value, end in (("src", chosen.remote, ends.remote), ("dst", chosen.local, ends.local)):
        if path.reverse_of and value not in ("", end):
            return f"IP.{field}: the tunnel ends at {end}, not at {value}; leave the field out"
    return ""


def sent_packet(packet: Packet, path: StreamPath, options: PacketOptions) -> Packet:
    """Return the packet that a stream sends in trials with `packet`, through a UUT with these options.

    A stream's own packet stays. A reverse stream sends the answer to what the sink of its stream receives. Packets of a
    tunnel that ends here have its addresses. Answers to translated addresses have those of the first trial.
    """
    sent = path.packet_of(packet)
    assert sent
    if not path.has_reverse or not (options.terminate or options.originate or options.nat):
        return sent
    if path.reverse_of and path.packet is None:
        sent = _answer(packet, path, options)
    kind, removed = options_of(path, options).terminate, 0
    layers = list(sent.layers)
    if kind and encapsulated_at(sent.layers, kind) is not None:
        removed = len(layers) - len(decapsulated(sent.layers, kind))
        if is_tunnel(kind) and layers[1].name == "IP":
            ends = egress_ends(path) if path.reverse_of else ingress_ends(path, kind, (sent,))
            layers[1] = layers[1].with_defaults(src=ends.remote, dst=ends.local)
    translation = translation_of(path, options)
    if translation and path.reverse_of and [layer.name for layer in layers[removed + 1 : removed + 2]] == ["IP"]:
        forth = translation.reversed
        own = int(IPv4Address(_own_address(path, forth))) - int(forth.before[0]) + int(forth.after[0])
        layers[removed + 1] = layers[removed + 1].with_defaults(**{translation.field: str(IPv4Address(own))})
    return replace(sent, layers=tuple(layers))


def _own_address(path: StreamPath, translation: Translation) -> str:
    """Return the address of a stream in its first trial that a UUT translates, if its packets choose none."""
    return path.forth.src_ip if translation.field == "src" else path.forth.dst_ip


def _ends_of(packet: Packet, kind: Encapsulation, local: str, remote: str) -> TunnelEnds:
    """Return the ends of the tunnel of a packet: the addresses that it chooses, otherwise the given ones."""
    source, destination = (
        next(values_of_field(packet, _OUTER_IP._replace(field=field)), None) for field in ("src", "dst")
    )
    return TunnelEnds(str(destination or local), str(source or remote), _is_bare(packet, kind))


def _is_bare(packet: Packet, kind: Encapsulation | None) -> bool:
    """Return whether a packet has GRE of this tunnel with IP inside, and no Ethernet."""
    at = encapsulated_at(packet.layers, "gre") if kind == "gre" else None
    return at is not None and (at + 1 == len(packet.layers) or packet.layers[at + 1].name != "Ether")


def _answer(packet: Packet, path: StreamPath, options: PacketOptions) -> Packet:
    """Return the answer to a packet as the sink receives it: with the headers that the UUT leaves and adds.

    Fields that vary in headers which the UUT removes are left out. Headers that the user expects at the sink (`expect`)
    are expected of the answer, too, inside the headers that the UUT adds to it.
    """
    layers, expect = without_terminated(with_varied_values(packet.layers, packet), options), packet.expect
    if options.nat and len(layers) > 1 and layers[1].name == "IP":
        layers, expect = _translated(layers, path, TRANSLATIONS[options.nat]), _without_address(expect, options)
    if options.originate:
        layers = _enclosed(layers, options.originate, options.id_of(options.originate))
        if expect and encapsulated_at(expect, options.originate) is not None:
            expect = decapsulated(expect, options.originate)
    mirrored = replace(packet, layers=layers, vary=(), expect=expect).mirrored
    expect = mirrored.expect
    if expect and options.terminate:
        number, is_bare = options.id_of(options.terminate), _is_bare(packet, options.terminate)
        expect = _enclosed(expect, options.terminate, number, is_bare=is_bare)
    return _with_vary_apart(replace(mirrored, expect=expect))


def _translated(layers: Layers, path: StreamPath, translation: Translation) -> Layers:
    """Return the headers with a translated address, even if they leave it out."""
    ether, header, *rest = layers
    own = {translation.field: _own_address(path, translation)}
    return translated((ether, header.with_defaults(**own), *rest), translation)


def _without_address(expect: Layers | None, options: PacketOptions) -> Layers | None:
    """Return the headers that users expect at the sink without the translated address: that of answers is another."""
    if not expect or not options.nat:
        return expect
    field, at = TRANSLATIONS[options.nat].field, len(expect) - 1
    for number, layer in enumerate(expect):
        if layer.name == "IP":
            at = number  # the innermost one
    if expect[at].value(field) is ANY:
        return expect
    return (*expect[:at], without_fields(expect[at], field), *expect[at + 1 :])


def _enclosed(layers: Layers, kind: Encapsulation, number: int | None, *, is_bare: bool = False) -> Layers:
    """Return the headers as a user describes them in an encapsulation, without addresses of its outer headers."""
    header = tunnel_header(kind, number, is_bare=is_bare)
    if kind == "vlan":
        return (without_fields(layers[0], "type"), header, *layers[1:])
    udp = (Layer("UDP", (("dport", TUNNEL_PORTS[kind]),)),) if kind in TUNNEL_PORTS else ()
    return (Layer("Ether"), Layer("IP"), *udp, header, *layers[1 if is_bare else 0 :])


def _with_vary_apart(packet: Packet) -> Packet:
    """Return a packet whose layers have the values of varying fields, with these in `vary`, as users describe them."""
    found: dict[int, VaryingField] = {}
    for ref, layer in zip(references(packet.layers), packet.layers, strict=True):
        for name, value in layer.fields:
            if isinstance(value, VariedValue):
                found[value.number] = VaryingField(ref._replace(field=name), value.values)
    numbers = {number: index for index, number in enumerate(sorted(found))}

    def renumbered(value: LayerValue) -> LayerValue:
        if not isinstance(value, VariedValue):
            return value
        return replace(value, number=numbers[value.number]) if value.number in numbers else ANY

    return replace(
        packet,
        layers=tuple(
            Layer(
                layer.name, tuple((name, value) for name, value in layer.fields if not isinstance(value, VariedValue))
            )
            for layer in packet.layers
        ),
        vary=tuple(found[number] for number in sorted(found)),
        expect=packet.expect
        and tuple(
            Layer(layer.name, tuple((name, renumbered(value)) for name, value in layer.fields))
            for layer in packet.expect
        ),
    )
