"""One trial on fakes: the order of its steps, and the consequence of each fault."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat

import pytest

from netbench.errors import TestbedError
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.points import ALL_RULES, CounterReading, PointKind, forwarding_point
from netbench.model.scenario import VICTIM
from netbench.model.stream_paths import stream_paths
from netbench.model.trial import TrialResult
from netbench.model.verdict import ReasonKind, Verdict
from netbench.trial.run import run_trial
from netbench.trial.sources_and_sinks import Recording
from tests.unit.capture_files import START_NS
from tests.unit.fakes import Behaviour, FakeSetup, FakeUut
from tests.unit.inputs import planned_trial, profile, shared_topology, topology
from tests.unit.points import THROUGH_UUT, loss

PATHS = stream_paths(topology(2))
IN_UUT = "uut (between ingress NIC and egress NIC)"
Measure = Callable[..., TrialResult]


@pytest.fixture
def measure(tmp_path) -> Measure:
    """Run a trial on a setup."""

    def run(setup: FakeSetup, *streams: str, load: str = "1000fps", **more) -> TrialResult:
        wanted = profile(loads=[load], **more)
        trial = planned_trial(topology(2), wanted, streams or ("s1",), index=7)
        return run_trial(setup.setup, trial, Recording(tmp_path), 1)

    return run


def reported(result: TrialResult) -> list[tuple[ReasonKind, str, str]]:
    return [(reason.kind, reason.stream, reason.detail) for reason in result.reasons]


def kinds(result: TrialResult) -> list[ReasonKind]:
    return [reason.kind for reason in result.reasons]


def test_the_steps_of_a_trial_in_order(measure):
    setup = FakeSetup.on(PATHS)
    measure(setup, "s1", "s2")
    assert setup.log == [
        "sink s1 arm",
        "sink s2 arm",
        "source s1 prepare",
        "source s2 prepare",
        "uut reset",
        "sink s1 armed?",
        "sink s2 armed?",
        "read NICs",
        "uut drops",
        "source s1 start",
        "source s2 start",
        "source s1 wait",
        "source s2 wait",
        "read NICs",  # until they stand still
        "read NICs",
        "read NICs",
        "uut drops",
        "sink s1 stop",
        "sink s2 stop",
    ]


def test_clocks_of_machines_are_compared_when_the_last_frame_is_in_and_not_once_all_is_counted(measure):
    setup = FakeSetup.on(PATHS)

    def realtime(machine):
        setup.log.append("clock")
        return SAME_CLOCK

    setup.setup = replace(setup.setup, realtime=realtime)
    measure(setup, "s1", "s2")
    assert setup.log[-4:] == ["uut drops", "clock", "sink s1 stop", "sink s2 stop"]
    assert setup.log.count("clock") == 2, "once for each machine, and once before, as clocks may be set"


def test_a_trial_takes_only_the_streams_it_names(measure):
    setup = FakeSetup.on(PATHS)
    result = measure(setup, "s2")
    assert [counts.stream for counts in result.streams] == ["s2"]
    assert not [entry for entry in setup.log if "s1" in entry]


def test_what_comes_out_of_a_clean_trial(measure, tmp_path):
    result = measure(FakeSetup.on(PATHS), "s1", "s2", duration="2s")
    assert (result.verdict, result.reasons) == (Verdict.VALID, ())
    assert (result.attempt, result.started_ns // 10**9) == (1, START_NS // 10**9)
    for counts in result.streams:
        assert (counts.intended_frames, counts.sent.frames, counts.received.frames) == (2000, 2000, 2000)
        assert (counts.lost_frames, counts.unexplained_frames, counts.lost_at) == (0, 0, ())
    assert list(result.steps_s) == ["load", "arm", "send", "drain", "unload", "observe", "analyse"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["trial-000007-s1.pcap", "trial-000007-s2.pcap"]


def test_loss_is_placed_by_stream_and_each_trial_counts_only_its_own(measure):
    setup = FakeSetup.on(PATHS, s1=Behaviour(dropped_by_rule=70), s2=Behaviour(lost_in_uut=5))
    for result in (measure(setup, "s1", "s2"), measure(setup, "s1", "s2")):
        assert [counts.received.frames for counts in result.streams] == [930, 995]
        assert [counts.lost_at for counts in result.streams] == [
            (loss("uut (drop rule)", 70, THROUGH_UUT),),
            (loss(IN_UUT, 5, THROUGH_UUT),),
        ]
        assert [counter.grew for counter in result.streams[0].counters if counter.counter == "tx"] == [1000, 930]
        assert result.verdict is Verdict.VALID


def test_drops_that_went_backwards_are_not_believed(measure, monkeypatch):
    """A UUT that was restarted during the trial counts from 0 again."""
    setup = FakeSetup.on(PATHS, s1=Behaviour(dropped_by_rule=-200, lost_in_uut=230))
    monkeypatch.setattr(setup.setup.guests[VICTIM].uut, "reset", lambda: None)
    setup.wires["s1"].rule_drops = 500
    result = measure(setup)
    assert result.streams[0].lost_at == (loss(IN_UUT, 30, THROUGH_UUT),)
    assert kinds(result) == [ReasonKind.UNEXPLAINED_FRAMES]


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ([], "was removed meanwhile"),
        ([(4, "nft rule", "1")], "counter was reset"),
        ([(None, "nft rule", "1")], "does not count"),
        ([(530, "nft rule", "2")], "was replaced meanwhile"),  # with the count of the old one
        ([(530, "nft rule 3", "1")], "or nft rule 3, which was removed meanwhile or which was replaced meanwhile"),
    ],
)
def test_what_does_not_tell_how_many_it_dropped_may_have_dropped_them(measure, after, why):
    setup = FakeSetup.on(PATHS, s1=Behaviour(lost_in_uut=30))
    before = [(500, "nft rule", "1"), (8, "steady", "1")]
    seen = chain([before], repeat([*after, (8, "steady", "1")]))

    def rules(_points):
        return tuple(
            CounterReading("s1", "ingress NIC", name, "dropped", frames, handle=(name, handle), owner="table")
            for frames, name, handle in next(seen)
        )

    setup.setup = replace(setup.setup, read_counters=rules)
    result = measure(setup)
    (loss,) = result.streams[0].lost_at
    assert set(kinds(result)) == (set() if why == "does not count" else {ReasonKind.UNEXPLAINED_FRAMES})
    assert (loss.place.startswith("ingress NIC (nft rule"), why in loss.cause, loss.frames) == (True, True, 30)


@pytest.mark.parametrize("generations", [("1", "1"), ("1", "3")])
def test_rules_that_were_there_during_the_trial_alone_are_suspected_of_its_loss(measure, generations):
    setup = FakeSetup.on(PATHS, s1=Behaviour(lost_in_uut=30))
    seen = chain(generations[:1], repeat(generations[1]))

    def rules(_points):
        return (CounterReading("", "ingress NIC", ALL_RULES, "dropped", 0, handle=("uut", next(seen))),)

    setup.setup = replace(setup.setup, read_counters=rules)
    result = measure(setup)
    (counts,) = result.streams
    if generations[0] == generations[1]:
        assert (counts.lost_at, result.verdict) == ((loss(IN_UUT, 30, THROUGH_UUT),), Verdict.VALID)
        assert ALL_RULES not in [count.counter for count in counts.counters]
        return
    assert [loss.place for loss in counts.lost_at] == [
        f"ingress NIC ({ALL_RULES}, which were changed during the trial)"
    ]
    assert kinds(result) == [ReasonKind.UNEXPLAINED_FRAMES]
    assert result.verdict is Verdict.SUSPICIOUS


@pytest.mark.parametrize(
    ("behaviour", "waits"),
    [
        (Behaviour(dropped_by_rule=30), False),
        (Behaviour(lost_in_uut=30), True),
        (Behaviour(dropped_by_rule=30, lost_in_uut=1), True),
        (Behaviour(dropped_by_rule=-200, lost_in_uut=230), True),  # an implausible counter
    ],
)
def test_missing_frames_are_not_waited_for_where_each_was_counted_as_dropped(measure, behaviour, waits):
    result = measure(FakeSetup.on(PATHS, s1=behaviour), drain_limit="2s")
    assert (result.steps_s["drain"] > 1.9) == waits


def test_frames_still_on_their_way_are_waited_for(measure):
    setup = FakeSetup.on(PATHS)

    def late_frame():
        setup.nics.grow(PATHS[0].sink, rx=1)

    setup.nics.late = [lambda: None, late_frame, late_frame, late_frame]  # the first is the reading before
    measure(setup)
    sent = setup.log.index("source s1 wait")
    assert setup.log[sent + 1 : setup.log.index("sink s1 stop")] == ["read NICs"] * 5 + ["uut drops"]


def test_a_path_that_never_stands_still_is_not_waited_for_for_ever(measure):
    setup = FakeSetup.on(PATHS)
    setup.nics.late = [lambda: setup.nics.grow(PATHS[0].egress, tx=1) for _ in range(1000)]
    result = measure(setup, drain_limit="100ms")
    assert 10 <= setup.log.count("read NICs") <= 20
    assert ReasonKind.NOT_DRAINED in kinds(result), "frames may have been on their way when counters were read"


def test_a_sink_that_does_not_listen_means_that_nothing_is_sent(measure):
    setup = FakeSetup.on(PATHS, s2=Behaviour(arms=False))
    result = measure(setup, "s1", "s2")
    assert not [entry for entry in setup.log if "start" in entry or "wait" in entry]
    assert [entry for entry in setup.log if "stop" in entry] == ["sink s1 stop", "sink s2 stop"]
    assert result.verdict is Verdict.INVALID
    assert [(kind, stream) for kind, stream, _ in reported(result)] == [
        (ReasonKind.NOTHING_SENT, "s1"),
        (ReasonKind.CAPTURE_FAILED, "s2"),
    ]
    assert [(counts.sent.frames, counts.received.frames) for counts in result.streams] == [(0, None)] * 2


def test_a_source_that_died_between_two_trials_is_a_reason_like_any_other(measure):
    setup = FakeSetup.on(PATHS, s1=Behaviour(prepare_error="the source on nb-tx1 is gone"))
    result = measure(setup, "s1", "s2")
    assert not [entry for entry in setup.log if "start" in entry]
    assert "sink s1 stop" in setup.log
    assert (ReasonKind.GENERATOR_FAILED, "s1", "the source on nb-tx1 is gone") in reported(result)


@pytest.mark.parametrize(
    ("behaviour", "kind", "detail", "counts"),
    [
        (Behaviour(sent=400, source_error="ENETDOWN"), ReasonKind.GENERATOR_FAILED, "ENETDOWN", (400, 400, 0)),
        (Behaviour(sent=0), ReasonKind.NOTHING_SENT, "no frame", (0, None, None)),
        (Behaviour(dropped_by_capture=30), ReasonKind.CAPTURE_DROPPED, "30 frames", (1000, 970, 0)),
        (Behaviour(flushes=False), ReasonKind.NOT_DRAINED, "not have been counted", (1000, 1000, 0)),
        (Behaviour(sink_error="signal 9"), ReasonKind.CAPTURE_FAILED, "signal 9", (1000, None, None)),
    ],
)
def test_what_goes_wrong_with_a_stream_is_reported_of_it_and_leaves_its_counts(
    measure, behaviour, kind, detail, counts
):
    """The counts are frames sent, received and lost; another stream beside it is as always."""
    result = measure(FakeSetup.on(PATHS, s1=behaviour), "s1", "s2")
    ((found, stream, words),) = reported(result)
    assert (found, stream, detail in words) == (kind, "s1", True)
    found_counts = [(counted.sent.frames, counted.received.frames, counted.lost_frames) for counted in result.streams]
    assert found_counts == [counts, (1000, 1000, 0)]


@pytest.mark.parametrize("asked", [[1], [2, 3]], ids=["before", "after"])
def test_a_uut_that_no_longer_answers_is_a_reason(measure, asked):
    result = measure(FakeSetup.on(PATHS, fails_at=asked, s1=Behaviour(dropped_by_rule=10)))
    assert reported(result) == [(ReasonKind.UUT_FAILED, "", "the guest does not answer")]
    assert result.verdict is Verdict.INVALID
    (counts,) = result.streams
    assert (counts.received.frames, counts.lost_frames) == (990, 10)
    assert counts.lost_at == (loss(IN_UUT, 10, THROUGH_UUT),)


def test_a_uut_that_cannot_be_reset_stops_the_campaign(measure, monkeypatch):
    setup = FakeSetup.on(PATHS)

    def fail():
        raise TestbedError("the guest is gone")

    monkeypatch.setattr(setup.setup.guests[VICTIM].uut, "reset", fail)
    with pytest.raises(TestbedError, match="the guest is gone"):
        measure(setup)
    assert "source s1 start" not in setup.log


def test_a_nic_that_disappears_is_a_reason(measure):
    setup = FakeSetup.on(PATHS)
    place = PATHS[0].nics["egress"].place
    setup.nics.late = [lambda: None, lambda: setup.nics.counters.pop(place)]
    result = measure(setup)
    assert kinds(result) == [ReasonKind.LINK_CHANGED]
    assert (result.streams[0].received.frames, result.streams[0].unexplained_frames) == (1000, None)


NEW_MAC = "02:00:00:00:00:77"


@pytest.mark.parametrize(
    ("kind", "place", "reasons"),
    [
        (PointKind.IP_LAYER, "ingress NIC (rx_otherhost_dropped)", [ReasonKind.LINK_CHANGED]),
        # A copy that the IP layer drops is not lost where a bridge forwards.
        (PointKind.BRIDGE, "bridge (between ingress NIC and egress NIC)", []),
    ],
)
def test_frames_for_another_mac_address_are_lost_at_the_ingress_nic_of_a_router(measure, kind, place, reasons):
    setup, ingress = FakeSetup.on(PATHS, s1=Behaviour(lost_in_uut=30)), PATHS[0].ingress
    assert ingress is not None
    active = setup.setup.guests[VICTIM]
    ready = replace(active.ready, points={"s1": (forwarding_point(PATHS[0], kind),)})
    setup.setup = replace(setup.setup, guests={VICTIM: replace(active, ready=ready)})
    setup.nics.counters[ingress.place] = replace(setup.nics.counters[ingress.place], rx_otherhost_dropped=0)
    setup.nics.late = [lambda: None, lambda: setup.nics.grow(ingress, rx_otherhost_dropped=30)]
    result = measure(setup)
    assert [(lost.place, lost.frames) for lost in result.streams[0].lost_at] == [(place, 30)]
    assert kinds(result) == reasons


@pytest.mark.parametrize("role", ["source", "ingress", "egress", "sink"])
def test_a_mac_address_that_is_no_longer_that_of_readiness_is_a_reason(measure, role):
    setup, nic = FakeSetup.on(PATHS), PATHS[0].nics[role]
    active = setup.setup.guests[VICTIM]
    setup.setup = replace(setup.setup, guests={VICTIM: replace(active, macs={nic.place: NEW_MAC})})
    result = measure(setup)
    assert kinds(result) == [ReasonKind.LINK_CHANGED]
    assert f"{role} NIC {nic.interface} has the MAC address {nic.mac}, and had {NEW_MAC}" in result.reasons[0].detail


class Computing:
    """A load in a neighbour: its CPU time at each reading, or the fault instead."""

    def __init__(self, *looks: float | str, starts: bool = True) -> None:
        self.looks, self.starts = list(looks), starts
        self.stopped = 0

    def start(self) -> None:
        if not self.starts:
            raise TestbedError("neighbour second: there is no stress-ng")

    def cpu_s(self) -> float | None:
        look = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        if isinstance(look, str):
            raise TestbedError(look)
        return look

    def stop(self) -> None:
        self.stopped += 1


DIED = "neighbour second: its load `stress-ng --cpu 1` has lost 1 of 1 workers"
STOOD_STILL = "neighbour second: its load used no CPU time during the trial"


@pytest.mark.parametrize(
    ("load", "said_of_it", "sent"),
    [
        (Computing(1.0, 2.5), [], 1000),
        (Computing(1.0, DIED), [DIED], 1000),
        (Computing(1.0, 1.0), [STOOD_STILL], 1000),
        (Computing(1.0, 1.0, starts=False), ["neighbour second: there is no stress-ng", STOOD_STILL], 0),
    ],
    ids=["works", "died", "stood still", "never began"],
)
def test_a_load_that_was_not_there_all_the_time_is_a_reason_and_is_ended(tmp_path, load, said_of_it, sent):
    lab, wanted = shared_topology(), profile(loads=["1000fps"], scenarios=["cpu-light"])
    fake = FakeSetup.on(stream_paths(lab)[:1])
    guests = {VICTIM: fake.setup.guests[VICTIM], "second": FakeUut(fake.log, []).active()}
    setup = replace(fake.setup, guests=guests, loads={"second": load})
    result = run_trial(setup, planned_trial(lab, wanted, ("s1",)), Recording(tmp_path), 1)
    assert [reason.detail for reason in result.reasons if reason.kind is ReasonKind.NEIGHBOUR_LOAD_FAILED] == said_of_it
    assert result.verdict is (Verdict.INVALID if said_of_it else Verdict.VALID)
    assert result.streams[0].sent.frames == sent
    assert load.stopped >= 1


def test_a_max_load_intends_nothing(measure):
    result = measure(FakeSetup.on(PATHS), load="max")
    (counts,) = result.streams
    assert (counts.intended_fps, counts.intended_frames, counts.unsent_frames) == (None, None, None)
    assert (counts.sent.frames, counts.received.frames, result.verdict) == (10_000, 10_000, Verdict.VALID)


@pytest.mark.parametrize(("ms", "tolerance", "apart"), [(100, "1%", False), (101, "1%", True), (101, "100%", False)])
def test_sources_that_do_not_send_at_once_have_no_sum(measure, ms, tolerance, apart):
    setup = FakeSetup.on(stream_paths(topology(3)))
    setup.wires["s2"].behaviour.begins_ms = ms
    result = measure(setup, "s1", "s2", "s3", tolerance=tolerance)
    detail = (
        "3 sources began 101 ms and ended 101 ms apart: all sent at once for 0.000 s of 0.101 s, so the sum of their "
        "rates never occurred; use a longer duration"
    )
    assert reported(result) == ([(ReasonKind.SOURCES_APART, "", detail)] if apart else [])


def test_threads_of_a_source_that_do_not_send_at_once_are_reported(measure):
    setup = FakeSetup.on(PATHS)
    setup.wires["s1"].behaviour.apart_s = 0.101
    ((kind, stream, detail),) = reported(measure(setup))
    assert (kind, stream) == (ReasonKind.SOURCES_APART, "s1")
    assert detail.startswith("the threads of the source began or ended 101 ms apart")


def set_back_at_the_end(setup, monkeypatch):
    """The clock of this machine is set before the sink has stopped."""
    clock, sink = setup.setup.clock, setup.setup.endpoints["s1"].sink
    before, stop = clock.realtime_ns, sink.stop

    def set_clock(limit_s):
        monkeypatch.setattr(clock, "realtime_ns", lambda: before() - 3_200_000_000)
        stop(limit_s)

    monkeypatch.setattr(sink, "stop", set_clock)


def test_a_clock_that_is_set_meanwhile_spoils_the_trial(measure, monkeypatch):
    setup = FakeSetup.on(PATHS)
    set_back_at_the_end(setup, monkeypatch)
    result = measure(setup)
    ((kind, _, detail),) = reported(result)
    assert (kind, detail.partition(" s:")[0]) == (ReasonKind.CLOCK_SET, "the clock was set by -3.200000")
    (counts,) = result.streams
    assert (counts.received.frames, counts.received.delay) == (1000, None)
    assert counts.received.no_delay == "the clock was set by -3.200000 s during the trial"


def far(set_by_ns: int, own: bool = False) -> FakeSetup:
    """A stream on another machine, whose clock is so much ahead of this one's once frames were sent."""
    source, sink = (replace(nic, machine="far") for nic in (PATHS[0].source, PATHS[0].sink))
    setup = FakeSetup.on([replace(PATHS[0], source=source, sink=sink, ingress=None, egress=None)])

    def realtime(machine):
        ahead_ns = set_by_ns if "source s1 wait" in setup.log else 0
        return ClockDifference(ahead_ns - 1000, ahead_ns + 1000)

    setup.setup = replace(setup.setup, realtime=realtime, not_own=() if own else ("far",))
    return setup


def clocks_told(result: TrialResult) -> list[str]:
    return [reason.detail for reason in result.reasons if reason.kind is ReasonKind.CLOCK_SET]


def test_the_clock_of_a_host_that_is_set_meanwhile_spoils_the_trial(measure):
    result = measure(far(-3_200_000_000))
    assert clocks_told(result) == ["the clock of host far was set by -3.200000 s: time stamps in frames are unusable"]
    assert result.streams[0].received.no_delay == "the clock was set by -3.200000 s during the trial"


@pytest.mark.parametrize("setup", [far(20_000), far(-3_200_000_000, own=True)], ids=["slewed", "netbench's own VM"])
def test_a_clock_that_is_not_set_spoils_nothing(measure, setup):
    result = measure(setup)
    assert clocks_told(result) == []
    assert result.streams[0].received.delay is not None


def test_a_clock_here_that_is_set_is_not_taken_for_those_of_hosts(measure, monkeypatch):
    setup = far(3_200_000_000)
    set_back_at_the_end(setup, monkeypatch)
    (output,) = clocks_told(measure(setup))
    assert output.startswith("the clock was set by -3.200000 s")
