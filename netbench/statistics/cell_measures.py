"""Measures of cells of flows that published figures are compared with: figures by name, mean times, CPU time."""

from collections.abc import Sequence

from netbench.model.flow_result import FlowResult
from netbench.model.trial import TrialResult
from netbench.statistics.flow_figures import FIGURES_BY_NAME, NS_PER_MS, latencies_of
from netbench.statistics.intervals import Interval, boots_interval
from netbench.statistics.totals import observed_s, ratio
from netbench.statistics.workload_groups import WorkloadGroup

_MEAN, _CPU = "_mean_ms", "_cpu_percent"
_CONSUMER = "host"  # the CPU time that a guest costs its host


def measured(cell: WorkloadGroup, measure: str) -> Interval | None:
    """Return a measure of the valid trials of a cell with its interval over boots; None if it is unknown.

    `measure` is the name of a figure (flow_figures.py), `KIND_mean_ms` for the mean of times of a kind in ms, or
    `uut_cpu_percent` or `NEIGHBOUR_cpu_percent` for the CPU time that a guest costs its host, in percent of one CPU.
    KeyError for others.
    """
    if measure.endswith(_MEAN):
        kind = measure.removesuffix(_MEAN)
        return _over_boots([(trial, mean_ms(trial.victim.flows, kind)) for trial in cell.valid])
    if measure.endswith(_CPU):
        guest = measure.removesuffix(_CPU)
        return _over_boots([(trial, _cpu_percent(trial, guest)) for trial in cell.valid])
    return cell.figures.get(FIGURES_BY_NAME[measure].name)


def mean_ms(flows: Sequence[FlowResult], kind: str) -> float | None:
    """Return the mean of all times of a kind in ms; None without any."""
    times = latencies_of(flows, kind)
    return None if times is None else times.mean_ns / NS_PER_MS


def _cpu_percent(trial: TrialResult, guest: str) -> float | None:
    """Return the CPU time of a guest, the UUT itself (`uut`) or a neighbour, in percent of one CPU; None if unknown."""
    results = [trial.victim] if guest == "uut" else [result for result in trial.neighbours if result.name == guest]
    share = ratio(results[0].cpu_s.get(_CONSUMER), observed_s(trial)) if results else None
    return None if share is None else 100 * share


def _over_boots(values: Sequence[tuple[TrialResult, float | None]]) -> Interval | None:
    known = [(trial.boot, value) for trial, value in values if value is not None]
    return boots_interval(known) if known else None
