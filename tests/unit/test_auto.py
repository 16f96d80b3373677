"""The choice between pktgen and afpacket, and xdp for high loads."""

from contextlib import closing
from dataclasses import replace

import pytest

from netbench.errors import MissingError, TestbedError
from netbench.generators import auto_source as auto
from netbench.generators.afpacket.afpacket import AfPacket
from netbench.generators.auto_source import AutoGenerator, AutoGeneratorOptions
from netbench.generators.base import Generator, SourcePreference
from netbench.generators.pktgen.pktgen import PktGen
from netbench.generators.xdp.xdp import Xdp
from netbench.model.frame_size import IMIX, FrameSize
from netbench.model.packet_description import parse_packet
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import Identity
from tests.unit.fakes import FakeSetup, FakeSource
from tests.unit.inputs import stream_traffic, topology
from tests.unit.pktgen_kernel import FakeKernel, PktgenHost

TRAFFIC = stream_traffic(fps=3e6, duration_s=0.001)


class FakeAfPacket(Generator):
    """Works on every host but `far`."""

    auto_source, sends_mixes, sends_packets = AfPacket.auto_source, AfPacket.sends_mixes, AfPacket.sends_packets

    def __init__(self, options) -> None:
        self.wire = next(iter(FakeSetup.on(stream_paths(topology(1))).wires.values()))

    def unsupported_reason(self, host):
        return "its worker runs only here" if host.name == "far" else ""

    def source(self):
        return FakeSource(self.wire)


class FakeXdp(FakeAfPacket):
    """Takes what `nb-fast1` is linked to."""

    auto_source, largest_frame = Xdp.auto_source, 3000

    def source(self):
        return FakeXdpSource(self.wire)


class FakeXdpSource(FakeSource):
    def open(self, host, interface, cpus):
        if interface != "nb-fast1":
            raise MissingError(f"{interface} rejects frames from XDP programs")
        super().open(host, interface, cpus)

    def identity(self):
        return Identity("xdp")


@pytest.fixture(autouse=True)
def _no_real_sockets(monkeypatch):
    kinds = {"afpacket": FakeAfPacket, "pktgen": PktGen, "xdp": FakeXdp, "trex": Generator}
    monkeypatch.setattr(auto, "plugins", lambda group: kinds)


def without_pktgen(name: str) -> PktgenHost:
    return PktgenHost(FakeKernel(loaded=False, loadable=False), name)


def sent_by(source) -> tuple[int, int]:
    source.prepare(TRAFFIC)
    source.start(0)
    sent = source.wait(1.0)
    return sent.frames, sent.first_sequence


def test_pktgen_where_it_works():
    host = PktgenHost(FakeKernel())
    with closing(AutoGenerator().source()) as source:
        source.open(host, "nb-tx1", ())
        (remark,) = source.remarks()
        assert remark == "pktgen sends high loads from nb-tx1 of host far too: its worker runs only here"
        assert (source.identity().kind, source.identity().cpus) == ("pktgen", (0,))
        assert source.nearest_fps(3e6, FrameSize.of(64)) == 1e9 / 333
        assert sent_by(source) == (3000, 1)  # pktgen counts from 1
    assert host.kernel.devices() == {}


@pytest.mark.parametrize(
    ("host", "interface", "why"),
    [
        (without_pktgen("near"), "nb-tx1", "the kernel of host near has no pktgen: neither loaded nor loadable"),
        (PktgenHost(FakeKernel(), "near"), "lo9", "pktgen rejects `add_device lo9@0` > "),
    ],
    ids=["there is none", "it refuses"],
)
def test_afpacket_where_pktgen_does_not_work_and_why(host, interface, why):
    with closing(AutoGenerator().source()) as source:
        source.open(host, interface, ())
        assert source.remarks()[0].startswith(f"afpacket sends from {interface} of host near: {why}")
        assert source.identity().kind == "fake"
        assert source.nearest_fps(3e6, FrameSize.of(64)) == 3e6
        assert sent_by(source) == (3000, 0)
    assert host.kernel.devices() == {}


def test_both_kinds_in_one_campaign():
    made_by = AutoGenerator()
    far, near = PktgenHost(FakeKernel()), without_pktgen("near")
    with closing(made_by.source()) as one, closing(made_by.source()) as other:
        one.open(far, "nb-tx1", ())
        other.open(near, "nb-tx2", ())
        assert [len(source.remarks()) for source in (one, other)] == [1, 2]
        for source in (one, other):
            source.prepare(TRAFFIC)
        for source in (one, other):
            source.start(0)
        assert [source.wait(1.0).first_sequence for source in (one, other)] == [1, 0]


def test_a_mix_is_afpackets_where_pktgen_sends_all_else():
    host = PktgenHost(FakeKernel(), "near")
    with closing(AutoGenerator().source()) as source:
        source.open(host, "nb-tx1", ())
        assert source.nearest_fps(3e6, IMIX) == 3e6
        kinds = []
        for size in 2 * (FrameSize.of(64), IMIX):
            source.prepare(replace(TRAFFIC, frame_size=size))
            source.start(0)
            assert source.wait(1.0).frames == 3000
            kinds.append(source.identity().kind)
    assert kinds == ["pktgen", "fake", "pktgen", "fake"]
    assert host.kernel.devices() == {}


def test_a_packet_of_a_stream_is_not_sent_by_pktgen_which_may_not_support_it():
    """Its frame sizes have no name of a packet: they are those of all streams."""
    with closing(AutoGenerator().source()) as source:
        source.open(PktgenHost(FakeKernel(), "near"), "nb-tx1", ())
        packets, kinds = (None, parse_packet("vxlan"), None), []
        for packet in packets:
            traffic = replace(TRAFFIC, frame_size=FrameSize.of(128), packet=packet)
            stamps = source.stamps(traffic)
            source.prepare(traffic)
            kinds.append((source.identity().kind, stamps.first_sequence == 1))
    assert kinds == [("pktgen", True), ("fake", False), ("pktgen", True)]


@pytest.mark.parametrize(
    "up_to", [FrameSize.of, lambda largest: FrameSize("m", (64, largest))], ids=["one size", "a mix"]
)
def test_high_loads_go_to_xdp_as_long_as_their_largest_frame_fits(up_to):
    with closing(AutoGenerator().source()) as source:
        source.open(without_pktgen("near"), "nb-fast1", ())
        kinds = []
        for largest in (3000, 3001):
            source.prepare(replace(TRAFFIC, frame_size=up_to(largest), fps=1e6))
            kinds.append(source.identity().kind)
    assert kinds == ["xdp", "fake"]


def test_a_mix_that_nothing_can_send_from_a_host_is_missing_something():
    with closing(AutoGenerator().source()) as source:
        source.open(PktgenHost(FakeKernel()), "nb-tx1", ())
        with pytest.raises(MissingError, match="pktgen cannot send imix frames from nb-tx1, and its worker runs only"):
            source.prepare(replace(TRAFFIC, frame_size=IMIX))


def test_where_neither_works():
    both = "the kernel of host far has no pktgen: neither loaded nor loadable, and its worker runs only here"
    assert AutoGenerator().unsupported_reason(without_pktgen("far")) == both
    with pytest.raises(MissingError, match=f"nothing can send from nb-tx1 of host far: {both}"):
        AutoGenerator().source().open(without_pktgen("far"), "nb-tx1", ())


@pytest.mark.parametrize("host", [PktgenHost(FakeKernel()), without_pktgen("near")], ids=["pktgen", "afpacket"])
def test_where_one_works(host):
    assert AutoGenerator().unsupported_reason(host) == ""


def test_use_before_open_and_after_close():
    source = AutoGenerator().source()
    with pytest.raises(TestbedError, match="before open"):
        source.remarks()
    source.open(PktgenHost(FakeKernel()), "nb-tx1", ())
    source.close()
    source.close()
    with pytest.raises(TestbedError, match="after close"):
        source.prepare(TRAFFIC)


def test_xdp_for_high_loads_where_the_link_takes_it_and_why():
    with closing(AutoGenerator().source()) as source:
        source.open(without_pktgen("near"), "nb-fast1", ())
        assert source.remarks()[1].startswith(
            "xdp sends `max` and loads above 200,000 frames/s from nb-fast1 of host near, fake the others"
        )
        assert source.identity().kind == "fake+xdp", "no trial has chosen yet"
        chosen = []
        for fps in (200_000.0, 200_001.0, None, 10.0):
            source.prepare(replace(TRAFFIC, fps=fps))
            chosen.append(source.identity().kind)
            source.start(0)
            assert source.wait(1.0).error == ""
        assert chosen == ["fake", "xdp", "xdp", "fake"]


def test_the_same_source_for_all_loads_where_that_is_asked_for():
    with closing(AutoGenerator(AutoGeneratorOptions(steady=True)).source()) as source:
        source.open(without_pktgen("near"), "nb-fast1", ())
        assert len(source.remarks()) == 1, "only why it is not pktgen: there is one source"
        for fps in (10.0, None, 200_001.0):
            source.prepare(replace(TRAFFIC, fps=fps))
            assert source.identity().kind == "xdp"
    with closing(AutoGenerator(AutoGeneratorOptions(steady=True)).source()) as source:
        source.open(without_pktgen("near"), "nb-tx1", ())
        assert "fake sends high loads from nb-tx1 of host near too" in source.remarks()[1]
        source.prepare(TRAFFIC)
        assert source.identity().kind == "fake"


class Preferred(FakeAfPacket):
    """A kind of another package, which comes before pktgen, and sends no mixes."""

    auto_source, sends_mixes = SourcePreference(rank=3), False


def test_a_kind_of_another_package_is_chosen_by_its_preference(monkeypatch):
    monkeypatch.setattr(auto, "plugins", lambda group: {"afpacket": FakeAfPacket, "mine": Preferred, "pktgen": PktGen})
    host = PktgenHost(FakeKernel(), "near")
    with closing(AutoGenerator().source()) as source:
        source.open(host, "nb-tx1", ())
        assert host.kernel.devices() == {}, "pktgen comes second"
        assert AutoGenerator().source().commands("nb-tx1", ())[0] == "# where mine works:"
        source.prepare(replace(TRAFFIC, frame_size=IMIX))
        assert host.kernel.devices() == {}


def test_auto_attaches_no_program_to_a_nic():
    assert "xdp_worker nb-tx1 0" in Xdp.for_auto(realtime=0).source().commands("nb-tx1", ())[0]
    assert AfPacket.for_auto(realtime=7).source().commands("nb-tx1", ())


def test_a_dry_run_shows_all(monkeypatch):
    monkeypatch.undo()
    lines = AutoGenerator().source().commands("nb-tx1", (0,))
    assert lines[:2] == ["# where pktgen works:", "tee /proc/net/pktgen/kpktgend_0 <<< 'add_device nb-tx1@0'"]
    assert lines[-4] == "# elsewhere:"
    assert "afpacket.afpacket_worker nb-tx1" in lines[-3]
    assert "xdp.xdp_worker nb-tx1 0 0" in lines[-1]
