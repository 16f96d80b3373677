"""Figures of flows: of one trial, and of the repetitions of a cell, with intervals over boots."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.trial import TrialResult
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval, boots_interval

NS_PER_MS = 1e6
PERCENTILES = (50_000, 95_000, 99_000, 99_900)  # of 100,000
# A percentile needs ten times beyond it: with fewer, it depends on a few of them.
_LEAST_TIMES = {50_000: 1, 95_000: 200, 99_000: 1000, 99_900: 10_000}
# In a unit of replication one time beyond it is enough: the interval over all units shows how much it varies.
_LEAST_TIMES_OF_UNIT = {50_000: 1, 95_000: 20, 99_000: 100, 99_900: 1000}
KINDS = {
    "response": "response time",
    "service": "service time",
    "rtt": "round-trip time",
    "connect": "time to connect",
}


def percentile_name(per_hundred_thousand: int) -> str:
    """Return the usual name of a percentile: `p99`, `p99.9`."""
    return f"p{per_hundred_thousand / 1000:g}"


@dataclass(frozen=True, slots=True)
class FlowFigure:
    """A number of a trial's flows: its name in exports, its title and unit, and how it is read; None if unknown.

    `is_better_high`: a higher value is a better one. A figure of times, with a `kind` of them, is read from all flows
    of several trials at once; others are means over the trials.
    """

    name: str
    title: str
    unit: str
    read: Callable[[Sequence[FlowResult]], float | None]
    is_better_high: bool = False
    kind: str = ""
    part: int = 0  # the percentile of these times, of 100,000

    @property
    def heading(self) -> str:
        """Its title with its unit; ratios are shown in percent."""
        unit = self.shown_unit
        title = self.title if self.kind else f"{self.title[:1].upper()}{self.title[1:]}"
        return f"{title} [{unit}]" if unit else title

    @property
    def shown_unit(self) -> str:
        """Its unit in texts."""
        return "%" if self.is_ratio else self.unit

    @property
    def is_ratio(self) -> bool:
        """Whether it is a ratio between 0 and 1."""
        return self.name.endswith("_ratio")


def _summed(read: Callable[[FlowResult], float | None]) -> Callable[[Sequence[FlowResult]], float | None]:
    """Return the sum over all flows of a trial; unknown if it is unknown for any of them."""

    def total(flows: Sequence[FlowResult]) -> float | None:
        values = [read(flow) for flow in flows]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    return total


def _mbps(bps: float | None) -> float | None:
    return None if bps is None else bps / 1e6


def _error_ratio(flows: Sequence[FlowResult]) -> float | None:
    """Return the failed operations per intended one, over all flows, or per started one at load max.

    An operation that waits for a connection until its timeout fails without having been started. None without
    operations.
    """
    operations = _summed(lambda flow: flow.intended)(flows) or _summed(lambda flow: flow.started)(flows)
    return sum(sum(flow.errors.values()) for flow in flows) / operations if operations else None


def latencies_of(flows: Iterable[FlowResult], kind: str) -> Latencies | None:
    """Return all times of a kind of several flows; None without any."""
    return Latencies.merged(times for flow in flows for times in flow.latencies if times.kind == kind)


def has_enough(times: Latencies, part: int) -> bool:
    """Return whether there are enough times for a percentile, in parts of 100,000: ten beyond it."""
    return times.count >= _LEAST_TIMES[part]


def percentile_ms(times: Latencies | None, part: int) -> float | None:
    """Return a percentile, in parts of 100,000, in ms; None with too few times for it."""
    return None if times is None or not has_enough(times, part) else times.percentile_ns(part) / NS_PER_MS


def _percentile_of_unit_ms(times: Latencies | None, part: int) -> float | None:
    """Return a percentile of a trial or a boot among several, in ms; None without a time beyond it."""
    enough = times is not None and times.count >= _LEAST_TIMES_OF_UNIT[part]
    return times.percentile_ns(part) / NS_PER_MS if times is not None and enough else None


def _percentile(kind: str, part: int) -> Callable[[Sequence[FlowResult]], float | None]:
    return lambda flows: percentile_ms(latencies_of(flows, kind), part)


FIGURES: tuple[FlowFigure, ...] = (
    FlowFigure(
        "to_server_mbps", "bandwidth to the server", "Mbit/s", _summed(lambda flow: _mbps(flow.to_server_bps)), True
    ),
    FlowFigure(
        "to_client_mbps", "bandwidth to the client", "Mbit/s", _summed(lambda flow: _mbps(flow.to_client_bps)), True
    ),
    FlowFigure("completed_per_s", "completed operations", "/s", _summed(lambda flow: flow.completed_per_s), True),
    FlowFigure("error_ratio", "failed operations", "", _error_ratio),
    FlowFigure("retransmissions", "retransmissions", "", _summed(lambda flow: flow.retransmissions)),
    *(
        FlowFigure(
            f"{kind}_{name.replace('.', '')}_ms", f"{name} {title}", "ms", _percentile(kind, part), kind=kind, part=part
        )
        for kind, title in KINDS.items()
        for part, name in ((part, percentile_name(part)) for part in PERCENTILES)
    ),
)
FIGURES_BY_NAME: Mapping[str, FlowFigure] = {figure.name: figure for figure in FIGURES}
LOST_DATAGRAMS = FlowFigure("lost_datagrams", "lost datagrams", "", _summed(lambda flow: flow.lost_datagrams))
"""The number of lost datagrams in exports; tables show their ratio, `error_ratio`."""


def figures_text(flows: Sequence[FlowResult]) -> str:
    """Return the main figures of a trial in one line: rates, then median and 99th percentile of the first kind."""
    if not flows or any(flow.error for flow in flows):
        return "no result"
    known = {figure.name: value for figure in FIGURES if (value := figure.read(flows)) is not None}
    parts = [
        f"{known[figure.name]:,.4g} {figure.unit} {figure.title.removeprefix('bandwidth ')}"
        for figure in FIGURES[:3]
        if figure.name in known
    ]
    kind = next((kind for kind in KINDS if f"{kind}_p50_ms" in known), None)
    if kind:
        shown = [f"p{part} {known[name]:.4g} ms" for part in ("50", "99") if (name := f"{kind}_p{part}_ms") in known]
        parts.append(f"{KINDS[kind]} {', '.join(shown)}")
    if errors := sum(sum(flow.errors.values()) for flow in flows):
        parts.append(f"{errors:,} failed")
    return "; ".join(parts)


def values_by_trial(figure: FlowFigure, trials: Iterable[TrialResult]) -> list[tuple[TrialResult, float]]:
    """Return each trial, as a unit of replication, with the value of a figure; without those where it is unknown."""
    return [(trial, value) for trial in trials if (value := _value_of_unit(figure, trial.victim.flows)) is not None]


def _value_of_unit(figure: FlowFigure, flows: Sequence[FlowResult]) -> float | None:
    if not figure.kind:
        return figure.read(flows)
    return _percentile_of_unit_ms(latencies_of(flows, figure.kind), figure.part)


class PooledTimes:
    """The times of some trials of a cell by kind, each merged once: those of a boot, and all together."""

    def __init__(self, trials: Sequence[TrialResult]) -> None:
        self.trials = trials
        self.boots = grouped(trials, lambda trial: trial.boot)
        self._merged: dict[tuple[str, int | None], Latencies | None] = {}

    @property
    def has_boots(self) -> bool:
        """Whether boots are the units of replication: there are several, and all are known."""
        return len(self.boots) > 1 and 0 not in self.boots

    def of(self, kind: str, boot: int | None = None) -> Latencies | None:
        """Return all times of a kind, of one boot or of all; None without any."""
        key = kind, boot
        if key not in self._merged:
            parts = [self.of(kind, number) for number in self.boots] if boot is None else []
            times = (
                Latencies.merged(part for part in parts if part is not None)
                if boot is None
                else latencies_of(flows_of(self.boots[boot]), kind)
            )
            self._merged[key] = times
        return self._merged[key]


def values_by_boot(figure: FlowFigure, pooled: PooledTimes) -> list[tuple[int, float]]:
    """Return the boot and the value of each unit of replication: of a boot, or of a trial if there is a single boot.

    The percentile of a boot is that of all its times together. A boot of 0 is unknown: its trials are units.
    """
    if not figure.kind or not pooled.has_boots:
        return [(trial.boot, value) for trial, value in values_by_trial(figure, pooled.trials)]
    by_boot = ((boot, _percentile_of_unit_ms(pooled.of(figure.kind, boot), figure.part)) for boot in pooled.boots)
    return [(boot, value) for boot, value in by_boot if value is not None]


def interval_of(figure: FlowFigure, pooled: PooledTimes) -> Interval | None:
    """Return the figure of the trials of a cell with its interval over boots; None if it is unknown.

    A percentile is that of all times of all trials together, which the mean of percentiles is not. Its interval has the
    half width of the mean of its boots, or of its trials with a single boot.
    """
    if not figure.kind:
        values = values_by_boot(figure, pooled)
        return boots_interval(values) if values else None
    if (merged := percentile_ms(pooled.of(figure.kind), figure.part)) is None:
        return None
    values, trials = values_by_boot(figure, pooled), len(pooled.trials)
    boots = sum(boot > 0 for boot in pooled.boots)
    if not values:
        return Interval(merged, None, trials, boots)
    return replace(boots_interval(values), mean=merged, n=trials if boots > 1 else len(values), boots=boots)


def flows_of(trials: Iterable[TrialResult]) -> list[FlowResult]:
    """Return the victims' flows of some trials."""
    return [flow for trial in trials for flow in trial.victim.flows]
