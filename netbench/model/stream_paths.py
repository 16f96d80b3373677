"""The paths of a topology's streams, with the names and MAC addresses of their NICs."""

from netbench.model.paths import Nic, StreamId, StreamPath, host_of
from netbench.model.topology import Topology
from netbench.model.topology_specs import StreamSpec


def stream_paths(topology: Topology) -> tuple[StreamPath, ...]:
    """Return the paths of all streams. MAC addresses of netbench's NICs are fixed by their position in the file.

    Those of ports are empty.
    """
    return tuple(_path(topology, stream, number) for number, stream in enumerate(topology.streams, start=1))


def veth_mac(topology: Topology, end: str) -> str:
    """Return the MAC of a veth end or a VM's NIC: locally administered, `nb` in ASCII, then link number and end."""
    link, position = next(
        (number, link.ends.index(end)) for number, link in enumerate(topology.links, start=1) if end in link.ends
    )
    return f"02:6e:62:{link >> 8:02x}:{link & 0xFF:02x}:{position + 1:02x}"


def _path(topology: Topology, stream: StreamSpec, number: int) -> StreamPath:
    link = topology.stream_link(stream)
    return StreamPath(
        name=stream.name,
        number=number,
        source=nic_of(topology, stream.source),
        ingress=nic_of(topology, stream.ingress) if stream.ingress else None,
        egress=nic_of(topology, stream.egress) if stream.egress else None,
        sink=nic_of(topology, stream.sink),
        link_bps=link.rate,
        receive=link.receive if stream.ingress or stream.sink in link.ends else "inline",
        mtu=min(hop.mtu_bytes for hop in topology.links_of(stream)),
        reverse_of=_reverse_of(topology, stream),
        has_reverse=any(stream.reverse or candidate.reverse == stream.name for candidate in topology.streams),
        packet=stream.packet,
    )


def _reverse_of(topology: Topology, stream: StreamSpec) -> StreamId | None:
    numbers = {candidate.name: number for number, candidate in enumerate(topology.streams, start=1)}
    return StreamId(stream.reverse, numbers[stream.reverse]) if stream.reverse else None


def nic_of(topology: Topology, end: str) -> Nic:
    """Return the NIC of a link end."""
    host = host_of(end)
    is_port = topology.is_port(end)
    # The MAC of a port that netbench has not made must be read from its machine.
    mac = "" if is_port and not topology.vm_nic(end) else veth_mac(topology, end)
    return Nic(host, topology.machine(host), topology.netns(host), topology.interface(end), mac, is_port)
