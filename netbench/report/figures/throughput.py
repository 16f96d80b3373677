"""Throughput against offered load, as Figure 3 of Schlosser et al. 2011, and loss against offered load.

Only valid trials are averaged and connected. Suspicious and invalid trials are single marks at their measured values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from netbench.model.frame_mix import FrameSize
from netbench.model.verdict import Verdict
from netbench.report.figures.chart import (
    LOADS,
    Chart,
    Form,
    Guide,
    Mark,
    group_tooltip,
    numbers_of,
    numbers_of_trial,
    trial_tooltip,
)
from netbench.report.figures.panels import (
    LOSS,
    OFFERED,
    THROUGHPUT,
    LossScale,
    Panels,
    end_of_axis,
    ends_of,
    kfps_of_mix,
    least_loss,
    rows_of_zero,
    symbol_of,
)
from netbench.report.figures.registry import figure_of_views, size_of_group, uut_of_group
from netbench.report.formats import mean
from netbench.report.styles import GREY, SMALLEST_MARKER, MarkerStyle, Style
from netbench.statistics.drift import outliers_of
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval
from netbench.statistics.totals import TrialTotals

LoadPanels = Panels[FrameSize, Group]
# The height of a mean and of the ends of its interval.
Heights = Callable[[Interval], tuple[float, float | None, float | None]]


def throughput_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels = panels_of_loads(groups, styles, THROUGHPUT)
    for size, uut, of_uut in panels.cells:
        add_means(panels, size, uut, of_uut, "throughput_mbps", lambda interval: (interval.mean, *ends_of(interval)))
        outliers = [trial for group in of_uut if (marked := outliers_of(group)) for trial in marked.marked]
        trials = {**not_averaged(of_uut), Verdict.VALID: outliers}
        add_trials(panels, size, styles[uut], trials, lambda trial: trial.throughput_mbps)
    for size, panel in panels.panels.items():
        marks = list(panel.marks)
        end = max(end_of_axis(mark.x for mark in marks), end_of_axis((m.y for m in marks), (m.high for m in marks)))
        panels.scale(size, [0, end], [0, end])
        panels.guide(size, Guide(((0, 0), (end, end)), "throughput = offered"))
    return panels.finished("xy")


def loss_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, logarithmic with a band for zero, a line per UUT."""
    panels = panels_of_loads(groups, styles, LOSS)
    for size, members in panels.members.items():
        trials = [trial.loss_ratio or 0.0 for group in members for trial in group.everything]
        scale = panels.scale_of_loss(size, [*trials, *(least_loss(group.loss_ratio) for group in members)])
        by_uut = grouped(members, lambda group: group.uut)
        for uut, row in rows_of_zero(by_uut).items():
            _draw(panels, size, styles[uut], by_uut[uut], scale, row)
    return panels.finished("x")


def _draw(
    panels: LoadPanels, size: FrameSize, style: Style, groups: Sequence[Group], scale: LossScale, row: float
) -> None:
    """The line and the single trials of a UUT, loss of zero in its row."""
    add_means(
        panels,
        size,
        style.uut,
        groups,
        "loss_ratio",
        lambda loss: (scale.height(loss.mean, row), *scale.ends(loss, row)),
    )
    add_trials(
        panels,
        size,
        style,
        not_averaged(groups),
        lambda trial: None if trial.loss_ratio is None else scale.height(trial.loss_ratio, row),
    )


def panels_of_loads(groups: Sequence[Group], styles: Mapping[str, Style], y_title: str) -> LoadPanels:
    """Panels with the offered load as x axis."""
    return Panels(groups, styles, OFFERED, y_title, key_of=size_of_group, uut_of=uut_of_group)


def add_means(
    panels: LoadPanels, size: FrameSize, uut: str, groups: Iterable[Group], quantity: str, heights: Heights
) -> None:
    """The line of a UUT through the means of a quantity of its groups, by rising offered load."""
    marks = []
    for group in groups:
        interval: Interval | None = getattr(group, quantity)
        if group.loss_ratio and group.offered_mbps and interval:
            y, low, high = heights(interval)
            kfps = kfps_of_mix(group.frame_size, mean(group.throughput_fps))
            numbers, ringed = numbers_of(group, *LOADS), group.saturated > 0
            hover = group_tooltip(group)
            marks.append(Mark(group.offered_mbps.mean, y, hover, numbers, low, high, ringed=ringed, y_kfps=kfps))
    panels.line(size, uut, sorted(marks, key=lambda mark: mark.x))


def not_averaged(groups: Sequence[Group]) -> dict[Verdict, list[TrialTotals]]:
    """The trials that are part of no mean."""
    return {
        Verdict.SUSPICIOUS: [trial for group in groups for trial in group.suspicious],
        Verdict.INVALID: [trial for group in groups for trial in group.invalid],
    }


def add_trials(
    panels: LoadPanels,
    size: FrameSize,
    style: Style,
    by_verdict: Mapping[Verdict, Sequence[TrialTotals]],
    height: Callable[[TrialTotals], float | None],
) -> None:
    """A mark for each single trial with known coordinates; a valid one is marked as it is an outlier."""
    marks = []
    for verdict, trials in by_verdict.items():
        for trial in trials:
            x, y = trial.offered_mbps, height(trial)
            if x is not None and y is not None:
                symbol, kfps = symbol_of(verdict, style.symbol), kfps_of_mix(size, trial.throughput_fps)
                mark = Mark(x, y, trial_tooltip(trial), numbers_of_trial(trial), symbol=symbol, y_kfps=kfps)
                marks.append(mark)
        if trials:
            text = "outlier (averaged too)" if verdict is Verdict.VALID else f"{verdict.value} trial (not averaged)"
            sign = MarkerStyle(GREY, symbol_of(verdict, "circle"), size=SMALLEST_MARKER + 2)
            panels.in_legend(text, sign, Form.POINTS)
    panels.points(size, style.uut, marks)


THROUGHPUT_FIGURE = figure_of_views("throughput", "Offered load and throughput", throughput_chart)
LOSS_FIGURE = figure_of_views("loss", "Loss", loss_chart)
