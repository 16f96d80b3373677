"""Figures as parts of a page: the chart for the browser, its notes, and a table of its numbers."""

import gzip
import json
from base64 import b64encode
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, Template
from markupsafe import Markup

from netbench.report.figures.chart import Chart
from netbench.report.figures.plotly_json import plotly_json
from netbench.report.figures.registry import Figure, NamedChart, charts_of, figures
from netbench.report.model import ReportModel

_MOST_ROWS = 200  # of a table in the page itself; the script of the page writes longer ones
# Figures that have a place in a section of the page.
_PLACED = frozenset(
    (
        "throughput",
        "loss",
        "delay",
        "maximum",
        "isolation",
        "relative-maximum",
        "curve",
        "curve-of-loss",
        "split",
        "steadiness",
        "searches",
        "rfc2544-throughput",
        "rfc2544-loss",
    )
)


@dataclass(frozen=True, slots=True)
class ChartBlock:
    """A chart as markup, its heading included."""

    name: str
    view: str
    heading: str
    uut: str
    html: Markup


def block(name: str, model: ReportModel, view: str = "") -> Markup:
    """The charts of a figure in a view, one below the other; empty where the results do not allow it."""
    return Markup().join(part.html for part in blocks(name, model) if part.view == view)


def blocks(name: str, model: ReportModel) -> list[ChartBlock]:
    """The charts of a figure, made once for a model."""
    if name not in model.blocks:
        model.blocks[name] = [_block(named) for named in charts_of(model, [name])]
    return model.blocks[name]


def extra(model: ReportModel) -> list[tuple[Figure, Markup]]:
    """The figures of other packages that the results allow."""
    others = {name: figure for name, figure in figures().items() if name not in _PLACED}
    return [(figure, html) for name, figure in others.items() if (html := drawn(charts_of(model, [name])))]


def drawn(charts: Iterable[NamedChart]) -> Markup:
    """Charts as markup, one below the other."""
    return Markup().join(_block(named).html for named in charts)


def scale_switch() -> Markup:
    """The buttons that switch all rates of the page between units, and all their axes between scales."""
    return Markup(_template("scale_switch.html").render())


def plotly_script() -> Markup:
    """The plotly library, compressed: `charts.js` unpacks it."""
    packed = files("netbench.report").joinpath("assets/plotly/plotly-basic.min.js.gz").read_bytes()
    return Markup(f'<script type="application/gzip" id="plotly">{b64encode(packed).decode()}</script>')


def _block(named: NamedChart) -> ChartBlock:
    columns, rows = named.chart.table
    more = {"figure": plotly_json(named.chart), "columns": columns, "rows": rows}
    text = json.dumps(more, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    html = _template("figure.html").render(
        name=named.name,
        heading=named.heading,
        words=_words(named.chart),
        notes=named.chart.notes,
        columns=columns,
        rows=[[_short(cell) for cell in row] for row in rows[:_MOST_ROWS]] if len(rows) <= _MOST_ROWS else [],
        number=len(rows),
        packed=b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode(),
    )
    return ChartBlock(named.name, named.view, named.heading, named.uut, Markup(html))


def _words(chart: Chart) -> str:
    """The content of a chart in words, for screen readers; the table has its numbers."""
    if not chart.panels:
        return "Nothing to show"
    panel = chart.panels[0]
    titles = [other.title for other in chart.panels if other.title]
    words = f"{panel.y.title} by {panel.x.title or 'category'}"
    return f"{words}: {', '.join(titles)}" if titles else words


def _short(cell: str | int | float | None) -> str:
    """A number of a table, to six significant digits."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)


@cache
def _template(name: str) -> Template:
    environment = Environment(
        loader=PackageLoader("netbench.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
