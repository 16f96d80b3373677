"""Interference by neighbours: relative maxima, as Figure 5 of Schlosser et al. 2011, and curves over their load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from netbench.model.frame_size import FrameSize
from netbench.report.figures.chart import Chart, Mark, Numbers, numbers_of, of_interval
from netbench.report.figures.panels import LOSS, THROUGHPUT, Panels, end_of_axis, ends_of, least_loss, rows_of_zero
from netbench.report.figures.registry import Draw, Figure, NamedChart, by_setting
from netbench.report.formats import at_least, bounded, count, mbps_interval, percent_interval
from netbench.report.model import ReportModel, baselines
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.interference import Curve, CurvePoint, RelativeMaximum
from netbench.statistics.intervals import Unknown, statement

_HIGHEST = 150  # percent: the upper end of an interval that stretches an axis


def relative_chart(maxima: Sequence[RelativeMaximum], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the highest throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({maximum.victim.frame_size for maximum in maxima})
    y_title = f"Highest throughput [% of {baselines(maxima)}]"
    panels = Panels(
        maxima, styles, "Frame size [bytes]", y_title, key_of=lambda maximum: maximum.scenario, uut_of=_uut_of
    )
    panels.chart.intervals = "95 % interval of the ratio"
    panels.categories([f"{size:,}" for size in sizes])
    for scenario, uut, of_uut in panels.cells:
        by_size = {maximum.victim.frame_size: maximum for maximum in of_uut}
        panels.bars(scenario, uut, [_bar(x, by_size[size]) for x, size in enumerate(sizes) if size in by_size])
    for scenario, panel in panels.panels.items():
        tips = (min(mark.high, _HIGHEST) for mark in panel.marks if mark.high is not None)
        panels.scale(scenario, y=[0, end_of_axis([100, *(mark.y for mark in panel.marks), *tips])])
        panels.rule(scenario, 100)
    return panels.finished()


def _bar(x: int, maximum: RelativeMaximum) -> Mark | None:
    ratio = maximum.ratio
    if ratio.ratio is None:
        return None
    ends: tuple[float | None, float | None] = (None, None)
    if ratio.low is not None and ratio.high is not None:
        ends = (100 * ratio.low, 100 * ratio.high)
    numbers = {
        **numbers_of(maximum.best, "throughput_mbps"),
        "baseline": maximum.baseline,
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "bound": ratio.bound or None,
        "unknown": ratio.why_unknown or None,
    }
    lines = (
        statement(ratio),
        f"highest throughput {_at(maximum.best)}",
        f"in {maximum.baseline} {_at(maximum.base)}",
        *(f"{neighbour.name} {neighbour.activity}" for neighbour in maximum.best.neighbours),
    )
    doubt = " ?" if ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO) else ""
    text = bounded(f"{100 * ratio.ratio:.0f}{doubt}", ratio)
    return Mark(x, 100 * ratio.ratio, "\n".join(lines), numbers, *ends, text=text)


def _at(group: Group) -> str:
    what = f"{mbps_interval(group.maximum_mbps)} Mbit/s at {', '.join(map(str, group.maximum_loads))}"
    return f"{at_least(what, group.is_lower_bound)}, limited by {group.limited_by}" if group.is_lower_bound else what


def _uut_of(item: RelativeMaximum | Curve) -> str:
    return item.victim.uut


def _charts(model: ReportModel, maxima: Iterable[RelativeMaximum], name: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(maxima, lambda maximum: maximum.victim.sources).items())
    for sources, members in by_sources:
        heading = count(sources, "source") if len(by_sources) > 1 else ""
        yield from by_setting(members, _uut_of, model.styles, relative_chart, f"{name}-{sources}", heading=heading)


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
            marks = [_mark(curve, p, p.throughput_mbps.mean, *ends_of(p.throughput_mbps)) for p in curve.points]
            panels.line(size, uut, marks)
    return panels.finished(rates="y")


def curve_of_loss_chart(curves: Sequence[Curve], styles: Mapping[str, Style]) -> Chart:
    """The interference curves of the victim's loss, logarithmic with a band for zero."""
    panels = _curve_panels(curves, styles, LOSS)
    for size, members in panels.members.items():
        scale = panels.scale_of_loss(size, [least_loss(p.loss_ratio) for curve in members for p in curve.points])
        rows = rows_of_zero(curve.victim.uut for curve in members)
        for curve in members:
            row, known = rows[curve.victim.uut], ((p, p.loss_ratio) for p in curve.points if p.loss_ratio)
            marks = [_mark(curve, point, *scale.mark(row, loss)) for point, loss in known]
            panels.line(size, curve.victim.uut, marks)
    return panels.finished()


def _mark(curve: Curve, point: CurvePoint, y: float, low: float | None, high: float | None) -> Mark:
    offered, forwarded = point.neighbours_offered_mbps, point.neighbours_throughput_mbps
    numbers: Numbers = {
        "uut": curve.victim.uut,
        "scenario": point.scenario,
        "streams": curve.victim.sources,
        "frame_size": f"{curve.victim.frame_size.without_packet:,}",
        "packet": curve.victim.frame_size.packet or None,
        "load": str(curve.load),
        "valid_trials": point.throughput_mbps.n,
        **of_interval("neighbour_offered_mbps", offered),
        **of_interval("neighbour_throughput_mbps", forwarded),
        **of_interval("throughput_mbps", point.throughput_mbps),
        **of_interval("loss_ratio", point.loss_ratio),
    }
    lines = (
        f"{mbps_interval(point.throughput_mbps)} Mbit/s, loss {percent_interval(point.loss_ratio)}",
        f"at {curve.load} in {point.scenario}",
        f"neighbours offered {mbps_interval(offered)} Mbit/s",
        f"neighbours' throughput {mbps_interval(forwarded)} Mbit/s",
    )
    return Mark(offered.mean, y, "\n".join(lines), numbers, low, high)


def _curve_panels(curves: Sequence[Curve], styles: Mapping[str, Style], y_title: str) -> Panels[FrameSize, Curve]:
    x_title = "Offered to the neighbours [Mbit/s, L1]"
    panels = Panels(curves, styles, x_title, y_title, key_of=lambda curve: curve.victim.frame_size, uut_of=_uut_of)
    for size, members in panels.members.items():
        end = end_of_axis(point.neighbours_offered_mbps.mean for curve in members for point in curve.points)
        panels.scale(size, [-end / 50, end])
    return panels


def _curve_charts(model: ReportModel, draw: Draw[Curve], name: str, what: str) -> Iterator[NamedChart]:
    by_sources = sorted(grouped(model.curves, lambda curve: curve.victim.sources).items())
    for sources, members in by_sources:
        for place, (disturbance, alike) in enumerate(grouped(members, lambda curve: curve.disturbance).items()):
            only = f"{count(sources, 'source')}, " if len(by_sources) > 1 else ""
            heading = f"{only}{what}; neighbours: {disturbance}"
            yield from by_setting(alike, _uut_of, model.styles, draw, f"{name}-{sources}-{place}", heading=heading)


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
