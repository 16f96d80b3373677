"""The numbers behind the marks of figures, under the names of `export --aggregate`, and their tooltips."""

from textwrap import wrap

from netbench.model.frame_mix import size_text
from netbench.report.figures.chart import Numbers
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
from netbench.results.rows import GROUP_COLUMNS
from netbench.statistics.groups import Group
from netbench.statistics.interference import Curve, CurvePoint, RelativeMaximum
from netbench.statistics.intervals import Interval, RatioOfMeans, statement
from netbench.statistics.totals import TrialTotals

_COLUMNS = {column.name: column for column in GROUP_COLUMNS}
_WHICH = ("uut", "scenario", "streams", "frame_size", "frame_mix", "load", "valid_trials")
LOADS = ("offered_mbps", "throughput_mbps", "offered_fps", "throughput_fps", "loss_ratio")


def numbers_of(group: Group, *names: str) -> Numbers:
    """The identity of a group and its numbers of these names, each as a mean and, if known, a half width."""
    with_widths = (column for name in names for column in (name, f"{name}_ci95") if column in _COLUMNS)
    return {name: _COLUMNS[name].read(group) for name in (*_WHICH, *with_widths)}


def of_interval(name: str, interval: Interval | None) -> Numbers:
    """A mean and its half width as two columns."""
    if interval is None:
        return {}
    return {name: interval.mean, f"{name}_ci95": interval.half_width}


def of_ratio(ratio: RatioOfMeans) -> Numbers:
    """A ratio, its limits, its bound, and the reason where it is unknown."""
    return {
        "ratio": ratio.ratio,
        "ratio_low": ratio.low,
        "ratio_high": ratio.high,
        "bound": ratio.bound or None,
        "unknown": ratio.why_unknown or None,
    }


def numbers_of_trial(trial: TrialTotals) -> Numbers:
    """The numbers of a single trial that is part of no mean."""
    spec = trial.trial.spec
    return {
        "uut": spec.uut,
        "scenario": spec.scenario,
        "streams": len(spec.streams),
        "frame_size": spec.frame_size if isinstance(spec.frame_size, int) else None,
        "frame_mix": None if isinstance(spec.frame_size, int) else str(spec.frame_size),
        "load": str(spec.load),
        "offered_mbps": trial.offered_mbps,
        "throughput_mbps": trial.throughput_mbps,
        "loss_ratio": trial.loss_ratio,
        "verdict": trial.trial.verdict.value,
        "repetition": spec.repetition,
    }


def _each(load: str, sources: int) -> str:
    return f"{load} each from {sources} sources" if sources > 1 else load


def group_tooltip(group: Group) -> str:
    """A group of repetitions: its loads, throughput and loss with their intervals, and the trials left out."""
    left_out = [f"{len(group.suspicious)} suspicious"] * bool(group.suspicious)
    left_out += [f"{len(group.invalid)} invalid"] * bool(group.invalid)
    lines = [
        f"{mbps_interval(group.throughput_mbps)} Mbit/s = {kfps_interval(group.throughput_fps)} kfps",
        f"offered {mbps_interval(group.offered_mbps)} Mbit/s = {kfps_interval(group.offered_fps)} kfps",
        f"intended {_each(str(group.load), group.sources)} = {mbps(group.intended_mbps)} Mbit/s",
        f"loss {percent_interval(group.loss_ratio)}, unsent {percent_interval(group.unsent_ratio)}",
        f"{count(len(group.valid), 'valid trial')}{f', {group.saturated} saturated' if group.saturated else ''}"
        + (f"; left out: {', '.join(left_out)}" if left_out else ""),
    ]
    return "\n".join(lines)


def trial_tooltip(trial: TrialTotals) -> str:
    """A single trial: its numbers, and the reasons of its verdict."""
    spec = trial.trial.spec
    reasons = [f"{reason.kind.value}: {reason.detail}" for reason in trial.trial.reasons]
    lines = (
        f"{trial.trial.verdict.value}, repetition {spec.repetition} at {_each(str(spec.load), len(spec.streams))}",
        f"{mbps(trial.throughput_mbps)} Mbit/s = {kfps(trial.throughput_fps)} kfps, loss {percent(trial.loss_ratio)}",
        f"offered {mbps(trial.offered_mbps)} Mbit/s = {kfps(trial.offered_fps)} kfps",
        *(line for reason in reasons for line in wrap(reason, 60)),
    )
    return "\n".join(lines)


def change_tooltip(maximum: RelativeMaximum) -> str:
    """A maximum beside a neighbour and that of the baseline."""
    lines = (
        statement(maximum.ratio),
        f"highest throughput {_at(maximum.best)}",
        f"in {maximum.baseline} {_at(maximum.base)}",
        *(f"{neighbour.name} {neighbour.activity}" for neighbour in maximum.best.neighbours),
    )
    return "\n".join(lines)


def _at(group: Group) -> str:
    what = f"{mbps_interval(group.maximum_mbps)} Mbit/s at {', '.join(map(str, group.maximum_loads))}"
    return f"{at_least(what, group.is_lower_bound)}, limited by {group.limited_by}" if group.is_lower_bound else what


def curve_tooltip(curve: Curve, point: CurvePoint) -> str:
    """A point of an interference curve."""
    lines = (
        f"{mbps_interval(point.throughput_mbps)} Mbit/s, loss {percent_interval(point.loss_ratio)}",
        f"at {curve.load} in {point.scenario}",
        f"neighbours offered {mbps_interval(point.neighbours_offered_mbps)} Mbit/s",
        f"neighbours' throughput {mbps_interval(point.neighbours_throughput_mbps)} Mbit/s",
    )
    return "\n".join(lines)


def numbers_of_curve(curve: Curve, point: CurvePoint) -> Numbers:
    """The numbers of a point of an interference curve."""
    return {
        "uut": curve.victim.uut,
        "scenario": point.scenario,
        "streams": curve.victim.sources,
        "frame_size": size_text(curve.victim.frame_size),
        "load": str(curve.load),
        "valid_trials": point.throughput_mbps.n,
        **of_interval("neighbour_offered_mbps", point.neighbours_offered_mbps),
        **of_interval("neighbour_throughput_mbps", point.neighbours_throughput_mbps),
        **of_interval("throughput_mbps", point.throughput_mbps),
        **of_interval("loss_ratio", point.loss_ratio),
    }
