"""A topology brought up: hosts, links, sources, sinks and UUTs made ready together, and undone together."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain, count

from netbench.errors import MachineGoneError, MissingError, NeighbourError, NotUndoneError, TestbedError, UutError
from netbench.hosts.base import Host
from netbench.hosts.clock import SystemClock
from netbench.linux.counters.counting_points import NicCounters
from netbench.linux.counters.iproute_counters import refresh_driver_counters_on
from netbench.linux.counters.netlink_counters import refresh_driver_counters
from netbench.linux.flow_facts import flow_facts
from netbench.linux.foreign_cpu import read_foreign_cpu
from netbench.linux.locks import OtherMeasurement
from netbench.linux.machine import Machine
from netbench.linux.proc import read_cpu_delays, softirq_threads
from netbench.loads.stress_ng import NeighbourLoad
from netbench.model.distributions import ClockDifference
from netbench.model.packet import PLAIN_PACKET
from netbench.model.paths import InterfaceRef, StreamPath, each_nic_once
from netbench.model.points import CounterReading, CountingPoint, Points
from netbench.model.profile import Profile
from netbench.model.scenario import VICTIM
from netbench.model.tester import Identities, LinkIdentity
from netbench.model.topology import Topology, devices
from netbench.model.topology_specs import UutSpec
from netbench.signals import shielded
from netbench.testbed.bring_up import host_identities, usual_ends
from netbench.testbed.client_cpus import pins_of_clients, pins_text
from netbench.testbed.cpus import FRAMES_ONLY, CpuCompetition, Pins, bound_ends, cpu_plan, cpu_plans
from netbench.testbed.flow_checks import FlowNeeds, make_tool
from netbench.testbed.resolved import Guests, make_backends, resolve_guests
from netbench.testbed.rings import Rings
from netbench.testbed.virtual_machines import VmMachine
from netbench.trial.followed_connections import denominator
from netbench.trial.learning import LearningSchedule
from netbench.trial.probing import await_ways
from netbench.trial.setup import Endpoints, TrialSetup
from netbench.uut.base import ActiveGuest, ObservedDelays, Site, bring_up

_OF_VM = {"accelerator": "vm_accelerator", "emulated": "vm_emulated"}


class Testbed:
    """A topology that is up; `uut` brings in one UUT at a time. `machines` are by VM, None: this machine."""

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        run_id: str,
        machines: Mapping[str | None, Machine],
        hosts: dict[str, Host],
        paths: tuple[StreamPath, ...],
        profile: Profile,
        in_use: Sequence[StreamPath] | None = None,
        others: Callable[[], Sequence[OtherMeasurement]] = list,
        rings: Rings | None = None,
        scratch: str | None = None,
        port_warnings: Sequence[str] = (),
        without_frames: Collection[str] = (),
        flow_needs: FlowNeeds = FlowNeeds(),  # noqa: B008 - immutable
        competition: CpuCompetition = FRAMES_ONLY,
    ) -> None:
        """`in_use` are the paths that need sources and sinks; None: all. `rings` are switched on.

        `others` returns the other netbenches that have measured on this machine since it was locked. `scratch` is a
        directory of this machine for the run; None: temporary files go to the usual directory. `port_warnings` are the
        result of the function of this name, from before sources and sinks were opened. Streams `without_frames` have
        clients instead: their sources and sinks are never opened. `flow_needs` are those of all flows. `competition` is
        the competition for CPUs.
        """
        self._scratch = scratch
        self.port_warnings = port_warnings
        self.others = others
        self.topology = topology
        self._run_id = run_id
        self._without_frames = without_frames
        self._flow_needs = flow_needs
        self._competition = competition
        self._machines = machines
        self._hosts = hosts
        self._paths = paths
        self._in_use = paths if in_use is None else in_use
        self._profile = profile
        self._rings = rings or Rings((), machines)
        self._ports: dict[str | None, dict[str | None, list[str]]] = {None: {}}  # by machine and namespace
        for nic in dict.fromkeys(nic for path in paths for nic in path.nics.values() if nic.is_port):
            self._ports.setdefault(nic.machine, {}).setdefault(nic.netns, []).append(nic.interface)
        self._generator, self._sinks = make_backends(profile)
        self._endpoints: dict[str, Endpoints] = {}
        self._delayed_by_sink: set[str] = set()
        self._trials = count()
        self._learning = LearningSchedule()
        self._softirqs = softirq_threads()
        self._delays: dict[tuple[str, str], ObservedDelays] = {}  # by UUT, and guest beside it
        self._guests: Guests = {}  # of the UUT that was brought in last

    def open_endpoints(self) -> None:
        """Bring up a source and a sink for every stream."""
        with_all = dict(cpu_plans(self._in_use, self._cpus, cpu_plan))
        for path, pins in bound_ends(self._in_use, self._cpus, self._competition):
            host = self._hosts[path.source.host]
            has_frames = path.name not in self._without_frames
            reason = self._generator.unsupported_reason(host) if has_frames else ""
            if reason:
                raise MissingError(
                    f"stream {path.name}: its generator cannot send from host {host.name}: {reason}; "
                    "`generator: auto` takes what works, and in a VM (topology lab-vm) pktgen does"
                )
            sink_host = self._hosts[path.sink.host]
            reason = self._sinks.unsupported_reason(sink_host) if has_frames else ""
            if reason:
                raise MissingError(f"stream {path.name}: its sink cannot receive on host {sink_host.name}: {reason}")
            source, sink = self._generator.source(), self._sinks.sink()
            source_clock = partial(self._monotonic, path.source.machine)
            receiver = partial(self._rings.receiver, path.name)
            usual = usual_ends(self._profile, pins)
            ends = Endpoints(path, source, sink, usual, source_clock, sink_host, receiver, host, with_all[path])
            self._endpoints[path.name] = ends
            if not has_frames:
                continue
            try:
                source.open(host, path.source.interface, pins[0])
            except MissingError as error:
                link = self._rings.found.get(path.name)
                raise MissingError(f"{error}. {link.remark}" if link and link.remark else str(error)) from error
            sink.open(sink_host, path.sink.interface, pins[1])
            link = self._rings.found.get(path.name)
            if link and self._sinks.takes_cpu and path.sink.machine == path.receiver[1].machine:
                threads = {*(link.cpus or ()), *chain.from_iterable(link.cpus_of_uuts.values())}
                if threads & {*pins[1]}:
                    self._delayed_by_sink.add(path.name)

    def sends(self) -> str:
        """Return the actual kinds of its sources; several are joined by `+`."""
        return "+".join(sorted({ends.identities.source.kind for ends in self._endpoints.values()}))

    def receives(self) -> str:
        """Return how frames are actually received from its sources: `inline`, `napi`, or both joined by `+`."""
        return "+".join(sorted({ends.path.receive for ends in self._endpoints.values()}))

    def identities(self) -> Identities:
        """Return the current sources and sinks, and the machines of all hosts."""
        streams = {name: ends.identities for name, ends in self._endpoints.items()}
        since = datetime.now(UTC).isoformat(timespec="seconds")
        inline = {path.name: LinkIdentity("inline") for path in self._paths if path.ingress}
        return Identities(since, host_identities(self.topology, self._machines), streams, inline | self._rings.found)

    def remarks(self) -> list[str]:
        """Return the remarks of sources and sinks for readers of the results, each once."""
        sending = [ends for ends in self._endpoints.values() if ends.path.name not in self._without_frames]
        both = [endpoint for ends in sending for endpoint in (ends.source, ends.sink)]
        return list(dict.fromkeys(remark for endpoint in both for remark in endpoint.remarks()))

    def close_endpoints(self) -> None:
        """End all sources and sinks."""
        for ends in self._endpoints.values():
            ends.source.close()
            ends.sink.close()
        self._endpoints.clear()

    def renew_endpoints(self) -> None:
        """End all sources and sinks and restart them, after one of them failed; TestbedError if that fails."""
        self.close_endpoints()
        try:
            self.open_endpoints()
        except MissingError as error:  # it was there when the campaign began
            raise TestbedError(str(error)) from error

    @contextmanager
    def uut(self, spec: UutSpec) -> Iterator[ActiveGuest]:
        """A UUT, provisioned and forwarding; UutError when it cannot be brought up."""
        with self._guest(spec, VICTIM) as active:
            yield active

    @contextmanager
    def neighbour(self, beside: UutSpec, name: str) -> Iterator[ActiveGuest]:
        """A neighbour of a UUT that is up, ready as well; NeighbourError when it cannot be brought up."""
        with ExitStack() as stack:
            try:
                active = stack.enter_context(self._guest(beside, name))
            except UutError as error:
                raise NeighbourError(f"neighbour {name}: {error}", error.log) from error
            yield active

    @contextmanager
    def _guest(self, beside: UutSpec, name: str) -> Iterator[ActiveGuest]:
        machine = self._uut_machine
        self._rings.switch_on()  # once more, where a link was down meanwhile
        packets = tuple(self._profile.packets.values())
        self._guests = resolve_guests(
            self.topology, beside, self._paths, machine.cpus, self._run_id, packets, self._flow_needs
        )
        resolved = self._guests[name]
        guest, point = resolved.make(), machine.point

        def brought_up() -> ActiveGuest:
            try:
                for path in resolved.assignment.paths:
                    self._rings.move(path.name, resolved.assignment.cpu_shares.cpus, beside.napi_policy)
                active = bring_up(guest, Site(resolved.assignment, machine, self._hosts))
                paths = resolved.assignment.paths
                active = replace(
                    active,
                    delays=self._delays.setdefault((beside.name, name), ObservedDelays()),
                    macs=self._macs(paths),
                )
                self._await_ways(active, paths)
            except MachineGoneError:
                raise
            except (TestbedError, MissingError) as error:
                raise UutError(str(error), guest.console()) from error
            return replace(active, restart=restarted) if active.plan.steps else active

        def ended() -> None:
            with shielded():
                try:
                    guest.destroy()
                finally:
                    failures = machine.undo(to=point)
            if failures:
                raise NotUndoneError(f"UUT {resolved.spec.name} could not be undone: {'; '.join(failures)}")

        def restarted() -> ActiveGuest:
            nonlocal guest
            ended()
            guest = resolved.make()
            return brought_up()

        with shielded() as shield:
            try:
                with shield.lifted():
                    yield brought_up()
            finally:
                ended()

    def _await_ways(self, active: ActiveGuest, paths: Sequence[StreamPath]) -> None:
        # Flows prove their way by connecting.
        probed = [path for path in paths if path.leads_outside and path.name not in self._without_frames]
        outside = [self._endpoints[path.name] for path in probed if path.name in self._endpoints]
        if outside and active.ready.probe_limit_s is not None:
            await_ways(self.setup({}), active, outside, active.ready.probe_limit_s)
        self._learning.forget()

    def _macs(self, paths: Sequence[StreamPath]) -> dict[InterfaceRef, str]:
        """Return the present MAC addresses of all NICs of some paths."""
        nics = self._read_nics(dict.fromkeys(nic.place for path in paths for nic in path.nics.values()))
        return {place: nic.mac for place, nic in nics.items()}

    def facts(self, active: ActiveGuest) -> dict[str, str]:
        """Return the facts about a ready UUT and its machine that a reader of the results needs.

        If the machine is a VM, its accelerator is `vm_accelerator` and `vm_emulated`: a guest on it has its own.
        """
        of_machine = {_OF_VM.get(fact, fact): value for fact, value in self._uut_machine.facts.items()}
        return {**of_machine, **self._flow_facts(active), **self._client_facts(), **active.ready.facts}

    def _client_facts(self) -> dict[str, str]:
        """Return the CPUs of the clients of all guests that serve, if they are bound."""
        bound = pins_text(
            self._client_pins(), [path.name for path in self._in_use if path.name in self._competition.clients]
        )
        return {"client_cpus": bound} if bound else {}

    def _flow_facts(self, active: ActiveGuest) -> dict[str, str]:
        """Return the facts on which the throughput of many flows depends; none if each stream has one flow."""
        paths = [path for path in self._in_use if path.name in active.ready.next_hop_macs]
        own = [path.packet.flows for path in paths if path.packet]
        if max((self._profile.flows, *own, *(packet.flows for packet in self._profile.packets.values()))) == 1:
            return {}
        nics = [nic for path in paths for nic in (path.ingress, path.egress) if nic]
        if not nics:
            return {}
        places = [nic.place for nic in nics if nic.netns == nics[0].netns and nic.machine == nics[0].machine]
        host = self._machines[nics[0].machine].host(nics[0].netns)
        return flow_facts(host, list(dict.fromkeys(place.interface for place in places)))

    def receiving_facts(self, uut: str) -> dict[str, str]:
        """The scheduling policy of the threads that receive for a UUT, where it is not Linux's default."""
        return self._rings.facts(uut)

    def setup(
        self, guests: Mapping[str, ActiveGuest], loads: Mapping[str, NeighbourLoad] = {}, *, serves: bool = False
    ) -> TrialSetup:
        """Return the set-up of a trial with these guests, by name, and the loads inside some of them.

        Threads that receive for the UUT are protected from sinks on their CPUs, unless a neighbour computes. They are
        not protected if the UUT forwards in a process or `serves`, because they would starve that process.
        """
        in_process = {
            stream for guest in guests.values() if guest.plan.in_process for stream in guest.ready.next_hop_macs
        }
        self._rings.protect(() if loads or serves else self._delayed_by_sink - in_process)
        readers = self._read_nics, self._read_counters
        setup = TrialSetup(self._endpoints, guests, *readers, SystemClock(), self._machine_cpu_s, loads, self._trials)
        return replace(
            setup,
            realtime=lambda machine: self._machines[machine].realtime,
            not_own=self.topology.ssh_hosts.keys(),
            scratch=self._scratch,
            packets=self._profile.packets,
            learning=self._learning,
            sends_plain=PLAIN_PACKET.name in self._profile.packet_names,
            client_pins=self._client_pins(),
            witnessed=denominator(self._profile.witness),
            make_tool=make_tool,
            second_guest=self._flow_needs.second_guest,
            seed=self._profile.seed,
            cpu_delays=partial(read_cpu_delays, softirqs=self._softirqs),
            foreign_cpu=partial(read_foreign_cpu, self._run_id),
        )

    def _client_pins(self) -> dict[str, Pins]:
        of_streams = {name: ends.cpus for name, ends in self._endpoints.items()}
        return pins_of_clients(self._guests, self._competition, of_streams, self._cpus)

    def interfaces(self) -> dict[str | None, list[str]]:
        """Return the interfaces of all paths on this machine by namespace (None: netbench's own), each once."""
        found: dict[str | None, list[str]] = {}
        for path in each_nic_once(self._paths):
            for nic in path.nics.values():
                if nic.machine is None:
                    found.setdefault(nic.netns, []).append(nic.interface)
        return found

    @property
    def _uut_machine(self) -> Machine:
        return self._machines[self.topology.uut_machine]

    def _cpus(self, machine: str | None) -> Sequence[int]:
        return self._machines[machine].cpus

    def _monotonic(self, machine: str | None) -> ClockDifference:
        return self._machines[machine].monotonic

    def _machine_cpu_s(self) -> tuple[float, float]:
        return self._uut_machine.cpu_and_softirq_s()

    def _read_nics(self, places: Iterable[InterfaceRef]) -> dict[InterfaceRef, NicCounters]:
        wanted: dict[str | None, list[InterfaceRef]] = {}
        for place in places:
            wanted.setdefault(place.machine, []).append(place)
        self._catch_up()
        found: dict[InterfaceRef, NicCounters] = {}
        for machine, group in wanted.items():
            found |= self._machines[machine].read_nics(group)
        return found

    def _catch_up(self) -> None:
        """Update the counters of ports to the counts of their NICs; MachineGoneError when a device is gone."""
        for name in devices(self.topology):
            device = self._machines[name]
            if isinstance(device, VmMachine) and (death := device.death()):
                raise MachineGoneError(f"the device under test is gone: {death}")
        for machine, ports in self._ports.items():
            if machine is None:
                refresh_driver_counters(ports)
            else:
                for netns, group in ports.items():
                    refresh_driver_counters_on(self._machines[machine].host(netns), group)

    def _read_counters(self, points: Points) -> tuple[CounterReading, ...]:
        wanted: dict[str | None, dict[str, list[CountingPoint]]] = {}
        for stream, points_there in points.items():
            for point in points_there:
                if point.place:
                    wanted.setdefault(point.place.machine, {}).setdefault(stream, []).append(point)
        return tuple(
            reading for machine, group in wanted.items() for reading in self._machines[machine].read_counters(group)
        )
