"""Interference curves: throughput and loss of a UUT against the load that is offered to its neighbours."""

from collections.abc import Iterator, Mapping, Sequence

from netbench.model.frame_mix import FrameSize
from netbench.report.figures.chart import Chart, Mark
from netbench.report.figures.marks import curve_tooltip, numbers_of_curve
from netbench.report.figures.panels import LOSS, THROUGHPUT, Panels, end_of_axis, ends_of, least_loss, rows_of_zero
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_setting
from netbench.report.formats import count
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.interference import Curve


def curve_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size of the victim: its throughput against what its neighbours are offered, a line per UUT."""
    panels = _panels(curves, styles, THROUGHPUT)
    for size, uut, of_uut in panels.cells:
        for curve in of_uut:
            marks = [
                Mark(
                    point.neighbours_offered_mbps.mean,
                    point.throughput_mbps.mean,
                    curve_tooltip(curve, point),
                    numbers_of_curve(curve, point),
                    *ends_of(point.throughput_mbps),
                )
                for point in curve.points
            ]
            panels.line(size, uut, marks)
    return panels.finished("y")


def curve_of_loss_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """The interference curves of the victim's loss, logarithmic with a band for zero."""
    panels = _panels(curves, styles, LOSS)
    for size, members in panels.members.items():
        scale = panels.scale_of_loss(size, [least_loss(p.loss_ratio) for curve in members for p in curve.points])
        rows = rows_of_zero(curve.victim.uut for curve in members)
        for curve in members:
            row = rows[curve.victim.uut]
            marks = [
                Mark(
                    point.neighbours_offered_mbps.mean,
                    scale.height(loss.mean, row),
                    curve_tooltip(curve, point),
                    numbers_of_curve(curve, point),
                    *scale.ends(loss, row),
                )
                for point in curve.points
                if (loss := point.loss_ratio)
            ]
            panels.line(size, curve.victim.uut, marks)
    return panels.finished()


def _panels(curves: Sequence[Curve], styles: Mapping[str, Style], y_title: str) -> Panels[FrameSize, Curve]:
    panels: Panels[FrameSize, Curve] = Panels(
        curves,
        styles,
        "Offered to the neighbours [Mbit/s, L1]",
        y_title,
        key_of=lambda curve: curve.victim.frame_size,
        uut_of=lambda curve: curve.victim.uut,
    )
    for size, members in panels.members.items():
        end = end_of_axis(point.neighbours_offered_mbps.mean for curve in members for point in curve.points)
        panels.scale(size, [-end / 50, end])
    return panels


def _charts(model: ReportModel, draw: Draw[Curve], name: str, what: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(model.curves, lambda curve: curve.victim.sources).items())
    for sources, members in by_sources:
        for place, (disturbance, alike) in enumerate(grouped(members, lambda curve: curve.disturbance).items()):
            heading = f"{count(sources, 'source')}, " if len(by_sources) > 1 else ""
            yield from by_setting(
                alike,
                lambda curve: curve.victim.uut,
                model.styles,
                draw,
                f"{name}-{sources}-{place}",
                heading=f"{heading}{what}; neighbours: {disturbance}",
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
