"""The numbers behind the marks of figures, under the names of `export --aggregate`."""

from collections.abc import Iterable

from netbench.report.chart import Numbers
from netbench.results.rows import GROUP_COLUMNS
from netbench.statistics.groups import Group
from netbench.statistics.intervals import Interval, RatioOfMeans
from netbench.statistics.totals import TrialTotals

_COLUMNS = {column.name: column for column in GROUP_COLUMNS}
_WHICH = ("uut", "scenario", "streams", "frame_size", "frame_mix", "load", "valid_trials")


def numbers_of(group: Group, *names: str) -> Numbers:
    """The identity of a group and its numbers of these names, each as a mean and, if known, a half width."""
    return {name: _COLUMNS[name].read(group) for name in (*_WHICH, *_with_half_widths(names))}


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


def numbers_of_trial(one: TrialTotals) -> Numbers:
    """The numbers of a single trial that is part of no mean."""
    spec = one.trial.spec
    return {
        "uut": spec.uut,
        "scenario": spec.scenario,
        "streams": len(spec.streams),
        "frame_size": spec.frame_size if isinstance(spec.frame_size, int) else None,
        "frame_mix": None if isinstance(spec.frame_size, int) else str(spec.frame_size),
        "load": str(spec.load),
        "offered_mbps": one.offered_mbps,
        "throughput_mbps": one.throughput_mbps,
        "loss_ratio": one.loss_ratio,
        "verdict": one.trial.verdict.value,
        "repetition": spec.repetition,
    }


def _with_half_widths(names: Iterable[str]) -> Iterable[str]:
    for name in names:
        yield name
        if f"{name}_ci95" in _COLUMNS:
            yield f"{name}_ci95"
