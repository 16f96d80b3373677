"""Warm-up trials: what is sent on each boot before the first trial that counts, and when that has been enough.

A UUT that has just come up may be slower or faster at first: caches, translated code of an emulated CPU, neighbour
tables, the CPU's frequency. That is not the warm-up of a trial, in which queues fill. Pure.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Literal

from netbench.model.topology import Topology
from netbench.model.trial import TrialSpec
from netbench.model.units import Load

FEWEST = 2  # of one trial nothing can be told
MOST = 10  # made by rule
LEAST_CHANGE = 0.001  # of the throughput: what is less is none
# What the rule takes of a steady UUT on average, for nth of n values in any order is beyond all others in 2 of n cases.
USUAL = 4


def is_enough(wanted: int | Literal["auto"] | None, throughputs: Sequence[float | None]) -> bool:
    """Whether a boot is warm after warm-up trials with these throughputs in frames/s; None of a trial: unknown.

    By the rule, once a trial forwarded neither more nor less than all before it: as long as a UUT becomes faster from
    trial to trial each breaks the record, and of a steady one the nth does in 2 of n cases only (Foster and Stuart
    1954, "Distribution-free tests in time-series based on the breaking of records").
    """
    if not isinstance(wanted, str):
        return len(throughputs) >= (wanted or 0)
    known = [fps for fps in throughputs if fps is not None]
    if len(throughputs) >= MOST:
        return True
    if len(known) < FEWEST or throughputs[-1] is None:
        return False
    *before, last = known
    return min(before) * (1 - LEAST_CHANGE) <= last <= max(before) * (1 + LEAST_CHANGE)


def expected_number(wanted: int | Literal["auto"] | None) -> int:
    """How many are made on each boot, about."""
    return USUAL if isinstance(wanted, str) else wanted or 0


def warm_up_trial(following: TrialSpec, topology: Topology, loads: Sequence[Load]) -> TrialSpec:
    """What is sent to warm up for the trial that follows: the same, at the highest of these loads if there are any.

    What a benchmark sends (RFC 2544) stays as it is: its load may change within the trial.
    """
    link_bps = topology.stream_link(topology.own_streams[0]).rate

    def rank(load: Load) -> float:
        fps = load.fps(following.frame_size, link_bps)
        return inf if fps is None else fps

    if not loads or following.benchmark:
        return following
    frames = replace(following.frames, load=max(loads, key=rank))
    return replace(following, guests=(replace(following.victim, traffic=frames), *following.neighbours))
