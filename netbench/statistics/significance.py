"""Significance tests: a permutation test, Welch's t for few repetitions, Holm's correction for many tests."""

from collections.abc import Iterator, Sequence
from enum import Enum
from math import comb, sqrt
from typing import TYPE_CHECKING

from netbench.statistics.groups import grouped
from netbench.statistics.intervals import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # 1 − CONFIDENCE
FEWEST = 3  # repetitions; two are alike by chance too often: no test with them is right for UUTs that have two modes
_ENUMERATED = 200_000  # arrangements: all of ten and ten repetitions
_DRAWN = 50_000  # arrangements drawn if there are more
_NUMBERS_AT_ONCE = 1_000_000  # so that they fit into memory
_SEED = 1  # the same data always gives the same p
_DIGITS = 9  # sums of the same values in another order differ by less


class Test(Enum):
    """The method for a p value. Reports show the value."""

    PERMUTATION = "permutation"
    WELCH = "Welch's t"
    PAIRED = "paired t"
    ALIKE = "all alike"
    NONE = "none"

    __test__ = False  # pytest must not collect it as a test class


class CorrectedResult:
    """The result of a test; `corrected` is its p, corrected for the number of tests; None if it cannot be tested."""

    __slots__ = ()
    corrected: float | None

    @property
    def significant(self) -> bool:
        """Whether chance alone causes such a result in at most one of twenty campaigns or comparisons."""
        return self.corrected is not None and self.corrected <= ALPHA


def permutation_ps(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Return how often the means of each pair of samples are at least as far apart if chance assigns the values.

    The test is two-sided. It tries every arrangement, or draws 50,000 if there are more than 200,000 (Fisher 1935, "The
    Design of Experiments", section 21; p of drawn ones = (b + 1) ÷ (m + 1), Phipson and Smyth 2010, "Permutation
    p-values should never be zero"). Its only assumption on the distribution is that repetitions are exchangeable. Pairs
    of equal sizes share the arrangements.
    """
    ps = [0.0] * len(pairs)
    by_sizes = grouped(range(len(pairs)), lambda place: tuple(map(len, pairs[place])))
    for (n_base, n_new), places in by_sizes.items():
        for place, p in zip(places, _of_equal_sizes([pairs[index] for index in places], n_base, n_new), strict=True):
            ps[place] = p
    return ps


def _of_equal_sizes(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], n_base: int, n_new: int
) -> Iterator[float]:
    # scipy takes half a second to load, and only results need it.
    import numpy as np  # noqa: PLC0415
    from scipy.stats import permutation_test  # noqa: PLC0415

    pooled = np.array([[*base, *new] for base, new in pairs], dtype=float)
    pooled -= pooled.mean(axis=1, keepdims=True)
    arrangements = comb(n_base + n_new, n_base)

    def distance(base: "NDArray[np.float64]", new: "NDArray[np.float64]", axis: int) -> "NDArray[np.float64]":
        """Return the distance of the means in a unit that no arrangement changes, equal for sums in any order."""
        unit = np.maximum(np.abs(base).sum(axis) + np.abs(new).sum(axis), 1e-300)
        apart: NDArray[np.float64] = np.round(np.abs(base.sum(axis)) / unit, _DIGITS)
        return apart

    result = permutation_test(
        (pooled[:, :n_base], pooled[:, n_base:]),
        distance,
        axis=1,
        vectorized=True,
        alternative="greater",
        n_resamples=arrangements if arrangements <= _ENUMERATED else _DRAWN,
        batch=max(1, _NUMBERS_AT_ONCE // pooled.size),
        rng=np.random.default_rng(_SEED),
    )
    yield from map(float, result.pvalue)


def welch_p(base: Interval, new: Interval, least_errors: tuple[float, float] = (0.0, 0.0)) -> float | None:
    """Return the two-sided p of Welch's t test of two means, from their intervals; None if one has a single repetition.

    Welch 1947, "The generalization of 'Student's' problem when several different population variances are involved".
    Standard errors are at least the `least_errors`.
    """
    if base.standard_error is None or new.standard_error is None:
        return None
    errors = max(base.standard_error, least_errors[0]), max(new.standard_error, least_errors[1])
    if not any(errors):
        return 1.0 if new.mean == base.mean else 0.0
    from scipy.stats import ttest_ind_from_stats  # noqa: PLC0415 - takes half a second and only results need it

    sides = ((side.mean, error * sqrt(side.n), side.n) for side, error in zip((base, new), errors, strict=True))
    return float(ttest_ind_from_stats(*next(sides), *next(sides), equal_var=False).pvalue)


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of Student's t test of paired differences; None for fewer than two."""
    if len(differences) < 2:
        return None
    if min(differences) == max(differences):
        return 0.0 if differences[0] else 1.0
    from scipy.stats import ttest_1samp  # noqa: PLC0415 - takes half a second and only results need it

    return float(ttest_1samp(differences, 0.0).pvalue)


def smallest_p(base: int, new: int) -> float:
    """Return the smallest p that the permutation test can have for samples of these sizes, for any values."""
    arrangements = comb(base + new, min(base, new))
    return 2 / arrangements if arrangements <= _ENUMERATED else 1 / (_DRAWN + 1)


def repetitions_needed(tests: int) -> int | None:
    """Return the repetitions per side at which one of `tests` permutation tests can be significant; None from 20 on."""
    return next((n for n in range(FEWEST, 20) if smallest_p(n, n) * max(tests, 1) <= ALPHA), None)


def holm(ps: Sequence[float]) -> list[float]:
    """Return the p values corrected for their number, in the same order.

    The method is that of Holm 1979, "A simple sequentially rejective multiple test procedure". If nothing differs, any
    corrected p is 5 % or less in at most 5 % of cases, for any dependence between the tests.
    """
    corrected = [0.0] * len(ps)
    highest = 0.0
    for done, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - done) * ps[place]))
        corrected[place] = highest
    return corrected
