"""The figures of the report: throughput, the most of it, loss; what neighbours do to them.

They follow Figures 3, 4 and 5 of Schlosser et al. 2011, and go on with loss and interference curves. Bandwidths are
Mbit/s on the wire (L1), error bars 95 % intervals. Only valid trials are averaged and connected; suspicious and invalid
ones are marked each where it was measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from textwrap import wrap

from netbench.model.frame_mix import FrameSize, frames_text, rising, size_text
from netbench.model.verdict import Verdict
from netbench.report.axes import (
    LOSS,
    OFFERED,
    THROUGHPUT,
    LossScale,
    end_of_axis,
    error_bars,
    half_widths,
    least_loss,
    rows_of_zero,
    uneven_error_bars,
)
from netbench.report.chart import Chart, Trace
from netbench.report.formats import (
    at_least,
    bounded,
    count,
    kfps,
    kfps_interval,
    mbps,
    mbps_interval,
    percent,
    percent_interval,
)
from netbench.report.panels import (
    GREY,
    HOVER,
    INK,
    Bar,
    Panels,
    Point,
    groups_by_size,
    groups_by_uut,
    mark,
    size_titles,
)
from netbench.report.styles import Style
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import Curve, CurvePoint, RelativeMaximum
from netbench.statistics.intervals import Interval, statement
from netbench.statistics.outliers import outliers_of
from netbench.statistics.totals import TrialTotals


def offered_against_throughput(groups: Sequence[Group], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels, by_size = _panels_of_lines(groups, looks, THROUGHPUT, outliers=bool(_outliers(groups)))
    for size, members in by_size.items():
        end = max(_end_of_offered(members), end_of_axis([group.throughput_mbps for group in members]))
        panels.scale(size, [0, end], [0, end])
        panels.add(size, _diagonal(end, named=size == next(iter(by_size))))
        for uut, own in groups_by_uut(members).items():
            panels.line(size, uut, _points(own, looks[uut], lambda group: group.throughput_mbps), end)
            apart = {Verdict.VALID: _outliers(own)} | _not_averaged(own)
            for trace in _marked(looks[uut], apart, lambda one: one.throughput_mbps):
                panels.add(size, trace)
    return panels.figure


def loss_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, logarithmic with a band where zero is zero."""
    panels, by_size = _panels_of_lines(groups, looks, LOSS)
    for size, members in by_size.items():
        trials = (one for group in members for one in group.everything)
        ratios = [one.loss_ratio for one in trials if one.loss_ratio is not None]
        ratios += [least_loss(group.loss_ratio) for group in members]
        scale = panels.scale_of_loss(size, [0, _end_of_offered(members)], ratios)
        uuts = groups_by_uut(members)
        for row, (uut, own) in zip(rows_of_zero(len(uuts)), uuts.items(), strict=True):
            panels.line_of_loss(size, uut, _points(own, looks[uut], lambda group: group.loss_ratio), scale, row)
            for trace in _marked(looks[uut], _not_averaged(own), _height_of_loss(scale, row)):
                panels.add(size, trace)
    return panels.figure


def most_throughput(groups: Sequence[Group], looks: Mapping[str, Style], *, by_scenario: bool = False) -> Chart:
    """A panel per frame size: the most throughput at any load, a bar per UUT, by number of sources or by scenario."""
    in_order = groups if by_scenario else sorted(groups, key=lambda group: group.sources)
    categories = list(dict.fromkeys(_category(group, by_scenario) for group in in_order))
    best = {(group.uut, group.frame_size, _category(group, by_scenario)): group for group in best_groups(groups)}
    by_size = groups_by_size(groups)
    title = "" if by_scenario else "Number of sources"
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, title, THROUGHPUT)
    for size, members in by_size.items():
        panels.scale(size, None, [0, end_of_axis([group.throughput_mbps for group in members])])
        for uut, own in groups_by_uut(members).items():
            tried = grouped(own, lambda group: _category(group, by_scenario))
            there = [best.get((uut, size, category)) for category in categories]
            bars = [
                _bar_of_most(group, looks[uut], tried.get(category, ()))
                for group, category in zip(there, categories, strict=True)
            ]
            widths = half_widths(None if group is None else group.throughput_mbps for group in there)
            panels.bars(size, uut, categories, bars, error_bars(INK, widths))
    panels.arrange_bars(categories)
    if by_scenario:
        for axis in panels.figure.axes("x"):
            axis["tickfont"] = {"size": 11}  # names are long, and stand upright on a telephone
    return panels.figure


def relative_maximum(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the most throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({one.victim.frame_size for one in maxima}, key=rising, reverse=True)
    categories = [size_text(size) for size in sizes]
    by_scenario = grouped(maxima, lambda one: one.scenario)
    panels = Panels(
        {scenario: scenario for scenario in by_scenario},
        (one.victim.uut for one in maxima),
        looks,
        "Frame size [bytes]",
        f"Most throughput [% of {baselines_named(maxima)}]",
    )
    for scenario, members in by_scenario.items():
        ratios = [100 * one.ratio.ratio for one in members if one.ratio.ratio is not None]
        tips = [min(100 * one.ratio.high, 150) for one in members if one.ratio.high is not None]
        panels.scale(scenario, None, [0, end_of_axis((), [100, *ratios, *tips])])
        for uut, own in grouped(members, lambda one: one.victim.uut).items():
            of_size = {one.victim.frame_size: one for one in own}
            there = [of_size.get(size) for size in sizes]
            bars = [_bar_of_change(one, looks[uut]) for one in there]
            panels.bars(scenario, uut, categories, bars, uneven_error_bars(INK, map(_reach_of_change, there)))
        panels.rule(scenario, 100)
    panels.arrange_bars(categories)
    return panels.figure


def baselines_named(maxima: Iterable[RelativeMaximum]) -> str:
    """The scenarios that these maxima are compared to."""
    return " or ".join(dict.fromkeys(one.baseline for one in maxima))


def curves_of_throughput(curves: Sequence[Curve], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size of the victim: its throughput against what its neighbours are offered, a line per UUT."""
    panels, by_size = _panels_of_curves(curves, looks, THROUGHPUT)
    for size, members in by_size.items():
        end = _end_of_neighbours(members)
        throughputs = (point.throughput_mbps for one in members for point in one.points)
        panels.scale(size, [-end / 50, end], [0, end_of_axis(throughputs)])
        for curve in members:
            points = _points_of_curve(curve, looks, lambda point: point.throughput_mbps)
            panels.line(size, curve.victim.uut, points, end)
    return panels.figure


def curves_of_loss(curves: Sequence[Curve], looks: Mapping[str, Style]) -> Chart:
    """The same for the victim's loss, logarithmic with a band where zero is zero."""
    panels, by_size = _panels_of_curves(curves, looks, LOSS)
    for size, members in by_size.items():
        end = _end_of_neighbours(members)
        lines = [
            (curve.victim.uut, _points_of_curve(curve, looks, lambda point: point.loss_ratio)) for curve in members
        ]
        losses = (least_loss(point.y) for _, points in lines for point in points)
        scale = panels.scale_of_loss(size, [-end / 50, end], losses)
        for row, (uut, points) in zip(rows_of_zero(len(lines)), lines, strict=True):
            panels.line_of_loss(size, uut, points, scale, row)
    return panels.figure


def _panels_of_lines(
    groups: Sequence[Group], looks: Mapping[str, Style], y_title: str, *, outliers: bool = False
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Group]]]:
    by_size = groups_by_size(groups)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, OFFERED, y_title)
    apart = {
        Verdict.VALID: outliers,
        Verdict.SUSPICIOUS: any(group.suspicious for group in groups),
        Verdict.INVALID: any(group.invalid for group in groups),
    }
    panels.legend(
        (verdict for verdict, there in apart.items() if there), rings=any(group.saturated for group in groups)
    )
    return panels, by_size


def _panels_of_curves(
    curves: Iterable[Curve], looks: Mapping[str, Style], y_title: str
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Curve]]]:
    in_order = sorted(curves, key=lambda one: rising(one.victim.frame_size), reverse=True)
    by_size = grouped(in_order, lambda one: one.victim.frame_size)
    uuts = (one.victim.uut for one in curves)
    panels = Panels(size_titles(by_size), uuts, looks, "Offered to the neighbours [Mbit/s, L1]", y_title)
    panels.legend()
    return panels, by_size


def _points(groups: Iterable[Group], style: Style, read: Callable[[Group], Interval | None]) -> list[Point]:
    """The groups that have a mean, by rising offered load."""
    points = [
        Point(offered, mean, _group_hover(group, style), ringed=group.saturated > 0)
        for group in groups
        if group.loss_ratio and (offered := group.offered_mbps) and (mean := read(group))
    ]
    return sorted(points, key=lambda point: point.x.mean)


def _points_of_curve(
    curve: Curve, looks: Mapping[str, Style], read: Callable[[CurvePoint], Interval | None]
) -> list[Point]:
    return [
        Point(point.neighbours_offered_mbps, mean, _curve_hover(curve, point, looks[curve.victim.uut]))
        for point in curve.points
        if (mean := read(point))
    ]


def _not_averaged(groups: Sequence[Group]) -> dict[Verdict, list[TrialTotals]]:
    return {
        Verdict.SUSPICIOUS: [one for group in groups for one in group.suspicious],
        Verdict.INVALID: [one for group in groups for one in group.invalid],
    }


def _outliers(groups: Iterable[Group]) -> list[TrialTotals]:
    """Valid trials whose throughput stands apart: they are in the mean."""
    return [one for group in groups if (found := outliers_of(group)) for one in found.marked]


def _marked(
    style: Style, apart: Mapping[Verdict, Sequence[TrialTotals]], height: Callable[[TrialTotals], float | None]
) -> list[Trace]:
    """Unconnected markers of single trials: a trace for each verdict, none for none."""
    traces = []
    for verdict, trials in apart.items():
        places = [(one, one.offered_mbps, height(one)) for one in trials]
        known = [(one, x, y) for one, x, y in places if x is not None and y is not None]
        if known:
            traces.append(
                {
                    "type": "scatter",
                    "x": [x for _, x, _ in known],
                    "y": [y for _, _, y in known],
                    "mode": "markers",
                    "marker": mark(verdict, style.colour, style.symbol, style.size),
                    "hovertext": [_trial_hover(one, style) for one, _, _ in known],
                    "hovertemplate": HOVER,
                    "name": f"{escape(style.label)}, {'outlier' if verdict is Verdict.VALID else verdict.value}",
                    "legendgroup": style.uut,
                    "showlegend": False,
                }
            )
    return traces


def _diagonal(end: float, *, named: bool) -> Trace:
    return {
        "type": "scatter",
        "x": [0, end],
        "y": [0, end],
        "mode": "lines",
        "line": {"color": GREY, "dash": "dot", "width": 1.5},
        "hoverinfo": "skip",
        "name": "throughput = offered",
        "legendgroup": "y = x",
        "showlegend": named,
    }


def _category(group: Group, by_scenario: bool) -> str:
    return escape(group.scenario).replace("-", "-<br>") if by_scenario else str(group.sources)


def _bar_of_most(group: Group | None, style: Style, tried: Sequence[Group]) -> Bar:
    if group is not None and (throughput := group.throughput_mbps):
        hover = f"most throughput of<br>{_group_hover(group, style)}"
        if group.limited_by:
            hover += f"<br><b>≥</b>: limited by {escape(group.limited_by)}"
        return Bar(throughput.mean, at_least(f"{throughput.mean:,.0f}", group.limited_by), hover)
    # A bar of no height carries the note that there is nothing to show.
    why = "too few valid trials" if any(one.valid for one in tried) else "no valid trial"
    return Bar(0 if tried else None, why if tried else "", why)


def _bar_of_change(one: RelativeMaximum | None, style: Style) -> Bar:
    ratio = None if one is None else one.ratio.ratio
    height = None if ratio is None else 100 * ratio
    if one is None or height is None:
        return Bar(height, "", "" if one is None else _change_hover(one, style))
    return Bar(height, bounded(f"{height:.0f}", one.ratio), _change_hover(one, style))


def _reach_of_change(one: RelativeMaximum | None) -> tuple[float, float] | None:
    """How far the interval extends up and down from the ratio, in percent."""
    if one is None or one.ratio.ratio is None or one.ratio.low is None or one.ratio.high is None:
        return None
    return 100 * (one.ratio.high - one.ratio.ratio), 100 * (one.ratio.ratio - one.ratio.low)


def _height_of_loss(scale: LossScale, row: float) -> Callable[[TrialTotals], float | None]:
    return lambda one: None if one.loss_ratio is None else scale.height(one.loss_ratio, row)


def _end_of_offered(groups: Sequence[Group]) -> float:
    left_out = (one for group in groups for one in (*group.suspicious, *group.invalid))
    return end_of_axis([group.offered_mbps for group in groups], [one.offered_mbps for one in left_out])


def _end_of_neighbours(curves: Iterable[Curve]) -> float:
    return end_of_axis(point.neighbours_offered_mbps for one in curves for point in one.points)


def _headline(style: Style, frame_size: FrameSize, *others: str) -> str:
    return ", ".join((f"<b>{escape(style.label)}</b>", frames_text(frame_size), *map(escape, others)))


def _each(load: str, sources: int) -> str:
    return f"{load} each from {sources} sources" if sources > 1 else load


def _group_hover(group: Group, style: Style) -> str:
    return "<br>".join(
        (
            _headline(style, group.frame_size, _each(str(group.load), group.sources)),
            f"intended {mbps(group.intended_mbps)} Mbit/s = {kfps(group.intended_fps)} kfps",
            f"offered {mbps_interval(group.offered_mbps)} Mbit/s = {kfps_interval(group.offered_fps)} kfps",
            f"throughput {mbps_interval(group.throughput_mbps)} Mbit/s = {kfps_interval(group.throughput_fps)} kfps",
            f"loss {percent_interval(group.loss_ratio)} of offered",
            f"unsent {percent_interval(group.unsent_ratio)} of intended",
            f"{count(len(group.valid), 'valid trial')}, {group.saturated} of them saturated;"
            f" left out: {len(group.suspicious)} suspicious, {len(group.invalid)} invalid",
        )
    )


def _trial_hover(one: TrialTotals, style: Style) -> str:
    spec = one.trial.spec
    reasons = [f"{reason.kind.value}: {reason.detail}" for reason in one.trial.reasons]
    return "<br>".join(
        (
            _headline(style, spec.frame_size, _each(str(spec.load), len(spec.streams))),
            f"<b>{one.trial.verdict.value}</b>, not averaged; repetition {spec.repetition}",
            f"offered {mbps(one.offered_mbps)} Mbit/s = {kfps(one.offered_fps)} kfps",
            f"throughput {mbps(one.throughput_mbps)} Mbit/s = {kfps(one.throughput_fps)} kfps",
            f"loss {percent(one.loss_ratio)} of offered",
            *(escape(line) for reason in reasons for line in wrap(reason, 80)),
        )
    )


def _change_hover(one: RelativeMaximum, style: Style) -> str:
    return "<br>".join(
        (
            _headline(style, one.victim.frame_size, one.scenario),
            escape(statement(one.ratio)),
            f"most throughput {_at(one.best)}",
            f"in {escape(one.baseline)} {_at(one.base)}",
            *(f"{escape(own.name)} {escape(own.activity)}" for own in one.best.neighbours),
        )
    )


def _at(group: Group) -> str:
    what = f"{mbps_interval(group.throughput_mbps)} Mbit/s at {escape(str(group.load))}"
    return f"{at_least(what, group.limited_by)}, limited by {escape(group.limited_by)}" if group.limited_by else what


def _curve_hover(curve: Curve, point: CurvePoint, style: Style) -> str:
    return "<br>".join(
        (
            _headline(style, curve.victim.frame_size, str(curve.load), f"in {point.scenario}"),
            f"neighbours offered {mbps_interval(point.neighbours_offered_mbps)} Mbit/s",
            f"neighbours' throughput {mbps_interval(point.neighbours_throughput_mbps)} Mbit/s",
            f"throughput {mbps_interval(point.throughput_mbps)} Mbit/s",
            f"loss {percent_interval(point.loss_ratio)} of offered",
        )
    )
