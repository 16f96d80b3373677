"""The tooltips of the marks of figures, line by line."""

from textwrap import wrap

from netbench.model.frame_mix import FrameSize, frames_text
from netbench.report.formats import (
    at_least,
    count,
    kfps,
    kfps_interval,
    mbps,
    mbps_interval,
    percent,
    percent_interval,
)
from netbench.report.styles import Style
from netbench.statistics.groups import Group
from netbench.statistics.interference import Curve, CurvePoint, RelativeMaximum
from netbench.statistics.intervals import statement
from netbench.statistics.totals import TrialTotals


def _headline(style: Style, frame_size: FrameSize, *others: str) -> str:
    return ", ".join((style.label, frames_text(frame_size), *others))


def _each(load: str, sources: int) -> str:
    return f"{load} each from {sources} sources" if sources > 1 else load


def group_hover(group: Group, style: Style) -> str:
    """A group of repetitions: its loads, throughput and loss with their intervals, and the trials left out."""
    return "\n".join(
        (
            _headline(style, group.frame_size, _each(str(group.load), group.sources)),
            f"intended {mbps(group.intended_mbps)} Mbit/s = {kfps(group.intended_fps)} kfps",
            f"offered {mbps_interval(group.offered_mbps)} Mbit/s = {kfps_interval(group.offered_fps)} kfps",
            f"throughput {mbps_interval(group.throughput_mbps)} Mbit/s = {kfps_interval(group.throughput_fps)} kfps",
            f"loss {percent_interval(group.loss_ratio)} of offered",
            f"unsent {percent_interval(group.unsent_ratio)} of intended",
            f"{count(len(group.valid), 'valid trial')}, {group.saturated} of them saturated;"
            f" left out: {len(group.suspicious)} suspicious, {len(group.invalid)} invalid",
        )
    )


def trial_hover(one: TrialTotals, style: Style) -> str:
    """A single trial that is part of no mean, and why."""
    spec = one.trial.spec
    reasons = [f"{reason.kind.value}: {reason.detail}" for reason in one.trial.reasons]
    return "\n".join(
        (
            _headline(style, spec.frame_size, _each(str(spec.load), len(spec.streams))),
            f"{one.trial.verdict.value}, not averaged; repetition {spec.repetition}",
            f"offered {mbps(one.offered_mbps)} Mbit/s = {kfps(one.offered_fps)} kfps",
            f"throughput {mbps(one.throughput_mbps)} Mbit/s = {kfps(one.throughput_fps)} kfps",
            f"loss {percent(one.loss_ratio)} of offered",
            *(line for reason in reasons for line in wrap(reason, 80)),
        )
    )


def change_hover(one: RelativeMaximum, style: Style) -> str:
    """A maximum beside a neighbour and that of the baseline."""
    return "\n".join(
        (
            _headline(style, one.victim.frame_size, one.scenario),
            statement(one.ratio),
            f"highest throughput {_at(one.best)}",
            f"in {one.baseline} {_at(one.base)}",
            *(f"{neighbour.name} {neighbour.activity}" for neighbour in one.best.neighbours),
        )
    )


def _at(group: Group) -> str:
    what = f"{mbps_interval(group.maximum_mbps)} Mbit/s at {', '.join(map(str, group.maximum_loads))}"
    return f"{at_least(what, group.limited_by)}, limited by {group.limited_by}" if group.limited_by else what


def curve_hover(curve: Curve, point: CurvePoint, style: Style) -> str:
    """A point of an interference curve."""
    return "\n".join(
        (
            _headline(style, curve.victim.frame_size, str(curve.load), f"in {point.scenario}"),
            f"neighbours offered {mbps_interval(point.neighbours_offered_mbps)} Mbit/s",
            f"neighbours' throughput {mbps_interval(point.neighbours_throughput_mbps)} Mbit/s",
            f"throughput {mbps_interval(point.throughput_mbps)} Mbit/s",
            f"loss {percent_interval(point.loss_ratio)} of offered",
        )
    )
