"""The parts of the page about delay, its variation, and the order of frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from math import log10

import plotly.graph_objects as go

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.formats import UNKNOWN, count, frames, mbps, mean, microseconds, rough_percent
from netbench.report.markup import Column, Html, element, folded, row, table
from netbench.report.panels import GREY, Panels, Style, groups_by_size, members_by_uut, size_titles
from netbench.report.sections import Section, View, chosen, drawn, note, section
from netbench.report.tables import uut_label
from netbench.report.traces import NO_BAR, end_of_axis, error_bars, half_widths, line
from netbench.statistics.delay_percentiles import (
    ReadSpread,
    ReadTime,
    delay_of,
    greatest_time,
    ipdv_of,
    least_time,
    mean_time,
    pdv_of,
    refusals,
)
from netbench.statistics.frame_order import order_of
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval

_MILLISECOND = 1e-6  # per ns


@dataclass(frozen=True, slots=True)
class _Time:
    """A column of the table of delays: a time that each stream has."""

    title: str
    spread: ReadSpread
    time: ReadTime

    def of(self, group: Group) -> str:
        """The mean over the valid trials, in µs."""
        return microseconds(mean(mean_time(group, self.spread, self.time)))


_MEDIAN = _Time("Median", delay_of, lambda delay: delay.median_ns)
_SLOW = _Time("99.9 %", delay_of, lambda delay: delay.p999_ns)
_MEANS = (
    _Time("Mean", delay_of, lambda delay: delay.mean_ns),
    _MEDIAN,
    _Time("90 %", delay_of, lambda delay: delay.p90_ns),
    _Time("99 %", delay_of, lambda delay: delay.p99_ns),
    _SLOW,
)
_VARIATIONS = (
    _Time("PDV 99 %", pdv_of, lambda pdv: pdv.p99_ns),
    _Time("PDV 99.9 %", pdv_of, lambda pdv: pdv.p999_ns),
    _Time("IPDV median", ipdv_of, lambda ipdv: ipdv.median_ns),
    _Time("IPDV 99 %", ipdv_of, lambda ipdv: ipdv.p99_ns),
)
_DELAYS = (
    Column("UUT"),
    Column("Load per source"),
    Column("Offered Mbit/s", css="number"),
    Column("Smallest", css="number"),
    *(Column(one.title, css="number") for one in _MEANS),
    Column("Largest", css="number"),
    *(Column(one.title, css="number") for one in _VARIATIONS),
    Column("Valid", css="number"),
)


def delay_sections(
    choice: Sequence[View], looks: Mapping[str, Style], trials: Sequence[TrialResult]
) -> Iterable[Section]:
    """Delay, and why there is none where it was refused; nothing where no trial says anything of it."""
    groups = [group for view in choice for group in view.groups]
    refused = refusals(trials)
    if refused or any(map(_has_delay, groups)):
        yield section(
            "delay",
            "Delay",
            note(
                "One way, from source to sink, over the valid trials: means of the percentiles of each trial and"
                " stream; the smallest and the largest of all. PDV: delay less the smallest of the stream; IPDV:"
                " difference of the delays of frames sent one after the other (RFC 5481). The table is in µs."
            ),
            *(note(f"No delay of {count(number, 'stream')} of trials: {why}.") for why, number in refused.items()),
            *((chosen(choice, lambda view: _delays(view, looks)),) if any(map(_has_delay, groups)) else ()),
        )


def delay_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> go.Figure:
    """A panel per frame size: median (solid) and 99.9 % (dotted) of delay against offered load, a line per UUT each."""
    known = [group for group in groups if _has_delay(group)]
    by_size = groups_by_size(known)
    panels = Panels(
        size_titles(by_size),
        (group.uut for group in known),
        looks,
        "Offered load [Mbit/s, L1]",
        "Delay [ms]",
    )
    panels.legend()
    for name, dash in (("median", "solid"), (_SLOW.title, "dot")):
        panels.figure.add_scatter(x=[None], y=[None], mode="lines", line={"color": GREY, "dash": dash}, name=name)
    for size, members in by_size.items():
        times = [own.mean for group in members for time in (_MEDIAN, _SLOW) if (own := _ms(group, time)) and own.mean]
        reach = [log10(min(times)) - 0.1, log10(max(times)) + 0.1] if times else [0.0, 1.0]
        panels.scale(size, [0, end_of_axis([group.offered_mbps for group in members])], reach)
        for uut, own_groups in members_by_uut(members).items():
            for time, style in ((_MEDIAN, looks[uut]), (_SLOW, replace(looks[uut], dash="dot"))):
                panels.add(size, _line(uut, style, own_groups, time))
    panels.figure.update_yaxes(type="log", dtick="D2", exponentformat="none", tickformat=",.9~g")
    return panels.figure


def _line(uut: str, style: Style, groups: Sequence[Group], time: _Time) -> go.Scatter:
    points = [
        (group, offered, own) for group in groups if (offered := group.offered_mbps) and (own := _ms(group, time))
    ]
    points.sort(key=lambda point: point[1].mean)
    return line(
        uut,
        style,
        x=[offered.mean for _, offered, _ in points],
        y=[own.mean for _, _, own in points],
        error_x={"visible": False},
        error_y=error_bars(style.colour, *_reaches([own for _, _, own in points])),
        hover=[_hover(group, style) for group, _, _ in points],
    )


def _reaches(times: Sequence[Interval]) -> tuple[list[float | str], list[float | str]]:
    """How far the intervals extend up and down; not down to 0, which a logarithmic axis does not have."""
    up = half_widths(times)
    down = [
        width if isinstance(width, str) or width < time.mean else NO_BAR for width, time in zip(up, times, strict=True)
    ]
    return up, down


def _hover(group: Group, style: Style) -> str:
    return "<br>".join(
        (
            f"<b>{escape(style.label)}</b>, {group.frame_size:,}-byte frames, {escape(str(group.load))}",
            f"offered {mbps(mean(group.offered_mbps))} Mbit/s",
            *(f"{time.title} {time.of(group)} µs" for time in _MEANS),
            f"largest {microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns))} µs",
        )
    )


def _delays(view: View, looks: Mapping[str, Style]) -> Html:
    known = [group for group in view.groups if _has_delay(group)]
    if not known:
        return note("None is known.")
    bodies = []
    for size, members in groups_by_size(known).items():
        heading = element("th", f"{size:,}-byte frames", colspan=str(len(_DELAYS)), scope="rowgroup")
        rows = [row(_DELAYS, _delay_cells(group, looks)) for group in members]
        bodies.append([element("tr", heading, css="block"), *rows])
    figure = drawn(delay_against_offered(known, looks), f"delay-{view.name}")
    content = folded(count(len(known), "measurement"), len(known), table(_DELAYS, bodies, css="results"))
    return element("div", figure, content)


def _delay_cells(group: Group, looks: Mapping[str, Style]) -> tuple[str, ...]:
    return (
        uut_label(group.uut, looks),
        str(group.load),
        mbps(mean(group.offered_mbps)),
        microseconds(least_time(group, delay_of, lambda delay: delay.smallest_ns)),
        *(time.of(group) for time in _MEANS),
        microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns)),
        *(time.of(group) for time in _VARIATIONS),
        str(len(group.valid)),
    )


def _has_delay(group: Group) -> bool:
    return any(counts is not None and counts.delay is not None for one in group.valid for counts in one.streams)


def _ms(group: Group, time: _Time) -> Interval | None:
    found = mean_time(group, time.spread, time.time)
    return None if found is None else found.scaled(_MILLISECOND)


_ORDER = (
    Column("UUT"),
    Column("Frame size", css="number"),
    Column("Received", css="number"),
    Column("Duplicates", css="number"),
    Column("Reordered", css="number"),
    Column("of received", css="number"),
    Column("Largest extent", css="number"),
    Column("Loss runs", css="number"),
    Column("Longest run", css="number"),
    Column("Loss runs by their frames", css="words"),
)


def order_sections(trials: Sequence[TrialResult], looks: Mapping[str, Style]) -> Iterable[Section]:
    """Order by UUT and frame size; nothing where no trial has frames that can be told apart."""
    counted = [trial for trial in trials if trial.verdict is not Verdict.INVALID]
    if rows := list(_order_rows(counted, looks)):
        yield section(
            "order",
            "Order",
            note(
                "Sums over the valid and the suspicious trials at any load: a trial with duplicates is never simply"
                " valid. A reordered frame came after one with a higher number; its extent is by how many frames"
                " (RFC 4737). A loss run is of frames sent one after the other."
            ),
            table(_ORDER, [rows]),
        )


def _order_rows(trials: Sequence[TrialResult], looks: Mapping[str, Style]) -> Iterable[Html]:
    for uut in looks:
        sizes = sorted({trial.spec.frame_size for trial in trials if trial.spec.uut == uut}, reverse=True)
        for size in sizes:
            order = order_of(trial for trial in trials if (trial.spec.uut, trial.spec.frame_size) == (uut, size))
            if order is not None:
                cells = (
                    uut_label(uut, looks),
                    f"{size:,}",
                    frames(order.received),
                    frames(order.duplicates),
                    frames(order.reordered),
                    rough_percent(order.reordered_ratio),
                    frames(order.extent_frames),
                    f"{order.loss_runs:,}",
                    frames(order.longest_run_frames),
                    " · ".join(f"{_class(least)}: {runs:,}" for least, runs in order.run_lengths) or UNKNOWN,
                )
                yield row(_ORDER, cells)


def _class(least: int) -> str:
    """The frames of the loss runs of a class, as LossRuns has them."""
    return "1" if least == 1 else f"{least:,}–{2 * least - 1:,}"
