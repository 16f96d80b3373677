"""A backend that sends and receives at once is one object, whatever a profile and a trial request."""

from dataclasses import replace
from importlib.metadata import EntryPoint, entry_points

import pytest
from pydantic import BaseModel

from netbench.config import plugins
from netbench.config.loading import load_profile
from netbench.config.plugins import GENERATORS, SINKS, profile_kinds
from netbench.config.shipped import PROFILES, find
from netbench.generators.base import Generator, Source
from netbench.model.received import Received
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent
from netbench.sinks.base import Sink, SinkKind
from netbench.testbed.resolved import make_backends
from netbench.trial.run import run_trial
from netbench.trial.setup import Endpoints
from netbench.trial.sources_and_sinks import Recording
from tests.unit.capture_files import START_NS
from tests.unit.fakes import FakeSetup
from tests.unit.inputs import planned_trial, profile, topology

PATHS = stream_paths(topology(2))


class EchoOptions(BaseModel, extra="forbid"):
    server: str


class Echo(Generator, SinkKind):
    """One server that sends on some ports, and counts what comes back on others."""

    Options = EchoOptions

    def __init__(self, options: EchoOptions) -> None:
        self.options = options
        self.sent: list[int] = []

    def source(self) -> "EchoSource":
        return EchoSource(self)

    def sink(self) -> "EchoSink":
        return EchoSink(self)


class EchoSource(Source):
    def __init__(self, server: Echo) -> None:
        self.server = server

    def open(self, host, interface, cpus):
        pass

    def prepare(self, traffic):
        self.frames = traffic.frames

    def start(self, at_monotonic_ns):
        pass

    def wait(self, timeout_s):
        self.server.sent.append(self.frames)
        return Sent(self.frames, 0, 1.0, START_NS, START_NS, 1, 0.0)


class EchoSink(Sink):
    def __init__(self, server: Echo) -> None:
        self.server = server

    def open(self, host, interface, cpus):
        pass

    def arm(self, incoming):
        pass

    def stop(self, limit_s):
        pass

    def received(self, sent):
        return Received(frames=self.server.sent.pop(0))


@pytest.fixture
def echo(monkeypatch):
    """Register it as a plug-in in both groups."""
    own = [EntryPoint("echo", f"{__name__}:Echo", group) for group in (GENERATORS, SINKS)]

    def found(group):
        return [*entry_points(group=group), *(entry for entry in own if entry.group == group)]

    monkeypatch.setattr(plugins, "entry_points", found)


def read(*settings):
    return load_profile(find(PROFILES, "quick"), profile_kinds(), settings)


def test_named_for_both_it_is_one_object(echo):
    both: tuple[object, object] = make_backends(read("generator={kind: echo, server: trex1}", "sink=echo"))
    assert both[0] is both[1]
    assert isinstance(both[0], Echo)
    assert both[0].options.server == "trex1"


def test_named_for_one_of_them_something_else_does_the_other(echo):
    generator, sinks = make_backends(read("generator=afpacket", "sink={kind: echo, server: trex1}"))
    assert (type(generator).__name__, type(sinks)) == ("AfPacket", Echo)
    generator, sinks = make_backends(read("generator={kind: echo, server: trex1}"))
    assert (type(generator), type(sinks).__name__) == (Echo, "Tcpdump")


def test_a_trial_on_it(tmp_path):
    server, fakes = Echo(EchoOptions(server="trex1")), FakeSetup.on(PATHS)
    endpoints = {path.name: Endpoints(path, server.source(), server.sink()) for path in PATHS}
    wanted = profile(loads="1000fps", duration="1s")
    spec = planned_trial(topology(2), wanted, tuple(endpoints))
    result = run_trial(replace(fakes.setup, endpoints=endpoints), spec, Recording(tmp_path), 1)
    assert [(stream.sent.frames, stream.received.frames) for stream in result.streams] == [(1000, 1000)] * 2
    assert {
        (stream.received.duplicates, stream.capture_dropped_frames, stream.received.delay) for stream in result.streams
    } == {(None, None, None)}
    assert {stream.received.no_delay for stream in result.streams} == {"the sink measures none"}
