"""Figures and tables as files: exactly the numbers of the page, the same bytes each time, the chosen size and parts."""

import csv
import gzip
import hashlib
import io
import re
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from netbench.cli.export import Publication, publish
from netbench.errors import MissingError, UsageError
from netbench.report import figures, styles
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, Guide, Mark, Panel
from netbench.report.figures.files import FigureFormat, FileOptions, picture, selected, write_figures
from netbench.report.model import ReportModel
from netbench.report.styles import MarkerStyle
from netbench.report.text_tables import TableFormat, exported_tables
from tests.unit.charts import figures_on
from tests.unit.interference_factory import small_campaign
from tests.unit.report_page import page_of, report_page
from tests.unit.results_factory import campaign, guests

RESULTS = small_campaign()
ASSETS = Path(styles.__file__).parent / "assets" / "plotly"


def panel(*marks: Mark, x: Axis | None = None, y: Axis | None = None, form: Form = Form.LINE) -> Panel:
    series = ChartSeries("raw", MarkerStyle("var(--u0)"), form, marks)
    return Panel("64-byte frames", x or Axis("Load", 0, 2), y or Axis("Throughput", 0, 100), [series])


def texts(svg: bytes) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def svg_of(chart: Chart) -> bytes:
    return picture(chart, FigureFormat.SVG)


def luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


@pytest.mark.parametrize("colours", [styles.light(), styles.dark()], ids=["light", "dark"])
def test_every_colour_with_a_meaning_is_readable_on_paper_and_has_one_meaning(colours):
    """Contrast as defined by WCAG, except for grounds, lines between cells, and places, which are outlined."""
    paper = luminance(colours["paper"])
    for name in ("ink", "soft", "link", "doubt", "bad", *(f"u{number}" for number in range(7))):
        high, low = sorted((luminance(colours[name]), paper), reverse=True)
        assert (high + 0.05) / (low + 0.05) >= 4.5, name
    meanings = [colours[name] for name in colours if name[0] in "ubd" or name == "link"]
    assert len(meanings) == len(set(meanings))


def test_the_library_of_the_page_is_the_published_one():
    checksums = {line.split()[1]: line.split()[0] for line in (ASSETS / "SHA256").read_text().splitlines()}
    packed = (ASSETS / "plotly-basic.min.js.gz").read_bytes()
    assert hashlib.sha256(packed).hexdigest() == checksums["plotly-basic.min.js.gz"]
    assert hashlib.sha256(gzip.decompress(packed)).hexdigest() == checksums["plotly-basic.min.js"]
    assert "MIT" in (ASSETS / "LICENSE").read_text()


def test_every_figure_is_a_file_in_each_format_of_exactly_the_numbers_of_the_page(tmp_path):
    on_page = {figure.name: figure for figure in figures_on(report_page(RESULTS))}
    model = ReportModel.of(RESULTS)
    names = {path.stem for path in write_figures(model, [FigureFormat.CSV], tmp_path)}
    assert {"throughput-dedicated", "loss-cpu-heavy", "maximum-scenarios", "isolation-1", "steadiness"} <= names
    assert names == set(on_page)
    for name in names:
        columns, *rows = csv.reader(io.StringIO((tmp_path / f"{name}.csv").read_text()))
        assert columns == list(on_page[name].rows[0])
        assert rows == [["" if value is None else str(value) for value in row.values()] for row in on_page[name].rows]


def test_uuts_of_another_setting_are_files_of_their_own(tmp_path):
    files = write_figures(ReportModel.of(guests()), [FigureFormat.CSV], tmp_path)
    assert sorted(path.stem for path in files) == sorted(figure.name for figure in figures_on(report_page(guests())))


def test_each_format_is_what_it_reports_and_the_same_each_time():
    (chart,) = [
        named.chart for named in figures.charts_of(ReportModel.of(RESULTS)) if named.name == "maximum-scenarios"
    ]
    for form, begins in ((FigureFormat.SVG, b"<?xml"), (FigureFormat.PDF, b"%PDF-"), (FigureFormat.PNG, b"\x89PNG")):
        content = picture(chart, form)
        assert content.startswith(begins)
        assert content == picture(chart, form)
    svg = svg_of(chart)
    assert b"var(" not in svg
    assert any(text.startswith("n = ") for text in texts(svg))
    assert {"kvm", "raw"} <= set(texts(svg))


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (Axis("", 0, 930), ["0", "200", "400", "600", "800"]),
        (Axis("", -1.2, 1.2), ["−1", "−0.5", "0", "0.5", "1"]),
        (Axis("", 0.03, 60, logarithmic=True), ["0.1", "1", "10"]),
        (Axis("", 0, 1_500_000), ["0", "500,000", "1,000,000", "1,500,000"]),
        (Axis("", -3, 0, ticks=((-2.5, "0"), (-1.0, "10"))), ["0", "10"]),
        (Axis("", 1_741_072_500, 1_741_245_300, is_time=True), ["2025-03-05"]),
    ],
)
def test_ticks(axis, labels):
    found = texts(svg_of(Chart([panel(Mark((axis.low + axis.high) / 2, 50, ""), x=axis)])))
    assert set(labels) <= set(found)


@pytest.mark.parametrize("form", [Form.BARS, Form.STACK])
def test_categories_and_the_texts_of_bars_are_drawn(form):
    axis = Axis("", categories=("dedicated", "cpu-heavy"))
    marks = Mark(0, 50, "", text="≥ 50", low=40, high=60), Mark(1, 0, "", text="no valid trial")
    found = texts(svg_of(Chart([panel(*marks, x=axis, form=form)])))
    assert {"dedicated", "cpu-heavy"} <= set(found)
    assert ({"≥ 50", "no valid trial"} <= set(found)) == (form is Form.BARS)


def test_names_are_escaped_and_notes_and_guides_drawn():
    chart = Chart([panel(Mark(1, 50, "", {"valid_trials": 3}, 40, 60), Mark(2, 5, "", {"valid_trials": 2}))])
    chart.panels[0].title, chart.note = "<b>", "a < b"
    chart.panels[0].guides.append(Guide(((0, 0), (1, 1), None, (1, 0), (2, 1))))
    found = texts(svg_of(chart))
    assert {"<b>", "a < b"} <= set(found)
    assert "n = 2 … 3; pale bars: 95 % interval of the mean, cut" in " ".join(found)


def test_width_and_aspect_are_those_asked_for():
    def size(options):
        svg = ElementTree.fromstring(picture(Chart([panel(Mark(1, 50, ""))]), FigureFormat.SVG, options))
        return [float(svg.attrib[name].removesuffix("pt")) for name in ("width", "height")]

    (width, height), (wide, low) = size(FileOptions()), size(FileOptions(width_mm=170, aspect=0.3))
    assert (width, wide) == (pytest.approx(85 / 25.4 * 72, abs=0.1), pytest.approx(170 / 25.4 * 72, abs=0.1))
    assert low / wide < height / width


def test_only_the_chosen_uuts_and_sizes_are_drawn():
    model = selected(ReportModel.of(RESULTS), ["kvm"], ["64"])
    rows = [mark.numbers for named in figures.charts_of(model) for mark in named.chart.marks]
    assert {row["uut"] for row in rows} == {"kvm"}
    with pytest.raises(UsageError, match="--series: there is no 'xyz'; choose from "):
        selected(model, ["xyz"], [])
    with pytest.raises(UsageError, match="--size: there is no '65'; choose from 64"):
        selected(model, [], ["65"])


def test_tables_have_the_words_of_the_page_and_special_characters_of_latex_are_escaped():
    shown, page = ReportModel.of(RESULTS), page_of(RESULTS).text
    markdown, latex = (dict(exported_tables(shown, form)) for form in (TableFormat.MARKDOWN, TableFormat.LATEX))
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


@pytest.mark.parametrize(
    ("options", "out", "message"),
    [
        (Publication("svg,gif"), "", "--figures: there is no 'gif'; choose from svg, pdf, png, csv"),
        (Publication(tables="word"), "", "--tables: there is no 'word'; choose from markdown, latex"),
        (Publication(""), "", "--figures: name at least one of svg, pdf, png, csv"),
        (Publication("svg"), None, "name a directory for them with -o DIR"),
        (Publication("svg"), "file", "file is a file"),
        (Publication("svg"), "file/below", "file/below: cannot be made: Not a directory; name another"),
    ],
)
def test_unknown_formats_and_unusable_directories_are_rejected(tmp_path, options, out, message):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        publish(RESULTS, options, None if out is None else tmp_path / out)


def test_files_are_listed_and_nothing_is_drawn_of_nothing(tmp_path):
    assert publish(campaign(planned=3), Publication("svg"), tmp_path) == "nothing to draw: no trial has been measured"
    listed = publish(RESULTS, Publication("csv", "latex"), tmp_path / "new").splitlines()
    assert {Path(name).suffix for name in listed} == {".csv", ".tex"}
    assert all(Path(name).is_file() for name in listed)


def test_a_missing_matplotlib_is_named_where_it_is_needed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    model = ReportModel.of(RESULTS)
    with pytest.raises(MissingError, match=r"need matplotlib; add it with: pip install 'netbench\[figures\]'"):
        write_figures(model, [FigureFormat.PDF], tmp_path)
    assert write_figures(model, [FigureFormat.CSV], tmp_path)
