"""Marks outliers among the repetitions of a cell. Means still include them.

The rule is the modified z-score of Iglewicz and Hoaglin 1993, "How to Detect and Handle Outliers" (ASQC Basic
References in Quality Control 16): 0.6745 × |x − median| ÷ MAD, where MAD is the median distance from the median. With
normal noise, their limit of 3.5 gives false alarms in 21 % of cells of five repetitions, 15 % of nine and 10 % of
twenty. The limits here give 1 %.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.groups import Group, grouped, key_of_cell
from netbench.statistics.totals import THROUGHPUT_FPS, TrialTotals

FEWEST_TO_MARK = 5  # repetitions
LEAST_APART = 0.01  # of the median: less moves a mean of ten by less than the smallest reported change (0.1 %)
_TO_SIGMA = 0.6745  # MAD ÷ standard deviation of a normal distribution
# Modified z-score by the least number of repetitions. The largest score of a cell of normal noise exceeds it in 1 % of
# cells (200,000 cells each; `python -m benchmarks.steadiness` counts the remaining marks).
_LIMITS = {
    5: 18.7,
    6: 9.9,
    7: 10.7,
    8: 7.9,
    9: 8.2,
    10: 6.8,
    11: 7.0,
    12: 6.3,
    13: 6.4,
    14: 5.9,
    16: 5.6,
    18: 5.4,
    20: 5.2,
    25: 5.0,
    30: 4.8,
    40: 4.6,
    50: 4.5,
}


@dataclass(frozen=True, slots=True)
class Outliers:
    """The marked repetitions of a cell, in order; `mean_without` is the mean of the others, in frames/s."""

    group: Group
    marked: tuple[TrialTotals, ...]
    mean_without: float

    @property
    def change_without(self) -> float:
        """The relative change of the mean if the marked repetitions were removed."""
        mean = self.group.throughput_fps
        return self.mean_without / mean.mean - 1 if mean and mean.mean else 0.0


def limit_of(repetitions: int) -> float:
    """Return the modified z-score above which one of so many repetitions is marked; infinite below FEWEST_TO_MARK."""
    sizes = list(_LIMITS)
    return _LIMITS[sizes[bisect_right(sizes, repetitions) - 1]] if repetitions >= FEWEST_TO_MARK else inf


def modified_z_scores(values: Sequence[float]) -> list[float]:
    """Return each value's distance from the median in units of the scatter; infinite if there is no scatter."""
    middle = median(values)
    apart = [abs(value - middle) for value in values]
    scatter = median(apart)
    return [_TO_SIGMA * distance / scatter if scatter else (inf if distance else 0.0) for distance in apart]


def outlying(values: Sequence[float]) -> list[bool]:
    """Return for each repetition of a cell whether it is marked; none of fewer than FEWEST_TO_MARK is."""
    if len(values) < FEWEST_TO_MARK:
        return [False] * len(values)
    limit, middle = limit_of(len(values)), median(values)
    scored = zip(modified_z_scores(values), values, strict=True)
    return [score > limit and abs(value - middle) >= LEAST_APART * abs(middle) for score, value in scored]


def outliers_of(group: Group) -> Outliers | None:
    """Return the valid repetitions of a cell with outlying throughput; None if there are none, or too few to judge."""
    known = [(trial, fps) for trial in group.valid if (fps := THROUGHPUT_FPS.read(trial)) is not None]
    marks = outlying([fps for _, fps in known])
    if not any(marks):
        return None
    marked = tuple(trial for (trial, _), mark in zip(known, marks, strict=True) if mark)
    return Outliers(group, marked, fmean(fps for (_, fps), mark in zip(known, marks, strict=True) if not mark))


def outlier_marks(trials: Iterable[TrialResult]) -> dict[str, bool]:
    """Return whether each trial that could be marked is marked, by its key; makes a single pass, and keeps no trial.

    Left out are trials that are not valid, belong to a benchmark (RFC 2544), or have no throughput, trials with flows,
    and cells with fewer than FEWEST_TO_MARK such trials.
    """
    known = [
        (key_of_cell(trial.spec), trial.spec.key, fps)
        for trial in trials
        if trial.verdict is Verdict.VALID
        and not trial.spec.benchmark
        and not trial.spec.serves
        and (fps := TrialTotals.of(trial).throughput_fps) is not None
    ]
    marks: dict[str, bool] = {}
    for cell in grouped(known, lambda entry: entry[0]).values():
        if len(cell) >= FEWEST_TO_MARK:
            marks |= zip((key for _, key, _ in cell), outlying([fps for _, _, fps in cell]), strict=True)
    return marks
