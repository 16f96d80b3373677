"""Throughput against offered load, as Figure 3 of Schlosser et al. 2011, and loss against offered load.

Only valid trials are averaged and connected. Suspicious and invalid trials are single marks at their measured values.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from textwrap import wrap

from netbench.model.frame_size import FrameSize
from netbench.model.verdict import Verdict
from netbench.report.figures.chart import LOADS, Chart, Form, Guide, Mark, Numbers, group_tooltip, load_text, numbers_of
from netbench.report.figures.panels import (
    LOSS,
    OFFERED,
    THROUGHPUT,
    Panels,
    end_of_axis,
    ends_of,
    kfps_of_mix,
    least_loss,
    rows_of_zero,
)
from netbench.report.figures.registry import figure_of_views
from netbench.report.formats import kfps, mbps, mean, percent
from netbench.report.styles import GREY, SMALLEST_MARKER, MarkerStyle, Style
from netbench.statistics.groups import Group, grouped
from netbench.statistics.intervals import Interval
from netbench.statistics.outliers import outliers_of
from netbench.statistics.totals import TrialTotals

LoadPanels = Panels[FrameSize, Group]
# The height of a mean and of the ends of its interval.
Heights = Callable[[Interval], tuple[float, float | None, float | None]]


def throughput_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: offered load (x) against throughput (y), a line per UUT, y = x dotted."""
    panels: LoadPanels = Panels(groups, styles, OFFERED, THROUGHPUT)
    for size, uut, of_uut in panels.cells:
        add_means(panels, size, uut, of_uut, "throughput_mbps", lambda interval: (interval.mean, *ends_of(interval)))
        outliers = [trial for group in of_uut if (marked := outliers_of(group)) for trial in marked.marked]
        add_trials(panels, size, styles[uut], of_uut, "throughput_mbps", float, outliers)
    for size, panel in panels.panels.items():
        marks = list(panel.marks)
        end = max(end_of_axis(mark.x for mark in marks), end_of_axis((m.y for m in marks), (m.high for m in marks)))
        panels.scale(size, [0, end], [0, end])
        panels.guide(size, Guide(((0, 0), (end, end)), "throughput = offered"))
    return panels.finished(rates="xy")


def loss_chart(groups: Sequence[Group], styles: Mapping[str, Style]) -> Chart:
    """A panel per frame size: loss against offered load, logarithmic with a band for zero, a line per UUT."""
    panels: LoadPanels = Panels(groups, styles, OFFERED, LOSS)
    for size, members in panels.members.items():
        trials = [trial.loss_ratio or 0.0 for group in members for trial in group.everything]
        scale = panels.scale_of_loss(size, [*trials, *(least_loss(group.loss_ratio) for group in members)])
        by_uut = grouped(members, lambda group: group.uut)
        for uut, row in rows_of_zero(by_uut).items():
            add_means(panels, size, uut, by_uut[uut], "loss_ratio", partial(scale.mark, row))
            add_trials(panels, size, styles[uut], by_uut[uut], "loss_ratio", partial(scale.height, row=row))
    return panels.finished(rates="x")


def add_means(
    panels: LoadPanels, size: FrameSize, uut: str, groups: Iterable[Group], quantity: str, heights: Heights
) -> None:
    """The line of a UUT through the means of a quantity of its groups, by rising offered load."""
    marks = []
    for group in groups:
        interval: Interval | None = getattr(group, quantity)
        if group.loss_ratio and group.offered_mbps and interval:
            y_kfps = kfps_of_mix(group.frame_size, mean(group.throughput_fps))
            x, hover, numbers = group.offered_mbps.mean, group_tooltip(group), numbers_of(group, *LOADS)
            y, low, high = heights(interval)
            marks.append(Mark(x, y, hover, numbers, low, high, ringed=group.saturated > 0, y_kfps=y_kfps))
    panels.line(size, uut, sorted(marks, key=lambda mark: mark.x))


def add_trials(
    panels: LoadPanels,
    size: FrameSize,
    style: Style,
    groups: Sequence[Group],
    quantity: str,
    height: Callable[[float], float],
    outliers: Sequence[TrialTotals] = (),
) -> None:
    """A mark for each trial with known coordinates that is part of no mean, and for each outlier."""
    marks = []
    for verdict, trials in (
        (Verdict.SUSPICIOUS, [trial for group in groups for trial in group.suspicious]),
        (Verdict.INVALID, [trial for group in groups for trial in group.invalid]),
        (Verdict.VALID, outliers),
    ):
        for trial in trials:
            x, value = trial.offered_mbps, getattr(trial, quantity)
            if x is not None and value is not None:
                marks.append(_mark(trial, x, height(value), _symbol(verdict, style.symbol)))
        if trials:
            text = "outlier (averaged too)" if verdict is Verdict.VALID else f"{verdict.value} trial (not averaged)"
            sign = MarkerStyle(GREY, _symbol(verdict, "circle"), size=SMALLEST_MARKER + 2)
            panels.in_legend(text, sign, Form.POINTS)
    panels.points(size, style.uut, marks)


def _symbol(verdict: Verdict, symbol: str) -> str:
    """The symbol of a single trial: hollow when suspicious, a cross when invalid, hollow with a dot for an outlier."""
    return {Verdict.SUSPICIOUS: f"{symbol}-open", Verdict.INVALID: "x", Verdict.VALID: f"{symbol}-open-dot"}[verdict]


def _mark(totals: TrialTotals, x: float, y: float, symbol: str) -> Mark:
    """A single trial: its numbers, and the reasons of its verdict."""
    trial, spec = totals.trial, totals.trial.spec
    numbers: Numbers = {
        "uut": spec.uut,
        "scenario": spec.scenario,
        "streams": len(spec.streams),
        "frame_size": None if spec.frame_size.is_mix else spec.frame_size.only_size,
        "frame_mix": spec.frame_size.name or None,
        "packet": spec.frame_size.packet or None,
        "load": str(spec.load),
        "offered_mbps": totals.offered_mbps,
        "throughput_mbps": totals.throughput_mbps,
        "loss_ratio": totals.loss_ratio,
        "verdict": trial.verdict.value,
        "repetition": spec.repetition,
    }
    load, rate = load_text(str(spec.load), len(spec.streams)), totals.throughput_fps
    lines = (
        f"{trial.verdict.value}, repetition {spec.repetition} at {load}",
        f"{mbps(totals.throughput_mbps)} Mbit/s = {kfps(rate)} kfps, loss {percent(totals.loss_ratio)}",
        f"offered {mbps(totals.offered_mbps)} Mbit/s = {kfps(totals.offered_fps)} kfps",
        *(line for reason in trial.reasons for line in wrap(f"{reason.kind.value}: {reason.detail}", 60)),
    )
    return Mark(x, y, "\n".join(lines), numbers, symbol=symbol, y_kfps=kfps_of_mix(spec.frame_size, rate))


THROUGHPUT_FIGURE = figure_of_views("throughput", "Offered load and throughput", throughput_chart)
LOSS_FIGURE = figure_of_views("loss", "Loss", loss_chart)
