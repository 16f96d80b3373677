"""The figures of the report: throughput, highest throughput, loss, and interference.

They follow Figures 3, 4 and 5 of Schlosser et al. 2011, and add loss and interference curves. Bandwidths are Mbit/s on
the wire (L1); pale bars are 95 % intervals. Only valid trials are averaged and connected. Suspicious and invalid trials
are single marks at their measured values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.frame_mix import FrameSize, rising, size_text
from netbench.model.verdict import Verdict
from netbench.report.axes import (
    LOSS,
    OFFERED,
    OFFERED_FPS,
    THROUGHPUT,
    THROUGHPUT_FPS,
    LossScale,
    end_of_axis,
    least_loss,
    rows_of_zero,
)
from netbench.report.chart import Chart, Guide, Mark
from netbench.report.figure_numbers import numbers_of, numbers_of_trial, of_interval, of_ratio
from netbench.report.formats import (
    at_least,
    bounded,
)
from netbench.report.hovers import change_hover, curve_hover, group_hover, trial_hover
from netbench.report.panels import (
    Bar,
    Panels,
    Point,
    ends_of,
    groups_by_size,
    groups_by_uut,
    mark_of,
    size_titles,
)
from netbench.report.styles import Style
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import Curve, CurvePoint, RelativeMaximum
from netbench.statistics.intervals import Interval, Unknown
from netbench.statistics.outliers import outliers_of
from netbench.statistics.totals import TrialTotals

SCALES = ("Mbit/s", "frames/s", "logarithmic")
_LOADS = ("offered_mbps", "throughput_mbps", "offered_fps", "throughput_fps", "loss_ratio")


@dataclass(frozen=True, slots=True)
class Unit:
    """The unit of loads and throughputs in a figure, and how they are read."""

    offered_title: str
    throughput_title: str
    offered: Callable[[Group], Interval | None]
    throughput: Callable[[Group], Interval | None]
    of_trial: Callable[[TrialTotals], tuple[float | None, float | None]]


MBPS = Unit(
    OFFERED,
    THROUGHPUT,
    lambda group: group.offered_mbps,
    lambda group: group.throughput_mbps,
    lambda trial: (trial.offered_mbps, trial.throughput_mbps),
)
KFPS = Unit(
    OFFERED_FPS,
    THROUGHPUT_FPS,
    lambda group: _thousands(group.offered_fps),
    lambda group: _thousands(group.throughput_fps),
    lambda trial: (_thousand(trial.offered_fps), _thousand(trial.throughput_fps)),
)


def throughput_on_scales(groups: Sequence[Group], looks: Mapping[str, Style]) -> dict[str, Chart]:
    """Offered load against throughput in each unit, and on logarithmic axes, by the name of the scale."""
    linear = offered_against_throughput(groups, looks)
    charts = (linear, offered_against_throughput(groups, looks, KFPS), _on_logarithms(linear))
    return dict(zip(SCALES, charts, strict=True))


def offered_against_throughput(groups: Sequence[Group], looks: Mapping[str, Style], unit: Unit = MBPS) -> Chart:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels, by_size = _panels_of_lines(
        groups, looks, unit.offered_title, unit.throughput_title, outliers=bool(_outliers(groups))
    )
    for size, members in by_size.items():
        left_out = [trial for group in members for trial in (*group.suspicious, *group.invalid)]
        loads = [unit.of_trial(trial)[0] for trial in left_out]
        end = max(
            end_of_axis([unit.offered(group) for group in members], loads),
            end_of_axis([unit.throughput(group) for group in members]),
        )
        panels.scale(size, [0, end], [0, end])
        panels.guide(size, Guide(((0, 0), (end, end)), "throughput = offered"))
        for uut, of_uut in groups_by_uut(members).items():
            panels.line(size, uut, _points(of_uut, looks[uut], unit.throughput, unit.offered))
            marked = _marked(looks[uut], _not_averaged(of_uut), unit.of_trial)
            panels.points(size, f"{looks[uut].label}, not averaged", looks[uut].look, marked)
            apart = _marked(looks[uut], {Verdict.VALID: _outliers(of_uut)}, unit.of_trial)
            panels.points(size, f"{looks[uut].label}, outliers", looks[uut].look, apart)
    return panels.figure


def _on_logarithms(chart: Chart) -> Chart:
    """The chart on logarithmic axes, from just below its smallest positive value; four decades at most."""
    panels = []
    for panel in chart.panels:
        end = panel.x.high
        start = max(
            0.7 * min((at for mark in panel.marks for at in (mark.x, mark.y) if at > 0), default=end), end / 1e4
        )
        x, y = (replace(axis, low=start, logarithmic=True) for axis in (panel.x, panel.y))
        series = [
            replace(line, marks=tuple(replace(mark, x=max(mark.x, start), y=max(mark.y, start)) for mark in line.marks))
            for line in panel.series
        ]
        guides = [Guide(((start, start), (end, end)), guide.name) for guide in panel.guides]
        panels.append(replace(panel, x=x, y=y, series=series, guides=guides))
    return replace(chart, panels=panels)


def loss_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, logarithmic with a band for zero."""
    panels, by_size = _panels_of_lines(groups, looks, OFFERED, LOSS)
    for size, members in by_size.items():
        trials = (trial for group in members for trial in group.everything)
        ratios = [trial.loss_ratio for trial in trials if trial.loss_ratio is not None]
        ratios += [least_loss(group.loss_ratio) for group in members]
        scale = panels.scale_of_loss(size, [0, _end_of_offered(members)], ratios)
        uuts = groups_by_uut(members)
        for row, (uut, of_uut) in zip(rows_of_zero(len(uuts)), uuts.items(), strict=True):
            panels.line_of_loss(size, uut, _points(of_uut, looks[uut], lambda group: group.loss_ratio), scale, row)
            marked = _marked(looks[uut], _not_averaged(of_uut), _at_loss(scale, row))
            panels.points(size, f"{looks[uut].label}, not averaged", looks[uut].look, marked)
    return panels.figure


def most_throughput(groups: Sequence[Group], looks: Mapping[str, Style], *, by_scenario: bool = False) -> Chart:
    """A panel per frame size: the highest throughput at any load, a bar per UUT, by scenario or number of sources."""
    in_order = groups if by_scenario else sorted(groups, key=lambda group: group.sources)
    categories = list(dict.fromkeys(_category(group, by_scenario) for group in in_order))
    best = {(group.uut, group.frame_size, _category(group, by_scenario)): group for group in best_groups(groups)}
    by_size = groups_by_size(groups)
    title = "" if by_scenario else "Number of sources"
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, title, THROUGHPUT)
    panels.categories(categories)
    for size, members in by_size.items():
        panels.scale(size, None, [0, end_of_axis([group.throughput_mbps for group in members])])
        for uut, of_uut in groups_by_uut(members).items():
            tried = grouped(of_uut, lambda group: _category(group, by_scenario))
            highest = [best.get((uut, size, category)) for category in categories]
            bars = [
                _bar_of_most(group, looks[uut], tried.get(category, ()))
                for group, category in zip(highest, categories, strict=True)
            ]
            panels.bars(size, uut, bars)
    return panels.figure


def relative_maximum(maxima: Sequence[RelativeMaximum], looks: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the highest throughput by frame size, in percent of the baseline's, a bar per UUT."""
    sizes = sorted({maximum.victim.frame_size for maximum in maxima}, key=rising, reverse=True)
    by_scenario = grouped(maxima, lambda maximum: maximum.scenario)
    panels = Panels(
        {scenario: scenario for scenario in by_scenario},
        (maximum.victim.uut for maximum in maxima),
        looks,
        "Frame size [bytes]",
        f"Highest throughput [% of {baselines_named(maxima)}]",
    )
    panels.figure.intervals = "95 % interval of the ratio"
    panels.categories([size_text(size) for size in sizes])
    for scenario, members in by_scenario.items():
        ratios = [100 * maximum.ratio.ratio for maximum in members if maximum.ratio.ratio is not None]
        tips = [min(100 * maximum.ratio.high, 150) for maximum in members if maximum.ratio.high is not None]
        panels.scale(scenario, None, [0, end_of_axis((), [100, *ratios, *tips])])
        for uut, of_uut in grouped(members, lambda maximum: maximum.victim.uut).items():
            of_size = {maximum.victim.frame_size: maximum for maximum in of_uut}
            panels.bars(scenario, uut, [_bar_of_change(of_size.get(size), looks[uut]) for size in sizes])
        panels.rule(scenario, 100)
    return panels.figure


def baselines_named(maxima: Iterable[RelativeMaximum]) -> str:
    """The scenarios that these maxima are compared to."""
    return " or ".join(dict.fromkeys(maximum.baseline for maximum in maxima))


def curves_of_throughput(curves: Sequence[Curve], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size of the victim: its throughput against what its neighbours are offered, a line per UUT."""
    panels, by_size = _panels_of_curves(curves, looks, THROUGHPUT)
    for size, members in by_size.items():
        end = _end_of_neighbours(members)
        throughputs = (point.throughput_mbps for curve in members for point in curve.points)
        panels.scale(size, [-end / 50, end], [0, end_of_axis(throughputs)])
        for curve in members:
            panels.line(size, curve.victim.uut, _points_of_curve(curve, looks, lambda point: point.throughput_mbps))
    return panels.figure


def curves_of_loss(curves: Sequence[Curve], looks: Mapping[str, Style]) -> Chart:
    """The interference curves of the victim's loss, logarithmic with a band for zero."""
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
    groups: Sequence[Group], looks: Mapping[str, Style], x_title: str, y_title: str, *, outliers: bool = False
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Group]]]:
    by_size = groups_by_size(groups)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, x_title, y_title)
    apart = {
        Verdict.VALID: outliers,
        Verdict.SUSPICIOUS: any(group.suspicious for group in groups),
        Verdict.INVALID: any(group.invalid for group in groups),
    }
    panels.legend(
        (verdict for verdict, is_shown in apart.items() if is_shown), rings=any(group.saturated for group in groups)
    )
    return panels, by_size


def _panels_of_curves(
    curves: Iterable[Curve], looks: Mapping[str, Style], y_title: str
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Curve]]]:
    in_order = sorted(curves, key=lambda curve: rising(curve.victim.frame_size), reverse=True)
    by_size = grouped(in_order, lambda curve: curve.victim.frame_size)
    uuts = (curve.victim.uut for curve in curves)
    panels = Panels(size_titles(by_size), uuts, looks, "Offered to the neighbours [Mbit/s, L1]", y_title)
    panels.legend()
    return panels, by_size


def _points(
    groups: Iterable[Group],
    style: Style,
    read: Callable[[Group], Interval | None],
    load: Callable[[Group], Interval | None] = MBPS.offered,
) -> list[Point]:
    """The groups that have a mean, by rising offered load."""
    points = [
        Point(offered, mean, group_hover(group, style), numbers_of(group, *_LOADS), ringed=group.saturated > 0)
        for group in groups
        if group.loss_ratio and (offered := load(group)) and (mean := read(group))
    ]
    return sorted(points, key=lambda point: point.x.mean)


def _points_of_curve(
    curve: Curve, looks: Mapping[str, Style], read: Callable[[CurvePoint], Interval | None]
) -> list[Point]:
    return [
        Point(
            point.neighbours_offered_mbps,
            mean,
            curve_hover(curve, point, looks[curve.victim.uut]),
            _numbers_of_curve(curve, point),
        )
        for point in curve.points
        if (mean := read(point))
    ]


def _numbers_of_curve(curve: Curve, point: CurvePoint) -> dict[str, str | int | float | None]:
    return {
        "uut": curve.victim.uut,
        "scenario": point.scenario,
        "streams": curve.victim.sources,
        "frame_size": size_text(curve.victim.frame_size),
        "load": str(curve.load),
        "valid_trials": point.throughput_mbps.n,
        **of_interval("neighbour_offered_mbps", point.neighbours_offered_mbps),
        **of_interval("neighbour_throughput_mbps", point.neighbours_throughput_mbps),
        **of_interval("throughput_mbps", point.throughput_mbps),
        **of_interval("loss_ratio", point.loss_ratio),
    }


def _not_averaged(groups: Sequence[Group]) -> dict[Verdict, list[TrialTotals]]:
    return {
        Verdict.SUSPICIOUS: [trial for group in groups for trial in group.suspicious],
        Verdict.INVALID: [trial for group in groups for trial in group.invalid],
    }


def _outliers(groups: Iterable[Group]) -> list[TrialTotals]:
    """The valid trials whose throughput is an outlier; they are part of the mean."""
    return [trial for group in groups if (outliers := outliers_of(group)) for trial in outliers.marked]


def _marked(
    style: Style,
    apart: Mapping[Verdict, Sequence[TrialTotals]],
    place: Callable[[TrialTotals], tuple[float | None, float | None]],
) -> list[Mark]:
    """A mark for each single trial with known coordinates."""
    marks = []
    for verdict, trials in apart.items():
        for trial in trials:
            x, y = place(trial)
            if x is not None and y is not None:
                symbol = mark_of(verdict, style.symbol)
                marks.append(Mark(x, y, trial_hover(trial, style), numbers_of_trial(trial), symbol=symbol))
    return marks


def _category(group: Group, by_scenario: bool) -> str:
    return group.scenario if by_scenario else str(group.sources)


def _bar_of_most(group: Group | None, style: Style, tried: Sequence[Group]) -> Bar:
    if group is not None and (throughput := group.maximum_mbps):
        hover = f"highest throughput of\n{group_hover(group, style)}"
        if group.limited_by:
            hover += f"\n≥: not saturated, limited by {group.limited_by}"
        text = at_least(f"{throughput.mean:,.0f}", group.limited_by)
        numbers = numbers_of(group, *_LOADS, "limited_by")
        return Bar(throughput.mean, text, hover, numbers, ends_of(throughput))
    # A bar without height carries the reason why there is no value.
    why = "too few valid trials" if any(candidate.valid for candidate in tried) else "no valid trial"
    return Bar(0 if tried else None, why if tried else "", why, numbers_of(tried[0]) if tried else {})


def _bar_of_change(one: RelativeMaximum | None, style: Style) -> Bar:
    ratio = None if one is None else one.ratio.ratio
    if one is None or ratio is None:
        return Bar(None, "", "" if one is None else change_hover(one, style))
    low, high = one.ratio.low, one.ratio.high
    ends = None if low is None or high is None else (100 * low, 100 * high)
    numbers = {**numbers_of(one.best, "throughput_mbps"), "baseline": one.baseline, **of_ratio(one.ratio)}
    doubt = " ?" if one.ratio.unknown in (Unknown.TOO_FEW, Unknown.BASE_MAY_BE_ZERO) else ""
    text = bounded(f"{100 * ratio:.0f}{doubt}", one.ratio)
    return Bar(100 * ratio, text, change_hover(one, style), numbers, ends)


def _at_loss(scale: LossScale, row: float) -> Callable[[TrialTotals], tuple[float | None, float | None]]:
    return lambda trial: (trial.offered_mbps, None if trial.loss_ratio is None else scale.height(trial.loss_ratio, row))


def _thousands(interval: Interval | None) -> Interval | None:
    return None if interval is None else interval.scaled(1e-3)


def _thousand(fps: float | None) -> float | None:
    return None if fps is None else fps / 1000


def _end_of_offered(groups: Sequence[Group]) -> float:
    left_out = (trial for group in groups for trial in (*group.suspicious, *group.invalid))
    return end_of_axis([group.offered_mbps for group in groups], [trial.offered_mbps for trial in left_out])


def _end_of_neighbours(curves: Iterable[Curve]) -> float:
    return end_of_axis(point.neighbours_offered_mbps for curve in curves for point in curve.points)
