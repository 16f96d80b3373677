"""All sinks of a trial at once: their parameters, and that none starts without enough room."""

import resource
import shutil
from dataclasses import replace

import pytest

from netbench.capture.pcap import pcap_bytes
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent
from netbench.model.verdict import ReasonKind
from netbench.sinks.base import Incoming, shortage
from netbench.trial.observation import StreamObservation
from netbench.trial.setup import Endpoints
from netbench.trial.sources_and_sinks import Receiving, Recording
from netbench.trial.verdict_rules import judge
from tests.unit.accounts import account
from tests.unit.capture_files import START_NS, pcap, stream_frame
from tests.unit.fakes import FakeNics, FakeSink, FakeSource, FakeWire
from tests.unit.inputs import profile, stream_traffic, topology
from tests.unit.points import THROUGH_UUT

PATHS = stream_paths(topology(2))
NOTHING = Sent(0, 0, 0.1, None, None, 1, 0.0)
TRAFFIC = {p.name: stream_traffic(p.name, src_ip=p.src_ip, dst_ip=p.dst_ip, duration_s=0.1) for p in PATHS}


class WritingSink(FakeSink):
    """A sink that reports that it writes 4,000 bytes."""

    def writes(self, incoming: Incoming) -> int:
        return 4000


@pytest.fixture
def receiving(tmp_path):
    """The sinks of two endpoints, and their log."""

    def make(sink, **more) -> tuple[Receiving, list[str]]:
        log: list[str] = []
        nics = FakeNics(log, [nic for path in PATHS for nic in path.nics.values()])
        wires = [FakeWire(log, nics, path) for path in PATHS]
        endpoints = [Endpoints(wire.path, FakeSource(wire), sink(wire)) for wire in wires]
        return Receiving(endpoints, TRAFFIC, Recording.as_wanted(profile(**more), tmp_path), 7, START_NS), log

    return make


def test_what_sinks_are_reported(receiving, monkeypatch, tmp_path):
    output: list[Incoming] = []
    monkeypatch.setattr(FakeSink, "arm", lambda self, incoming: output.append(incoming))
    receiving(FakeSink, keep_captures="invalid", snap_length=96)[0].arm()
    assert [(armed.path, armed.traffic, armed.record) for armed in output] == [
        (path, TRAFFIC[path.name], tmp_path / f"trial-000007-{path.name}") for path in PATHS
    ]
    assert {(armed.from_ns, armed.keep, armed.snap_length, armed.sinks) for armed in output} == {
        (START_NS, True, 96, 2)
    }


@pytest.mark.parametrize(
    ("difference", "from_ns"), [(ClockDifference(-70_000, 30_000), START_NS - 70_000), (None, 0)], ids=["known", "none"]
)
def test_what_is_late_is_reported_by_the_clock_that_stamps_it(monkeypatch, tmp_path, difference, from_ns):
    far = replace(PATHS[0], source=replace(PATHS[0].source, machine="far"))
    output: list[Incoming] = []
    monkeypatch.setattr(FakeSink, "arm", lambda self, incoming: output.append(incoming))
    nics = FakeNics([], [nic for path in (far, PATHS[1]) for nic in path.nics.values()])
    wires = [FakeWire([], nics, path) for path in (far, PATHS[1])]
    endpoints = [Endpoints(wire.path, FakeSource(wire), FakeSink(wire)) for wire in wires]
    clocks = {"far": difference, None: SAME_CLOCK}
    Receiving(endpoints, TRAFFIC, Recording(tmp_path), 7, START_NS, clocks.__getitem__).arm()
    assert [armed.from_ns for armed in output] == [from_ns, START_NS]


def test_what_would_fill_the_disk_is_not_begun(receiving, monkeypatch):
    sinks, log = receiving(WritingSink)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 7999))
    sinks.arm()
    assert not sinks.armed()
    sinks.stop(1.0)
    assert log == []
    evidence = StreamObservation(PATHS[0], TRAFFIC["s1"], NOTHING, sinks.received("s1", NOTHING), {}, THROUGH_UUT)
    (reason,) = judge(evidence, account(evidence), 0.01, 0.05)
    assert reason.kind is ReasonKind.CAPTURE_DISK_FULL
    assert "take 8,000 bytes, and" in reason.detail
    assert "has 7,999 left" in reason.detail


class FailingSink(FakeSink):
    """A sink that is queried, and does not receive."""

    def armed(self, timeout_s: float) -> bool:
        return not super().armed(timeout_s)


def test_every_sink_is_queried_although_one_does_not_receive(receiving):
    """Otherwise the answer of another sink's process would be left for its next request."""
    sinks, log = receiving(FailingSink)
    sinks.arm()
    assert not sinks.armed()
    assert [entry for entry in log if "armed?" in entry] == ["sink s1 armed?", "sink s2 armed?"]


def test_a_disk_is_not_asked_for_what_it_will_not_get(receiving, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 0))
    sinks, _ = receiving(FakeSink)
    sinks.arm()
    assert sinks.armed()


def test_how_large_a_capture_gets():
    for size, snap in ((64, 64), (500, 64), (80, 96)):
        frames = [stream_frame(n, size=size + 4) for n in range(3)]
        content = pcap([frame._replace(data=frame.data[:snap], original=size) for frame in frames])
        assert pcap_bytes(3, size + 4, snap) == len(content)


def test_no_file_may_be_larger_than_the_limit_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_FSIZE: (1000, 2000)}[which])
    assert shortage({tmp_path / "a": 1000, tmp_path / "b": 1000}) == ""
    assert "takes 1,001 bytes, and no file may have more than 1,000" in shortage(
        {tmp_path / "a": 10, tmp_path / "b": 1001}
    )


def test_there_is_always_room_for_nothing():
    assert shortage({}) == ""
