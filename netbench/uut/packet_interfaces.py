"""The interfaces by which a kernel removes encapsulations at the ingress and adds them at the egress, as changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from netbench.linux.changes import (
    AddAddress,
    AddForwardingEntries,
    AddNeighbour,
    AddRoute,
    AddRule,
    AddTunnel,
    AddVlanInterface,
    Change,
    SetSysctl,
    SetUp,
    of_nic,
)
from netbench.model.frame_size import USUAL_MTU
from netbench.model.header_sizes import header_bytes
from netbench.model.packet import FieldRef, Layers, Packet
from netbench.model.packet_options import NO_CHANGES, Encapsulation, PacketOptions
from netbench.model.paths import PREFIX, StreamPath, each_nic_once, inside_nics
from netbench.model.traffic import PREFIX_LENGTH
from netbench.uut.packet_headers import (
    TUNNEL_PORTS,
    address_runs,
    decapsulated,
    encapsulated,
    encapsulated_at,
    values_of_field,
)

# Routing tables of netbench, by stream: outside its namespaces there are tables of others (0 to 255 as a rule).
FORWARD_TABLE, LOCAL_TABLE = 198_000, 198_500
_LOCAL_PREFERENCE = 999  # of the rule that delivers tunnels, before the one that forwards


@dataclass(frozen=True, slots=True)
class PacketHandling:
    """What a kernel does to the headers of packets, and the described packets that it forwards."""

    options: PacketOptions = NO_CHANGES
    packets: tuple[Packet, ...] = ()

    @property
    def ends_tunnels(self) -> bool:
        """Whether it is the destination of the frames that it terminates: they have its MAC address."""
        return self.options.terminate in ("vxlan", "geneve", "gre")


NO_HANDLING = PacketHandling()


def terminates(layers: Layers, options: PacketOptions) -> bool:
    """Return whether headers have the encapsulation that a kernel terminates."""
    return options.terminate is not None and encapsulated_at(layers, options.terminate) is not None


def without_terminated(layers: Layers, options: PacketOptions) -> Layers:
    """Return the headers inside the encapsulation that a kernel terminates; all of them if they have none."""
    return decapsulated(layers, options.terminate) if options.terminate and terminates(layers, options) else layers


def entries_of(path: StreamPath, handling: PacketHandling, *, routes: bool) -> list[str]:
    """Return the interfaces by which packets of a stream enter bridge or router: the NIC or what terminates on it.

    A router receives packets without encapsulation, too. Those of GRE without Ethernet inside have an interface of
    their own.
    """
    ingress, _ = inside_nics(path)
    terminating = [_name(path, "t")] if handling.options.terminate else []
    if not routes:
        return terminating or [ingress.interface]
    return [ingress.interface, *terminating, *([_name(path, "g")] if handling.options.terminate == "gre" else [])]


def exit_of(path: StreamPath, handling: PacketHandling) -> str:
    """Return the interface by which packets of a stream leave bridge or router: the NIC or what originates on it."""
    return _name(path, "o") if handling.options.originate else inside_nics(path)[1].interface


def interface_changes(paths: Sequence[StreamPath], handling: PacketHandling, *, routes: bool) -> Iterator[Change]:
    """Yield the changes that make the interfaces which terminate and originate; those of a NIC once."""
    options = handling.options
    for path in each_nic_once(paths):
        ingress, egress = inside_nics(path)
        made = []
        if kind := options.terminate:
            made += [_terminating(path, kind, options.id_of(kind), handling.packets, routes=routes)]
            if kind == "gre" and routes:
                local = outer_destination(path, kind, handling.packets)
                made += [AddTunnel(ingress.netns, _name(path, "g"), "gre", options.id_of(kind), local=local)]
        if kind := options.originate:
            made += [_originating(path, kind, options)]
        yield from made
        yield from (SetUp(interface.netns, interface.interface) for interface in made)
        if options.originate in (*TUNNEL_PORTS, "gre") and not routes:
            yield AddAddress(egress.netns, egress.interface, path.egress_ip, PREFIX_LENGTH)
            yield AddNeighbour(egress.netns, egress.interface, path.dst_ip, path.sink.mac)
        if handling.ends_tunnels:
            yield from _delivery(path, options)
            if not routes:
                yield SetSysctl(ingress.netns, "net.ipv4.conf.all.rp_filter", "0")
                yield SetSysctl(ingress.netns, of_nic(4, ingress.interface, "rp_filter"), "0")


def learned_addresses(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the entries of a bridge for the MAC addresses that packets choose or vary: it learns none in a trial.

    Random ones are left out: the seed of a trial decides which they are. So are those inside a tunnel that ends here.
    """
    own = {path.packet for path in paths}
    for path in paths if not handling.ends_tunnels else ():
        ports = {"dst": exit_of(path, handling), "src": entries_of(path, handling, routes=False)[0]}
        of_trials = [path.packet_of(packet) for packet in handling.packets if packet not in own]
        for packet in [path.packet] if path.packet else of_trials:
            assert packet
            for field, port in ports.items():
                for first, step, count in address_runs(packet, FieldRef("Ether", field)):
                    for vlan in handling.options.vlans or (None,):
                        yield AddForwardingEntries(inside_nics(path)[0].netns, port, first, step, count, vlan)


def _terminating(
    path: StreamPath, kind: Encapsulation, number: int | None, packets: Sequence[Packet], *, routes: bool
) -> AddVlanInterface | AddTunnel:
    """Return the interface that terminates. A router accepts inner frames to the address of its ingress NIC.

    A bridge does not forward frames to an address of its ports: there the interface has another address.
    """
    ingress, _ = inside_nics(path)
    if kind == "vlan":
        assert number is not None
        return AddVlanInterface(ingress.netns, _name(path, "t"), ingress.interface, number)
    device, local = ("gretap", outer_destination(path, kind, packets)) if kind == "gre" else (kind, "")
    return AddTunnel(ingress.netns, _name(path, "t"), device, number, ingress.mac if routes else "", local=local)


def _originating(path: StreamPath, kind: Encapsulation, options: PacketOptions) -> AddVlanInterface | AddTunnel:
    """Return the interface that originates. Without an MTU, a tunnel takes that of Ethernet, even on longer links."""
    _, egress = inside_nics(path)
    number = options.id_of(kind)
    if kind == "vlan":
        assert number is not None
        return AddVlanInterface(egress.netns, _name(path, "o"), egress.interface, number)
    device = "gretap" if kind == "gre" else kind
    return AddTunnel(
        egress.netns,
        _name(path, "o"),
        device,
        number,
        egress.mac,
        local=path.egress_ip,
        remote=path.dst_ip,
        mtu=0 if path.mtu == USUAL_MTU else path.mtu - header_bytes(encapsulated((), options, path)),
    )


def outer_destination(path: StreamPath, kind: Encapsulation, packets: Sequence[Packet]) -> str:
    """Return the destination of the outer IP header: as the first packet with this encapsulation has it."""
    for packet in packets:
        if encapsulated_at(packet.layers, kind) is not None:
            for value in values_of_field(packet, FieldRef("IP", "dst")):
                return str(value)
    return path.dst_ip


def _delivery(path: StreamPath, options: PacketOptions) -> Iterator[Change]:
    """Yield the changes that deliver a stream's tunnelled packets to the UUT itself, whatever their destination is."""
    ingress, _ = inside_nics(path)
    port = TUNNEL_PORTS.get(options.terminate or "")
    selector = f"ipproto udp dport {port}" if port else "ipproto gre"
    table = LOCAL_TABLE + path.number
    yield AddRule(ingress.netns, 4, ingress.interface, table, selector, _LOCAL_PREFERENCE)
    yield AddRoute(ingress.netns, 4, ingress.interface, table)


def _name(path: StreamPath, role: str) -> str:
    return f"{PREFIX}{role}-{path.nics_of.name}"
