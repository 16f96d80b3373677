"""What a topology with a profile comes to, as data: each UUT and its neighbours, needs, paths in use, what sends."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from netbench.config.plugins import GENERATORS, SINKS, UUTS, plugins
from netbench.errors import MissingError, UsageError
from netbench.generators.base import Generator
from netbench.model.entitlement import Entitlement
from netbench.model.interfaces import host_of
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath, stream_paths
from netbench.model.profile import Profile, SinkSpec
from netbench.model.scenario import VICTIM, Activity, Network, Off, Scenario, Stress
from netbench.model.topology import Topology, UutSpec
from netbench.sinks.base import SinkKind
from netbench.testbed.base_changes import resources
from netbench.testbed.cpus import placed, usable_cpus, victim_cpus
from netbench.testbed.frame_sizes import refuse_mixes, refuse_too_large
from netbench.testbed.requirements import TOOLS
from netbench.testbed.virtual_machines import vmm_of
from netbench.uut.base import Assignment, UnitUnderTest, UutPlan
from netbench.uut.guest import Guest
from netbench.vmm.base import Vmm

# What a neighbour gets of a CPU that is the UUT's too. About.
_SHARED_CPU = 0.6


@dataclass(frozen=True, slots=True)
class ResolvedGuest:
    """A UUT, called VICTIM, or a neighbour beside it: what it is to be, and what it would do."""

    name: str
    spec: UutSpec
    assignment: Assignment
    plan: UutPlan
    pace: Pace

    def make(self) -> UnitUnderTest:
        """It, not provisioned yet."""
        return make_uut(self.spec)


Guests = Mapping[str, ResolvedGuest]


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a topology and a profile come to for some UUTs and scenarios; nothing of it has touched a machine.

    `guests` are those of each UUT, by name; `activities` what each neighbour does that is ever there. `part_of` is what
    all UUTs of a campaign come to, where these are some of them. `lacking` has what this host lacks for UUTs that are
    not measured for that reason, by their names.
    """

    topology: Topology
    profile: Profile
    guests: Mapping[str, Guests]
    activities: Mapping[str, Sequence[Activity]]
    part_of: "Resolved | None" = None
    lacking: Mapping[str, str] = field(default_factory=dict)

    def on(self, machine: str | None) -> "Resolved":
        """What concerns the UUTs that are `on` a VM, or (None) on none."""
        topology = self.topology.on(machine)
        guests = {uut.name: self.guests[uut.name] for uut in topology.uuts if uut.name in self.guests}
        return replace(self, topology=topology, guests=guests, part_of=self.part_of or self)

    @property
    def needs(self) -> frozenset[str]:
        """What this host must be able to do for all of the campaign, in the words of `netbench doctor`."""
        return self.needs_for(self._measured)

    def needs_for(self, uuts: Collection[str]) -> frozenset[str]:
        """What it must be able to do for some of the campaign's UUTs."""
        return needs_of((self.part_of or self).topology, uuts, self.activities, self.profile.sink)

    @property
    def needs_there(self) -> frozenset[str]:
        """What the machine of the UUTs must be able to do for those that are measured, and for their neighbours."""
        guests = [one for guests in self.guests.values() for one in guests.values()]
        return frozenset(
            need for one in guests for need in _needs_of_guest(one.name, one.spec, one.plan, self.activities)
        )

    @property
    def resources(self) -> set[str]:
        """What of this machine nobody else may use meanwhile, by name, wherever the campaign's UUTs are just now."""
        topology = (self.part_of or self).topology
        places = {topology.uut(name).on for name in self._measured}
        return {one for place in places for one in resources(topology.on(place))}

    @property
    def _measured(self) -> list[str]:
        """All of the campaign's UUTs that this host lacks nothing for."""
        return [name for name in (self.part_of or self).guests if name not in self.lacking]

    @property
    def cpus_of_streams(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """By UUT, the CPUs of the guest that each stream runs through; left out where that may run on any."""
        return {
            uut: {
                path.name: cpus
                for guest in guests.values()
                for path in guest.assignment.paths
                if (cpus := guest.assignment.entitlement.cpus)
            }
            for uut, guests in self.guests.items()
        }

    @property
    def in_use(self) -> tuple[StreamPath, ...]:
        """The paths that ever carry frames: those through the UUTs, and through neighbours that forward."""
        forwards = {name for name, done in self.activities.items() if any(isinstance(does, Network) for does in done)}
        idle = {stream for one in self.topology.neighbours if one.name not in forwards for stream in one.streams}
        return tuple(path for path in stream_paths(self.topology) if path.name not in idle)


def resolve(
    topology: Topology, profile: Profile, uuts: Collection[str] = (), scenarios: Collection[str] = ()
) -> Resolved:
    """For these UUTs and scenarios, by name (empty: all); raises as `resolve_guests`."""
    chosen = [profile.scenario(name) for name in scenarios] or profile.scenarios
    guests = {uut.name: resolve_guests(topology, uut) for uut in topology.uuts if not uuts or uut.name in uuts}
    activities = activities_of(topology, chosen)
    _refuse_half(profile)
    refuse_mixes(topology, profile, activities)
    refuse_too_large(topology, profile, activities)
    return Resolved(topology, profile, guests, activities)


def _refuse_half(profile: Profile) -> None:
    """UsageError for a sink that knows its own generator's frames alone, where another one sends."""
    generator, sink = profile.generator.kind, profile.sink.kind
    if plugins(SINKS)[sink].counts_own_only and plugins(GENERATORS)[generator] is not plugins(SINKS)[sink]:
        raise UsageError(
            f"profile {profile.name}: the sink {sink} counts what the generator {sink} sends, and the generator is "
            f"{generator}; take {sink} for both, or another sink"
        )


def resolve_guests(
    topology: Topology,
    uut: UutSpec,
    paths: Sequence[StreamPath] | None = None,
    cpus: Sequence[int] | None = None,
    run_id: str = "RUN",
) -> Guests:
    """A UUT and its neighbours by name, the victim first.

    `paths` and `cpus` are those of its machine as far as they are known by now. UsageError when one of them cannot be
    what the topology says, MissingError when the machine has no such CPU.
    """
    topology = topology.on(uut.on)
    paths = stream_paths(topology) if paths is None else paths
    cpus = cpus_of(topology, topology.uut_machine) if cpus is None else cpus
    neighbours = [one.beside(uut) for one in topology.neighbours]
    streams = {VICTIM: tuple(stream.name for stream in topology.own_streams)} | {
        one.name: one.streams for one in neighbours
    }
    try:
        own = victim_cpus(uut, neighbours, cpus)
        entitled = {VICTIM: replace(uut.entitlement, cpus=own)}
        for one in neighbours:
            entitled[one.name] = Entitlement(placed(one.placement, own, cpus), one.cpu_weight, one.cpu_limit)
    except (UsageError, MissingError) as error:
        raise type(error)(f"UUT {uut.name}: {error}") from error
    beside_victim = {one.name for one in neighbours if one.placement == "same-cpu"}
    found = {}
    for name, spec in guest_specs(topology, uut).items():
        through, guest = tuple(path for path in paths if path.name in streams[name]), make_uut(spec)
        try:
            guest.check(through)
        except UsageError as error:
            who = "" if name == VICTIM else f"neighbour {name}: "
            raise UsageError(f"UUT {uut.name}: {who}{error}") from error
        assignment = Assignment(spec.name, through, entitled[name], topology.uut_host, run_id)
        plan = guest.plan(assignment)
        pace = plan.pace.with_share(spec.cpu_limit).with_share(_SHARED_CPU if name in beside_victim else None)
        found[name] = ResolvedGuest(name, spec, assignment, plan, pace)
    return found


def guest_specs(topology: Topology, uut: UutSpec) -> dict[str, UutSpec]:
    """A UUT, as VICTIM, and each of its neighbours as something that forwards, by name."""
    kinds = plugins(UUTS)
    neighbours = [one.beside(uut) for one in topology.neighbours]
    specs = {one.name: one.as_uut(uut, kinds[one.kind or uut.kind].Options.model_fields) for one in neighbours}
    return {VICTIM: uut, **specs}


def needs_of(
    topology: Topology,
    uuts: Collection[str] = (),
    activities: Mapping[str, Collection[Activity]] | None = None,
    sink: SinkSpec = SinkSpec(),  # noqa: B008 - frozen
) -> frozenset[str]:
    """What this host must be able to do for these UUTs (empty: all of them), in the words of `netbench doctor`.

    `activities` is what each neighbour does that is ever there; left out, they all are there and may do anything.
    """
    chosen = [uut for uut in topology.uuts if not uuts or uut.name in uuts]
    needs = {f"port:{port.nic}" for port in topology.ports()}
    for machine in dict.fromkeys(uut.on for uut in chosen):
        needs |= _needs_of_testbed(topology.on(machine), chosen, activities, sink)
    return frozenset(needs)


def _needs_of_testbed(
    topology: Topology,
    chosen: Collection[UutSpec],
    activities: Mapping[str, Collection[Activity]] | None,
    sink: SinkSpec,
) -> set[str]:
    needs = {"root", "setpriv"}
    here = [host for host in topology.hosts if topology.machine(host) is None]
    if here:
        needs |= {"packet", *(tool.name for tool in TOOLS if not tool.optional), *plugins(SINKS)[sink.kind].needs}
    if any(topology.netns(host) for host in here):
        needs.add("netns")
    if any(host_of(link.ends[0]) in here and not topology.is_port(link.ends[0]) for link in topology.links):
        needs.add("veth")
    if any(path.receive == "napi" and path.source.machine is None for path in stream_paths(topology)):
        needs.add("napi")
    for vm in topology.vms.values():
        needs |= vmm_of(vm).needs()
    if topology.ssh_hosts:
        needs.add("ssh")
    if any(spec.is_played for spec in topology.ssh_hosts.values()):
        needs |= {"netns", "veth", "sshd", "ssh-keygen", "unshare"}
    machine = topology.uut_machine
    uut_here = machine is None or (machine in topology.ssh_hosts and topology.ssh_hosts[machine].is_played)
    for uut in (uut for uut in topology.uuts if uut in chosen):
        for name, spec in guest_specs(topology, uut).items():
            wanted = _needs_of_guest(name, spec, make_uut(spec).plan(Assignment()), activities)
            # A VM has what its image has, a host over SSH what is installed there; images of guests are brought there.
            needs |= {one for one in wanted if uut_here or one.startswith("image:")}
    return needs


def _needs_of_guest(
    name: str, spec: UutSpec, plan: UutPlan, activities: Mapping[str, Collection[Activity]] | None
) -> set[str]:
    """What its machine must be able to do for a UUT or a neighbour that does this; for None it may do anything."""
    does = (activities or {}).get(name, ())
    needs: set[str] = set()
    if name == VICTIM or activities is None or does:
        needs |= plan.needs | ({"cgroup-cpu"} if _has_share(spec) else set())
    if any(isinstance(one, Stress) for one in does):
        needs |= plan.load_needs or set()
    return needs


def _has_share(spec: UutSpec) -> bool:
    return spec.entitlement.weight is not None or spec.entitlement.limit is not None


def activities_of(topology: Topology, scenarios: Iterable[Scenario]) -> dict[str, list[Activity]]:
    """What each neighbour does that is there in any of these scenarios."""
    found: dict[str, list[Activity]] = {}
    for scenario in scenarios:
        for one in topology.neighbours:
            if not isinstance(does := topology.activity(scenario, one.name), Off):
                found.setdefault(one.name, []).append(does)
    return found


def cpus_of(topology: Topology, machine: str | None) -> Sequence[int]:
    """The CPUs to use of a VM, or of this machine; those of an SSH host are taken to be as many until it is asked."""
    return range(topology.vms[machine].cpus) if machine in topology.vms else usable_cpus()


def make_uut(spec: UutSpec) -> UnitUnderTest:
    """The UUT a topology describes."""
    kind = plugins(UUTS)[spec.kind]
    made: UnitUnderTest | Vmm = kind(kind.Options.model_validate(spec.options))
    return Guest(made) if isinstance(made, Vmm) else made


def make_backends(profile: Profile) -> tuple[Generator, SinkKind]:
    """What sends and what receives, as a profile describes them: one object where one kind does both."""
    sends, receives = plugins(GENERATORS)[profile.generator.kind], plugins(SINKS)[profile.sink.kind]
    generator: Generator = sends(sends.Options.model_validate(profile.generator.options))
    if sends is receives:
        return generator, cast(SinkKind, generator)
    return generator, receives(receives.Options.model_validate(profile.sink.options))
