"""The accounts of a stream: every frame sent is somewhere, and what is not known is never 0."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.linux.nics import NicCounters
from netbench.model.counts import StreamCounts
from netbench.model.paths import stream_paths
from netbench.model.points import whole_path
from netbench.model.traffic import Sent, Traffic
from netbench.sinks.base import Received
from netbench.trial.accounting import account
from netbench.trial.evidence import Evidence, NicDelta
from tests.unit.inputs import topology
from tests.unit.points import THROUGH_UUT, growth
from tests.unit.received import received

(PATH,) = stream_paths(topology())
(OUTSIDE,) = stream_paths(topology(streams=1, uuts=[{"name": "x", "kind": "external"}]))
OUTSIDE = replace(OUTSIDE, ingress=None, egress=None)

IN_UUT = "uut (between ingress NIC and egress NIC)"
RULE = "uut (drop rule)"
THROUGH = "uut (source NIC to sink NIC)"


def nic(**counts) -> NicDelta:
    none = dict.fromkeys(("rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"), 0)
    return NicDelta(**{**none, "up": True, "carrier_changes": 0, **counts})


@dataclass(frozen=True)
class Journey:
    """What truly happened to the frames of a stream, in frames; the evidence of it is what counters would show."""

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
        return (
            self.sent
            - self.source_nic
            - self.link_in
            - self.ingress_nic
            - self.rule
            - self.uut
            - self.egress_nic
            - self.link_out
            - self.sink_nic
            - self.capture
        )

    def evidence(self) -> Evidence:
        on_wire = self.sent - self.source_nic + self.foreign_through + self.foreign_stuck
        ingress = on_wire - self.link_in - self.ingress_nic
        egress = (
            ingress - self.foreign_stuck - self.rule - self.uut - self.egress_nic + self.duplicated + self.foreign_out
        )
        sink = egress - self.link_out - self.sink_nic
        return Evidence(
            path=PATH,
            traffic=Traffic("s1", "", "", "", "", 64, 1000.0, self.sent / 1000, 1, 1),
            sent=Sent(self.sent, 0, self.sent / 1000, 1, 2, 1, 0.0),
            received=received(
                self.received,
                self.duplicated,
                self.foreign_in_capture,
                matched=self.received + self.capture,
                dropped=self.capture,
            ),
            nics={
                "source": nic(tx=on_wire, tx_dropped=self.source_nic),
                "ingress": nic(rx=ingress, rx_dropped=self.ingress_nic),
                "egress": nic(tx=egress, tx_dropped=self.egress_nic),
                "sink": nic(rx=sink, rx_dropped=self.sink_nic),
            },
            points=THROUGH_UUT,
            growths=(growth("uut", "drop rule", "dropped", self.rule, THROUGH_UUT),),
        )


def lost_at(counts: StreamCounts) -> dict[str, int]:
    found = {loss.place: loss.frames for loss in counts.lost_at}
    assert len(found) == len(counts.lost_at)
    return found


def outside(evidence: Evidence) -> Evidence:
    """The same seen through a UUT that netbench does not look into."""
    nics = {role: delta for role, delta in evidence.nics.items() if role in ("source", "sink")}
    return replace(evidence, path=OUTSIDE, nics=nics, points=whole_path(OUTSIDE, ()), growths=())


few = st.integers(0, 40)
losses = st.fixed_dictionaries(
    dict.fromkeys(("ingress_nic", "rule", "uut", "egress_nic", "sink_nic", "capture", "duplicated"), few)
)
foreign = st.fixed_dictionaries(dict.fromkeys(("foreign_through", "foreign_stuck", "foreign_out"), few))


@given(losses, foreign, few, few)
def test_every_lost_frame_is_placed_where_it_died(lost, others, link_in, link_out):
    journey = Journey(**lost, **others, link_in=link_in, link_out=link_out)
    counts = account(journey.evidence())
    truth = {
        "ingress NIC": journey.ingress_nic,
        RULE: journey.rule,
        IN_UUT: journey.uut,
        "egress NIC": journey.egress_nic,
        "sink NIC": journey.sink_nic,
    }
    assert lost_at(counts) == {place: frames for place, frames in truth.items() if frames}
    assert counts.unexplained_frames == link_in + link_out
    assert counts.capture_dropped_frames == journey.capture
    assert counts.duplicate_frames == journey.duplicated
    assert counts.foreign_frames == journey.foreign_through + journey.foreign_out


@given(losses, few, few)
def test_frames_are_conserved(lost, source_nic, link):
    counts = account(Journey(**lost, source_nic=source_nic, link_in=link).evidence())
    assert counts.received_frames is not None
    assert counts.capture_dropped_frames is not None
    assert counts.unexplained_frames is not None
    assert counts.sent_frames == (
        counts.received_frames
        + sum(lost_at(counts).values())
        + counts.capture_dropped_frames
        + counts.unexplained_frames
    )
    assert counts.lost_frames == sum(lost_at(counts).values()) + counts.unexplained_frames
    assert lost_at(counts).get("source NIC", 0) == source_nic


@given(losses, foreign)
def test_seen_from_outside_all_loss_before_the_sink_is_the_uuts(lost, others):
    journey = Journey(**lost, **others)
    counts = account(outside(journey.evidence()))
    within = journey.ingress_nic + journey.rule + journey.uut + journey.egress_nic
    assert lost_at(counts).get(THROUGH, 0) == within, "what the sink's own NIC dropped is not the UUT's loss"
    assert lost_at(counts).get("sink NIC", 0) == journey.sink_nic
    assert counts.unexplained_frames == 0
    assert counts.capture_dropped_frames == journey.capture


def test_a_clean_trial_in_figures():
    counts = account(Journey().evidence())
    assert (counts.sent_frames, counts.received_frames, counts.lost_frames) == (1000, 1000, 0)
    assert (counts.intended_frames, counts.unsent_frames, counts.intended_fps) == (1000, 0, 1000.0)
    assert (counts.duplicate_frames, counts.reordered_frames, counts.foreign_frames) == (0, 3, 0)
    assert (counts.capture_dropped_frames, counts.unexplained_frames, counts.lost_at) == (0, 0, ())
    assert (counts.loss_runs, counts.longest_loss_run_frames) == (2, 4)
    assert (counts.first_sent_ns, counts.last_sent_ns) == (1, 2)
    assert (counts.first_received_ns, counts.last_received_ns) == (5, 6)


def test_every_counter_of_the_path_is_kept():
    counts = account(Journey(rule=7, ingress_nic=2, capture=5).evidence())
    assert [(one.point, one.counter, one.role, one.grew) for one in counts.counters] == [
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
    nics = dict(evidence.nics)
    for role in ("ingress", "sink"):
        was = nics[role]
        assert was is not None
        nics[role] = replace(was, rx_dropped=was.rx_dropped - 4, rx_errors=4)
    assert lost_at(account(replace(evidence, nics=nics))) == {"ingress NIC": 10, "sink NIC": 20}


def test_a_nic_that_drops_what_is_not_ours_has_lost_nothing():
    evidence = Journey().evidence()
    nics = {role: replace(delta, rx_dropped=50, tx_dropped=50) for role, delta in evidence.nics.items() if delta}
    counts = account(replace(evidence, nics=nics))
    assert (counts.lost_at, counts.unexplained_frames) == ((), 0)


def test_a_rule_that_claims_more_than_was_lost_leaves_a_remainder_to_be_seen():
    evidence = Journey(uut=5).evidence()
    counts = account(replace(evidence, growths=(growth("uut", "drop rule", "dropped", 800, THROUGH_UUT),)))
    assert lost_at(counts) == {RULE: 800}
    assert (counts.lost_frames, counts.unexplained_frames) == (5, 5 - 800)


def test_what_the_sink_dropped_is_the_testers_loss():
    counts = account(Journey(capture=300).evidence())
    assert (counts.received_frames, counts.lost_frames, counts.loss_ratio) == (700, 0, 0.0)
    assert (counts.lost_at, counts.unexplained_frames) == ((), 0)


def test_a_sink_may_drop_more_than_this_streams_frames():
    """Foreign and flush frames pass its filter as well: fewer than no frames cannot be lost."""
    evidence = Journey(capture=10).evidence()
    counts = account(replace(evidence, received=replace(evidence.received, dropped=30)))
    assert (counts.received_frames, counts.capture_dropped_frames, counts.unexplained_frames) == (990, 10, 0)
    assert (counts.lost_frames, counts.lost_at) == (0, ())


def test_a_sink_cannot_drop_what_never_came():
    evidence = Journey(rule=50, capture=10).evidence()
    counts = account(replace(evidence, received=replace(evidence.received, dropped=60)))
    assert (counts.capture_dropped_frames, lost_at(counts), counts.unexplained_frames) == (10, {RULE: 50}, 0)


def test_a_sink_that_sends_has_frames_that_are_foreign():
    evidence = Journey(foreign_out=2).evidence()
    sink = evidence.nics["sink"]
    assert sink is not None
    assert account(replace(evidence, nics={**evidence.nics, "sink": replace(sink, tx=3)})).foreign_frames == 5


def test_foreign_frames_seen_by_the_sink_alone():
    assert account(Journey(foreign_out=9, foreign_in_capture=9).evidence()).foreign_frames == 9


def test_foreign_frames_that_came_between_the_uut_and_the_sink_are_no_loss():
    """A switch between the two may speak of its own accord."""
    evidence = Journey().evidence()
    counts = account(replace(evidence, nics={**evidence.nics, "sink": nic(rx=1012)}))
    assert counts.foreign_frames == 12
    assert (counts.lost_at, counts.unexplained_frames) == ((), 0)


def test_without_a_count_nothing_about_arrival_is_known():
    counts = account(replace(Journey(uut=10).evidence(), received=Received()))
    unknown = (
        "received_frames",
        "duplicate_frames",
        "reordered_frames",
        "foreign_frames",
        "capture_dropped_frames",
        "unexplained_frames",
        "longest_loss_run_frames",
        "loss_runs",
        "first_received_ns",
        "last_received_ns",
        "lost_frames",
        "loss_ratio",
        "throughput_fps",
    )
    assert {name: getattr(counts, name) for name in unknown} == dict.fromkeys(unknown)
    assert counts.lost_at == ()
    assert counts.sent_frames == 1000
    assert [one.grew for one in counts.counters if one.point == "sink NIC"] == [990, 0, 0]


@pytest.mark.parametrize("role", ["source", "ingress", "egress", "sink"])
@pytest.mark.parametrize("seen", [Journey(), Journey(uut=10)], ids=["no loss", "loss"])
def test_with_a_nic_gone_loss_is_known_but_not_all_of_its_places(role, seen):
    evidence = seen.evidence()
    counts = account(replace(evidence, nics={**evidence.nics, role: None}))
    assert (counts.received_frames, counts.lost_frames) == (seen.received, 1000 - seen.received)
    assert counts.unexplained_frames is None
    assert sum(lost_at(counts).values()) <= 1000 - seen.received
    assert {one.grew for one in counts.counters if one.point == f"{role} NIC"} == {None}


@pytest.mark.parametrize("role", ["source", "ingress", "egress", "sink"])
@pytest.mark.parametrize("what", [{"trustworthy": False}, {"rx": 10**6, "tx": 10**6, "trustworthy": False}])
def test_counters_that_were_reset_prove_nothing(role, what):
    evidence = Journey().evidence()
    counts = account(replace(evidence, nics={**evidence.nics, role: nic(**what)}))
    assert (counts.received_frames, counts.lost_frames, counts.foreign_frames) == (1000, 0, 0)
    assert counts.unexplained_frames is None
    assert lost_at(counts) == {}, "nothing was lost, so nothing was lost anywhere"
    assert {one.grew for one in counts.counters if one.point == f"{role} NIC"} == {None}


@pytest.mark.parametrize("role", ["source", "sink"])
def test_counters_that_were_reset_prove_nothing_from_outside_either(role):
    evidence = outside(Journey().evidence())
    counts = account(replace(evidence, nics={**evidence.nics, role: nic(trustworthy=False)}))
    assert (counts.lost_frames, counts.unexplained_frames, lost_at(counts)) == (0, None, {})


def test_a_max_load_intends_no_number():
    evidence = Journey().evidence()
    counts = account(replace(evidence, traffic=replace(evidence.traffic, fps=None)))
    assert (counts.intended_fps, counts.intended_frames, counts.unsent_frames) == (None, None, None)


def test_frames_that_cannot_be_told_apart_are_counted_only():
    evidence = Journey(sent=1000, uut=100).evidence()
    counts = account(replace(evidence, received=Received(frames=900, foreign=0, dropped=0)))
    assert (counts.received_frames, counts.lost_frames, counts.unexplained_frames) == (900, 100, 0)
    assert lost_at(counts) == {IN_UUT: 100}
    assert (counts.duplicate_frames, counts.reordered_frames) == (None, None)
    assert (counts.loss_runs, counts.longest_loss_run_frames) == (None, None)


COUNTERS = NicCounters(
    rx=9,
    tx=9,
    rx_dropped=9,
    tx_dropped=9,
    rx_errors=9,
    tx_errors=9,
    up=True,
    carrier_changes=7,
    mac="02:00:00:00:00:01",
    index=9,
    master=3,
)


def test_growth_between_two_readings():
    before = replace(COUNTERS, rx=1, tx=2, rx_dropped=3, tx_dropped=4, rx_errors=5, tx_errors=6)
    after = replace(COUNTERS, rx=11, tx=22, rx_dropped=33, tx_dropped=44, rx_errors=55, tx_errors=66)
    delta = NicDelta.between(before, after)
    assert delta == NicDelta(10, 20, 30, 40, 50, 60, up=True, carrier_changes=0, trustworthy=True)


@pytest.mark.parametrize("name", ["rx", "tx", "rx_dropped", "tx_dropped", "rx_errors", "tx_errors"])
def test_a_counter_that_went_backwards_is_not_trusted(name):
    assert not NicDelta.between(COUNTERS, replace(COUNTERS, **{name: getattr(COUNTERS, name) - 1})).trustworthy


@pytest.mark.parametrize("change", [{"index": 10}, {"mac": "02:00:00:00:00:02"}, {"master": 0}])
def test_another_nic_of_the_same_name_or_place_is_not_trusted(change):
    assert not NicDelta.between(COUNTERS, replace(COUNTERS, **change)).trustworthy


@pytest.mark.parametrize(("was_up", "is_up", "up"), [(True, True, True), (False, True, False), (True, False, False)])
def test_a_link_is_up_that_was_up_before_and_after(was_up, is_up, up):
    before = replace(COUNTERS, up=was_up, carrier_changes=3)
    delta = NicDelta.between(before, replace(before, up=is_up, carrier_changes=5))
    assert (delta.up, delta.carrier_changes) == (up, 2)
