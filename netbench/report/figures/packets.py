"""Figures of packets: the cost of each packet relative to plain frames, and throughput by number of flows."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from netbench.model.frame_size import FrameSize
from netbench.report.figures.chart import Chart, Mark, numbers_of, of_interval
from netbench.report.figures.panels import THROUGHPUT, Panels, end_of_axis, ends_of, kfps_of_mix
from netbench.report.figures.registry import Figure, NamedChart, by_setting
from netbench.report.formats import at_least, bounded, change_text, count, kfps_interval, mbps_interval, mean
from netbench.report.styles import Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.packet_cost import FlowPoint, FlowScaling, PacketCost, flow_scaling, packet_costs

Compared = TypeVar("Compared", PacketCost, FlowScaling)
_HIGHEST = 150  # percent: the upper end of an interval that stretches an axis
_BESIDE = 1.5  # the ratio by which an axis of flows is longer than its marks


def cost_chart(costs: Sequence[PacketCost], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: the highest throughput of each packet in percent of that of plain frames, by UUT."""
    packets = list(dict.fromkeys(cost.best.frame_size.packet for cost in costs))
    y_title = "Highest throughput [% of plain frames]"
    panels: Panels[FrameSize, PacketCost] = Panels(
        costs, styles, "", y_title, key_of=lambda cost: cost.plain.frame_size, uut_of=lambda cost: cost.best.uut
    )
    panels.chart.intervals = "95 % interval of the ratio"
    panels.categories(packets)
    for size, uut, of_uut in panels.cells:
        by_packet = {cost.best.frame_size.packet: cost for cost in of_uut}
        panels.bars(size, uut, [_bar(x, by_packet[name]) for x, name in enumerate(packets) if name in by_packet])
    for size, panel in panels.panels.items():
        tips = (min(mark.high, _HIGHEST) for mark in panel.marks if mark.high is not None)
        panels.scale(size, y=[0, end_of_axis([100, *(mark.y for mark in panel.marks), *tips])])
        panels.rule(size, 100)
    return panels.finished()


def _bar(x: int, cost: PacketCost) -> Mark:
    """A bar, or one without height that carries the reason for an unknown ratio."""
    ratio = cost.frames
    numbers = {
        **numbers_of(cost.best, "maximum_fps"),
        **of_interval("throughput_mbps", cost.best.maximum_mbps),
        **of_interval("plain_fps", cost.plain.maximum_fps),
        **of_interval("plain_mbps", cost.plain.maximum_mbps),
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "ratio_mbps": cost.bits.ratio,
        "bound": ratio.bound or None,
        "unknown": ratio.why_unknown or None,
    }
    lines = (
        f"{change_text(ratio)} in frames/s",
        *([f"{change_text(cost.bits)} in Mbit/s"] if cost.bits != ratio else []),
        f"{cost.best.frame_size.frames_text}: {maximum_of(cost.best)}",
        f"plain frames: {maximum_of(cost.plain)}",
    )
    if ratio.ratio is None:
        return Mark(x, 0, "\n".join(lines), numbers, text=ratio.why_unknown)
    low, high = (None if limit is None else 100 * limit for limit in (ratio.low, ratio.high))
    text = bounded(f"{100 * ratio.ratio:.0f}{'' if ratio.unknown is None else ' ?'}", ratio)
    return Mark(x, 100 * ratio.ratio, "\n".join(lines), numbers, low, high, text=text)


def maximum_of(group: Group) -> str:
    """`97.0 ± 1.0 Mbit/s = 144.3 ± 1.5 kfps`, with ≥ for a lower bound."""
    text = f"{mbps_interval(group.maximum_mbps)} Mbit/s = {kfps_interval(group.maximum_fps)} kfps"
    if not group.is_lower_bound:
        return text
    return f"{at_least(text, True)}, limited by {group.limited_by}"


def flows_chart(scaling: Sequence[FlowScaling], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: the highest throughput by number of flows (logarithmic), a line per UUT and headers."""
    panels: Panels[FrameSize, FlowScaling] = Panels(
        scaling,
        styles,
        "Flows of each stream",
        THROUGHPUT,
        key_of=lambda series: series.first.frame_size.without_packet,
        uut_of=lambda series: series.first.uut,
    )
    dashes = panels.dashes(list(dict.fromkeys(series.headers for series in scaling)))
    for size, uut, of_uut in panels.cells:
        for series in of_uut:
            marks = [mark for point in series.points if (mark := _flow_mark(point, series.headers))]
            name = f"{styles[uut].label}, {series.headers}" if len(dashes) > 1 else ""
            panels.line(size, uut, marks, dash=dashes[series.headers], name=name)
    every = [point.flows for series in scaling for point in series.points]
    for size in panels.panels:
        panels.scale(size, x=[min(every) / _BESIDE, max(every) * _BESIDE])
    chart = panels.finished(rates="y")
    for panel in chart.panels:
        panel.x.logarithmic = True
    return chart


def _flow_mark(point: FlowPoint, headers: str) -> Mark | None:
    group, throughput = point.best, point.throughput_mbps
    if throughput is None:
        return None
    numbers = {
        **numbers_of(group, "maximum_fps", "limited_by"),
        "flows": point.flows,
        **of_interval("throughput_mbps", throughput),
    }
    hover = f"{count(point.flows, 'flow')} of {headers}\n{maximum_of(group)}"
    y_kfps = kfps_of_mix(group.frame_size, mean(group.maximum_fps))
    return Mark(point.flows, throughput.mean, hover, numbers, *ends_of(throughput), y_kfps=y_kfps)


def _by_view(
    members: Iterable[Compared],
    best_of: Callable[[Compared], Group],
    chart: Callable[[Sequence[Compared], Mapping[str, Style]], Chart],
    name: str,
    styles: Mapping[str, Style],
) -> Iterator[NamedChart]:
    """Yield a chart for each scenario and number of sources of the groups that `best_of` returns."""
    by_view = grouped(members, lambda member: (best_of(member).scenario, best_of(member).sources))
    for place, ((scenario, sources), of_view) in enumerate(by_view.items()):
        heading = f"{scenario}, {count(sources, 'source')}" if len(by_view) > 1 else ""
        yield from by_setting(
            of_view, lambda member: best_of(member).uut, styles, chart, f"{name}-{place}", heading=heading
        )


COST = Figure(
    "packet-cost",
    "Cost of each packet",
    lambda model: "" if packet_costs(model.groups) else "no UUT was measured with plain frames and another packet",
    lambda model: _by_view(packet_costs(model.groups), lambda cost: cost.best, cost_chart, "packet-cost", model.styles),
)
FLOWS = Figure(
    "flows",
    "Throughput by number of flows",
    lambda model: "" if flow_scaling(model.groups) else "no UUT was measured with several numbers of flows",
    lambda model: _by_view(flow_scaling(model.groups), lambda series: series.first, flows_chart, "flows", model.styles),
)
