"""Interference by neighbours: relative maxima, as Figure 5 of Schlosser et al. 2011, and curves over their load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.model.frame_mix import FrameSize, rising, size_text
from netbench.report.figures.chart import (
    Chart,
    Mark,
    change_tooltip,
    curve_tooltip,
    numbers_of,
    numbers_of_curve,
    of_ratio,
)
from netbench.report.figures.panels import LOSS, THROUGHPUT, Panels, end_of_axis, ends_of, least_loss, rows_of_zero
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_setting
from netbench.report.formats import bounded, count
from netbench.report.model import ReportModel, baselines
from netbench.report.styles import Style
from netbench.statistics.groups import grouped
from netbench.statistics.interference import Curve, RelativeMaximum
from netbench.statistics.intervals import Unknown

_HIGHEST = 150  # percent: the upper end of an interval that stretches an axis


def relative_chart(maxima: Sequence[RelativeMaximum], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the highest throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({maximum.victim.frame_size for maximum in maxima}, key=rising)
    panels = Panels(
        maxima,
        styles,
        "Frame size [bytes]",
        f"Highest throughput [% of {baselines(maxima)}]",
        key_of=lambda maximum: maximum.scenario,
        uut_of=lambda maximum: maximum.victim.uut,
    )
    panels.chart.intervals = "95 % interval of the ratio"
    panels.categories([size_text(size) for size in sizes])
    for scenario, uut, of_uut in panels.cells:
        by_size = {maximum.victim.frame_size: maximum for maximum in of_uut}
        panels.bars(scenario, uut, [_bar(x, by_size[size]) for x, size in enumerate(sizes) if size in by_size])
    for scenario, panel in panels.panels.items():
        tips = (min(mark.high, _HIGHEST) for mark in panel.marks if mark.high is not None)
        panels.scale(scenario, y=[0, end_of_axis([100, *(mark.y for mark in panel.marks), *tips])])
        panels.rule(scenario, 100)
    return panels.finished()


def _bar(x: int, maximum: RelativeMaximum) -> Mark | None:
    if (ratio := maximum.ratio.ratio) is None:
        return None
    low, high = maximum.ratio.low, maximum.ratio.high
    ends: tuple[float | None, float | None] = (None, None)
    if low is not None and high is not None:
        ends = (100 * low, 100 * high)
    numbers = {
        **numbers_of(maximum.best, "throughput_mbps"),
        "baseline": maximum.baseline,
        **of_ratio(maximum.ratio),
    }
    doubt = " ?" if maximum.ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO) else ""
    text = bounded(f"{100 * ratio:.0f}{doubt}", maximum.ratio)
    return Mark(x, 100 * ratio, change_tooltip(maximum), numbers, *ends, text=text)


def _charts(model: ReportModel, maxima: Iterable[RelativeMaximum], name: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(maxima, lambda maximum: maximum.victim.sources).items())
    for sources, members in by_sources:
        heading = count(sources, "source") if len(by_sources) > 1 else ""
        yield from by_setting(
            members,
            lambda maximum: maximum.victim.uut,
            model.styles,
            relative_chart,
            f"{name}-{sources}",
            heading=heading,
        )


def _forwarding(model: ReportModel) -> list[RelativeMaximum]:
    return [maximum for maximum in model.maxima if maximum.best.forwarding]


ISOLATION = Figure(
    "isolation",
    "Interference by neighbours",
    lambda model: "" if model.maxima else "no UUT had a neighbour",
    lambda model: _charts(model, model.maxima, "isolation"),
)
AS_FIGURE_5 = Figure(
    "relative-maximum",
    "A second guest forwarding small packets",
    lambda model: "" if model.paper and _forwarding(model) else "no campaign of the paper with a forwarding neighbour",
    lambda model: _charts(model, _forwarding(model), "relative-maximum"),
)


def curve_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size of the victim: its throughput against the load of its neighbours, a line per UUT."""
    panels = _curve_panels(curves, styles, THROUGHPUT)
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
    panels = _curve_panels(curves, styles, LOSS)
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


def _curve_panels(curves: Sequence[Curve], styles: Mapping[str, Style], y_title: str) -> Panels[FrameSize, Curve]:
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


def _curve_charts(model: ReportModel, draw: Draw[Curve], name: str, what: str) -> Iterator[NamedChart]:
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
    lambda model: _curve_charts(model, curve_chart, "curve", "Throughput"),
)
LOSS_CURVE = Figure(
    "curve-of-loss",
    "Interference curves of loss",
    _requires_curves,
    lambda model: _curve_charts(model, curve_of_loss_chart, "curve-of-loss", "Loss"),
)
