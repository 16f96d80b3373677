"""Marks of flows in figures: the identity of a cell, its figures, and its tooltip."""

from netbench.report.figures.chart import Mark, Numbers
from netbench.report.figures.panels import ends_of
from netbench.report.flow_formats import figure_interval, figure_title, rate_beside_intended
from netbench.report.formats import count
from netbench.results.flow_columns import flow_cell
from netbench.statistics.flow_figures import FIGURES, FlowFigure
from netbench.statistics.workload_groups import WorkloadGroup

_WHICH = ("uut", "scenario", "streams", "workload", "load", "valid_trials")


def cell_numbers(group: WorkloadGroup, *figures: str) -> Numbers:
    """The identity of a cell and its figures of these names, each as a mean and, if known, a half width."""
    names = (*_WHICH, *(column for name in figures for column in (name, f"{name}_ci95")))
    return {name: flow_cell(name, group) for name in names}


def flow_mark(
    x: float, figure: FlowFigure, group: WorkloadGroup, more: Numbers | None = None, text: str = ""
) -> Mark | None:
    """The mark of a figure at `x`, with `more` numbers behind it. None if the figure is unknown."""
    interval = group.figures.get(figure.name)
    if interval is None:
        return None
    factor = 100.0 if figure.is_ratio else 1.0
    shown = interval.scaled(factor)
    numbers = {**cell_numbers(group, figure.name), **(more or {})}
    return Mark(x, shown.mean, flow_tooltip(group), numbers, *ends_of(shown), text=text)


def flow_tooltip(group: WorkloadGroup) -> str:
    """The known figures of a cell, rates first, and the trials left out."""
    figures = [figure for figure in FIGURES if figure.kind in ("", group.kind_of_times)]
    lines = [f"{group.workload} at {group.load}, {group.scenario}"]
    lines += [
        f"{figure_title(figure, of_datagrams=group.has_datagrams)}: {_amount(figure, group)}"
        for figure in figures
        if figure.name in group.figures
    ]
    left_out = [f"{len(group.suspicious)} suspicious"] * bool(group.suspicious)
    left_out += [f"{len(group.invalid)} invalid"] * bool(group.invalid)
    left = f"; left out: {', '.join(left_out)}" if left_out else ""
    return "\n".join((*lines, count(len(group.valid), "valid trial") + left))


def _amount(figure: FlowFigure, group: WorkloadGroup) -> str:
    """The figure with its interval, times in the unit of the axes; a rate beside the intended one: `500 of 500/s`."""
    if figure.name == "completed_per_s" and group.intended_per_s is not None:
        return f"{rate_beside_intended(figure, group)}{figure.unit}"
    return figure_interval(figure, group.figures[figure.name], figure.unit)
