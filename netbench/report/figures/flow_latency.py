"""Latencies of flows: by percentile, and against the load of the neighbours."""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil, floor, log10

from netbench.model.flow_result import Latencies
from netbench.report.figures.chart import Chart, Mark
from netbench.report.figures.flow_marks import cell_numbers, flow_mark, flow_tooltip
from netbench.report.figures.panels import Panels, end_of_axis
from netbench.report.figures.registry import Figure, NamedChart, by_part
from netbench.report.flow_formats import operations_of
from netbench.report.formats import capitalised, three_digits
from netbench.report.model import ReportModel
from netbench.report.styles import Style
from netbench.statistics.flow_costs import LoadCurve, load_curves, missing_points
from netbench.statistics.flow_figures import FIGURES, KINDS, NS_PER_MS, FlowFigure
from netbench.statistics.groups import grouped
from netbench.statistics.workload_groups import WorkloadGroup

_POINTS_PER_DECADE = 12
_X_TITLE = "Percentile [%], scale: number of nines"
_TICKS = (0, 90, 99, 99.9, 99.99, 99.999, 99.9999)  # percentiles, each a decade beyond the last


def percentile_points(times: Latencies) -> list[tuple[float, float]]:
    """Percentiles, in percent, with their times in ms: evenly on the scale of −log10(1 − percentile).

    The last one is the highest that has a time beyond it, as in nearest rank.
    """
    decades = log10(times.count)
    steps = max(1, ceil(decades * _POINTS_PER_DECADE))
    ranks = [times.count - times.count * 10 ** (-decades * step / steps) for step in range(steps + 1)]
    distinct = sorted({min(max(1, ceil(rank)), times.count) for rank in ranks})
    values = zip(distinct, times.times_at_ns(distinct), strict=True)
    return [(100 * rank / times.count, time / NS_PER_MS) for rank, time in values if rank < times.count]


def percentile_chart(groups: Sequence[WorkloadGroup], styles: Mapping[str, Style]) -> Chart:
    """A panel per scenario: the time by percentile, a line per UUT, over all times of its valid trials."""
    kind = groups[0].kind_of_times
    y_title = f"{capitalised(KINDS[kind])} [ms]"
    panels = Panels(groups, styles, _X_TITLE, y_title, key_of=lambda group: group.scenario)
    highest = 1.0
    for scenario, uut, of_uut in panels.cells:
        for group in of_uut:
            if (times := group.latencies(kind)) is None:
                continue
            tooltip = flow_tooltip(group)
            marks = []
            for percentile, time_ms in percentile_points(times):
                x = _place(percentile)
                highest = max(highest, x)
                numbers = {**cell_numbers(group), "percentile": percentile, f"{kind}_ms": time_ms}
                part = f"{_percent(percentile)} % of {operations_of(kind)}"
                hover = f"{part} ≤ {three_digits(time_ms)} ms\n{tooltip}"
                marks.append(Mark(x, time_ms, hover, numbers))
            panels.line(scenario, uut, marks)
    chart = panels.finished(switchable="y")
    for panel in chart.panels:
        panel.x.low, panel.x.high = 0.0, highest * 1.02
        shown = (percentile for percentile in _TICKS if _place(percentile) <= highest)
        panel.x.ticks = tuple((_place(percentile), f"{percentile:g}") for percentile in shown)
        panel.y.logarithmic = True
    return chart


def _percent(percentile: float) -> str:
    """A percentile with a decimal, and with two digits of the part beyond it: `17.3`, `99.956`."""
    decimals = 1 - floor(log10(100 - percentile))
    return f"{percentile:.{max(1, decimals)}f}"


def _place(percentile: float) -> float:
    """The place of a percentile on the axis: the decades of the part beyond it, 0 for 0 %, 1 for 90 %, 2 for 99 %."""
    return -log10(1 - percentile / 100) if percentile else 0.0


def _percentile_charts(model: ReportModel) -> Iterator[NamedChart]:
    """The charts of all loads; of searches only those of their bounds."""
    timed = [group for group in model.workload_groups if group.kind_of_times]
    if searches := model.results.searches:
        bounds = {(found.uut, found.scenario, found.kind_of_traffic, found.lower) for found in searches}
        bounds |= {(found.uut, found.scenario, found.kind_of_traffic, found.upper) for found in searches}
        timed = [group for group in timed if (group.uut, group.scenario, group.workload, group.load.value) in bounds]
    parts = grouped(timed, _part)
    yield from by_part(parts, lambda group: group.uut, model.styles, percentile_chart, "percentiles")


def _part(group: WorkloadGroup) -> str:
    clients = f" × {group.sources} clients" if group.sources > 1 else ""
    return f"{capitalised(KINDS[group.kind_of_times])}, {group.workload} at {group.load}{clients}"


PERCENTILES = Figure(
    "percentiles",
    "Latency by percentile",
    lambda model: "" if any(group.kind_of_times for group in model.workload_groups) else "no tool measured times",
    _percentile_charts,
)


def load_chart(curves: Sequence[LoadCurve], styles: Mapping[str, Style]) -> Chart:
    """A panel per percentile and rate: the figure by the load of the neighbours, a line per UUT, 95 % intervals."""
    figures = _figures_of(curves)
    items = [(figure, curve) for figure in figures for curve in curves if _has(curve, figure)]
    x_title = f"Load of the neighbour [{curves[0].unit}]"
    panels = Panels(items, styles, x_title, "", key_of=lambda item: item[0].heading, uut_of=lambda item: item[1].uut)
    panels.chart.intervals = "95 % interval over boots"
    most = max(x for curve in curves for x, _ in curve.points)
    for title, uut, of_uut in panels.cells:
        for figure, curve in of_uut:
            marks = [flow_mark(x, figure, group, {"neighbour_load": x}) for x, group in curve.points]
            panels.line(title, uut, [mark for mark in marks if mark])
            panels.panels[title].y.title = figure.heading
    for title in panels.panels:
        panels.scale(title, x=[-0.03 * most, end_of_axis([most])])
    return panels.finished(switchable="y")


def _figures_of(curves: Sequence[LoadCurve]) -> list[FlowFigure]:
    """The percentiles of the first kind of times, and the rates, that any cell has."""
    groups = [group for curve in curves for _, group in curve.points]
    kind = next((group.kind_of_times for group in groups if group.kind_of_times), "")
    known = {name for group in groups for name in group.figures}
    times = [figure for figure in FIGURES if kind and figure.kind == kind and figure.name in known]
    return [*times, *(figure for figure in FIGURES if figure.is_better_high and figure.name in known)]


def _has(curve: LoadCurve, figure: FlowFigure) -> bool:
    return any(figure.name in group.figures for _, group in curve.points)


def _load_charts(model: ReportModel) -> Iterator[NamedChart]:
    curves = list(load_curves(model.workload_groups))
    units = {curve.unit for curve in curves}

    def part(curve: LoadCurve) -> str:
        clients = f" × {curve.first.sources} clients" if curve.first.sources > 1 else ""
        unit = f", neighbours in {curve.unit}" if len(units) > 1 else ""
        return f"{curve.first.workload} at {curve.first.load}{clients}{unit}"

    parts = grouped(curves, part)
    yield from by_part(parts, lambda curve: curve.uut, model.styles, load_chart, "neighbour-load")


def _load_requirement(model: ReportModel) -> str:
    if any(load_curves(model.workload_groups)):
        return ""
    missing = missing_points(model.workload_groups)
    return "; ".join(map(str, missing)) or "no two scenarios differ in the neighbours' load only"


NEIGHBOUR_LOAD = Figure(
    "neighbour-load",
    "Response against the load of the neighbour",
    _load_requirement,
    _load_charts,
)
