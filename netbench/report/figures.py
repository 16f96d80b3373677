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

from netbench.analysis.intervals import Interval
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
from netbench.report.panels import GREY, INK, Panels, Style, mark, members_by_uut
from netbench.results.groups import Group, TrialTotals, best_groups

_OFFERED = "Offered load [Mbit/s, L1]"
_THROUGHPUT = "Throughput [Mbit/s, L1]"
_LOSS = "Loss [% of offered frames]"
_HOVER = "%{hovertext}<extra></extra>"
_HEADROOM = 1.05
_NO_BAR = "none"  # in place of a half width; null would be drawn like 0, which is another statement
_TINY = 1 / 200  # of an axis: an error bar shorter than the marker it would be hidden by


@dataclass(frozen=True, slots=True)
class _Point:
    """The mean of a group with a valid trial, as drawn."""

    group: Group
    offered: Interval
    throughput: Interval
    loss: Interval


def offered_against_throughput(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels = Panels(groups, looks, _OFFERED, _THROUGHPUT)
    panels.legend()
    for size, members in panels:
        end = max(_end_of_offered(members), _end([group.throughput_mbps for group in members]))
        panels.scale(size, [0, end], [0, end])
        panels.add(size, _diagonal(end, named=size == max(group.frame_size for group in groups)))
        for uut, own in members_by_uut(members).items():
            points = _points(own)
            panels.add(
                size,
                _line(
                    uut,
                    looks[uut],
                    points,
                    y=[point.throughput.mean for point in points],
                    error_x=_error_bars(
                        looks[uut].colour,
                        _half_widths((point.offered for point in points), least=end * _TINY),
                    ),
                    error_y=_error_bars(looks[uut].colour, _half_widths(point.throughput for point in points)),
                ),
            )
            for trace in _marked(uut, looks[uut], own, lambda one: one.throughput_mbps):
                panels.add(size, trace)
    return panels.figure


def most_throughput(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: the most throughput at any load by number of sources, a bar per UUT."""
    panels = Panels(groups, looks, "Number of sources", _THROUGHPUT)
    best = {(group.uut, group.frame_size, group.sources): group for group in best_groups(groups)}
    sources = sorted({group.sources for group in groups})
    named: set[str] = set()
    for size, members in panels:
        panels.scale(size, None, [0, _end([group.throughput_mbps for group in members])])
        for uut, own in members_by_uut(members).items():
            tried = {group.sources for group in own}
            bars = [best.get((uut, size, number)) for number in sources]
            heights = [None if bar is None else bar.throughput_mbps for bar in bars]
            panels.add(
                size,
                go.Bar(
                    x=[str(number) for number in sources],
                    # A bar of no height carries the note that there is nothing to show.
                    y=[
                        height.mean if height else (0 if number in tried else None)
                        for number, height in zip(sources, heights, strict=True)
                    ],
                    error_y=_error_bars(INK, _half_widths(heights)),
                    text=[
                        f"{height.mean:,.0f}" if height else ("no valid trial" if number in tried else "")
                        for number, height in zip(sources, heights, strict=True)
                    ],
                    textposition=["inside" if height else "outside" for height in heights],
                    insidetextanchor="middle",
                    hovertext=[
                        "no valid trial" if bar is None else f"most throughput of<br>{_group_hover(bar, looks[uut])}"
                        for bar in bars
                    ],
                    hovertemplate=_HOVER,
                    marker={
                        "color": looks[uut].colour,
                        "pattern": {"shape": looks[uut].pattern, "fillmode": "overlay", "solidity": 0.15},
                    },
                    name=escape(looks[uut].label),
                    legendgroup=uut,
                    offsetgroup=uut,
                    showlegend=uut not in named,
                ),
            )
            named.add(uut)
    panels.figure.update_layout(
        barmode="group",
        bargap=0.25 if len(sources) > 1 else 0.5,
        bargroupgap=0.06,
        uniformtext={"mode": "hide", "minsize": 10},
    )
    panels.figure.update_xaxes(
        type="category",
        categoryorder="array",
        categoryarray=[str(number) for number in sources],
        showgrid=False,
    )
    return panels.figure


def loss_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: loss against offered load, logarithmic with a band where zero is zero."""
    panels = Panels(groups, looks, _OFFERED, _LOSS)
    panels.legend()
    for size, members in panels:
        scale = LossScale.over(_loss_ratios(members))
        panels.scale(size, [0, _end_of_offered(members)], [scale.bottom, scale.top])
        heights, labels = scale.ticks()
        panels.figure.update_yaxes(tickvals=heights, ticktext=labels, **panels.place(size))
        panels.figure.add_hrect(
            y0=scale.bottom,
            y1=scale.border,
            fillcolor="#f0f0f0",
            line_width=0,
            layer="below",
            exclude_empty_subplots=False,
            **panels.place(size),
        )
        uuts = members_by_uut(members)
        for place, (uut, own) in enumerate(uuts.items(), start=1):
            lane = 1 - place / (len(uuts) + 1)
            points = _points(own)
            reaches = [scale.reach(point.loss, lane) or (_NO_BAR, _NO_BAR) for point in points]
            panels.add(
                size,
                _line(
                    uut,
                    looks[uut],
                    points,
                    y=[scale.height(point.loss.mean, lane) for point in points],
                    error_x={"visible": False},
                    error_y=_error_bars(looks[uut].colour, [up for up, _ in reaches], [down for _, down in reaches]),
                ),
            )
            for trace in _marked(uut, looks[uut], own, _height_of_loss(scale, lane)):
                panels.add(size, trace)
    return panels.figure


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
    return go.Scatter(
        x=[point.offered.mean for point in points],
        y=y,
        error_x=error_x,
        error_y=error_y,
        mode="lines+markers",
        line={"color": style.colour, "dash": style.dash, "width": 2},
        marker={"symbol": style.symbol, "size": style.size},
        hovertext=[_group_hover(point.group, style) for point in points],
        hovertemplate=_HOVER,
        name=escape(style.label),
        legendgroup=uut,
        showlegend=False,
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
                    hovertemplate=_HOVER,
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


def _height_of_loss(scale: LossScale, lane: float) -> Callable[[TrialTotals], float | None]:
    return lambda one: None if one.loss_ratio is None else scale.height(one.loss_ratio, lane)


def _loss_ratios(groups: Iterable[Group]) -> list[float]:
    trials = (one for group in groups for one in (*group.valid, *group.suspicious, *group.invalid))
    return [one.loss_ratio for one in trials if one.loss_ratio is not None]


def _half_widths(intervals: Iterable[Interval | None], least: float = 0.0) -> list[float | str]:
    """The half widths; no bar where one is unknown or less than `least`."""
    widths = [None if interval is None else interval.half_width for interval in intervals]
    return [_NO_BAR if width is None or width < least else width for width in widths]


def _error_bars(colour: str, up: Sequence[float | str], down: Sequence[float | str] | None = None) -> dict[str, Any]:
    bars = {"type": "data", "array": up, "color": colour, "thickness": 1.3, "width": 4}
    return bars if down is None else {**bars, "symmetric": False, "arrayminus": down}


def _end(intervals: Iterable[Interval | None], trials: Iterable[float | None] = ()) -> float:
    """Where an axis from 0 ends: beyond all means and single trials; a huge error bar does not stretch it."""
    known = [interval for interval in intervals if interval is not None]
    drawn = max([interval.mean for interval in known] + [value for value in trials if value], default=0.0)
    tip = max([interval.mean + (interval.half_width or 0.0) for interval in known], default=0.0)
    return _HEADROOM * max(drawn, min(tip, 1.3 * drawn)) or 1.0


def _end_of_offered(groups: Sequence[Group]) -> float:
    left_out = (one for group in groups for one in (*group.suspicious, *group.invalid))
    return _end([group.offered_mbps for group in groups], [one.offered_mbps for one in left_out])


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
