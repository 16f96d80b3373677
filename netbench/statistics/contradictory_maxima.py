"""Maxima of a UUT that contradict each other or its calibration and must be measured again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import hypot

from netbench.model.frame_mix import FrameMix, FrameSize, frames_text, in_bytes
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.intervals import Interval

# Calibration is coarse: only a plateau below this part of its maximum contradicts it.
_FAR_BELOW = 0.7
# Larger frames cost at least as much as small ones. Only a rate of small frames below this part is a contradiction.
_SLOWER = 0.9

CalibrationKey = tuple[str, FrameSize, int]  # UUT, frame size, number of sources


@dataclass(frozen=True, slots=True)
class ContradictoryMaxima:
    """Groups whose maxima cannot all be right, and the reason as a text for reports."""

    groups: tuple[Group, ...]
    text: str


def contradictory_maxima(
    groups: Sequence[Group], calibrated: Mapping[CalibrationKey, tuple[str, float]]
) -> tuple[ContradictoryMaxima, ...]:
    """Return the contradictions among the maxima of groups from with_limits().

    `calibrated` contains the scenario and the maximum, in frames/s of all sources, that loads are shares of.
    """
    best = best_groups(groups)
    contradictions = []
    for same in grouped(best, lambda group: (group.uut, group.scenario, group.sources)).values():
        sizes = sorted((group for group in same if not isinstance(group.frame_size, FrameMix)), key=_size)
        for small, large in pairwise(sizes):
            if _is_below(small.maximum_of_run_fps, large.maximum_of_run_fps, _SLOWER) and not small.limited_by:
                text = (
                    f"{small.uut}, {small.scenario}: {frames_text(small.frame_size)} are forwarded at "
                    f"{_kfps(small)}, fewer than of {in_bytes(large.frame_size)} ({_kfps(large)})"
                )
                contradictions.append(ContradictoryMaxima((small, large), text))
    for group in best:
        scenario, fps = calibrated.get((group.uut, group.frame_size, group.sources), ("", 0.0))
        if group.limited_by or group.scenario != scenario:
            continue  # a lower bound contradicts nothing
        if _is_below(group.maximum_of_run_fps, Interval(fps, 0.0, 1), _FAR_BELOW):
            text = (
                f"{group.uut}, {group.scenario}: {_kfps(group)} is far below "
                f"the {fps / 1e3:,.1f} kfps of the calibration"
            )
            contradictions.append(ContradictoryMaxima((group,), text))
    return tuple(contradictions)


def _is_below(one: Interval | None, other: Interval | None, part: float) -> bool:
    """Return whether the mean of `one` is below `part` × that of `other` by more than both half widths combined."""
    if one is None or other is None:
        return False
    return one.mean + hypot(one.half_width or 0.0, part * (other.half_width or 0.0)) < part * other.mean


def _size(group: Group) -> float:
    return float(group.frame_size) if isinstance(group.frame_size, int) else 0.0


def _kfps(group: Group) -> str:
    return f"{group.maximum_of_run_fps.mean / 1e3:,.1f} kfps" if group.maximum_of_run_fps else "an unknown rate"
