"""The report in a real browser, without a network: is everything drawn, readable and saved, is the console quiet?"""

import csv
import io
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.figures.throughput import throughput_chart
from netbench.report.model import ReportModel
from netbench.report.page import write_report
from tests.unit.interference_factory import paper_campaign
from tests.unit.results_factory import MANIFEST, campaign, comparison, guests, stream_counts, trial

pytestmark = pytest.mark.chromium

Browse = Callable[..., subprocess.CompletedProcess[str]]
_QUIET_AND_OFFLINE = """--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-sync
  --disable-background-networking --disable-component-update --enable-logging=stderr --v=0
  --virtual-time-budget=3000000 --window-size=1300,4000"""

PROBE = f"""
<pre id="probe"></pre>
<script>
{Path(__file__).with_name("probe.js").read_text()}
</script>
"""


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open an address in headless Chromium; returns its output, including the messages of the page's console."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs headless Chromium: apt-get install chromium")

    def run(address: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                chromium,
                *_QUIET_AND_OFFLINE.split(),
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={tmp_path / 'browser'}",
                *arguments,
                address,
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    return run


def seen_in(
    browse: Browse, results: CampaignResults, tmp_path: Path, *arguments: str, choices: str = ""
) -> dict[str, Any]:
    """Open the report of some results with the probe in it; its console must be quiet."""
    return seen_on(browse, probed_page(results, tmp_path), *arguments, choices=choices)


def probed_page(results: CampaignResults, directory: Path) -> Path:
    """The report of some results with the probe in it."""
    page = directory / "probed.html"
    write_report(results, page)
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    return page


def seen_on(browse: Browse, page: Path, *arguments: str, choices: str = "") -> dict[str, Any]:
    """The findings of the probe on a page, whose console must be quiet."""
    result = browse(page.as_uri() + choices, "--dump-dom", *arguments)
    assert [line for line in result.stderr.splitlines() if "CONSOLE" in line] == []
    probe = re.search(r'<pre id="probe">(.+?)</pre>', result.stdout, re.S)
    assert probe is not None
    seen: dict[str, Any] = json.loads(unescape(probe[1]))
    assert "error" not in seen, seen["error"]
    assert seen["faint"] == []
    assert (seen["unlabelled"], seen["undrawn"]) == (0, 0)
    return seen


def test_every_mark_is_drawn_and_choices_apply_to_the_whole_page(browse: Browse, tmp_path: Path) -> None:
    results = comparison(sources=(1, 2), repetitions=2)
    model = ReportModel.of(results)
    first, second = model.views
    chart = throughput_chart(first.groups, model.styles)
    seen = seen_in(browse, results, tmp_path)
    assert seen["panels"] == 4 + 4 + 4  # throughput, the most of it, loss; one for each frame size
    doubtful = [trial for group in first.groups for trial in (*group.suspicious, *group.invalid)]
    assert doubtful
    means = sum(1 for group in first.groups if group.valid)
    assert seen["marks"] == 2 * (means + sum(1 for trial in doubtful if trial.throughput_fps is not None))
    assert seen["names"] == ["throughput-1-source.csv", "throughput-1-source.svg"]
    columns, *rows = csv.reader(io.StringIO(seen["text/csv"]))
    names, numbers = chart.table
    assert columns == names
    assert [[_number(cell) for cell in row] for row in rows] == numbers
    assert seen["image/svg+xml"].count("<svg") >= 1
    assert seen["hover"].count(" kfps") >= 2, "one tooltip for all UUTs"
    assert seen["zoomed"]
    assert seen["axesAtFirst"] == ["linear", "Throughput [Mbit/s, L1]"]
    assert seen["axes"] == ["log", "Throughput [thousand frames/s]"]
    most = max(group.throughput_fps.mean for group in first.groups if group.throughput_fps)
    assert seen["largest"] == pytest.approx(most / 1000, rel=0.01)
    assert len(seen["ticks"]) >= 4
    assert seen["after"] == [second.name]
    assert len(seen["picked"]) == 2
    assert seen["picked"][0] == "64-max"
    choices = dict(part.split("=") for part in seen["hashAfter"].lstrip("#").split("&") if "=" in part)
    assert (choices["unit"], choices["axis"], choices["view"]) == ("kfps", "log", second.name)
    assert seen["picked"][0] in choices.values()
    assert seen["pageWidth"] <= 1300


def test_a_click_in_a_legend_hides_a_uut_everywhere_and_a_double_click_isolates_it(
    browse: Browse, tmp_path: Path
) -> None:
    seen = seen_in(browse, comparison(sizes=(64,), sources=(1,), repetitions=2), tmp_path)
    assert len(seen["hidden"]) == 3
    assert all(groups == ["raw"] for groups in seen["hidden"])
    assert seen["hash"] == "#hide=raw"
    assert seen["shownAgain"] == []
    assert seen["isolated"] == ["raw"]


def test_the_address_brings_choices_back(browse: Browse, tmp_path: Path) -> None:
    results = comparison(sizes=(64,), sources=(1,), repetitions=2)
    seen = seen_in(browse, results, tmp_path, choices="#loss&unit=kfps&axis=log&hide=raw,xen")
    assert seen["axesAtFirst"] == ["log", "Throughput [thousand frames/s]"]
    assert seen["hiddenAtFirst"] == ["raw", "xen"]


def _number(cell: str) -> str | float | None:
    """The value of a cell of a CSV file."""
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


@pytest.fixture(scope="module")
def whole_paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a campaign like the paper's."""
    results = paper_campaign(emulated=("kvm", "xen"), mishaps=False, repetitions=2)
    return probed_page(results, tmp_path_factory.mktemp("paper"))


@pytest.mark.parametrize(("width", "columns"), [(420, 1), (1300, 2), (2000, 3)])
def test_the_whole_paper_fits_any_width_without_texts_on_each_other(
    browse: Browse, whole_paper: Path, width: int, columns: int
) -> None:
    seen = seen_on(browse, whole_paper, f"--window-size={width},4000")
    assert seen["overlaps"] + seen["overlapsAfter"] == []
    assert seen["columns"] >= columns
    # Headless Chromium has no window of less than 500 pixels.
    assert seen["pageWidth"] <= max(width, 500)


def test_a_dark_page_is_as_readable_and_saves_for_paper(browse: Browse, tmp_path: Path) -> None:
    seen = seen_in(browse, guests(), tmp_path, "--blink-settings=preferredColorScheme=0")
    assert seen["background"] == "rgb(22, 25, 28)"
    assert seen["ink"] == "#e8eaec"
    assert seen["onPaper"] == ["700 #1d2124"], "the width of a page, and its colours"
    assert "rgb(255, 255, 255)" in seen["image/svg+xml"]
    assert "rgb(22, 25, 28)" not in seen["image/svg+xml"]


def test_it_prints_whole_figures_on_few_pages(browse: Browse, tmp_path: Path) -> None:
    page, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    write_report(comparison(sizes=(64, 1500), sources=(1,), repetitions=2), page)
    browse(page.as_uri(), f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= 4


@pytest.mark.parametrize(
    ("results", "panels"),
    [
        (campaign(planned=12, manifest={**MANIFEST, "finished": None, "after": None}), 0),
        (campaign([trial(stream_counts(), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),))]), 3),
        (campaign([trial(streams=("s1",), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),))]), 3),
    ],
    ids=["no trials", "only an invalid trial", "nothing counted"],
)
def test_poor_campaigns_give_a_quiet_page(
    browse: Browse, tmp_path: Path, results: CampaignResults, panels: int
) -> None:
    assert seen_in(browse, results, tmp_path)["panels"] == panels


def test_names_with_markup_do_not_reach_the_page_as_markup(browse: Browse, tmp_path: Path) -> None:
    name = "</script><script>console.log('ran')</script><b>&amp;"
    reasons = (Reason(ReasonKind.FOREIGN_FRAMES, name, name),)
    trials = [trial(stream_counts(name), uut=name), trial(stream_counts(name), uut=name, reasons=reasons)]
    seen = seen_in(browse, campaign(trials, uuts=(name,)), tmp_path)
    assert seen["panels"] == 3
