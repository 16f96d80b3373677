"""The changes a topology makes on a machine before any UUT is brought in, and the resources it locks meanwhile.

Also the identities of sources, sinks and hosts: those expected before a testbed is up, and the actual ones after.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from netbench.config.plugins import GENERATORS, SINKS, origin, plugins
from netbench.hosts.base import kernel_of
from netbench.hosts.local import LocalHost
from netbench.linux.changes import (
    MAIN_TABLE,
    AddAddress,
    AddBridge,
    AddNamespace,
    AddRoute,
    AddVeth,
    Change,
    ChecksumOffloadOff,
    KeepPort,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
    of_nic,
)
from netbench.linux.machine import Machine
from netbench.model.paths import StreamPath, host_of
from netbench.model.profile import KindSpec, Profile
from netbench.model.stream_paths import nic_of, stream_paths, veth_mac
from netbench.model.tester import HostIdentity, Identity, StreamEnds, options_text
from netbench.model.topology import Topology, cables, devices
from netbench.model.topology_specs import LinkSpec
from netbench.model.traffic import PREFIX_LENGTH
from netbench.testbed.cpus import Pins
from netbench.testbed.emulated_ssh_hosts import namespaces_of
from netbench.testbed.environment import virtualisation
from netbench.uut.forwarding import changes_in_guest
from netbench.vmm.base import CableEnd

# The lock of UUTs outside all namespaces: they would share networks, settings, and names (those of their streams).
_OUTSIDE = "uut:outside-namespaces"


def base_changes(
    topology: Topology, machine: str | None = None, *, with_offloads: Collection[str] = ()
) -> list[Change]:
    """Return the changes on this machine, or on a VM or SSH host, before any UUT is brought in, in order.

    For a VM that is a device under test, these are the changes that set up the device. NICs (`host/nic`) in
    `with_offloads` join and split segments as their drivers do by default: flows are measured as applications use them.
    """
    if machine in devices(topology):
        return device_changes(topology, machine)
    hosts = [host for host in topology.hosts if topology.machine(host) == machine]
    own = [netns for host in hosts if (netns := topology.netns(host))]
    ends = [end for link in topology.links for end in link.ends if topology.machine(host_of(end)) == machine]
    # First: a port with a state that could not be restored is refused before anything is changed.
    changes: list[Change] = [
        KeepPort(topology.interface(end), lent=topology.netns(host_of(end)) is not None)
        for end in ends
        if topology.is_port(end)
    ]
    changes += [AddNamespace(netns) for netns in own]
    for netns in own:
        # Without IPv6 the kernel sends no frames by itself that would be counted among the test frames.
        changes += [SetSysctl(netns, f"net.ipv6.conf.{part}.disable_ipv6", "1", True) for part in ("all", "default")]
    nics: list[tuple[str | None, str, bool]] = []
    ports = {topology.interface(end) for end in ends if topology.is_port(end)}
    for link in topology.links:
        own_ends = [end for end in link.ends if topology.machine(host_of(end)) == machine]
        for end in own_ends:
            netns, interface = topology.netns(host_of(end)), topology.interface(end)
            nics.append((netns, interface, end in with_offloads))
            if topology.is_port(end) and netns:
                changes.append(MovePort(interface, netns))
        if own_ends and not topology.is_port(link.ends[0]):
            changes.append(_veth(topology, link))
    for netns, interface, has_offloads in nics:
        if netns is None:
            changes.append(SetSysctl(None, of_nic(6, interface, "disable_ipv6"), "1", True))
        if not has_offloads:
            changes.append(OffloadsOff(netns, interface, tagging=interface not in ports))
    # Grouped by namespace: one command brings up all interfaces of a namespace.
    namespaces = list(dict.fromkeys(netns for netns, _, _ in nics))
    return [*changes, *(SetUp(netns, nic) for namespace in namespaces for netns, nic, _ in nics if netns == namespace)]


def source_changes(profile: Profile, paths: Sequence[StreamPath], machine: str | None) -> list[Change]:
    """Return the changes on a machine to the NICs of sources that send described packets, after base_changes()."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    nics = dict.fromkeys(
        path.source
        for path in paths
        for packet in (path.packet, *profile.packets.values())
        if path.source.machine == machine and packet is not None and kind.leaves_checksums(packet)
    )
    return [ChecksumOffloadOff(nic.netns, nic.interface) for nic in nics]


def flow_changes(paths: Sequence[StreamPath], through: Collection[str], machine: str | None) -> list[Change]:
    """Return the changes on a machine for flows: the addresses of clients, by stream.

    Streams `through` the UUT have servers beside their sinks, with addresses, and routes in both directions.
    """
    changes: list[Change] = []
    for path in paths:
        for nic, address, network, gateway in (
            (path.source, path.src_ip, path.dst_network, path.ingress_ip),
            (path.sink, path.server_ip, path.src_network, path.egress_ip),
        ):
            if nic.machine != machine or (nic is path.sink and path.name not in through):
                continue
            changes.append(AddAddress(nic.netns, nic.interface, address, PREFIX_LENGTH))
            if path.name in through:
                changes.append(AddRoute(nic.netns, 4, nic.interface, MAIN_TABLE, gateway, network))
    return changes


def resources(topology: Topology, machine: str | None = None) -> set[str]:
    """Return the names of the locks on this machine, or on an SSH host, that exclude other runs."""
    here = {host for host in topology.hosts if topology.machine(host) == machine}
    names = {f"netns:{topology.netns(host)}" for host in here if topology.netns(host)}
    names |= {f"vm:{topology.name}-{vm}" for vm in topology.vms if machine is None}
    names |= {f"netns:{netns}" for netns in namespaces_of(topology).values() if machine is None}
    for link in topology.links:
        ends = [end for end in link.ends if host_of(end) in here]
        names |= {f"port:{topology.interface(end)}" for end in ends if topology.is_port(end)}
        names |= {f"nic:{topology.interface(end)}" for end in ends if topology.netns(host_of(end)) is None}
    uut_hosts = {host_of(stream.ingress) for stream in topology.streams if stream.ingress}
    if any(topology.netns(host) is None for host in uut_hosts & here):
        names.add(_OUTSIDE)
    return names


def _veth(topology: Topology, link: LinkSpec) -> AddVeth:
    first, second = link.ends
    return AddVeth(
        netns=topology.netns(host_of(first)),
        interface=topology.interface(first),
        mac=veth_mac(topology, first),
        peer_netns=topology.netns(host_of(second)),
        peer=topology.interface(second),
        peer_mac=veth_mac(topology, second),
        mtu=link.mtu_bytes,
    )


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


def usual_ends(profile: Profile, pins: Pins) -> StreamEnds:
    """Return the usual identities of a stream's source and sink on these CPUs; a source or sink may report others."""
    sends = _usual(GENERATORS, profile.generator)
    if plugins(GENERATORS)[profile.generator.kind] is plugins(SINKS)[profile.sink.kind]:
        receives = _usual(SINKS, profile.generator)  # one object, with its options under `generator`
    else:
        receives = _usual(SINKS, profile.sink)
        receives = replace(receives, options={**(receives.options or {}), "snap_length": str(profile.snap_length)})
    return StreamEnds(replace(sends, cpus=tuple(pins[0])), replace(receives, cpus=tuple(pins[1])))


def _usual(group: str, spec: KindSpec) -> Identity:
    options = plugins(group)[spec.kind].Options.model_validate(spec.options)
    return Identity(spec.kind, origin(group, spec.kind), options_text(options))


def host_identities(
    topology: Topology, machines: Mapping[str | None, Machine] | None = None
) -> dict[str, HostIdentity]:
    """Return each host's identity by name. `machines` are by VM once up; before that, VM kernels are unknown."""
    here = virtualisation()
    kernels: dict[str | None, str] = {None: kernel_of(LocalHost("local", "identities"))}
    facts: dict[str | None, Mapping[str, str]] = {}
    for name, machine in (machines or {}).items():
        kernels[name], facts[name] = kernel_of(machine.host()), machine.facts
    return {
        host: HostIdentity(
            kernels.get(topology.machine(host), ""),
            topology.machine(host),
            topology.netns(host),
            here["machine"],
            here["container"],
            facts.get(topology.machine(host), {}),
        )
        for host in topology.hosts
    }
