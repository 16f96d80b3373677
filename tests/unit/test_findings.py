"""The sentences that a report begins with, from made-up results."""

import re
from dataclasses import replace
from importlib.resources import files

import pytest

from netbench.config.document import yaml_value
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.findings import findings
from tests.unit.interference_factory import small_campaign
from tests.unit.points import loss
from tests.unit.results_factory import campaign, guests, search_result, stream_counts, trial

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


CONDITIONS = "Conditions: 64-byte frames, no neighbour, n = {}."


def texts_of(trials, **more):
    """Return the text of each finding by its topic."""
    found = findings(campaign(trials, **more))
    assert len(found) <= 5
    return {finding.topic: finding.text for finding in found}


LOSSY = [*at(100_000, 100_000, 100_000, 100_000), *at(400_000, 150_000, 151_000, 149_000)]
BETTER = at(400_000, 180_000, 181_000, 179_000, uut="other")


@pytest.mark.parametrize(
    ("trials", "throughput"),
    [
        (
            [*LOSSY, *BETTER],
            "other forwards most: 121.0 ± 1.7 Mbit/s, 1.20 × raw (1.17 … 1.23). raw 100.8 ± 1.7 Mbit/s. "
            + CONDITIONS.format(3),
        ),
        (LOSSY, "raw forwards 100.8 ± 1.7 Mbit/s. " + CONDITIONS.format(3)),
        (  # the load is the limit: a lower bound, and so is what refers to it
            [*at(200_000, 200_000, 200_000), *at(400_000, 180_000, 180_100, uut="other")],
            "raw forwards most: ≥ 134.4 ± 0.1 Mbit/s (lower bound, limited by the highest load requested). "
            "other 121.0 ± 0.4 Mbit/s, ≤ 0.90 × raw (up to 0.90). " + CONDITIONS.format(2),
        ),
        (
            [*at(200_000, 200_000, 200_000), *at(200_000, 120_000, 124_000, uut="other")],
            "raw forwards most: ≥ 134.4 ± 0.1 Mbit/s (lower bound, limited by the highest load requested). "
            "other 82.0 ± 17.1 Mbit/s, ≤ 0.61 × raw (up to 0.74). " + CONDITIONS.format(2),
        ),
        (
            [*at(200_000, 150_000), *at(200_000, 180_000, uut="other")],
            "other forwards most: 121.0 Mbit/s, 1.20 × raw (one repetition, no interval). raw 100.8 Mbit/s. "
            + CONDITIONS.format(1),
        ),
        (  # all frames of several UUTs arrived at the highest load
            [
                *at(200_000, 199_900, 199_901, 199_902),
                *at(200_000, 199_950, 199_951, 199_952, uut="other"),
                *at(200_000, 150_000, 151_000, 149_000, uut="slow"),
            ],
            "other and raw forward most; the fastest is unknown. All are lower bounds, limited by the "
            "highest load requested: other ≥ 134.4 ± 0.1; raw ≥ 134.3 ± 0.1 Mbit/s. "
            "slow 100.8 ± 1.7 Mbit/s, ≤ 0.75 × raw (up to 0.76). " + CONDITIONS.format(3),
        ),
        (  # an invalid baseline
            [*at(200_000, 150_000, 150_000, reasons=LATE), *BETTER],
            "other forwards 121.0 ± 1.7 Mbit/s. Not comparable with raw, the baseline: too few valid trials for a "
            "maximum. " + CONDITIONS.format(3),
        ),
        (
            [*at(200_000, 150_000), *at(200_000, 1, 1, reasons=LATE)],
            "No UUT has a maximum. At no load were two thirds of the repetitions valid at the first attempt.",
        ),
    ],
)
def test_throughput_is_relative_to_the_first_uut(trials, throughput):
    assert texts_of(trials, uuts=("raw", "other", "slow"))["Throughput"] == throughput


def test_a_ratio_that_noise_hides_is_not_given():
    noisy = [*at(200_000, 200_000, 200_000), *at(200_000, 40_000, 140_000, uut="other")]
    assert (
        "too noisy to compare with raw (≤ 0.45 × measured, n = 2)"
        in texts_of(noisy, uuts=("raw", "other"))["Throughput"]
    )


def test_many_uuts_do_not_lengthen_the_sentence():
    names = tuple(f"uut-{number}" for number in range(9))
    trials = [result for name in names for result in at(200_000, 150_000, 151_000, uut=name)]
    assert "; 5 more UUTs forward less. " in texts_of(trials, uuts=names)["Throughput"]


def test_boots_are_part_of_the_conditions():
    one = [replace(trial, boot=1) for trial in LOSSY]
    several = [replace(trial, boot=trial.spec.repetition) for trial in LOSSY]
    assert texts_of(one)["Throughput"].endswith("n = 3, one boot: variation between boots unknown.")
    assert texts_of(several)["Throughput"].endswith("n = 3 on 3 boots.")


def test_emulated_uuts_are_compared_among_themselves_only():
    most, *others = findings(guests())
    (caveats,) = [finding for finding in others if finding.topic == "Caveats"]
    assert "virtio (emulated) forwards most among the 3 comparable UUTs: " in most.text
    assert "× virtio (emulated) (" in most.text
    assert "× raw" not in most.text
    assert caveats.text.startswith("(1) 4 of 148 planned trials are missing.")


@pytest.mark.parametrize(
    ("trials", "loss", "place"),
    [
        (
            [*LOSSY, *BETTER],
            "Loss exceeds 0.5 % from these offered loads in Mbit/s: raw between 67.2 and 268.8 (62.5 % ± 0.6 at 268.8);"
            " other at 268.8 or less (55.0 % ± 0.6 at 268.8). " + CONDITIONS.format(3),
            "100 % of 1,410,000 lost frames at uut (9 valid trials).",
        ),
        (
            at(200_000, 200_000, 200_000),
            "Loss of raw stays below 0.5 % up to 134.4 Mbit/s offered. " + CONDITIONS.format(2),
            "No frame was lost in 2 valid trials.",
        ),
        (
            [
                trial(
                    stream_counts(sent=1500, received=1500, intended_fps=2000.0, intended_frames=2000),
                    load="2000fps",
                    repetition=number,
                    reasons=(Reason(ReasonKind.SATURATED, "s1", "backpressure"),),
                )
                for number in (1, 2)
            ],
            "Backpressure limits the offered load in Mbit/s: raw 1.0. " + CONDITIONS.format(2),
            "No frame was lost in 2 valid trials.",
        ),
    ],
)
def test_where_loss_begins_and_where_frames_were_lost(trials, loss, place):
    texts = texts_of(trials, uuts=("raw", "other"))
    assert (texts["Loss"], texts["Place of loss"]) == (loss, place)


@pytest.mark.parametrize(
    ("lost", "text"),
    [
        ({"nic": 9990, "tap": 10}, "99.9 % of 10,000 lost frames at nic, 0.1 % at tap (1 valid trial)."),
        ({"nic": 7000, "tap": 3000}, "70.0 % of 10,000 lost frames at nic, 30.0 % at tap (1 valid trial)."),
        (
            {"nic": 9900, "tap": 60, "guest": 40},
            "99.0 % of 10,000 lost frames at nic (1 valid trial). Elsewhere: 0.6 % at tap; 0.4 % at guest.",
        ),
        ({"nic": 10_000}, "100 % of 10,000 lost frames at nic (1 valid trial)."),
    ],
)
def test_small_places_of_loss_are_named(lost, text):
    counts = replace(stream_counts(sent=20_000, received=10_000), lost_at=tuple(loss(*place) for place in lost.items()))
    assert texts_of([trial(counts)])["Place of loss"] == text


ALONE = at(200_000, 150_000, 151_000, 149_000)


@pytest.mark.parametrize(
    ("trials", "neighbours"),
    [
        (
            [*ALONE, *at(200_000, 0, 0, 0, scenario="heavy"), *at(200_000, 75_000, 75_100, 75_050, scenario="light")],
            "heavy costs most: it cuts the peak throughput of raw by 100 % (100 … 100 %). "
            "Conditions: 64-byte frames, n = 3.",
        ),
        (
            [
                *ALONE,
                *at(200_000, 75_000, 75_100, 75_050, scenario="heavy"),
                *at(200_000, 150_000, 151_000, 149_000, uut="other"),
                *at(200_000, 149_900, 150_900, 149_000, uut="other", scenario="heavy"),
            ],
            "heavy cuts the peak throughput of raw by 50 % (49 … 51 %). No significant change for other (changes above "
            "3 % are excluded). Conditions: 64-byte frames, n = 3.",
        ),
        (
            [*at(200_000, 150_000, 151_000), *at(200_000, 60_000, 140_000, scenario="heavy")],
            "The cost of a neighbour could not be measured. raw: too noisy to tell (n = 2).",
        ),
        (
            [
                *at(200_000, 150_000, 151_000),
                *at(200_000, 150_000, 151_000, scenario="light"),
                *at(200_000, 60_000, 140_000, scenario="heavy"),
            ],
            "No significant cost of a neighbour was found. raw: changes above 7 % are excluded, too noisy to tell "
            "(n = 2) beside heavy.",
        ),
    ],
)
def test_the_cost_of_neighbours(trials, neighbours):
    assert texts_of(trials, uuts=("raw", "other"))["Neighbours"] == neighbours


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
    text = texts_of([*low_only, *both])["Neighbours"]
    assert text.startswith("The cost of a neighbour could not be measured. raw: not measurable: too few valid trials")


@pytest.mark.parametrize(
    ("trials", "caveats"),
    [
        (
            at(200_000, 200_000, 200_000),
            "Throughput of raw is a lower bound (≥), limited by the highest load requested: measure higher loads "
            "(--set loads=…,max).",
        ),
        (
            [
                trial(
                    stream_counts(sent=5000, received=5000, intended_fps=None, intended_frames=None),
                    load="max",
                    repetition=number,
                )
                for number in (1, 2)
            ],
            "Throughput of raw is a lower bound (≥), limited by the source: use a faster source (another generator, or "
            "more CPUs).",
        ),
        (at(200_000, 150_000), "The scatter is unknown (n = 1): measure three repetitions or more."),
        (
            [*at(200_000, 150_000, 151_000), *at(200_000, 60_000, 140_000, scenario="heavy")],
            "Intervals of raw are wider than ±10 %, so smaller costs of a neighbour go undetected: measure 50 "
            "repetitions or more (--set repetitions=50) or longer trials.",
        ),
        (
            [*LOSSY, *at(300_000, 1, reasons=LATE)],
            "1 of 7 trials is not valid (offered-out-of-tolerance) and excluded. Another run may have another result. "
            "Keep the machine idle (`--wait` waits for other campaigns), or request loads that the source can send.",
        ),
    ],
)
def test_caveats_name_effect_cause_and_remedy(trials, caveats):
    assert texts_of(trials)["Caveats"] == caveats


@pytest.mark.parametrize(
    ("trials", "planned", "text"),
    [
        (
            at(200_000, 150_000, 150_000, reasons=LATE),
            2,
            "No results: none of 2 measured trials is valid, most often because of offered-out-of-tolerance (2 trials)."
            " Remedy: keep the machine idle (`--wait` waits for other campaigns), or request loads that the source can "
            "send.",
        ),
        ([], 12, "No results yet: no trial was measured, 12 are planned."),
    ],
)
def test_without_a_valid_trial_the_only_finding_is_why(trials, planned, text):
    (finding,) = findings(campaign(trials, planned=planned))
    assert (finding.chart, finding.text) == ("verdicts", text)


def test_each_finding_names_its_section():
    sections = {finding.topic: finding.chart for finding in findings(small_campaign())}
    names = {"Throughput": "maximum", "Neighbours": "isolation", "Loss": "loss", "Place of loss": "places"}
    assert {topic: sections[topic] for topic in names} == names
    assert list(sections)[:4] == ["Throughput", "Neighbours", "Loss", "Caveats"], "the first screen shows these"


def test_loads_of_an_unstable_search_are_not_shares():
    unstable = {"goal": "maximum", "loss_ratio": 0.05, "width": 0.05, "unstable": "x", "for_maxima": True}
    found = search_result(lower=None, upper=None, **unstable)
    results = replace(campaign(LOSSY), maxima_searches=(found,))
    (loads,) = [finding for finding in findings(results) if finding.topic == "Loads"]
    assert loads.text.startswith("Loads of raw are not exact shares")
    assert "Loads" not in texts_of(LOSSY)


def test_a_sentence_has_25_words_at_most():
    data = yaml_value(files("netbench.report").joinpath("sentences.yaml").read_text())
    texts = [text for group, entries in data.items() if group != "sections" for text in entries.values()]
    texts += [section.get("lead", "") for section in data["sections"].values()]
    sentences = [sentence for text in texts for sentence in re.split(r"(?<=[.:;]) ", text)]
    assert [sentence for sentence in sentences if len(sentence.split()) > 25] == []
