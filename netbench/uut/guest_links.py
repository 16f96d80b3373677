"""How a guest is attached to its machine, with each NIC bridged to a NIC of the machine, and its counting points."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.errors import TestbedError
from netbench.linux.changes import AddBridge, AddForwardingEntry, AddVeth, Change, Enslave, SetUp
from netbench.linux.machine import Machine
from netbench.model.paths import PREFIX, InterfaceRef, Nic, StreamPath, each_nic_once, inside_nics
from netbench.model.points import CounterReading, CountingPoint, PathSection, PointKind, Points, forwarding_point
from netbench.uut.forwarding import forwards, no_bridge_netfilter, no_ipv6
from netbench.vmm.attachment import Attachment, PrivateNetwork
from netbench.vmm.base import GuestNic

_VIRTUAL_NIC = CountingPoint("VMM ingress", PathSection.BEFORE, names_segment=True)
_INGRESS_NIC = CountingPoint("guest ingress NIC", PathSection.INSIDE, direction="rx", passing=True)
_SOFTNET = CountingPoint("guest softnet", PathSection.INSIDE)
_IP_LAYER = CountingPoint("guest IP layer", PathSection.INSIDE)
_EGRESS_QUEUE = CountingPoint("guest egress queue", PathSection.INSIDE)
_EGRESS_NIC = CountingPoint("guest egress NIC", PathSection.INSIDE, direction="tx", passing=True)


@dataclass(frozen=True, slots=True)
class GuestNics:
    """The names of one stream's NICs inside the guest."""

    ingress: str
    egress: str


@dataclass(frozen=True, slots=True)
class GuestLink:
    """One NIC of a guest: its MAC address, and the `interface` that attaches it to a NIC of its machine.

    There is one link for each `stream` and `role` (ingress, egress); reverse streams have links of their own. `bridge`
    joins interface and NIC, unless the interface is made on top of the NIC.
    """

    stream: str
    role: str
    nic: Nic
    attachment: Attachment
    interface: str
    mac: str
    bridge: str

    @property
    def kind(self) -> str:
        """The type of its attachment in messages."""
        return self.attachment.kind

    @property
    def place(self) -> InterfaceRef:
        """The place of the interface."""
        return self.nic.place._replace(interface=self.interface)

    @property
    def point(self) -> CountingPoint:
        """The interface as a counting point: a tap's tx counter, for example, counts the frames to the guest."""
        to_guest, from_guest = self.attachment.to_guest, "rx" if self.attachment.to_guest == "tx" else "tx"
        where, way = (PathSection.BEFORE, to_guest) if self.role == "ingress" else (PathSection.BEHIND, from_guest)
        return CountingPoint(f"{self.role} {self.kind}", where, PointKind.INTERFACE, self.place, way, passing=True)


def guest_nics(paths: Sequence[StreamPath], kind: str) -> tuple[GuestNic, ...]:
    """Return the NICs of a guest that forwards these streams: two for each stream, shared with its reverse stream."""
    return tuple(
        GuestNic(_name(path, role, kind[0]), guest_mac(path, role), path.name, role)
        for path in each_nic_once(paths)
        for role in ("ingress", "egress")
    )


def private_nics(paths: Sequence[StreamPath], kind: str) -> tuple[GuestNic, ...]:
    """Return the NICs of a guest in private networks: one for each stream."""
    return tuple(
        GuestNic(
            _name(path, "ingress", kind[0]), guest_mac(path, "ingress"), path.name, "ingress", PrivateNetwork.of(path)
        )
        for path in paths
    )


def guest_links(paths: Sequence[StreamPath], attachment: Attachment) -> tuple[GuestLink, ...]:
    """Return the links of these NICs to NICs of the guest's machine; none without interfaces of the machine."""
    if not attachment.has_interface:
        return ()

    def link(path: StreamPath, role: str, nic: Nic) -> GuestLink:
        interface, bridge = _name(path, role, attachment.kind[0]), _name(path, role, "b")
        return GuestLink(path.name, role, nic, attachment, interface, guest_mac(path, role), bridge)

    return tuple(
        link(path, role, nic)
        for path in paths
        for role, nic in zip(("ingress", "egress"), inside_nics(path), strict=True)
    )


def guest_mac(path: StreamPath, role: str) -> str:
    """Return the MAC address of a guest's NIC: locally administered, `ng` in ASCII, then stream number and role.

    Number and role are those of the stream that the NIC is named after.
    """
    return f"02:6e:67:00:{path.nics_of.number:02x}:{1 if path.role_forth(role) == 'ingress' else 2:02x}"


def _name(path: StreamPath, role: str, kind: str) -> str:
    """Return the name of the machine's interface for the guest's NIC of this role."""
    return f"{PREFIX}{kind}{path.role_forth(role)[0]}-{path.nics_of.name}"


def attaching_changes(
    paths: Sequence[StreamPath], attachment: Attachment, towards: Mapping[str, str]
) -> Iterator[Change]:
    """Yield the changes that attach and bridge each NIC; `towards` has the destination MAC address by stream."""
    if not attachment.has_interface:
        for path in each_nic_once(paths):
            for role, nic in zip(("ingress", "egress"), inside_nics(path), strict=True):
                name = _name(path, role, attachment.kind[0])
                yield from attachment.changes(nic.netns, name, guest_mac(path, role), nic.interface)
        return
    every, links = guest_links(paths, attachment), guest_links(each_nic_once(paths), attachment)
    if attachment.on_nic:
        for link in links:
            yield from attachment.changes(link.nic.netns, link.interface, link.mac, link.nic.interface)
        yield from no_ipv6(link.interface for link in links if link.nic.netns is None)
        yield from (SetUp(link.nic.netns, link.interface) for link in links)
        return
    yield from no_bridge_netfilter(paths)
    for link in links:
        yield from attachment.changes(link.nic.netns, link.interface, link.mac, link.nic.interface)
        yield AddBridge(link.nic.netns, link.bridge)
    # In our namespaces IPv6 is off for all interfaces; elsewhere both would send frames among ours.
    yield from no_ipv6(name for link in links if link.nic.netns is None for name in (link.bridge, link.interface))
    for link in links:
        netns = link.nic.netns
        yield Enslave(netns, link.nic.interface, link.bridge)
        yield Enslave(netns, link.interface, link.bridge)
        yield SetUp(netns, link.interface)
        yield SetUp(netns, link.bridge)
    sinks = {path.name: path.sink.mac for path in paths}
    for link in every:
        if link.role == "ingress":
            yield AddForwardingEntry(link.nic.netns, link.interface, towards[link.stream])
        else:
            yield AddForwardingEntry(link.nic.netns, link.nic.interface, sinks[link.stream])


def lan_changes(path: StreamPath, peer: StreamPath) -> Iterator[Change]:
    """Yield the changes that link the ingress bridges of two guests on one machine, of one path each.

    The link is a pair of virtual Ethernet interfaces that are ports of the bridges.
    """
    (own_nic, _), (peer_nic, _) = inside_nics(path), inside_nics(peer)
    ports = [
        (nic.netns, _name(of, "ingress", "l"), _name(of, "ingress", "b"))
        for nic, of in ((own_nic, path), (peer_nic, peer))
    ]
    (netns, port, _), (peer_netns, peer_port, _) = ports
    macs = (f"02:6e:6c:00:{of.number:02x}:{number}" for number, of in (("01", path), ("02", peer)))
    yield AddVeth(netns, port, next(macs), peer_netns, peer_port, next(macs))
    yield from no_ipv6(name for place, name, _ in ports if place is None)
    for place, name, bridge in ports:
        yield Enslave(place, name, bridge)
        yield SetUp(place, name)


def guest_points(paths: Sequence[StreamPath], links: Sequence[GuestLink]) -> Points:
    """Return the counting points of a guest: at its attachments, if its machine is ours, and inside it."""
    own = {(link.stream, link.role): link.point for link in links}
    bridged = bool(links) and not links[0].attachment.on_nic
    return {
        path.name: (
            *([forwarding_point(path, PointKind.BRIDGE, PathSection.BEFORE)] if bridged else []),
            *([own[path.name, "ingress"]] if own else []),
            _VIRTUAL_NIC,
            _INGRESS_NIC,
            _SOFTNET,
            _IP_LAYER,
            CountingPoint("guest", PathSection.INSIDE, names_segment=True),
            _EGRESS_QUEUE,
            _EGRESS_NIC,
            CountingPoint("VMM egress", PathSection.BEHIND, names_segment=True),
            *([own[path.name, "egress"]] if own else []),
            *([_behind(path)] if bridged else []),
        )
        for path in paths
    }


def _behind(path: StreamPath) -> CountingPoint:
    return replace(forwarding_point(path, PointKind.BRIDGE, PathSection.BEHIND), name="egress bridge")


def points_inside(
    nics: Mapping[str, GuestNics], *, own_kernel: bool, stack: PointKind = PointKind.IP_COUNTERS
) -> Points:
    """Return the counting points inside a guest, by stream, as places of its machine.

    The backlog is counted only in a guest with its own kernel: otherwise its machine counts it. `stack` is the part of
    the kernel that forwards.
    """

    def at(point: CountingPoint, kind: PointKind, interface: str = "") -> CountingPoint:
        return replace(point, kind=kind, place=InterfaceRef(None, None, interface))

    shared = (at(_IP_LAYER, stack), *((at(_SOFTNET, PointKind.BACKLOG),) if own_kernel else ()))
    return {
        stream: (
            # A guest's driver may report drops of the virtual NIC, which is in front of the guest.
            at(_VIRTUAL_NIC, PointKind.BUFFERS, own.ingress),
            at(_INGRESS_NIC, PointKind.NIC, own.ingress),
            *shared,
            at(_EGRESS_QUEUE, PointKind.QUEUE, own.egress),
            at(_EGRESS_NIC, PointKind.NIC, own.egress),
        )
        for stream, own in nics.items()
    }


def places_of(links: Sequence[GuestLink]) -> list[InterfaceRef]:
    """Return all NICs of the machine between which a guest forwards: the machine's own, and those of the guest."""
    return [place for link in links for place in (link.nic.place, link.place)]


def bridges(machine: Machine, links: Sequence[GuestLink]) -> dict[InterfaceRef, int]:
    """Return the index of the bridge that each NIC of the machine is a port of."""
    return {place: nic.master for place, nic in machine.read_nics(places_of(links)).items()}


def read_links(
    machine: Machine, links: Sequence[GuestLink], attached: Mapping[InterfaceRef, int], guest: str
) -> Iterator[CounterReading]:
    """Yield the counters of the machine's ends of a guest's NICs.

    TestbedError when one is gone, when a NIC is not `attached` to its bridge any more, or when a NIC is down.
    """
    counted = machine.read_nics(places_of(links))
    for link in links:
        if link.place not in counted:
            raise TestbedError(f"{guest}: its {link.kind} {link.interface} is gone")
    for place, nic in counted.items():
        if nic.master != attached.get(place):
            raise TestbedError(f"{guest}: {place.interface} is not attached to its bridge any more")
        if not forwards(nic):
            raise TestbedError(f"{guest}: {place.interface} is down")
    for link in links:
        way = link.point.direction
        passed, dropped = (getattr(counted[link.place], counter) for counter in (way, f"{way}_dropped"))
        if way == link.attachment.to_guest == "rx":
            passed -= dropped  # rx also counts the frames dropped for lack of room
        yield CounterReading(link.stream, link.point.name, way, "passed", passed)
        yield CounterReading(link.stream, link.point.name, f"{way}_dropped", "dropped", dropped)
        for counter in link.attachment.dropped_too if way == link.attachment.to_guest else ():
            dropped = getattr(counted[link.place], counter)
            yield CounterReading(link.stream, link.point.name, counter, "dropped", dropped)
