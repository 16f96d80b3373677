"""The accounts of a stream: every frame sent is accounted for, and unknown values are never 0."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.model.counts import StreamCounts
from netbench.model.distributions import SAME_CLOCK, ClockDifference, ClockOffset, Extent, Spread
from netbench.model.paths import Nic, StreamPath
from netbench.model.points import whole_path
from netbench.model.received import Received
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent
from netbench.trial.accounting import one_way
from netbench.trial.observation import UNCOUNTED, NicDelta, StreamObservation
from tests.unit.accounts import account, nic_delta
from tests.unit.inputs import stream_traffic, topology
from tests.unit.points import THROUGH_UUT, growth
from tests.unit.received import received

(PATH,) = stream_paths(topology())
(OUTSIDE,) = stream_paths(topology(streams=1, uuts=[{"name": "x", "kind": "external"}]))
OUTSIDE = replace(OUTSIDE, ingress=None, egress=None)

IN_UUT = "uut (between ingress NIC and egress NIC)"
RULE = "uut (drop rule)"
THROUGH = "uut (source NIC to sink NIC)"


@dataclass(frozen=True)
class Journey:
    """The true fate of a stream's frames, in frames; its evidence is what counters would show."""

    sent: int = 1000
    source_nic: int = 0  # dropped by the source NIC
    link_in: int = 0  # lost where nothing counts
    ingress_nic: int = 0
    rule: int = 0  # dropped by the UUT, which counts it
    uut: int = 0  # dropped by the UUT unseen
    egress_nic: int = 0
    link_out: int = 0
    sink_nic: int = 0
    capture: int = 0  # dropped by the sink
    duplicated: int = 0  # further copies made in the UUT
    foreign_through: int = 0  # frames of others that took the whole way
    foreign_stuck: int = 0  # that entered at the source and were rightly not forwarded
    foreign_out: int = 0  # that came out of the UUT
    foreign_in_capture: int = 0  # of those at the sink, the ones that the filter let through

    @property
    def received(self) -> int:
        before_the_uut = self.source_nic + self.link_in + self.ingress_nic
        behind_it = self.egress_nic + self.link_out + self.sink_nic + self.capture
        return self.sent - before_the_uut - self.rule - self.uut - behind_it

    def evidence(self) -> StreamObservation:
        on_wire = self.sent - self.source_nic + self.foreign_through + self.foreign_stuck
        ingress = on_wire - self.link_in - self.ingress_nic
        egress = (
            ingress - self.foreign_stuck - self.rule - self.uut - self.egress_nic + self.duplicated + self.foreign_out
        )
        sink = egress - self.link_out - self.sink_nic
        return StreamObservation(
            path=PATH,
            traffic=stream_traffic(duration_s=self.sent / 1000),
            sent=Sent(self.sent, 0, self.sent / 1000, 1, 2, 1, 0.0),
            received=received(
                self.received,
                self.duplicated,
                self.foreign_in_capture,
                matched=self.received + self.capture,
                dropped=self.capture,
            ),
            nics={
                "source": nic_delta(tx=on_wire, tx_dropped=self.source_nic),
                "ingress": nic_delta(rx=ingress, rx_dropped=self.ingress_nic),
                "egress": nic_delta(tx=egress, tx_dropped=self.egress_nic),
                "sink": nic_delta(rx=sink, rx_dropped=self.sink_nic),
            },
            points=THROUGH_UUT,
            growths=(growth("uut", "drop rule", "dropped", self.rule, THROUGH_UUT),),
        )


def deaths(journey: Journey) -> dict[str, int]:
    """Return where frames of the stream were really lost, in frames."""
    return {
        "source NIC": journey.source_nic,
        "ingress NIC": journey.ingress_nic,
        RULE: journey.rule,
        IN_UUT: journey.uut,
        "egress NIC": journey.egress_nic,
        "sink NIC": journey.sink_nic,
    }


def lost_at(counts: StreamCounts) -> dict[str, int]:
    found = {loss.place: loss.frames for loss in counts.lost_at}
    assert len(found) == len(counts.lost_at)
    return found


def with_nics(evidence: StreamObservation, **nics: NicDelta | None) -> StreamObservation:
    return replace(evidence, nics={**evidence.nics, **nics})


def outside(evidence: StreamObservation) -> StreamObservation:
    """Return the same, seen from outside the UUT only."""
    nics = {role: delta for role, delta in evidence.nics.items() if role in ("source", "sink")}
    return replace(evidence, path=OUTSIDE, nics=nics, points=whole_path(OUTSIDE, ()), growths=())


few = st.integers(0, 40)
losses = st.fixed_dictionaries(
    dict.fromkeys(("ingress_nic", "rule", "uut", "egress_nic", "sink_nic", "capture", "duplicated"), few)
)
foreign = st.fixed_dictionaries(dict.fromkeys(("foreign_through", "foreign_stuck", "foreign_out"), few))


@given(losses, few, few, few, few)
def test_every_frame_is_conserved_and_lost_ones_placed_where_they_were_lost(
    lost, through, source_nic, link_in, link_out
):
    journey = Journey(**lost, foreign_through=through, source_nic=source_nic, link_in=link_in, link_out=link_out)
    counts = account(journey.evidence())
    unsure = min(journey.uut, journey.duplicated)  # lost, or arrived with the numbers of others
    truth = {**deaths(journey), IN_UUT: journey.uut - unsure}
    assert lost_at(counts) == {place: frames for place, frames in truth.items() if frames}
    assert counts.unexplained_frames == link_in + link_out + unsure
    assert counts.capture_dropped_frames == journey.capture
    assert counts.received.duplicates == journey.duplicated
    assert counts.foreign_frames == journey.foreign_through
    lost_frames = sum(deaths(journey).values()) + link_in + link_out
    assert (counts.received.frames, counts.lost_frames) == (journey.received, lost_frames)
    assert counts.sent.frames == journey.received + lost_frames + journey.capture == 1000


@given(losses, foreign, few, few, few, few)
def test_among_frames_of_others_no_place_is_given_more_than_were_lost_there(
    lost, others, source_nic, link_in, link_out, uncaught
):
    journey = Journey(**lost, **others, source_nic=source_nic, link_in=link_in, link_out=link_out)
    evidence = journey.evidence()
    # The foreign frames at the sink are taken to be those that entered, up to their number.
    caught = journey.received - (0 if journey.foreign_stuck else uncaught)
    counts = account(replace(evidence, received=replace(evidence.received, frames=caught)))
    truth = deaths(journey)
    within = sum(truth[place] for place in ("ingress NIC", RULE, IN_UUT, "egress NIC"))
    for place, frames in lost_at(counts).items():
        assert frames <= (within if place == IN_UUT else truth[place]), place
    assert sum(lost_at(counts).values()) <= sum(truth.values())
    named = sum(lost_at(counts).values())
    assert caught + named + (counts.capture_dropped_frames or 0) + (counts.unexplained_frames or 0) == 1000
    assert counts.foreign_frames <= sum(others.values())


@given(losses, few)
def test_seen_from_outside_all_loss_before_the_sink_is_the_uuts(lost, through):
    journey = Journey(**lost, foreign_through=through)
    counts = account(outside(journey.evidence()))
    within = journey.ingress_nic + journey.rule + journey.uut + journey.egress_nic
    unsure = min(within, journey.duplicated)
    assert lost_at(counts).get(THROUGH, 0) == within - unsure, "what the sink's own NIC dropped is not the UUT's loss"
    assert lost_at(counts).get("sink NIC", 0) == journey.sink_nic
    assert counts.unexplained_frames == unsure
    assert counts.capture_dropped_frames == journey.capture


def test_what_came_to_the_sink_s_nic_and_was_not_caught_is_nobodys_doing():
    """40 frames were uncaught or mangled, or 40 foreign ones replaced 40 lost ones: both look alike."""
    evidence = Journey(rule=7).evidence()
    counts = account(replace(evidence, received=replace(evidence.received, frames=1000 - 7 - 40)))
    assert (lost_at(counts), counts.unexplained_frames, counts.foreign_frames) == ({RULE: 7}, 40, 0)


def test_control_frames_hide_no_loss_and_what_looks_late_may_be_mangled():
    """The UUT lost 5 frames and sent 5 foreign ones."""
    evidence = Journey(uut=5, foreign_out=5).evidence()
    with_control = account(replace(evidence, received=replace(evidence.received, control=5)))
    with_late = account(replace(evidence, received=replace(evidence.received, late=5)))
    assert (lost_at(with_control), with_control.unexplained_frames) == ({IN_UUT: 5}, 0)
    assert (lost_at(with_late), with_late.unexplained_frames) == ({}, 5)
    assert (with_control.foreign_frames, with_late.foreign_frames) == (0, 0)


def test_control_frames_that_entered_at_the_source_are_no_foreign_ones_and_move_no_loss():
    rule = growth("uut", "drop rule", "dropped", 100, THROUGH_UUT)
    evidence = replace(Journey(uut=100, foreign_through=7).evidence(), growths=(rule,))
    counts = account(replace(evidence, received=replace(evidence.received, control=7)))
    assert (lost_at(counts), counts.unexplained_frames, counts.foreign_frames) == ({"uut (drop rule)": 100}, 0, 0)


def test_others_that_left_the_source_take_nobodys_place():
    """500 foreign and 500 own frames died in the UUT, 500 of the 1,000 at a rule: it is unknown which."""
    rule = growth("uut", "drop rule", "dropped", 500, THROUGH_UUT, indiscriminate=True)
    counts = account(replace(Journey(uut=500, foreign_stuck=500).evidence(), growths=(rule,)))
    assert (lost_at(counts), counts.unexplained_frames, counts.foreign_frames) == ({IN_UUT: 500}, 0, 500)


def test_a_clean_trial_in_figures():
    counts = account(Journey().evidence())
    assert (counts.sent.frames, counts.received.frames, counts.lost_frames) == (1000, 1000, 0)
    assert (counts.intended_frames, counts.unsent_frames, counts.intended_fps) == (1000, 0, 1000.0)
    assert (counts.received.duplicates, counts.received.reordered, counts.foreign_frames) == (0, 3, 0)
    assert (counts.capture_dropped_frames, counts.unexplained_frames, counts.lost_at) == (0, 0, ())
    assert (counts.received.loss_runs, counts.received.longest_loss_run) == (2, 4)
    assert (counts.sent.first_ns, counts.sent.last_ns) == (1, 2)
    assert (counts.received.first_ns, counts.received.last_ns) == (5, 6)


def test_every_counter_of_the_path_is_kept():
    counts = account(Journey(rule=7, ingress_nic=2, capture=5).evidence())
    assert [(count.point, count.counter, count.role, count.grew) for count in counts.counters] == [
        ("generator", "sent", "passed", 1000),
        ("generator", "errors", "errors", 0),
        ("source NIC", "tx", "passed", 1000),
        ("source NIC", "tx_dropped", "dropped", 0),
        ("source NIC", "tx_errors", "errors", 0),
        ("ingress NIC", "rx", "passed", 998),
        ("ingress NIC", "rx_dropped", "dropped", 2),
        ("ingress NIC", "rx_errors", "errors", 0),
        ("uut", "drop rule", "dropped", 7),
        ("egress NIC", "tx", "passed", 991),
        ("egress NIC", "tx_dropped", "dropped", 0),
        ("egress NIC", "tx_errors", "errors", 0),
        ("sink NIC", "rx", "passed", 991),
        ("sink NIC", "rx_dropped", "dropped", 0),
        ("sink NIC", "rx_errors", "errors", 0),
        ("capture", "matched filter", "passed", 991),
        ("capture", "dropped", "dropped", 5),
    ]


def test_frames_in_error_at_a_nic_are_lost_there():
    evidence = Journey(ingress_nic=10, sink_nic=20).evidence()
    in_error = {
        "ingress": nic_delta(rx=990, rx_dropped=6, rx_errors=4),
        "sink": nic_delta(rx=970, rx_dropped=16, rx_errors=4),
    }
    assert lost_at(account(with_nics(evidence, **in_error))) == {"ingress NIC": 10, "sink NIC": 20}


def test_a_nic_that_drops_what_is_not_ours_has_lost_nothing():
    evidence = Journey().evidence()
    nics = {role: replace(delta, rx_dropped=50, tx_dropped=50) for role, delta in evidence.nics.items() if delta}
    counts = account(with_nics(evidence, **nics))
    assert (counts.lost_at, counts.unexplained_frames) == ((), 0)


@pytest.mark.parametrize(
    ("counted", "places"),
    [
        ({"drop rule": 800}, {RULE: 5}),
        # It is unknown which of the two counted the foreign frames.
        ({"drop rule": 5, "other rule": 5}, {IN_UUT: 5}),
        ({"drop rule": 4, "other rule": 2}, {RULE: 3, "uut (other rule)": 1, IN_UUT: 1}),
        ({"drop rule": 4, "other rule": 1}, {RULE: 4, "uut (other rule)": 1}),
    ],
)
def test_counters_that_exceed_the_loss_have_counted_frames_of_others(counted, places):
    evidence = Journey(uut=5).evidence()
    grown = tuple(growth("uut", rule, "dropped", frames, THROUGH_UUT) for rule, frames in counted.items())
    counts = account(replace(evidence, growths=grown))
    assert lost_at(counts) == places
    assert (counts.lost_frames, counts.unexplained_frames) == (5, 0)
    assert counts.overcounted_frames == sum(counted.values()) - 5


def test_frames_of_others_that_enter_within_the_uut_do_not_raise_its_loss():
    """The rule drops 300 of 6,000 foreign frames, and 5,700 reach the sink; it drops 625 of the stream's own."""
    evidence = Journey(sent=10_000, rule=625, foreign_out=5700).evidence()
    counts = account(replace(evidence, growths=(growth("uut", "drop rule", "dropped", 925, THROUGH_UUT),)))
    assert (lost_at(counts), counts.lost_frames) == ({RULE: 625}, 625)
    assert (counts.unexplained_frames, counts.overcounted_frames) == (0, 300)


def test_a_rewritten_sequence_number_is_no_loss_of_the_uut():
    """70 frames arrive with the numbers of others: the NICs of the UUT have counted every frame in and out."""
    evidence = Journey().evidence()
    rewritten = account(replace(evidence, received=received(930, 70)))
    assert (lost_at(rewritten), rewritten.lost_frames, rewritten.unexplained_frames) == ({}, 70, 70)


@pytest.mark.parametrize("counted", [0, 600])
def test_loss_beside_a_counter_that_may_have_been_reset_is_unexplained(counted):
    evidence = Journey(rule=1000).evidence()
    rule = growth("uut", "drop rule", "dropped", counted, THROUGH_UUT)
    beside = {RULE: counted, IN_UUT: 1000 - counted}
    plain = account(replace(evidence, growths=(rule,)))
    assert lost_at(plain) == {place: frames for place, frames in beside.items() if frames}
    resettable = account(replace(evidence, growths=(replace(rule, resettable=True),)))
    assert sum(lost_at(resettable).values()) == counted
    assert resettable.unexplained_frames == 1000 - counted
    uncounted = replace(growth("uut", "other rule", "dropped", None, THROUGH_UUT), silent=UNCOUNTED)
    both = account(replace(evidence, growths=(replace(rule, resettable=True), uncounted)))
    why = "which does not count or whose counter may have been reset meanwhile"
    places = {RULE: counted, f"uut (other rule or drop rule, {why})": 1000 - counted}
    assert (lost_at(both), both.unexplained_frames) == ({place: n for place, n in places.items() if n}, 0)


@pytest.mark.parametrize(
    ("journey", "reported", "dropped"),
    [
        (Journey(capture=300), 300, 300),
        (Journey(capture=10), 30, 10),  # foreign and flush frames pass its filter as well
        (Journey(rule=50, capture=10), 60, 10),  # it cannot drop what never came
    ],
)
def test_what_the_sink_dropped_of_a_stream_is_the_testers_loss(journey, reported, dropped):
    evidence = journey.evidence()
    counts = account(replace(evidence, received=replace(evidence.received, dropped=reported)))
    assert (counts.received.frames, counts.capture_dropped_frames) == (journey.received, dropped)
    assert (counts.lost_frames, counts.unexplained_frames) == (journey.rule, 0)
    assert sum(lost_at(counts).values()) == journey.rule


@pytest.mark.parametrize(("journey", "lost"), [(Journey(), 0), (Journey(uut=7), None), (Journey(capture=7), None)])
def test_what_no_one_knows_of_the_sink_is_not_the_uuts_loss(journey, lost):
    evidence = journey.evidence()
    counts = account(replace(evidence, received=replace(evidence.received, dropped=None)))
    assert (counts.lost_frames, counts.capture_dropped_frames, counts.unexplained_frames) == (lost, None, lost)
    assert counts.received.frames == journey.received


@pytest.mark.parametrize(
    ("evidence", "foreign"),
    [
        (with_nics(Journey(foreign_out=2).evidence(), sink=nic_delta(rx=1002, tx=3)), 5),  # a sink that sends
        (Journey(foreign_out=9, foreign_in_capture=9).evidence(), 9),  # seen by the sink alone
        # A switch before the sink sends frames, too.
        (with_nics(Journey().evidence(), sink=nic_delta(rx=1012)), 12),
    ],
)
def test_foreign_frames_are_no_loss(evidence, foreign):
    counts = account(evidence)
    assert (counts.foreign_frames, counts.lost_at, counts.unexplained_frames) == (foreign, (), 0)


def test_without_a_count_nothing_about_arrival_is_known():
    counts = account(replace(Journey(uut=10).evidence(), received=Received()))
    of_arrivals = ("foreign_frames", "capture_dropped_frames", "unexplained_frames")
    unknown = [*of_arrivals, "lost_frames", "loss_ratio", "throughput_fps"]
    assert {name: getattr(counts, name) for name in unknown} == dict.fromkeys(unknown)
    assert counts.received == Received()
    assert counts.lost_at == ()
    assert counts.sent.frames == 1000
    assert [count.grew for count in counts.counters if count.point == "sink NIC"] == [990, 0, 0]


@pytest.mark.parametrize("role", ["source", "ingress", "egress", "sink"])
@pytest.mark.parametrize("seen", [Journey(), Journey(uut=10)], ids=["no loss", "loss"])
def test_with_a_nic_gone_loss_is_known_but_not_all_of_its_places(role, seen):
    counts = account(with_nics(seen.evidence(), **{role: None}))
    assert (counts.received.frames, counts.lost_frames) == (seen.received, 1000 - seen.received)
    assert counts.unexplained_frames is None
    assert sum(lost_at(counts).values()) <= 1000 - seen.received
    assert {count.grew for count in counts.counters if count.point == f"{role} NIC"} == {None}


@pytest.mark.parametrize(
    ("evidence", "role"),
    [
        *((Journey().evidence(), role) for role in ("source", "ingress", "egress", "sink")),
        *((outside(Journey().evidence()), role) for role in ("source", "sink")),
    ],
)
@pytest.mark.parametrize("what", [{}, {"rx": 10**6, "tx": 10**6}])
def test_counters_that_were_reset_prove_nothing(evidence, role, what):
    counts = account(with_nics(evidence, **{role: nic_delta(**what, trustworthy=False)}))
    assert (counts.received.frames, counts.lost_frames, counts.foreign_frames) == (1000, 0, 0)
    assert counts.unexplained_frames is None
    assert lost_at(counts) == {}, "nothing was lost, so nothing was lost anywhere"
    assert {count.grew for count in counts.counters if count.point == f"{role} NIC"} == {None}


def test_frames_that_cannot_be_reported_apart_are_counted_only():
    evidence = Journey(sent=1000, uut=100).evidence()
    counts = account(replace(evidence, received=Received(frames=900, foreign=0, dropped=0)))
    assert (counts.received.frames, counts.lost_frames, counts.unexplained_frames) == (900, 100, 0)
    assert lost_at(counts) == {IN_UUT: 100}
    found = counts.received
    assert (found.duplicates, found.reordered, found.loss_runs, found.longest_loss_run) == (None, None, None, None)


@pytest.mark.parametrize(
    ("sends", "message", "why"),
    [
        ({"in_order": False}, {}, "the source sends by several threads"),
        ({"numbered": False}, {}, "the source does not number its frames"),
        ({}, {"reordered": None}, "the sink does not report order"),
    ],
)
def test_an_order_that_is_not_the_uuts_doing_is_refused(sends, message, why):
    evidence = Journey().evidence()
    late = replace(evidence.received, reordered=287, reordering_extent=Extent(1, 1.0, 1))
    assert account(replace(evidence, received=late)).received.reordered == 287
    counts = account(replace(evidence, sent=replace(evidence.sent, **sends), received=replace(late, **message)))
    assert counts.order_refused.startswith(why)
    assert (counts.received.reordered, counts.reordered_ratio, counts.received.reordering_extent) == (None, None, None)


DELAY = Spread(0, 5.5, 5, 7, 8, 9, 10)
IPDV = Spread(0, 1.5, 1, 2, 3, 4, 5)
TIMED = Received(frames=3, delay=DELAY, ipdv=IPDV)
SENT = Sent(frames=3, errors=0, duration_s=1.0, first_ns=0, last_ns=9, max_burst_frames=1, max_lateness_s=0.0)


def timed(source=None, sink=None, *, sent=SENT, received=TIMED, set_ns=0, clocks=(SAME_CLOCK, SAME_CLOCK)):
    nics = [Nic("host", machine, None, "eth", "", is_port=False) for machine in (source, sink)]
    path = StreamPath("s1", 1, nics[0], None, None, nics[1], 1e9)
    evidence = replace(Journey().evidence(), path=path, sent=sent, received=received, clock_set_ns=set_ns)
    return replace(evidence, source_clock=clocks[0], sink_clock=clocks[1])


@pytest.mark.parametrize("machine", [None, "vm"])
def test_on_one_clock_there_are_delays(machine):
    assert one_way(timed(machine, machine)) == replace(TIMED, no_delay="")


def test_of_two_machines_delays_are_by_how_much_their_clocks_differ_less():
    # The source's clock is 2 to 4 µs ahead of this machine's, the sink's 10 to 12: 8 ± 2 between them.
    clocks = ClockDifference(2_000, 4_000), ClockDifference(10_000, 12_000)
    measured = replace(TIMED, delay=DELAY.earlier(-13_000))
    found = one_way(timed("a", "b", received=measured, clocks=clocks))
    assert found.delay == Spread(5_000, 5_005.5, 5_005, 5_007, 5_008, 5_009, 5_010)
    assert (found.ipdv, found.clock_offset, found.no_delay) == (IPDV, ClockOffset(-2_000, 2_000), "")


def test_a_delay_that_is_smaller_than_what_is_not_known_of_the_clocks_is_refused():
    clocks = ClockDifference(2_000, 4_000), ClockDifference(10_000, 12_000)
    measured = replace(TIMED, delay=DELAY.earlier(-9_900))
    found = one_way(timed("a", None, received=measured, clocks=clocks))
    assert found.delay is None
    assert found.no_delay == (
        "the clocks of a and this machine are known to within 2 µs of each other, and the delay is about 2 µs"
    )


@pytest.mark.parametrize(
    ("evidence", "reason"),
    [
        (timed("vm", clocks=(None, SAME_CLOCK)), "the source on vm and the sink on this machine share no clock"),
        (timed(sent=replace(SENT, numbered=False)), "the source does not number its frames"),
        (timed(sent=replace(SENT, stamped=False)), "the source does not stamp its frames"),
        (timed(set_ns=-3_200_000_000), "the clock was set by -3.200000 s during the trial"),
        (timed(received=Received(no_delay="the capture is incomplete")), "the capture is incomplete"),
        (timed(received=Received(frames=3)), "the sink measures none"),
        (
            timed(received=replace(TIMED, clock_offset=ClockOffset(1_998_000, 2_001_000))),
            "captures are stamped by another clock than frames, about +2,000 µs later",
        ),
        (
            timed(received=replace(TIMED, delay=replace(DELAY, smallest_ns=-2_000))),
            "captured up to 0.000002 s before",
        ),
    ],
)
def test_where_there_are_none_the_reason_is_reported(evidence, reason):
    found = one_way(evidence)
    assert (found.delay, found.ipdv) == (None, None)
    assert reason in found.no_delay
