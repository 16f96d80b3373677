"""Each reason against a trial, from the least evidence that causes it; and none from clean evidence."""

import re
from dataclasses import replace
from typing import Any

import pytest

from netbench.model.points import OTHERHOST
from netbench.model.received import MeasuringWindow, Received
from netbench.model.scenario import VICTIM
from netbench.model.stream_paths import stream_paths
from netbench.model.tester import Disturbance, ThreadDelay
from netbench.model.traffic import NOTHING_SENT, Sent
from netbench.model.trial import GuestResult
from netbench.model.verdict import Reason, ReasonKind, Verdict, worst
from netbench.trial.observation import UNCOUNTED, NicDelta, StreamObservation
from netbench.trial.verdict_rules import FlowsSpan, buffered, judge, judge_trial
from tests.unit.accounts import account
from tests.unit.inputs import stream_traffic, topology, trial_spec
from tests.unit.points import THROUGH_UUT, growth
from tests.unit.received import received
from tests.unit.results_factory import stream_counts

(PATH,) = stream_paths(topology())
SENT = Sent(frames=1000, errors=0, duration_s=1.0, first_ns=1, last_ns=2, max_burst_frames=1, max_lateness_s=0.0)
NIC = NicDelta(1000, 1000, 0, 0, 0, 0, up=True, carrier_changes=0)
SINK = replace(NIC, tx=0)
TRAFFIC = stream_traffic()


CLEAN = StreamObservation(
    PATH, TRAFFIC, SENT, received(), {"source": NIC, "ingress": NIC, "egress": NIC, "sink": SINK}, THROUGH_UUT
)

XDP = "XDP program drop_all (id 7) on nb-in1"

# The interface taken for the source's NIC receives, and the one taken for the sink's NIC sends.
SENDS = replace(NIC, rx=0)
EXCHANGED = replace(CLEAN, nics={"source": SINK, "ingress": SENDS, "egress": SINK, "sink": SENDS})


def reasons(evidence: StreamObservation, tolerance: float = 0.01) -> list[Reason]:
    return judge(evidence, account(evidence), tolerance, max_lateness_s=0.05)


def of_load(evidence: StreamObservation) -> list[Reason]:
    """The reasons about sent frames, whether or not they arrived."""
    of_path = (ReasonKind.UNEXPLAINED_FRAMES, ReasonKind.FOREIGN_FRAMES)
    return [reason for reason in reasons(evidence) if reason.kind not in of_path]


def with_nic(role: str, nic: NicDelta | None) -> StreamObservation:
    return replace(CLEAN, nics={**CLEAN.nics, role: nic})


def sent(**changes: Any) -> StreamObservation:
    return replace(CLEAN, sent=replace(SENT, **changes))


def counting(**frames: int) -> dict[str, NicDelta | None]:
    counted = {role: replace(SINK, rx=count) for role, count in frames.items()}
    if "egress" in frames:
        counted["egress"] = replace(SINK, tx=frames["egress"])
    return {**CLEAN.nics, **counted}


def arriving(frames: int, *growths: Any, **changes: Any) -> StreamObservation:
    """Evidence that so many of the frames left the UUT and arrived."""
    nics = counting(egress=frames, sink=frames)
    return replace(CLEAN, **{"received": received(frames), "nics": nics, "growths": growths, **changes})


def caught_up(late_ms: int, frames: str) -> str:
    return (
        f"the source fell {late_ms} ms behind and caught up with up to {frames} frames back to back: "
        "the burst may have caused loss"
    )


NFT = growth("bridge", "nft b", "dropped", None)


@pytest.mark.parametrize(
    ("evidence", "kind", "detail"),
    [
        (sent(error="the worker died"), ReasonKind.GENERATOR_FAILED, "the worker died"),
        (
            replace(CLEAN, sent=NOTHING_SENT, received=Received()),
            ReasonKind.NOTHING_SENT,
            "the generator sent no frame",
        ),
        (sent(max_lateness_s=0.051, max_burst_frames=1200), ReasonKind.UNEVEN_PACING, caught_up(51, "1,200")),
        # a tenth of the frames sent
        (sent(max_lateness_s=0.04, max_burst_frames=101), ReasonKind.UNEVEN_PACING, caught_up(40, "101")),
        (
            replace(
                sent(max_lateness_s=0.04, duration_s=0.3), traffic=replace(TRAFFIC, fps=1000 / 0.3, duration_s=0.3)
            ),
            ReasonKind.UNEVEN_PACING,
            caught_up(40, "1"),
        ),
        (sent(errors=1), ReasonKind.GENERATOR_ERRORS, "1 sends failed"),
        (
            sent(duration_s=1.25),
            ReasonKind.OFFERED_OUT_OF_TOLERANCE,
            "offered 800 of 1,000 frames/s (-20.00%, tolerance 1.00%); 1,000 frames took 1.250 s",
        ),
        (
            replace(CLEAN, received=Received(error="exit code 1", no_room="no space left for s1.pcap; free some")),
            ReasonKind.CAPTURE_DISK_FULL,
            "no space left for s1.pcap; free some",
        ),
        (
            replace(CLEAN, received=Received(error="the counter ended with exit code 1")),
            ReasonKind.CAPTURE_FAILED,
            "the counter ended with exit code 1",
        ),
        (
            replace(CLEAN, received=received(999, dropped=1, counted_by="the counter")),
            ReasonKind.CAPTURE_DROPPED,
            "the counter dropped 1 frames: the tester's loss",
        ),
        (
            replace(CLEAN, received=received(unsettled="the last frames may be in the kernel")),
            ReasonKind.NOT_DRAINED,
            "the last frames may be in the kernel",
        ),
        (
            with_nic("egress", replace(NIC, trustworthy=False)),
            ReasonKind.LINK_CHANGED,
            "egress NIC nb-out1 was replaced or its counters were reset",
        ),
        (
            arriving(995, replace(growth("uut", "drop rule", "dropped", 2, THROUGH_UUT), resettable=True)),
            ReasonKind.UNEXPLAINED_FRAMES,
            "3 frames are explained by no counter; drop rule at the uut explains them if its counter was reset "
            "meanwhile",
        ),
        *(
            (
                arriving(995, replace(NFT, **how)),
                ReasonKind.UNEXPLAINED_FRAMES,
                f"nft b at the bridge, {reported}: where frames were lost is uncertain",
            )
            for how, reported in (
                ({"went_back": True}, "whose counter was reset meanwhile"),
                ({"silent": "which was removed meanwhile"}, "which was removed meanwhile"),
            )
        ),
        (
            arriving(375, growth("uut", "drop rule", "dropped", 925, THROUGH_UUT)),
            ReasonKind.UNEXPLAINED_FRAMES,
            "drop counters on the path exceed the loss by 300 frames: they also counted other traffic",
        ),
        (
            arriving(
                0,
                replace(
                    growth("ingress NIC", XDP, "dropped", None, THROUGH_UUT, silent=UNCOUNTED), is_foreign_program=True
                ),
            ),
            ReasonKind.FOREIGN_PROGRAM,
            f"{XDP} is not netbench's and may have dropped 1,000 frames; remove it",
        ),
        (
            # The cause of the loss names three counters at most.
            arriving(
                0,
                *(
                    replace(
                        growth("ingress NIC", name, "dropped", None, THROUGH_UUT, silent=UNCOUNTED),
                        is_foreign_program=name == XDP,
                    )
                    for name in ("BPF a", "BPF b", "BPF c", XDP)
                ),
            ),
            ReasonKind.FOREIGN_PROGRAM,
            f"{XDP} is not netbench's and may have dropped 1,000 frames; remove it",
        ),
        (
            with_nic("ingress", replace(NIC, changed_mac=("02:00:00:00:00:01", "02:00:00:00:00:77"))),
            ReasonKind.LINK_CHANGED,
            "ingress NIC nb-in1 has the MAC address 02:00:00:00:00:77, and had 02:00:00:00:00:01 when the UUT became "
            "ready; find out what changed it (udev, NetworkManager) and run the campaign again",
        ),
        (
            arriving(
                993,
                growth("ingress NIC", OTHERHOST, "dropped", 9, THROUGH_UUT, indiscriminate=True),
                traffic=replace(TRAFFIC, dst_mac="02:00:00:00:00:01"),
            ),
            ReasonKind.LINK_CHANGED,
            "7 frames to 02:00:00:00:00:01 were dropped at the ingress NIC as frames for another MAC address; check "
            "whether the NIC still has the address 02:00:00:00:00:01",
        ),
        (
            replace(CLEAN, growths=(growth("sink NIC", "nft t c rule 4", "dropped", 7),)),
            ReasonKind.TESTER_DROPPED,
            "nft t c rule 4 dropped 7 frames at the sink NIC: a rule or queue of the tester's machine, not of "
            "the UUT; remove it",
        ),
        (
            replace(CLEAN, received=received(997), nics={**CLEAN.nics, "sink": replace(SINK, rx=997, rx_dropped=3)}),
            ReasonKind.TESTER_DROPPED,
            "3 frames were lost at the sink NIC: the tester's loss",
        ),
        (with_nic("sink", replace(SINK, up=False)), ReasonKind.LINK_DOWN, "sink NIC nb-rx1 lost its link"),
        (with_nic("source", replace(NIC, carrier_changes=2)), ReasonKind.LINK_DOWN, "source NIC nb-tx1 lost its link"),
        (
            with_nic("source", replace(NIC, carrier_changes=None)),
            ReasonKind.LINK_UNKNOWN,
            "the link of source NIC nb-tx1 was up before and after; its kernel counts no changes in between",
        ),
        (
            arriving(999, received=received(999, dropped=None)),
            ReasonKind.CAPTURE_DROPS_UNKNOWN,
            "the sink does not report its own drops: how many of the 1 missing frames the UUT lost is unknown",
        ),
        (
            replace(CLEAN, received=received(foreign=1)),
            ReasonKind.FOREIGN_FRAMES,
            "1 frames at the sink are not this stream's",
        ),
        (
            EXCHANGED,
            ReasonKind.FOREIGN_FRAMES,
            "1,000 frames at the sink are not this stream's; frames arrived, but none left by nb-tx1: is this the "
            "right source port?",
        ),
        (
            replace(CLEAN, received=received(duplicates=1), nics=counting(egress=1001, sink=1001)),
            ReasonKind.DUPLICATE_FRAMES,
            "1 frames arrived more than once",
        ),
        (
            replace(CLEAN, received=received(999), nics=counting(ingress=999, egress=999, sink=999)),
            ReasonKind.UNEXPLAINED_FRAMES,
            "1 frames are explained by no counter",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, ReasonKind) else "",
)
def test_each_reason_from_the_least_that_causes_it(evidence, kind, detail):
    assert reasons(evidence) == [Reason(kind, "s1", detail)]


def test_every_kind_of_reason_but_two_can_be_reported_apart_from_valid():
    only_suspicious = {kind for kind in ReasonKind if kind.verdict is Verdict.SUSPICIOUS}
    assert only_suspicious == {
        ReasonKind.FOREIGN_PROGRAM,
        ReasonKind.FOREIGN_FRAMES,
        ReasonKind.LATE_FRAMES,
        ReasonKind.DUPLICATE_FRAMES,
        ReasonKind.UNEXPLAINED_FRAMES,
        ReasonKind.NOT_DRAINED,
        ReasonKind.TESTER_LIMITED,
        ReasonKind.UNEVEN_PACING,
        ReasonKind.BUFFERED,
        ReasonKind.CAPTURE_DROPS_UNKNOWN,
        ReasonKind.LINK_UNKNOWN,
        ReasonKind.SOURCES_APART,
        ReasonKind.NEIGHBOUR_STOPPED_EARLY,
    }
    no_harm = {ReasonKind.SATURATED, ReasonKind.SHARE_OF_LOWER_BOUND, ReasonKind.LESS_THAN_SHARE}
    no_harm |= {ReasonKind.TOOL_DISAGREES}
    assert {kind.verdict for kind in no_harm} == {Verdict.VALID}
    assert {kind.verdict for kind in {*ReasonKind} - only_suspicious - no_harm} == {Verdict.INVALID}


def test_the_worst_verdict_wins():
    assert worst([]) is Verdict.VALID
    assert worst([Verdict.SUSPICIOUS, Verdict.VALID]) is Verdict.SUSPICIOUS
    assert worst([Verdict.SUSPICIOUS, Verdict.INVALID, Verdict.VALID]) is Verdict.INVALID


@pytest.mark.parametrize(
    ("of_source", "fault"),
    [
        ({"backpressure_s": 0.5}, None),
        ({"backpressure_s": 0.25, "descheduled_s": 0.05, "unevenness": 0.1, "errors": 7}, None),
        ({"backpressure_s": 0.249}, "the source itself is too slow: its link exerted backpressure for 0.249 s only"),
        (
            {"backpressure_s": 0.5, "descheduled_s": 0.051},
            "the source did not run for 0.051 s of that, although it had frames to send",
        ),
        (
            {"backpressure_s": 0.5, "unevenness": 0.101},
            "the source was unsteady: up to 10% of its frames ahead of or behind an even rate",
        ),
        # 900 frames should have taken 0.9 s: the link took most of the missing 0.1 s, or it did not.
        ({"frames": 900, "backpressure_s": 0.05}, None),
        (
            {"frames": 900, "backpressure_s": 0.049},
            "the source itself is too slow: its link exerted backpressure for 0.049 s only",
        ),
        (
            {"frames": 980, "backpressure_s": 0.5, "descheduled_s": 0.011},
            "the source did not run for 0.011 s of that, although it had frames to send",
        ),
    ],
)
def test_what_the_link_did_not_take_is_a_result_and_what_the_source_did_not_offer_is_none(of_source, fault):
    given = {"frames": 400, "max_lateness_s": 0.6, "max_burst_frames": 400, **of_source}
    (kind, detail), *others = [(reason.kind, reason.detail) for reason in of_load(sent(**given))]
    if fault is None:
        assert (kind, others) == (ReasonKind.SATURATED, [])  # it was late all the time, which adds nothing
        assert detail.endswith(f"; backpressure by its link for {given['backpressure_s']:.3f} s of 1.000 s")
    else:
        assert kind is ReasonKind.OFFERED_OUT_OF_TOLERANCE
        assert detail.endswith(f"; {fault}")


@pytest.mark.parametrize(("stalled_s", "expected"), [(0.01, ReasonKind.SATURATED), (0.5, ReasonKind.TESTER_DISTURBED)])
def test_what_a_disturbed_tester_did_not_offer_is_no_limit_of_the_path(stalled_s, expected):
    held_up = replace(sent(frames=400, backpressure_s=0.9), nics={}, growths=())
    guest = GuestResult(VICTIM, (account(held_up),))
    disturbance = Disturbance(1.0, (ThreadDelay("source", "afpacket", stalled_s, stalled_s, "s1"),))
    known = [guest], [[held_up]]
    found = judge_trial(trial_spec(), *known, clocks_set_ns={}, drained=True, disturbance=disturbance)
    of_load = {ReasonKind.SATURATED, ReasonKind.TESTER_DISTURBED}
    assert [reason.kind for reason in found if reason.kind in of_load] == [expected]


@pytest.mark.parametrize(
    ("first_ms", "last_ms", "machine", "missed"),
    [(0, 1000, None, ""), (0, 1200, None, "0.200"), (-300, 1000, None, "0.300"), (0, 1200, "lab", "")],
)
def test_a_neighbour_sends_during_all_the_time_of_the_victims_flows(first_ms, last_ms, machine, missed):
    beside = sent(first_ns=0, last_ns=10**9)
    guests = [GuestResult(VICTIM), GuestResult("second", (account(beside),))]
    span = FlowsSpan(first_ms * 10**6, last_ms * 10**6, machine)
    found = judge_trial(trial_spec(), guests, [[], [beside]], clocks_set_ns={}, drained=True, flows=span)
    absences = [reason.detail for reason in found if reason.kind is ReasonKind.NEIGHBOUR_STOPPED_EARLY]
    assert absences == [f"neighbour second sent nothing for {missed} s while the victim's clients ran"] * bool(missed)


def test_too_much_is_never_saturated():
    found = [reason.kind for reason in of_load(sent(frames=1100, backpressure_s=0.9))]
    assert found == [ReasonKind.OFFERED_OUT_OF_TOLERANCE]


@pytest.mark.parametrize(
    ("frames", "tolerance", "within"),
    [
        (1250, 0.25, True),
        (750, 0.25, True),
        (1251, 0.25, False),
        (749, 0.25, False),
        (1000, 0.0, True),
        (999, 0.0, False),
        (1001, 0.0, False),
    ],
)
def test_the_edges_of_tolerance(frames, tolerance, within):
    found = [reason.kind for reason in reasons(sent(frames=frames), tolerance)]
    assert (ReasonKind.OFFERED_OUT_OF_TOLERANCE not in found) is within


UNPACED = replace(CLEAN, traffic=replace(TRAFFIC, fps=None))
# One fault is one reason, or none where it is a result.
ALONE = {
    "a clean trial": (CLEAN, []),
    "loss in the UUT": (arriving(900, growth("uut", "rule", "dropped", 100)), []),
    "as late as a source may be": (sent(max_lateness_s=0.05), []),
    "late frames that cannot explain the loss": (
        arriving(800, growth("uut", "rule", "dropped", 200), sent=replace(SENT, max_lateness_s=0.06)),
        [],
    ),
    "late frames that may explain the loss": (
        arriving(890, growth("uut", "rule", "dropped", 110), sent=replace(SENT, max_lateness_s=0.06)),
        [ReasonKind.UNEVEN_PACING],
    ),
    "a source without a schedule may pause": (replace(UNPACED, sent=replace(SENT, max_lateness_s=0.1)), []),
    "but not for long": (replace(UNPACED, sent=replace(SENT, max_lateness_s=0.11)), [ReasonKind.UNEVEN_PACING]),
    # A source at its maximum rate sends against a full queue.
    "nor do its failed sends count": (replace(UNPACED, sent=replace(SENT, errors=5000, duration_s=0.1)), []),
    "refused frames that were sent in time after all": (sent(errors=5, backpressure_s=0.01), []),
    "all frames, but in too long a time": (sent(duration_s=1.7), [ReasonKind.OFFERED_OUT_OF_TOLERANCE]),
    "a generator that broke off is not also blamed for its rate": (
        sent(error="ENETDOWN", duration_s=9.0),
        [ReasonKind.GENERATOR_FAILED],
    ),
    "a sink that returns no count and no reason": (replace(CLEAN, received=Received()), [ReasonKind.CAPTURE_FAILED]),
    "one that died is not also blamed for sending nothing": (
        replace(CLEAN, sent=replace(NOTHING_SENT, error="killed by signal 9"), received=Received()),
        [ReasonKind.GENERATOR_FAILED],
    ),
    "nor one where the sink never listened": (
        replace(CLEAN, sent=NOTHING_SENT, received=Received(error="tcpdump ended with exit code 1")),
        [ReasonKind.CAPTURE_FAILED],
    ),
}


@pytest.mark.parametrize(("evidence", "found"), ALONE.values(), ids=ALONE.keys())
def test_what_is_reported_alone(evidence, found):
    assert [
        reason.kind for reason in reasons(evidence, tolerance=0.0 if evidence.traffic.fps is None else 0.01)
    ] == found


def test_each_nic_is_blamed_for_itself():
    broken = replace(CLEAN, nics={"source": None, "ingress": None, "egress": replace(NIC, up=False), "sink": SINK})
    assert [reason.detail for reason in reasons(broken)] == [
        "source NIC nb-tx1 is gone",
        "ingress NIC nb-in1 is gone",
        "egress NIC nb-out1 lost its link",
    ]


@pytest.mark.parametrize(
    ("window", "enough"),
    [
        (MeasuringWindow(1125, 0.225, 4500), ["4.5 s"]),  # 5,000 of 20,000 frames/s, the rest in a queue
        (MeasuringWindow(1125, 0.225, 301), ["1.0 s"]),
        (MeasuringWindow(1125, 0.225, 300), []),  # no more than a twentieth of the frames sent
        (MeasuringWindow(4500, 0.225, 301), []),  # it keeps up: some frames were only late at the end
        (None, []),
    ],
)
def test_loss_that_queues_have_still_to_show_is_reported_with_how_long_to_send_instead(window, enough) -> None:
    found = buffered(stream_counts(sent=6000, received=6000, duration_s=0.3, window=window))
    assert [re.findall("send for (.*?) or longer", reason.detail) for reason in found] == [[s] for s in enough]
