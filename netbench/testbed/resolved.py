"""A topology and a profile resolved into data: each UUT and its neighbours, their needs, and the paths in use."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from netbench.config.plugins import GENERATORS, SINKS, plugins
from netbench.errors import MissingError, UsageError
from netbench.generators.base import Generator
from netbench.model.frame_size import FrameSize
from netbench.model.packet import PLAIN_PACKET, Packet
from netbench.model.paths import StreamPath
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM, Activity, Network, Off, Serve
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.topology_specs import CpuShares, UutSpec
from netbench.model.virtualisation import DurationEstimate
from netbench.model.workload import FlowPath
from netbench.sinks.base import SinkKind
from netbench.testbed.bring_up import resources
from netbench.testbed.cpus import CpuCompetition, placed, victim_cpus
from netbench.testbed.flow_checks import (
    FlowNeeds,
    PlacedTool,
    PlannedGuest,
    flow_needs,
    impossible_neighbour,
    refuse_workloads,
    unserved_workloads,
    workloads_in,
)
from netbench.testbed.frame_checks import refuse_half, refuse_mixes, refuse_too_large, sent_frames
from netbench.testbed.guest_specs import activities_of, cpus_of, guest_specs, make_uut
from netbench.testbed.needs import needs_of, needs_of_flows, needs_of_guest
from netbench.testbed.packet_checks import refuse_packets, unsuitable_frames
from netbench.uut.base import Assignment, GuestLan, UnitUnderTest, UutPlan

# Approximate share of a CPU that a neighbour gets if the UUT uses this CPU too.
_SHARED_CPU = 0.6


@dataclass(frozen=True, slots=True)
class ResolvedGuest:
    """A UUT, called VICTIM, or a neighbour beside it: its specification, assignment, plan and pace."""

    name: str
    spec: UutSpec
    assignment: Assignment
    plan: UutPlan
    pace: DurationEstimate

    def make(self) -> UnitUnderTest:
        """Return the guest as a UUT that is not provisioned yet."""
        return make_uut(self.spec)


Guests = Mapping[str, ResolvedGuest]


@dataclass(frozen=True, slots=True)
class Resolved:
    """A topology and a profile resolved for some UUTs and scenarios, before any change to a machine.

    `guests` are those of each UUT, by name. `activities` are those of each neighbour that runs in any scenario.
    `part_of` is the resolution for all UUTs of a campaign, if this one is for some of them. `lacking` is what this
    host lacks for each UUT that is not measured for that reason, by name. `unsupported` has the reasons why a UUT
    cannot forward a packet, by UUT and name of the packet ("" is the plain one), or size and packet: `1518 vxlan`.
    `flow_needs` are those of all flows.
    """

    topology: Topology
    profile: Profile
    guests: Mapping[str, Guests]
    activities: Mapping[str, Sequence[Activity]]
    part_of: "Resolved | None" = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    flow_needs: FlowNeeds = FlowNeeds()  # noqa: RUF009 - immutable

    def on(self, machine: str | None) -> "Resolved":
        """Return the part for the UUTs that are `on` a VM, or (None) on no VM."""
        topology = self.topology.on(machine)
        guests = {uut.name: self.guests[uut.name] for uut in topology.uuts if uut.name in self.guests}
        return replace(self, topology=topology, guests=guests, part_of=self.part_of or self)

    @property
    def needs(self) -> frozenset[str]:
        """The needs of the whole campaign on this host, by their names in `netbench doctor`."""
        return self.needs_for(self._measured)

    def needs_for(self, uuts: Collection[str]) -> frozenset[str]:
        """Return the needs of some of the campaign's UUTs on this host."""
        packets, topology = tuple(self.profile.packets.values()), (self.part_of or self).topology
        return needs_of(topology, uuts, self.activities, self.profile.sink, packets, self.tools)

    @property
    def tools(self) -> list[PlacedTool]:
        """The tools of all flows, with the paths of these."""
        served = [serve.workload for _, _, serve in workloads_in(self.profile, self.activities)]
        return [PlacedTool.of(workload) for workload in dict.fromkeys(served)]

    @property
    def needs_there(self) -> frozenset[str]:
        """The needs of the measured UUTs and their neighbours on the machine of the UUTs."""
        needs: set[str] = set()
        for guest in (guest for guests in self.guests.values() for guest in guests.values()):
            needs |= needs_of_guest(guest.name, guest.spec, guest.plan, self.activities)
            needs |= needs_of_flows(guest.make(), guest.plan, self.tools)
        return frozenset(needs)

    @property
    def resources(self) -> set[str]:
        """The names of the locks on this machine for the whole campaign, independent of the machine of its UUTs."""
        topology = (self.part_of or self).topology
        machines = {topology.uut(name).on for name in self._measured}
        return {resource for machine in machines for resource in resources(topology.on(machine))}

    @property
    def _measured(self) -> list[str]:
        """The campaign's UUTs for which this host lacks nothing."""
        return [name for name in (self.part_of or self).guests if name not in self.lacking]

    @property
    def cpus_of_streams(self) -> dict[str, dict[str, tuple[int, ...]]]:
        """By UUT, the CPUs of the guest that each stream runs through; guests that may run on any CPU are left out."""
        return {
            uut: {
                path.name: cpus
                for guest in guests.values()
                for path in guest.assignment.paths
                if (cpus := guest.assignment.cpu_shares.cpus)
            }
            for uut, guests in self.guests.items()
        }

    @property
    def competition(self) -> CpuCompetition:
        """The competition of its streams and guests for CPUs."""
        acts = self.activities.items()
        running = [name for name, activities in acts if any(not isinstance(activity, Off) for activity in activities)]
        return CpuCompetition(self._is_beside_flows, self._cpus_of_servers, (VICTIM, *running), self.streams_of_flows)

    def _is_beside_flows(self, path: StreamPath) -> bool:
        """Whether a stream carries frames only while those of the UUTs carry none: a neighbour's, beside flows."""
        return bool(self.profile.tool) and path.name not in {stream.name for stream in self.topology.own_streams}

    def _cpus_of_servers(self, path: StreamPath, usable: Sequence[int]) -> frozenset[int]:
        """Return the CPUs of all pinned UUTs that serve flows while a neighbour's stream carries frames.

        Its source and sink would delay the server there, where the neighbour itself may not.
        """
        if not self._is_beside_flows(path) or path.source.machine != self.topology.uut_machine:
            return frozenset()
        uuts = [self.topology.uut(name) for name in self.guests]
        beside = {uut.name: [neighbour.beside(uut) for neighbour in self.topology.neighbours] for uut in uuts}
        return frozenset(cpu for uut in uuts for cpu in victim_cpus(uut, beside[uut.name], usable))

    @property
    def in_use(self) -> tuple[StreamPath, ...]:
        """The paths that carry frames or flows in any scenario."""
        used = self.streams_of_frames | self.streams_of_flows
        return tuple(path for path in stream_paths(self.topology) if path.name in used)

    @property
    def streams_of_frames(self) -> frozenset[str]:
        """The streams that carry frames in any scenario."""
        own = [stream.name for stream in self.topology.own_streams]
        # A share of the maximum is one of the frames that the UUT itself forwards.
        acts = [activity for of_neighbour in self.activities.values() for activity in of_neighbour]
        forwards = not self.profile.tool or any(isinstance(act, Network) and act.share is not None for act in acts)
        return frozenset((*(own if forwards else ()), *self._streams_beside(Network)))

    @property
    def ends_of_flows(self) -> frozenset[str]:
        """The NICs (`host/nic`) whose segmentation offloads stay on: those of streams with flows in any scenario."""
        streams = [stream for stream in self.topology.streams if stream.name in self.streams_of_flows]
        ends = [end for stream in streams for end in (stream.source, stream.ingress)]
        ends += [
            end for stream in streams if stream.name in self.streams_through for end in (stream.egress, stream.sink)
        ]
        return frozenset(filter(None, ends))

    @property
    def streams_through(self) -> frozenset[str]:
        """The streams whose sink is the place of a server, in any scenario."""
        guests = self.flow_needs.through
        own = [stream.name for stream in self.topology.own_streams] if VICTIM in guests else []
        beside = (name for other in self.topology.neighbours if other.name in guests for name in other.streams)
        return frozenset((*own, *beside))

    @property
    def streams_of_flows(self) -> frozenset[str]:
        """The streams whose source is the place of a client, in any scenario."""
        own = [stream.name for stream in self.topology.own_streams] if self.profile.tool else []
        return frozenset((*own, *self._streams_beside(Serve)))

    def _streams_beside(self, kind: type[Network] | type[Serve]) -> Iterator[str]:
        """Yield the streams of neighbours with an activity of this kind in any scenario."""
        for neighbour in self.topology.neighbours:
            if any(isinstance(activity, kind) for activity in self.activities.get(neighbour.name, ())):
                yield from neighbour.streams


def resolve(
    topology: Topology, profile: Profile, uuts: Collection[str] = (), scenarios: Collection[str] = ()
) -> Resolved:
    """Resolve these UUTs and scenarios, by name (empty: all); raises the errors of `resolve_guests`."""
    chosen = [profile.scenario(name) for name in scenarios] or profile.scenarios
    packets = tuple(profile.packets.values())
    chosen_uuts = [uut for uut in topology.uuts if not uuts or uut.name in uuts]
    activities = activities_of(topology, chosen)
    refuse_workloads(profile, activities)
    needs = flow_needs(topology, profile, chosen, activities)
    guests = {uut.name: resolve_guests(topology, uut, packets=packets, flows=needs) for uut in chosen_uuts}
    planned = {
        uut: {name: PlannedGuest(guest.make(), guest.plan) for name, guest in beside.items()}
        for uut, beside in guests.items()
    }
    for uut, planned_guests in planned.items() if not profile.tool else ():
        if reason := impossible_neighbour(planned_guests, activities):
            raise UsageError(f"UUT {uut}: {reason}")
    refuse_half(profile)
    refuse_mixes(topology, profile, activities)
    refuse_too_large(topology, profile, activities)
    sizes: dict[str, list[FrameSize]] = {}
    for stream, size in sent_frames(topology, profile, activities):
        sizes.setdefault(stream.name, []).append(size)
    refuse_packets(profile, tuple(stream_paths(topology)), sizes)
    if profile.tool:
        unserved = unserved_workloads(profile, planned, needs, activities)
        return Resolved(topology, profile, guests, activities, unsupported=unserved, flow_needs=needs)
    unsupported = unsupported_packets(profile, guests)
    for uut, beside in guests.items():
        made, paths = beside[VICTIM].make(), beside[VICTIM].assignment.paths
        if unsuitable := unsuitable_frames(profile, made, paths):
            unsupported[uut] = unsuitable | unsupported.get(uut, {})
    _refuse_unsuitable(profile, unsupported, guests)
    return Resolved(topology, profile, guests, activities, unsupported=unsupported, flow_needs=needs)


def unsupported_packets(profile: Profile, guests: Mapping[str, Guests]) -> dict[str, dict[str, str]]:
    """Return why UUTs cannot forward packets of a profile, by UUT and name of the packet ("" is the plain one).

    UsageError for a packet that no UUT can forward, and for a stream's own packet that its UUT cannot.
    """
    packets = {name: profile.packets.get(name, PLAIN_PACKET) for name in profile.packet_names}
    reasons: dict[str, dict[str, str]] = {}
    for uut, beside in guests.items():
        made, paths = beside[VICTIM].make(), beside[VICTIM].assignment.paths
        for path in paths:
            if path.packet and (reason := made.unsupported_reason(path.packet, (path,))):
                raise UsageError(f"UUT {uut}: stream {path.name}: it cannot forward the stream's packet: {reason}")
        others = [path for path in paths if path.packet is None]
        found = {name: made.unsupported_reason(packet, others) for name, packet in packets.items()} if others else {}
        if left_out := {name: reason for name, reason in found.items() if reason}:
            reasons[uut] = left_out
    for name in packets:
        if guests and all(name in reasons.get(uut, {}) for uut in guests):
            each = "; ".join(f"UUT {uut}: {of_uut[name]}" for uut, of_uut in reasons.items())
            raise UsageError(f"profile {profile.name}: packet {name or 'plain'}: no UUT can forward it: {each}")
    return reasons


def _refuse_unsuitable(profile: Profile, reasons: Mapping[str, Mapping[str, str]], uuts: Collection[str]) -> None:
    """UsageError for frames of a size and packet that no UUT can forward, for one of them because of their size."""
    for size in map(str, profile.all_frame_sizes):
        refusing = [uut for uut in uuts if {size, size.partition(" ")[2]} & reasons.get(uut, {}).keys()]
        unsuitable = [f"UUT {uut}: {reasons[uut][size]}" for uut in refusing if size in reasons[uut]]
        if unsuitable and len(refusing) == len(uuts):
            raise UsageError(f"profile {profile.name}: frames {size}: no UUT can forward them: {'; '.join(unsuitable)}")


def resolve_guests(
    topology: Topology,
    uut: UutSpec,
    paths: Sequence[StreamPath] | None = None,
    cpus: Sequence[int] | None = None,
    run_id: str = "RUN",
    packets: tuple[Packet, ...] = (),
    flows: FlowNeeds = FlowNeeds(),  # noqa: B008 - immutable
) -> Guests:
    """Return a UUT and its neighbours by name, the victim first.

    `paths` and `cpus` are those of its machine, or None if they are not known yet. `packets` are those of the profile,
    `flows` the needs of its flows.
    UsageError when the topology describes a guest that is impossible, MissingError when the machine has no such CPU.
    """
    topology = topology.on(uut.on)
    paths = stream_paths(topology) if paths is None else paths
    cpus = cpus_of(topology, topology.uut_machine) if cpus is None else cpus
    neighbours = [neighbour.beside(uut) for neighbour in topology.neighbours]
    streams = {VICTIM: tuple(stream.name for stream in topology.own_streams)} | {
        neighbour.name: neighbour.streams for neighbour in neighbours
    }
    try:
        own = victim_cpus(uut, neighbours, cpus)
        entitled = {VICTIM: replace(uut.cpu_shares, cpus=own)}
        for neighbour in neighbours:
            entitled[neighbour.name] = CpuShares(
                placed(neighbour.placement, own, cpus), neighbour.cpu_weight, neighbour.cpu_limit
            )
    except (UsageError, MissingError) as error:
        raise type(error)(f"UUT {uut.name}: {error}") from error
    specs = guest_specs(topology, uut)
    linked = (VICTIM, flows.second_guest) if flows.second_guest else ()
    if any(make_uut(specs[name]).path_reason(FlowPath.BETWEEN_GUESTS) for name in linked):
        flows = flows._replace(second_guest="")
    beside_victim = {neighbour.name for neighbour in neighbours if neighbour.placement == "same-cpu"}
    found = {}
    for name, spec in specs.items():
        through, guest = tuple(path for path in paths if path.name in streams[name]), make_uut(spec)
        where = f"UUT {uut.name}: {'' if name == VICTIM else f'neighbour {name}: '}"
        try:
            guest.check(through)
        except UsageError as error:
            raise UsageError(f"{where}{error}") from error
        own_packets = dict.fromkeys((*packets, *(path.packet for path in through if path.packet)))
        forwarded = tuple(
            packet
            for packet in own_packets
            if not guest.unsupported_reason(packet, _senders(packet, through, is_own=packet not in packets))
        )
        assignment = Assignment(
            spec.name,
            through,
            entitled[name],
            topology.uut_host,
            run_id,
            forwarded,
            _lan(name, flows, paths, streams),
            name in flows.loopback,
        )
        try:
            plan = guest.plan(assignment)
        except UsageError as error:
            raise UsageError(f"{where}{error}") from error
        pace = plan.pace.with_share(spec.cpu_limit).with_share(_SHARED_CPU if name in beside_victim else None)
        found[name] = ResolvedGuest(name, spec, assignment, plan, pace)
    return found


def _lan(
    guest: str, flows: FlowNeeds, paths: Sequence[StreamPath], streams: Mapping[str, Sequence[str]]
) -> GuestLan | None:
    """Return the link of a guest to another one; None without any. It is made with the neighbour, which comes later."""
    others = {VICTIM: flows.second_guest, flows.second_guest: VICTIM} if flows.second_guest else {}
    if guest not in others:
        return None
    return GuestLan(next(path for path in paths if path.name in streams[others[guest]]), is_maker=guest != VICTIM)


def _senders(packet: Packet, paths: Sequence[StreamPath], *, is_own: bool) -> list[StreamPath]:
    """Return the paths whose streams send a packet; `is_own`: it is a stream's own, and none of the profile."""
    return [path for path in paths if path.packet == packet or (path.packet is None and not is_own)]


def make_backends(profile: Profile) -> tuple[Generator, SinkKind]:
    """Return the generator and the sink that a profile describes: one object if one kind is both."""
    sends, receives = plugins(GENERATORS)[profile.generator.kind], plugins(SINKS)[profile.sink.kind]
    generator: Generator = sends(sends.Options.model_validate(profile.generator.options))
    if sends is receives:
        return generator, cast(SinkKind, generator)
    return generator, receives(receives.Options.model_validate(profile.sink.options))
