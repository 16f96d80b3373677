"""Where frames died, as results and the report tell it, and what that says of the paper's claim."""

from dataclasses import replace

import pytest

from netbench.model.counts import HopCount, HopLoss
from netbench.model.points import PATH
from netbench.model.trial import TrialResult
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.loss_by_place import loss_by_place
from netbench.report.page import report_page
from netbench.report.panels import styles
from netbench.report.paper_finding import claim_sentence
from netbench.report.side_colours import place_colours, side_colour
from netbench.statistics.groups import group_trials
from netbench.statistics.guest_sides import Side, side, uuts_with_guest
from netbench.statistics.outcomes import Death, fate, group_fate
from netbench.statistics.paper_finding import Finding, judge_claim
from netbench.statistics.placed_losses import UNEXPLAINED, UNKNOWN_PLACE
from tests.unit.report_page import Page, page_of, printed
from tests.unit.results_factory import campaign, guests, stream_counts, trial, victim

SUSPICIOUS = (Reason(ReasonKind.UNEXPLAINED_FRAMES, "s1", "40 frames"),)
GUEST = (HopCount("guest ingress NIC", "rx", "passed", 1),)
BEFORE, INSIDE, AFTER = "ingress tap (tx_dropped)", "guest IP layer (InDiscards)", "egress NIC"


def lossy(
    *places: tuple[str, int],
    uut: str = "kvm",
    hops: tuple[HopCount, ...] = GUEST,
    unexplained: int = 0,
    repetition: int = 1,
    load: str = "1000fps",
    reasons: tuple[Reason, ...] = (),
) -> TrialResult:
    """1,000 frames of which these died."""
    received = 1000 - sum(frames for _, frames in places) - unexplained
    lost_at = tuple(HopLoss(place, frames) for place, frames in places)
    counts = stream_counts(
        intended_fps=float(load.removesuffix("fps")),
        received=received,
        lost_at=lost_at,
        unexplained_frames=unexplained,
        hops=hops,
    )
    return trial(counts, uut=uut, repetition=repetition, load=load, reasons=reasons)


def test_every_hop_of_the_path_has_the_side_that_its_place_says() -> None:
    told = {hop: side(hop, guest=True) for hop in PATH}
    assert [hop for hop in PATH if told[hop] is Side.BEFORE] == list(PATH[: PATH.index("guest ingress NIC")])
    assert [hop for hop in PATH if told[hop] is Side.AFTER] == [
        *PATH[PATH.index("guest egress NIC") + 1 : PATH.index("capture")]
    ]
    assert {hop for hop in PATH if told[hop] is Side.INSIDE} == {
        "guest ingress NIC",
        "guest softnet",
        "guest IP layer",
        "guest",
        "guest egress queue",
        "guest egress NIC",
    }
    assert told["uut"] is Side.UNKNOWN
    assert told["capture"] is Side.TESTER


@pytest.mark.parametrize(
    ("place", "guest", "expected"),
    [
        ("bridge (between ingress NIC and ingress tap)", True, Side.BEFORE),
        ("VMM ingress (between ingress tap and guest ingress NIC)", True, Side.BEFORE),
        ("VMM egress (between guest egress NIC and egress tap)", True, Side.AFTER),
        ("uut (source NIC to sink NIC)", True, Side.UNKNOWN),
        ("a plugin's own hop (drops)", True, Side.UNKNOWN),
        ("bridge (nft drop)", False, Side.HOST),
        ("capture (dropped)", False, Side.TESTER),
        (UNEXPLAINED, False, Side.UNKNOWN),
        (UNKNOWN_PLACE, True, Side.UNKNOWN),
    ],
)
def test_a_place_is_on_the_side_of_its_hop(place: str, guest: bool, expected: Side) -> None:
    assert side(place, guest=guest) is expected


def test_sent_is_received_plus_all_that_died() -> None:
    one = lossy((AFTER, 5), (INSIDE, 20), (BEFORE, 300), unexplained=7)
    (counts,) = one.streams
    assert counts.received_frames is not None
    dropped = replace(counts, received_frames=counts.received_frames - 11, capture_dropped_frames=11)
    whole = fate([victim(one, streams=(dropped,))], guest=True)
    assert whole.deaths == (
        Death(BEFORE, Side.BEFORE, 300),
        Death(INSIDE, Side.INSIDE, 20),
        Death(AFTER, Side.AFTER, 5),
        Death("capture (dropped)", Side.TESTER, 11),
        Death(UNEXPLAINED, Side.UNKNOWN, 7),
    )
    assert whole.sent == whole.received + sum(death.frames for death in whole.deaths) == 1000
    assert whole.lost == dropped.lost_frames == 332


def test_a_guest_is_where_one_counts_or_loses_frames() -> None:
    trials = [
        lossy(uut="raw", hops=(HopCount("bridge", "nft drop", "dropped", 3),)),
        lossy(uut="counts"),
        lossy((INSIDE, 1), uut="loses", hops=()),
    ]
    assert uuts_with_guest(trials) == {"counts", "loses"}


@pytest.mark.parametrize(
    ("before", "inside", "nowhere", "finding"),
    [
        (51, 49, 0, Finding.CONFIRMED),
        (50, 50, 0, Finding.REFUTED),  # half is no majority
        (51, 0, 49, Finding.CONFIRMED),  # wherever the others died
        (40, 20, 40, Finding.OPEN),
        (10, 60, 30, Finding.REFUTED),
        (0, 0, 0, None),
    ],
)
def test_the_claim_is_judged_by_the_majority_of_lost_frames(
    before: int, inside: int, nowhere: int, finding: Finding | None
) -> None:
    places = [(BEFORE, before), (INSIDE, inside), ("uut", nowhere)]
    claims = judge_claim([lossy(*((place, frames) for place, frames in places if frames))], ["kvm"])
    assert claims.by_uut["kvm"].finding is claims.together.finding is finding


def test_the_sentence_has_the_numbers_and_names_who_does_not_agree() -> None:
    trials = [
        lossy((BEFORE, 900), uut="kvm"),
        lossy((BEFORE, 10), (INSIDE, 90), uut="xen"),
        lossy((BEFORE, 500), uut="xen", repetition=2, reasons=SUSPICIOUS),
        lossy(("bridge", 500), uut="raw", hops=()),
    ]
    claims = judge_claim(trials, ["raw", "kvm", "xen"])
    assert claim_sentence(claims) == (
        "Of 1,000 frames lost in 2 valid trials of 2 UUTs with a guest, 91.0 % died before they entered the guest,"
        " 9.0 % inside. This confirms the claim (not so: xen)."
    )
    text = page_of(campaign(trials, uuts=("raw", "kvm", "xen"))).text
    assert "xen 1 100 10.0 % 90.0 % 0 % 0 % guest IP layer (InDiscards) refuted" in text
    assert "The claim is not about UUTs on whose path no guest counts frames: raw." in text


def test_without_guests_there_is_no_claim_to_judge() -> None:
    page = page_of(campaign([lossy(("bridge", 10), uut="raw", hops=())]))
    assert "claim" not in page.ids
    assert "The claim is not about UUTs on whose path no guest counts frames: raw." in page.text


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
        "ingress tap (tx_dropped) 600 30.0 %",
        "guest IP layer (InDiscards) 100 5.0 %",
        "received 1,300 65.0 %",
        "2 valid trials, added up; left out: 1 suspicious.",
    )
    assert " ".join(steps) in text
    assert "before the guest inside the guest received" in text


def test_unexplained_frames_are_a_place_of_their_own_though_no_trial_is_valid() -> None:
    trials = [lossy((BEFORE, 100), unexplained=40, reasons=SUSPICIOUS), lossy(uut="xen", reasons=SUSPICIOUS)]
    results = campaign(trials, uuts=("kvm", "xen"))
    text = page_of(results).text
    assert "explained by no counter 40 4.0 % received 860 86.0 % 1 suspicious trial." in text
    (group, _) = group_trials(results)
    own = group_fate(group, guest=True)
    assert own is not None
    figure = loss_by_place([own], styles(["kvm"]))
    assert [(trace.name, list(trace.y)) for trace in figure.data] == [
        (f"{BEFORE}: before the guest", [10.0]),
        (UNEXPLAINED, [4.0]),
    ]
    assert {trace.marker.symbol[0] for trace in figure.data} == {"circle-open"}


def test_areas_of_the_loss_curve_add_up_to_the_loss() -> None:
    groups = [group for group in group_trials(guests()) if group.uut == "virtio"]
    fates = [own for group in groups if (own := group_fate(group, guest=True))]
    figure = loss_by_place(fates, styles(["virtio"]))
    for axis in {trace.xaxis for trace in figure.data}:
        areas = [trace for trace in figure.data if trace.xaxis == axis]
        heights = [sum(column) for column in zip(*(area.y for area in areas), strict=True)]
        offered = list(areas[0].x)
        assert offered == sorted(offered)
        sizes = {"x": 1518, "x2": 512, "x3": 64}
        of_size = [own for own in fates if own.group.frame_size == sizes[axis]]
        assert heights == pytest.approx([100 * own.lost / own.sent for own in of_size])


def test_many_places_leave_the_loss_curve_its_height() -> None:
    def drawn(places: int) -> int:
        (group,) = group_trials(campaign([lossy(*((f"{BEFORE}, by rule {number}", 1) for number in range(places)))]))
        own = group_fate(group, guest=True)
        assert own is not None
        layout = loss_by_place([own], styles(["kvm"])).layout
        assert layout.margin.t >= 20 * places / 2, "two columns, a line for each two places"
        return int(layout.height - layout.margin.t - layout.margin.b)

    assert drawn(2) == drawn(30)


def test_places_on_one_side_are_shades_of_its_colour() -> None:
    deaths = [Death(place, Side.BEFORE, 1) for place in ("bridge", "ingress tap")] + [Death(INSIDE, Side.INSIDE, 1)]
    colours = place_colours(deaths)
    assert colours["bridge"] == side_colour(Side.BEFORE)
    assert colours[INSIDE] == side_colour(Side.INSIDE)
    assert len(set(colours.values())) == 3


def test_the_summary_names_where_most_frames_of_a_uut_died() -> None:
    trials = [lossy((BEFORE, 300), (INSIDE, 100)), lossy((INSIDE, 900), repetition=2, reasons=SUSPICIOUS)]
    text = " ".join(printed(campaign(trials, uuts=("kvm",))).split())
    assert "most lost of kvm: ingress tap (tx_dropped), 75.0 % of 400" in text
    assert "most lost" not in printed(campaign([lossy(uut="raw")]))
