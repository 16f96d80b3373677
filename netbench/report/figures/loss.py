"""Loss against offered load, on a logarithmic scale with a band for zero."""

from collections.abc import Mapping, Sequence

from netbench.report.figures.chart import Chart
from netbench.report.figures.panels import LOSS, end_of_axis, least_loss, rows_of_zero
from netbench.report.figures.registry import figure_of_views
from netbench.report.figures.throughput import (
    groups_by_uut,
    marks_of_trials,
    not_averaged,
    panels_of_loads,
    points_of_loads,
)
from netbench.report.styles import Style
from netbench.statistics.groups import Group


def loss_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, a line per UUT."""
    panels, by_size = panels_of_loads(groups, styles, LOSS)
    for size, members in by_size.items():
        trials = [trial for group in members for trial in group.everything]
        ratios = [trial.loss_ratio for trial in trials if trial.loss_ratio is not None]
        ratios += [least_loss(group.loss_ratio) for group in members]
        left_out = (trial.offered_mbps for group in members for trial in (*group.suspicious, *group.invalid))
        end = end_of_axis([group.offered_mbps for group in members], left_out)
        scale = panels.scale_of_loss(size, [0, end], ratios)
        uuts = groups_by_uut(members)
        for row, (uut, of_uut) in zip(rows_of_zero(len(uuts)), uuts.items(), strict=True):
            panels.line_of_loss(size, uut, points_of_loads(of_uut, lambda group: group.loss_ratio), scale, row)
            marks = marks_of_trials(
                styles[uut],
                not_averaged(of_uut),
                lambda trial, scale=scale, row=row: (  # type: ignore[misc]
                    None if trial.loss_ratio is None else scale.height(trial.loss_ratio, row)
                ),
            )
            panels.points(size, uut, marks)
    panels.rates(x=True, y=False)
    return panels.figure


FIGURE = figure_of_views("loss", "Loss", loss_chart)
