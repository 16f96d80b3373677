"""The identities of sources, sinks and hosts: the usual ones before a testbed is up, the real ones after."""

from collections.abc import Mapping
from dataclasses import replace

from netbench.config.plugins import GENERATORS, SINKS, origin, plugins
from netbench.hosts.base import kernel_of
from netbench.hosts.local import LocalHost
from netbench.linux.machine import Machine
from netbench.model.profile import KindSpec, Profile
from netbench.model.tester import HostIdentity, Identity, StreamEnds, options_text
from netbench.model.topology import Topology
from netbench.testbed.cpus import Pins
from netbench.testbed.environment import virtualisation


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
