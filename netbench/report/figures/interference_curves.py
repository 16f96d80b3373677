"""Interference curves: throughput and loss of a UUT against the load that is offered to its neighbours."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import FrameSize
from netbench.report.figures.chart import Chart
from netbench.report.figures.marks import curve_tooltip, numbers_of_curve
from netbench.report.figures.panels import (
    LOSS,
    THROUGHPUT,
    Panels,
    Point,
    by_rising_size,
    end_of_axis,
    least_loss,
    rows_of_zero,
    size_titles,
)
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_setting
from netbench.report.formats import count
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.interference import Curve, CurvePoint
from netbench.statistics.intervals import Interval


def curve_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size of the victim: its throughput against what its neighbours are offered, a line per UUT."""
    panels, by_size = _panels(curves, styles, THROUGHPUT)
    for size, members in by_size.items():
        end = _end_of_neighbours(members)
        throughputs = (point.throughput_mbps for curve in members for point in curve.points)
        panels.scale(size, [-end / 50, end], [0, end_of_axis(throughputs)])
        for curve in members:
            panels.line(size, curve.victim.uut, _points(curve, lambda point: point.throughput_mbps))
    panels.rates()
    return panels.figure


def curve_of_loss_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """The interference curves of the victim's loss, logarithmic with a band for zero."""
    panels, by_size = _panels(curves, styles, LOSS)
    for size, members in by_size.items():
        end = _end_of_neighbours(members)
        lines = [(curve.victim.uut, _points(curve, lambda point: point.loss_ratio)) for curve in members]
        losses = (least_loss(point.y) for _, points in lines for point in points)
        scale = panels.scale_of_loss(size, [-end / 50, end], losses)
        for row, (uut, points) in zip(rows_of_zero(len(lines)), lines, strict=True):
            panels.line_of_loss(size, uut, points, scale, row)
    return panels.figure


def _panels(
    curves: Sequence[Curve], styles: Mapping[str, Style], y_title: str
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Curve]]]:
    by_size = by_rising_size(curves, lambda curve: curve.victim.frame_size)
    uuts = (curve.victim.uut for curve in curves)
    panels = Panels(size_titles(by_size), uuts, styles, "Offered to the neighbours [Mbit/s, L1]", y_title)
    panels.legend()
    return panels, by_size


def _points(curve: Curve, read: Callable[[CurvePoint], Interval | None]) -> list[Point]:
    return [
        Point(point.neighbours_offered_mbps, mean, curve_tooltip(curve, point), numbers_of_curve(curve, point))
        for point in curve.points
        if (mean := read(point))
    ]


def _end_of_neighbours(curves: Sequence[Curve]) -> float:
    return end_of_axis(point.neighbours_offered_mbps for curve in curves for point in curve.points)


def _charts(model: ReportModel, draw: Draw[Curve], name: str, what: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(model.curves, lambda curve: curve.victim.sources).items())
    for sources, members in by_sources:
        for place, (disturbance, alike) in enumerate(grouped(members, lambda curve: curve.disturbance).items()):
            heading = f"{what}; neighbours: {disturbance}"
            yield from by_setting(
                alike,
                lambda curve: curve.victim.uut,
                model.styles,
                draw,
                f"{name}-{sources}-{place}",
                heading=f"{count(sources, 'source')}, {heading}" if len(by_sources) > 1 else heading,
            )


def _requires_curves(model: ReportModel) -> str:
    return "" if model.curves else "no UUT had neighbours with several loads"


THROUGHPUT_CURVE = Figure(
    "curve",
    "Interference curves of throughput",
    _requires_curves,
    lambda model: _charts(model, curve_chart, "curve", "Throughput"),
)
LOSS_CURVE = Figure(
    "curve-of-loss",
    "Interference curves of loss",
    _requires_curves,
    lambda model: _charts(model, curve_of_loss_chart, "curve-of-loss", "Loss"),
)
