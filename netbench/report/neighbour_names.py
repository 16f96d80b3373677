"""Neighbours seen as the ones that are measured, so that what is told of a UUT can be told of them."""

from collections.abc import Iterable
from dataclasses import replace

from netbench.model.trial import TrialResult


def of_neighbours(trials: Iterable[TrialResult]) -> dict[str, list[TrialResult]]:
    """By name of the neighbour the trials that it was part of, its streams, counters and CPU time as the trial's."""
    seen: dict[str, list[TrialResult]] = {}
    for trial in trials:
        for one in trial.neighbours:
            own = replace(trial, guests=(one,), machine_cpu_s=None)
            seen.setdefault(one.name, []).append(own)
    return seen
