"""What figures draw: lines, bars and error bars, and where axes end."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from netbench.report.loss_scale import LossScale
from netbench.report.panels import Style
from netbench.statistics.intervals import Interval

HOVER = "%{hovertext}<extra></extra>"
NO_BAR = "none"  # in place of a half width; null would be drawn like 0, which is another statement

THROUGHPUT = "Throughput [Mbit/s, L1]"
LOSS = "Loss [% of offered frames]"
TINY = 1 / 200  # of an axis: an error bar shorter than the marker it would be hidden by

_HEADROOM = 1.05


def error_bars(colour: str, up: Sequence[float | str], down: Sequence[float | str] | None = None) -> dict[str, Any]:
    """Error bars of these lengths, the same in both directions unless `down` is given."""
    bars = {"type": "data", "array": up, "color": colour, "thickness": 1.3, "width": 4}
    return bars if down is None else {**bars, "symmetric": False, "arrayminus": down}


def half_widths(intervals: Iterable[Interval | None], least: float = 0.0) -> list[float | str]:
    """The half widths; no bar where one is unknown or less than `least`."""
    widths = [None if interval is None else interval.half_width for interval in intervals]
    return [NO_BAR if width is None or width < least else width for width in widths]


def line(
    uut: str,
    style: Style,
    *,
    x: Sequence[float],
    y: Sequence[float],
    error_x: Mapping[str, Any],
    error_y: Mapping[str, Any],
    hover: Sequence[str],
) -> go.Scatter:
    """The line of a UUT through its means."""
    return go.Scatter(
        x=x,
        y=y,
        error_x=error_x,
        error_y=error_y,
        mode="lines+markers",
        line={"color": style.colour, "dash": style.dash, "width": 2},
        marker={"symbol": style.symbol, "size": style.size},
        hovertext=hover,
        hovertemplate=HOVER,
        name=escape(style.label),
        legendgroup=uut,
        showlegend=False,
    )


def loss_error_bars(colour: str, scale: LossScale, losses: Iterable[Interval | None], row: float) -> dict[str, Any]:
    """Error bars of losses on their scale; none where unknown."""
    reaches = [(loss and scale.reach(loss, row)) or (NO_BAR, NO_BAR) for loss in losses]
    return error_bars(colour, [up for up, _ in reaches], [down for _, down in reaches])


def end_of_axis(intervals: Iterable[Interval | None], trials: Iterable[float | None] = ()) -> float:
    """Where an axis from 0 ends: beyond all means and single trials; a huge error bar does not stretch it."""
    known = [interval for interval in intervals if interval is not None]
    drawn = max([interval.mean for interval in known] + [value for value in trials if value], default=0.0)
    tip = max([interval.mean + (interval.half_width or 0.0) for interval in known], default=0.0)
    return _HEADROOM * max(drawn, min(tip, 1.3 * drawn)) or 1.0


def bars(
    uut: str,
    style: Style,
    *,
    x: Sequence[str],
    y: Sequence[float | None],
    error_y: Mapping[str, Any],
    text: Sequence[str],
    hover: Sequence[str],
    named: bool,
) -> go.Bar:
    """The bars of a UUT, one a category; a bar of height 0 has its text above it, others inside."""
    return go.Bar(
        x=x,
        y=y,
        error_y=error_y,
        text=text,
        textposition=["inside" if height else "outside" for height in y],
        insidetextanchor="middle",
        hovertext=hover,
        hovertemplate=HOVER,
        marker={
            "color": style.colour,
            "pattern": {"shape": style.pattern, "fillmode": "overlay", "solidity": 0.15},
        },
        name=escape(style.label),
        legendgroup=uut,
        offsetgroup=uut,
        showlegend=named,
    )


def arrange_bars(figure: go.Figure, categories: Sequence[str]) -> None:
    """Bars of the UUTs side by side in each category, categories in the order given."""
    figure.update_layout(
        barmode="group",
        bargap=0.25 if len(categories) > 1 else 0.5,
        bargroupgap=0.06,
        uniformtext={"mode": "hide", "minsize": 10},
    )
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=categories, showgrid=False)
