"""Figures of flows: of one trial, and of the repetitions of a cell, with intervals over boots."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from netbench.model.campaign import CampaignResults
from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.trial import TrialResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, Verdict
from netbench.model.workload import Workload
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval, boots_interval

NS_PER_MS = 1e6
PERCENTILES = (50_000, 95_000, 99_000, 99_900)  # of 100,000
# A percentile needs times beyond it: with fewer times than this, it would be the largest one.
_LEAST_TIMES = {50_000: 1, 95_000: 20, 99_000: 100, 99_900: 1000}
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
    """Return the failed operations per operation started, over all flows; None without operations."""
    started = _summed(lambda flow: flow.started)(flows)
    return sum(sum(flow.errors.values()) for flow in flows) / started if started else None


def latencies_of(flows: Iterable[FlowResult], kind: str) -> Latencies | None:
    """Return all times of a kind of several flows; None without any."""
    return Latencies.merged(times for flow in flows for times in flow.latencies if times.kind == kind)


def has_enough(times: Latencies, part: int) -> bool:
    """Return whether there are enough times for a percentile, in parts of 100,000: with fewer it is the largest."""
    return times.count >= _LEAST_TIMES[part]


def _percentile(kind: str, part: int) -> Callable[[Sequence[FlowResult]], float | None]:
    def read(flows: Sequence[FlowResult]) -> float | None:
        times = latencies_of(flows, kind)
        if times is None or not has_enough(times, part):
            return None
        return times.percentile_ns(part) / NS_PER_MS

    return read


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
        FlowFigure(f"{kind}_{name.replace('.', '')}_ms", f"{name} {title}", "ms", _percentile(kind, part), kind=kind)
        for kind, title in KINDS.items()
        for part, name in ((part, percentile_name(part)) for part in PERCENTILES)
    ),
)
FIGURES_BY_NAME: Mapping[str, FlowFigure] = {figure.name: figure for figure in FIGURES}


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
    """Return each trial with the value of a figure, without those where it is unknown."""
    return [(trial, value) for trial in trials if (value := figure.read(trial.victim.flows)) is not None]


def values_by_boot(figure: FlowFigure, trials: Sequence[TrialResult]) -> list[tuple[int, float]]:
    """Return the boot and the value of each unit of replication: of a boot, or of a trial if there is a single boot.

    The percentile of a boot is that of all its times together. A boot of 0 is unknown: its trials are units.
    """
    boots = grouped(trials, lambda trial: trial.boot)
    if not figure.kind or len(boots) < 2 or 0 in boots:
        return [(trial.boot, value) for trial, value in values_by_trial(figure, trials)]
    pooled = ((boot, figure.read(flows_of(of_boot))) for boot, of_boot in boots.items())
    return [(boot, value) for boot, value in pooled if value is not None]


def interval_of(figure: FlowFigure, trials: Sequence[TrialResult]) -> Interval | None:
    """Return the figure of some trials of a cell with its interval over boots; None if it is unknown.

    A percentile is that of all times of all trials together, which the mean of percentiles is not. Its interval has the
    half width of the mean of its boots, or of its trials with a single boot.
    """
    values = values_by_boot(figure, trials)
    if not figure.kind:
        return boots_interval(values) if values else None
    merged = figure.read(flows_of(trials))
    if merged is None:
        return None
    boots = len({trial.boot for trial in trials if trial.boot})
    if not values:
        return Interval(merged, None, len(trials), boots)
    return replace(boots_interval(values), mean=merged, n=len(trials) if boots > 1 else len(values), boots=boots)


def flows_of(trials: Iterable[TrialResult]) -> list[FlowResult]:
    """Return the victims' flows of some trials."""
    return [flow for trial in trials for flow in trial.victim.flows]


@dataclass(frozen=True)  # no slots: the instance caches computed values
class WorkloadGroup:
    """The repetitions of one cell: a UUT in a scenario with a workload at a load. Figures are of the valid trials."""

    uut: str
    scenario: str
    workload: Workload
    load: Load
    trials: tuple[TrialResult, ...]
    figures: Mapping[str, Interval] = field(default_factory=dict)  # by name; without unknown ones

    @classmethod
    def of(cls, trials: Sequence[TrialResult]) -> "WorkloadGroup":
        """Return the group of trials of one cell."""
        spec = trials[0].spec
        assert spec.serves is not None, "frames have groups of another kind"
        valid = [trial for trial in trials if trial.verdict is Verdict.VALID]
        known = {figure.name: interval_of(figure, valid) for figure in FIGURES}
        figures = {name: interval for name, interval in known.items() if interval is not None}
        return cls(spec.uut, spec.scenario, spec.serves.workload, spec.load, tuple(trials), figures)

    @property
    def sources(self) -> int:
        """The number of clients."""
        return len(self.trials[0].spec.streams)

    @property
    def valid(self) -> list[TrialResult]:
        """The valid trials."""
        return self._with(Verdict.VALID)

    @property
    def suspicious(self) -> list[TrialResult]:
        """The suspicious trials."""
        return self._with(Verdict.SUSPICIOUS)

    @property
    def invalid(self) -> list[TrialResult]:
        """The invalid trials."""
        return self._with(Verdict.INVALID)

    @property
    def saturated(self) -> int:
        """The number of saturated trials: none, because only links exert the backpressure on sources of frames."""
        return 0

    @property
    def thrown_away(self) -> int:
        """The number of discarded attempts."""
        return sum(len(trial.thrown_away) for trial in self.trials)

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """The reasons for the verdicts of its suspicious and invalid trials."""
        return tuple(reason for trial in (*self.suspicious, *self.invalid) for reason in trial.reasons)

    @property
    def tool(self) -> str:
        """The program and version that ran its flows; several ones if they differ, empty without a result."""
        return ", ".join(dict.fromkeys(flow.tool for flow in flows_of(self.trials) if flow.tool))

    @property
    def kind_of_times(self) -> str:
        """The first kind of times that it has; empty without any."""
        return next((kind for kind in KINDS if f"{kind}_p50_ms" in self.figures), "")

    @property
    def cell(self) -> tuple[str, Load, int]:
        """The key that cells of several UUTs and scenarios have in common: name of the workload, load, clients."""
        return self.workload.name, self.load, self.sources

    def latencies(self, kind: str) -> Latencies | None:
        """Return all times of a kind over all valid trials, as one distribution; None without any."""
        if kind not in self._merged:
            self._merged[kind] = latencies_of(flows_of(self.valid), kind)
        return self._merged[kind]

    def _with(self, verdict: Verdict) -> list[TrialResult]:
        return [trial for trial in self.trials if trial.verdict is verdict]

    @cached_property
    def _merged(self) -> dict[str, Latencies | None]:
        return {}


def workload_groups(trials: Iterable[TrialResult]) -> Iterator[WorkloadGroup]:
    """Yield the groups of all trials with flows, in the order of their first trials."""
    serving = (trial for trial in trials if trial.spec.serves)
    for cell in grouped(serving, _cell).values():
        yield WorkloadGroup.of(cell)


def workload_groups_of(results: CampaignResults) -> tuple[WorkloadGroup, ...]:
    """Return the groups of a campaign.

    UUTs are in the order of the topology, scenarios in that of the profile; then options of workloads and loads rise.
    """
    groups = list(workload_groups(trial.without_counters for trial in results.wanted_trials))
    uuts = [*results.uuts, *(group.uut for group in groups)]
    scenarios = [*results.scenarios, *(group.scenario for group in groups)]

    def order(group: WorkloadGroup) -> tuple[object, ...]:
        options = [(name, isinstance(value, str), value) for name, value in group.workload.options]
        rate = group.load.kind is LoadKind.MAX, group.load.value
        place = uuts.index(group.uut), scenarios.index(group.scenario)
        return (*place, group.sources, group.workload.tool, options, group.workload.name, rate)

    return tuple(sorted(groups, key=order))


def _cell(trial: TrialResult) -> tuple[str, str, str, str, tuple[str, ...]]:
    spec = trial.spec
    return spec.uut, spec.scenario, str(spec.kind_of_traffic), str(spec.load), spec.streams
