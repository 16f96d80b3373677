"""Loss against offered load, on a logarithmic scale with a band for zero."""

from collections.abc import Mapping, Sequence

from netbench.model.frame_mix import FrameSize
from netbench.report.figures.chart import Chart
from netbench.report.figures.panels import LOSS, LossScale, least_loss, rows_of_zero
from netbench.report.figures.registry import figure_of_views
from netbench.report.figures.throughput import LoadPanels, add_means, add_trials, not_averaged, panels_of_loads
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped


def loss_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, a line per UUT."""
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
        panels, size, style.uut, groups, "loss_ratio", lambda loss: (scale.height(loss.mean, row), *scale.ends(loss, row))
    )
    add_trials(
        panels,
        size,
        style,
        not_averaged(groups),
        lambda trial: None if trial.loss_ratio is None else scale.height(trial.loss_ratio, row),
    )


FIGURE = figure_of_views("loss", "Loss", loss_chart)
