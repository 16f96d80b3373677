"""Warm-up trials: the load on each boot before the first trial that counts, and the rule when it is warm.

A UUT that has just started may be slower or faster at first, because of caches, translated code of an emulated CPU,
neighbour tables, or the CPU's frequency. This differs from the warm-up of a trial, in which queues fill. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Literal

from netbench.model.topology import Topology
from netbench.model.trial import TrialSpec
from netbench.model.units import Load

FEWEST_WARM_UP_TRIALS = 2  # a single trial shows nothing
MOST = 10  # trials by the rule
LEAST_WARM_UP_CHANGE = 0.001  # of the throughput: a smaller change counts as none
# Average number of trials by the rule for a steady UUT: the nth of n values exceeds all others in 2 of n cases.
USUAL = 4


def is_enough(configured: int | Literal["auto"] | None, throughputs: Sequence[float | None]) -> bool:
    """Return whether a boot is warm after warm-up trials with these throughputs in frames/s; None: unknown for a trial.

    By the rule, it is warm once a trial forwards neither more nor less than all before it. While a UUT becomes faster,
    each trial breaks the record. For a steady one the nth trial does so in only 2 of n cases (Foster and Stuart 1954,
    "Distribution-free tests in time-series based on the breaking of records").
    """
    if not isinstance(configured, str):
        return len(throughputs) >= (configured or 0)
    known = [fps for fps in throughputs if fps is not None]
    if len(throughputs) >= MOST:
        return True
    if len(known) < FEWEST_WARM_UP_TRIALS or throughputs[-1] is None:
        return False
    *before, last = known
    return min(before) * (1 - LEAST_WARM_UP_CHANGE) <= last <= max(before) * (1 + LEAST_WARM_UP_CHANGE)


def expected_number(configured: int | Literal["auto"] | None) -> int:
    """Return the estimated number of warm-up trials on each boot."""
    return USUAL if isinstance(configured, str) else configured or 0


def warm_up_trial(following: TrialSpec, topology: Topology, loads: Sequence[Load]) -> TrialSpec:
    """Return the warm-up trial for the next trial: the same trial at the highest of these loads, if there are any.

    A trial of a benchmark (RFC 2544) is unchanged, because its load may change within the trial.
    """
    link_bps = topology.stream_link(topology.own_streams[0]).rate

    def rank(load: Load) -> float:
        fps = load.fps(following.frame_size, link_bps)
        return inf if fps is None else fps

    if not loads or following.benchmark:
        return following
    frames = replace(following.frames, load=max(loads, key=rank))
    return replace(following, guests=(replace(following.victim, traffic=frames), *following.neighbours))
