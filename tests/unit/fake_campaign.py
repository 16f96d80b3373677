"""A campaign on a testbed of fakes: tests set the outcome of its trials beforehand, and its calls are recorded."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from netbench.campaign import runner
from netbench.campaign.request import CampaignRequest, make_request
from netbench.errors import NeighbourError, TestbedError, UutError
from netbench.linux.counters.counting_points import NicCounters
from netbench.linux.locks import OtherMeasurement
from netbench.loads.stress_ng import NeighbourLoad
from netbench.model.campaign import CampaignResults
from netbench.model.paths import InterfaceRef
from netbench.model.replayed_loads import ReplayedLoads
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import HostIdentity, Identities
from netbench.model.topology import Topology
from netbench.model.topology_specs import UutSpec
from netbench.results.directory import ResultDirectory
from netbench.signals import Stopped
from netbench.trial.setup import TrialSetup
from netbench.uut.base import ActiveGuest
from tests.unit.fakes import Behaviour, FakeSetup, FakeUut
from tests.unit.inputs import profile

T = TypeVar("T")


def _next(ones: list[T], otherwise: T) -> T:
    return ones.pop(0) if ones else otherwise


class FakeTestbed:
    """A testbed whose trials on a UUT meet `behaviours` in this order, and `usual` afterwards.

    `refusals` are the reasons why a UUT does not come up, one for each attempt; it comes up where one is empty. Streams
    that the topology gives to neighbours are theirs; their behaviours, refusals and facts are under `UUT.NEIGHBOUR`.
    """

    def __init__(self, lab: Topology) -> None:
        self.topology = lab
        self.fakes = FakeSetup.on(stream_paths(lab))
        self.calls: list[str] = []
        self.done_while_held: list[list[str]] = []
        self.trials = 0
        self.before_trial: Callable[[int], None] = lambda number: None
        self.behaviours: dict[str, list[Behaviour]] = {}
        self.usual = Behaviour()  # where none is given
        self.refusals: dict[str, list[str]] = {}
        self.output: dict[str, list[dict[str, str]]] = {}  # facts, likewise
        self.company: list[OtherMeasurement] = []
        self.reported: list[str] = []  # remarks of its sources
        self.port_warnings: list[str] = []
        self.hosts = {"uut": HostIdentity("Linux 6.1", None, None, "none", "none")}
        self._present = ""
        self._beside: list[str] = []
        wires = self.fakes.wires
        self._wires = {neighbour.name: [wires[stream] for stream in neighbour.streams] for neighbour in lab.neighbours}
        taken = [wire.path.name for own in self._wires.values() for wire in own]
        self._victim = FakeUut(self.fakes.log, [wire for name, wire in wires.items() if name not in taken])

    def stop_at(self, number: int, error: BaseException) -> None:
        """Let something happen before a trial, counted from 1."""

        def before_trial(trial: int) -> None:
            if trial == number:
                raise error

        self.before_trial = before_trial

    @property
    def ups(self) -> Counter[str]:
        """How often each UUT and neighbour was brought up."""
        return Counter(call.removeprefix("up ") for call in self.calls if call.startswith("up "))

    @contextmanager
    def held(self, *_: object) -> Iterator[None]:
        """As machine_held; `done_while_held` gets the calls made meanwhile, a list for each time."""
        before = len(self.calls)
        try:
            yield
        finally:
            self.done_while_held.append(self.calls[before:])

    @contextmanager
    def opening(self, there: Topology | None = None) -> Iterator["FakeTestbed"]:
        """As open_testbed, for all or some of the UUTs."""
        self.topology = there or self.topology
        self.calls.append("open")
        try:
            yield self
        finally:
            self.calls.append("close")

    @contextmanager
    def uut(self, spec: UutSpec) -> Iterator[ActiveGuest]:
        """Yield the same fake for each UUT."""
        self._present = spec.name
        with self._up(spec.name, UutError):
            yield self._victim.active()

    @contextmanager
    def neighbour(self, beside: UutSpec, name: str) -> Iterator[ActiveGuest]:
        """Yield a separate fake with its own wires."""
        self._beside.append(name)
        try:
            with self._up(f"{beside.name}.{name}", NeighbourError):
                yield FakeUut(self.fakes.log, self._wires[name]).active()
        finally:
            self._beside.remove(name)

    @contextmanager
    def _up(self, name: str, refused: type[TestbedError]) -> Iterator[None]:
        self.calls.append(f"up {name}")
        try:
            refusal = _next(self.refusals.get(name, []), "")
            if refusal:
                raise refused(refusal)
            yield
        finally:
            self.calls.append(f"down {name}")

    def receiving_facts(self, uut):
        return {}

    def facts(self, active: ActiveGuest) -> Mapping[str, str]:
        return _next(self.output.get(self._present, []), {})

    def others(self) -> list[OtherMeasurement]:
        return self.company

    def sends(self) -> str:
        return "fake"

    def receives(self) -> str:
        return "inline"

    def identities(self) -> Identities:
        return Identities(
            "2026-01-01T00:00:00+00:00",
            {name: replace(identity, machine=self.topology.uut_machine) for name, identity in self.hosts.items()},
            {name: ends.identities for name, ends in self.fakes.setup.endpoints.items()},
        )

    def remarks(self) -> list[str]:
        return self.reported

    def setup(
        self, guests: Mapping[str, ActiveGuest], loads: Mapping[str, NeighbourLoad] = {}, *, serves: bool = False
    ) -> TrialSetup:
        return replace(self.fakes.setup, guests=guests, read_nics=self._read_nics, loads=loads)

    def renew_endpoints(self) -> None:
        self.calls.append("renew endpoints")

    def interfaces(self) -> dict[str | None, list[str]]:
        return {}

    def _read_nics(self, places: Iterable[InterfaceRef]) -> dict[InterfaceRef, NicCounters]:
        if self.fakes.log[-1].endswith("armed?"):  # a trial begins
            self.trials += 1
            self.before_trial(self.trials)
            self.fakes.wires["s1"].behaviour = _next(self.behaviours.get(self._present, []), self.usual)
            for name in self._beside:
                behaviour = _next(self.behaviours.get(f"{self._present}.{name}", []), Behaviour())
                for wire in self._wires[name]:
                    wire.behaviour = behaviour
        return self.fakes.nics(places)


@dataclass
class FakeCampaign:
    """A campaign on a fake testbed of this topology, with its result directory."""

    lab: Topology
    directory: ResultDirectory
    testbed: FakeTestbed

    @classmethod
    def on(cls, lab: Topology, place: Path, monkeypatch: pytest.MonkeyPatch) -> "FakeCampaign":
        """Return a campaign whose testbed replaces the one that open_testbed would bring up."""
        testbed = FakeTestbed(lab)
        monkeypatch.setattr(runner, "machine_held", testbed.held)
        monkeypatch.setattr(runner, "open_testbed", lambda resolved, _: testbed.opening(resolved.topology))
        monkeypatch.setattr(runner, "with_what_lacks", lambda resolved: resolved)
        return cls(lab, ResultDirectory(place), testbed)

    def request(self, /, replayed: ReplayedLoads | None = None, **wanted: Any) -> CampaignRequest:
        """Return the request of these fields of `profile`; UUTs are measured one after the other by default."""
        return make_request(self.lab, profile(**{"order": "sequential", **wanted}), replayed=replayed)

    def run(self, **wanted: Any) -> CampaignResults:
        runner.start(self.request(**wanted), self.directory, ["netbench", "run"], [])
        return self.directory.results()

    def stopped_at(self, number: int, error: BaseException | None = None, /, **wanted: Any) -> CampaignResults:
        """Start it, stop it before a trial by SIGTERM or another error, and return the results so far."""
        error = error or Stopped(15)
        self.testbed.stop_at(number, error)
        with pytest.raises(type(error)):
            self.run(**wanted)
        self.testbed.before_trial = lambda number: None
        return self.directory.results()

    def resume(self) -> CampaignResults:
        """Resume it; calls and trials of the testbed are counted anew."""
        self.testbed.calls, self.testbed.trials = [], 0
        runner.resume(self.directory, ["netbench", "resume"], [])
        return self.directory.results()

    def events(self, kind: str = "") -> list[dict[str, Any]]:
        """Return all events of its log, or those of a kind."""
        found = [json.loads(line) for line in self.directory.events.read_text().splitlines()]
        return [event for event in found if kind in ("", event["kind"])]
