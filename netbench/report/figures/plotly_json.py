"""A chart as a plotly figure for the page: one subplot for each panel, one legend for all.

Colours stay variables of the page (`var(--u0)`). `charts.js` replaces them by those of the light or dark scheme, places
the subplots by the width of the page, and converts rates. What it needs for this is in the figure's `layout.meta`.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from netbench.report.figures.chart import Axis, Chart, ChartSeries, Form, Guide, LegendEntry, Mark, Panel
from netbench.report.styles import GREY, INK

_INTERVAL = 7  # pixels, the width of a pale bar
_SYMBOLS = {"x": "x-thin-open"}
_BARS = (Form.BARS, Form.STACK)


def plotly_json(chart: Chart) -> dict[str, Any]:
    """The data and the layout of a chart, checked by plotly."""
    import plotly.graph_objects as go  # noqa: PLC0415 - takes 0.2 s

    traces = [*_legend_traces(chart.legend), *_traces(chart)]
    figure = go.Figure({"data": traces, "layout": _layout(chart)})
    return dict(figure.to_plotly_json())


def _legend_traces(entries: Sequence[LegendEntry]) -> Iterator[dict[str, Any]]:
    """Traces without points: the legend shows their signs. Clicking one hides all traces of its group."""
    for entry in entries:
        if entry.form in _BARS:
            continue
        marker = {
            "color": entry.style.colour,
            "size": 9,
            "symbol": _SYMBOLS.get(entry.style.symbol, entry.style.symbol),
        }
        if entry.ringed:
            marker["line"] = {"width": 2, "color": INK}
        line = {"color": entry.style.colour, "dash": entry.style.dash if entry.form else "dot", "width": 2}
        with_marker = bool(entry.style.symbol) and entry.form is not None
        mode = {Form.POINTS: "markers"}.get(entry.form or Form.LINE, "lines+markers" if with_marker else "lines")
        yield {
            "type": "scatter",
            "x": [None],
            "y": [None],
            "mode": mode,
            "name": entry.name,
            "legendgroup": entry.name,
            "showlegend": True,
            "line": line,
            "marker": marker if with_marker else {},
        }


def _traces(chart: Chart) -> Iterator[dict[str, Any]]:
    in_legend: set[str] = set()
    for number, panel in enumerate(chart.panels, start=1):
        on_axes = {"xaxis": _axis_name("x", number), "yaxis": _axis_name("y", number)}
        for guide in panel.guides:
            yield {**_guide(panel, guide), **on_axes}
        for series in panel.series:
            if series.form in _BARS:
                show = series.name not in in_legend
                in_legend.add(series.name)
                yield {**_bars(panel, series), "showlegend": show, **on_axes}
            else:
                yield {**_line(panel, series), **on_axes}


def _guide(panel: Panel, guide: Guide) -> dict[str, Any]:
    xs = [None if point is None else point[0] for point in guide.points]
    names = _categories(panel.x)
    return {
        "type": "scatter",
        # A guide across categories begins and ends between them.
        "x": [names[0], names[-1]] if names else xs,
        "y": [None if point is None else point[1] for point in guide.points],
        "mode": "lines",
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "legendgroup": guide.name,
        "showlegend": False,
    }


def _line(panel: Panel, series: ChartSeries) -> dict[str, Any]:
    marks, style = series.marks, series.style
    symbols = [mark.symbol or style.symbol for mark in marks]
    symbols = [_SYMBOLS.get(symbol, symbol) for symbol in symbols]
    marker: dict[str, Any] = {
        "color": style.colour,
        "size": style.size,
        "symbol": symbols if len(set(symbols)) > 1 else symbols[0] if symbols else style.symbol,
    }
    if any(mark.ringed for mark in marks):
        marker["line"] = {"width": [2 if mark.ringed else 0 for mark in marks], "color": INK}
    elif any("open" in symbol for symbol in symbols):
        marker["line"] = {"width": 1.5}
    return {
        "type": "scatter",
        "x": [1000 * mark.x if panel.x.is_time else mark.x for mark in marks],
        "mode": "lines+markers" if series.form is Form.LINE else "markers",
        "line": {"color": style.colour, "dash": style.dash, "width": 2},
        "marker": marker,
        "showlegend": False,
        **_common(series, style.colour[:-1] + "-pale)"),
    }


def _bars(panel: Panel, series: ChartSeries) -> dict[str, Any]:
    marks, style = series.marks, series.style
    names = _categories(panel.x)
    return {
        "type": "bar",
        "x": [names[round(mark.x)] for mark in marks],
        "marker": {"color": style.colour, "pattern": {"shape": style.pattern}},
        "text": [mark.text for mark in marks],
        "textposition": ["auto" if mark.y else "outside" for mark in marks],
        "insidetextanchor": "start",
        "cliponaxis": False,
        "constraintext": "none",
        **_common(series, "var(--ink-pale)"),
    }


def _common(series: ChartSeries, pale: str) -> dict[str, Any]:
    """What all series have: values, intervals, tooltips, and the group in the legend."""
    trace: dict[str, Any] = {
        "y": [mark.y for mark in series.marks],
        "name": series.name,
        "legendgroup": series.group or series.name,
        "hovertext": [mark.hover.replace("\n", "<br>") for mark in series.marks],
        "hovertemplate": "%{hovertext}",
    }
    if any(mark.low is not None for mark in series.marks):
        trace["error_y"] = {
            "type": "data",
            "symmetric": False,
            "array": [_above(mark) for mark in series.marks],
            "arrayminus": [_below(mark) for mark in series.marks],
            "color": pale,
            "thickness": _INTERVAL,
            "width": 0,
        }
    if any(mark.y_kfps is not None for mark in series.marks):
        trace["meta"] = {"kfps": [mark.y_kfps for mark in series.marks]}
    return trace


def _above(mark: Mark) -> float | None:
    return None if mark.high is None else mark.high - mark.y


def _below(mark: Mark) -> float | None:
    return None if mark.low is None else mark.y - mark.low


def _layout(chart: Chart) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "barmode": "stack"
        if any(series.form is Form.STACK for panel in chart.panels for series in panel.series)
        else "group",
        "bargap": 0.2,
        "hovermode": "x unified",
        "hoverdistance": 24,
        "hoverlabel": {
            "bgcolor": "var(--paper)",
            "bordercolor": GREY,
            "font": {"color": INK, "size": 12},
            "align": "left",
        },
        "legend": {
            "orientation": "h",
            "traceorder": "normal",
            "groupclick": "togglegroup",
            "itemclick": "toggle",
            "itemdoubleclick": "toggleothers",
            "xref": "container",
            "yref": "container",
            "x": 0,
            "y": 1,
            "yanchor": "top",
            "font": {"size": 13},
        },
        "paper_bgcolor": "var(--paper)",
        "plot_bgcolor": "var(--paper)",
        "font": {"color": INK, "size": 12},
        "showlegend": bool(chart.legend),
        "annotations": [],
        "shapes": [],
        "meta": {"panels": [_meta(panel) for panel in chart.panels]},
    }
    for number, panel in enumerate(chart.panels, start=1):
        for letter, axis in (("x", panel.x), ("y", panel.y)):
            layout[_axis_name(letter, number, "axis")] = _axis(axis, number, letter)
        title = {
            "text": f"<b>{panel.title}</b>",
            "font": {"size": 14},
            "showarrow": False,
            "xanchor": "left",
            "yanchor": "bottom",
        }
        refs = {"xref": f"{_axis_name('x', number)} domain", "yref": f"{_axis_name('y', number)} domain"}
        layout["annotations"].append({**title, **refs, "x": 0, "y": 1.02})
        if panel.band:
            low, high = panel.band
            band = {"type": "rect", "x0": 0, "x1": 1, "y0": low, "y1": high, "fillcolor": "var(--shade)"}
            refs["yref"] = _axis_name("y", number)
            layout["shapes"].append({**band, **refs, "line": {"width": 0}, "layer": "below"})
    return layout


def _meta(panel: Panel) -> dict[str, Any]:
    """What a reader can switch on each axis, and the range of a linear one."""
    return {
        "kfps": panel.kfps_per_mbps,
        "axes": {
            letter: {
                "switchable": axis.switchable,
                "rate": axis.is_rate,
                "log": axis.logarithmic,
                "range": [axis.low, axis.high],
            }
            for letter, axis in (("x", panel.x), ("y", panel.y))
        },
    }


def _axis(axis: Axis, number: int, letter: str) -> dict[str, Any]:
    other = _axis_name("y" if letter == "x" else "x", number)
    made: dict[str, Any] = {
        "title": {"text": axis.title, "standoff": 6},
        "anchor": other,
        "gridcolor": "var(--grid)",
        "linecolor": GREY,
        "zeroline": False,
        "automargin": False,
        "tickformat": ",~r",
        "nticks": 8 if letter == "x" else 6,
    }
    if axis.categories:
        names = _categories(axis)
        labels = {"tickmode": "array", "tickvals": names, "ticktext": list(axis.categories)}
        return {
            **made,
            **labels,
            "type": "category",
            "categoryorder": "array",
            "categoryarray": names,
            "showgrid": False,
        }
    if axis.is_time:
        return {**made, "type": "date", "tickformat": "", "range": [1000 * axis.low, 1000 * axis.high]}
    if axis.ticks:
        made |= {
            "tickmode": "array",
            "tickvals": [at for at, _ in axis.ticks],
            "ticktext": [text for _, text in axis.ticks],
        }
    return {**made, "type": "linear", "range": [axis.low, axis.high], "hoverformat": ",.4~r"}


def _categories(axis: Axis) -> list[str]:
    """The names of categories; invisible characters make equal ones different."""
    seen: dict[str, int] = {}
    names = []
    for name in axis.categories:
        seen[name] = seen.get(name, -1) + 1
        names.append(name + "\N{ZERO WIDTH SPACE}" * seen[name])
    return names


def _axis_name(letter: str, number: int, more: str = "") -> str:
    return f"{letter}{more}{number if number > 1 else ''}"
