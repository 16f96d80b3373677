"""CPU time per operation of each guest: of a server, of a second tier, of a client in a guest."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from netbench.model.flow_result import FlowResult
from netbench.model.scenario import VICTIM
from netbench.model.trial import TrialResult
from netbench.statistics.intervals import Interval, known_interval
from netbench.statistics.totals import LOAD
from netbench.statistics.workload_groups import WorkloadGroup

_CONSUMERS = ("guest", "host")  # counted by the guest's kernel, and on its host


@dataclass(frozen=True, slots=True)
class GuestCpu:
    """The CPU time of a guest per operation of a cell, in ms, by who counted it; without unknown ones.

    `guest` is VICTIM or the name of a neighbour. `per_operation_ms` has the keys `guest`, the guest's kernel, and
    `host`, the cost on its host.
    """

    group: WorkloadGroup
    guest: str
    per_operation_ms: Mapping[str, Interval]


def guests_cpu(groups: Iterable[WorkloadGroup]) -> Iterator[GuestCpu]:
    """Yield the CPU time per operation of each guest, over the valid trials of each cell."""
    for group in groups:
        of_trials = [per_operation_ms(trial) for trial in group.valid]
        for guest in dict.fromkeys(name for by_guest in of_trials for name in by_guest):
            by_consumer = {
                whose: known_interval(by_guest.get(guest, {}).get(whose) for by_guest in of_trials)
                for whose in _CONSUMERS
            }
            known = {whose: interval for whose, interval in by_consumer.items() if interval}
            if known:
                yield GuestCpu(group, guest, known)


def per_operation_ms(trial: TrialResult) -> dict[str, dict[str, float]]:
    """Return the CPU time per completed operation of the victim's flows in a trial, in ms, by guest and consumer.

    CPU times include the warm-up, so operations do, too. The CPU time of a neighbour's load is not included. Neighbours
    that serve clients themselves are left out: their CPU time belongs to other operations. Empty if the number of
    operations is unknown.
    """
    of_run = [_operations(flow, trial) for flow in trial.victim.flows]
    operations = sum(number for number in of_run if number is not None)
    if not operations or None in of_run:
        return {}
    serving = {task.name for task in trial.spec.neighbours if task.serves}
    return {
        guest.name: {
            whose: 1000 * max(0.0, guest.cpu_s[whose] - guest.cpu_s.get(LOAD, 0.0)) / operations
            for whose in _CONSUMERS
            # A client that has ended in a container leaves no CPU time behind: that is unknown, not 0.
            if whose in guest.cpu_s and (guest.name == VICTIM or guest.cpu_s[whose] > 0)
        }
        for guest in trial.guests
        if guest.name == VICTIM or guest.name not in serving
    }


def _operations(flow: FlowResult, trial: TrialResult) -> float | None:
    """Return the operations of the whole run: those after the warm-up, in proportion to bytes, or else to time."""
    if flow.completed is None or flow.error:
        return None
    if flow.run_to_client_bytes and flow.to_client_bytes:
        return flow.completed * flow.run_to_client_bytes / flow.to_client_bytes
    return flow.completed * trial.spec.duration_s / flow.duration_s if flow.duration_s else None
