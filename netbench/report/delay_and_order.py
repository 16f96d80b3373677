"""The parts of the page about delay, its variation, and the order of frames."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.frame_mix import FrameSize, frames_text, rising, size_text
from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.report.axes import OFFERED, end_of_axis
from netbench.report.chart import GREY, Chart, Form, LegendEntry, MarkerStyle, Numbers
from netbench.report.figure_numbers import numbers_of, of_interval
from netbench.report.formats import UNKNOWN, count, frames, mbps, mean, microseconds, rough_percent
from netbench.report.markup import Html, TableColumn, element, folded, table
from netbench.report.panels import Panels, Point, groups_by_size, groups_by_uut, size_titles
from netbench.report.sections import Section, View, chosen, drawn_apart, note, section
from netbench.report.styles import Style
from netbench.report.tables import by_size_title, uut_label
from netbench.statistics.delay_percentiles import (
    ReadSpread,
    ReadTime,
    clock_bound,
    delay_of,
    greatest_time,
    ipdv_of,
    least_time,
    mean_time,
    pdv_of,
    refusals,
)
from netbench.statistics.frame_order import FrameOrder, order_of, order_refusals
from netbench.statistics.groups import Group, grouped
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
# By their names in exports.
_NAMED = dict(zip(("mean", "median", "p90", "p99", "p999"), _MEANS, strict=True))
_VARIATIONS = (
    _Time("PDV 99 %", pdv_of, lambda pdv: pdv.p99_ns),
    _Time("PDV 99.9 %", pdv_of, lambda pdv: pdv.p999_ns),
    _Time("IPDV median", ipdv_of, lambda ipdv: ipdv.median_ns),
    _Time("IPDV 99 %", ipdv_of, lambda ipdv: ipdv.p99_ns),
)


def delay_sections(
    choice: Sequence[View], looks: Mapping[str, Style], trials: Sequence[TrialResult]
) -> Iterable[Section]:
    """Delay, and the reasons where it was refused; nothing where no trial has either."""
    groups = [group for view in choice for group in view.groups]
    refused = refusals(trials)
    if refused or any(map(has_delay, groups)):
        yield section(
            "delay",
            "Delay",
            note(
                "One way, from source to sink, over the valid trials: means of the percentiles of each trial and"
                " stream; the smallest and the largest of all. PDV: delay less the smallest of the stream; IPDV:"
                " difference of the delays of frames sent one after the other (RFC 5481). Clocks: by how much any delay"
                " may be too long or too short because captures and frames are not stamped by the same clock."
                " The table is in µs."
            ),
            *(note(f"No delay of {count(number, 'stream')} of trials: {why}.") for why, number in refused.items()),
            *((chosen(choice, lambda view: _delays(view, looks)),) if any(map(has_delay, groups)) else ()),
        )


def delay_against_offered(groups: Sequence[Group], looks: Mapping[str, Style]) -> Chart:
    """A panel per frame size: median (solid) and 99.9 % (dotted) of delay against offered load, a line per UUT each."""
    known = [group for group in groups if has_delay(group)]
    by_size = groups_by_size(known)
    panels = Panels(size_titles(by_size), (group.uut for group in known), looks, OFFERED, "Delay [ms]")
    for name, dash in (("median", "solid"), (_SLOW.title, "dot")):
        panels.figure.legend.append(LegendEntry(name, MarkerStyle(GREY, symbol="", dash=dash), Form.LINE))
    panels.legend()
    for size, members in by_size.items():
        times = [
            interval.mean
            for group in members
            for time in (_MEDIAN, _SLOW)
            if (interval := _ms(group, time)) and interval.mean
        ]
        reach = [min(times) / 1.25, max(times) * 1.25] if times else [1.0, 10.0]
        panels.scale(size, [0, end_of_axis([group.offered_mbps for group in members])], reach)
        for uut, own_groups in groups_by_uut(members).items():
            for time, dash in ((_MEDIAN, looks[uut].dash), (_SLOW, "dot")):
                name = f"{looks[uut].label}, {time.title}"
                panels.line(size, uut, _points(own_groups, looks[uut], time), dash=dash, name=name)
        panels.panel(size).y.logarithmic = True
    return panels.figure


def _points(groups: Iterable[Group], style: Style, time: _Time) -> list[Point]:
    points = [
        Point(offered, interval, _hover(group, style), _numbers(group))
        for group in groups
        if (offered := group.offered_mbps) and (interval := _ms(group, time))
    ]
    return sorted(points, key=lambda point: point.x.mean)


def _numbers(group: Group) -> Numbers:
    times = {f"delay_{name}_us": mean_time(group, time.spread, time.time) for name, time in _NAMED.items()}
    in_us = {name: None if time is None else time.scaled(1e-3) for name, time in times.items()}
    return {
        **numbers_of(group, "offered_mbps"),
        **{column: number for name, time in in_us.items() for column, number in of_interval(name, time).items()},
    }


def _hover(group: Group, style: Style) -> str:
    return "\n".join(
        (
            f"{style.label}, {frames_text(group.frame_size)}, {group.load}",
            f"offered {mbps(mean(group.offered_mbps))} Mbit/s",
            *(f"{time.title} {time.of(group)} µs" for time in _MEANS),
            f"largest {_largest(group)} µs, clocks ± {microseconds(clock_bound(group))} µs",
        )
    )


def _delays(view: View, looks: Mapping[str, Style]) -> Html:
    known = [group for group in view.groups if has_delay(group)]
    if not known:
        return note("None is known.")
    columns: tuple[TableColumn[Group], ...] = (
        TableColumn("UUT", lambda group: uut_label(group.uut, looks)),
        TableColumn("Load per source", lambda group: str(group.load)),
        TableColumn("Offered Mbit/s", lambda group: mbps(mean(group.offered_mbps)), "number"),
        TableColumn("Smallest", _smallest, "number"),
        *(TableColumn(time.title, time.of, "number") for time in _MEANS),
        TableColumn("Largest", _largest, "number"),
        TableColumn("Clocks ±", lambda group: microseconds(clock_bound(group)), "number"),
        *(TableColumn(time.title, time.of, "number") for time in _VARIATIONS),
        TableColumn("Valid", lambda group: str(len(group.valid)), "number"),
    )
    figure = drawn_apart(known, lambda group: group.uut, looks, delay_against_offered, f"delay-{view.name}")
    whole = table(columns, by_size_title(known), css="results")
    return element("div", figure, folded(count(len(known), "measurement"), len(known), whole))


def _smallest(group: Group) -> str:
    return microseconds(least_time(group, delay_of, lambda delay: delay.smallest_ns))


def _largest(group: Group) -> str:
    return microseconds(greatest_time(group, delay_of, lambda delay: delay.largest_ns))


def has_delay(group: Group) -> bool:
    """Whether any valid trial of the group measured a delay."""
    return any(counts is not None and counts.delay is not None for trial in group.valid for counts in trial.streams)


def _ms(group: Group, time: _Time) -> Interval | None:
    interval = mean_time(group, time.spread, time.time)
    return None if interval is None else interval.scaled(_MILLISECOND)


def order_sections(trials: Sequence[TrialResult], looks: Mapping[str, Style]) -> Iterable[Section]:
    """Order by UUT and frame size; nothing where no trial has distinguishable frames."""
    judged = [trial for trial in trials if trial.verdict is not Verdict.INVALID]
    refused = order_refusals(judged)
    counted = grouped(
        judged,
        lambda trial: (trial.spec.uut, trial.spec.frame_size),
    )
    largest_first = sorted(counted.items(), key=lambda item: rising(item[0][1]), reverse=True)
    in_order = sorted(largest_first, key=lambda item: list(looks).index(item[0][0]))
    orders = [(uut, size, order) for (uut, size), members in in_order if (order := order_of(members)) is not None]
    columns: tuple[TableColumn[tuple[str, FrameSize, FrameOrder]], ...] = (
        TableColumn("UUT", lambda row: uut_label(row[0], looks)),
        TableColumn("Frame size", lambda row: size_text(row[1]), "number"),
        TableColumn("Received", lambda row: frames(row[2].received), "number"),
        TableColumn("Duplicates", lambda row: frames(row[2].duplicates), "number"),
        TableColumn("Reordered", lambda row: frames(row[2].reordered), "number"),
        TableColumn("of received", lambda row: rough_percent(row[2].reordered_ratio), "number"),
        TableColumn("Largest extent", lambda row: frames(row[2].extent_frames), "number"),
        TableColumn("Loss runs", lambda row: frames(row[2].loss_runs), "number"),
        TableColumn("Longest run", lambda row: frames(row[2].longest_run_frames), "number"),
        TableColumn("Loss runs by their frames", lambda row: _run_lengths(row[2]), "words"),
    )
    if orders or refused:
        yield section(
            "order",
            "Reordering",
            note(
                "Sums over the valid and the suspicious trials at any load: a trial with duplicates is never simply"
                " valid. A reordered frame came after one with a higher number; its extent is by how many frames"
                " (RFC 4737). A loss run is of frames sent one after the other."
            ),
            *(note(f"No order of {count(number, 'stream')} of trials: {why}.") for why, number in refused.items()),
            *((table(columns, [orders]),) if orders else ()),
        )


def _run_lengths(order: FrameOrder) -> str:
    """Numbers of loss runs by the classes of LossRuns."""
    classes = (("1" if least == 1 else f"{least:,}–{2 * least - 1:,}", runs) for least, runs in order.run_lengths)
    return " · ".join(f"{lengths}: {runs:,}" for lengths, runs in classes) or UNKNOWN
