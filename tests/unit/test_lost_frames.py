"""Lost frames by place, in results and in the report, and their verdict on the paper's finding."""

from collections.abc import Iterable

import pytest

from netbench.model.counts import PointCount
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.figures.loss_by_place import loss_by_place_chart
from netbench.report.styles import styles
from netbench.report.tables.losses import finding_sentence
from netbench.statistics.groups import group_trials
from netbench.statistics.lost_frames import (
    CAPTURE,
    UNEXPLAINED,
    UNKNOWN_PLACE,
    Answer,
    CounterTotals,
    LossPlace,
    PlaceLoss,
    Side,
    UutCounter,
    answer,
    group_outcome,
    lost_frames_by_place,
    outcome,
    paper_finding,
    side,
    uuts_with_guest,
)
from tests.unit.points import count, loss
from tests.unit.report_page import Page, page_of, report_page
from tests.unit.results_factory import campaign, changed, neighbour, stream_counts, trial, victim

SUSPICIOUS = (Reason(ReasonKind.UNEXPLAINED_FRAMES, "s1", "40 frames"),)
GUEST = (count("guest ingress NIC", "rx", "passed", 1),)
BEFORE, INSIDE, AFTER = "ingress tap (tx_dropped)", "guest IP layer (InDiscards)", "egress NIC"


def lossy(
    *places: tuple[str, int],
    uut: str = "kvm",
    counters: tuple[PointCount, ...] = GUEST,
    unexplained: int = 0,
    repetition: int = 1,
    load: str = "1000fps",
    reasons: tuple[Reason, ...] = (),
) -> TrialResult:
    """A trial of 1,000 frames that lost these."""
    received = 1000 - sum(frames for _, frames in places) - unexplained
    lost_at = tuple(loss(place, frames) for place, frames in places)
    counts = stream_counts(
        intended_fps=float(load.removesuffix("fps")),
        received=received,
        lost_at=lost_at,
        unexplained_frames=unexplained,
        counters=counters,
    )
    return trial(counts, uut=uut, repetition=repetition, load=load, reasons=reasons)


def place(name: str) -> LossPlace:
    """The place of this name along the path through a guest."""
    (found,) = lost_frames_by_place([trial(stream_counts(received=999, lost_at=(loss(name, 1),)))])
    return found


ALONG_THE_PATH = {
    "source NIC": Side.BEFORE,
    "ingress NIC": Side.BEFORE,
    "bridge (between ingress NIC and ingress tap)": Side.BEFORE,
    "ingress tap (tx_dropped)": Side.BEFORE,
    "VMM ingress (between ingress tap and guest ingress NIC)": Side.BEFORE,
    "guest ingress NIC (rx_dropped)": Side.INSIDE,
    "guest softnet (dropped)": Side.INSIDE,
    "guest IP layer (InDiscards)": Side.INSIDE,
    "guest IP layer (OutNoRoutes)": Side.INSIDE,
    "a plugin's own point (drops)": Side.UNKNOWN,
    "uut (source NIC to sink NIC)": Side.UNKNOWN,
    "guest egress queue (dropped)": Side.INSIDE,
    "guest egress NIC (tx_dropped)": Side.INSIDE,
    "VMM egress (between guest egress NIC and egress tap)": Side.AFTER,
    "egress tap (rx_dropped)": Side.AFTER,
    "egress NIC": Side.AFTER,
    "sink NIC": Side.AFTER,
    UNEXPLAINED.name: Side.UNKNOWN,
    UNKNOWN_PLACE.name: Side.UNKNOWN,
}


def test_places_of_loss_come_in_the_order_of_the_path_each_on_its_side_of_the_guest() -> None:
    lost_at = tuple(loss(place, 1) for place in sorted(list(ALONG_THE_PATH)[:-2]))
    placed = stream_counts(received=900, lost_at=lost_at, unexplained_frames=3)
    unplaced = stream_counts(received=900, lost_at=(), unexplained_frames=None)
    places = sorted(lost_frames_by_place([trial(placed), trial(unplaced)]))
    assert {place.name: side(place, guest=True) for place in places} == ALONG_THE_PATH
    assert [place.name for place in places] == list(ALONG_THE_PATH)
    sides = {place.name: side(place, guest=False) for place in places}
    assert sides.pop(UNEXPLAINED.name) is sides.pop(UNKNOWN_PLACE.name) is Side.UNKNOWN
    assert set(sides.values()) == {Side.HOST}
    assert side(CAPTURE, guest=True) is side(CAPTURE, guest=False) is Side.TESTER


def test_losses_by_place_add_up_to_what_was_lost() -> None:
    trials = [
        trial(stream_counts("s1", sent=1000, received=900, lost_at=(loss("tap", 60), loss("guest", 40)))),
        trial(stream_counts("s1", sent=1000, received=990, lost_at=(loss("tap", 7),), unexplained_frames=3)),
        trial(stream_counts("s1", sent=1000, received=995, lost_at=(loss("tap", 1),), unexplained_frames=None)),
    ]
    places = lost_frames_by_place(trials)
    assert {place.name: frames for place, frames in places.items()} == {
        "tap": 68,
        "guest": 40,
        UNEXPLAINED.name: 3,
        UNKNOWN_PLACE.name: 4,
    }
    assert places.total() == sum(counts.lost_frames or 0 for result in trials for counts in result.streams)


def test_sent_is_received_plus_all_that_was_lost() -> None:
    one = lossy((AFTER, 5), (INSIDE, 20), (BEFORE, 300), unexplained=7)
    (counts,) = one.streams
    assert counts.received.frames is not None
    dropped = changed(counts, received_frames=counts.received.frames - 11, capture_dropped_frames=11)
    whole = outcome([victim(one, streams=(dropped,))], guest=True)
    assert whole.drops == (
        PlaceLoss(place(BEFORE), Side.BEFORE, 300),
        PlaceLoss(place(INSIDE), Side.INSIDE, 20),
        PlaceLoss(place(AFTER), Side.AFTER, 5),
        PlaceLoss(CAPTURE, Side.TESTER, 11),
        PlaceLoss(UNEXPLAINED, Side.UNKNOWN, 7),
    )
    assert whole.sent == whole.received + sum(drop.frames for drop in whole.drops) == 1000
    assert whole.lost == dropped.lost_frames == 332


def test_a_guest_is_where_one_counts_or_loses_frames() -> None:
    trials = [
        lossy(uut="raw", counters=(count("bridge", "nft drop", "dropped", 3),)),
        lossy(uut="counts"),
        lossy((INSIDE, 1), uut="loses", counters=()),
    ]
    assert uuts_with_guest(trials) == {"counts", "loses"}


@pytest.mark.parametrize(
    ("before", "inside", "nowhere", "expected"),
    [
        (51, 49, 0, Answer.CONFIRMED),
        (50, 50, 0, Answer.REFUTED),  # half is no majority
        (51, 0, 49, Answer.CONFIRMED),  # wherever the others were lost
        (40, 20, 40, Answer.OPEN),
        (10, 60, 30, Answer.REFUTED),
        (0, 0, 0, None),
    ],
)
def test_the_finding_is_judged_by_the_majority_of_lost_frames(
    before: int, inside: int, nowhere: int, expected: Answer | None
) -> None:
    places = [(BEFORE, before), (INSIDE, inside), ("uut", nowhere)]
    found = paper_finding([lossy(*((name, frames) for name, frames in places if frames))], ["kvm"], ["kvm"])
    assert answer(found.by_uut["kvm"]) is answer(found.together) is expected


def test_the_sentence_has_the_numbers_and_names_who_does_not_agree() -> None:
    trials = [
        lossy((BEFORE, 900), uut="kvm"),
        lossy((BEFORE, 10), (INSIDE, 90), uut="xen"),
        lossy((BEFORE, 500), uut="xen", repetition=2, reasons=SUSPICIOUS),
        lossy(("bridge", 500), uut="raw", counters=()),
    ]
    finding = paper_finding(trials, ["raw", "kvm", "xen"], ["kvm", "xen"])
    counted = "Of 1,000 frames lost in 2 valid trials of kvm, xen, 91.0 % were lost before they entered the guest"
    assert finding_sentence(finding) == (
        f"{counted}, 9.0 % inside: with no CPU emulated, this confirms the finding for these guests (not so: xen)."
    )
    assert "with the CPU of kvm emulated, this confirms" in finding_sentence(finding, ["kvm"])
    assert "with their CPUs emulated, this confirms" in finding_sentence(finding, ["kvm", "xen", "raw"])
    text = page_of(campaign(trials, uuts=("raw", "kvm", "xen"))).text
    assert "xen 1 100 10.0 % 90.0 % 0 % 0 % guest IP layer (InDiscards) refuted" in text
    assert "The finding does not cover UUTs without a guest that counts frames: raw." in text


def test_without_guests_there_is_no_finding_to_judge() -> None:
    page = page_of(campaign([lossy(("bridge", 10), uut="raw", counters=())]))
    assert "paper-finding" not in page.ids
    assert "The finding does not cover UUTs without a guest that counts frames: raw." in page.text


def test_a_waterfall_goes_from_sent_to_received_place_by_place() -> None:
    trials = [
        lossy((BEFORE, 250), (INSIDE, 50), load="2000fps", repetition=1),
        lossy((BEFORE, 350), (INSIDE, 50), load="2000fps", repetition=2),
        lossy((BEFORE, 999), load="2000fps", repetition=3, reasons=SUSPICIOUS),
        lossy(load="1000fps"),
    ]
    source = report_page(campaign(trials, uuts=("kvm",)))
    assert '<option value="64-2000fps" selected="selected">64 bytes, 2000fps' in source  # the highest load first
    text = Page(source).text
    steps = (
        "sent 2,000 100 %",
        "lost: ingress tap (tx_dropped), before the guest 600 30.0 %",
        "lost: guest IP layer (InDiscards), inside the guest 100 5.0 %",
        "received 1,300 65.0 %",
        "2 valid trials, added up; left out: 1 suspicious.",
    )
    assert " ".join(steps) in text


def test_unexplained_frames_are_a_place_of_their_own_though_no_trial_is_valid() -> None:
    trials = [lossy((BEFORE, 100), unexplained=40, reasons=SUSPICIOUS), lossy(uut="xen", reasons=SUSPICIOUS)]
    results = campaign(trials, uuts=("kvm", "xen"))
    text = page_of(results).text
    assert "explained by no counter 40 4.0 % received 860 86.0 % 1 suspicious trial." in text
    (group, _) = group_trials(results)
    own = group_outcome(group, guest=True)
    assert own is not None
    figure = loss_by_place_chart([own], styles(["kvm"]))
    (panel,) = figure.panels
    assert [(series.name, [mark.y for mark in series.marks]) for series in panel.series] == [
        (f"{BEFORE}: before the guest", [10.0]),
        (UNEXPLAINED.name, [4.0]),
    ]
    assert [series.style.pattern for series in panel.series] == ["", "/"]
    assert panel.x.categories == ("0.672 ?",), "of suspicious trials alone"


SHARED = (
    count("guest softnet", "dropped", "repeated", 2),
    count("guest IP layer", "ForwDatagrams", "passed", 900),
)


def counted(tap: int | None) -> tuple[PointCount, ...]:
    return (
        count("generator", "sent", "passed", 1000),
        count("ingress NIC", "rx", "passed", 1000),
        count("egress tap", "rx", "passed", 890),
        count("ingress tap", "tx_dropped", "dropped", tap),
        count("egress NIC", "tx", "passed", 890),
        count("capture", "dropped", "dropped", 0),
    )


def uut_counters(trials: Iterable[TrialResult], neighbour: str = "") -> list[UutCounter]:
    counters = CounterTotals()
    for result in trials:
        counters.add(result)
    return counters.sums["raw", neighbour].counters()


def test_counters_are_summed_over_streams_and_trials_from_source_to_sink() -> None:
    two = trial(stream_counts("s1", counters=counted(10)), stream_counts("s2", counters=counted(5)), counters=SHARED)
    one = trial(stream_counts("s1", counters=counted(1)), counters=SHARED)
    assert uut_counters([two, one]) == [
        UutCounter("ingress tap", "tx_dropped", "dropped", 16, 2),
        UutCounter("guest softnet", "dropped", "repeated", 4, 2),
        UutCounter("guest IP layer", "ForwDatagrams", "passed", 1800, 2),
        UutCounter("egress tap", "rx", "passed", 2670, 2),
    ]


def test_what_the_only_stream_shares_with_none_is_not_counted_twice() -> None:
    alone = trial(stream_counts(counters=(*counted(10), *SHARED)), counters=SHARED)
    assert {total.counter: total.frames for total in uut_counters([alone])} == {
        "tx_dropped": 10,
        "dropped": 2,
        "ForwDatagrams": 900,
        "rx": 890,
    }


def test_an_unknown_growth_is_no_zero() -> None:
    trials = [trial(stream_counts(counters=counted(10))), trial(stream_counts(counters=counted(None)))]
    assert [(total.frames, total.trials) for total in uut_counters(trials) if total.point == "ingress tap"] == [(10, 1)]
    assert "ingress tap" not in [total.point for total in uut_counters(trials[1:])]


def test_counters_of_a_neighbour_are_none_of_the_uuts() -> None:
    beside = neighbour(stream_counts("s2", counters=counted(7)), counters=SHARED)
    alone = trial(stream_counts(counters=counted(10)), counters=SHARED)
    shared = trial(stream_counts(counters=counted(10)), counters=SHARED, neighbours=(beside,))
    assert uut_counters([shared]) == uut_counters([alone])
    assert uut_counters([shared], "second")[0] == UutCounter("ingress tap", "tx_dropped", "dropped", 7, 1)
