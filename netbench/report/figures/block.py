"""Figures as parts of a page: the chart for the browser, its notes, and a table of its numbers."""

import gzip
import json
from base64 import b64encode

from markupsafe import Markup

from netbench.report.blocks import FigureMarkup
from netbench.report.figures.chart import Chart
from netbench.report.figures.plotly_json import plotly_json
from netbench.report.figures.registry import Figure, NamedChart, charts_of, figures
from netbench.report.model import ReportModel
from netbench.report.renderer import template

_MOST_ROWS = 200  # of a table in the page itself; the script of the page writes longer ones
# Figures that have a place in a section of the page.
_PLACED = {
    *("throughput", "loss", "delay", "maximum", "isolation", "relative-maximum", "curve", "curve-of-loss", "split"),
    *("steadiness", "searches", "rfc2544-throughput", "rfc2544-loss"),
}


def blocks(name: str, model: ReportModel) -> list[FigureMarkup]:
    """The charts of a figure, made once for a model; none where the results do not allow it."""
    if name not in model.blocks:
        model.blocks[name] = list(map(drawn, charts_of(model, [name])))
    return model.blocks[name]


def extra(model: ReportModel) -> list[tuple[Figure, list[FigureMarkup]]]:
    """The figures of other packages that the results allow."""
    others = (figure for name, figure in figures().items() if name not in _PLACED)
    return [(figure, charts) for figure in others if (charts := blocks(figure.name, model))]


def drawn(named: NamedChart) -> FigureMarkup:
    """A chart as markup, its heading included."""
    columns, rows = named.chart.table
    content = {"figure": plotly_json(named.chart), "columns": columns, "rows": rows}
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    html = template("figure.html").render(
        name=named.name,
        heading=named.heading,
        words=_words(named.chart),
        notes=named.chart.notes,
        columns=columns,
        rows=[[_short(cell) for cell in row] for row in rows] if len(rows) <= _MOST_ROWS else [],
        number=len(rows),
        packed=b64encode(gzip.compress(text.encode(), 6, mtime=0)).decode(),
    )
    return FigureMarkup(Markup(html), named.view, named.uut)


def _words(chart: Chart) -> str:
    """The content of a chart in words, for screen readers; the table has its numbers."""
    if not chart.panels:
        return "Nothing to show"
    panel = chart.panels[0]
    titles = ", ".join(other.title for other in chart.panels if other.title)
    words = f"{panel.y.title} by {panel.x.title or 'category'}"
    return f"{words}: {titles}" if titles else words


def _short(cell: str | int | float | None) -> str:
    """A number of a table, to six significant digits."""
    if cell is None:
        return ""
    return f"{cell:.6g}" if isinstance(cell, float) else str(cell)
