"""Repetitions that stand apart from the others of their cell: marked, and part of every mean all the same.

The rule is the modified z-score of Iglewicz and Hoaglin 1993, "How to Detect and Handle Outliers" (ASQC Basic
References in Quality Control 16): 0.6745 × |x − median| ÷ MAD, where MAD is the median distance from the median. Their
limit of 3.5 marks something in 21 % of cells of five repetitions of normal noise, 15 % of nine and 10 % of twenty: a
mark would say little. The limits here are those that 1 % of such cells exceed.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median

from netbench.model.trial import TrialResult
from netbench.model.verdict import Verdict
from netbench.statistics.counted import THROUGHPUT_FPS
from netbench.statistics.groups import Group, grouped, key_of_cell
from netbench.statistics.totals import TrialTotals

FEWEST = 5  # repetitions
LEAST_APART = 0.01  # of the median: less would move a mean of ten by less than what counts as a change (0.1 %)
_TO_SIGMA = 0.6745  # MAD ÷ standard deviation of a normal distribution
# By the least number of repetitions: the modified z-score that the largest of so many exceeds in 1 % of cells of normal
# noise (200,000 cells each; `python -m benchmarks.steadiness` counts the marks that are left).
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
    """The marked repetitions of a cell, in the order of repetition; `mean_without` is of the others, in frames/s."""

    group: Group
    marked: tuple[TrialTotals, ...]
    mean_without: float

    @property
    def change_without(self) -> float:
        """By how much the mean would be another without them, as a part of it."""
        mean = self.group.throughput_fps
        return self.mean_without / mean.mean - 1 if mean and mean.mean else 0.0


def limit_of(repetitions: int) -> float:
    """The modified z-score above which one of so many repetitions is marked; infinite below FEWEST."""
    sizes = list(_LIMITS)
    return _LIMITS[sizes[bisect_right(sizes, repetitions) - 1]] if repetitions >= FEWEST else inf


def modified_z_scores(values: Sequence[float]) -> list[float]:
    """How far each value is from the median of all, in units of their scatter; infinite where they have none."""
    middle = median(values)
    apart = [abs(value - middle) for value in values]
    scatter = median(apart)
    return [_TO_SIGMA * one / scatter if scatter else (inf if one else 0.0) for one in apart]


def outlying(values: Sequence[float]) -> list[bool]:
    """Which of the repetitions of a cell are marked: none of fewer than FEWEST."""
    if len(values) < FEWEST:
        return [False] * len(values)
    limit, middle = limit_of(len(values)), median(values)
    least = LEAST_APART * abs(middle)
    return [
        score > limit and abs(value - middle) >= least
        for score, value in zip(modified_z_scores(values), values, strict=True)
    ]


def outliers_of(group: Group) -> Outliers | None:
    """The valid repetitions of a cell whose throughput stands apart; None where there are none, or too few to tell."""
    known = [(one, fps) for one in group.valid if (fps := THROUGHPUT_FPS.read(one)) is not None]
    marks = outlying([fps for _, fps in known])
    if not any(marks):
        return None
    marked = tuple(one for (one, _), mark in zip(known, marks, strict=True) if mark)
    return Outliers(group, marked, fmean(fps for (_, fps), mark in zip(known, marks, strict=True) if not mark))


def outlier_marks(trials: Iterable[TrialResult]) -> dict[str, bool]:
    """By key of each trial that could be marked, whether it is; trials are gone through once, and not kept.

    Those that are not valid, or part of a benchmark (RFC 2544), without a throughput, or of cells with fewer than
    FEWEST that have one, are not there.
    """
    known = [
        (key_of_cell(trial.spec), trial.spec.key, fps)
        for trial in trials
        if trial.verdict is Verdict.VALID
        and not trial.spec.benchmark
        and (fps := TrialTotals.of(trial).throughput_fps) is not None
    ]
    marks: dict[str, bool] = {}
    for own in grouped(known, lambda one: one[0]).values():
        if len(own) >= FEWEST:
            marks |= zip((key for _, key, _ in own), outlying([fps for _, _, fps in own]), strict=True)
    return marks
