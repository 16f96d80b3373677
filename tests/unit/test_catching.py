"""The sinks of a trial: what they are told to catch, and what is made of it."""

import os
import resource
import shutil
from dataclasses import replace

import pytest

from netbench.model.paths import stream_paths
from netbench.model.traffic import Sent, Traffic
from netbench.model.verdict import ReasonKind
from netbench.sinks.base import Arrived, Catch
from netbench.sinks.room import capture_bytes, shortage
from netbench.trial.accounting import account
from netbench.trial.catching import Catching, is_heard_live
from netbench.trial.evidence import Evidence
from netbench.trial.judging import judge
from netbench.trial.setup import Lane
from tests.unit.capture_files import START_NS, pcap, stream_frame
from tests.unit.fakes import FakeNics, FakeSink, FakeSource, FakeWire
from tests.unit.inputs import profile, topology

PATHS = stream_paths(topology(2))
NAMES = [path.name for path in PATHS]
SENT = Sent(100, 0, 0.1, START_NS, START_NS, 1, 0.0)


class StreamingSink(FakeSink):
    """Has its capture read while it is made."""

    def stop(self) -> Arrived:
        assert self._catch is not None
        catch, self._catch = self._catch, None
        assert catch.listener is not None
        end, start = os.pipe()
        catch.listener.begin(end, ())
        frames = [stream_frame(n, src=catch.src_ip, dst=catch.dst_ip) for n in self._wire.arrived]
        os.write(start, pcap(frames))
        os.close(start)
        return Arrived(catch.capture, len(frames), len(frames), 0, 0, flushed=True, heard=True)


def wires(log) -> list[FakeWire]:
    nics = FakeNics(log, [nic for path in PATHS for nic in path.nics.values()])
    return [FakeWire(log, nics, path) for path in PATHS]


def traffic(frame_size=64, fps: float | None = 1000.0) -> dict[str, Traffic]:
    return {
        path.name: Traffic(path.name, "", "", path.src_ip, path.dst_ip, frame_size, fps, 0.1, 1, 1) for path in PATHS
    }


@pytest.fixture
def catching(tmp_path):
    """The sinks of two lanes; each wire has carried 100 frames."""

    def make(sink=FakeSink, asked=None, log=None, **more) -> Catching:
        lanes = []
        for wire in wires([] if log is None else log):
            wire.arrived = list(range(100))
            lanes.append(Lane(wire.path, FakeSource(wire), sink(wire)))
        files = {name: tmp_path / f"{name}.pcap" for name in NAMES}
        return Catching(lanes, asked or traffic(), profile(**more), files, START_NS)

    return make


def test_captures_that_are_not_kept_are_never_on_a_disk(catching, tmp_path):
    sinks = catching(StreamingSink)
    sinks.arm()
    assert sinks.armed()
    arrived = sinks.stop(1.0)
    for path in PATHS:
        caught = sinks.caught(path, SENT, arrived[path.name])
        assert caught.counts is not None
        assert (caught.counts.streams[0].stream, caught.counts.streams[0].received) == (path.name, 100)
    assert not list(tmp_path.iterdir())


def test_what_a_listener_could_not_count_is_an_error_that_says_why(catching):
    sinks = catching(StreamingSink)
    sinks.arm()
    arrived = sinks.stop(1.0)
    caught = sinks.caught(PATHS[0], replace(SENT, frames=99), arrived["s1"])
    assert caught.counts is None
    assert "bear numbers it did not send" in caught.arrived.error


@pytest.mark.parametrize("keep", ["all", "invalid"])
def test_captures_that_may_be_kept_are_files(catching, tmp_path, keep):
    """Also for a sink that would rather be heard."""
    sinks = catching(keep_captures=keep)
    sinks.arm()
    sinks.armed()
    arrived = sinks.stop(1.0)
    caught = sinks.caught(PATHS[1], SENT, arrived["s2"])
    assert caught.counts is not None
    assert caught.counts.streams[0].received == 100
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s1.pcap", "s2.pcap"]


def test_only_what_begins_and_ends_on_this_machine_is_heard_live():
    path = PATHS[0]
    elsewhere = replace(path.source, machine="lab")
    assert is_heard_live(path, profile())
    assert not is_heard_live(path, profile(keep_captures="all"))
    assert not is_heard_live(path, profile(keep_captures="invalid"))
    assert not is_heard_live(replace(path, source=elsewhere), profile())
    assert not is_heard_live(replace(path, sink=elsewhere), profile())


def test_sinks_share_the_memory_for_their_buffers(catching, monkeypatch):
    told: list[Catch] = []
    monkeypatch.setattr(FakeSink, "arm", lambda self, catch: told.append(catch))
    catching().arm()
    assert [(one.sinks, one.listener is not None) for one in told] == [(2, True), (2, True)]


def test_captures_that_would_fill_the_disk_are_not_begun(catching, monkeypatch):
    log: list[str] = []
    both = 2 * capture_bytes(100, 64, 64)
    sinks = catching(log=log, keep_captures="all")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, both - 1))
    sinks.arm()
    assert not sinks.armed()
    arrived = sinks.stop(1.0)
    assert log == []
    caught = sinks.caught(PATHS[0], replace(SENT, frames=0, first_ns=None), arrived["s1"])
    evidence = Evidence(PATHS[0], traffic()["s1"], replace(SENT, frames=0), caught.arrived, caught.counts, {})
    (reason,) = judge(evidence, account(evidence), 0.01, 0.05)
    assert reason.kind is ReasonKind.CAPTURE_DISK_FULL
    assert f"take {both:,} bytes, and" in reason.detail
    assert f"has {both - 1:,} left" in reason.detail


@pytest.mark.parametrize(("keep", "fps"), [("none", 1000.0), ("all", None)])
def test_a_disk_is_not_asked_for_captures_it_will_not_get_or_of_unknown_size(catching, monkeypatch, keep, fps):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(0, 0, 0))
    sinks = catching(asked=traffic(fps=fps), keep_captures=keep)
    sinks.arm()
    assert sinks.armed()


def test_how_large_a_capture_gets(tmp_path):
    for size, snap in ((64, 64), (500, 64), (80, 96)):
        frames = [stream_frame(n, size=size + 4) for n in range(3)]
        content = pcap([frame._replace(data=frame.data[:snap], original=size) for frame in frames])
        assert capture_bytes(3, size + 4, snap) == len(content)


def test_no_file_may_be_larger_than_the_limit_of_the_process(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: {resource.RLIMIT_FSIZE: (1000, 2000)}[which])
    assert shortage({tmp_path / "a": 1000, tmp_path / "b": 1000}) == ""
    assert "takes 1,001 bytes, and no file may have more than 1,000" in shortage(
        {tmp_path / "a": 10, tmp_path / "b": 1001}
    )


def test_there_is_always_room_for_nothing():
    assert shortage({}) == ""
