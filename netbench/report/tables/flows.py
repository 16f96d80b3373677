"""The tables of flows: rates and errors, latencies, and the cost of neighbours."""

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TypeVar

from netbench.report.blocks import Column, Table, table
from netbench.report.flow_formats import (
    figure_heading,
    figure_interval,
    figure_mean,
    figure_spread,
    rate_beside_intended,
    unit_of,
    unit_of_times,
)
from netbench.report.formats import UNKNOWN, capitalised, change_text, sentence, three_digits
from netbench.report.model import ReportModel, uut_cell
from netbench.report.tables.registry import number, report_table
from netbench.statistics.flow_costs import FlowCost, flow_costs
from netbench.statistics.flow_figures import FIGURES, KINDS, FlowFigure
from netbench.statistics.flow_witnesses import WitnessedFigure, witnessed
from netbench.statistics.groups import grouped
from netbench.statistics.workload_groups import WorkloadGroup, without_payload

Item = TypeVar("Item", WorkloadGroup, FlowCost, WitnessedFigure)


@report_table("flow-rates", is_exported=True)
def rates(model: ReportModel) -> Iterator[Table]:
    """The rates, errors and retransmissions of each cell, a block per workload; empty cells for unknown ones."""
    figures = [figure for figure in FIGURES if not figure.kind]
    if any(figure.name in group.figures for group in model.workload_groups for figure in figures):
        caption = sentence("captions.flow_rates")
        yield _cells(model, model.workload_groups, figures, name="flow-rates", caption=caption)


@report_table("latency", is_exported=True)
def latencies(model: ReportModel) -> Iterator[Table]:
    """A table for each kind of times: percentiles over all times of the valid trials of each cell."""
    for kind, title in KINDS.items():
        figures = [figure for figure in FIGURES if figure.kind == kind]
        groups = [group for group in model.workload_groups if any(figure.name in group.figures for figure in figures)]
        if groups:
            caption = sentence("captions.latency", kind=capitalised(title))
            yield _cells(model, groups, figures, name=f"latency-{kind}", caption=caption)


@report_table("flow-costs", is_exported=True)
def costs(model: ReportModel) -> Iterator[Table]:
    """The leading figures of each cell beside neighbours, relative to the baseline; a block per figure."""
    found = sorted(flow_costs(model.workload_groups), key=lambda cost: FIGURES.index(cost.figure))
    if found:
        workload: Column[FlowCost] = Column("Workload", lambda cost: cost.group.workload.name)
        yield table(
            found,
            Column("UUT", lambda cost: uut_cell(cost.group.uut, model.styles)),
            *_if_several(found, lambda cost: cost.group.workload.name, workload),
            Column("Load", lambda cost: _load(cost.group)),
            Column("Baseline", lambda cost: cost.base.scenario),
            number("In the baseline", lambda cost: _side(cost, cost.base)),
            Column("Scenario", lambda cost: cost.group.scenario),
            number("In the scenario", lambda cost: _side(cost, cost.group)),
            number("Change", lambda cost: change_text(cost.ratio)),
            css="results",
            block_title="Figure",
            block=lambda cost: cost.figure.title if cost.figure.kind else capitalised(cost.figure.title),
            row_css=lambda cost: "changed" if cost.is_cost else "",
            name="flow-costs",
            caption=sentence("captions.flow_costs"),
        )


def _side(cost: FlowCost, group: WorkloadGroup) -> str:
    """The figure of one side of a cost, in the unit of both."""
    name = cost.figure.name
    unit = unit_of(cost.figure, (cost.base.figures[name], cost.group.figures[name]))
    return figure_interval(cost.figure, group.figures[name], unit)


@report_table("witness", is_exported=True)
def witness(model: ReportModel) -> Iterator[Table]:
    """The figures of each tool beside those of the wire, a block per workload."""
    found = list(witnessed(model.workload_groups))
    if found:
        scenario: Column[WitnessedFigure] = Column("Scenario", lambda figure: figure.group.scenario)
        yield table(
            found,
            Column("UUT", lambda figure: uut_cell(figure.group.uut, model.styles)),
            *_if_several(found, lambda figure: figure.group.scenario, scenario),
            Column("Load", lambda figure: _load(figure.group)),
            Column("Figure", lambda figure: f"{figure.title} [{figure.unit}]" if figure.unit else figure.title),
            number("Tool", lambda figure: _amount(figure, figure.tool)),
            number("Wire", lambda figure: _amount(figure, figure.wire)),
            number("Difference", _difference),
            number("Trials", lambda figure: str(figure.trials)),
            number("Disagreeing", lambda figure: UNKNOWN if figure.disagreeing is None else str(figure.disagreeing)),
            css="results",
            block_title="Workload",
            block=lambda figure: figure.group.workload.name,
            row_css=lambda figure: "changed" if figure.disagreeing else "",
            name="witness",
            caption=sentence("captions.witness"),
        )


def _amount(figure: WitnessedFigure, value: float | None) -> str:
    return three_digits(value) if figure.is_time or value is None else f"{value:,.0f}"


def _difference(figure: WitnessedFigure) -> str:
    """`+31 µs (allowed 50 µs)`, or the percent of bytes and numbers."""
    microseconds, ratio = figure.difference_us, figure.difference
    if microseconds is not None:
        shown = f"{microseconds:+,.1f}" if abs(microseconds) < 9.95 else f"{microseconds:+,.0f}"
        return f"{shown} µs (allowed {figure.allowed_us:,.0f} µs)".replace("-", "−")
    return UNKNOWN if ratio is None else f"{100 * ratio:+.3f} %".replace("-", "−")


def _cells(
    model: ReportModel, groups: Sequence[WorkloadGroup], figures: Sequence[FlowFigure], *, name: str, caption: str
) -> Table:
    """A row per cell with these figures, without those that no cell has; a block per workload."""
    unit = unit_of_times(figures, groups)
    scenario: Column[WorkloadGroup] = Column("Scenario", lambda group: group.scenario)
    return table(
        sorted(groups, key=lambda group: _workloads(groups).index(group.workload.name)),
        Column("UUT", lambda group: uut_cell(group.uut, model.styles)),
        *_if_several(groups, lambda group: group.scenario, scenario),
        Column("Load", _load),
        *(column for figure in figures for column in _figure_columns(figure, groups, unit)),
        number("Valid", lambda group: str(len(group.valid))),
        css="results",
        block_title="Workload",
        block=lambda group: group.workload.name,
        name=name,
        caption=caption,
    )


def _if_several(items: Iterable[Item], value: Callable[[Item], str], column: Column[Item]) -> list[Column[Item]]:
    """The column, unless all items have one value."""
    return [column] if len(set(map(value, items))) > 1 else []


def _workloads(groups: Iterable[WorkloadGroup]) -> list[str]:
    return list(dict.fromkeys(group.workload.name for group in groups))


def _figure_columns(figure: FlowFigure, groups: Sequence[WorkloadGroup], unit: str) -> Iterator[Column[WorkloadGroup]]:
    """The column of a figure, another one for workloads of datagrams if it has another title; none without a value.

    Cells that the column is not about, and bandwidths that are always 0, are empty.
    """
    always_zero, shown_unit = without_payload(groups), unit if figure.kind else ""
    shown = [group for group in groups if (group.workload.name, figure.name) not in always_zero]
    by_heading = grouped(shown, lambda group: figure_heading(figure, shown_unit, of_datagrams=group.has_datagrams))
    for heading, of_heading in by_heading.items():
        if any(figure.name in group.figures for group in of_heading):
            title = f"{figure.title.partition(' ')[0]} [{unit}]" if figure.kind else heading
            yield _figure_column(figure, title, {id(group) for group in of_heading}, shown_unit)


def _figure_column(figure: FlowFigure, title: str, shown: Collection[int], unit: str) -> Column[WorkloadGroup]:
    """A column of the cells with these ids; those of others are empty."""

    def value(group: WorkloadGroup) -> str:
        if id(group) not in shown:
            return ""
        return figure_mean(figure, group, unit) if figure.kind else rate_beside_intended(figure, group)

    def spread(group: WorkloadGroup) -> str:
        return figure_spread(figure, group.figures.get(figure.name), unit) if id(group) in shown else ""

    column: Column[WorkloadGroup] = number(title, value)
    return Column(column.title, column.cell, column.kind, spread)


def _load(group: WorkloadGroup) -> str:
    return f"{group.load} × {group.sources} clients" if group.sources > 1 else str(group.load)
