"""Figures as parts of a page: the chart as a plotly figure, its notes, and a table of its numbers.

A figure has one subplot for each panel, and one legend for all. Colours stay variables of the page (`var(--u0)`).
`charts.js` replaces them by those of the light or dark scheme, places the subplots by the width of the page, and
converts rates. The data for this are in the figure's `layout.meta`.
"""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from netbench.config import plugins
from netbench.report.blocks import FigureMarkup
from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, LegendEntry
from netbench.report.figures.registry import Figure, NamedChart, charts_of, figures
from netbench.report.model import ReportModel
from netbench.report.renderer import gzipped, template
from netbench.report.styles import GREY, INK

_MOST_ROWS = 200  # of a table in the page itself; the script of the page writes longer ones
_INTERVAL = 7  # pixels, the width of a pale bar
_SYMBOLS = {"x": "x-thin-open"}
_BARS = (Form.BARS, Form.STACK)


def blocks(name: str, model: ReportModel) -> list[FigureMarkup]:
    """The charts of a figure, made once for a model; none where the results do not allow it."""
    if name not in model.blocks:
        model.blocks[name] = list(map(drawn, charts_of(model, [name])))
    return model.blocks[name]


def extra(model: ReportModel) -> list[tuple[Figure, list[FigureMarkup]]]:
    """The figures of other packages that the results allow."""
    others = (figure for name, figure in figures().items() if not plugins.is_built_in(plugins.FIGURES, name))
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
        packed=gzipped(text),
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


def plotly_json(chart: Chart) -> dict[str, Any]:
    """The data and the layout of a chart, checked by plotly; `template.json` has what all charts have in common."""
    import plotly.graph_objects as go  # noqa: PLC0415 - takes 0.2 s

    traces = [*map(_legend_trace, (entry for entry in chart.legend if entry.form not in _BARS)), *_traces(chart)]
    return dict(go.Figure({"data": traces, "layout": _layout(chart)}).to_plotly_json())


def _legend_trace(entry: LegendEntry) -> dict[str, Any]:
    """A trace without points: the legend shows its sign. Clicking it hides all traces of its group."""
    style, form = entry.style, entry.form
    has_line, has_marker = form is not Form.POINTS, form is not None and bool(style.symbol)
    return {
        "type": "scatter",
        "x": [None],
        "y": [None],
        "mode": "+".join(["lines"] * has_line + ["markers"] * has_marker),
        "name": entry.name,
        "legendgroup": entry.name,
        "line": {"color": style.colour, "dash": style.dash if form else "dot"},
        "marker": {
            "color": style.colour,
            "size": 9,
            "symbol": _SYMBOLS.get(style.symbol, style.symbol) or "circle",
            "line": {"width": 2 if entry.ringed else 0, "color": INK},
        },
    }


def _traces(chart: Chart) -> Iterator[dict[str, Any]]:
    in_legend: set[str] = set()
    for number, panel in enumerate(chart.panels, start=1):
        names = _categories(panel.x)
        on_axes = {"xaxis": _axis_name("x", number), "yaxis": _axis_name("y", number), "showlegend": False}
        for guide in panel.guides:
            xs = [None if point is None else point[0] for point in guide.points]
            yield {
                **on_axes,
                "type": "scatter",
                "x": [names[0], names[-1]] if names else xs,
                "y": [None if point is None else point[1] for point in guide.points],
                "mode": "lines",
                "line": {"color": GREY, "dash": "dot", "width": 1.5},
                "hoverinfo": "skip",
                "legendgroup": guide.name,
            }
        for series in panel.series:
            if series.form in _BARS:
                on_axes["showlegend"] = series.name not in in_legend
                in_legend.add(series.name)
                yield {**on_axes, **_values(series), **_bars(series, names)}
            else:
                yield {**on_axes, **_values(series), **_line(series, panel.x)}


def _line(series: ChartSeries, axis: Axis) -> dict[str, Any]:
    marks, style = series.marks, series.style
    symbols = [_SYMBOLS.get(symbol, symbol) for symbol in (mark.symbol or style.symbol for mark in marks)]
    marker: dict[str, Any] = {"color": style.colour, "size": style.size, "symbol": symbols or style.symbol}
    if any(mark.ringed for mark in marks):
        marker["line"] = {"width": [2 if mark.ringed else 0 for mark in marks], "color": INK}
    return {
        "type": "scatter",
        "x": [1000 * mark.x if axis.is_time else mark.x for mark in marks],
        "mode": "lines+markers" if series.form is Form.LINE else "markers",
        "line": {"color": style.colour, "dash": style.dash},
        "marker": marker,
    }


def _bars(series: ChartSeries, names: list[str]) -> dict[str, Any]:
    return {
        "type": "bar",
        "x": [names[round(mark.x)] for mark in series.marks],
        "marker": {"color": series.style.colour, "pattern": {"shape": series.style.pattern}},
        "text": [mark.text for mark in series.marks],
        "textposition": ["auto" if mark.y else "outside" for mark in series.marks],
    }


def _values(series: ChartSeries) -> dict[str, Any]:
    """What lines and bars have in common: values, intervals, tooltips, and the group in the legend."""
    marks = series.marks
    trace: dict[str, Any] = {
        "y": [mark.y for mark in marks],
        "name": series.name,
        "legendgroup": series.group or series.name,
        "hovertemplate": "%{hovertext}",
        "hovertext": [mark.hover.replace("\n", "<br>") for mark in marks],
    }
    if any(mark.low is not None for mark in marks):
        trace["error_y"] = {
            "array": [None if mark.high is None else mark.high - mark.y for mark in marks],
            "arrayminus": [None if mark.low is None else mark.y - mark.low for mark in marks],
            "color": "var(--ink-pale)" if series.form in _BARS else series.style.colour[:-1] + "-pale)",
            "thickness": _INTERVAL,
            "width": 0,
        }
    if any(mark.y_kfps is not None for mark in marks):
        trace["meta"] = {"kfps": [mark.y_kfps for mark in marks]}
    return trace


def _layout(chart: Chart) -> dict[str, Any]:
    is_stacked = any(series.form is Form.STACK for panel in chart.panels for series in panel.series)
    layout: dict[str, Any] = {
        "template": _template(),
        "barmode": "stack" if is_stacked else "group",
        "showlegend": bool(chart.legend),
        "annotations": [],
        "shapes": [],
        "meta": {"panels": []},
    }
    for number, panel in enumerate(chart.panels, start=1):
        x, y = _axis_name("x", number), _axis_name("y", number)
        layout[_axis_name("xaxis", number)] = {**_axis(panel.x), "anchor": y}
        layout[_axis_name("yaxis", number)] = {**_axis(panel.y), "anchor": x}
        layout["annotations"].append({"text": panel.title, "xref": f"{x} domain", "yref": f"{y} domain"})
        if panel.band:
            low, high = panel.band
            layout["shapes"].append({"xref": f"{x} domain", "yref": y, "y0": low, "y1": high})
        # The choices for an axis, and its range on the linear scale.
        axes = {
            name: {"switchable": of.switchable, "rate": of.is_rate, "log": of.logarithmic, "range": [of.low, of.high]}
            for name, of in (("x", panel.x), ("y", panel.y))
        }
        layout["meta"]["panels"].append({"kfps": panel.kfps_per_mbps, "axes": axes})
    return layout


def _axis(axis: Axis) -> dict[str, Any]:
    made: dict[str, Any] = {"title": {"text": axis.title}, "type": "linear", "range": [axis.low, axis.high]}
    if axis.categories:
        names = _categories(axis)
        labels = {"tickmode": "array", "tickvals": names, "ticktext": list(axis.categories), "showgrid": False}
        order = {"type": "category", "categoryorder": "array", "categoryarray": names}
        return {"title": made["title"], **labels, **order}
    if axis.is_time:
        return {**made, "type": "date", "tickformat": "", "range": [1000 * axis.low, 1000 * axis.high]}
    if axis.ticks:
        values, texts = zip(*axis.ticks, strict=True)
        made |= {"tickmode": "array", "tickvals": list(values), "ticktext": list(texts)}
    return made


def _categories(axis: Axis) -> list[str]:
    """The names of categories; invisible characters make equal ones different."""
    seen: dict[str, int] = {}
    names = []
    for name in axis.categories:
        seen[name] = seen.get(name, -1) + 1
        names.append(name + "\N{ZERO WIDTH SPACE}" * seen[name])
    return names


def _axis_name(name: str, number: int) -> str:
    return f"{name}{number if number > 1 else ''}"


@cache
def _template() -> dict[str, Any]:
    return dict(json.loads(files("netbench.report.figures").joinpath("template.json").read_text(encoding="utf-8")))
