"""Figures and tables as files: what is drawn, from which numbers, and whether it is readable."""

import csv
import io
import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netbench.cli.export import publish
from netbench.errors import MissingError, UsageError
from netbench.report import palette
from netbench.report.chart import Axis, Chart, ChartSeries, Form, Guide, Mark, MarkerStyle, Panel
from netbench.report.page import report_page
from netbench.report.publication import FigureFormat, charts_of, tables_of, write_publication
from netbench.report.shown import Shown
from netbench.report.svg import PLOT_HEIGHT, chart_svg, panel_svg, words
from netbench.report.text_tables import TableFormat
from netbench.report.ticks import ticks_of
from tests.unit.charts import figures_on, names_as_files_and_on_page
from tests.unit.interference_factory import small_campaign
from tests.unit.report_page import page_of
from tests.unit.results_factory import campaign, guests

RESULTS = small_campaign()


def line(*marks: Mark) -> ChartSeries:
    return ChartSeries("raw", MarkerStyle("var(--u0)"), Form.LINE, marks)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colours", [palette.light(), palette.dark()], ids=["light", "dark"])
def test_every_colour_that_says_something_is_readable_on_paper_and_has_one_meaning(colours):
    """Contrast as defined by WCAG, except for grounds, lines between cells, and places, which are outlined."""
    paper = luminance(colours["paper"])
    for name in ("ink", "soft", "link", "doubt", "bad", *(f"u{number}" for number in range(7))):
        high, low = sorted((luminance(colours[name]), paper), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, name
    meanings = [colours[name] for name in colours if name[0] in "ubd" or name == "link"]
    assert len(meanings) == len(set(meanings))


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis("", 0, 930), ["0", "200", "400", "600", "800"]),
        (Axis("", -1.2, 1.2), ["−1.0", "−0.5", "0.0", "0.5", "1.0"]),
        (Axis("", 0.03, 60, logarithmic=True), ["0.03", "0.1", "0.3", "1", "3", "10", "30"]),
        (Axis("", 1.5, 15_000, logarithmic=True), ["10", "100", "1,000", "10,000"]),
        (Axis("", 105, 14_700, logarithmic=True), ["300", "1,000", "3,000", "10,000"]),
        (Axis("", 510, 4_900, logarithmic=True), ["700", "1,000", "2,000", "3,000"]),
        (Axis("", 900, 12_000, logarithmic=True), ["1,000", "2,000", "5,000", "10,000"]),
        (Axis("", 60, 190, logarithmic=True), ["60", "70", "80", "90", "100", "150"]),
        (Axis("", 3, 60, logarithmic=True), ["5", "10", "20", "50"]),
        (Axis("", 0.15, 0.28, logarithmic=True), ["0.15", "0.20", "0.25"]),
        (Axis("", categories=("a", "b")), ["a", "b"]),
        (Axis("", 0, 1_500_000), ["0", "500,000", "1,000,000", "1,500,000"]),
    ],
)
def test_ticks(axis, labels):
    found = ticks_of(axis)
    assert [label for _, label in found] == labels
    assert all(-0.001 <= axis.place(value) <= 1.001 for value, _ in found)


def test_an_interval_is_cut_where_the_panel_ends_and_crosses_nothing():
    axis = Axis("Throughput", 0, 100)
    huge = Mark(1, 50, "", low=0.0, high=900.0)
    drawn = panel_svg(Panel("", Axis("Load", 0, 2), axis, [line(huge)]), 0)
    ((top, bottom),) = re.findall(r'd="M0 (-?[0-9.]+)V([0-9.]+)"', drawn)
    middle = PLOT_HEIGHT / 2
    assert (float(top), float(bottom)) == (-middle, middle)
    without = panel_svg(Panel("", Axis("Load", 0, 2), axis, [line(Mark(1, 50, ""))]), 0)
    assert "M0 " not in without


def test_a_panel_says_what_it_shows():
    panel = Panel("64-byte frames", Axis("Load", 0, 2), Axis("Throughput", 0, 100), [line(Mark(1, 50, ""))])
    assert words(panel) == "64-byte frames: Throughput by Load. raw: at 1: 50"
    assert 'role="img" aria-label="64-byte frames: Throughput by Load. raw: at 1: 50"' in panel_svg(panel, 0)
    assert words(Panel("", Axis("Load"), Axis("Loss"))) == "Loss by Load. Nothing to show"


def test_nothing_is_filled_or_drawn_between_parts_of_a_guide_and_names_are_escaped():
    panel = Panel("<b>", Axis("", 0, 2), Axis("", 0, 2), [], [Guide(((0, 0), (1, 1), None, (1, 0), (2, 1)))])
    drawn = chart_svg(Chart([panel], note="a < b"))
    assert drawn.count("<polyline") == 2
    assert 'fill="none"' in drawn
    assert "&lt;b&gt;" in drawn
    assert "a &lt; b" in drawn
    ElementTree.fromstring(drawn)


def texts(drawing: str) -> Iterator[str]:
    for element in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text"):
        yield element.text or ""


def test_every_figure_is_a_file_in_each_format_of_exactly_the_numbers_of_the_page(tmp_path):
    pytest.importorskip("cairosvg", reason="needs CairoSVG: pip install 'netbench[figures]'", exc_type=ImportError)
    written = write_publication(RESULTS, list(FigureFormat), [], tmp_path / "out")
    on_page = {figure.name: figure for figure in figures_on(report_page(RESULTS))}
    names = {path.stem for path in written}
    assert {"throughput-dedicated", "loss-cpu-heavy", "maximum-scenarios", "isolation-1", "steadiness"} <= names
    assert names == set(on_page)
    for name in names:
        svg, pdf, png, table = (
            (tmp_path / "out" / f"{name}.{form}").read_bytes() for form in ("svg", "pdf", "png", "csv")
        )
        assert b"var(" not in svg
        assert (
            any(text.startswith("n = ") for text in texts(svg.decode())) or b"n = " not in on_page[name].note.encode()
        )
        assert pdf.startswith(b"%PDF-")
        assert png.startswith(b"\x89PNG")
        columns, *rows = csv.reader(io.StringIO(table.decode()))
        assert columns == list(on_page[name].rows[0])
        shown = [["" if value is None else str(value) for value in row.values()] for row in on_page[name].rows]
        assert rows == shown


def test_those_of_each_setting_are_files_too():
    files, on_page = names_as_files_and_on_page(guests())
    assert files == on_page


def test_emulated_uuts_are_said_to_be_so_in_every_file():
    for name, chart in charts_of(Shown.of(guests())):
        uuts = {mark.numbers["uut"] for mark in chart.marks}
        assert ("raw" in uuts) != ("CPU emulated" in " ".join(texts(chart_svg(chart)))), name


def test_tables_have_the_words_of_the_page_and_what_latex_would_misunderstand_is_escaped():
    shown, page = Shown.of(RESULTS), page_of(RESULTS).text
    markdown, latex = (dict(tables_of(shown, form)) for form in (TableFormat.MARKDOWN, TableFormat.LATEX))
    assert list(markdown) == list(latex)
    assert (
        "| kvm | dedicated | 1 | 64 B |  | 0.605 | ± 0.00854 | 1000fps | 0.672 | 2 | the UUT |" in markdown["maximum"]
    )
    assert r"raw & dedicated & 1 & 64 B & $\ge$ & 0.672 & $\pm$ 0.00101 & 1000fps" in latex["maximum"]
    row = next(row for row in markdown["isolation"].splitlines() if "network-50" in row)
    assert " ".join(row.replace("|", " ").split()) in page
    lines = latex["results-dedicated"].splitlines()
    (lost,) = [row for row in lines if row.startswith("64 B & kvm")]
    assert lost.count(" & ") == lines[4].count(" & ")
    assert r"9.900 \%" in lost
    assert lost.endswith(r" \\")
    assert not re.search(r"(?<!\\)[%#]", latex["results-dedicated"])
    assert "$<$ 0.15" in latex["results-dedicated"], "fonts of LaTeX have another sign there"
    assert not re.search(r"(?<!\$)[<>|]", "".join(latex.values()))


def test_formats_that_there_are_not_and_files_without_a_directory_are_refused(tmp_path):
    with pytest.raises(UsageError, match="--figures: there is no 'gif'; choose from svg, pdf, png, csv"):
        publish(RESULTS, "svg,gif", None, tmp_path)
    with pytest.raises(UsageError, match="--tables: there is no 'word'; choose from markdown, latex"):
        publish(RESULTS, None, "word", tmp_path)
    with pytest.raises(UsageError, match="name a directory for them with -o DIR"):
        publish(RESULTS, "svg", None, None)
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file is a file"):
        publish(RESULTS, "svg", None, tmp_path / "file")
    with pytest.raises(UsageError, match="file/below: cannot be made: Not a directory; name another"):
        publish(RESULTS, "svg", None, tmp_path / "file" / "below")
    with pytest.raises(UsageError, match="--figures: name at least one of svg, pdf, png, csv"):
        publish(RESULTS, "", None, tmp_path)
    assert publish(campaign(planned=3), "svg", None, tmp_path) == "nothing to draw: no trial has been measured"
    listed = publish(RESULTS, "csv", "latex", tmp_path / "new").splitlines()
    assert all(Path(name).is_file() for name in listed)


def test_what_makes_pdf_of_them_is_said_where_it_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "cairosvg", None)
    with pytest.raises(
        MissingError, match=r"figures as PDF need CairoSVG; add it with: pip install 'netbench\[figures\]'"
    ):
        write_publication(RESULTS, [FigureFormat.PDF], [], tmp_path)
    assert write_publication(RESULTS, [FigureFormat.SVG], [], tmp_path)


def test_a_chart_of_repetitions_says_how_many():
    one = Mark(1, 50, "", {"valid_trials": 3}, 40, 60)
    panel = Panel("", Axis("", 0, 2), Axis("", 0, 100), [line(one, replace(one, numbers={"valid_trials": 2}))])
    assert "n = 2 … 3; pale bars: 95 % interval of the mean, cut where the panel ends" in list(
        texts(chart_svg(Chart([panel])))
    )
