"""Figures of flows as text: values with three significant digits, ratios in percent, times below 1 ms in µs."""

from collections.abc import Iterable

from netbench.report.formats import (
    UNKNOWN,
    capitalised,
    limits_of,
    mean,
    percent_limit,
    rough_percent,
    three_digits,
    two_digits,
)
from netbench.statistics.flow_figures import KINDS, FlowFigure
from netbench.statistics.intervals import Interval
from netbench.statistics.workload_groups import WorkloadGroup

_OF_DATAGRAMS = {"completed_per_s": "datagrams", "error_ratio": "lost datagrams"}
_OPERATIONS = {"rtt": "round trips", "connect": "connections"}


def unit_of(figure: FlowFigure, intervals: Iterable[Interval | None]) -> str:
    """The unit in which these values of a figure are shown together: µs for times of which any is below 1 ms."""
    small = figure.unit == "ms" and any(interval.mean < 1 for interval in intervals if interval is not None)
    return "µs" if small else figure.shown_unit


def unit_of_times(figures: Iterable[FlowFigure], groups: Iterable[WorkloadGroup]) -> str:
    """The unit of all times of a table: µs if any is below 1 ms."""
    times, cells = [figure for figure in figures if figure.kind], list(groups)
    units = (unit_of(figure, (group.figures.get(figure.name) for group in cells)) for figure in times)
    return "µs" if "µs" in units else "ms"


def figure_title(figure: FlowFigure, *, of_datagrams: bool) -> str:
    """The title of a figure; operations that are datagrams are named as such."""
    return _OF_DATAGRAMS.get(figure.name, figure.title) if of_datagrams else figure.title


def figure_heading(figure: FlowFigure, unit: str = "", *, of_datagrams: bool = False) -> str:
    """Its title with a unit: `p99 response time [µs]`, `Lost datagrams [%]`."""
    shown = unit or figure.shown_unit
    title = figure.title if figure.kind else capitalised(figure_title(figure, of_datagrams=of_datagrams))
    return f"{title} [{shown}]" if shown else title


def operations_of(kind: str) -> str:
    """The operations that times of a kind belong to: `responses`, `connections`."""
    return _OPERATIONS.get(kind, "responses") if kind in KINDS else "operations"


def figure_value(figure: FlowFigure, value: float | None, unit: str = "") -> str:
    """A value in a unit, without it; `–` where it is unknown."""
    if figure.is_ratio:
        return rough_percent(value).removesuffix(" %")
    return three_digits(None if value is None else _factor(figure, unit) * value)


def figure_mean(figure: FlowFigure, group: WorkloadGroup, unit: str = "") -> str:
    """The mean of a figure of a group, without its unit."""
    return figure_value(figure, mean(group.figures.get(figure.name)), unit)


def is_too_wide(figure: FlowFigure, interval: Interval) -> bool:
    """Whether an interval is wider than its value, so that it would go below 0; ratios have limits instead."""
    return not figure.is_ratio and (interval.half_width or 0.0) > interval.mean


def figure_spread(figure: FlowFigure, interval: Interval | None, unit: str = "") -> str:
    """± half width, with a remark where it exceeds the mean, or the limits of a ratio; empty where unknown or 0."""
    if interval is None or not interval.half_width:
        return ""
    if figure.is_ratio and not interval.mean:
        return f"< {percent_limit(interval.half_width)}"

    def show(value: float) -> str:
        return figure_value(figure, value, unit)

    half_width = (100 if figure.is_ratio else _factor(figure, unit)) * interval.half_width
    if is_too_wide(figure, interval):
        return f"too wide, ± {two_digits(half_width)}"
    decimals = len(show(interval.mean).partition(".")[2])
    width = f"{half_width:,.{decimals}f}"
    if not width.strip("0.,"):
        width = f"{half_width:#.2g}"
    return (limits_of(interval, show) if figure.is_ratio else "") or f"± {width}"


def figure_interval(figure: FlowFigure, interval: Interval | None, unit: str = "", *, with_n: bool = False) -> str:
    """A mean with its interval and its unit, by default that of its size: `2.31 ± 0.10 ms`, `48.2 µs (n = 1)`."""
    if interval is None:
        return UNKNOWN
    shown = unit or unit_of(figure, [interval])
    after = shown if shown.startswith("/") or not shown else f" {shown}"
    value, spread = figure_value(figure, interval.mean, shown), figure_spread(figure, interval, shown)
    number = f" (n = {interval.n})" if with_n else ""
    if is_too_wide(figure, interval):
        return f"{value}{after} (n = {interval.n}: interval {spread})"
    if "…" in spread:
        return f"{value} ({spread}){after}{number}"
    return f"{value} {spread}".strip() + after + number


def rate_beside_intended(figure: FlowFigure, group: WorkloadGroup) -> str:
    """The mean of a rate of operations beside the intended one: `500 of 500`; the mean alone without a rate."""
    text = figure_mean(figure, group)
    intended = group.intended_per_s if figure.name == "completed_per_s" else None
    return text if intended is None or text == UNKNOWN else f"{text} of {figure_value(figure, intended)}"


def _factor(figure: FlowFigure, unit: str) -> float:
    return 1000.0 if figure.unit == "ms" and unit == "µs" else 1.0
