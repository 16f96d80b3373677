"""Rates of flows: bandwidth by workload, and throughput by message size."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from netbench.report.figures.chart import Chart, Mark
from netbench.report.figures.flow_marks import flow_mark
from netbench.report.figures.panels import Panels
from netbench.report.figures.registry import Figure, by_part
from netbench.report.flow_formats import figure_value
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.flow_figures import FIGURES, FlowFigure
from netbench.statistics.groups import grouped
from netbench.statistics.workload_groups import WorkloadGroup, without_payload

_BANDWIDTHS = tuple(figure for figure in FIGURES if figure.name.endswith("_mbps"))
_BESIDE = 1.3  # part of an axis beside the first and last message size
_MESSAGE_SIZE = "message_size"
_IN_NAME = re.compile(rf"\s*\b{_MESSAGE_SIZE}=\S+")


@dataclass(frozen=True, slots=True)
class DirectedRate:
    """The bandwidth of a cell in one direction."""

    figure: FlowFigure
    group: WorkloadGroup


def bandwidth_chart(rates: Sequence[DirectedRate], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the bandwidth of each workload, direction and load, a bar per UUT."""
    panels = Panels(
        rates,
        styles,
        "",
        "Bandwidth [Mbit/s, payload]",
        key_of=lambda rate: rate.group.scenario,
        uut_of=lambda rate: rate.group.uut,
    )
    categories = list(dict.fromkeys(_category(rate, rates) for rate in rates))
    panels.categories(categories)
    for scenario, uut, of_uut in panels.cells:
        panels.bars(scenario, uut, (_bar(categories.index(_category(rate, rates)), rate) for rate in of_uut))
    return panels.finished(switchable="y")


def _bar(x: int, rate: DirectedRate) -> Mark | None:
    interval = rate.group.figures[rate.figure.name]
    return flow_mark(x, rate.figure, rate.group, text=figure_value(rate.figure, interval.mean))


def _category(rate: DirectedRate, rates: Sequence[DirectedRate]) -> str:
    """The workload of a bar, with its direction, load and clients where these differ."""
    parts = [rate.group.workload.name]
    parts += [rate.figure.title.removeprefix("bandwidth ")] if len({other.figure.name for other in rates}) > 1 else []
    parts += [str(rate.group.load)] if len({other.group.load for other in rates}) > 1 else []
    parts += [f"{rate.group.sources} clients"] if len({other.group.sources for other in rates}) > 1 else []
    return ", ".join(parts)


def _directed(model: ReportModel) -> list[DirectedRate]:
    """The bandwidths of all cells whose workloads do not differ in the size of messages only; none that is always 0."""
    always_zero = without_payload(model.workload_groups)
    cells = [group for group in model.workload_groups if group.workload.option(_MESSAGE_SIZE) is None]
    return [
        DirectedRate(figure, group)
        for group in cells
        for figure in _BANDWIDTHS
        if figure.name in group.figures and (group.workload.name, figure.name) not in always_zero
    ]


BANDWIDTH = Figure(
    "bandwidth",
    "Bandwidth",
    lambda model: "" if _directed(model) else "no tool measured a bandwidth",
    lambda model: by_part(
        {"": _directed(model)}, lambda rate: rate.group.uut, model.styles, bandwidth_chart, "bandwidth"
    ),
)


@dataclass(frozen=True, slots=True)
class SizedFigure:
    """A figure of a cell with messages of `size` bytes; `others` is its workload without that option."""

    figure: FlowFigure
    group: WorkloadGroup
    size: int
    others: str


def message_size_chart(items: Sequence[SizedFigure], styles: Mapping[str, Style]) -> Chart:
    """A panel per figure: rates and latencies by the size of messages, a line per UUT, a dash per workload."""
    panels = Panels(
        items,
        styles,
        "Message size [bytes]",
        "",
        key_of=lambda item: item.figure.heading,
        uut_of=lambda item: item.group.uut,
    )
    dashes = panels.dashes(list(dict.fromkeys(item.others for item in items)))
    for title, uut, of_uut in panels.cells:
        panels.panels[title].y.title = title
        for others, same in grouped(of_uut, lambda item: item.others).items():
            in_order = sorted(same, key=lambda item: item.size)
            marks = [flow_mark(item.size, item.figure, item.group, {_MESSAGE_SIZE: item.size}) for item in in_order]
            name = f"{styles[uut].label}, {others}" if len(dashes) > 1 else ""
            panels.line(title, uut, [mark for mark in marks if mark], dash=dashes[others], name=name)
    sizes = [item.size for item in items]
    for title in panels.panels:
        panels.scale(title, x=[min(sizes) / _BESIDE, max(sizes) * _BESIDE])
    chart = panels.finished(switchable="y")
    for panel in chart.panels:
        panel.x.logarithmic = True
    return chart


def _sized(model: ReportModel) -> list[SizedFigure]:
    """The figures of the workloads that were measured with several sizes of messages."""
    items = []
    for group in model.workload_groups:
        size = group.workload.option(_MESSAGE_SIZE)
        if isinstance(size, int):
            others = _IN_NAME.sub("", group.workload.name)
            shown = [figure for figure in FIGURES if figure.name in group.figures and _is_shown(figure, group)]
            items += [SizedFigure(figure, group, size, others) for figure in shown]
    by_line = grouped(items, lambda item: (item.figure.name, item.group.uut, _condition(item), item.others))
    return [item for same in by_line.values() if len({item.size for item in same}) > 1 for item in same]


def _is_shown(figure: FlowFigure, group: WorkloadGroup) -> bool:
    of_times = figure.kind == group.kind_of_times and figure.title.startswith(("p50 ", "p99 "))
    return figure.is_better_high or (bool(figure.kind) and of_times)


def _condition(item: SizedFigure) -> str:
    clients = f" × {item.group.sources} clients" if item.group.sources > 1 else ""
    return f"{item.group.scenario}, {item.group.load}{clients}"


MESSAGE_SIZES = Figure(
    "message-size",
    "Throughput by message size",
    lambda model: "" if _sized(model) else "no workload was measured with several values of message_size",
    lambda model: by_part(
        grouped(_sized(model), _condition),
        lambda item: item.group.uut,
        model.styles,
        message_size_chart,
        "message-size",
    ),
)
