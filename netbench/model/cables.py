"""Cables between NICs of VMs that are hosts, and the streams through a VM that is a device under test."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from netbench.model.topology import LinkSpec, StreamSpec, Topology


class VmNic(NamedTuple):
    """A NIC of a VM that is a host, by the names of VM and NIC."""

    vm: str
    nic: str


class Cable(NamedTuple):
    """A link between NICs of two VMs: its number among all links, from 1, and its ends in the order of the file."""

    number: int
    ends: tuple[str, str]


class Way(NamedTuple):
    """The path of a stream through a device under test: the link ends that are its NICs there."""

    stream: "StreamSpec"
    ingress: str
    egress: str


def cables(topology: "Topology") -> list[Cable]:
    """Return the links that netbench makes between NICs of VMs."""
    return [
        Cable(number, (link.ends[0], link.ends[1]))
        for number, link in enumerate(topology.links, start=1)
        if len(link.ends) == 2 and topology.vm_nic(link.ends[0])
    ]


def devices(topology: "Topology") -> dict[str, list[Way]]:
    """Return the VMs that are devices under test, each with the ways of streams through it."""
    across = {end: far for cable in cables(topology) for end, far in (cable.ends, cable.ends[::-1])}
    found: dict[str, list[Way]] = {name: [] for name, vm in topology.vms.items() if vm.forward}
    for stream in topology.streams:
        if stream.ingress is None and stream.source in across and stream.sink in across:
            way = Way(stream, across[stream.source], across[stream.sink])
            ingress, egress = topology.vm_nic(way.ingress), topology.vm_nic(way.egress)
            if ingress and egress and ingress.vm == egress.vm in found:
                found[ingress.vm].append(way)
    return found


def cable_problems(topology: "Topology") -> Iterator[str]:
    """Yield the problems of NICs of VMs as text."""
    used: dict[VmNic, str] = {}
    for link in topology.links:
        yield from _link_problems(topology, link)
        for end in link.ends:
            if not (found := topology.vm_nic(end)):
                continue
            if used.setdefault(found, end) != end:
                yield f"link end {end}: NIC {found.nic} of VM {found.vm} is {used[found]} already"
    for nic in (VmNic(name, nic) for name, vm in topology.vms.items() for nic in vm.nics):
        if nic not in used:
            yield f"host {nic.vm}: nics: {nic.nic} is the end of no link"
    for name, ways in devices(topology).items():
        if not ways:
            yield f"host {name}: forward: no stream has both its source and its sink cabled to it"


def _link_problems(topology: "Topology", link: "LinkSpec") -> Iterator[str]:
    ends = [topology.vm_nic(end) for end in link.ends]
    if not any(ends):
        return
    title = f"link {' – '.join(link.ends)}"
    if len(ends) != 2 or not all(ends) or len({end.vm for end in ends if end}) != 2:
        yield f"{title}: netbench cables NICs of two VMs (`nics` under hosts) with each other, and with nothing else"
    if link.mtu is not None:
        yield f"{title}: mtu: a cable between VMs is for frames of the usual size; leave it out"
