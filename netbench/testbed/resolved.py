"""A topology and a profile resolved into data: each UUT and its neighbours, their needs, and the paths in use."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import cast

from netbench.config.plugins import GENERATORS, SINKS, UUTS, plugins
from netbench.errors import MissingError, UsageError
from netbench.generators.base import Generator
from netbench.model.frame_size import FrameSize, largest_frame
from netbench.model.packet import PLAIN_PACKET, Packet
from netbench.model.paths import StreamPath, host_of
from netbench.model.profile import Profile, SinkSpec
from netbench.model.scenario import VICTIM, Activity, Network, Off, Scenario, Serve, Stress
from netbench.model.stream_paths import stream_paths
from netbench.model.topology import Topology
from netbench.model.topology_specs import CpuShares, StreamSpec, UutSpec
from netbench.model.virtualisation import DurationEstimate
from netbench.sinks.base import SinkKind
from netbench.testbed.bring_up import resources
from netbench.testbed.cpus import placed, usable_cpus, victim_cpus
from netbench.testbed.flow_checks import (
    make_tool,
    refuse_frames,
    refuse_servers,
    refuse_workloads,
    unserved_workloads,
    workloads_in,
)
from netbench.testbed.packet_checks import refuse_packets, unsuitable_frames
from netbench.testbed.requirements import TOOLS
from netbench.testbed.virtual_machines import vmm_of
from netbench.tools.base import Tool
from netbench.uut.base import Assignment, UnitUnderTest, UutPlan
from netbench.uut.private_guest import guest_of
from netbench.vmm.base import Vmm

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
    """

    topology: Topology
    profile: Profile
    guests: Mapping[str, Guests]
    activities: Mapping[str, Sequence[Activity]]
    part_of: "Resolved | None" = None
    lacking: Mapping[str, str] = field(default_factory=dict)
    unsupported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

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
        packets = tuple(self.profile.packets.values())
        served = [serve.workload for _, _, serve in workloads_in(self.profile, self.activities)]
        tools = [make_tool(workload) for workload in dict.fromkeys(served)]
        return needs_of((self.part_of or self).topology, uuts, self.activities, self.profile.sink, packets, tools)

    @property
    def needs_there(self) -> frozenset[str]:
        """The needs of the measured UUTs and their neighbours on the machine of the UUTs."""
        guests = [guest for guests in self.guests.values() for guest in guests.values()]
        return frozenset(
            need for guest in guests for need in _needs_of_guest(guest.name, guest.spec, guest.plan, self.activities)
        )

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
        return frozenset(end for stream in streams for end in (stream.source, stream.ingress) if end)

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
    guests = {uut.name: resolve_guests(topology, uut, packets=packets) for uut in chosen_uuts}
    activities = activities_of(topology, chosen)
    refuse_workloads(profile, activities)
    for uut, beside in guests.items():
        neighbours = {name: guest.make() for name, guest in beside.items() if name != VICTIM}
        refuse_servers(neighbours, activities, uut)
        refuse_frames(neighbours, activities, uut, beside[VICTIM].make())
    _refuse_half(profile)
    refuse_mixes(topology, profile, activities)
    refuse_too_large(topology, profile, activities)
    sizes: dict[str, list[FrameSize]] = {}
    for stream, size in _sent(topology, profile, activities):
        sizes.setdefault(stream.name, []).append(size)
    refuse_packets(profile, tuple(stream_paths(topology)), sizes)
    if profile.tool:
        made_uuts = {uut: beside[VICTIM].make() for uut, beside in guests.items()}
        return Resolved(topology, profile, guests, activities, unsupported=unserved_workloads(profile, made_uuts))
    unsupported = unsupported_packets(profile, guests)
    for uut, beside in guests.items():
        made, paths = beside[VICTIM].make(), beside[VICTIM].assignment.paths
        if unsuitable := unsuitable_frames(profile, made, paths):
            unsupported[uut] = unsuitable | unsupported.get(uut, {})
    _refuse_unsuitable(profile, unsupported, guests)
    return Resolved(topology, profile, guests, activities, unsupported=unsupported)


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


def _refuse_half(profile: Profile) -> None:
    """UsageError for a sink that counts only frames of its own generator, with another generator."""
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
    packets: tuple[Packet, ...] = (),
) -> Guests:
    """Return a UUT and its neighbours by name, the victim first.

    `paths` and `cpus` are those of its machine, or None if they are not known yet. `packets` are those of the profile.
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
    beside_victim = {neighbour.name for neighbour in neighbours if neighbour.placement == "same-cpu"}
    found = {}
    for name, spec in guest_specs(topology, uut).items():
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
        assignment = Assignment(spec.name, through, entitled[name], topology.uut_host, run_id, forwarded)
        try:
            plan = guest.plan(assignment)
        except UsageError as error:
            raise UsageError(f"{where}{error}") from error
        pace = plan.pace.with_share(spec.cpu_limit).with_share(_SHARED_CPU if name in beside_victim else None)
        found[name] = ResolvedGuest(name, spec, assignment, plan, pace)
    return found


def _senders(packet: Packet, paths: Sequence[StreamPath], *, is_own: bool) -> list[StreamPath]:
    """Return the paths whose streams send a packet; `is_own`: it is a stream's own, and none of the profile."""
    return [path for path in paths if path.packet == packet or (path.packet is None and not is_own)]


def guest_specs(topology: Topology, uut: UutSpec) -> dict[str, UutSpec]:
    """Return a UUT, as VICTIM, and each of its neighbours as a UUT specification, by name."""
    kinds = plugins(UUTS)
    neighbours = [neighbour.beside(uut) for neighbour in topology.neighbours]
    specs = {
        neighbour.name: neighbour.as_uut(uut, kinds[neighbour.kind or uut.kind].Options.model_fields)
        for neighbour in neighbours
    }
    return {VICTIM: uut, **specs}


def needs_of(
    topology: Topology,
    uuts: Collection[str] = (),
    activities: Mapping[str, Collection[Activity]] | None = None,
    sink: SinkSpec = SinkSpec(),  # noqa: B008 - frozen
    packets: tuple[Packet, ...] = (),
    tools: Sequence[Tool] = (),
) -> frozenset[str]:
    """Return the needs of these UUTs (empty: all of them) on this host, by their names in `netbench doctor`.

    `activities` are those of each neighbour that runs in any scenario; None: all neighbours run and may do anything.
    `packets` are those that the UUTs forward, where they can. `tools` run flows to servers in guests.
    """
    chosen = [uut for uut in topology.uuts if not uuts or uut.name in uuts]
    needs = {f"port:{port.nic}" for port in topology.ports()}
    for machine in dict.fromkeys(uut.on for uut in chosen):
        needs |= _needs_of_testbed(topology.on(machine), chosen, activities, sink, packets, tools)
    return frozenset(needs)


def _needs_of_testbed(
    topology: Topology,
    chosen: Collection[UutSpec],
    activities: Mapping[str, Collection[Activity]] | None,
    sink: SinkSpec,
    packets: tuple[Packet, ...],
    tools: Sequence[Tool],
) -> set[str]:
    needs = {"root", "setpriv"}
    here = [host for host in topology.hosts if topology.machine(host) is None]
    if here:
        needs |= {"packet", *(tool.name for tool in TOOLS if not tool.optional), *plugins(SINKS)[sink.kind].needs}
    if any(topology.netns(host) for host in here):
        needs.add("netns")
    if tools and any(host_of(stream.source) in here for stream in topology.streams):
        needs |= {"tcpdump", *(program for tool in tools for program in tool.client_programs)}
    if any(host_of(link.ends[0]) in here and not topology.is_port(link.ends[0]) for link in topology.links):
        needs.add("veth")
    if any(path.receive == "napi" and path.source.machine is None for path in stream_paths(topology)):
        needs.add("napi")
    for vm in topology.vms.values():
        needs |= vmm_of(vm).needs()
    if topology.ssh_hosts:
        needs.add("ssh")
    if any(spec.is_emulated for spec in topology.ssh_hosts.values()):
        needs |= {"netns", "veth", "sshd", "ssh-keygen", "unshare"}
    machine = topology.uut_machine
    uut_here = machine is None or (machine in topology.ssh_hosts and topology.ssh_hosts[machine].is_emulated)
    for uut in (uut for uut in topology.uuts if uut in chosen):
        for name, spec in guest_specs(topology, uut).items():
            made = make_uut(spec)
            forwarded = tuple(packet for packet in packets if not made.unsupported_reason(packet, ()))
            plan = made.plan(Assignment(packets=forwarded))
            wanted = _needs_of_guest(name, spec, plan, activities)
            # Loads in guests with their own programs need nothing of their machine, and nor do servers.
            if plan.load_needs and not made.unserved_reason:
                wanted |= {program for tool in tools for program in tool.server_programs}
            # A VM has the tools of its image, an SSH host its installed ones; only guest images are copied there.
            needs |= {need for need in wanted if uut_here or need.startswith("image:")}
    return needs


def _needs_of_guest(
    name: str, spec: UutSpec, plan: UutPlan, activities: Mapping[str, Collection[Activity]] | None
) -> set[str]:
    """Return the needs of a UUT or neighbour on its machine, for its activities (None: any activity)."""
    acts = (activities or {}).get(name, ())
    needs: set[str] = set()
    if name == VICTIM or activities is None or acts:
        needs |= plan.needs | ({"cgroup-cpu"} if _has_share(spec) else set())
    if any(isinstance(act, Stress) for act in acts):
        needs |= plan.load_needs or set()
    return needs


def _has_share(spec: UutSpec) -> bool:
    return spec.cpu_shares.weight is not None or spec.cpu_shares.limit is not None


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


def make_backends(profile: Profile) -> tuple[Generator, SinkKind]:
    """Return the generator and the sink that a profile describes: one object if one kind is both."""
    sends, receives = plugins(GENERATORS)[profile.generator.kind], plugins(SINKS)[profile.sink.kind]
    generator: Generator = sends(sends.Options.model_validate(profile.generator.options))
    if sends is receives:
        return generator, cast(SinkKind, generator)
    return generator, receives(receives.Options.model_validate(profile.sink.options))


def refuse_mixes(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for a mix of sizes where the generator cannot send one, or the sink cannot count it."""
    generator, sink = profile.generator.kind, profile.sink.kind
    mixes = [size for _, size in _sent(topology, profile, activities) if size.is_mix]
    for mix in mixes:
        if not plugins(GENERATORS)[generator].sends_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the generator {generator} cannot send frames of several sizes in the "
                "order of a genome (RFC 6985); take afpacket, xdp or auto, or leave mixes out"
            )
        if not plugins(SINKS)[sink].counts_mixes:
            raise UsageError(
                f"profile {profile.name}: {mix}: the sink {sink} counts frames of one size, and a mix has several; "
                "take tcpdump, bpf or auto, or leave mixes out"
            )


def refuse_too_large(topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]) -> None:
    """UsageError for frames too large for a link on their path or for the generator; it names which."""
    kind = plugins(GENERATORS)[profile.generator.kind]
    most = kind(kind.Options.model_validate(profile.generator.options)).largest_frame
    for stream, any_size in _sent(topology, profile, activities):
        size, is_mix = any_size.largest_bytes, any_size.is_mix
        of_mix, others = (f" (of {any_size})", "afpacket or auto") if is_mix else ("", "afpacket, pktgen or auto")
        for link in topology.links_of(stream):
            if size > largest_frame(link.mtu_bytes):
                larger = f"give it `mtu: {size - largest_frame(0)}` or more in topology {topology.name}"
                raise UsageError(
                    f"profile {profile.name}: frames of {size} bytes{of_mix}: link {' – '.join(link.ends)} takes at "
                    f"most {largest_frame(link.mtu_bytes)} (MTU {link.mtu_bytes}); {larger}, or leave such frames out"
                )
        if most is not None and size > most:
            raise UsageError(
                f"profile {profile.name}: frames of {size} bytes{of_mix}: the generator {profile.generator.kind} makes "
                f"at most {most}; take {others}, or leave such frames out"
            )


def _sent(
    topology: Topology, profile: Profile, activities: Mapping[str, Collection[Activity]]
) -> Iterator[tuple[StreamSpec, FrameSize]]:
    for stream in topology.own_streams:
        for size in profile.all_frame_sizes:
            yield stream, size
    streams = {stream.name: stream for stream in topology.streams}
    for neighbour in topology.neighbours:
        sizes = {act.frame_size for act in activities.get(neighbour.name, ()) if isinstance(act, Network)}
        for name in neighbour.streams:
            yield from ((streams[name], size) for size in sorted(sizes))
