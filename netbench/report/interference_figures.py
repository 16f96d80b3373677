"""Figures of what neighbours do: the most throughput relative to the baseline, and interference curves.

The first follows Figure 5 of Schlosser et al. 2011. Error bars are 95 % intervals.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TypeVar

import plotly.graph_objects as go

from netbench.report.formats import mbps_interval, percent_interval
from netbench.report.loss_scale import LossScale
from netbench.report.panels import GREY, INK, Panels, Style, size_titles
from netbench.report.traces import (
    LOSS,
    NO_BAR,
    THROUGHPUT,
    TINY,
    arrange_bars,
    bars,
    end_of_axis,
    error_bars,
    half_widths,
    line,
    loss_error_bars,
)
from netbench.statistics.interference.curves import Curve, CurvePoint
from netbench.statistics.interference.throughput_change import RelativeMaximum
from netbench.statistics.intervals import Interval
from netbench.statistics.ratios import RatioOfMeans, statement

_NEIGHBOURS = "Offered to the neighbours [Mbit/s, L1]"

Item = TypeVar("Item", Curve, RelativeMaximum)


def relative_maximum(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per scenario: the most throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({one.victim.frame_size for one in maxima}, reverse=True)
    categories = [f"{size:,}" for size in sizes]
    scenarios = dict.fromkeys(one.scenario for one in maxima)
    baselines = " or ".join(dict.fromkeys(one.baseline for one in maxima))
    panels = Panels(
        {scenario: scenario for scenario in scenarios},
        (one.victim.uut for one in maxima),
        looks,
        "Frame size [bytes]",
        f"Most throughput [% of {baselines}]",
    )
    named: set[str] = set()
    for scenario in scenarios:
        members = [one for one in maxima if one.scenario == scenario]
        ratios = [100 * one.ratio.ratio for one in members if one.ratio.ratio is not None]
        tips = [min(100 * one.ratio.high, 150) for one in members if one.ratio.high is not None]
        panels.scale(scenario, None, [0, end_of_axis((), [100, *ratios, *tips])])
        for uut, own in _by_uut(members).items():
            of_size = {one.victim.frame_size: one for one in own}
            there = [of_size.get(size) for size in sizes]
            heights = [None if one is None or one.ratio.ratio is None else 100 * one.ratio.ratio for one in there]
            panels.add(
                scenario,
                bars(
                    uut,
                    looks[uut],
                    x=categories,
                    y=heights,
                    error_y=error_bars(INK, *_reaches(None if one is None else one.ratio for one in there)),
                    text=["" if height is None else f"{height:.0f}" for height in heights],
                    hover=["" if one is None else _maximum_hover(one, looks[uut]) for one in there],
                    named=uut not in named,
                ),
            )
            named.add(uut)
        panels.figure.add_hline(y=100, line={"color": GREY, "dash": "dot", "width": 1.5}, **panels.place(scenario))
    arrange_bars(panels.figure, categories)
    return panels.figure


def curves_of_throughput(curves: Sequence[Curve], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size of the victim: its throughput against what its neighbours are offered, a line per UUT."""
    panels = _curve_panels(curves, looks, THROUGHPUT)
    for size, members in _by_size(curves).items():
        end = _end_of_neighbours(members)
        panels.scale(
            size, [-end / 50, end], [0, end_of_axis(point.throughput_mbps for one in members for point in one.points)]
        )
        for curve in members:
            style = looks[curve.victim.uut]
            panels.add(
                size,
                line(
                    curve.victim.uut,
                    style,
                    x=[point.neighbours_offered_mbps.mean for point in curve.points],
                    y=[point.throughput_mbps.mean for point in curve.points],
                    error_x=error_bars(
                        style.colour,
                        half_widths((point.neighbours_offered_mbps for point in curve.points), least=end * TINY),
                    ),
                    error_y=error_bars(style.colour, half_widths(point.throughput_mbps for point in curve.points)),
                    hover=[_point_hover(curve, point, style) for point in curve.points],
                ),
            )
    return panels.figure


def curves_of_loss(curves: Sequence[Curve], looks: Mapping[str, Style]) -> go.Figure:
    """The same for the victim's loss, logarithmic with a band where zero is zero."""
    panels = _curve_panels(curves, looks, LOSS)
    for size, members in _by_size(curves).items():
        losses = [point.loss_ratio for one in members for point in one.points if point.loss_ratio is not None]
        scale = LossScale.over(loss.mean for loss in losses)
        end = _end_of_neighbours(members)
        panels.scale_of_loss(size, [-end / 50, end], scale)
        for place, curve in enumerate(members, start=1):
            row = 1 - place / (len(members) + 1)
            style = looks[curve.victim.uut]
            known = [(point, point.loss_ratio) for point in curve.points if point.loss_ratio is not None]
            panels.add(
                size,
                line(
                    curve.victim.uut,
                    style,
                    x=[point.neighbours_offered_mbps.mean for point, _ in known],
                    y=[scale.height(loss.mean, row) for _, loss in known],
                    error_x={"visible": False},
                    error_y=loss_error_bars(style.colour, scale, (loss for _, loss in known), row),
                    hover=[_point_hover(curve, point, style) for point, _ in known],
                ),
            )
    return panels.figure


def _curve_panels(curves: Sequence[Curve], looks: Mapping[str, Style], y_title: str) -> Panels[int]:
    panels = Panels(size_titles(_by_size(curves)), (one.victim.uut for one in curves), looks, _NEIGHBOURS, y_title)
    panels.legend()
    return panels


def _by_size(curves: Iterable[Curve]) -> dict[int, list[Curve]]:
    by_size: dict[int, list[Curve]] = {}
    for curve in sorted(curves, key=lambda one: -one.victim.frame_size):
        by_size.setdefault(curve.victim.frame_size, []).append(curve)
    return by_size


def _by_uut(maxima: Iterable[RelativeMaximum]) -> dict[str, list[RelativeMaximum]]:
    by_uut: dict[str, list[RelativeMaximum]] = {}
    for one in maxima:
        by_uut.setdefault(one.victim.uut, []).append(one)
    return by_uut


def _end_of_neighbours(curves: Iterable[Curve]) -> float:
    return end_of_axis(point.neighbours_offered_mbps for one in curves for point in one.points)


def _reaches(ratios: Iterable[RatioOfMeans | None]) -> tuple[list[float | str], list[float | str]]:
    """How far each interval extends up and down from its ratio, in percent; no bar where that is unknown."""
    reaches: list[tuple[float | str, float | str]] = []
    for one in ratios:
        if one is None or one.ratio is None or one.low is None or one.high is None:
            reaches.append((NO_BAR, NO_BAR))
        else:
            reaches.append((100 * (one.high - one.ratio), 100 * (one.ratio - one.low)))
    return [up for up, _ in reaches], [down for _, down in reaches]


def _maximum_hover(one: RelativeMaximum, style: Style) -> str:
    return "<br>".join(
        (
            f"<b>{escape(style.label)}</b>, {one.victim.frame_size:,}-byte frames, {escape(one.scenario)}",
            escape(statement(one.ratio)),
            f"most throughput {_at(one.best.throughput_mbps, str(one.best.load))}",
            f"in {escape(one.baseline)} {_at(one.base.throughput_mbps, str(one.base.load))}",
            *(f"{escape(own.name)} {escape(own.activity)}" for own in one.best.neighbours),
        )
    )


def _at(throughput: Interval | None, load: str) -> str:
    return f"{mbps_interval(throughput)} Mbit/s at {escape(load)}"


def _point_hover(curve: Curve, point: CurvePoint, style: Style) -> str:
    return "<br>".join(
        (
            f"<b>{escape(style.label)}</b>, {curve.victim.frame_size:,}-byte frames, {escape(str(curve.load))},"
            f" in {escape(point.scenario)}",
            f"neighbours offered {mbps_interval(point.neighbours_offered_mbps)} Mbit/s",
            f"neighbours' throughput {mbps_interval(point.neighbours_throughput_mbps)} Mbit/s",
            f"throughput {mbps_interval(point.throughput_mbps)} Mbit/s",
            f"loss {percent_interval(point.loss_ratio)} of offered",
        )
    )
