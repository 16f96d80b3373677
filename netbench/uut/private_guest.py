"""A guest in private networks of its machine: it serves clients outside, and forwards no frames.

Behind NAT, its NIC is on a bridge of its machine with an address of the private network. nftables translates: a
connection of a client to the server's port of the machine leads to the guest (DNAT), and connections of the guest leave
with the machine's address (masquerade), as with libvirt's default network and docker's. With user networking, a process
of the machine accepts the connections of clients, and passes their data on to the guest.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from netbench.errors import UsageError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import (
    MAIN_TABLE,
    AddAddress,
    AddBridge,
    AddRoute,
    AddTable,
    Change,
    Enslave,
    ForgetConnections,
    SetUp,
)
from netbench.model.packet import Packet
from netbench.model.paths import PREFIX, StreamPath, inside_nics
from netbench.model.points import PointKind, Points
from netbench.model.traffic import PREFIX_LENGTH
from netbench.model.workload import FlowPath
from netbench.uut.base import Assignment, Ready, Site, TapPoint, UutPlan
from netbench.uut.forwarding import no_bridge_netfilter, no_ipv6
from netbench.uut.guest import Guest, StartedGuest
from netbench.uut.guest_links import GuestLink, GuestNics, guest_links, private_nics
from netbench.uut.packet_interfaces import NO_HANDLING
from netbench.uut.routing import forwarding_switches
from netbench.vmm.attachment import ENDING, MASQUERADE, NETWORKS, Attachment, PrivateNetwork
from netbench.vmm.base import GuestNic, GuestSpec, Vmm

_ANY_MAC = "02:6e:68:00:00:01"  # of no interface; the reply replaces it


def guest_of(vmm: Vmm) -> Guest:
    """Return the UUT for guests of a VMM."""
    return PrivateGuest(vmm) if vmm.network else Guest(vmm)


class PrivateGuest(Guest):
    """A guest with one NIC for each stream, in a private network of the stream."""

    _roles: ClassVar[tuple[str, str]] = ("ingress", "ingress")

    def __init__(self, vmm: Vmm) -> None:
        super().__init__(vmm)
        self._network = vmm.network

    def check(self, paths: Sequence[StreamPath]) -> None:
        super().check(paths)
        for path in paths:
            if path.reverse_of:
                raise UsageError(
                    f"stream {path.name}: a guest with `attachment: {self._network}` has one NIC for each stream, so "
                    "nothing flows from sink to source; leave the reverse stream out"
                )

    def unsupported_reason(self, packet: Packet, paths: Sequence[StreamPath]) -> str:
        return f"{self.unforwarding_reason}; use a profile with a tool, such as bandwidth"

    @property
    def unforwarding_reason(self) -> str:
        title = NETWORKS[self._network]
        return f"with `attachment: {self._network}` no frames pass: {title} forwards connections only"

    @property
    def unserved_reason(self) -> str:
        return ""

    def path_reason(self, path: FlowPath) -> str:
        match path:
            case FlowPath.THROUGH:
                return self.unforwarding_reason
            case FlowPath.BETWEEN_GUESTS:
                return f"with `attachment: {self._network}` its private network has no link to a second guest"
        return ""

    @property
    def ends_connections(self) -> bool:
        return self._network in ENDING

    def plan(self, assignment: Assignment) -> UutPlan:
        networks = {path.name: PrivateNetwork.of(path) for path in assignment.paths}
        links = _links(assignment.paths, self._vmm.attachment(self._spec(assignment)))
        interfaces = {link.stream: link.interface for link in links}
        return replace(
            super().plan(assignment),
            listening={stream: network.address for stream, network in networks.items()},
            taps={stream: self._tap(network, interfaces.get(stream)) for stream, network in networks.items()},
        )

    def ready(self) -> Ready:
        ready, paths = super().ready(), self.site.paths
        facts = {name: fact for name, fact in ready.facts.items() if name != "forward"}
        if paths and self._network == "nat":
            facts["attachment"] += f" behind {NETWORKS[self._network]}"
        plan = self.plan(self.site.assignment)
        addresses = {path.name: PrivateNetwork.of(path).machine_address for path in paths}
        reached = replace(ready, addresses=addresses, listening=plan.listening, taps=plan.taps)
        return replace(reached, facts=facts, at_sink={})

    def _tap(self, network: PrivateNetwork, interface: str | None) -> TapPoint:
        """Return the tap at the interface of the machine for the guest's NIC; without one, at the ingress NIC."""
        if interface is None:
            return TapPoint(network.nic, network.machine_address, ends_connections=True)
        return TapPoint(interface, network.address)

    def _nics(self, paths: Sequence[StreamPath], kind: str) -> tuple[GuestNic, ...]:
        return private_nics(paths, kind)

    def _attaching(self, own: Assignment, attachment: Attachment) -> Iterable[Change]:
        paths, links = own.paths, _links(own.paths, attachment)
        if links:
            yield from no_bridge_netfilter(paths)
            yield from _bridges(links, attachment)
            yield from forwarding_switches([_through(path, links) for path in paths], NO_HANDLING, all_ours=False)
        for path in paths:
            nic, network = inside_nics(path)[0], PrivateNetwork.of(path)
            yield AddAddress(nic.netns, nic.interface, network.machine_address, PREFIX_LENGTH)
        for link, path in zip(links, paths, strict=False):
            yield AddAddress(link.nic.netns, link.bridge, PrivateNetwork.of(path).gateway, PREFIX_LENGTH)
        if links:
            yield from _translations(paths, own.name)

    @property
    def _needs_of_bridges(self) -> frozenset[str]:
        is_nat = self._network == "nat"
        return super()._needs_of_bridges | {"nft", MASQUERADE.name, "forwarding"} if is_nat else frozenset()

    def _links(self, spec: GuestSpec, paths: Sequence[StreamPath]) -> tuple[GuestLink, ...]:
        return _links(paths, self._vmm.attachment(spec))

    def _points(self, paths: Sequence[StreamPath], links: Sequence[GuestLink]) -> Points:
        return {path.name: tuple(link.point for link in links if link.stream == path.name) for path in paths}

    def _towards(self, paths: Sequence[StreamPath]) -> dict[str, str]:
        return {path.name: inside_nics(path)[0].mac for path in paths}

    def _changes_inside(
        self, paths: Sequence[StreamPath], nics: Mapping[str, GuestNics], packets: tuple[Packet, ...]
    ) -> list[Change]:
        changes = [*no_ipv6(("all", "default"))] if paths else []
        for path in paths:
            nic, network = nics[path.name].ingress, PrivateNetwork.of(path)
            changes.append(SetUp(None, nic))
            changes.append(AddAddress(None, nic, network.address, PREFIX_LENGTH))
            changes.append(AddRoute(None, 4, nic, MAIN_TABLE, network.gateway, path.src_network))
        return changes

    def _forward(self, site: Site, running: StartedGuest, host: Host) -> None:
        super()._forward(site, running, host)
        for path in site.paths if self._network == "passt" else ():
            # passt learns the guest's MAC address from the first frame that the guest sends: a request for an address.
            nic, gateway = running.nics[path.name].ingress, PrivateNetwork.of(path).gateway
            probe = ["ip", "neigh", "replace", gateway, "dev", nic, "lladdr", _ANY_MAC, "nud", "probe"]
            run_checked(host, probe)

    @property
    def _stack(self) -> PointKind:
        return PointKind.IP_COUNTERS


def _links(paths: Sequence[StreamPath], attachment: Attachment) -> tuple[GuestLink, ...]:
    """Return the links of its NICs to bridges; none with user networking."""
    return tuple(link for link in guest_links(paths, attachment) if link.role == "ingress")


def _bridges(links: Sequence[GuestLink], attachment: Attachment) -> Iterator[Change]:
    """Yield the changes that make a bridge for each NIC of the guest, and the NIC its only port."""
    for link in links:
        yield from attachment.changes(link.nic.netns, link.interface, link.mac, link.nic.interface)
        yield AddBridge(link.nic.netns, link.bridge)
    yield from no_ipv6(name for link in links if link.nic.netns is None for name in (link.bridge, link.interface))
    for link in links:
        netns = link.nic.netns
        yield Enslave(netns, link.interface, link.bridge)
        yield SetUp(netns, link.interface)
        yield SetUp(netns, link.bridge)


def _through(path: StreamPath, links: Sequence[GuestLink]) -> StreamPath:
    """Return the path between which the machine routes: from its ingress NIC to the bridge of the guest."""
    nic = inside_nics(path)[0]
    bridge = next(link.bridge for link in links if link.stream == path.name)
    return replace(path, egress=replace(nic, interface=bridge))


def _translations(paths: Sequence[StreamPath], name: str) -> Iterator[Change]:
    """Yield the tables that translate addresses, one for each namespace (nft(8), NAT statements)."""
    for netns in dict.fromkeys(inside_nics(path)[0].netns for path in paths):
        table = f"ip {PREFIX}{name}-nat"
        rules = [
            f"add table {table}",
            f"add chain {table} destination {{ type nat hook prerouting priority -100; policy accept; }}",
            f"add chain {table} source {{ type nat hook postrouting priority 100; policy accept; }}",
        ]
        for path in paths:
            network = PrivateNetwork.of(path)
            if inside_nics(path)[0].netns != netns:
                continue
            match = f'iifname "{network.nic}" ip daddr {network.machine_address}'
            ports = f"meta l4proto {{ tcp, udp }} th dport {network.port}"
            rules.append(f"add rule {table} destination {match} {ports} dnat to {network.address}")
            rules.append(f'add rule {table} source ip saddr {network.range} oifname "{network.nic}" masquerade')
        if netns:  # connections of former UUTs, whose addresses may be translated otherwise
            yield ForgetConnections(netns)
        yield AddTable(netns, "ip", f"{PREFIX}{name}-nat", "".join(f"{rule}\n" for rule in rules))
