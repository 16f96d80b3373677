"""Cables between VMs that are hosts: the cable ends of each VM, and the set-up of a device under test."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from netbench.linux.changes import AddBridge, Change
from netbench.model.paths import StreamPath
from netbench.model.stream_paths import nic_of, stream_paths, veth_mac
from netbench.model.topology import Topology, cables, devices
from netbench.uut.forwarding import changes_in_guest
from netbench.vmm.base import CableEnd


def cable_ends(topology: Topology, directories: Mapping[str, Path]) -> dict[str, list[CableEnd]]:
    """Return the cabled NICs of each VM; `directories` are the runtime directories of the VMs, by name.

    VMs are started in the order of the file. Of the two VMs at a cable, the first one creates the socket.
    """
    order = list(topology.vms)
    ends_of: dict[str, list[CableEnd]] = {name: [] for name in order}
    for number, ends in cables(topology):
        nics = [(end, nic) for end in ends if (nic := topology.vm_nic(end))]
        first = min((nic.vm for _, nic in nics), key=order.index)
        for end, (vm, name) in nics:
            model, socket = topology.vms[vm].nics[name], directories[first] / f"cable-{number}"
            ends_of[vm].append(CableEnd(name, veth_mac(topology, end), model, socket, vm == first))
    return ends_of


def device_changes(topology: Topology, vm: str) -> list[Change]:
    """Return the changes that set up a VM as a device under test, once: nothing reconfigures it later."""
    spec = topology.vms[vm]
    assert spec.forward is not None
    changes = changes_in_guest(_ways(topology, vm), spec.forward)
    return [replace(change, stp_s=spec.stp) if isinstance(change, AddBridge) else change for change in changes]


def _ways(topology: Topology, vm: str) -> Sequence[StreamPath]:
    """Return the paths of the streams through a device, with its NICs in place of those of a UUT."""
    paths = {path.name: path for path in stream_paths(topology)}
    return [
        replace(paths[way.stream.name], ingress=nic_of(topology, way.ingress), egress=nic_of(topology, way.egress))
        for way in devices(topology)[vm]
    ]
