"""The interfaces by which a kernel removes encapsulations at the ingress and adds them at the egress, as changes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from ipaddress import ip_address, ip_network

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
from netbench.model.packet import TUNNEL_PORTS, FieldRef, Packet
from netbench.model.packet_options import NO_CHANGES, Encapsulation, PacketOptions
from netbench.model.paths import PREFIX, StreamPath, each_nic_once, inside_nics
from netbench.model.traffic import PREFIX_LENGTH
from netbench.uut.directions import (
    check_ends,
    egress_ends,
    ingress_ends,
    is_tunnel,
    options_of,
    originating_ends,
    sent_packet,
)
from netbench.uut.packet_headers import TunnelEnds, address_runs, encapsulated

# Routing tables of netbench, by stream: outside its namespaces there are tables of others (0 to 255 as a rule).
FORWARD_TABLE, LOCAL_TABLE = 198_000, 198_500
_LOCAL_PREFERENCE = 999  # of the rule that delivers tunnels, before the one that forwards


@dataclass(frozen=True, slots=True)
class PacketHandling:
    """What a kernel does to the headers of packets, and the described packets that it forwards."""

    options: PacketOptions = NO_CHANGES
    packets: tuple[Packet, ...] = ()

    def ends_tunnels(self, path: StreamPath) -> bool:
        """Return whether it terminates tunnels in the direction of a stream: their frames have its MAC address."""
        return is_tunnel(options_of(path, self.options).terminate)


NO_HANDLING = PacketHandling()


def entries_of(path: StreamPath, handling: PacketHandling, *, routes: bool) -> list[str]:
    """Return the interfaces by which packets of a stream enter bridge or router: the NIC or what terminates on it.

    A router receives packets without encapsulation, too. Those of GRE without Ethernet inside have an interface of
    their own.
    """
    ingress, _ = inside_nics(path)
    kind = options_of(path, handling.options).terminate
    terminating = [_name(path, "o" if path.reverse_of else "t")] if kind else []
    if not routes:
        return terminating or [ingress.interface]
    return [ingress.interface, *terminating, *([_name(path, "g")] if kind == "gre" and not path.reverse_of else [])]


def exit_of(path: StreamPath, handling: PacketHandling) -> str:
    """Return the interface by which packets of a stream leave bridge or router: the NIC or what originates on it."""
    options = options_of(path, handling.options)
    if not options.originate:
        return inside_nics(path)[1].interface
    if not path.reverse_of:
        return _name(path, "o")
    return _name(path, "g" if originating_ends(path, handling.options, handling.packets).is_bare else "t")


def interface_changes(paths: Sequence[StreamPath], handling: PacketHandling, *, routes: bool) -> Iterator[Change]:
    """Yield the changes that make the interfaces which terminate and originate; those of a NIC once.

    In the direction of a reverse stream, the interface that terminates originates, and vice versa. UsageError for
    packets of which it cannot answer all.
    """
    options = handling.options
    check_ends(paths, options, handling.packets)
    for path in each_nic_once(paths):
        ingress, egress = inside_nics(path)
        made = []
        if kind := options.terminate:
            ends = ingress_ends(path, kind, handling.packets)
            made += [_terminating(path, kind, options, ends, routes=routes)]
            if kind == "gre" and routes:
                number, name = options.id_of(kind), _name(path, "g")
                made += [AddTunnel(ingress.netns, name, "gre", number, local=ends.local, remote=ends.remote)]
        if kind := options.originate:
            made += [_originating(path, kind, options, routes=routes)]
        yield from made
        yield from (SetUp(interface.netns, interface.interface) for interface in made)
        if options.originate in (*TUNNEL_PORTS, "gre") and not routes:
            yield AddAddress(egress.netns, egress.interface, path.egress_ip, PREFIX_LENGTH)
            yield AddNeighbour(egress.netns, egress.interface, path.dst_ip, path.sink.mac)
        if handling.ends_tunnels(path):
            yield from _delivery(path, options)
            if ends.remote:
                yield from _far_end(path, ends, routes=routes)
            if not routes:
                yield SetSysctl(ingress.netns, "net.ipv4.conf.all.rp_filter", "0")
                yield SetSysctl(ingress.netns, of_nic(4, ingress.interface, "rp_filter"), "0")


def learned_addresses(paths: Sequence[StreamPath], handling: PacketHandling) -> Iterator[Change]:
    """Yield the entries of a bridge for the MAC addresses that packets choose or vary: it learns none in a trial.

    Random ones are left out: the seed of a trial decides which they are. So are those inside a tunnel that ends here.
    """
    own = {path.packet for path in paths}
    for path in paths:
        if handling.ends_tunnels(path):
            continue
        ports = {"dst": exit_of(path, handling), "src": entries_of(path, handling, routes=False)[0]}
        of_trials = [sent_packet(packet, path, handling.options) for packet in handling.packets if packet not in own]
        for packet in [path.packet] if path.packet else of_trials:
            for field, port in ports.items():
                for first, step, count in address_runs(packet, FieldRef("Ether", field)):
                    for vlan in handling.options.vlans or (None,):
                        yield AddForwardingEntries(inside_nics(path)[0].netns, port, first, step, count, vlan)


def _terminating(
    path: StreamPath, kind: Encapsulation, options: PacketOptions, ends: TunnelEnds, *, routes: bool
) -> AddVlanInterface | AddTunnel:
    """Return the interface that terminates. A router accepts inner frames to the address of its ingress NIC.

    A bridge does not forward frames to an address of its ports: there the interface has another address.
    """
    ingress, _ = inside_nics(path)
    number, name, mac = options.id_of(kind), _name(path, "t"), ingress.mac if routes else ""
    if kind == "vlan":
        assert number is not None
        return AddVlanInterface(ingress.netns, name, ingress.interface, number)
    device = "gretap" if kind == "gre" else kind
    if not ends.remote:
        return AddTunnel(ingress.netns, name, device, number, mac, local=ends.local if kind == "gre" else "")
    mtu = _tunnel_mtu(path, options.reversed, ends)
    return AddTunnel(ingress.netns, name, device, number, mac, ends.local, ends.remote, mtu)


def _originating(
    path: StreamPath, kind: Encapsulation, options: PacketOptions, *, routes: bool
) -> AddVlanInterface | AddTunnel:
    """Return the interface that originates. Its address is as in `_terminating` if it terminates answers."""
    _, egress = inside_nics(path)
    number, name = options.id_of(kind), _name(path, "o")
    if kind == "vlan":
        assert number is not None
        return AddVlanInterface(egress.netns, name, egress.interface, number)
    ends, device = egress_ends(path), "gretap" if kind == "gre" else kind
    mac = egress.mac if routes or not path.has_reverse else ""
    mtu = _tunnel_mtu(path, options, ends)
    return AddTunnel(egress.netns, name, device, number, mac, ends.local, ends.remote, mtu)


def _tunnel_mtu(path: StreamPath, options: PacketOptions, ends: TunnelEnds) -> int:
    """Return the MTU of a tunnel. Without one, it takes that of Ethernet, even on longer links."""
    return 0 if path.mtu == USUAL_MTU else path.mtu - header_bytes(encapsulated((), options, path, ends))


def _far_end(path: StreamPath, ends: TunnelEnds, *, routes: bool) -> Iterator[Change]:
    """Yield the changes that lead from the ingress NIC to the other end of its tunnel."""
    ingress, _ = inside_nics(path)
    network = ip_network(f"{path.ingress_ip}/{PREFIX_LENGTH}", strict=False)
    if not routes or ends.local != path.ingress_ip or ip_address(ends.remote) not in network:
        yield AddAddress(ingress.netns, ingress.interface, ends.local, peer=ends.remote)
    yield AddNeighbour(ingress.netns, ingress.interface, ends.remote, path.source.mac)


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
