"""The sentences that a report begins with, from made-up results."""

import re
from dataclasses import replace

import pytest

from netbench.model.search import SearchResult, SearchState
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.findings import findings
from tests.unit.interference_factory import small_campaign
from tests.unit.results_factory import campaign, comparison, guests, stream_counts, trial

LATE = (Reason(ReasonKind.OFFERED_OUT_OF_TOLERANCE, "s1", "offered 1,800 of 2,000"),)


def at(load, *received, uut="raw", scenario="dedicated", reasons=()):
    """Return trials of 1 s at a load in frames/s, a repetition for each number received."""
    return [
        trial(
            stream_counts(sent=load, received=frames, intended_fps=float(load), intended_frames=load),
            uut=uut,
            scenario=scenario,
            load=f"{load}fps",
            repetition=number,
            reasons=reasons,
        )
        for number, frames in enumerate(received, start=1)
    ]


def said(trials, **more):
    found = findings(campaign(trials, **more))
    assert len(found) <= 5
    assert all(finding.text.endswith(".") and finding.text.count(". ") == 0 for finding in found), "one sentence each"
    return [(finding.chart, finding.text) for finding in found]


LOSSY = [*at(100_000, 100_000, 100_000, 100_000), *at(400_000, 150_000, 151_000, 149_000)]
BETTER = at(400_000, 180_000, 181_000, 179_000, uut="other")


def test_who_forwards_how_much_relative_to_the_first_uut_where_loss_begins_and_where_frames_were_lost():
    (most, text), (loss, begins), (places, lost) = said([*LOSSY, *BETTER], uuts=("raw", "other"))
    assert (most, loss, places) == ("maximum", "loss", "places")
    assert text == (
        "Of 64-byte frames, alone, other forwards the most, 121.0 ± 1.7 Mbit/s,"
        " 120 % (117 … 123 %) of raw (100.8 ± 1.7 Mbit/s) (n = 3)."
    )
    assert begins == (
        "Loss begins to exceed 0.5 % between 67.2 and 268.8 Mbit/s offered for raw (62.5 % ± 0.6 at 268.8);"
        " at 268.8 Mbit/s offered or less for other (55.0 % ± 0.6 at 268.8) (64-byte frames, n = 3)."
    )
    assert lost == "Of 1,410,000 frames lost in 9 valid trials, 100 % were lost at uut."


def test_one_uut_has_nothing_to_be_relative_to():
    (_, text), *_ = said(LOSSY)
    assert text == "Of 64-byte frames, alone, raw forwards 100.8 ± 1.7 Mbit/s (n = 3)."


def test_a_maximum_that_the_load_asked_limits_is_a_lower_bound_and_so_is_what_refers_to_it():
    (_, text), (_, begins), _, (chart, unsaid) = said(
        [*at(200_000, 200_000, 200_000), *at(400_000, 180_000, 180_100, uut="other")], uuts=("raw", "other")
    )
    assert "raw forwards the most, ≥ 134.4 ± 0.1 Mbit/s, not saturated: limited by the load asked" in text
    assert "other 121.0 ± 0.4 Mbit/s, ≤ 90 % (up to 90 %) of raw (n = 2)" in text
    assert begins.endswith("; no more than 0.5 % is lost by raw, up to 134.4 Mbit/s offered (64-byte frames, n = 2).")
    assert chart == "maximum"
    assert unsaid == (
        "The throughput of raw (marked ≥) is a lower bound, limited by the load asked: measure higher loads"
        " (--set loads=…,max)."
    )


def test_where_nothing_is_lost_up_to_which_load_is_said():
    _, (_, begins), (_, lost), _ = said(at(200_000, 200_000, 200_000))
    assert begins == "No more than 0.5 % is lost by raw, up to 134.4 Mbit/s offered (64-byte frames, n = 2)."
    assert lost == "No frame was lost in 2 valid trials."


def test_a_saturated_source_is_said_to_be_the_limit():
    full = [
        trial(
            stream_counts(sent=5000, received=5000, intended_fps=None, intended_frames=None), load="max", repetition=n
        )
        for n in (1, 2)
    ]
    (_, text), *_, (_, unsaid) = said(full)
    assert "not saturated: limited by the source" in text
    assert "use a faster source" in unsaid


def test_a_link_that_pushes_back_takes_no_more():
    held = (Reason(ReasonKind.SATURATED, "s1", "held up"),)
    counts = stream_counts(sent=1500, received=1500, intended_fps=2000.0, intended_frames=2000)
    (_, text), (_, begins), *_ = said([trial(counts, load="2000fps", repetition=n, reasons=held) for n in (1, 2)])
    assert "≥" not in text
    assert "The link of raw takes no more than 1.0 Mbit/s (" in begins


def test_of_single_repetitions_nothing_is_said_to_be_certain():
    (_, text), *_, (chart, unsaid) = said(
        [*at(200_000, 150_000), *at(200_000, 180_000, uut="other")], uuts=("raw", "other")
    )
    assert "120 % of raw (one repetition, no interval) (100.8 Mbit/s) (n = 1)" in text
    assert "he scatter is unknown, as n = 1: measure three repetitions or more" in unsaid
    assert chart == "results"


def test_two_repetitions_that_scatter_tell_no_ratio_and_how_many_would():
    heavy = at(200_000, 60_000, 140_000, scenario="cpu-heavy")
    *_, (chart, costs), (_, unsaid) = said([*at(200_000, 150_000, 151_000), *heavy])
    assert (chart, costs) == (
        "isolation",
        "No significant cost of a neighbour was found; raw: too noisy to tell (n = 2).",
    )
    assert "maller costs of a neighbour are within the intervals of raw: measure 50 repetitions or more" in unsaid


def test_a_bound_has_the_limit_that_there_is_and_none_of_two_repetitions_that_tell_nothing():
    (_, text), *_ = said(
        [*at(200_000, 200_000, 200_000), *at(200_000, 120_000, 124_000, uut="other")], uuts=("raw", "other")
    )
    assert "other 82.0 ± 17.1 Mbit/s, ≤ 61 % (up to 74 %) of raw" in text
    (_, text), *_ = said(
        [*at(200_000, 200_000, 200_000), *at(200_000, 40_000, 140_000, uut="other")], uuts=("raw", "other")
    )
    assert "too noisy to compare with raw (≤ 45 % measured, n = 2)" in text


def test_of_those_that_forwarded_everything_at_the_highest_load_none_is_said_to_be_the_best():
    (_, text), *_ = said(
        [
            *at(200_000, 199_900, 199_901, 199_902),
            *at(200_000, 199_950, 199_951, 199_952, uut="other"),
            *at(200_000, 150_000, 151_000, 149_000, uut="slow"),
        ],
        uuts=("raw", "other", "slow"),
    )
    assert text == (
        "Of 64-byte frames, alone, other and raw forward the most, ≥ 134.4 ± 0.1 and ≥ 134.3 ± 0.1 Mbit/s, not"
        " saturated: limited by the load asked, so which of them could more is not known; slow 100.8 ± 1.7 Mbit/s,"
        " ≤ 75 % (up to 76 %) of raw (n = 3)."
    )


def test_a_neighbour_that_takes_everything_costs_most():
    heavy = [*at(200_000, 0, 0, 0, scenario="cpu-heavy"), *at(200_000, 75_000, 75_100, 75_050, scenario="cpu-light")]
    texts = dict(said([*at(200_000, 150_000, 151_000, 149_000), *heavy]))
    assert texts["isolation"].startswith("cpu-heavy costs most: ")
    assert "costs most: it cuts the peak throughput of raw by 100 % (100 … 100 %)" in texts["isolation"]


def test_whom_it_costs_nothing_is_said_apart_from_whom_it_does():
    raw = [*at(200_000, 150_000, 151_000, 149_000), *at(200_000, 75_000, 75_100, 75_050, scenario="cpu-heavy")]
    other = [
        *at(200_000, 150_000, 151_000, 149_000, uut="other"),
        *at(200_000, 149_900, 150_900, 149_000, uut="other", scenario="cpu-heavy"),
    ]
    texts = dict(said([*raw, *other], uuts=("raw", "other")))
    assert re.fullmatch(
        r"cpu-heavy cuts the peak throughput of raw by 50 % \(49 … 51 %\); no significant change for other "
        r"\(changes above \d % are excluded\) \(64-byte frames, n = 3\)\.",
        texts["isolation"],
    ), texts["isolation"]


def test_a_change_that_can_be_excluded_of_one_neighbour_is_none_of_another():
    light = at(200_000, 150_000, 151_000, scenario="cpu-light")
    heavy = at(200_000, 60_000, 140_000, scenario="cpu-heavy")
    *_, (_, costs), _ = said([*at(200_000, 150_000, 151_000), *light, *heavy])
    assert costs.endswith("raw: changes above 7 % are excluded, too noisy to tell (n = 2) beside cpu-heavy.")


def test_an_invalid_baseline_leaves_numbers_that_are_relative_to_nothing():
    bad = at(200_000, 150_000, 150_000, reasons=LATE)
    heavy = [*at(200_000, 180_000, 181_000, uut="other", scenario="cpu-heavy")]
    (_, text), *_, (_, unsaid) = said([*bad, *BETTER, *heavy], uuts=("raw", "other"))
    assert text == (
        "Of 64-byte frames, alone, other forwards 121.0 ± 1.7 Mbit/s; nothing is relative to raw, the"
        " baseline, as it has too few valid trials for a maximum (n = 3)."
    )
    assert "2 of 7 trials are not valid (offered-out-of-tolerance) and excluded" in unsaid


@pytest.mark.parametrize("scenario", ["dedicated", "cpu-heavy"])
def test_a_ratio_is_of_loads_that_are_valid_on_both_sides_whichever_side_is_not(scenario):
    """One side has only low loads left: it follows neither that it is slower nor that it is faster."""
    low_only = [
        *at(50_000, 50_000, 50_000, 50_000, scenario=scenario),
        *at(400_000, 150_000, 150_000, 150_000, scenario=scenario, reasons=LATE),
    ]
    other = "cpu-heavy" if scenario == "dedicated" else "dedicated"
    both = [
        *at(50_000, 50_000, 50_000, 50_000, scenario=other),
        *at(400_000, 150_000, 151_000, 149_000, scenario=other),
    ]
    texts = dict(said([*low_only, *both]))
    assert texts["isolation"].startswith("No significant cost of a neighbour was found; raw: not measurable:")
    assert "too few valid trials" in texts["isolation"]


def test_the_neighbour_that_costs_most_and_what_it_leaves():
    texts = {finding.chart: finding.text for finding in findings(small_campaign())}
    assert texts["isolation"] == (
        "network-50 costs most: it cuts the peak throughput of kvm by 50 % (48 … 52 %) (64-byte frames, n = 2)."
    )


def test_without_a_load_that_counts_there_is_no_maximum_and_it_says_so():
    trials = [*at(200_000, 150_000), *at(200_000, 1, 1, reasons=LATE)]
    (chart, text), *_ = said(trials)
    assert (chart, text) == (
        "maximum",
        "No UUT has a maximum, as at no load two thirds of the repetitions were valid at the first attempt.",
    )


def test_without_a_valid_trial_one_sentence_says_so_and_what_helps():
    assert said(at(200_000, 150_000, 150_000, reasons=LATE)) == [
        (
            "verdicts",
            "No results: none of 2 measured trials is valid, most often for offered-out-of-tolerance"
            " (2 trials); request loads that the source can send, or give it its own CPU.",
        )
    ]
    assert said([], planned=12) == [("verdicts", "No results yet: no trial has been measured, 12 are planned.")]


def test_emulated_uuts_are_relative_to_those_of_their_own_kind_alone():
    most, *_, unsaid = findings(guests())
    assert "e1000 (emulated)" in most.text
    assert "of raw" not in most.text
    assert "of virtio (emulated)" in most.text
    assert "virtio (emulated) forwards the most of the 3 like it, " in most.text
    assert str(unsaid).startswith("Caveats: (1) 4 of 148 planned trials are missing")


def test_many_uuts_make_no_longer_a_sentence():
    names = tuple(f"uut-{number}" for number in range(9))
    trials = [result for name in names for result in at(200_000, 150_000, 151_000, uut=name)]
    (_, text), *_ = said(trials, uuts=names)
    assert "and 5 more UUTs less" in text


def test_a_whole_campaign_has_five_findings_at_most():
    results = comparison(repetitions=2)
    assert 3 <= len(findings(results)) <= 5
    assert findings(replace(results, planned_trials=len(results.trials)))[0] == findings(results)[0]


def test_loads_of_an_unstable_search_are_said_to_be_no_shares():
    found = SearchResult(
        "raw", "dedicated", ("s1",), 64, 1, "mlrsearch", "maximum", 0.05, SearchState.FOUND, 0.05, unstable="x"
    )
    results = replace(campaign(LOSSY), maxima_searches=(replace(found, for_maxima=True),))
    (loads,) = [finding for finding in findings(results) if finding.topic == "Loads"]
    assert loads.text.startswith("Loads of raw are shares of a maximum whose search was unstable")
    assert [finding for finding in findings(campaign(LOSSY)) if finding.topic == "Loads"] == []


def test_one_boot_is_said_to_tell_nothing_of_the_next():
    one = [replace(trial, boot=1) for trial in LOSSY]
    several = [replace(trial, boot=trial.spec.repetition) for trial in LOSSY]
    assert "(n = 3, one boot: variation between boots unknown)." in findings(campaign(one))[0].text
    assert "(n = 3 on 3 boots)." in findings(campaign(several))[0].text
