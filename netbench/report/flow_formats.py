"""Figures of flows as text: values with three significant digits, ratios in percent."""

from netbench.report.formats import UNKNOWN, limits_of, mean, mean_and, percent_limit, rough_percent, three_digits
from netbench.statistics.flow_figures import FlowFigure, WorkloadGroup
from netbench.statistics.intervals import Interval


def figure_value(figure: FlowFigure, value: float | None) -> str:
    """A value without its unit; `–` where it is unknown."""
    if figure.is_ratio:
        return rough_percent(value).removesuffix(" %")
    return three_digits(value)


def figure_mean(figure: FlowFigure, group: WorkloadGroup) -> str:
    """The mean of a figure of a group, without its unit."""
    return figure_value(figure, mean(group.figures.get(figure.name)))


def figure_spread(figure: FlowFigure, interval: Interval | None) -> str:
    """± half width, or the limits of an interval that goes below 0; empty where it is unknown or 0."""
    if interval is None or not interval.half_width:
        return ""
    if figure.is_ratio and not interval.mean:
        return f"< {percent_limit(interval.half_width)}"

    def show(value: float) -> str:
        return figure_value(figure, value)

    decimals = len(show(interval.mean).partition(".")[2])
    width = f"{(100 if figure.is_ratio else 1) * interval.half_width:,.{decimals}f}"
    if not width.strip("0.,"):
        width = f"{(100 if figure.is_ratio else 1) * interval.half_width:#.2g}"
    return limits_of(interval, show) or f"± {width}"


def figure_interval(figure: FlowFigure, interval: Interval | None) -> str:
    """A mean with its interval and its unit: `2.31 ± 0.10 ms`."""
    if interval is None:
        return UNKNOWN
    unit = figure.shown_unit
    text = mean_and(figure_value(figure, interval.mean), figure_spread(figure, interval))
    return text + (unit if unit.startswith("/") else f" {unit}" if unit else "")
