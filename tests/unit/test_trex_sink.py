"""The sink trex, with the packaged client in its own process and a stand-in for the server."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from netbench.config.loading import load_profile
from netbench.config.plugins import profile_kinds
from netbench.config.shipped import PROFILES, find
from netbench.errors import MissingError, UsageError
from netbench.generators.trex.trex import Trex
from netbench.generators.trex.trex_counts import delay_of
from netbench.generators.trex.trex_package import no_client
from netbench.generators.trex.trex_servers import TrexOptions
from netbench.hosts.local import LocalHost
from netbench.model.distributions import DelayClass, SoftwareDelay
from netbench.model.frame_size import FrameSize
from netbench.model.paths import Nic, StreamPath
from netbench.model.received import OfSize, Received
from netbench.model.traffic import Sent, Stamps, Traffic
from netbench.model.verdict import ReasonKind, Verdict
from netbench.sinks.base import Incoming
from netbench.testbed.bring_up import usual_ends
from netbench.testbed.resolved import make_backends, resolve
from tests.unit.inputs import profile, stream_traffic, topology
from tests.unit.stand_in_for_trex import StandInForTrex

pytestmark = pytest.mark.skipif(bool(no_client()), reason=no_client())

TRAFFIC = stream_traffic(duration_s=0.5, seed=0)
MIX = FrameSize("mine", (64, 64, 594))
HERE = LocalHost("local", "test")


def path(source: str, sink: str) -> StreamPath:
    nics = [Nic("local", None, None, name, "02:00:00:00:00:01", is_port=False) for name in (source, sink)]
    return StreamPath("s1", 1, nics[0], None, None, nics[1], 1e9)


class Ends:
    """A source and a sink of one backend, on two interfaces."""

    def __init__(self, trex: Trex, source: str = "tx1", sink: str = "rx1") -> None:
        self.path = path(source, sink)
        self.source, self.sink = trex.source(), trex.sink()

    def open(self) -> "Ends":
        self.source.open(HERE, self.path.source.interface, ())
        self.sink.open(HERE, self.path.sink.interface, ())
        return self

    def prepare(self, traffic: Traffic = TRAFFIC) -> None:
        self.sink.arm(Incoming(self.path, traffic, Stamps(), 0, Path("/nowhere")))
        self.source.prepare(traffic)
        assert self.sink.armed(1.0)

    def finish(self) -> tuple[Sent, Received]:
        sent = self.source.wait(10.0)
        self.sink.stop(1.0)
        return sent, self.sink.received(sent)

    def trial(self, traffic: Traffic = TRAFFIC) -> tuple[Sent, Received]:
        self.prepare(traffic)
        self.source.start(time.monotonic_ns())
        return self.finish()

    def close(self) -> None:
        self.source.close()
        self.sink.close()


def backend(server: StandInForTrex, **options: object) -> Trex:
    return Trex(TrexOptions.model_validate({**server.options, "ports": {"tx1": 0, "rx1": 1}, **options}))


@pytest.fixture
def server():
    with StandInForTrex() as running:
        yield running


@pytest.fixture
def ends(server):
    opened = Ends(backend(server)).open()
    yield opened
    opened.close()


def test_it_counts_what_arrives_of_a_stream_trial_by_trial(server, ends):
    for dropped, arrived in ((0, 1), 500), ((7, 100), 465), ((0, 1), 500):
        server.dropped = dropped
        sent, received = ends.trial()
        assert (sent.frames, received.frames, received.error) == (500, arrived, "")
        assert (received.dropped, received.matched, received.counted_by) == (0, arrived, "TRex")
        # Unknown values stay unknown.
        assert (received.duplicates, received.reordered, received.late, received.window) == (None, None, None, None)
        assert received.delay is received.software_delay is None
    assert str(ends.sink.identity()).startswith("trex (TRex v3.08, lbr-trex-client 3.4.0; server=127.0.0.1 ")


def test_both_of_its_ports_are_its_own_until_it_is_closed(server, ends):
    assert [port.owner.partition("@")[0] for port in server.ports] == ["netbench", "netbench"]
    ends.close()
    assert [port.owner for port in server.ports] == ["", ""]


def test_the_port_of_a_sink_may_be_foreign(server):
    server.ports[1].owner = "bob"
    ends = Ends(backend(server))
    with pytest.raises(MissingError, match=r"port 1 of the TRex server .* already taken by 'bob'"):
        ends.open()
    ends.close()
    assert [port.owner for port in server.ports] == ["", "bob"]


def test_each_size_of_a_mix_is_counted_by_itself(server, ends):
    server.dropped = (1, 10)
    sent, received = ends.trial(replace(TRAFFIC, frame_size=MIX))
    assert (sent.frames, received.frames) == (500, 449)  # 34 of 334, and 17 of 166
    assert received.by_size == {64: OfSize(300, None), 594: OfSize(149, None)}


def test_what_the_server_could_not_take_in_is_the_testers_own_loss(server, ends):
    server.ports[1].missed = 3  # of earlier
    ends.prepare()
    server.ports[1].missed = 8
    ends.source.start(time.monotonic_ns())
    assert ends.finish()[1].dropped == 5


def test_more_than_was_sent_is_no_loss_below_zero(server, ends):
    server.twice = True
    sent, received = ends.trial()
    assert (sent.frames, received.frames, received.matched) == (500, None, 1000)
    assert "counted 1,000 of 500 sent frames" in received.error
    assert ReasonKind.CAPTURE_FAILED.verdict is Verdict.INVALID  # an error becomes this reason


def test_frames_still_on_their_way_when_it_is_stopped_are_counted(server, ends):
    server.slow, server.transit_s = 10.0, 0.3
    ends.prepare()
    ends.source.start(time.monotonic_ns())
    sent = ends.source.wait(10.0)
    time.sleep(0.4)
    ends.sink.stop(1.0)
    assert 0 < sent.frames < 250
    assert ends.sink.received(sent).frames == sent.frames
    assert "remove_rx_filters" not in server.methods


def test_some_frames_measure_delay_and_are_of_the_load(server):
    ends = Ends(backend(server, delay_fps=100)).open()
    try:
        sent, received = ends.trial()
        measuring, others = server.ports[0].streams.values()
        assert [stream["mode"]["total_pkts"] for stream in (measuring, others)] == [50, 450]
        assert [stream["mode"]["rate"]["value"] for stream in (measuring, others)] == [100.0, 900.0]
        assert [stream["flow_stats"]["rule_type"] for stream in (measuring, others)] == ["latency", "stats"]
        assert (sent.frames, sent.numbered, received.frames) == (500, False, 500)
        assert received.delay is None
        assert received.software_delay == SoftwareDelay(
            "TRex v3.08, in software",
            *(50, 3.0, 14.0, 1200.0, 2.0),
            (DelayClass(0, 10, 25), DelayClass(20, 30, 24), DelayClass(1000, 2000, 1)),
        )
        assert any("coarse" in remark for remark in ends.sink.remarks())
        sent, received = ends.trial(replace(TRAFFIC, frame_size=MIX, fps=60.0))
        assert (sent.frames, received.frames) == (30, 30)  # the first of three places in turn measures: 10 of them
        assert received.by_size == {64: OfSize(20, None), 594: OfSize(10, None)}
        assert received.software_delay is not None
        assert received.software_delay.frames == 10
    finally:
        ends.close()


def test_no_delay_where_nothing_arrived():
    nothing = delay_of({}, "v3.08", by_software=False)
    assert nothing == SoftwareDelay("TRex v3.08", 0, None, None, None, None)


@pytest.mark.parametrize(("total_max", "largest_us"), [(0, None), (1999, None), (2000, 2000.0), (2345, 2345.0)])
def test_the_largest_delay_is_not_known_where_the_server_left_it_out(total_max, largest_us):
    # As v3.08 answers: the maximum is over all frames but the first ten, the histogram over all.
    times = {"total_min": 27, "total_max": total_max, "average": 3948, "jitter": 3047, "histogram": {20: 1, 2000: 3}}
    found = delay_of({"latency": times}, "v3.08", by_software=True)
    assert (found.smallest_us, found.largest_us, found.frames) == (27.0, largest_us, 4)


def test_both_directions_at_once(server):
    trex = backend(server)
    both = [Ends(trex).open(), Ends(trex, "rx1", "tx1").open()]
    try:
        for ends in both:
            ends.prepare()
        for ends in both:
            ends.source.start(time.monotonic_ns())
        server.dropped = (1, 5)
        for ends in both:
            sent, received = ends.finish()
            assert (sent.frames, sent.error, received.frames, received.error) == (500, "", 400, "")
        assert [port.starts for port in server.ports] == [1, 1]
    finally:
        for ends in both:
            ends.close()
    assert [port.owner for port in server.ports] == ["", ""]


def test_a_server_that_dies_is_an_error_of_source_and_sink():
    with StandInForTrex() as server:
        ends = Ends(backend(server)).open()
        ends.prepare()
    ends.source.start(time.monotonic_ns())
    sent = ends.source.wait(30.0)
    ends.sink.stop(1.0)
    assert sent.error
    assert ends.sink.received(sent).error
    ends.close()


def read(*settings):
    return load_profile(find(PROFILES, "quick"), profile_kinds(), settings)


def test_it_counts_what_its_own_sources_send_alone():
    alone = read("generator=afpacket", "sink={kind: trex, ports: {rx1: 0}}")
    with pytest.raises(
        UsageError, match="the sink trex counts frames of the generator trex only, and the generator is af"
    ):
        resolve(topology(), alone)
    both = read("generator={kind: trex, ports: {tx1: 0, rx1: 1}}", "sink=trex")
    resolve(topology(), both)
    made: tuple[object, object] = make_backends(both)
    assert made[0] is made[1]
    ends = usual_ends(both, ((), ()))
    assert ends.sink.kind == ends.source.kind == "trex"
    assert ends.sink.options == ends.source.options


def test_a_server_that_netbench_starts_is_on_the_host_of_both(tmp_path):
    (tmp_path / "_t-rex-64").touch()
    trex = Trex(TrexOptions(path=str(tmp_path)))
    source, sink = trex.source(), trex.sink()
    source.open(HERE, "tx1", ())  # not started yet: all of its interfaces are to be known
    with pytest.raises(UsageError, match="put source and sink of a stream on one host"):
        sink.open(LocalHost("elsewhere", "test"), "rx1", ())
    source.close()


def test_delay_without_a_sink_that_measures_it_is_refused(server):
    source = Trex(TrexOptions.model_validate({**server.options, "ports": {"tx1": 0}, "delay_fps": 10})).source()
    with pytest.raises(UsageError, match="add sink: trex, or leave it out"):
        source.open(HERE, "tx1", ())


def test_a_dry_run_shows_what_each_of_both_is():
    trex = Trex(TrexOptions(path="/opt/trex"))
    source, sink = trex.source(), trex.sink()
    assert source.commands("tx1", ()) == [
        "# tx1: a port of the TRex server that its host has for all sources and sinks"
    ]
    up, started = sink.commands("rx1", (), Incoming(path("tx1", "rx1"), TRAFFIC, Stamps(), 0, Path("/nowhere")))
    assert up == "ip link set lo up # in a network namespace"
    assert '"interfaces": {"tx1": false, "rx1": true}' in started


def test_mixes_are_sent_and_counted():
    mixed = profile(frame_sizes=["imix"], generator={"kind": "trex", "ports": {"tx1": 0}}, sink={"kind": "trex"})
    resolve(topology(), mixed)
