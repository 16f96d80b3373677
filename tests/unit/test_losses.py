"""Attribution of losses: the counters of a made-up truth must lead back to that truth."""

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.model.packet import Packet
from netbench.model.packet_notation import parse_layers
from netbench.model.points import CountingPoint, PathSection, whole_path
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Sent
from netbench.trial.loss_attribution import all_counted, losses
from netbench.trial.observation import REMOVED, RESET, UNCOUNTED, CounterDelta, StreamObservation
from tests.unit.accounts import account, nic_delta
from tests.unit.inputs import stream_traffic, topology
from tests.unit.points import BY_KIND, THROUGH_GUEST, at, growth
from tests.unit.received import received

(PATH,) = stream_paths(topology())
SENT = 10_000
PATHS = {"guest": THROUGH_GUEST, **{kind.value: points for kind, points in BY_KIND.items()}}


def evidence(
    entered: int, left: int, *growths: CounterDelta, stack: str = "guest", egress_dropped: int = 0
) -> StreamObservation:
    """Evidence that of SENT frames so many entered the UUT and so many left it, and that nothing else happened."""
    points = PATHS[stack]
    return StreamObservation(
        path=PATH,
        traffic=stream_traffic(),
        sent=Sent(SENT, 0, 1.0, 1, 2, 1, 0.0),
        received=received(left),
        nics={
            "source": nic_delta(tx=SENT),
            "ingress": nic_delta(rx=entered),
            "egress": nic_delta(tx=left, tx_dropped=egress_dropped),
            "sink": nic_delta(rx=left),
        },
        points=points,
        growths=tuple(replace(grown, point=at(grown.point.name, points)) for grown in growths),
    )


def lost(given_: StreamObservation) -> dict[str, int]:
    return {loss.place: loss.frames for loss in losses([given_])[given_.path.name].losses}


@pytest.mark.parametrize("output", [0, 300])  # the kernel reports the drops to the ingress for XDP frames only
def test_what_a_ring_had_no_room_for_was_lost_at_the_ingress(output):
    along = PATHS["bridge"]
    given_ = evidence(SENT - 300, SENT - 370, growth("bridge", "nft drop rule", "dropped", 70), stack="bridge")
    path = replace(PATH, receive="napi")
    nics = {**given_.nics, "source": nic_delta(tx=SENT - 300, tx_dropped=300)}
    nics["ingress"] = nic_delta(rx=SENT - 300, rx_dropped=output)
    full = replace(given_, path=path, nics=nics)
    assert lost(full) == {"ingress NIC (receive ring full)": 300, "bridge (nft drop rule)": 70}
    assert (account(full).unexplained_frames, account(full).foreign_frames) == (0, 0)
    assert all_counted([full]), "no wait for them"
    # The full backlog is the sink's, not the UUT's.
    growths = (*given_.growths, growth("softnet backlog", "dropped", "repeated", 40, along, shared=True))
    ends = {"egress": nic_delta(tx=SENT - 410, tx_dropped=40), "sink": nic_delta(rx=SENT - 410, rx_dropped=40)}
    behind = replace(full, growths=growths, received=received(SENT - 410), nics={**nics, **ends})
    assert lost(behind) == {**lost(full), "sink NIC": 40}
    # Without a ring the same counters show that the source's NIC dropped them.
    assert lost(replace(full, path=PATH)) == {"source NIC": 300, "bridge (nft drop rule)": 70}
    # Nothing at all came in: no ring is as small as that.
    nics = {"source": nic_delta(tx_dropped=SENT), "ingress": nic_delta()}
    nothing = replace(evidence(0, 0, stack="bridge"), path=path)
    assert lost(replace(nothing, nics={**nothing.nics, **nics})) == {"ingress NIC": SENT}


@pytest.mark.parametrize("receive", ["inline", "napi"])
def test_what_the_ring_of_a_sink_had_no_room_for_is_the_tester_s_loss(receive):
    given_ = evidence(SENT, SENT - 300, stack="bridge", egress_dropped=300)
    full = replace(given_, path=replace(PATH, receive=receive))
    assert lost(full) == {"egress NIC": 300}
    by_ring = replace(full, received=replace(full.received, by_ring=True))
    assert lost(by_ring) == {"sink NIC (receive ring full)": 300}
    assert account(by_ring).unexplained_frames == 0


@pytest.mark.parametrize(("receive", "by_ring"), [("napi", False), ("napi", True), ("inline", True), ("inline", False)])
def test_without_a_uut_a_ring_stands_before_the_sink(receive, by_ring):
    path = replace(PATH, ingress=None, egress=None, receive=receive)
    points = whole_path(path, ())
    given_ = evidence(0, SENT - 300, stack="bridge")
    nics = {"source": nic_delta(tx=SENT - 300, tx_dropped=300), "sink": nic_delta(rx=SENT - 300)}
    full = replace(given_, path=path, points=tuple(points), nics=nics)
    full = replace(full, received=replace(full.received, by_ring=by_ring))
    ring = receive == "napi" or by_ring
    assert lost(full) == {"sink NIC (receive ring full)" if ring else "source NIC": 300}
    assert account(full).unexplained_frames == 0


@pytest.mark.parametrize(
    ("headers", "by_tap", "dropped", "place"),
    [
        ("Ether()/Dot1AD()/Dot1Q()/IP()/UDP()", True, SENT - 300, "uut"),
        ("Ether()/Dot1Q()/MPLS()/IP()/UDP()", True, SENT - 300, "uut"),
        ("Ether()/Dot1AD()/Dot1Q()/IP()/UDP()", True, SENT, "sink NIC"),  # the NIC dropped as many before the capture
        ("Ether()/Dot1AD()/Dot1Q()/IP()/UDP()", False, 300, "sink NIC"),  # no frame went on to the kernel
        ("Ether()/Dot1Q()/IPv6()/UDP()", True, 300, "sink NIC"),
        ("Ether()/MPLS()/IP()/UDP()", True, 300, "sink NIC"),
    ],
)
def test_captured_frames_that_the_sink_s_kernel_cannot_process_are_not_lost_there(headers, by_tap, dropped, place):
    path = replace(PATH, ingress=None, egress=None)
    given_ = evidence(0, SENT - 300, stack="bridge")
    nics = {"source": nic_delta(tx=SENT), "sink": nic_delta(rx=SENT - 300, rx_dropped=dropped)}
    full = replace(given_, path=path, points=tuple(whole_path(path, ())), nics=nics)
    traffic = replace(full.traffic, packet=Packet("p", parse_layers(headers)))
    full = replace(full, traffic=traffic, received=replace(full.received, by_tap=by_tap))
    assert {name.partition(" (")[0]: frames for name, frames in lost(full).items()} == {place: 300}


@dataclass(frozen=True)
class ThroughGuest:
    """The fate of frames on the way through a guest, in frames, with and without a counter."""

    ingress_hook: int = 0
    bridge: int = 0
    tap_full: int = 0
    vmm_in: int = 0
    guest_nic: int = 0  # counted as received first, and dropped then
    guest_ip: int = 0
    guest: int = 0
    guest_queue: int = 0
    vmm_out: int = 0
    tap_out_full: int = 0
    tap_out_hook: int = 0
    bridge_out: int = 0
    egress_hook: int = 0

    def evidence(self) -> StreamObservation:
        tap = SENT - self.ingress_hook - self.bridge - self.tap_full
        guest_in = tap - self.vmm_in
        guest_out = guest_in - self.guest_nic - self.guest_ip - self.guest - self.guest_queue
        tap_out = guest_out - self.vmm_out - self.tap_out_full
        return evidence(
            SENT,
            tap_out - self.tap_out_hook - self.bridge_out - self.egress_hook,
            growth("ingress NIC", "nft filter in rule 2", "dropped", self.ingress_hook, indiscriminate=True),
            growth("ingress tap", "tx", "passed", tap),
            growth("ingress tap", "tx_dropped", "dropped", self.tap_full),
            growth("guest ingress NIC", "rx", "passed", guest_in),
            growth("guest ingress NIC", "rx_dropped", "dropped", self.guest_nic),
            growth("guest softnet", "dropped", "repeated", self.guest_nic),
            growth("guest IP layer", "OutNoRoutes", "dropped", self.guest_ip),
            growth("guest egress queue", "dropped", "dropped", self.guest_queue),
            growth("guest egress NIC", "tx", "passed", guest_out),
            growth("egress tap", "rx", "passed", tap_out),
            growth("egress tap", "rx_dropped", "dropped", self.tap_out_full),
            growth("egress tap", "nft filter tap rule 4", "dropped", self.tap_out_hook, indiscriminate=True),
            growth("egress NIC", "nft filter out rule 3", "dropped", self.egress_hook, indiscriminate=True),
        )


few = st.integers(0, 300)
NAMES = {
    "ingress_hook": "ingress NIC (nft filter in rule 2)",
    "bridge": "bridge (between ingress NIC and ingress tap)",
    "tap_full": "ingress tap (tx_dropped)",
    "vmm_in": "VMM ingress (between ingress tap and guest ingress NIC)",
    "guest_ip": "guest IP layer (OutNoRoutes)",
    "guest": "guest (between guest ingress NIC and guest egress NIC)",
    "guest_queue": "guest egress queue (dropped)",
    "vmm_out": "VMM egress (between guest egress NIC and egress tap)",
    "tap_out_full": "egress tap (rx_dropped)",
    "tap_out_hook": "egress tap (nft filter tap rule 4)",
    "bridge_out": "egress bridge (between egress tap and egress NIC)",
    "egress_hook": "egress NIC (nft filter out rule 3)",
}


@given(st.fixed_dictionaries(dict.fromkeys(NAMES, few)))
def test_on_the_way_through_a_guest_every_death_has_its_place(truth):
    assert lost(ThroughGuest(**truth).evidence()) == {NAMES[what]: frames for what, frames in truth.items() if frames}


@given(few, few)
def test_a_counter_on_the_other_side_of_what_it_explains_is_not_counted_twice(dropped, others):
    """A NIC may count a frame as received and then drop it, or drop it first: the sum stays the missing frames."""
    truth = ThroughGuest(guest_nic=dropped, guest=others)
    assert sum(lost(truth.evidence()).values()) == dropped + others
    assert lost(truth.evidence()).get("guest ingress NIC (rx_dropped)", 0) == dropped


def test_whatever_a_uut_declares_is_placed_by_the_same_rules():
    """A guest of another kind: one that is a namespace on two pairs of veths."""
    points = whole_path(
        PATH,
        (
            CountingPoint("ingress veth", PathSection.BEFORE, direction="tx", passing=True),
            CountingPoint("container", PathSection.INSIDE, names_segment=True),
            CountingPoint("egress veth", PathSection.BEHIND, direction="rx", passing=True),
            CountingPoint("way out", PathSection.BEHIND, names_segment=True),
        ),
    )
    grown = (
        growth("ingress veth", "tx", "passed", SENT - 1, points),
        growth("ingress veth", "pauses", "passed", 5, points),
        growth("egress veth", "rx", "passed", SENT - 6, points),
        growth("egress veth", "qdisc tbf", "dropped", 20, points, indiscriminate=True),
    )
    found = losses([replace(evidence(SENT, SENT - 36), points=points, growths=grown)])[PATH.name].losses
    assert [(loss.place, loss.where, loss.frames) for loss in found] == [
        ("container (between ingress veth and egress veth)", PathSection.INSIDE, 5),
        ("uut (between ingress NIC and ingress veth)", PathSection.UUT, 1),
        ("egress veth (qdisc tbf)", PathSection.BEHIND, 20),
        ("way out (between egress veth and egress NIC)", PathSection.BEHIND, 10),
    ]


def test_a_machine_that_drops_frames_of_others_as_well_has_dropped_no_more_of_ours_than_are_missing():
    everything = growth("IP layer", "InAddrErrors", "dropped", 5000, indiscriminate=True)
    assert lost(evidence(SENT, SENT - 7, everything, stack="IP layer")) == {"IP layer (InAddrErrors)": 7}
    assert lost(evidence(SENT, SENT, everything, stack="IP layer")) == {}


def test_a_kernel_that_forwards_is_named_by_what_it_forwards_with():
    assert lost(evidence(SENT, SENT - 7, stack="IP layer")) == {"IP layer (between ingress NIC and egress NIC)": 7}


INGRESS_RULE = growth("ingress NIC", "nft i", "dropped", None, silent=UNCOUNTED)


def of_bridge(rules: int) -> list[CounterDelta]:
    return [growth("bridge", f"nft {number}", "dropped", None, silent=UNCOUNTED) for number in range(rules)]


@pytest.mark.parametrize(
    ("growths", "places"),
    [
        (
            [INGRESS_RULE, growth("egress NIC", "nft e", "dropped", 40)],
            {"ingress NIC (nft i, which does not count)": 60, "egress NIC (nft e)": 40},
        ),
        # Of several rules none is blamed alone.
        ([INGRESS_RULE, *of_bridge(1)], {"uut (ingress NIC: nft i or bridge: nft 0, which do not count)": 100}),
        (of_bridge(2), {"bridge (nft 0 or nft 1, which do not count)": 100}),
        (of_bridge(9), {"bridge (nft 0 or nft 1 or 7 more, which do not count)": 100}),
        (
            [
                growth("bridge", "nft b", "dropped", 300, shared=True),
                growth("egress NIC", "nft e", "dropped", None, silent=UNCOUNTED),
            ],
            {"bridge (nft b, counted for all streams)": 100},
        ),
        *(
            ([growth("ingress NIC", "nft i", "dropped", None, silent=why)], {f"ingress NIC (nft i, {why})": 100})
            for why in (REMOVED, RESET)
        ),
        # An unknown counter of a guest is not a rule that does not count.
        ([growth("guest", "dropped", "dropped", None)], {"bridge (between ingress NIC and egress NIC)": 100}),
        ([], {"bridge (between ingress NIC and egress NIC)": 100}),
    ],
)
def test_what_may_drop_without_counting_is_named_when_nothing_else_can_have(growths, places):
    assert lost(evidence(SENT, SENT - 100, *growths, stack="bridge")) == places


@pytest.mark.parametrize("shown", [30, 12])
def test_what_streams_share_names_the_place_and_the_streams_own_counters_the_number(shown):
    """30 frames of all streams found no route; of this stream 12 are missing."""
    shared = growth("IP layer", "OutNoRoutes", "dropped", shown, shared=True)
    assert lost(evidence(SENT, SENT - 12, shared, stack="IP layer")) == {
        "IP layer (OutNoRoutes, counted for all streams)": 12
    }


def test_a_rule_at_the_source_explains_what_never_left_it():
    rule = growth("source NIC", "nft t c rule 2", "dropped", 25)
    seen = evidence(SENT - 25, SENT - 25, rule)
    seen = replace(seen, nics={**seen.nics, "source": nic_delta(tx=SENT - 25)})
    assert lost(seen) == {"source NIC (nft t c rule 2)": 25}


def test_a_rule_at_the_sink_that_drops_what_was_captured_before_has_lost_nothing():
    assert lost(evidence(SENT, SENT, growth("sink NIC", "nft t c rule 2", "dropped", 100))) == {}


def test_a_rule_before_the_capture_explains_what_the_capture_did_not_see():
    given_ = evidence(SENT, SENT, growth("sink NIC", "XDP program", "dropped", None, silent=UNCOUNTED))
    assert lost(replace(given_, received=received(SENT - 3))) == {"sink NIC (XDP program, which does not count)": 3}


@pytest.mark.parametrize("others", [0, 500])
def test_a_backlog_that_is_full_is_named_on_a_pair_that_shows_it_at_both_ends(others):
    """If it dropped frames of other streams, too, it is blamed for those of this stream only."""
    seen = evidence(SENT - 40, SENT - 40, growth("softnet backlog", "dropped", "repeated", 40 + others, shared=True))
    ends = {"source": nic_delta(tx=SENT - 40, tx_dropped=40), "ingress": nic_delta(rx=SENT - 40, rx_dropped=40)}
    assert lost(replace(seen, nics={**seen.nics, **ends})) == {"softnet backlog (dropped)": 40}


def test_what_a_source_was_reported_of_is_not_lost_and_no_backlog_behind_has_dropped_it():
    """pktgen takes no frame for sent that a veth pair refused (NET_XMIT_DROP), but both ends have counted it."""
    backlog = growth("softnet backlog", "dropped", "repeated", 700 + 40, shared=True)
    full = growth("ingress tap", "tx_dropped", "dropped", 8000)
    seen = evidence(SENT, SENT - 8040, growth("ingress tap", "tx", "passed", SENT - 8000), full, backlog)
    ends = {"source": nic_delta(tx=SENT, tx_dropped=700), "ingress": nic_delta(rx=SENT, rx_dropped=700)}
    ends |= {"egress": nic_delta(tx=SENT - 8040, tx_dropped=40), "sink": nic_delta(rx=SENT - 8040, rx_dropped=40)}
    seen = replace(seen, sent=replace(seen.sent, errors=700), nics=ends)
    assert lost(seen) == {"ingress tap (tx_dropped)": 8000, "egress NIC": 40}


def test_a_backlog_behind_a_nic_that_counted_the_frames_before():
    seen = evidence(SENT, SENT - 40, growth("softnet backlog", "dropped", "repeated", 30), stack="bridge")
    seen = replace(seen, nics={**seen.nics, "ingress": nic_delta(rx=SENT, rx_dropped=30)})
    assert lost(seen) == {"softnet backlog (dropped)": 30, "bridge (between ingress NIC and egress NIC)": 10}


def of_streams(
    missing: list[int], *shared: CounterDelta, own: dict[int, CounterDelta] | None = None
) -> list[dict[str, int]]:
    """Return the losses of streams through one kernel that counts some drops for all of them together."""
    trial = [
        replace(
            evidence(SENT, SENT - frames, *shared, *([own[number]] if own and number in own else []), stack="IP layer"),
            path=replace(PATH, name=f"s{number}"),
        )
        for number, frames in enumerate(missing)
    ]
    placed = losses(trial)
    return [{loss.place: loss.frames for loss in placed[stream.path.name].losses} for stream in trial]


def for_all(counter: str, frames: int) -> CounterDelta:
    return growth("IP layer", counter, "dropped", frames, shared=True, indiscriminate=True)


BETWEEN = "IP layer (between ingress NIC and egress NIC)"
RULE = "IP layer (nft r, counted for all streams)"


@pytest.mark.parametrize(
    ("missing", "places"),
    [
        ([70, 70, 70], [{RULE: 70}] * 3),  # all that it counted, and all that is missing
        ([30, 3000, 0], [{RULE: 30}, {BETWEEN: 3000}, {}]),  # the rule explains only what one stream lacks
        ([1000, 0, 0], [{RULE: 210, BETWEEN: 790}, {}, {}]),
        ([1000, 70, 140], [{BETWEEN: 1000}, {RULE: 70}, {RULE: 140}]),
        ([5, 5, 5], [{RULE: 5}] * 3),  # it has counted frames of others, too
        # At least 140 are of the first stream, as the others lack at most 70; perhaps none are of those.
        ([1000, 40, 30], [{RULE: 140, BETWEEN: 860}, {BETWEEN: 40}, {BETWEEN: 30}]),
        ([1010, 1010, 1010], [{BETWEEN: 1010}] * 3),
    ],
)
def test_what_streams_share_explains_no_more_of_all_than_it_counted_and_only_what_must_be_it(missing, places):
    counted = 30 if missing[0] in (30, 1010) else 210
    assert of_streams(missing, for_all("nft r", counted)) == places


@given(st.lists(st.integers(0, 50), min_size=1, max_size=4), st.lists(st.integers(1, 60), max_size=3))
def test_over_all_streams_no_counter_explains_more_than_it_grew(missing, counted):
    found = of_streams(missing, *(for_all(f"nft {number}", frames) for number, frames in enumerate(counted)))
    assert [sum(places.values()) for places in found] == missing
    for number, frames in enumerate(counted):
        alone = sum(places.get(f"IP layer (nft {number}, counted for all streams)", 0) for places in found)
        assert alone <= frames
    assert sum(frames for places in found for place, frames in places.items() if "nft" in place) <= sum(counted)


def test_of_two_that_streams_share_each_has_its_stream_when_only_that_fits():
    rule, route = for_all("nft r", 300), for_all("InNoRoutes", 200)
    no_route = "IP layer (InNoRoutes, counted for all streams)"
    assert of_streams([300, 200, 5000], rule, route) == [{RULE: 300}, {no_route: 200}, {BETWEEN: 5000}]
    either = "IP layer (nft r or InNoRoutes, counted for all streams)"
    assert of_streams([250, 250], rule, route) == [{either: 250}] * 2


def test_a_backlog_of_all_streams_has_dropped_no_more_than_it_counted():
    backlog = growth("softnet backlog", "dropped", "repeated", 100, shared=True)
    one = replace(evidence(SENT, SENT - 100, backlog, stack="bridge"))
    one = replace(one, nics={**one.nics, "ingress": nic_delta(rx=SENT, rx_dropped=100)})
    placed = losses([replace(one, path=replace(PATH, name=name)) for name in ("s1", "s2")])
    found = [loss for both in placed.values() for loss in both.losses if loss.point == "softnet backlog"]
    assert sum(loss.frames for loss in found) <= 100


@pytest.mark.parametrize(
    ("before", "behind", "places"),
    [
        (70, 65, {"bridge (nft b)": 70, "egress bridge (nft b)": 65}),
        (70, 165, {"bridge (between ingress NIC and ingress tap)": 70, "egress bridge (nft b)": 65}),
    ],
)
def test_a_rule_on_both_bridges_of_a_guest_is_named_on_both(before, behind, places):
    at_both = [growth(name, "nft b", "dropped", 135, indiscriminate=True) for name in ("bridge", "egress bridge")]
    at_both = [replace(grown, identity=("nft b",)) for grown in at_both]
    tap = growth("ingress tap", "tx", "passed", SENT - before)
    guest = [
        growth("guest ingress NIC", "rx", "passed", SENT - before),
        growth("guest egress NIC", "tx", "passed", SENT - before),
        growth("egress tap", "rx", "passed", SENT - before),
    ]
    found = lost(evidence(SENT, SENT - before - behind, *at_both, tap, *guest))
    assert {place: frames for place, frames in found.items() if "nft" in place or "ingress tap" in place} == places
    assert sum(found.values()) == before + behind
