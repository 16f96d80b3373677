"""The seam between a trial and what forwards its frames: a thin base class, and what it promises as data."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import ClassVar, Protocol

from pydantic import BaseModel

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.linux.changes import Change
from netbench.linux.machine import Machine
from netbench.linux.needs import Need
from netbench.model.entitlement import Entitlement
from netbench.model.interfaces import Place
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import CounterReading, Points
from netbench.model.virtualisation import Supports, Virtualisation

AT_ONCE = Pace()  # there already
# Spanning tree may hold a port back for 50 s: until it has forgotten, listened and learned (IEEE 802.1D-1998, 8.10).
PROBE_LIMIT_S = 60.0
EVERYTHING = Entitlement()  # all CPUs, like everybody else


class Step(Protocol):
    """Something that provisioning does: a Change of a machine, or what one kind of UUT knows how to do."""

    @property
    def command(self) -> str:
        """What it does, as a command (for `--dry-run`)."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a UUT is to be: its name, the streams it forwards, and what it may take of the CPUs.

    A neighbour may have no paths: `host` is the name of the one it is on then. `run_id` names this run of netbench.
    """

    name: str = "NAME"
    paths: tuple[StreamPath, ...] = ()
    entitlement: Entitlement = EVERYTHING
    host: str = ""
    run_id: str = "RUN"


@dataclass(frozen=True, slots=True)
class Site:
    """Where a UUT is set up: its assignment, the machine its NICs are on, for its changes, and the testbed's hosts."""

    assignment: Assignment
    machine: Machine
    hosts: Mapping[str, Host]

    @property
    def paths(self) -> tuple[StreamPath, ...]:
        """The streams it forwards."""
        return self.assignment.paths

    @property
    def host(self) -> Host:
        """The host of its NICs, or the one it is on without any."""
        ingress = self.paths[0].ingress if self.paths else None
        return self.hosts[ingress.host if ingress else self.assignment.host]


@dataclass(frozen=True, slots=True)
class UutPlan:
    """What a UUT would do and need: pure data, known before anything is touched.

    `needs` is what its machine must be able to do, in the words of `netbench doctor`; `load_needs` likewise for a load
    inside it, None where nothing can run there. `own_kernel`: what runs inside it is scheduled by a kernel of its own.
    `in_process`: a process forwards, which competes for CPUs with the threads that receive.
    """

    steps: tuple[Step, ...] = ()
    needs: frozenset[str] = frozenset()
    load_needs: frozenset[str] | None = None
    pace: Pace = AT_ONCE
    own_kernel: bool = False
    in_process: bool = False


@dataclass(frozen=True, slots=True)
class Ready:
    """What a UUT is, once it forwards.

    `next_hop_macs` has, by stream, the MAC address the source must send to; frames may stay inside it for
    `quiet_time_s` while none of the NICs' counters moves; `inside` runs commands in it, within its entitlement, None
    where there is no way in. `facts` are what a reader of its numbers must know: versions, how it is run; `emulated` is
    among them, and says why, when its CPU is emulated. `points` are where its frames are counted between ingress and
    egress NIC, in the order of the path. `probe_limit_s` is how long it may take until probes come out of ways that go
    over what netbench did not make, None where none ever would.
    """

    next_hop_macs: Mapping[str, str]
    quiet_time_s: float
    inside: Host | None = None
    facts: Mapping[str, str] = field(default_factory=dict)
    points: Points = field(default_factory=dict)
    probe_limit_s: float | None = PROBE_LIMIT_S


@dataclass(frozen=True, slots=True)
class Reading:
    """What a UUT says of itself at one moment: its own counters, and CPU time used so far.

    `cpu_s` is in seconds, by whose time it is (`guest`: as the guest's kernel counts it, `host`: what the guest costs
    the host).
    """

    counters: tuple[CounterReading, ...] = ()
    cpu_s: Mapping[str, float] = field(default_factory=dict)


class UnitUnderTest:
    """Something that forwards frames from each stream's ingress NIC to its egress NIC. By default it does nothing else.

    Order of calls: check(), plan() (nothing touched yet); provision(), ready(); then before each trial reset(), and
    around it read(); destroy() at the end. Changes go through the site's machine, and the caller undoes them after
    destroy(); destroy() ends what is not a change, processes for example.

    Several may stand side by side on one machine, each with paths and a name of its own; the last to come goes first.
    """

    Options: ClassVar[type[BaseModel]]  # how the topology describes this kind of UUT; the only argument of __init__
    may_need: ClassVar[tuple[Need, ...]] = ()  # what only such a UUT needs: how that is looked for, and added

    supports: ClassVar[Supports] = Supports()

    _site: Site | None = None

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError when these paths are not what this UUT can forward on."""

    def plan(self, assignment: Assignment) -> UutPlan:
        """What provisioning it would do, in order, and what it needs."""
        return UutPlan()

    def provision(self, site: Site) -> None:
        """Do what was planned, and nothing else; TestbedError when that cannot be done."""
        self._site = site
        for is_change, steps in groupby(self.plan(site.assignment).steps, lambda step: isinstance(step, Change)):
            if is_change:
                site.machine.make(step for step in steps if isinstance(step, Change))
            else:
                for step in steps:
                    self.take(step, site)

    def take(self, step: Step, site: Site) -> None:
        """Do a step of the plan that is no change of the machine."""
        raise NotImplementedError(step.command)

    def ready(self) -> Ready:
        """Return once it forwards; TestbedError when that takes longer than it may."""
        raise NotImplementedError

    def reset(self) -> None:
        """Bring it to the same state before every trial."""

    def cpu_s(self) -> Mapping[str, float]:
        """CPU time used so far, as in a Reading; TestbedError when it no longer answers. May be cheaper than read()."""
        return self.read().cpu_s

    def read(self) -> Reading:
        """What its own counters say now; TestbedError when it no longer answers."""
        return Reading()

    def forwarding_threads(self) -> Mapping[int, str]:
        """The threads of this machine by which it forwards now, by id, with their names; empty where none is known."""
        return {}

    def memory_bytes(self) -> int | None:
        """Memory that its own processes take of its machine now; None where that is not known, or it has none."""
        return None

    def console(self) -> str:
        """What it has written to its console so far; empty for one without, and mostly of use when it fails."""
        return ""

    def destroy(self) -> None:
        """End it; harmless when it was never provisioned."""
        self._site = None

    @property
    def virtualisation(self) -> Virtualisation | None:
        """What stands between it and its machine, once it is ready; None where that is not known."""
        return Virtualisation.NONE

    @property
    def site(self) -> Site:
        """Where it stands; TestbedError before provision() and after destroy()."""
        if self._site is None:
            raise TestbedError("the UUT is not provisioned")
        return self._site


@dataclass(slots=True)
class SeenDelays:
    """How long a UUT was seen to hold frames, over all trials so far.

    `largest_s` is the largest delay of a frame; `waited_out` says that missing frames were once waited for as long as a
    trial may, so that this is all there is to know.
    """

    largest_s: float = 0.0
    waited_out: bool = False


@dataclass(frozen=True, slots=True)
class ActiveGuest:
    """A UUT that is up: what it planned, what it said once it was ready, and what was seen of its delays.

    `start_s` is how long it took to come up, None for one that netbench does not start; `memory_bytes` what it took of
    its machine then, None where that is unknown. `restart` ends it, undoes whatever was done for it, and brings up
    another one like it, as a power cut would: UutError when that does not come up. Whoever came after it must have gone
    before. None for one that netbench does not start. `macs` are the MAC addresses of its streams' NICs once it was
    ready. `cpus` are those of its machine that it runs on; empty: any.
    """

    uut: UnitUnderTest
    plan: UutPlan
    ready: Ready
    delays: SeenDelays = field(default_factory=SeenDelays)
    start_s: float | None = None
    memory_bytes: int | None = None
    restart: "Callable[[], ActiveGuest] | None" = None
    macs: Mapping[Place, str] = field(default_factory=dict)
    cpus: tuple[int, ...] = ()


def bring_up(uut: UnitUnderTest, site: Site) -> ActiveGuest:
    """Provision a UUT and wait until it forwards; TestbedError when it does not, and it is still to be destroyed.

    The fact `virtualisation` is what it says of that.
    """
    began_s, plan = time.monotonic(), uut.plan(site.assignment)
    uut.provision(site)
    ready = uut.ready()
    start_s = time.monotonic() - began_s if plan.steps else None
    kind = {"virtualisation": uut.virtualisation.value} if uut.virtualisation else {}
    ready = replace(ready, facts={**kind, **ready.facts})
    cpus = site.assignment.entitlement.cpus
    return ActiveGuest(uut, plan, ready, start_s=start_s, memory_bytes=uut.memory_bytes(), cpus=cpus)
