"""How the sink bpf reads the maps of its program, and what `sink: auto` chooses; the program itself needs root."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from netbench.bpf.libbpf import BpfError
from netbench.capture.capture_counts import ArrivalTimes
from netbench.capture.distribution import Distribution
from netbench.errors import MissingError
from netbench.linux.xdp_devices import XdpDevice
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import Identity
from netbench.model.traffic import Stamps
from netbench.sinks import auto_sink as auto
from netbench.sinks import bpf_hooks
from netbench.sinks.auto_sink import AutoSinkKind, AutoSinkOptions
from netbench.sinks.base import Incoming, SinkPreference
from netbench.sinks.bpf import BpfOptions
from netbench.sinks.bpf_counter import Capacity
from netbench.sinks.tcpdump import Tcpdump, TcpdumpSink
from tests.unit.fakes import FakeHost
from tests.unit.inputs import stream_traffic, topology

PATH = stream_paths(topology(1))[0]
SMALL = FrameSize.of(64)


def incoming(fps: float | None, frame_size: FrameSize = SMALL, **more: Any) -> Incoming:
    traffic = stream_traffic(src_ip="198.18.1.2", dst_ip="198.19.1.2", fps=fps, frame_size=frame_size)
    return Incoming(PATH, traffic, Stamps(), 0, Path("record"), **more)


def test_a_part_of_all_frames_is_read_and_written_as_people_write_it():
    assert BpfOptions.model_validate({"sample": "1/20"}).sample == 20
    assert BpfOptions().model_dump(mode="json") == {"sample": "1/1000", "hook": "auto"}
    for wrong in ("1/0", "2/3", "1000", 0.5, True):
        with pytest.raises(ValidationError, match="sample"):
            BpfOptions.model_validate({"sample": wrong})


@pytest.mark.parametrize(
    ("frames", "numbers", "shift"), [(1, 1 << 16, 0), (65_537, 1 << 17, 0), (3_000_000, 1 << 22, 2), (None, 1 << 25, 5)]
)
def test_there_is_room_for_all_numbers_that_can_be_sent(frames, numbers, shift):
    room = Capacity.needed(frames, 1.0, 0)
    assert (room.numbers, room.time_shift) == (numbers, shift)
    assert room.times << room.time_shift == numbers


def test_steps_and_times_that_the_kernel_kept_say_what_all_values_would(monkeypatch):
    values = np.random.default_rng(1).integers(0, 1 << 20, 5000)
    kept, counts = np.unique(values >> 5 << 5, return_counts=True)
    whole = Distribution()
    whole.add(values)
    assert Distribution.of(*np.unique(values, return_counts=True), int(values.sum()), *extremes(values)).spread() == (
        whole.spread()
    )
    coarse = Distribution.of(kept, counts, int(values.sum()), *extremes(values)).spread()
    assert coarse is not None
    assert coarse.mean_ns == whole.mean
    times = np.arange(1000, dtype=np.int64) * 10
    assert ArrivalTimes.of(1000, 4, times[::4]).before(5000) == 500


def extremes(values):
    return int(values.min()), int(values.max())


NATIVE, GENERIC, TCX = "xdp, native", "xdp, generic", "tcx ingress"


@pytest.mark.parametrize(
    ("wanted", "kind", "by_napi", "refusing", "taken", "why"),
    [
        ("auto", "veth", True, (), NATIVE, "costs least where frames come in by NAPI"),
        ("auto", "veth", False, (), TCX, "costs least where frames come in without NAPI"),
        ("auto", "veth", False, (TCX,), NATIVE, "tcx ingress: no"),
        ("auto", "veth", True, (NATIVE, TCX), GENERIC, "xdp, native: no; tcx ingress: no"),
        ("auto", "ixgbe", True, (TCX,), GENERIC, "tcx ingress: no"),
        ("xdp", "ixgbe", False, (), NATIVE, "as set in the profile"),
        ("xdp", "tun", False, (), GENERIC, "the driver tun does not count frames that a program takes in it"),
        ("tcx", "veth", True, (), TCX, "as set in the profile"),
        ("tcx", "veth", True, (TCX,), "", "tcx ingress: no"),
    ],
)
def test_the_hook_is_the_best_that_the_interface_has(monkeypatch, wanted, kind, by_napi, refusing, taken, why):
    def attached(hook, device, room, reason):
        if hook.name in refusing:
            raise BpfError(f"{hook.name}: no")
        return hook.name, reason

    monkeypatch.setattr(bpf_hooks, "_attached", attached)
    monkeypatch.setattr(bpf_hooks, "xdp_device", lambda name: XdpDevice(1, 1500, True, kind, None, None))
    with nullcontext() if taken else pytest.raises(MissingError, match=why):
        found: Any = bpf_hooks.attach("rx1", wanted, Capacity.needed(1, 1, 0), by_napi=by_napi)
        assert found == (taken, why)


def test_what_every_hook_lacks_is_reported_once(monkeypatch):
    def attached(*_):
        raise MissingError("no libbpf")

    monkeypatch.setattr(bpf_hooks, "_attached", attached)
    monkeypatch.setattr(bpf_hooks, "xdp_device", lambda name: XdpDevice(1, 1500, True, "veth", None, None))
    with pytest.raises(MissingError, match="^no libbpf$"):
        bpf_hooks.attach("rx1", "auto", Capacity.needed(1, 1, 0), by_napi=True)


class FakeBpf:
    """Works by default."""

    broken = ""
    Options, auto_sink, counts_mixes = BpfOptions, SinkPreference(rank=1), True

    def __init__(self, options) -> None:
        self.is_open = False

    def unsupported_reason(self, host):
        return ""

    def sink(self):
        return self

    def open(self, host, interface, cpus):
        if self.broken:
            raise MissingError(self.broken)
        self.is_open = True

    def arm(self, incoming):
        self.is_open = True

    def rest(self):
        self.is_open = False

    def identity(self):
        return Identity("bpf", options={"sample": "1/1000"})


def opened_auto(monkeypatch, *, steady=False):
    monkeypatch.setattr(auto, "plugins", lambda group: {"bpf": FakeBpf, "tcpdump": Tcpdump})
    monkeypatch.setattr(TcpdumpSink, "arm", lambda *_: None)
    sink = AutoSinkKind(AutoSinkOptions(steady=steady)).sink()
    sink.open(FakeHost(files={"/proc/meminfo": ""}), "rx1", [])
    return sink


@pytest.fixture
def opened(monkeypatch):
    return opened_auto(monkeypatch)


@pytest.mark.parametrize(
    ("armed", "kind", "why"),
    [
        (incoming(300_000), "tcpdump", "within the 300,000 frames/s that tcpdump is trusted with"),
        (incoming(300_000, sinks=2), "bpf", "above the 150,000 frames/s that tcpdump is trusted with"),
        (incoming(700_000, tcpdump_fps=800_000.0), "tcpdump", "within the 800,000 frames/s that tcpdump captured in "),
        (incoming(900_000, tcpdump_fps=800_000.0), "bpf", "above the 800,000 frames/s that tcpdump captured in the s"),
        (incoming(None), "bpf", "above"),
        (incoming(300_000, IMIX), "tcpdump", "within the 300,000 frames/s that tcpdump is trusted with"),
        (incoming(None, IMIX), "bpf", "above the 300,000 frames/s that tcpdump is trusted with"),
    ],
)
def test_auto_chooses_for_each_trial_and_reports_why(opened, armed, kind, why):
    assert opened.identity().kind == "tcpdump, or bpf above its rate"
    opened.arm(armed)
    assert opened.identity().kind == kind
    assert opened.identity().options["auto"].startswith(why)
    assert opened.remarks() == []


@pytest.mark.parametrize("steady", [False, True])
def test_a_sink_that_does_not_count_mixes_is_not_chosen_for_one(monkeypatch, steady):
    monkeypatch.setattr(FakeBpf, "counts_mixes", False)
    sink = opened_auto(monkeypatch, steady=steady)
    for frame_size, kind, why in ((IMIX, "tcpdump", "bpf does not count frames of a mix"), (SMALL, "bpf", "")):
        sink.arm(incoming(None, frame_size))
        assert sink.identity().kind == kind
        assert why in (sink.identity().options or {})["auto"]


@pytest.mark.parametrize("broken", ["", "this kernel refuses it"])
def test_the_same_sink_for_all_loads_where_that_is_asked_for(monkeypatch, broken):
    monkeypatch.setattr(FakeBpf, "broken", broken)
    sink = opened_auto(monkeypatch, steady=True)
    for fps in (10, None, 900_000):
        sink.arm(incoming(fps))
        assert sink.identity().kind == ("tcpdump" if broken else "bpf")


def test_only_the_one_that_auto_has_chosen_meets_frames(opened):
    for fps, by_bpf in ((None, True), (1000, False), (900_000, True), (None, True), (1000, False)):
        opened.arm(incoming(fps))
        assert opened._sinks["bpf"].is_open == by_bpf


def test_auto_stays_with_tcpdump_where_bpf_does_not_work(monkeypatch):
    monkeypatch.setattr(FakeBpf, "broken", "this kernel refuses it")
    sink = opened_auto(monkeypatch)
    sink.arm(incoming(None))
    assert sink.identity().kind == "tcpdump"
    assert "but this kernel refuses it" in (sink.identity().options or {})["auto"]
    assert sink.remarks() == ["tcpdump receives at all loads, also above its rate: this kernel refuses it"]
