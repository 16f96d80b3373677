"""The repetitions of cells with flows: a UUT in a scenario with a workload at a load."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from netbench.model.campaign import CampaignResults
from netbench.model.flow_result import Latencies
from netbench.model.trial import TrialResult
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import Reason, Verdict
from netbench.model.workload import FlowPath, Workload
from netbench.statistics.flow_figures import (
    FIGURES,
    KINDS,
    LOST_DATAGRAMS,
    PooledTimes,
    flows_of,
    interval_of,
    latencies_of,
)
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval


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
        pooled = PooledTimes([trial for trial in trials if trial.verdict is Verdict.VALID])
        known = {figure.name: interval_of(figure, pooled) for figure in (*FIGURES, LOST_DATAGRAMS)}
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
    def has_datagrams(self) -> bool:
        """Whether its operations are datagrams, whose loss the tool counts."""
        return any(flow.lost_datagrams is not None for flow in flows_of(self.trials))

    @property
    def intended_per_s(self) -> float | None:
        """The operations per second that a rate requires, over all clients; None at another load, or if unknown."""
        if self.load.as_rate.kind is not LoadKind.OPERATION_RATE:
            return None
        of_trials = [
            sum(flow.intended / flow.duration_s for flow in trial.victim.flows if flow.intended and flow.duration_s)
            for trial in self.valid
        ]
        known = [rate for rate in of_trials if rate]
        return fmean(known) if known else None

    @property
    def kind_of_times(self) -> str:
        """The first kind of times that it has; empty without any."""
        return next((kind for kind in KINDS if f"{kind}_p50_ms" in self.figures), "")

    @property
    def cell(self) -> tuple[str, Load, int]:
        """The key that cells of several UUTs and scenarios have in common: name of the workload, load, clients.

        A share of a maximum is the same load for all UUTs.
        """
        return self.workload.name, self.load.as_requested, self.sources

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
        path = [*FlowPath].index(group.workload.path)
        return (*place, group.sources, group.workload.tool, path, options, group.workload.name, rate)

    return tuple(sorted(groups, key=order))


def without_payload(groups: Iterable[WorkloadGroup]) -> set[tuple[str, str]]:
    """Return the workloads, with the name of a bandwidth, that carry no payload in that direction: always 0."""
    means = [
        ((group.workload.name, name), interval.mean)
        for group in groups
        for name, interval in group.figures.items()
        if name.endswith("_mbps")
    ]
    return {pair for pair, _ in means} - {pair for pair, mean in means if mean}


def _cell(trial: TrialResult) -> tuple[str, str, str, str, tuple[str, ...]]:
    spec = trial.spec
    return spec.uut, spec.scenario, str(spec.kind_of_traffic), str(spec.load), spec.streams
