"""Figures of flows: of one trial, and of the repetitions of a cell, with intervals over boots."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from netbench.model.flow_result import FlowResult, Latencies
from netbench.model.trial import TrialResult
from netbench.model.units import Load
from netbench.model.verdict import Verdict
from netbench.model.workload import Workload
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval, boots_interval

_NS_PER_MS = 1e6
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
    """A number of a trial's flows: its name in exports, its title and unit, and how it is read; None if unknown."""

    name: str
    title: str
    unit: str
    read: Callable[[Sequence[FlowResult]], float | None]


def _summed(read: Callable[[FlowResult], float | None]) -> Callable[[Sequence[FlowResult]], float | None]:
    """Return the sum over all flows of a trial; unknown if it is unknown for any of them."""

    def total(flows: Sequence[FlowResult]) -> float | None:
        values = [read(flow) for flow in flows]
        known = [value for value in values if value is not None]
        return sum(known) if known and len(known) == len(values) else None

    return total


def _mbps(bps: float | None) -> float | None:
    return None if bps is None else bps / 1e6


def _errors(flow: FlowResult) -> float | None:
    """Return the failed operations per operation started; None without operations."""
    return sum(flow.errors.values()) / flow.started if flow.started else None


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
        return times.percentile_ns(part) / _NS_PER_MS

    return read


FIGURES: tuple[FlowFigure, ...] = (
    FlowFigure("to_server_mbps", "to the server", "Mbit/s", _summed(lambda flow: _mbps(flow.to_server_bps))),
    FlowFigure("to_client_mbps", "to the client", "Mbit/s", _summed(lambda flow: _mbps(flow.to_client_bps))),
    FlowFigure("completed_per_s", "completed", "/s", _summed(lambda flow: flow.completed_per_s)),
    FlowFigure("error_ratio", "failed", "", _summed(_errors)),
    FlowFigure("retransmissions", "retransmissions", "", _summed(lambda flow: flow.retransmissions)),
    *(
        FlowFigure(f"{kind}_{name}_ms", f"{title}, {name}", "ms", _percentile(kind, part))
        for kind, title in KINDS.items()
        for part, name in ((part, percentile_name(part)) for part in PERCENTILES)
    ),
)


def figures_text(flows: Sequence[FlowResult]) -> str:
    """Return the main figures of a trial in one line: rates, then median and 99th percentile of the first kind."""
    if not flows or any(flow.error for flow in flows):
        return "no result"
    known = {figure.name: value for figure in FIGURES if (value := figure.read(flows)) is not None}
    parts = [
        f"{known[figure.name]:,.4g} {figure.unit} {figure.title}" for figure in FIGURES[:3] if figure.name in known
    ]
    kind = next((kind for kind in KINDS if f"{kind}_p50_ms" in known), None)
    if kind:
        shown = [f"p{part} {known[name]:.4g} ms" for part in ("50", "99") if (name := f"{kind}_p{part}_ms") in known]
        parts.append(f"{KINDS[kind]} {', '.join(shown)}")
    if errors := sum(sum(flow.errors.values()) for flow in flows):
        parts.append(f"{errors:,} failed")
    return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class FlowGroup:
    """The repetitions of one cell: a UUT in a scenario with a workload at a load. Figures are of the valid trials."""

    uut: str
    scenario: str
    workload: Workload
    load: Load
    trials: tuple[TrialResult, ...]
    figures: Mapping[str, Interval] = field(default_factory=dict)  # by name; without unknown ones

    @classmethod
    def of(cls, trials: Sequence[TrialResult]) -> "FlowGroup":
        """Return the group of trials of one cell."""
        spec = trials[0].spec
        assert spec.serves is not None, "frames have groups of another kind"
        figures = {}
        for figure in FIGURES:
            values = [
                (trial.boot, value)
                for trial in trials
                if trial.verdict is Verdict.VALID and (value := figure.read(trial.victim.flows)) is not None
            ]
            if values:
                figures[figure.name] = boots_interval(values)
        return cls(spec.uut, spec.scenario, spec.serves.workload, spec.load, tuple(trials), figures)

    @property
    def valid(self) -> list[TrialResult]:
        """The valid trials."""
        return [trial for trial in self.trials if trial.verdict is Verdict.VALID]

    def latencies(self, kind: str) -> Latencies | None:
        """Return all times of a kind over all valid trials, as one distribution; None without any."""
        return latencies_of((flow for trial in self.valid for flow in trial.victim.flows), kind)


def flow_groups(trials: Iterable[TrialResult]) -> Iterator[FlowGroup]:
    """Yield the groups of all trials with flows, in the order of their first trials."""
    serving = (trial for trial in trials if trial.spec.serves)
    for cell in grouped(serving, _cell).values():
        yield FlowGroup.of(cell)


def _cell(trial: TrialResult) -> tuple[str, str, str, str, tuple[str, ...]]:
    spec = trial.spec
    return spec.uut, spec.scenario, str(spec.kind_of_traffic), str(spec.load), spec.streams
