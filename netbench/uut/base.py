"""The seam between a trial and the device that forwards its frames: a thin base class, and its results as data."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, NamedTuple, Protocol

from pydantic import BaseModel

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.linux.cgroups import cgroup_procs, find_controller
from netbench.linux.changes import AddCgroup, Change
from netbench.linux.machine import Machine
from netbench.linux.requirements import Requirement
from netbench.model.fields import percent_text
from netbench.model.packet import PLAIN_PACKET, LayersChange, Packet
from netbench.model.paths import PREFIX, InterfaceRef, StreamPath
from netbench.model.points import CounterReading, Points
from netbench.model.topology_specs import CpuShares
from netbench.model.virtualisation import DurationEstimate, Supports, Virtualisation
from netbench.model.workload import FlowPath

AT_ONCE = DurationEstimate()  # for UUTs that run already
# Spanning tree may block a port for 50 s: until it has expired, listened and learned (IEEE 802.1D-1998, 8.10).
PROBE_LIMIT_S = 60.0
EVERYTHING = CpuShares()  # no restriction: all CPUs


class Step(Protocol):
    """A step of provisioning: a Change of a machine, or an action of one kind of UUT."""

    @property
    def command(self) -> str:
        """The step as a command (for `--dry-run`)."""


class GuestLan(NamedTuple):
    """The link between a guest and another one on its machine: the other's first path, and which of them makes it."""

    peer: StreamPath
    is_maker: bool


@dataclass(frozen=True, slots=True)
class Assignment:
    """The task of a UUT: its name, the streams it forwards, and its CPU shares.

    A neighbour may have no paths: then `host` is the name of its host. `run_id` names this run of netbench. `packets`
    are the described packets that it forwards, in addition to the plain one. `lan` links it to another guest. It
    `has_loopback` if flows run inside it.
    """

    name: str = "NAME"
    paths: tuple[StreamPath, ...] = ()
    cpu_shares: CpuShares = EVERYTHING
    host: str = ""
    run_id: str = "RUN"
    packets: tuple[Packet, ...] = ()
    lan: GuestLan | None = None
    has_loopback: bool = False

    @property
    def is_described(self) -> bool:
        """Whether it forwards a described packet, of any stream."""
        return bool(self.packets) or any(path.packet for path in self.paths)

    @property
    def cgroup_changes(self) -> list[AddCgroup]:
        """The control group of this guest; none without a weight and a limit."""
        weight, limit = self.cpu_shares.weight, self.cpu_shares.limit
        return [] if weight is None and limit is None else [AddCgroup(None, self._group, weight, limit)]

    def cgroup_procs(self, host: Host) -> str:
        """Return the cgroup.procs file of that group on a host; empty without a group."""
        return cgroup_procs(host, find_controller(host), self._group) if self.cgroup_changes else ""

    @property
    def planned_cgroup_procs(self) -> str:
        """The same on most machines, for `--dry-run`."""
        return "".join(f"{change.path}/cgroup.procs" for change in self.cgroup_changes)

    @property
    def cpu_facts(self) -> dict[str, str]:
        """The facts about its CPU shares; none for the default."""
        shares = self.cpu_shares
        facts = {"host_cpus": ",".join(map(str, shares.cpus))} if shares.cpus else {}
        facts |= {"cpu_weight": str(shares.weight)} if shares.weight is not None else {}
        return facts | ({"cpu_limit": percent_text(shares.limit)} if shares.limit is not None else {})

    @property
    def _group(self) -> str:
        return f"{PREFIX}{self.run_id[-12:]}-{self.name}"


@dataclass(frozen=True, slots=True)
class Site:
    """The surroundings of a UUT: its assignment, the machine of its NICs, for its changes, and the testbed's hosts."""

    assignment: Assignment
    machine: Machine
    hosts: Mapping[str, Host]

    @property
    def paths(self) -> tuple[StreamPath, ...]:
        """The streams it forwards."""
        return self.assignment.paths

    @property
    def host(self) -> Host:
        """The host of its NICs, or its own host if it has none."""
        ingress = self.paths[0].ingress if self.paths else None
        return self.hosts[ingress.host if ingress else self.assignment.host]


@dataclass(frozen=True, slots=True)
class TapPoint:
    """Where a stream's flows are captured nearest to a guest: an interface of its host, and the server's address there.

    If it `ends_connections`, a process of the host accepts the connections of clients there, and passes their data on
    to the guest: handshakes and acknowledgements are those of the host.
    """

    interface: str
    server_address: str
    ends_connections: bool = False


@dataclass(frozen=True, slots=True)
class UutPlan:
    """The steps and requirements of a UUT: pure data, known before anything is touched.

    `needs` are the requirements of its machine, as `netbench doctor` names them. `load_needs` are those of a load
    inside it; None where no load can run there. `own_kernel`: a separate kernel schedules what runs inside it.
    `in_process`: a process forwards, which competes for CPUs with the threads that receive. `listening` and `taps` are
    those of Ready.
    """

    steps: tuple[Step, ...] = ()
    needs: frozenset[str] = frozenset()
    load_needs: frozenset[str] | None = None
    pace: DurationEstimate = AT_ONCE
    own_kernel: bool = False
    in_process: bool = False
    listening: Mapping[str, str] = field(default_factory=dict)
    taps: Mapping[str, TapPoint] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ready:
    """The properties of a UUT, once it forwards.

    `next_hop_macs` has the MAC address, by stream, that the source must send to. Frames may stay inside the UUT for
    `quiet_time_s` while no NIC's counter moves. `inside` runs commands in it, within its CPU shares; None where that
    is impossible. `facts` matter for reading its results: versions, how it is run. If its CPU is emulated, the fact
    `emulated` gives the reason. `points` count its frames between ingress and egress NIC, in the order of the path.
    Probes may take `probe_limit_s` to arrive on paths that netbench did not make; None where none ever arrives.

    `at_sink` has, by stream, the function that returns the headers at the sink for the headers as sent; a stream that
    is missing there keeps its headers. Values that the UUT chooses itself are ANY. All values of a field
    that varies are one VariedValue.

    `addresses` has, by stream, the IPv4 address towards the source at which clients reach servers inside it. These
    listen at that address too, unless `listening` has another one for the stream, to which it is translated. `taps` has
    the places to capture flows, by stream; by default the ingress NIC. `attachments` has, by stream, the interface of
    its machine that its ingress NIC is attached to.
    """

    next_hop_macs: Mapping[str, str]
    quiet_time_s: float
    inside: Host | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    points: Points = field(default_factory=dict)
    probe_limit_s: float | None = PROBE_LIMIT_S
    at_sink: Mapping[str, LayersChange] = field(default_factory=dict)
    addresses: Mapping[str, str] = field(default_factory=dict)
    listening: Mapping[str, str] = field(default_factory=dict)
    taps: Mapping[str, TapPoint] = field(default_factory=dict)
    attachments: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reading:
    """The counters of a UUT at one moment, and the CPU time used so far.

    `cpu_s` is in seconds, by who counted it (`guest`: the guest's kernel, `host`: the cost of the guest on the host).
    """

    counters: tuple[CounterReading, ...] = ()
    cpu_s: Mapping[str, float] = field(default_factory=dict)


class UnitUnderTest:
    """A device that forwards frames from each stream's ingress NIC to its egress NIC. The defaults do nothing else.

    Order of calls: check(), plan() (nothing touched yet); provision(), ready(). Then reset() before each trial, and
    read() before and after it; destroy() at the end. Changes go through the site's machine, and the caller undoes them
    after destroy(), which ends everything else, processes for example.

    Several UUTs may share a machine, each with its own paths and name; they are destroyed in reverse order.
    """

    Options: ClassVar[type[BaseModel]]  # how the topology describes this kind of UUT; the only argument of __init__
    may_need: ClassVar[
        tuple[Requirement, ...]
    ] = ()  # requirements of this kind alone: how to detect and how to install them

    supports: ClassVar[Supports] = Supports()

    _site: Site | None = None

    def check(self, paths: Sequence[StreamPath]) -> None:
        """Raise UsageError when this UUT cannot forward on these paths."""

    def unsupported_reason(self, packet: Packet, paths: Sequence[StreamPath]) -> str:
        """Return why this UUT cannot forward a packet on these paths, with layer and field; empty if it can."""
        return ""

    @property
    def unforwarding_reason(self) -> str:
        """Why it forwards no frames at all, and only serves; empty if it forwards."""
        return ""

    @property
    def unserved_reason(self) -> str:
        """Why no server can run inside it; empty if it has an address and runs commands."""
        return "netbench runs no commands inside it"

    def path_reason(self, path: FlowPath) -> str:
        """Return why flows cannot take this path, with it as the measured or the second guest; empty if they can.

        By default that is the reason why it cannot serve.
        """
        return self.unserved_reason

    @property
    def ends_connections(self) -> bool:
        """Whether its host accepts the connections of clients, in place of the server in the guest."""
        return False

    @property
    def probe_limit_s(self) -> float | None:
        """The time that probes may take to arrive behind it; None where no plain frame arrives."""
        paths = self._site.paths if self._site else ()
        return None if self.unsupported_reason(PLAIN_PACKET, paths) else PROBE_LIMIT_S

    def sent_packet(self, packet: Packet, path: StreamPath) -> Packet:
        """Return the packet that a stream sends to this UUT in trials with `packet`."""
        return path.packet_of(packet) or packet

    def added_bytes(self, packet: Packet, path: StreamPath) -> int:
        """Return by how many bytes this UUT makes frames of a packet, as it is sent, longer; negative: shorter."""
        return 0

    def plan(self, assignment: Assignment) -> UutPlan:
        """Return the steps of provisioning it, in order, and its requirements."""
        return UutPlan()

    def provision(self, site: Site) -> None:
        """Carry out the plan, and nothing else; TestbedError when that fails."""
        self._site = site
        for is_change, steps in groupby(self.plan(site.assignment).steps, lambda step: isinstance(step, Change)):
            if is_change:
                site.machine.make(step for step in steps if isinstance(step, Change))
            else:
                for step in steps:
                    self.take(step, site)

    def take(self, step: Step, site: Site) -> None:
        """Carry out a step of the plan that is not a change of the machine."""
        raise NotImplementedError(step.command)

    def ready(self) -> Ready:
        """Return once it forwards; TestbedError when that exceeds its time limit."""
        raise NotImplementedError

    def reset(self) -> None:
        """Bring it to the same state before every trial."""

    def cpu_s(self) -> Mapping[str, float]:
        """Return the CPU time so far, as in a Reading; TestbedError without an answer. May be cheaper than read()."""
        return self.read().cpu_s

    def read(self) -> Reading:
        """Return its own counters now; TestbedError when it no longer answers."""
        return Reading()

    def forwarding_threads(self) -> Mapping[int, str]:
        """Return the threads of this machine that forward for it now: names by id; empty where none is known."""
        return {}

    def memory_bytes(self) -> int | None:
        """Return the memory of its processes on its machine now; None where unknown, or without processes."""
        return None

    def console(self) -> str:
        """Return its console output so far, for failure messages; empty without a console."""
        return ""

    def destroy(self) -> None:
        """End it; harmless when it was never provisioned."""
        self._site = None

    @property
    def virtualisation(self) -> Virtualisation | None:
        """Its kind of virtualisation, once it is ready; None where unknown."""
        return Virtualisation.NONE

    @property
    def site(self) -> Site:
        """Its site; TestbedError before provision() and after destroy()."""
        if self._site is None:
            raise TestbedError("the UUT is not provisioned")
        return self._site


@dataclass(slots=True)
class ObservedDelays:
    """The largest delay of frames in a UUT, over all trials so far.

    `largest_s` is the largest delay of a frame. `waited_out`: the trial once waited for missing frames as long as it
    may, so that no larger delay can be observed.
    """

    largest_s: float = 0.0
    waited_out: bool = False


@dataclass(frozen=True, slots=True)
class ActiveGuest:
    """A UUT that is up: its plan, its properties, and its observed delays.

    `start_s` is the time it took to come up; None for one that netbench does not start. `memory_bytes` is the memory
    it used on its machine then; None where unknown.

    `restart` ends it, undoes its changes and brings up another one like it, as a power cut would; UutError when that
    fails. All UUTs that came after it must have gone before. None for one that netbench does not start.

    `macs` are the MAC addresses of its streams' NICs once it was ready. `cpus` are the CPUs of its machine that it
    runs on; empty: any.
    """

    uut: UnitUnderTest
    plan: UutPlan
    ready: Ready
    delays: ObservedDelays = field(default_factory=ObservedDelays)
    start_s: float | None = None
    memory_bytes: int | None = None
    restart: "Callable[[], ActiveGuest] | None" = None
    macs: Mapping[InterfaceRef, str] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()


def bring_up(uut: UnitUnderTest, site: Site) -> ActiveGuest:
    """Provision a UUT and wait until it forwards; TestbedError when it does not; the caller must destroy it anyway.

    The fact `virtualisation` is its kind of virtualisation.
    """
    began_s, plan = time.monotonic(), uut.plan(site.assignment)
    uut.provision(site)
    ready = uut.ready()
    start_s = time.monotonic() - began_s if plan.steps else None
    kind = {"virtualisation": uut.virtualisation.value} if uut.virtualisation else {}
    ready = replace(ready, facts={**kind, **ready.facts})
    cpus = site.assignment.cpu_shares.cpus
    return ActiveGuest(uut, plan, ready, start_s=start_s, memory_bytes=uut.memory_bytes(), cpus=cpus)
