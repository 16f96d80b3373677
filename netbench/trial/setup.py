"""The parts of a trial: running sources and sinks, the victim, its neighbours, and the streams of each guest."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import NamedTuple

from netbench.errors import TestbedError
from netbench.generators.base import Source
from netbench.hosts.base import Host
from netbench.hosts.clock import Clock
from netbench.linux.counters.counting_points import NicCounters
from netbench.linux.foreign_cpu import ForeignCpuReader
from netbench.linux.proc import DelayReader
from netbench.loads.stress_ng import NeighbourLoad
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.frame_size import FrameSize
from netbench.model.packet import Packet
from netbench.model.paths import InterfaceRef, StreamPath
from netbench.model.points import CounterReading, Points
from netbench.model.scenario import VICTIM, Serve
from netbench.model.tester import Identity, StreamEnds
from netbench.model.traffic import Traffic
from netbench.model.trial import GuestTask, TrialSpec
from netbench.model.workload import FlowPath, Workload
from netbench.sinks.base import Sink
from netbench.tools.base import Tool
from netbench.trial.flow_routes import FlowPlaces
from netbench.trial.flows import GuestFlows, client_seed
from netbench.trial.learning import LearningSchedule
from netbench.trial.wire_taps import WireTap
from netbench.uut.base import ActiveGuest

NicReader = Callable[[Iterable[InterfaceRef]], dict[InterfaceRef, NicCounters]]
# Reads the counters at these points, except the NICs' own counters.
CounterReader = Callable[[Points], tuple[CounterReading, ...]]
# CLOCK_REALTIME of a machine (None: this machine) minus that of this machine; None if unknown.
ClockReader = Callable[[str | None], ClockDifference | None]


class KernelThread(NamedTuple):
    """A thread of this machine's kernel, by its process id."""

    name: str
    process: int


def no_receiver() -> KernelThread | None:
    """Return None: no kernel thread takes in the frames, or it is on another machine."""
    return None


def no_tool(workload: Workload) -> Tool:
    """Raise TestbedError: the trials of this set-up send frames only."""
    raise TestbedError(f"there is no tool {workload.tool}")


def of_this_machine(machine: str | None) -> ClockDifference | None:
    """Return the clock difference where clocks were not compared: SAME_CLOCK for this machine, else None."""
    return None if machine else SAME_CLOCK


@dataclass(frozen=True, slots=True)
class Endpoints:
    """One stream with its running source and sink; `usual` are their identities unless they report others.

    `source_clock` is CLOCK_MONOTONIC of the source's machine minus that of this machine. `sink_host` is the host of the
    sink; if it is None, frames that the sink does not count cannot be captured. `receiver` is the thread that takes in
    the source's frames at the UUT, if it is on this machine. `source_host` is the host of the source, and of a client.
    `cpus` are those of a source and of its sink if all streams carry frames, where they share a machine; empty: any.
    """

    path: StreamPath
    source: Source
    sink: Sink
    usual: StreamEnds = StreamEnds(Identity(), Identity())  # noqa: RUF009 - frozen
    source_clock: Callable[[], ClockDifference] = lambda: SAME_CLOCK
    sink_host: Host | None = None
    receiver: Callable[[], KernelThread | None] = no_receiver
    source_host: Host | None = None
    cpus: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def identities(self) -> StreamEnds:
        """The actual identities of source and sink, by the last trial."""
        usual = self.usual
        return StreamEnds(self.source.identity().completed(usual.source), self.sink.identity().completed(usual.sink))


@dataclass(frozen=True, slots=True)
class TrialSetup:
    """The parts of a ready testbed that a trial needs.

    `realtime` is CLOCK_REALTIME of a machine minus that of this machine; None if unknown. On machines that are
    `not_own`, other people may set the clock.
    `guests` are all running guests, by name. `loads` are the loads inside some of them. `machine_cpu_s` is the CPU time
    that the UUT's machine has used so far. `numbers` are the numbers of all trials on this testbed.
    `scratch` is a directory for files that are not kept; None: the directory for temporary files. `cpu_delays` reads
    the delays of threads of this machine. `packets` are the described packets of trials, by name; some trials send
    plain ones if `sends_plain`. `learning` determines when sinks send learning frames. `make_tool` returns the tool of
    a workload. `foreign_cpu` reads the CPU time of other programs, which the tools of flows compete with. `client_pins`
    are the CPUs of a client and of its taps by stream, where all of its path is on one machine. Taps follow one of
    `witnessed` connections; 0: there are no taps. `second_guest` is the neighbour that is linked to the victim; empty
    without one. `seed` is that of the profile.
    """

    endpoints: Mapping[str, Endpoints]
    guests: Mapping[str, ActiveGuest]
    read_nics: NicReader
    read_counters: CounterReader
    clock: Clock
    machine_cpu_s: Callable[[], tuple[float, float]] | None = None
    loads: Mapping[str, NeighbourLoad] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)
    realtime: ClockReader = of_this_machine
    not_own: Collection[str] = ()
    scratch: str | None = None
    cpu_delays: DelayReader | None = None
    foreign_cpu: ForeignCpuReader | None = None
    packets: Mapping[str, Packet] = field(default_factory=dict)
    learning: LearningSchedule = field(default_factory=LearningSchedule)
    sends_plain: bool = True
    client_pins: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] = field(default_factory=dict)
    witnessed: int = 1
    second_guest: str = ""
    seed: int = 1
    make_tool: Callable[[Workload], Tool] = no_tool

    def packet_of(self, path: StreamPath, size: FrameSize) -> Packet | None:
        """Return the packet of a stream: its own one, or else that of frames of this size; None is the plain one."""
        return path.packet_of(self.packets[size.packet] if size.packet else None)

    def probe_packet(self, path: StreamPath, active: ActiveGuest) -> Packet | None:
        """Return the packet that probes of a stream have; None is the plain one.

        It is the first one with `expect` that the stream sends, if it never sends plain ones: the UUT changes headers.
        """
        sent = () if self.sends_plain else self.packets.values()
        expecting = (packet for packet in ((path.packet,) if path.packet else sent) if packet.expect is not None)
        packet = next(expecting, None)
        return None if packet is None else active.uut.sent_packet(packet, path)


@dataclass(frozen=True, slots=True)
class TrialGuest:
    """A guest in a trial, its load, and the streams that run through it."""

    name: str
    active: ActiveGuest
    load: NeighbourLoad | None
    endpoints: tuple[Endpoints, ...]
    traffic: Mapping[str, Traffic]  # by stream
    flows: GuestFlows | None = None  # instead of endpoints


def guests_of(setup: TrialSetup, spec: TrialSpec, captures: Path | None = None) -> list[TrialGuest]:
    """Return the guests of a trial: the victim, then each neighbour. Kept captures of flows go to `captures`."""
    guests, trial = [], next(setup.numbers)
    for task in spec.guests:
        active = setup.guests[task.name]
        if task.serves:
            flows = _flows(setup, spec, task, task.serves, active, captures)
            guests.append(TrialGuest(task.name, active, setup.loads.get(task.name), (), {}, flows))
            continue
        endpoints = tuple(setup.endpoints[name] for name in task.streams)
        catch_up = spec.catch_up if task is spec.victim else None
        traffic = {ends.path.name: _traffic(setup, ends, active, task, trial, catch_up) for ends in endpoints}
        guests.append(TrialGuest(task.name, active, setup.loads.get(task.name), endpoints, traffic))
    serving = [guest.flows for guest in guests if guest.flows]
    for flows in serving:
        flows.is_alone = len(serving) == 1
    return guests


def _traffic(
    setup: TrialSetup, ends: Endpoints, active: ActiveGuest, task: GuestTask, trial: int, catch_up: float | None
) -> Traffic:
    frames, path = task.traffic, ends.path
    assert frames is not None, "whose streams are used has something to send on them"
    wanted = frames.load.fps(frames.size, path.link_bps)
    return Traffic(
        stream=path.name,
        src_mac=path.source.mac,
        dst_mac=active.ready.next_hop_macs[path.name],
        src_ip=path.src_ip_of(trial),
        dst_ip=path.dst_ip,
        src_ip6=path.src_ip6_of(trial),
        dst_ip6=path.dst_ip6,
        frame_size=frames.size,
        fps=None if wanted is None else ends.source.nearest_fps(wanted, frames.size),
        duration_s=task.duration_s,
        flows=frames.flows,
        seed=frames.seed,
        warm_up_s=task.warm_up_s,
        receive=path.receive,
        first_fps=task.first_fps,
        first_s=task.first_s,
        catch_up=catch_up,
        packet=_packet(setup, path, active, frames.size),
    )


def _flows(
    setup: TrialSetup, spec: TrialSpec, task: GuestTask, serve: Serve, active: ActiveGuest, captures: Path | None
) -> GuestFlows:
    """Return the flows of a guest; TestbedError for one that cannot serve."""
    tool, ends, taps = setup.make_tool(serve.workload), [], []
    for name in task.streams:
        endpoints = setup.endpoints[name]
        assert endpoints.source_host is not None, "a testbed has the hosts of its sources"
        client_cpus, tap_cpus = setup.client_pins.get(name, endpoints.cpus)
        hosts = endpoints.source_host, endpoints.sink_host
        places = FlowPlaces(endpoints.path, active, *hosts, setup.guests.get(setup.second_guest), client_cpus)
        try:
            route = places.route(serve.workload.path, has_second_tier=tool.needs_second_tier)
        except TestbedError as error:
            raise TestbedError(f"{task.name}: {error}") from error
        ends.append(route.ends)
        witnessed = setup.witnessed if task.name == VICTIM else 0  # a tap beside a neighbour would only disturb
        for place, tapped in route.taps.items() if witnessed else ():
            target = (captures or Path(setup.scratch or "/tmp")) / f"trial-{spec.index:06}-{name}-{place}.pcap"
            # Numbers of CPUs are those of one machine.
            cpus = tap_cpus if name in setup.client_pins or tapped[0] in hosts else ()
            taps.append(WireTap(place, *tapped, route.ends, target, captures is not None, cpus, witnessed))
    seeds = {name: client_seed(setup.seed, spec.repetition, task.name, name) for name in task.streams}
    path = setup.endpoints[task.streams[0]].path
    in_guest = serve.workload.path is FlowPath.BETWEEN_GUESTS
    machine = path.ingress.machine if in_guest and path.ingress else path.source.machine
    return GuestFlows(task, serve, tool, ends, seeds, machine, taps=taps)


def _packet(setup: TrialSetup, path: StreamPath, active: ActiveGuest, size: FrameSize) -> Packet | None:
    """Return the packet that a stream sends through a UUT with frames of this size; None is the plain one."""
    packet = setup.packets[size.packet] if size.packet else path.packet
    return None if packet is None else active.uut.sent_packet(packet, path)
