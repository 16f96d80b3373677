"""Maxima of one UUT that contradict each other, or its calibration: they are measured again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot

from netbench.model.frame_mix import FrameMix, FrameSize, frames_text, in_bytes
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.intervals import Interval

# Calibration is coarse: a plateau this much below it contradicts it.
_FAR_BELOW = 0.7
# Larger frames cost as much as small ones or more. What is less than this is not called a contradiction.
_SLOWER = 0.9

CalibrationKey = tuple[str, FrameSize, int]  # UUT, frame size, number of sources


@dataclass(frozen=True, slots=True)
class ContradictoryMaxima:
    """Groups whose maxima cannot all be right, and why, as people read it."""

    groups: tuple[Group, ...]
    text: str


def contradictory_maxima(
    groups: Sequence[Group], calibrated: Mapping[CalibrationKey, tuple[str, float]]
) -> tuple[ContradictoryMaxima, ...]:
    """Return the contradictions among maxima as with_limits() has them.

    `calibrated` are the scenario and the maximum, in frames/s of all sources, that loads are shares of.
    """
    best = best_groups(groups)
    found = []
    for same in grouped(best, lambda one: (one.uut, one.scenario, one.sources)).values():
        sizes = sorted((one for one in same if not isinstance(one.frame_size, FrameMix)), key=_size)
        for small, large in pairwise(sizes):
            if _is_below(small.maximum_of_run_fps, large.maximum_of_run_fps, _SLOWER) and not small.limited_by:
                text = (
                    f"{small.uut}, {small.scenario}: {frames_text(small.frame_size)} are forwarded at "
                    f"{_kfps(small)}, fewer than of {in_bytes(large.frame_size)} ({_kfps(large)})"
                )
                found.append(ContradictoryMaxima((small, large), text))
    for one in best:
        scenario, fps = calibrated.get((one.uut, one.frame_size, one.sources), ("", 0.0))
        if one.limited_by or one.scenario != scenario:
            continue  # a lower bound contradicts nothing
        if _is_below(one.maximum_of_run_fps, Interval(fps, 0.0, 1), _FAR_BELOW):
            text = f"{one.uut}, {one.scenario}: {_kfps(one)} is far below the {fps / 1e3:,.1f} kfps of the calibration"
            found.append(ContradictoryMaxima((one,), text))
    return tuple(found)


def _is_below(one: Interval | None, other: Interval | None, part: float) -> bool:
    """Whether a mean is below that part of another, by more than both intervals span."""
    if one is None or other is None:
        return False
    return one.mean + hypot(one.half_width or 0.0, part * (other.half_width or 0.0)) < part * other.mean


def _size(group: Group) -> float:
    return float(group.frame_size) if isinstance(group.frame_size, int) else 0.0


def _kfps(group: Group) -> str:
    return f"{group.maximum_of_run_fps.mean / 1e3:,.1f} kfps" if group.maximum_of_run_fps else "an unknown rate"
