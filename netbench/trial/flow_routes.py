"""The ends of flows by their path: the hosts and addresses of client and server, and the interfaces of the taps."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.remote_code import scratch_of
from netbench.model.flow_result import CLIENT, GUEST, HOST, OUTSIDE
from netbench.model.paths import StreamPath
from netbench.model.workload import FlowPath
from netbench.tools.base import ArpEntry, FlowEnds, SecondTier
from netbench.trial.wire_taps import FlowAddresses
from netbench.uut.base import ActiveGuest, TapPoint

LOOPBACK_ADDRESS = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class FlowRoute:
    """The ends of one stream's flows; by place of each tap: its host and interface, and the addresses there."""

    ends: FlowEnds
    taps: Mapping[str, tuple[Host, str, FlowAddresses]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FlowPlaces:
    """The places between which one stream's flows can run: the guest that serves, and the hosts beside it.

    `second` is a neighbour that is linked to the guest; None without one. A client beside the source runs on
    `client_cpus`; empty: any.
    """

    path: StreamPath
    guest: ActiveGuest
    source: Host
    sink: Host | None = None
    second: ActiveGuest | None = None
    client_cpus: tuple[int, ...] = ()

    def route(self, flow_path: FlowPath, *, has_second_tier: bool = False) -> FlowRoute:
        """Return the route of flows on a path; TestbedError if the guests lack what it needs."""
        match flow_path:
            case FlowPath.TO_GUEST:
                route = self._to_guest()
            case FlowPath.THROUGH:
                route = self._through()
            case FlowPath.BETWEEN_GUESTS:
                route = self._between_guests()
            case FlowPath.LOOPBACK:
                inside = _inside(self.guest)
                route = FlowRoute(replace(self._ends(inside, inside, LOOPBACK_ADDRESS), shares_cpu=True))
        if not has_second_tier:
            return route
        second, (address, _) = self._second
        return replace(route, ends=replace(route.ends, second_tier=SecondTier(_inside(second), address)))

    def _to_guest(self) -> FlowRoute:
        path, interface, ready = self.path, self.path.source.interface, self.guest.ready
        address = self._address
        point = ready.taps.get(path.name) or TapPoint(path.ingress.interface if path.ingress else "", address)
        ends = replace(
            self._ends(self.source, _inside(self.guest), address, ArpEntry(self.source, interface, address)),
            listen=ready.listening.get(path.name, ""),
            client_cpus=self.client_cpus,
            shares_cpu=not {*self.client_cpus}.isdisjoint(self.guest.cpus),
            accepted_by_host=point.ends_connections,
        )
        taps = {CLIENT: (self.source, interface, FlowAddresses(path.src_ip, address))}
        if path.ingress:
            addresses = FlowAddresses(path.src_ip, point.server_address)
            taps[HOST if point.ends_connections else GUEST] = self.guest.uut.site.host, point.interface, addresses
        return FlowRoute(ends, taps)

    def _through(self) -> FlowRoute:
        path, sink = self.path, self.sink
        assert sink is not None, "a testbed has the hosts of its sinks"
        gateways = (
            ArpEntry(self.source, path.source.interface, path.ingress_ip),
            ArpEntry(sink, path.sink.interface, path.egress_ip),
        )
        ends = replace(self._ends(self.source, sink, path.server_ip, *gateways), client_cpus=self.client_cpus)
        addresses = FlowAddresses(path.src_ip, path.server_ip)
        taps = {
            CLIENT: (self.source, path.source.interface, addresses),
            OUTSIDE: (sink, path.sink.interface, addresses),
        }
        return FlowRoute(ends, taps)

    def _between_guests(self) -> FlowRoute:
        second, (client_address, client_tap) = self._second
        addresses = FlowAddresses(client_address, self._address)
        taps = {
            CLIENT: (second.uut.site.host, client_tap, addresses),
            GUEST: (self.guest.uut.site.host, self.guest.ready.attachments[self.path.name], addresses),
        }
        return FlowRoute(self._ends(_inside(second), _inside(self.guest), self._address), taps)

    def _ends(self, client: Host, server: Host, address: str, *arp_entries: ArpEntry) -> FlowEnds:
        name, number = self.path.name, self.path.number
        return FlowEnds(name, number, client, server, address, scratch_of(server), arp_entries)

    @property
    def _address(self) -> str:
        """The guest's address towards the source."""
        addresses = self.guest.ready.addresses
        if self.path.name not in addresses:
            raise TestbedError(f"it cannot serve: {self.guest.uut.unserved_reason or 'it has no address'}")
        return addresses[self.path.name]

    @property
    def _second(self) -> tuple[ActiveGuest, tuple[str, str]]:
        """The neighbour that is linked to the guest, its address, and the interface that it is attached to."""
        if self.second is None:
            raise TestbedError("there is no neighbour beside it")
        stream, address = next(iter(self.second.ready.addresses.items()))
        return self.second, (address, self.second.ready.attachments[stream])


def _inside(guest: ActiveGuest) -> Host:
    """Return the host that runs commands in a guest; TestbedError for one that runs none."""
    if guest.ready.inside is None:
        raise TestbedError(f"it cannot serve: {guest.uut.unserved_reason}")
    return guest.ready.inside
