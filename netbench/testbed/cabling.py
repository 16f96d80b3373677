"""Cables between VMs that are hosts: the ends that each of them has, and how a device under test is set up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from netbench.linux.changes import AddBridge, Change
from netbench.model.cables import cables, devices
from netbench.model.paths import StreamPath, nic_of, stream_paths, veth_mac
from netbench.model.topology import Topology
from netbench.uut.forwarding import changes_in_guest
from netbench.vmm.base import CableEnd


def cable_ends(topology: Topology, directories: Mapping[str, Path]) -> dict[str, list[CableEnd]]:
    """The cabled NICs of each VM; `directories` are those of VMs, by name, for what they keep while they run.

    VMs are started in the order of the file: of the two at a cable, the first makes its socket.
    """
    order = list(topology.vms)
    found: dict[str, list[CableEnd]] = {name: [] for name in order}
    for number, ends in cables(topology):
        nics = [(end, nic) for end in ends if (nic := topology.vm_nic(end))]
        first = min((nic.vm for _, nic in nics), key=order.index)
        for end, (vm, name) in nics:
            model, socket = topology.vms[vm].nics[name], directories[first] / f"cable-{number}"
            found[vm].append(CableEnd(name, veth_mac(topology, end), model, socket, vm == first))
    return found


def device_changes(topology: Topology, vm: str) -> list[Change]:
    """What sets up a VM that is a device under test, once: as somebody does who then leaves it alone."""
    spec = topology.vms[vm]
    assert spec.forward is not None
    changes = changes_in_guest(_ways(topology, vm), spec.forward)
    return [replace(one, stp_s=spec.stp) if isinstance(one, AddBridge) else one for one in changes]


def _ways(topology: Topology, vm: str) -> Sequence[StreamPath]:
    """The paths of the streams through a device, with its NICs where UUTs have theirs."""
    paths = {path.name: path for path in stream_paths(topology)}
    return [
        replace(paths[way.stream.name], ingress=nic_of(topology, way.ingress), egress=nic_of(topology, way.egress))
        for way in devices(topology)[vm]
    ]
