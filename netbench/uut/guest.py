"""A guest that forwards: the UUT for each VMM. Its machine attaches it, and its kernel forwards as `raw` does."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from netbench.errors import ChangeError, TestbedError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import MAIN_TABLE, AddRoute, Change, SetUp
from netbench.linux.counters.iproute_counters import read_nics
from netbench.linux.machine import Machine
from netbench.model.frame_size import USUAL_MTU
from netbench.model.packet import Packet
from netbench.model.paths import InterfaceRef, Nic, StreamPath, inside_nics
from netbench.model.points import PointKind, Points
from netbench.model.virtualisation import Virtualisation
from netbench.model.workload import FlowPath
from netbench.uut.base import Assignment, Reading, Ready, Site, Step, UnitUnderTest, UutPlan
from netbench.uut.directions import sent_packet
from netbench.uut.forwarding import (
    ROUTING,
    await_forwarding,
    changes_in_guest,
    server_addresses,
    through_reason,
    unserved_reason,
)
from netbench.uut.guest_links import (
    GuestLink,
    GuestNics,
    attaching_changes,
    bridges,
    guest_links,
    guest_mac,
    guest_nics,
    guest_points,
    lan_changes,
    places_of,
    points_inside,
    read_links,
)
from netbench.uut.guest_reception import await_reception
from netbench.uut.packet_interfaces import PacketHandling
from netbench.uut.packet_support import (
    added_bytes,
    at_sink,
    check_handling,
    missing_feature,
    packet_needs,
    require_ipv6,
    unsupported_reason,
)
from netbench.uut.routing import await_silence
from netbench.vmm.attachment import Attachment
from netbench.vmm.base import GuestNic, GuestSpec, RunningGuest, Vmm, guest_directory


@dataclass(frozen=True, slots=True)
class StartGuest:
    """Start the guest; it boots while the machine goes on."""

    spec: GuestSpec
    command: str


@dataclass(frozen=True, slots=True)
class ChangeInside:
    """A change in the guest's own kernel, made once it answers and the names of its NICs are known."""

    change: Change

    @property
    def command(self) -> str:
        return f"guest: {self.change.command}"


@dataclass(slots=True)
class StartedGuest:
    """A started guest; once it is ready, also its NICs and the bridges that they are attached to."""

    guest: RunningGuest
    links: tuple[GuestLink, ...]
    nics: Mapping[str, GuestNics]  # by stream
    attached: Mapping[InterfaceRef, int]

    @property
    def machine(self) -> Machine:
        """Its kernel, which is changed and read like that of any machine."""
        return Machine(self.guest.spec.title, self.guest.host())


class Guest(UnitUnderTest):
    """A guest of any VMM that forwards between two NICs per stream; a stream and its reverse stream share these two."""

    # The NICs that receive frames and send them on.
    _roles: ClassVar[tuple[str, str]] = ("ingress", "egress")

    def __init__(self, vmm: Vmm) -> None:
        self._vmm = vmm
        self._running: StartedGuest | None = None

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            if not self._vmm.elsewhere:
                inside_nics(path)
            if path.mtu > USUAL_MTU:
                raise UsageError(
                    f"stream {path.name}: its links have `mtu: {path.mtu}`, and the NICs of guests {USUAL_MTU}; leave "
                    "it out, or choose UUTs that are no guests (--uut)"
                )
        check_handling(paths, self._handling(()), all_ours=True)
        self._vmm.check(paths)

    def unsupported_reason(self, packet: Packet, paths: Sequence[StreamPath]) -> str:
        how = self._vmm.options.forward
        return unsupported_reason(packet, paths, how, self._handling((packet,)), all_ours=True)

    @property
    def unserved_reason(self) -> str:
        return unserved_reason(self._vmm.options.forward)

    def path_reason(self, path: FlowPath) -> str:
        match path:
            case FlowPath.LOOPBACK:
                return ""
            case FlowPath.THROUGH:
                return through_reason(self._vmm.options.forward, self._vmm.options)
            case FlowPath.BETWEEN_GUESTS if self._vmm.elsewhere:
                return "it is on a machine where netbench links no guests"
            case FlowPath.BETWEEN_GUESTS if self._vmm.attachment(self._spec(Assignment())).on_nic:
                return "its NICs are attached without a bridge, which a link to a second guest needs"
        return self.unserved_reason

    def sent_packet(self, packet: Packet, path: StreamPath) -> Packet:
        return sent_packet(packet, path, self._vmm.options)

    def added_bytes(self, packet: Packet, path: StreamPath) -> int:
        return added_bytes(packet, path, self._handling((packet,)))

    def plan(self, assignment: Assignment) -> UutPlan:
        vmm, paths = self._vmm, assignment.paths
        spec = self._spec(assignment)
        attachment = vmm.attachment(spec)
        named = {path.name: self._named_nics(path) for path in paths}
        steps: list[Step] = [
            # First, because a group that a driver makes may be below this one.
            *(() if vmm.applies_cpu_shares else assignment.cgroup_changes),
            *vmm.changes(spec),
            *(() if vmm.elsewhere else self._attaching(assignment, attachment)),
            *(lan_changes(paths[0], assignment.lan.peer) if assignment.lan and assignment.lan.is_maker else ()),
            StartGuest(spec, vmm.command(spec)),
            *map(ChangeInside, self._changes_inside(paths, named, assignment.packets)),
            *map(ChangeInside, self._changes_for_flows(assignment, named)),
        ]
        return UutPlan(
            steps=tuple(steps),
            needs=vmm.needs()
            | attachment.needs
            | (set() if vmm.elsewhere or attachment.on_nic else self._needs_of_bridges)
            | ({"veth"} if assignment.lan else set())
            | (
                set()
                if vmm.own_kernel
                else packet_needs(self._handling(assignment.packets), vmm.options.forward, paths)
            ),
            load_needs=vmm.load_needs(),
            pace=vmm.pace_of(paths),
            own_kernel=vmm.own_kernel,
            in_process=vmm.own_kernel,
        )

    def take(self, step: Step, site: Site) -> None:
        if isinstance(step, StartGuest):
            host = site.machine.host() if self._vmm.elsewhere else site.host
            cgroup_procs = "" if self._vmm.applies_cpu_shares else site.assignment.cgroup_procs(host)
            spec = replace(step.spec, cgroup_procs=cgroup_procs, netns=host.netns)
            guest = self._vmm.start(spec, host)
            self._running = StartedGuest(guest, self._links(spec, site.paths), {}, {})

    def ready(self) -> Ready:
        """Return once the guest has booted and forwards; TestbedError with the cause when it does not."""
        site, running = self.site, self._started
        running.guest.await_answer(self._vmm.options.boot_limit)
        host = running.guest.host()
        facts = running.guest.facts()
        if site.paths:
            self._forward(site, running, host)
            facts |= {"forward": self._vmm.options.forward, "attachment": self._vmm.attachment(running.guest.spec).kind}
            if kind := self._vmm.nic_models.get(self._vmm.nic_model):
                facts["nic_kind"] = kind
        if self._vmm.own_kernel:
            facts["guest_kernel"] = run_checked(host, ["uname", "-r"]).strip()
        return Ready(
            next_hop_macs=self._towards(site.paths),
            quiet_time_s=running.guest.quiet_time_s,
            inside=host,
            facts=facts | site.assignment.cpu_facts,
            points=self._points(site.paths, running.links),
            at_sink=at_sink(
                list(_seen_inside(site.paths, running.nics)) if site.paths else [],
                self._vmm.options.forward,
                self._handling(site.assignment.packets),
            ),
            probe_limit_s=self.probe_limit_s,
            addresses=server_addresses(site.paths, self._vmm.options.forward),
            attachments={link.stream: link.interface for link in running.links if link.role == "ingress"},
        )

    @property
    def virtualisation(self) -> Virtualisation | None:
        return self._started.guest.virtualisation or self._vmm.virtualisation

    def cpu_s(self) -> dict[str, float]:
        """Return the CPU time by the guest's kernel, and its cost on the machine; TestbedError when it does not run."""
        running = self._at_work
        inside_s = running.machine.cpu_s() if self._vmm.own_kernel else None
        return _used_s(inside_s, running.guest.cpu_s())

    def read(self) -> Reading:
        """Return its counters, at its attachments and inside, and CPU times; TestbedError when it does not run."""
        running, own_kernel = self._at_work, self._vmm.own_kernel
        outside = read_links(self.site.machine, running.links, running.attached, running.guest.spec.title)
        stack = PointKind.IP_COUNTERS if own_kernel else self._stack
        inside = running.machine.count(points_inside(running.nics, own_kernel=own_kernel, stack=stack))
        used_s = _used_s(inside.cpu_s if own_kernel else None, running.guest.cpu_s())
        return Reading((*outside, *inside.counters), used_s)

    def memory_bytes(self) -> int | None:
        return self._started.guest.memory_bytes()

    def console(self) -> str:
        return self._running.guest.console() if self._running else ""

    def destroy(self) -> None:
        """End the guest; its attachments are undone with the site's changes."""
        running, self._running = self._running, None
        super().destroy()
        if running is not None:
            running.guest.stop()

    @property
    def _needs_of_bridges(self) -> frozenset[str]:
        """The requirements of bridges between its NICs and those of its machine."""
        return frozenset({"bridge", "bridge-nf"})

    @property
    def _stack(self) -> PointKind:
        """The part of the kernel that forwards, with its rules: in a shared kernel others may add rules."""
        forward = self._vmm.options.forward
        if forward in ROUTING:
            return PointKind.IP_LAYER
        return PointKind.BRIDGE if forward == "bridge" else PointKind.IP_COUNTERS

    @property
    def _started(self) -> StartedGuest:
        if self._running is None:
            raise TestbedError("the guest is not provisioned")
        return self._running

    @property
    def _at_work(self) -> StartedGuest:
        """The guest; TestbedError when it does not run."""
        running = self._started
        death = running.guest.death()
        if death:
            raise TestbedError(death)
        return running

    def _spec(self, own: Assignment) -> GuestSpec:
        ingress = own.paths[0].ingress if own.paths else None
        spec = GuestSpec(
            own.name,
            guest_directory(own.run_id, f"uut-{own.name}"),
            netns=ingress.netns if ingress else None,
            host_cpus=own.cpu_shares.cpus,
            cgroup_procs="" if self._vmm.applies_cpu_shares else own.planned_cgroup_procs,
            weight=own.cpu_shares.weight,
            limit=own.cpu_shares.limit,
        )
        return replace(spec, nics=self._nics(own.paths, self._vmm.attachment(spec).kind))

    def _nics(self, paths: Sequence[StreamPath], kind: str) -> tuple[GuestNic, ...]:
        return guest_nics(paths, kind)

    def _attaching(self, own: Assignment, attachment: Attachment) -> Iterable[Change]:
        """Return the changes that attach its NICs to those of its machine."""
        return attaching_changes(own.paths, attachment, self._towards(own.paths))

    def _points(self, paths: Sequence[StreamPath], links: Sequence[GuestLink]) -> Points:
        return guest_points(paths, links)

    def _named_nics(self, path: StreamPath) -> GuestNics:
        """Return placeholders for the NIC names, which are unknown until the guest runs."""
        ingress, egress = (f"{path.role_forth(role).upper()}-{path.nics_of.name}" for role in self._roles)
        return GuestNics(ingress, egress)

    def _links(self, spec: GuestSpec, paths: Sequence[StreamPath]) -> tuple[GuestLink, ...]:
        """Return its links to the NICs of its streams; none where it is on another machine."""
        return () if self._vmm.elsewhere else guest_links(paths, self._vmm.attachment(spec))

    def _towards(self, paths: Sequence[StreamPath]) -> dict[str, str]:
        """Return the MAC address that each stream's frames are sent to: the sink's, or with routing the guest's."""
        routes, handling = self._vmm.options.forward in ROUTING, self._handling(())
        return {
            path.name: guest_mac(path, "ingress") if routes or handling.ends_tunnels(path) else path.sink.mac
            for path in paths
        }

    def _changes_inside(
        self, paths: Sequence[StreamPath], nics: Mapping[str, GuestNics], packets: tuple[Packet, ...]
    ) -> list[Change]:
        inside = list(_seen_inside(paths, nics))
        return changes_in_guest(inside, self._vmm.options.forward, self._handling(packets))

    def _changes_for_flows(self, assignment: Assignment, nics: Mapping[str, GuestNics]) -> Iterator[Change]:
        """Yield the further changes inside it for flows that run inside it, or from another guest to it."""
        if assignment.has_loopback:
            yield SetUp(None, "lo")
        if assignment.lan:
            ingress, peer = nics[assignment.paths[0].name].ingress, assignment.lan.peer
            yield AddRoute(None, 4, ingress, MAIN_TABLE, peer.ingress_ip, peer.src_network)

    def _handling(self, packets: tuple[Packet, ...]) -> PacketHandling:
        return PacketHandling(self._vmm.options, packets)

    def _forward(self, site: Site, running: StartedGuest, host: Host) -> None:
        """Make it forward, and wait until frames really reach it."""
        title = running.guest.spec.title
        running.nics = self._find_nics(site.paths, host, title)
        machine = running.machine
        how, handling = self._vmm.options.forward, self._handling(site.assignment.packets)
        require_ipv6(machine, handling, how)
        try:
            machine.make(self._changes_inside(site.paths, running.nics, site.assignment.packets))
            machine.make(self._changes_for_flows(site.assignment, running.nics))
        except ChangeError as error:
            if missing := missing_feature(error, f"the kernel of {title}"):
                raise missing from error
            raise
        if how in ROUTING:
            await_silence(handling)
        inside = _seen_inside(site.paths, running.nics)
        await_forwarding(machine, [nic.place for path in inside for nic in inside_nics(path)], title)
        if running.links:  # otherwise the probes of its testbed check whether frames reach it
            await_forwarding(site.machine, places_of(running.links))
            running.attached = bridges(site.machine, running.links)
            await_reception(site, running.links, running.nics, running.machine, title)

    def _find_nics(self, paths: Sequence[StreamPath], host: Host, title: str) -> dict[str, GuestNics]:
        """Return the names of its NICs by stream, found by their MAC addresses."""
        by_mac = {nic.mac: name for name, nic in read_nics(host).items()}
        try:
            names = {path.name: [by_mac[guest_mac(path, role)] for role in self._roles] for path in paths}
            return {stream: GuestNics(*of_stream) for stream, of_stream in names.items()}
        except KeyError as error:
            model = self._vmm.nic_model
            why = f": its kernel has no driver for {model}" if model else ""
            raise TestbedError(f"{title} has no NIC {error.args[0]}{why}") from None


def _seen_inside(paths: Sequence[StreamPath], nics: Mapping[str, GuestNics]) -> Iterator[StreamPath]:
    """Yield the same streams, with the guest's own NICs."""
    for path in paths:
        own = nics[path.name]
        ingress = Nic("guest", None, None, own.ingress, guest_mac(path, "ingress"), is_port=False)
        egress = Nic("guest", None, None, own.egress, guest_mac(path, "egress"), is_port=False)
        yield replace(path, ingress=ingress, egress=egress)


def _used_s(inside_s: float | None, outside_s: float | None) -> dict[str, float]:
    """Return the CPU times by who counted them, without unknown ones."""
    used_s = {"guest": inside_s, "host": outside_s}
    return {whose: seconds for whose, seconds in used_s.items() if seconds is not None}
