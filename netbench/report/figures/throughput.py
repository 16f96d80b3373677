"""Offered load against throughput, as Figure 3 of Schlosser et al. 2011, and what loss figures share with it.

Only valid trials are averaged and connected. Suspicious and invalid trials are single marks at their measured values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from netbench.model.frame_mix import FrameSize
from netbench.model.verdict import Verdict
from netbench.report.figures.chart import Chart, Guide, Mark
from netbench.report.figures.marks import group_tooltip, numbers_of, numbers_of_trial, trial_tooltip
from netbench.report.figures.panels import (
    OFFERED,
    THROUGHPUT,
    Panels,
    Point,
    by_rising_size,
    end_of_axis,
    kfps_of_mix,
    mark_of,
    size_titles,
)
from netbench.report.figures.registry import figure_of_views
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval
from netbench.statistics.outliers import outliers_of
from netbench.statistics.totals import TrialTotals

LOADS = ("offered_mbps", "throughput_mbps", "offered_fps", "throughput_fps", "loss_ratio")


def throughput_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels, by_size = panels_of_loads(groups, styles, THROUGHPUT, outliers=bool(_outliers(groups)))
    for size, members in by_size.items():
        left_out = [trial.offered_mbps for group in members for trial in (*group.suspicious, *group.invalid)]
        end = max(
            end_of_axis([group.offered_mbps for group in members], left_out),
            end_of_axis([group.throughput_mbps for group in members]),
        )
        panels.scale(size, [0, end], [0, end])
        panels.guide(size, Guide(((0, 0), (end, end)), "throughput = offered"))
        for uut, of_uut in groups_by_uut(members).items():
            panels.line(size, uut, points_of_loads(of_uut, lambda group: group.throughput_mbps))
            apart = {**not_averaged(of_uut), Verdict.VALID: _outliers(of_uut)}
            panels.points(size, uut, marks_of_trials(styles[uut], apart, lambda trial: trial.throughput_mbps))
    panels.rates(x=True)
    return panels.figure


def groups_by_uut(groups: Iterable[Group]) -> dict[str, list[Group]]:
    """The groups of each UUT, in the order they come."""
    return grouped(groups, lambda group: group.uut)


def panels_of_loads(
    groups: Sequence[Group], styles: Mapping[str, Style], y_title: str, *, outliers: bool = False
) -> tuple[Panels[FrameSize], dict[FrameSize, list[Group]]]:
    """Panels with the offered load as x axis and their legend, and the groups of each."""
    by_size = by_rising_size(groups, lambda group: group.frame_size)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), styles, OFFERED, y_title)
    apart = {
        Verdict.VALID: outliers,
        Verdict.SUSPICIOUS: any(group.suspicious for group in groups),
        Verdict.INVALID: any(group.invalid for group in groups),
    }
    panels.legend(
        (verdict for verdict, is_shown in apart.items() if is_shown), rings=any(group.saturated for group in groups)
    )
    return panels, by_size


def points_of_loads(groups: Iterable[Group], read: Callable[[Group], Interval | None]) -> list[Point]:
    """The groups that have a mean, by rising offered load."""
    points = [
        Point(
            offered,
            mean,
            group_tooltip(group),
            numbers_of(group, *LOADS),
            ringed=group.saturated > 0,
            kfps=kfps_of_mix(group.frame_size, group.throughput_fps),
        )
        for group in groups
        if group.loss_ratio and (offered := group.offered_mbps) and (mean := read(group))
    ]
    return sorted(points, key=lambda point: point.x.mean)


def not_averaged(groups: Sequence[Group]) -> dict[Verdict, list[TrialTotals]]:
    """The trials that are part of no mean."""
    return {
        Verdict.SUSPICIOUS: [trial for group in groups for trial in group.suspicious],
        Verdict.INVALID: [trial for group in groups for trial in group.invalid],
    }


def marks_of_trials(
    style: Style, apart: Mapping[Verdict, Sequence[TrialTotals]], height: Callable[[TrialTotals], float | None]
) -> list[Mark]:
    """A mark for each single trial with known coordinates."""
    marks = []
    for verdict, trials in apart.items():
        for trial in trials:
            x, y = trial.offered_mbps, height(trial)
            if x is None or y is None:
                continue
            fps = None if trial.throughput_fps is None else Interval(trial.throughput_fps, None, 1)
            mark = Mark(
                x,
                y,
                trial_tooltip(trial),
                numbers_of_trial(trial),
                symbol=mark_of(verdict, style.symbol),
                y_kfps=kfps_of_mix(trial.trial.spec.frame_size, fps),
            )
            marks.append(mark)
    return marks


def _outliers(groups: Iterable[Group]) -> list[TrialTotals]:
    """The valid trials whose throughput is an outlier; they are part of the mean."""
    return [trial for group in groups if (outliers := outliers_of(group)) for trial in outliers.marked]


FIGURE = figure_of_views("throughput", "Offered load and throughput", throughput_chart)
