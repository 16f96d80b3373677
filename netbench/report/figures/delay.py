"""Delay against offered load: the median and the 99.9 % percentile."""

from collections.abc import Iterable, Mapping, Sequence

from netbench.report.figures.chart import Chart, Form, LegendEntry, Numbers
from netbench.report.figures.marks import numbers_of, of_interval
from netbench.report.figures.panels import OFFERED, Panels, Point, by_rising_size, end_of_axis, size_titles
from netbench.report.figures.registry import figure_of_views
from netbench.report.figures.throughput import groups_by_uut
from netbench.report.formats import mean, microseconds
from netbench.report.styles import GREY, MarkerStyle, Style
from netbench.statistics.delay_percentiles import (
    ReadTime,
    clock_bound,
    delay_of,
    greatest_time,
    mean_time,
)
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

_MILLISECOND = 1e-6  # per ns
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
    by_size = by_rising_size(groups, lambda group: group.frame_size)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), styles, OFFERED, "Delay [ms]")
    for name, dash in _DASHES.items():
        marker = MarkerStyle(GREY, symbol="", dash=dash or "solid")
        panels.figure.legend.append(LegendEntry(_TIMES[name][0], marker, Form.LINE))
    panels.legend()
    for size, members in by_size.items():
        delays = (_ms(group, name) for group in members for name in _DASHES)
        times = [delay.mean for delay in delays if delay and delay.mean]
        reach = [min(times) / 1.25, max(times) * 1.25] if times else [1.0, 10.0]
        panels.scale(size, [0, end_of_axis([group.offered_mbps for group in members])], reach)
        for uut, of_uut in groups_by_uut(members).items():
            for name, dash in _DASHES.items():
                title = f"{styles[uut].label}, {_TIMES[name][0]}"
                panels.line(size, uut, _points(of_uut, name), dash=dash or styles[uut].dash, name=title)
    panels.rates(x=True, y=False)
    for panel in panels.figure.panels:
        panel.x.logarithmic, panel.y.logarithmic = False, True
    return panels.figure


def has_delay(group: Group) -> bool:
    """Whether any valid trial of the group measured a delay."""
    return any(counts is not None and counts.delay is not None for trial in group.valid for counts in trial.streams)


def _points(groups: Iterable[Group], name: str) -> list[Point]:
    points = [
        Point(offered, delay, _tooltip(group), _numbers(group))
        for group in groups
        if (offered := group.offered_mbps) and (delay := _ms(group, name))
    ]
    return sorted(points, key=lambda point: point.x.mean)


def _ms(group: Group, name: str) -> Interval | None:
    delay = mean_time(group, delay_of, _TIMES[name][1])
    return None if delay is None else delay.scaled(_MILLISECOND)


def _numbers(group: Group) -> Numbers:
    in_us: dict[str, str | int | float | None] = {}
    for name, (_, time) in _TIMES.items():
        delay = mean_time(group, delay_of, time)
        in_us |= of_interval(f"delay_{name}_us", None if delay is None else delay.scaled(1e-3))
    return {**numbers_of(group, "offered_mbps"), **in_us}


def _tooltip(group: Group) -> str:
    times = (f"{title} {microseconds(mean(mean_time(group, delay_of, time)))}" for title, time in _TIMES.values())
    largest = microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns))
    bound = microseconds(clock_bound(group))
    return f"{group.load}: {', '.join(times)} µs\nlargest {largest} µs; clocks ± {bound} µs"


FIGURE = figure_of_views("delay", "Delay", delay_chart, has_delay, "no trial measured a delay")
