"""Delay against offered load: the median and the 99.9 % percentile."""

from collections.abc import Mapping, Sequence

from netbench.report.figures.chart import Chart, Form, Mark, Numbers, numbers_of, of_interval
from netbench.report.figures.panels import OFFERED, Panels, ends_of
from netbench.report.figures.registry import figure_of_views
from netbench.report.figures.throughput import LoadPanels
from netbench.report.formats import mean, microseconds
from netbench.report.styles import GREY, MarkerStyle, Style
from netbench.report.tables.delay import has_delay
from netbench.statistics.delay_and_order import ReadTime, clock_bound, delay_of, greatest_time, mean_time
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

# Percentiles by their names in exports, with the titles of those.
_TIMES: Mapping[str, tuple[str, ReadTime]] = {
    "mean": ("mean", lambda delay: delay.mean_ns),
    "median": ("median", lambda delay: delay.median_ns),
    "p90": ("90 %", lambda delay: delay.p90_ns),
    "p99": ("99 %", lambda delay: delay.p99_ns),
    "p999": ("99.9 %", lambda delay: delay.p999_ns),
}
_DASHES = {"median": "", "p999": "dot"}  # empty: the dash of the UUT


def delay_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: median (solid) and 99.9 % (dotted) of delay against offered load, a line per UUT each."""
    panels: LoadPanels = Panels(groups, styles, OFFERED, "Delay [ms]")
    for size, uut, of_uut in panels.cells:
        for name, dash in _DASHES.items():
            marks = [
                Mark(offered.mean, delay.mean, _tooltip(group), _numbers(group), *ends_of(delay))
                for group in of_uut
                if (offered := group.offered_mbps) and (delay := _delay(group, name, 1e-6))
            ]
            in_order = sorted(marks, key=lambda mark: mark.x)
            panels.line(size, uut, in_order, dash=dash, name=f"{styles[uut].label}, {_TIMES[name][0]}")
    for name, dash in _DASHES.items():
        panels.in_legend(_TIMES[name][0], MarkerStyle(GREY, symbol="", dash=dash or "solid"), Form.LINE)
    for size, panel in panels.panels.items():
        times = [mark.y for mark in panel.marks if mark.y]
        panels.scale(size, y=[min(times) / 1.25, max(times) * 1.25] if times else [1.0, 10.0])
    chart = panels.finished(rates="x")
    for panel in chart.panels:
        panel.x.logarithmic, panel.y.logarithmic = False, True
    return chart


def _delay(group: Group, name: str, factor: float) -> Interval | None:
    """A percentile in ns × `factor`."""
    delay = mean_time(group, delay_of, _TIMES[name][1])
    return None if delay is None else delay.scaled(factor)


def _numbers(group: Group) -> Numbers:
    in_us: dict[str, str | int | float | None] = {}
    for name in _TIMES:
        in_us |= of_interval(f"delay_{name}_us", _delay(group, name, 1e-3))
    return {**numbers_of(group, "offered_mbps"), **in_us}


def _tooltip(group: Group) -> str:
    times = (f"{title} {microseconds(mean(mean_time(group, delay_of, time)))}" for title, time in _TIMES.values())
    largest = microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns))
    bound = microseconds(clock_bound(group))
    return f"{group.load}: {', '.join(times)} µs\nlargest {largest} µs; clocks ± {bound} µs"


FIGURE = figure_of_views("delay", "Delay", delay_chart, has_delay, "no trial measured a delay")
