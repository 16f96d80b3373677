"""Fakes behind the seams: sources, sinks, UUTs, hosts and time that a test controls, and that log their calls.

They share a log, a list of texts in the order of the calls, and one `FakeNics`, whose counters they move as
frames would: a trial on them runs the real accounting.
"""

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from netbench.errors import MissingError, TestbedError
from netbench.generators.base import Source
from netbench.hosts.base import Completed, Host, Process, refusal
from netbench.linux.counters.counting_points import NicCounters
from netbench.model.distributions import Spread
from netbench.model.paths import InterfaceRef, Nic, StreamPath
from netbench.model.points import CounterReading, Points
from netbench.model.received import Received
from netbench.model.scenario import VICTIM
from netbench.model.tester import Identity
from netbench.model.topology import Topology
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.base import Incoming, Sink
from netbench.trial.setup import Endpoints, TrialSetup
from netbench.uut.base import ActiveGuest, Assignment, Reading, Ready, UnitUnderTest, UutPlan
from tests.unit.capture_files import START_NS

Log = list[str]


def fake_ports(kind: str = "netns") -> Topology:
    """Return a topology over two ports that need not exist, cabled to something unknown."""
    return Topology.model_validate(
        {
            "name": "ports",
            "hosts": {"t": {"kind": kind, "ports": {"tx": "eth1", "rx": {"nic": "eth2", "addresses": ["192.0.2.7"]}}}},
            "links": [{"ends": ["t/tx"], "rate": "1Gbit/s"}, {"ends": ["t/rx"], "rate": "1Gbit/s"}],
            "streams": [{"name": "s1", "source": "t/tx", "sink": "t/rx"}],
            "uuts": [{"name": "x", "kind": "external"}],
        }
    )


CAPTURE = b""  # the record that fake sinks write


class FakeClock:
    """Time that passes only during sleeps, and a little with each reading."""

    def __init__(self) -> None:
        self._now_ns = 0

    def monotonic_ns(self) -> int:
        self._now_ns += 1000
        return self._now_ns

    def realtime_ns(self) -> int:
        """Return the time as in the time stamps of capture_files."""
        return START_NS + self.monotonic_ns()

    def sleep(self, seconds: float) -> None:
        self._now_ns += round(seconds * 1e9)


class FakeNics:
    """The counters of NICs, all up and at 0. `late` moves them, one at each reading: frames still on their way."""

    def __init__(self, log: Log, nics: Iterable[Nic]) -> None:
        self._log = log
        self.late: list[Callable[[], object]] = []
        self.counters: dict[InterfaceRef, NicCounters] = {
            nic.place: NicCounters(0, 0, 0, 0, 0, 0, True, 0, nic.mac, index, 0)
            for index, nic in enumerate(nics, start=1)
        }

    def __call__(self, places: Iterable[InterfaceRef]) -> dict[InterfaceRef, NicCounters]:
        self._log.append("read NICs")
        if self.late:
            self.late.pop(0)()
        return {place: self.counters[place] for place in places if place in self.counters}

    def grow(self, nic: Nic | None, **by: int) -> None:
        if nic is not None:
            now = self.counters[nic.place]
            self.counters[nic.place] = replace(now, **{name: getattr(now, name) + more for name, more in by.items()})


@dataclass
class Behaviour:
    """The fate of one stream's frames in the next trials, in frames, and other failures."""

    sent: int | None = None  # None: as intended
    source_error: str = ""
    link_fps: float | None = None  # the most that the link takes
    capacity_fps: float | None = None  # the most that the UUT forwards, apart from its other losses
    descheduled_s: float = 0.0
    begins_ms: int = 0  # delay of its start
    apart_s: float = 0.0
    prepare_error: str = ""
    dropped_by_rule: int = 0
    lost_in_uut: int = 0
    duplicated: int = 0
    dropped_by_capture: int = 0
    late: int = 0  # frames of an earlier trial
    arms: bool = True
    flushes: bool = True
    sink_error: str = ""
    no_room: str = ""
    uut_error: str = ""  # instead of the UUT's counters


@dataclass
class FakeWire:
    """One stream: its path, its behaviour, and the frames that have arrived in the current trial."""

    log: Log
    nics: FakeNics
    path: StreamPath
    behaviour: Behaviour = field(default_factory=Behaviour)
    sent: int = 0
    rule_drops: int = 0  # as the UUT counts them: since its last reset
    arrived: list[int] = field(default_factory=list)  # sequence numbers

    def carry(self, frames: int) -> None:
        """Move the counters as this many frames would, lost ones being the first."""
        behaviour, path = self.behaviour, self.path
        through = frames - behaviour.dropped_by_rule - behaviour.lost_in_uut
        out = through + behaviour.duplicated
        self.sent = frames
        self.nics.grow(path.source, tx=frames)
        self.nics.grow(path.ingress, rx=frames)
        self.rule_drops += behaviour.dropped_by_rule
        self.nics.grow(path.egress, tx=out)
        self.nics.grow(path.sink, rx=out)
        first = frames - through + behaviour.dropped_by_capture
        self.arrived = [*range(first, frames), *range(frames - behaviour.duplicated, frames)]


class FakeSource(Source):
    """A source that sends as its wire's behaviour specifies, at the requested rate."""

    def __init__(self, wire: FakeWire) -> None:
        self._wire = wire
        self._traffic: Traffic | None = None

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self._note("open")

    def identity(self) -> Identity:
        return Identity("fake")

    def prepare(self, traffic: Traffic) -> None:
        self._note("prepare")
        if self._wire.behaviour.prepare_error:
            raise TestbedError(self._wire.behaviour.prepare_error)
        self._traffic = traffic

    def start(self, at_monotonic_ns: int) -> None:
        """Nothing arrives before wait()."""
        self._note("start")

    def wait(self, timeout_s: float) -> Sent:
        self._note("wait")
        assert self._traffic is not None, "prepare() comes first"
        behaviour, traffic = self._wire.behaviour, self._traffic
        frames = (traffic.frames or round(10_000 * traffic.duration_s)) if behaviour.sent is None else behaviour.sent
        duration_s = frames / traffic.fps if traffic.fps else traffic.duration_s
        backpressure_s = None
        if behaviour.link_fps is not None and traffic.fps is not None and traffic.fps > behaviour.link_fps:
            frames, duration_s, backpressure_s = (
                round(behaviour.link_fps * traffic.duration_s),
                traffic.duration_s,
                duration_s,
            )
        if behaviour.capacity_fps is not None:
            lost = max(0, frames - round(behaviour.capacity_fps * duration_s))
            self._wire.behaviour = replace(behaviour, lost_in_uut=lost)
        self._wire.carry(frames)
        at_ns = START_NS + behaviour.begins_ms * 1_000_000 if frames else None
        sent = Sent(frames, 0, duration_s, at_ns, at_ns, 1, 0.0, behaviour.source_error, apart_s=behaviour.apart_s)
        return replace(sent, backpressure_s=backpressure_s, descheduled_s=behaviour.descheduled_s)

    def _note(self, what: str) -> None:
        self._wire.log.append(f"source {self._wire.path.name} {what}")


class FakeSink(Sink):
    """A sink that counts the frames of its wire, and writes an empty record where one may be kept."""

    def __init__(self, wire: FakeWire) -> None:
        self._wire = wire
        self._incoming: Incoming | None = None

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self._note("open")

    def identity(self) -> Identity:
        return Identity(threads=3)

    def arm(self, incoming: Incoming) -> None:
        self._note("arm")
        self._incoming = incoming

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        self._note(f"learn {' '.join(frame.rstrip(bytes(1)).hex() for frame in frames)}")

    def armed(self, timeout_s: float) -> bool:
        self._note("armed?")
        return self._wire.behaviour.arms

    def stop(self, limit_s: float) -> None:
        self._note("stop")
        if self._incoming is None:
            raise TestbedError("no capture is running")
        record, self._incoming = self._incoming.record, None
        record.with_name(f"{record.name}.pcap").write_bytes(CAPTURE)

    def received(self, sent: Sent) -> Received:
        wire, behaviour = self._wire, self._wire.behaviour
        error = behaviour.sink_error or behaviour.no_room
        error = error or ("" if behaviour.arms else "tcpdump ended with exit code 1")
        matched, dropped = len(wire.arrived) + behaviour.dropped_by_capture, behaviour.dropped_by_capture
        if error or not sent.frames:
            return Received(matched=matched, dropped=dropped, error=error, no_room=behaviour.no_room)
        distinct = len(set(wire.arrived))
        return Received(
            frames=distinct,
            duplicates=len(wire.arrived) - distinct,
            reordered=0,
            foreign=0,
            late=behaviour.late,
            matched=matched,
            dropped=dropped,
            loss_runs=0,
            longest_loss_run=0,
            first_ns=START_NS,
            last_ns=START_NS,
            delay=Spread(5000, 5000.0, 5000, 5000, 5000, 5000, 5000) if distinct else None,
            unsettled="" if behaviour.flushes else "the last frames may not have been counted",
        )

    def _note(self, what: str) -> None:
        self._wire.log.append(f"sink {self._wire.path.name} {what}")


class FakeOptions(BaseModel):
    """A fake UUT has none."""


class FakeUut(UnitUnderTest):
    """A bridge with a drop rule, as its wires specify; `fails_at` are the calls of drops() that fail, from 1."""

    Options: ClassVar[type[BaseModel]] = FakeOptions

    def __init__(self, log: Log, wires: Sequence[FakeWire] = (), fails_at: Sequence[int] = ()) -> None:
        self._log = log
        self._wires = wires
        self._fails_at = fails_at
        self._asked = 0

    def active(self) -> ActiveGuest:
        return ActiveGuest(self, UutPlan(), self.ready())

    def ready(self) -> Ready:
        return Ready({wire.path.name: wire.path.sink.mac for wire in self._wires}, quiet_time_s=0.01)

    def reset(self) -> None:
        self._log.append("uut reset")
        for wire in self._wires:
            wire.rule_drops = 0

    def read(self) -> Reading:
        self._log.append("uut drops")
        self._asked += 1
        if self._asked in self._fails_at:
            raise TestbedError("the guest does not answer")
        for wire in self._wires:
            if wire.behaviour.uut_error:
                raise TestbedError(wire.behaviour.uut_error)
        return Reading(
            tuple(
                CounterReading(wire.path.name, "uut", "drop rule", "dropped", wire.rule_drops) for wire in self._wires
            )
        )

    def console(self) -> str:
        return "login: "


def planned_commands(uut: UnitUnderTest, assignment: Assignment) -> list[str]:
    """What provisioning a UUT would do."""
    return [step.command for step in uut.plan(assignment).steps]


def no_more_counters(points: Points) -> tuple[CounterReading, ...]:
    """Nothing that counts beside NICs and UUT."""
    return ()


@dataclass
class FakeSetup:
    """A setup of fakes on some paths, and the parts of it that a test sets or reads."""

    log: Log
    nics: FakeNics
    wires: dict[str, FakeWire]
    setup: TrialSetup

    @classmethod
    def on(cls, paths: Sequence[StreamPath], fails_at: Sequence[int] = (), **behaviours: Behaviour) -> "FakeSetup":
        """Return a setup whose frames all arrive, unless `behaviours` of their streams differ."""
        log: Log = []
        nics = FakeNics(log, [nic for path in paths for nic in path.nics.values()])
        wires = {path.name: FakeWire(log, nics, path, behaviours.get(path.name, Behaviour())) for path in paths}
        endpoints = {name: Endpoints(wire.path, FakeSource(wire), FakeSink(wire)) for name, wire in wires.items()}
        uut = FakeUut(log, list(wires.values()), fails_at)
        return cls(log, nics, wires, TrialSetup(endpoints, {VICTIM: uut.active()}, nics, no_more_counters, FakeClock()))


class FakeHost:
    """A host of a few files and commands: `answers` by the first word of the command; all others are missing."""

    def __init__(
        self, answers: dict[str, Completed] | None = None, files: dict[str, str] | None = None, *, is_here: bool = False
    ) -> None:
        """`is_here`: code that accesses files directly sees those of this machine."""
        self._is_here = is_here
        self._answers = answers or {}
        self.files = files or {}
        self.commands: list[tuple[str, ...]] = []

    def __str__(self) -> str:
        return "host fake"

    @property
    def name(self) -> str:
        return "fake"

    @property
    def netns(self) -> str | None:
        return None

    @property
    def shares_files(self) -> bool:
        return self._is_here

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        if list(argv) == ["sh", "-c", "echo $PPID"]:  # the parent of all commands is the first process
            return Completed(tuple(argv), 0, f"{os.getpid() if self._is_here else 1}\n", "")
        self.commands.append(tuple(argv))
        if argv[0] not in self._answers:
            raise MissingError(f"the command `{argv[0]}` is not on this host")
        return replace(self._answers[argv[0]], argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        raise TestbedError("a fake host starts no processes")

    def read(self, path: str) -> str:
        if path not in self.files:
            raise refusal(f"{self}: {path} cannot be read", "No such file or directory")
        return self.files[path]

    def write(self, path: str, text: str) -> None:
        """Write to an existing file only, as under /proc/sys."""
        self.read(path)
        self.files[path] = text

    def fetch(self, path: str, target: Path) -> None:
        target.write_text(self.read(path))

    def send(self, source: Path, path: str) -> None:
        self.files[path] = source.read_text()

    def share(self, source: Path, directory: str) -> str:
        if self._is_here:
            return str(source)
        self.send(source, f"{directory}/{source.name}")
        return f"{directory}/{source.name}"


class NetbenchCopied:
    """A host over SSH to which netbench was copied; no other package is needed there."""

    scratch = "/var/tmp/netbench-x"

    def module_command(self, module: str, *arguments: str) -> list[str]:
        return [module, *arguments]

    def bring(self, package: str) -> None:
        raise AssertionError(f"nothing here needs {package}")
