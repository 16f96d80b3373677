"""The cost of neighbours for flows: figures beside a neighbour relative to those without one."""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from netbench.model.scenario import DEDICATED, SHARED_IDLE, Activity, Idle, Network, Off, Serve
from netbench.model.trial import TrialFrames
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind, Verdict
from netbench.statistics.flow_figures import FIGURES, FIGURES_BY_NAME, FlowFigure
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans, ratio_of_intervals
from netbench.statistics.workload_groups import WorkloadGroup, without_payload

_MOST_CELLS = 4  # in a sentence
_LEADING_PERCENTILES = ("p99", "p95", "p50")
_RATES = ("completed_per_s", "to_server_mbps", "to_client_mbps")


@dataclass(frozen=True, slots=True)
class FlowCost:
    """A figure of a cell beside neighbours relative to the same cell in its baseline; `ratio` is group ÷ base."""

    figure: FlowFigure
    group: WorkloadGroup
    base: WorkloadGroup
    ratio: RatioOfMeans

    @property
    def is_cost(self) -> bool:
        """Whether the neighbours make the figure significantly worse."""
        ratio = self.ratio.ratio
        return bool(self.ratio.significant and ratio is not None and (ratio < 1) is self.figure.is_better_high)

    @property
    def size(self) -> float:
        """How many times worse the figure is; 1 for no difference, infinite for a rate of 0."""
        ratio = self.ratio.ratio
        if ratio is None:
            return 1.0
        if not self.figure.is_better_high:
            return ratio
        return 1 / ratio if ratio else float("inf")


def leading_figures(groups: Iterable[WorkloadGroup]) -> dict[str, list[FlowFigure]]:
    """Return the figures by which cells are ranked, by name of the workload.

    They are the 99th percentile (or the highest known) of times, and rates. A rate of operations is left out where
    bandwidths are known, and a bandwidth that is always 0.
    """
    every = list(groups)
    zero = without_payload(every)
    return {
        workload: _leading({name for group in same for name in group.figures if (workload, name) not in zero})
        for workload, same in grouped(every, lambda group: group.workload.name).items()
    }


def _leading(known: Collection[str]) -> list[FlowFigure]:
    """Return the leading ones of these figures, by name."""
    kind = next((figure.kind for figure in FIGURES if figure.kind and figure.name in known), "")
    percentile = next((name for part in _LEADING_PERCENTILES if (name := f"{kind}_{part}_ms") in known), "")
    rates = [name for name in _RATES if name in known]
    bandwidths = [name for name in rates if name.endswith("_mbps")]
    return [FIGURES_BY_NAME[name] for name in (percentile, *(bandwidths or rates)) if name]


def flow_costs(groups: Sequence[WorkloadGroup]) -> Iterator[FlowCost]:
    """Yield the costs of neighbours for the leading figures of each cell with a baseline.

    The baseline is `dedicated`, or else `shared-idle`. The interval of a ratio is that of ratio_of_intervals().
    """
    figures = leading_figures(groups)
    for base, others in _with_baselines(groups):
        for group in others:
            for figure in figures[group.workload.name]:
                value, without = group.figures.get(figure.name), base.figures.get(figure.name)
                if value is not None and without is not None:
                    yield FlowCost(figure, group, base, ratio_of_intervals(value, without))


def _with_baselines(groups: Iterable[WorkloadGroup]) -> Iterator[tuple[WorkloadGroup, list[WorkloadGroup]]]:
    """Yield the baseline of each cell that has one, and the same cell beside neighbours."""
    for same in grouped(groups, lambda group: (group.uut, *group.cell)).values():
        by_scenario = {group.scenario: group for group in same}
        base = by_scenario.get(DEDICATED) or by_scenario.get(SHARED_IDLE)
        if base is not None and len(same) > 1:
            yield base, [group for group in same if group is not base]


@dataclass(frozen=True, slots=True)
class UnmeasuredScenario:
    """A scenario without a valid trial of some `cells`, of all if that is empty.

    `trials` were measured, and `kind` is the usual reason why they are excluded.
    """

    scenario: str
    cells: tuple[str, ...]
    trials: int
    kind: ReasonKind | None

    def __str__(self) -> str:
        cells = [*self.cells[:_MOST_CELLS], *(["others"] if len(self.cells) > _MOST_CELLS else [])]
        of = f" of {', '.join(cells)}" if cells else ""
        why = f", most often because of {self.kind.value}" if self.kind else ""
        return f"{self.scenario} has no valid trial{of} ({self.trials} of {self.trials} excluded{why})"


def _unmeasured(groups: Iterable[WorkloadGroup]) -> list[UnmeasuredScenario]:
    """Return the scenarios of these cells that have none, or not for each cell, a valid trial."""
    found = []
    for scenario, same in grouped(groups, lambda group: group.scenario).items():
        cells = [group for group in same if not group.valid]
        trials = [trial for group in cells for trial in group.trials]
        reasons = (
            kind
            for trial in trials
            for kind in dict.fromkeys(reason.kind for reason in trial.reasons)
            if kind.verdict is not Verdict.VALID
        )
        usual = Counter(reasons).most_common(1)
        names = dict.fromkeys(f"{group.uut} with {group.workload}" for group in cells) if len(cells) < len(same) else ()
        if cells:
            found.append(UnmeasuredScenario(scenario, tuple(names), len(trials), usual[0][0] if usual else None))
    return found


def missing_baselines(groups: Iterable[WorkloadGroup]) -> list[UnmeasuredScenario]:
    """Return the baselines of neighbours' costs that have no valid trial, by scenario."""
    return _unmeasured(base for base, _ in _with_baselines(groups))


@dataclass(frozen=True, slots=True)
class NeighbourLoadPoint:
    """The load of all neighbours of a cell, in `unit`."""

    value: float
    unit: str


_UNITS: Mapping[LoadKind, tuple[str, float]] = {
    LoadKind.L1_BIT_RATE: ("Mbit/s", 1e6),
    LoadKind.FRAME_RATE: ("frames/s", 1.0),
    LoadKind.OPERATION_RATE: ("operations/s", 1.0),
    LoadKind.SHARE: ("% of line rate", 1.0),
}
OF_MAXIMUM = "% of what it forwards"


def neighbour_load(group: WorkloadGroup) -> NeighbourLoadPoint | None:
    """Return the load of the neighbours of a cell: 0 without a unit if they are idle or absent.

    None if neighbours differ, compute, or have a load without a number (`max`).
    """
    activities: set[Activity] = {task.activity for trial in group.trials for task in trial.spec.neighbours}
    if len(activities) > 1:
        return None
    match next(iter(activities), Off()):
        case Off() | Idle():
            return NeighbourLoadPoint(0.0, "")
        case Network(load=None, share=float() | int() as share):
            return NeighbourLoadPoint(share, OF_MAXIMUM)
        case Network(load=Load() as load) | Serve(load=load) if load.kind in _UNITS:
            unit, factor = _UNITS[load.kind]
            return NeighbourLoadPoint(load.value / factor, unit)
    return None


def neighbour_fps(group: WorkloadGroup) -> float | None:
    """Return the frames/s of each stream of the neighbours, if their load is a share of the UUT's maximum.

    None for other loads. A maximum differs between campaigns, so equal shares are different rates.
    """
    for trial in group.valid:
        for task in trial.spec.neighbours:
            match task.activity, task.traffic:
                case Network(share=float() | int()), TrialFrames(load=load) if load.kind is LoadKind.FRAME_RATE:
                    return load.value
    return None


@dataclass(frozen=True, slots=True)
class LoadCurve:
    """The cells of a UUT with one workload at one load, by rising load of its neighbours in `unit`."""

    uut: str
    unit: str
    points: tuple[tuple[float, WorkloadGroup], ...]

    @property
    def first(self) -> WorkloadGroup:
        """The cell with the least load of neighbours."""
        return self.points[0][1]


def load_curves(groups: Sequence[WorkloadGroup], *, with_invalid: bool = False) -> Iterator[LoadCurve]:
    """Yield the curves with two points or more, for each unit of the neighbours' loads.

    A curve begins with the cell beside idle neighbours, or without them if that was not measured. Points without a
    valid trial are left out, unless `with_invalid`.
    """
    for (uut, *_), same in grouped(groups, lambda group: (group.uut, *group.cell)).items():
        known = [group for group in same if group.figures or with_invalid]
        loads = [(load, group) for group in known if (load := neighbour_load(group)) is not None]
        idle = [group for load, group in loads if not load.unit]
        start = next((group for group in idle if group.scenario != DEDICATED), idle[0] if idle else None)
        for unit in dict.fromkeys(load.unit for load, _ in loads if load.unit):
            points = [(load.value, group) for load, group in loads if load.unit == unit]
            points += [(0.0, start)] if start else []
            if len(points) > 1:
                yield LoadCurve(uut, unit, tuple(sorted(points, key=lambda point: point[0])))


def missing_points(groups: Sequence[WorkloadGroup]) -> list[UnmeasuredScenario]:
    """Return the scenarios that a curve over the neighbours' loads lacks, because they have no valid trial."""
    points = (group for curve in load_curves(groups, with_invalid=True) for _, group in curve.points)
    return _unmeasured({id(group): group for group in points}.values())
