"""The guests of a topology as specifications and as UUTs, their activities, and the CPUs of their machines."""

from collections.abc import Iterable, Sequence

from netbench.config.plugins import UUTS, plugins
from netbench.model.scenario import VICTIM, Activity, Off, Scenario
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.testbed.cpus import usable_cpus
from netbench.uut.base import UnitUnderTest
from netbench.uut.private_guest import guest_of
from netbench.vmm.base import Vmm


def guest_specs(topology: Topology, uut: UutSpec) -> dict[str, UutSpec]:
    """Return a UUT, as VICTIM, and each of its neighbours as a UUT specification, by name."""
    kinds = plugins(UUTS)
    neighbours = [neighbour.beside(uut) for neighbour in topology.neighbours]
    specs = {
        neighbour.name: neighbour.as_uut(uut, kinds[neighbour.kind or uut.kind].Options.model_fields)
        for neighbour in neighbours
    }
    return {VICTIM: uut, **specs}


def activities_of(topology: Topology, scenarios: Iterable[Scenario]) -> dict[str, list[Activity]]:
    """Return the activities of each neighbour that runs in any of these scenarios."""
    found: dict[str, list[Activity]] = {}
    for scenario in scenarios:
        for neighbour in topology.neighbours:
            if not isinstance(activity := topology.activity(scenario, neighbour.name), Off):
                found.setdefault(neighbour.name, []).append(activity)
    return found


def cpus_of(topology: Topology, machine: str | None) -> Sequence[int]:
    """Return the usable CPUs of a VM, or of this machine; an SSH host counts as this machine until it is connected."""
    return range(topology.vms[machine].cpus) if machine in topology.vms else usable_cpus()


def make_uut(spec: UutSpec) -> UnitUnderTest:
    """Return the UUT that a topology describes."""
    kind = plugins(UUTS)[spec.kind]
    made: UnitUnderTest | Vmm = kind(kind.Options.model_validate(spec.options))
    return guest_of(made) if isinstance(made, Vmm) else made
