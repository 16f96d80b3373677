"""What a topology asks of the machine: needs, changes, guests and their paths, CPUs. Touches nothing."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import cast

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.generators.base import Generator
from netbench.linux.changes import (
    AddNamespace,
    AddVeth,
    Change,
    MovePort,
    OffloadsOff,
    SetSysctl,
    SetUp,
)
from netbench.model.paths import StreamPath, veth_mac
from netbench.model.profile import Profile
from netbench.model.scenario import Activity, Network, Off, Scenario
from netbench.model.topology import Topology, host_of
from netbench.sinks.base import SinkKind


def activities_of(topology: Topology, scenarios: Iterable[Scenario]) -> dict[str, list[Activity]]:
    """What each neighbour does that is there in any of these scenarios."""
    found: dict[str, list[Activity]] = {}
    for scenario in scenarios:
        for one in topology.neighbours:
            if not isinstance(does := topology.activity(scenario, one.name), Off):
                found.setdefault(one.name, []).append(does)
    return found


def base_changes(topology: Topology, machine: str | None = None) -> list[Change]:
    """What is changed on this machine, or in a VM, before any UUT comes in, in order."""
    hosts = [host for host in topology.hosts if topology.machine(host) == machine]
    own = [netns for host in hosts if (netns := topology.netns(host))]
    changes: list[Change] = [AddNamespace(netns) for netns in own]
    for netns in own:
        # Without IPv6 the kernel sends nothing of its own accord that would be counted among our frames.
        changes += [SetSysctl(netns, f"net.ipv6.conf.{part}.disable_ipv6", "1", True) for part in ("all", "default")]
    nics: list[tuple[str | None, str]] = []
    for link in (link for link in topology.links if topology.machine(host_of(link.ends[0])) == machine):
        for end in link.ends:
            netns, interface = topology.netns(host_of(end)), topology.interface(end)
            nics.append((netns, interface))
            if topology.is_port(end) and netns:
                changes.append(MovePort(interface, netns))
        if not topology.is_port(link.ends[0]):
            changes.append(_veth(topology, link.ends[0], link.ends[1]))
    for netns, interface in nics:
        if netns is None:
            changes.append(SetSysctl(None, f"net.ipv6.conf.{interface}.disable_ipv6", "1", True))
        changes.append(OffloadsOff(netns, interface))
    # By namespace: those of one are brought up by one command.
    namespaces = list(dict.fromkeys(netns for netns, _ in nics))
    return [*changes, *(SetUp(netns, nic) for one in namespaces for netns, nic in nics if netns == one)]


def paths_in_use(
    topology: Topology, paths: Sequence[StreamPath], activities: Mapping[str, Collection[Activity]]
) -> tuple[StreamPath, ...]:
    """The paths that ever carry frames: those through the UUT, and through neighbours that forward."""
    forwards = {name for name, done in activities.items() if any(isinstance(does, Network) for does in done)}
    idle = {stream for one in topology.neighbours if one.name not in forwards for stream in one.streams}
    return tuple(path for path in paths if path.name not in idle)


def make_backends(profile: Profile) -> tuple[Generator, SinkKind]:
    """What sends and what receives, as a profile describes them: one object where one kind does both."""
    sends, receives = plugins(GENERATORS)[profile.generator.kind], plugins(SINKS)[profile.sink.kind]
    generator: Generator = sends(sends.Options.model_validate(profile.generator.options))
    if sends is receives:
        return generator, cast(SinkKind, generator)
    return generator, receives(receives.Options.model_validate(profile.sink.options))


def cpu_plan(streams: int, cpus: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """CPUs of each stream's source and sink.

    Every source has a CPU of its own where there is one, sinks share what is left. Where there are too
    few, nothing is pinned (empty): the scheduler balances better than a fixed overload would.
    """
    if len(cpus) >= 2 * streams:
        return [((cpus[n],), (cpus[streams + n],)) for n in range(streams)]
    if len(cpus) > streams:
        return [((cpus[n],), tuple(cpus[streams:])) for n in range(streams)]
    return [((), ()) for _ in range(streams)]


def cpu_plans(
    paths: Sequence[StreamPath], cpus: Callable[[str | None], Sequence[int]]
) -> Iterator[tuple[StreamPath, tuple[tuple[int, ...], tuple[int, ...]]]]:
    """Each path with the CPUs of its source and sink, out of those that `cpus` says a machine has."""
    machines = dict.fromkeys(path.source.machine for path in paths)
    for machine in machines:
        there = [path for path in paths if path.source.machine == machine]
        yield from zip(there, cpu_plan(len(there), cpus(machine)), strict=True)


def usable_cpus() -> list[int]:
    """The CPUs this process may run on."""
    return sorted(os.sched_getaffinity(0))


def resources(topology: Topology) -> set[str]:
    """What of this machine nobody else may use meanwhile, by name, for locks."""
    here = {host for host in topology.hosts if topology.machine(host) is None}
    names = {f"netns:{topology.netns(host)}" for host in here if topology.netns(host)}
    names |= {f"vm:{topology.name}-{vm}" for vm in topology.vms}
    for link in topology.links:
        ends = [end for end in link.ends if host_of(end) in here]
        names |= {f"port:{topology.interface(end)}" for end in ends if topology.is_port(end)}
        names |= {f"nic:{topology.interface(end)}" for end in ends if topology.netns(host_of(end)) is None}
    return names


def _veth(topology: Topology, one: str, other: str) -> AddVeth:
    return AddVeth(
        netns=topology.netns(host_of(one)),
        interface=topology.interface(one),
        mac=veth_mac(topology, one),
        peer_netns=topology.netns(host_of(other)),
        peer=topology.interface(other),
        peer_mac=veth_mac(topology, other),
    )
