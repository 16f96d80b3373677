"""The report in a real browser, without a network: are the charts drawn, is the console quiet?"""

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
from netbench.report.page import write_report
from netbench.statistics.groups import best_groups, group_trials
from netbench.statistics.lost_frames import group_outcome
from tests.unit.interference_factory import paper_campaign
from tests.unit.results_factory import MANIFEST, campaign, comparison, guests, stream_counts, trial

pytestmark = pytest.mark.chromium

Browse = Callable[..., subprocess.CompletedProcess[str]]

# Added to a copy of the page: what a reader would see, before and after choosing the second view.
PROBE = """
<pre id="probe"></pre>
<script>
const many = selector => document.querySelectorAll(selector).length;
const shown = () => [...document.querySelectorAll(".view")].filter(part => part.offsetHeight)
  .map(part => part.dataset.view);
const widths = () => [...document.querySelectorAll(".js-plotly-plot")].filter(chart => chart.offsetHeight)
  .map(chart => Math.abs(chart.querySelector(".main-svg").getBoundingClientRect().width - chart.offsetWidth));
// Notes about emulation that are wholly inside their chart and below its panels.
const notes = () => [...document.querySelectorAll(".js-plotly-plot .annotation")].filter(note => {
  if (!note.textContent.includes("emulated")) return false;
  const chart = note.closest(".js-plotly-plot");
  const [inner, outer] = [note, chart].map(part => part.getBoundingClientRect());
  const panels = [...chart.querySelectorAll(".plot, [class$='title']")].map(part => part.getBoundingClientRect());
  return inner.width > 0 && inner.left >= outer.left && inner.right <= outer.right && inner.bottom <= outer.bottom
    && panels.every(panel => panel.bottom <= inner.top);
}).length;
// Pairs of texts in the same visible chart that lie on each other.
const overlaps = () => {
  const found = [];
  for (const chart of document.querySelectorAll(".js-plotly-plot")) {
    if (!chart.offsetHeight) continue;
    const texts = [...chart.querySelectorAll(
      ".xtick text, .ytick text, [class^='g-x'] text, [class^='g-y'] text, .annotation, .legendtext")];
    const boxes = texts.map(text => [text.textContent, text.getBoundingClientRect()]).filter(([, box]) => box.width);
    boxes.forEach(([text, one], place) => boxes.slice(place + 1).forEach(([other, two]) => {
      const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
      const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
      if (wide > 1 && high > 1) found.push(`${chart.id}: ${text} / ${other}`);
    }));
  }
  return found;
};
// Charts that something below them on the page covers.
const covered = () => [...document.querySelectorAll(".js-plotly-plot")].filter(chart => chart.offsetHeight
  && chart.querySelector(".main-svg").getBoundingClientRect().bottom
    > chart.closest(".figure").getBoundingClientRect().bottom + 1).length;
addEventListener("load", () => {
  const seen = {
    charts: many(".js-plotly-plot .main-svg:first-child"),
    visible: [...document.querySelectorAll(".js-plotly-plot")].filter(chart => chart.offsetHeight).length,
    points: many("[id^=figure-throughput] .points path") + many("[id^=figure-loss] .points path"),
    bars: many(".barlayer .point path"),
    bands: many(".scatterlayer .errorbar .yerror") + many(".barlayer .errorbar .yerror"),
    notes: notes(),
    pageWidth: document.documentElement.scrollWidth,
    overlaps: overlaps(),
    covered: covered(),
    columns: new Set([...document.querySelectorAll("[id^=figure-throughput-view-0] .gridlayer")]
      .map(grid => Math.round(grid.getBoundingClientRect().left))).size,
    before: shown(),
  };
  document.querySelector('.choice button[data-view="view-1"]')?.click();
  seen.after = shown();
  for (const list of document.querySelectorAll("select[data-pick]")) {
    list.selectedIndex = list.options.length - 1;
    list.dispatchEvent(new Event("change", {bubbles: true}));
  }
  seen.picked = [...document.querySelectorAll(".picked")].filter(part => part.offsetHeight)
    .map(part => part.dataset.value);
  seen.misfit = Math.max(0, ...widths());
  document.getElementById("probe").textContent = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a file in headless Chromium; what it printed, the messages of the page's console among it."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("needs headless Chromium: apt-get install chromium")

    def run(page: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [
                chromium,
                "--headless",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-quic",
                "--no-first-run",
                "--disable-background-networking",
                "--disable-component-update",
                "--disable-sync",
                "--host-resolver-rules=MAP * ~NOTFOUND",
                f"--user-data-dir={tmp_path / 'browser'}",
                "--enable-logging=stderr",
                "--v=0",
                "--virtual-time-budget=20000",
                "--window-size=1366,4000",
                *arguments,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    return run


def seen_in(browse: Browse, results: CampaignResults, tmp_path: Path, width: int = 1366) -> dict[str, Any]:
    """Open the report of some results with the probe in it; its console must be quiet."""
    page = tmp_path / "probed.html"
    write_report(results, page)
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    result = browse(page, "--dump-dom", f"--window-size={width},4000")
    assert [line for line in result.stderr.splitlines() if "CONSOLE" in line] == []
    probe = re.search(r'<pre id="probe">(.+?)</pre>', result.stdout)
    assert probe is not None
    seen: dict[str, Any] = json.loads(unescape(probe[1]))
    return seen


def splits(results: CampaignResults) -> int:
    """How many loss curves are split by place: one per scenario, number of sources and UUT that lost anything."""
    groups = group_trials(results)
    lost = [group for group in groups if (own := group_outcome(group, guest=True)) is not None and own.drops]
    return len({(group.scenario, group.sources, group.uut) for group in lost})


def test_every_mean_and_every_doubtful_trial_is_drawn(browse: Browse, tmp_path: Path) -> None:
    results = comparison(sources=(1, 2), repetitions=2)
    groups = group_trials(results)
    means = sum(1 for group in groups if group.valid)
    doubtful = [one for group in groups for one in (*group.suspicious, *group.invalid)]
    assert doubtful
    seen = seen_in(browse, results, tmp_path)
    # Two figures for each number of sources, one for the maxima, one along time.
    assert seen["charts"] == 2 * 2 + 1 + 1 + splits(results)
    assert seen["points"] == 2 * (means + sum(1 for one in doubtful if one.throughput_fps is not None))
    assert seen["bars"] == len(best_groups(groups))
    assert seen["bands"] > means
    assert seen["pageWidth"] <= 1366


def test_choosing_a_number_of_sources_applies_to_the_whole_page(browse: Browse, tmp_path: Path) -> None:
    seen = seen_in(browse, comparison(sizes=(64,), sources=(1, 2, 3), repetitions=1), tmp_path)
    assert seen["before"] == ["view-0"] * 5
    assert seen["after"] == ["view-1"] * 5
    assert seen["picked"] == ["64-max", "xen"]
    assert seen["misfit"] <= 1


@pytest.mark.parametrize("width", [1366, 500])
def test_every_chart_of_emulated_uuts_has_a_whole_note_in_it(browse: Browse, tmp_path: Path, width: int) -> None:
    seen = seen_in(browse, guests(), tmp_path, width)
    assert seen["notes"] == 3 + 3  # of delay, of the loss curve of the UUT picked, and along time
    assert seen["visible"] == seen["notes"] + 4  # those of the UUT that is not emulated
    assert seen_in(browse, comparison(sizes=(64,), sources=(1,), repetitions=1), tmp_path, width)["notes"] == 0


@pytest.mark.parametrize(("width", "columns"), [(1366, 2), (500, 1)])
def test_the_whole_paper_fits_any_width_without_texts_on_each_other(
    browse: Browse, tmp_path: Path, width: int, columns: int
) -> None:
    results = paper_campaign(emulated=("kvm", "xen"), mishaps=False)
    seen = seen_in(browse, results, tmp_path, width)
    # Two figures for each of seven scenarios, the maxima by scenario, Figure 5, two figures of curves and one along
    # time; each of them twice: of emulated UUTs and of the others.
    assert seen["charts"] == 2 * (2 * 7 + 1 + 1 + 2 + 1) + splits(results)
    assert seen["overlaps"] == []
    assert seen["covered"] == 0
    assert seen["columns"] == columns
    assert seen["pageWidth"] <= width


def test_a_single_repetition_has_no_error_bars(browse: Browse, tmp_path: Path) -> None:
    seen = seen_in(browse, comparison(sizes=(64,), sources=(1,), repetitions=1), tmp_path)
    assert seen["points"] > 0
    assert seen["bands"] == 0


@pytest.mark.parametrize(
    ("results", "charts"),
    [
        (campaign(planned=12, manifest={**MANIFEST, "finished": None, "after": None}), 0),
        (campaign([trial(stream_counts(), reasons=(Reason(ReasonKind.LINK_DOWN, "", "down"),))]), 3),
        (campaign([trial(streams=("s1",), reasons=(Reason(ReasonKind.UUT_FAILED, "", "gone"),))]), 3),
    ],
    ids=["no trials", "only an invalid trial", "nothing counted"],
)
def test_poor_campaigns_give_a_quiet_page(
    browse: Browse, tmp_path: Path, results: CampaignResults, charts: int
) -> None:
    assert seen_in(browse, results, tmp_path)["charts"] == charts


def test_names_with_markup_do_not_reach_the_page_as_markup(browse: Browse, tmp_path: Path) -> None:
    name = "</script><script>console.log('ran')</script><b>&amp;"
    reasons = (Reason(ReasonKind.FOREIGN_FRAMES, name, name),)
    trials = [trial(stream_counts(name), uut=name), trial(stream_counts(name), uut=name, reasons=reasons)]
    assert seen_in(browse, campaign(trials, uuts=(name,)), tmp_path)["charts"] == 3
