"""The section of the report about stability over time, and its lines on the console."""

import io
import re
import sys
from dataclasses import replace

from rich.console import Console

from netbench.cli.summary import summary_table
from tests.unit.report_page import report_page
from tests.unit.results_factory import campaign, stream_counts, trial
from tests.unit.steadiness_factory import Made, exact

DRIFTING = Made(drift=-0.05)


def summary(results):
    text = io.StringIO()
    Console(file=text, width=200).print(summary_table(results))
    return text.getvalue()


def test_drift_is_reported_in_the_section_in_the_warnings_and_on_the_console():
    results = DRIFTING.campaign()
    page = report_page(results)
    assert "<h2>Stability</h2>" in page
    assert "<b>drift</b>: UUT one: the throughput drifted by −" in page
    assert "UUT other: the throughput drifted" not in page
    assert "drift of one over the campaign: −" in summary(results)
    assert "drift of other" not in summary(results)


def test_a_steady_campaign_reports_what_can_be_excluded_and_warns_of_nothing():
    page = report_page(Made().campaign())
    section = page[page.index('id="steadiness"') :]
    assert re.search(r"none above \d", section)
    assert "the throughput drifted" not in page


def test_outliers_are_counted_and_part_of_their_mean():
    made = replace(DRIFTING, drift=0.0, scatter=exact, uuts=("one",), sizes=(64,), loads=(100_000,))
    trials = made.trials()
    slow = stream_counts(sent=100_000, received=60_000, intended_fps=1e5, intended_frames=100_000)
    trials[4] = replace(trials[4], guests=(replace(trials[4].victim, streams=(slow,)),))
    results = campaign(trials, uuts=made.uuts)
    page = report_page(results)
    assert "Outliers: 1 valid trial in 1 cell. Tested cells, with 5 valid trials or more: 1 " in page
    assert "outliers, included in the means: 1 trial" in summary(results)


def calls_for(repetitions):
    """Return the number of function calls for a report of UUTs that forward all offered frames."""
    results = Made(loads=(10_000, 20_000), sizes=(64,), repetitions=repetitions, one_boot=True).campaign()
    called = 0

    def count(_frame, event, _what):
        nonlocal called
        called += event == "call"

    sys.setprofile(count)
    try:
        report_page(results)
    finally:
        sys.setprofile(None)
    return called


def test_what_is_asked_of_a_trial_does_not_depend_on_how_many_others_there_are():
    report_page(campaign([trial(stream_counts())]))  # loads what is loaded only once
    few, some, many = map(calls_for, (50, 100, 150))
    assert many - some < 1.2 * (some - few)
