"""The figures of the report: offered against throughput, the most throughput, and loss.

The first two follow Figures 3 and 4 of Schlosser et al. 2011. Bandwidths are Mbit/s on the wire (L1), error
bars 95 % intervals. Only valid trials are averaged and connected; suspicious and invalid ones are marked
each where it was measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from textwrap import wrap
from typing import Any

import plotly.graph_objects as go

from netbench.model.verdict import Verdict
from netbench.report.formats import (
    count,
    kfps,
    kfps_interval,
    mbps,
    mbps_interval,
    percent,
    percent_interval,
)
from netbench.report.loss_scale import LossScale
from netbench.report.panels import (
    GREY,
    INK,
    Panels,
    Style,
    doubtful,
    groups_by_size,
    mark,
    members_by_uut,
    size_titles,
)
from netbench.report.traces import (
    HOVER,
    LOSS,
    THROUGHPUT,
    TINY,
    arrange_bars,
    bars,
    end_of_axis,
    error_bars,
    half_widths,
    line,
    loss_error_bars,
)
from netbench.statistics.groups import Group, best_groups
from netbench.statistics.intervals import Interval
from netbench.statistics.totals import TrialTotals

_OFFERED = "Offered load [Mbit/s, L1]"


@dataclass(frozen=True, slots=True)
class _Point:
    """The mean of a group with a valid trial, as drawn."""

    group: Group
    offered: Interval
    throughput: Interval
    loss: Interval


def offered_against_throughput(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    by_size = groups_by_size(groups)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, _OFFERED, THROUGHPUT)
    panels.legend(doubtful(groups))
    for size, members in by_size.items():
        end = max(_end_of_offered(members), end_of_axis([group.throughput_mbps for group in members]))
        panels.scale(size, [0, end], [0, end])
        panels.add(size, _diagonal(end, named=size == max(by_size)))
        for uut, own in members_by_uut(members).items():
            points = _points(own)
            panels.add(
                size,
                _line(
                    uut,
                    looks[uut],
                    points,
                    y=[point.throughput.mean for point in points],
                    error_x=error_bars(
                        looks[uut].colour,
                        half_widths((point.offered for point in points), least=end * TINY),
                    ),
                    error_y=error_bars(looks[uut].colour, half_widths(point.throughput for point in points)),
                ),
            )
            for trace in _marked(uut, looks[uut], own, lambda one: one.throughput_mbps):
                panels.add(size, trace)
    return panels.figure


def most_throughput(groups: Sequence[Group], looks: Mapping[str, Style], *, by_scenario: bool = False) -> go.Figure:
    """A panel per frame size: the most throughput at any load, a bar per UUT, by number of sources or by scenario."""
    in_order = groups if by_scenario else sorted(groups, key=lambda group: group.sources)
    categories = list(dict.fromkeys(_category(group, by_scenario) for group in in_order))
    best = {(group.uut, group.frame_size, _category(group, by_scenario)): group for group in best_groups(groups)}
    by_size = groups_by_size(groups)
    title = "" if by_scenario else "Number of sources"
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, title, THROUGHPUT)
    named: set[str] = set()
    for size, members in by_size.items():
        panels.scale(size, None, [0, end_of_axis([group.throughput_mbps for group in members])])
        for uut, own in members_by_uut(members).items():
            tried = {_category(group, by_scenario) for group in own}
            there = [best.get((uut, size, category)) for category in categories]
            heights = [None if group is None else group.throughput_mbps for group in there]
            # A bar of no height carries the note that there is nothing to show.
            missing = [(0, "no valid trial") if category in tried else (None, "") for category in categories]
            drawn = [
                (height.mean, f"{height.mean:,.0f}") if height else instead
                for height, instead in zip(heights, missing, strict=True)
            ]
            panels.add(
                size,
                bars(
                    uut,
                    looks[uut],
                    x=categories,
                    y=[height for height, _ in drawn],
                    error_y=error_bars(INK, half_widths(heights)),
                    text=[text for _, text in drawn],
                    hover=[
                        "no valid trial"
                        if group is None
                        else f"most throughput of<br>{_group_hover(group, looks[uut])}"
                        for group in there
                    ],
                    named=uut not in named,
                ),
            )
            named.add(uut)
    arrange_bars(panels.figure, categories)
    if by_scenario:
        panels.figure.update_xaxes(tickfont_size=11)  # names are long, and stand upright on a telephone
    return panels.figure


def loss_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: loss against offered load, logarithmic with a band where zero is zero."""
    by_size = groups_by_size(groups)
    panels = Panels(size_titles(by_size), (group.uut for group in groups), looks, _OFFERED, LOSS)
    panels.legend(doubtful(groups))
    for size, members in by_size.items():
        scale = LossScale.over(_loss_ratios(members))
        panels.scale_of_loss(size, [0, _end_of_offered(members)], scale)
        uuts = members_by_uut(members)
        for place, (uut, own) in enumerate(uuts.items(), start=1):
            row = 1 - place / (len(uuts) + 1)
            points = _points(own)
            panels.add(
                size,
                _line(
                    uut,
                    looks[uut],
                    points,
                    y=[scale.height(point.loss.mean, row) for point in points],
                    error_x={"visible": False},
                    error_y=loss_error_bars(looks[uut].colour, scale, (point.loss for point in points), row),
                ),
            )
            for trace in _marked(uut, looks[uut], own, _height_of_loss(scale, row)):
                panels.add(size, trace)
    return panels.figure


def _category(group: Group, by_scenario: bool) -> str:
    return escape(group.scenario).replace("-", "-<br>") if by_scenario else str(group.sources)


def _points(groups: Iterable[Group]) -> list[_Point]:
    """The groups that have a mean, by rising offered load."""
    points = [
        _Point(group, offered, throughput, loss)
        for group in groups
        if (offered := group.offered_mbps) and (throughput := group.throughput_mbps) and (loss := group.loss_ratio)
    ]
    return sorted(points, key=lambda point: point.offered.mean)


def _line(
    uut: str,
    style: Style,
    points: Sequence[_Point],
    *,
    y: list[float],
    error_x: dict[str, Any],
    error_y: dict[str, Any],
) -> go.Scatter:
    return line(
        uut,
        style,
        x=[point.offered.mean for point in points],
        y=y,
        error_x=error_x,
        error_y=error_y,
        hover=[_group_hover(point.group, style) for point in points],
    )


def _marked(
    uut: str, style: Style, groups: Sequence[Group], height: Callable[[TrialTotals], float | None]
) -> list[go.Scatter]:
    """Unconnected markers: a trace for the suspicious trials, one for the invalid ones, none for none."""
    traces = []
    for verdict, trials in (
        (Verdict.SUSPICIOUS, [one for group in groups for one in group.suspicious]),
        (Verdict.INVALID, [one for group in groups for one in group.invalid]),
    ):
        places = [(one, one.offered_mbps, height(one)) for one in trials]
        known = [(one, x, y) for one, x, y in places if x is not None and y is not None]
        if known:
            traces.append(
                go.Scatter(
                    x=[x for _, x, _ in known],
                    y=[y for _, _, y in known],
                    mode="markers",
                    marker=mark(verdict, style.colour, style.symbol, style.size),
                    hovertext=[_trial_hover(one, style) for one, _, _ in known],
                    hovertemplate=HOVER,
                    name=f"{escape(style.label)}, {verdict.value}",
                    legendgroup=uut,
                    showlegend=False,
                )
            )
    return traces


def _diagonal(end: float, *, named: bool) -> go.Scatter:
    return go.Scatter(
        x=[0, end],
        y=[0, end],
        mode="lines",
        line={"color": GREY, "dash": "dot", "width": 1.5},
        hoverinfo="skip",
        name="throughput = offered",
        legendgroup="y = x",
        showlegend=named,
    )


def _height_of_loss(scale: LossScale, row: float) -> Callable[[TrialTotals], float | None]:
    return lambda one: None if one.loss_ratio is None else scale.height(one.loss_ratio, row)


def _loss_ratios(groups: Iterable[Group]) -> list[float]:
    trials = (one for group in groups for one in (*group.valid, *group.suspicious, *group.invalid))
    return [one.loss_ratio for one in trials if one.loss_ratio is not None]


def _end_of_offered(groups: Sequence[Group]) -> float:
    left_out = (one for group in groups for one in (*group.suspicious, *group.invalid))
    return end_of_axis([group.offered_mbps for group in groups], [one.offered_mbps for one in left_out])


def _headline(style: Style, frame_size: int, sources: int, load: str) -> str:
    each = f"{load} each from {sources} sources" if sources > 1 else load
    return f"<b>{escape(style.label)}</b>, {frame_size:,}-byte frames, {escape(each)}"


def _group_hover(group: Group, style: Style) -> str:
    return "<br>".join(
        (
            _headline(style, group.frame_size, group.sources, str(group.load)),
            f"intended {mbps(group.intended_mbps)} Mbit/s = {kfps(group.intended_fps)} kfps",
            f"offered {mbps_interval(group.offered_mbps)} Mbit/s = {kfps_interval(group.offered_fps)} kfps",
            f"throughput {mbps_interval(group.throughput_mbps)} Mbit/s = {kfps_interval(group.throughput_fps)} kfps",
            f"loss {percent_interval(group.loss_ratio)} of offered",
            f"unsent {percent_interval(group.unsent_ratio)} of intended",
            f"{count(len(group.valid), 'valid trial')}; left out: {len(group.suspicious)} suspicious,"
            f" {len(group.invalid)} invalid",
        )
    )


def _trial_hover(one: TrialTotals, style: Style) -> str:
    spec = one.trial.spec
    reasons = [f"{reason.kind.value}: {reason.detail}" for reason in one.trial.reasons]
    return "<br>".join(
        (
            _headline(style, spec.frame_size, len(spec.streams), str(spec.load)),
            f"<b>{one.trial.verdict.value}</b>, not averaged; repetition {spec.repetition}",
            f"offered {mbps(one.offered_mbps)} Mbit/s = {kfps(one.offered_fps)} kfps",
            f"throughput {mbps(one.throughput_mbps)} Mbit/s = {kfps(one.throughput_fps)} kfps",
            f"loss {percent(one.loss_ratio)} of offered",
            *(escape(line) for reason in reasons for line in wrap(reason, 80)),
        )
    )
