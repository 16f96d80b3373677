"""Searches as users see them: on the terminal during and after the search, and in the report."""

import re
from dataclasses import replace

from rich.console import Console

from netbench.cli.progress import ConsoleProgress
from netbench.cli.summary import searches_table
from netbench.model.campaign import CampaignResults
from netbench.model.distributions import Spread
from netbench.model.events import BoundsNarrowed, CampaignStarted
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LimitCause, LimitKind
from netbench.model.search import LoadedDelay, SearchResult, SearchState
from netbench.report.findings import findings
from tests.unit.report_page import names_as_files_and_on_page, page_of
from tests.unit.results_factory import campaign, search_result, stream_counts, trial

FOUND = search_result(streams=("s1", "s2"), throughput=99_600.0, trials=21, seconds=14.2)
PDR = replace(
    FOUND,
    goal="PDR 0.5 %",
    state=SearchState.AT_LEAST,
    lower=200_000.0,
    upper=None,
    limited_by=LimitCause(LimitKind.SOURCE, paced_fps=200_000),
)
FAILED = replace(
    FOUND,
    uut="vm",
    state=SearchState.FAILED,
    lower=None,
    upper=None,
    throughput=None,
    why="uut-failed: dead",
)
LARGE = FrameSize.of(512)
NONE = replace(FOUND, kind_of_traffic=LARGE, state=SearchState.AT_MOST, lower=None, upper=12.5, throughput=None)
DELAY = LoadedDelay(0.5, 49_800.0, Spread(900, 2100.0, 2000, 3000, 5000, 9000, 70_000))


def searched(*found: SearchResult) -> CampaignResults:
    return replace(
        campaign([trial(stream_counts()), trial(stream_counts(), uut="vm")], uuts=("raw", "vm")), searches=found
    )


def shown(results: CampaignResults, width: int) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as capture:
        console.print(searches_table(results, results.searches))
    return capture.get()


def test_the_table_at_the_end_has_a_row_per_goal_and_reports_what_limits() -> None:
    text = shown(searched(FOUND, PDR, FAILED, NONE), 100)
    rows = [re.sub(r" +", " ", line).strip() for line in text.splitlines() if line.strip().startswith(("raw", "vm"))]
    assert rows == [
        "raw 64 NDR 99.6 … 100.0 133.9 21",
        "raw 64 PDR 0.5 % ≥ 200.0 [1] 133.9 21",
        "vm 64 NDR – [2] – 21",
        "raw 512 NDR < 0.0125 [3] – 21",
    ]
    output = " ".join(text.split())
    assert "[1] limited by the source, which can be paced at 200,000 frames/s" in output
    assert "[2] nothing measured: uut-failed: dead" in output
    assert "[3] goal missed even at the lowest load tried" in output
    assert all(len(line) <= 80 for line in shown(searched(FOUND, PDR, FAILED, NONE), 80).splitlines())


def test_lines_tell_how_bounds_narrow() -> None:
    console = Console(width=60, no_color=True)
    progress = ConsoleProgress(console)
    with console.capture() as capture:
        progress.on(CampaignStarted("lab", "ndr", None, 0, None))
        progress.on(BoundsNarrowed(replace(FOUND, state=SearchState.SEARCHING, upper=None)))
        progress.on(BoundsNarrowed(replace(FOUND, state=SearchState.SEARCHING, lower=None)))
        progress.on(BoundsNarrowed(replace(FOUND, unstable="3 searches ended far apart")))
    assert capture.get().splitlines()[1:] == [
        "  NDR: 99.6 … ? kfps",
        "  NDR: < 100.0 kfps",
        "raw/dedicated/s1+s2/64/1/NDR: 99.6 … 100.0 kfps in 21 trials, 14 s of traffic "
        "(unstable: 3 searches ended far apart)",
    ]


def test_the_report_has_bounds_and_delays_under_load() -> None:
    page = page_of(searched(replace(FOUND, delays=(DELAY,)), PDR, FAILED))
    text = page.text
    assert "Highest loads" in text
    assert "99.6 … 100.0 kfps" in text
    assert "≥ 200.0 kfps" in text
    assert "limited by the source, which can be paced at 200,000 frames/s" in text
    assert "nothing measured: uut-failed: dead" in text
    assert "50 % of NDR" in text


def test_figures_of_searches_are_files_too() -> None:
    other = replace(FOUND, scenario="shared-idle")
    files, on_page = names_as_files_and_on_page(replace(campaign(uuts=("raw", "vm")), searches=(FOUND, PDR, other)))
    assert files == on_page == ["searches-0", "searches-1"]


def test_pale_bars_of_highest_loads_are_the_bounds_of_the_search() -> None:
    text = page_of(searched(FOUND)).text
    assert "pale bars: search bounds, from the lower to the upper one" in text
    assert "95 % interval of the mean" not in text.partition("Glossary")[0]


def test_findings_of_a_search_are_its_bounds_and_what_they_leave_of_a_ratio():
    other = replace(FOUND, uut="vm", lower=49_500.0, upper=50_000.0)
    results = replace(campaign(uuts=("raw", "vm")), searches=(FOUND, PDR, other))
    (found,) = [finding for finding in findings(results) if finding.chart == "searches"]
    assert found.text == (
        "Highest load that meets NDR: raw 99.6 … 100.0 kfps. vm 49.5 … 50.0 kfps, 0.50 × raw (0.49 … 0.50). "
        "Conditions: 64-byte frames in dedicated, each stream."
    )
    again = replace(FOUND, repetition=2, lower=98_000.0, upper=98_500.0)
    elsewhere = replace(FOUND, scenario="shared-idle", streams=("s1",), kind_of_traffic=LARGE)
    (found,) = [
        finding
        for finding in findings(replace(results, searches=(FOUND, again, elsewhere)))
        if finding.chart == "searches"
    ]
    assert found.text == (
        "Highest load that meets NDR: raw 98.0 … 100.0 kfps. "
        "Conditions: 64-byte frames in dedicated, each stream, 2 searches each."
    )
    assert findings(replace(results, searches=(FAILED,)))[0].text == (
        "No search found a highest load. vm, NDR: nothing measured: uut-failed: dead."
    )
