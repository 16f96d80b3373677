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
from xml.etree import ElementTree

import pytest

from netbench.model.campaign import CampaignResults
from netbench.model.verdict import Reason, ReasonKind
from netbench.report.figures import throughput_on_scales
from netbench.report.page import write_report
from netbench.report.sections import views
from netbench.report.shown import Shown
from tests.unit.interference_factory import paper_campaign
from tests.unit.results_factory import MANIFEST, campaign, comparison, guests, stream_counts, trial

pytestmark = pytest.mark.chromium

Browse = Callable[..., subprocess.CompletedProcess[str]]

# Added to a copy of the page: reports the visible content before and after choices, and the saved files.
PROBE = """
<pre id="probe"></pre>
<script>
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const visible = selector => all(selector).filter(one => one.getBoundingClientRect().height && one.checkVisibility());
// Pairs of texts in the same figure that lie on each other, and those that stick out of the page.
const overlaps = () => {
  const found = [];
  for (const figure of visible(".figure")) {
    const boxes = all(".panel text, .legend span", figure).filter(one => one.checkVisibility())
      .map(one => [one.textContent, one.getBoundingClientRect()]).filter(([text, box]) => text && box.width);
    boxes.forEach(([text, one], place) => {
      if (one.right > innerWidth || one.left < 0) found.push(`${figure.id}: ${text} is outside`);
      boxes.slice(place + 1).forEach(([other, two]) => {
        const wide = Math.min(one.right, two.right) - Math.max(one.left, two.left);
        const high = Math.min(one.bottom, two.bottom) - Math.max(one.top, two.top);
        if (wide > 1.5 && high > 3) found.push(`${figure.id}: ${text} / ${other}`);
      });
    });
  }
  return found;
};
const luminance = colour => {
  const [r, g, b] = colour.match(/[0-9.]+/g).map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const paper = element => {
  for (let part = element; part; part = part.parentElement) {
    const colour = getComputedStyle(part).backgroundColor;
    if (/^rgb\\(/.test(colour)) return colour;
  }
};
// Texts that are hard to read on what is behind them.
const texts = "h1, h2, h3, p, li, td, th, button, summary, a, dd, figcaption, .legend span";
const faint = () => visible(texts).filter(one => {
  const [text, behind] = [getComputedStyle(one).color, paper(one)].map(luminance);
  return (Math.max(text, behind) + 0.05) / (Math.min(text, behind) + 0.05) < 4.5;
}).map(one => one.textContent.slice(0, 40));
const settled = () => new Promise(done => setTimeout(done, 300));
addEventListener("load", async () => {
  const seen = {
    panels: visible(".panel").length,
    marks: visible('[id^="figure-throughput"] [data-n], [id^="figure-loss"] [data-n]').length,
    untold: visible(".panel").filter(one => !one.ariaLabel.includes(": ")).length,
    pageWidth: document.documentElement.scrollWidth,
    overlaps: overlaps(),
    faint: faint(),
    columns: new Set(visible('[id^="figure-throughput"] .panel')
      .map(one => Math.round(one.getBoundingClientRect().left))).size,
    scales: [...new Set(visible('.scale:not([data-scale=""])').map(one => one.dataset.scale))],
    background: getComputedStyle(document.body).backgroundColor,
  };
  const saved = {};
  URL.createObjectURL = () => "data:,";
  window.Blob = class { constructor([text], {type}) { saved[type] = text; } };
  HTMLAnchorElement.prototype.click = function () { saved.names = [...saved.names ?? [], this.download]; };
  for (const kind of ["svg", "csv"]) document.querySelector(`[id^="figure-throughput"] [data-save="${kind}"]`)?.click();
  await settled();
  seen.names = saved.names;
  seen.svg = saved["image/svg+xml"];
  seen.csv = saved["text/csv"];
  const mark = document.querySelector("[data-n]");
  mark?.dispatchEvent(new PointerEvent("pointerover", {bubbles: true}));
  document.querySelector('.choice [data-scale="logarithmic"]')?.click();
  [...document.querySelectorAll(".choice [data-view]")][1]?.click();
  await settled();
  seen.tip = document.getElementById("tip").textContent;
  for (const list of document.querySelectorAll("select[data-pick]")) {
    list.closest("details")?.setAttribute("open", "");
    list.selectedIndex = list.options.length - 1;
    list.dispatchEvent(new Event("change", {bubbles: true}));
  }
  await settled();
  seen.after = [...new Set(visible(".view").map(one => one.dataset.view))];
  seen.scalesAfter = [...new Set(visible(".scale").map(one => one.dataset.scale).filter(Boolean))];
  seen.picked = visible(".picked").map(one => one.dataset.value);
  seen.overlapsAfter = overlaps();
  document.getElementById("probe").textContent = JSON.stringify(seen);
});
</script>
"""


@pytest.fixture
def browse(tmp_path: Path) -> Browse:
    """Open a file in headless Chromium; returns its output, including the messages of the page's console."""
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
                "--window-size=1300,4000",
                *arguments,
                page.as_uri(),
            ],
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    return run


def seen_in(browse: Browse, results: CampaignResults, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """Open the report of some results with the probe in it; its console must be quiet."""
    page = tmp_path / "probed.html"
    write_report(results, page)
    page.write_text(page.read_text(encoding="utf-8").replace("</body>", PROBE + "</body>"), encoding="utf-8")
    result = browse(page, "--dump-dom", *arguments)
    assert [line for line in result.stderr.splitlines() if "CONSOLE" in line] == []
    probe = re.search(r'<pre id="probe">(.+?)</pre>', result.stdout, re.S)
    assert probe is not None
    seen: dict[str, Any] = json.loads(unescape(probe[1]))
    assert seen["faint"] == []
    assert seen["untold"] == 0
    return seen


def test_every_mark_is_drawn_told_and_saved_and_choices_apply_to_the_whole_page(browse: Browse, tmp_path: Path) -> None:
    results = comparison(sources=(1, 2), repetitions=2)
    shown = Shown.of(results)
    first, second = views(shown.groups)
    chart = throughput_on_scales(first.groups, shown.looks)["Mbit/s"]
    seen = seen_in(browse, results, tmp_path)
    assert seen["panels"] == 4 + 4 + 4  # throughput, the most of it, loss; one for each frame size
    doubtful = [trial for group in first.groups for trial in (*group.suspicious, *group.invalid)]
    assert doubtful
    means = sum(1 for group in first.groups if group.valid)
    assert seen["marks"] == 2 * (means + sum(1 for trial in doubtful if trial.throughput_fps is not None))
    assert seen["names"] == ["throughput-1-source.svg", "throughput-1-source.csv"]
    columns, *rows = csv.reader(io.StringIO(seen["csv"]))
    names, numbers = chart.table
    assert columns == names
    assert [[_number(cell) for cell in row] for row in rows] == numbers
    drawing = ElementTree.fromstring(seen["svg"])
    assert "var(" not in seen["svg"]
    assert len([tag for tag in drawing.iter() if tag.get("data-n")]) == len(rows)
    assert seen["tip"].startswith("raw, 1,500-byte frames, ")
    assert (seen["scales"], seen["scalesAfter"]) == (["Mbit/s"], ["logarithmic"])
    assert seen["after"] == [second.name]
    assert seen["picked"] == ["64-max", "xen"]
    assert seen["pageWidth"] <= 1300


def _number(cell: str) -> str | float | None:
    """The value of a cell of a CSV file."""
    try:
        return float(cell) if cell else None
    except ValueError:
        return cell


@pytest.mark.parametrize(("width", "columns"), [(420, 1), (1300, 2), (2000, 4)])
def test_the_whole_paper_fits_any_width_without_texts_on_each_other(
    browse: Browse, tmp_path: Path, width: int, columns: int
) -> None:
    results = paper_campaign(emulated=("kvm", "xen"), mishaps=False, repetitions=2)
    seen = seen_in(browse, results, tmp_path, f"--window-size={width},4000")
    assert seen["overlaps"] + seen["overlapsAfter"] == []
    assert seen["columns"] == columns
    # Headless Chromium has no window of less than 500 pixels.
    assert seen["pageWidth"] <= max(width, 500)


def test_a_dark_page_is_as_readable(browse: Browse, tmp_path: Path) -> None:
    seen = seen_in(browse, guests(), tmp_path, "--blink-settings=preferredColorScheme=0")
    assert seen["background"] == "rgb(22, 25, 28)"
    assert 'fill="#ffffff"' in seen["svg"], "what is saved is for paper"


def test_it_prints_on_few_pages(browse: Browse, tmp_path: Path) -> None:
    page, printed = tmp_path / "page.html", tmp_path / "page.pdf"
    write_report(comparison(sizes=(64, 1500), sources=(1,), repetitions=2), page)
    browse(page, f"--print-to-pdf={printed}", "--no-pdf-header-footer")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed.read_bytes())) <= 3


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
    assert seen["tip"].startswith(name)
