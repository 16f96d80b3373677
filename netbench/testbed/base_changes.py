"""The changes a topology makes on a machine before any UUT is brought in, and the resources it locks meanwhile."""

from netbench.linux.changes import (
    AddNamespace,
    AddVeth,
    Change,
    KeepPort,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
    of_nic,
)
from netbench.model.interfaces import host_of
from netbench.model.stream_paths import veth_mac
from netbench.model.topology import Topology, devices
from netbench.model.topology_specs import LinkSpec
from netbench.testbed.cabling import device_changes
from netbench.testbed.emulated_ssh_hosts import namespaces_of

# The lock of UUTs outside all namespaces: they would share networks, settings, and names (those of their streams).
_OUTSIDE = "uut:outside-namespaces"


def base_changes(topology: Topology, machine: str | None = None) -> list[Change]:
    """Return the changes on this machine, or on a VM or SSH host, before any UUT is brought in, in order.

    For a VM that is a device under test, these are the changes that set up the device.
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
    nics: list[tuple[str | None, str]] = []
    ports = {topology.interface(end) for end in ends if topology.is_port(end)}
    for link in topology.links:
        own_ends = [end for end in link.ends if topology.machine(host_of(end)) == machine]
        for end in own_ends:
            netns, interface = topology.netns(host_of(end)), topology.interface(end)
            nics.append((netns, interface))
            if topology.is_port(end) and netns:
                changes.append(MovePort(interface, netns))
        if own_ends and not topology.is_port(link.ends[0]):
            changes.append(_veth(topology, link))
    for netns, interface in nics:
        if netns is None:
            changes.append(SetSysctl(None, of_nic(6, interface, "disable_ipv6"), "1", True))
        changes.append(OffloadsOff(netns, interface, tagging=interface not in ports))
    # Grouped by namespace: one command brings up all interfaces of a namespace.
    namespaces = list(dict.fromkeys(netns for netns, _ in nics))
    return [*changes, *(SetUp(netns, nic) for namespace in namespaces for netns, nic in nics if netns == namespace)]


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
