"""Significance tests: a permutation test, Welch's t for few repetitions, Holm's correction for many tests."""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import combinations, islice
from math import comb, fsum, sqrt
from typing import TYPE_CHECKING

from netbench.statistics.intervals import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # 1 − CONFIDENCE
FEWEST = 3  # repetitions; two are alike by chance too often: no test with them is right for UUTs that have two modes
_ENUMERATED = 200_000  # arrangements: all of ten and ten repetitions
_DRAWN = 50_000  # arrangements drawn if there are more
_AT_ONCE, _NUMBERS_AT_ONCE = 10_000, 1_000_000  # so that they fit into memory
_SEED = 1  # the same data always gives the same p
_ROUNDING = 1e-9  # of the largest sum: sums in another order differ by less


class Test(Enum):
    """The method for a p value. Reports show the value."""

    PERMUTATION = "permutation"
    WELCH = "Welch's t"
    PAIRED = "paired t"
    ALIKE = "all alike"
    NONE = "none"

    __test__ = False  # pytest must not collect it as a test class


def permutation_p(base: Sequence[float], new: Sequence[float]) -> float:
    """Return how often the means of two samples are at least as far apart if values are assigned to them at random.

    The test is two-sided. It tries every arrangement, or draws 50,000 if there are more than 200,000 (Fisher 1935, "The
    Design of Experiments", section 21; p of drawn ones = (b + 1) ÷ (m + 1), Phipson and Smyth 2010, "Permutation
    p-values should never be zero"). Its only assumption on the distribution is that repetitions are exchangeable.
    """
    (p,) = permutation_ps([(base, new)])
    return p


def permutation_ps(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """Return the p of each pair of samples, as `permutation_p`; pairs of equal sizes share the arrangements."""
    ps = [0.0] * len(pairs)
    by_sizes: dict[tuple[int, int], list[int]] = {}
    for place, (base, new) in enumerate(pairs):
        by_sizes.setdefault((len(base), len(new)), []).append(place)
    for (n_base, n_new), places in by_sizes.items():
        for place, p in zip(places, _of_equal_sizes([pairs[index] for index in places], n_base, n_new), strict=True):
            ps[place] = p
    return ps


def _of_equal_sizes(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], n_base: int, n_new: int
) -> Iterator[float]:
    import numpy as np  # noqa: PLC0415 - loaded only for a test

    pooled = np.array([[*base, *new] for base, new in pairs], dtype=float)
    pooled -= pooled.mean(axis=1, keepdims=True)
    among, few = n_base + n_new, min(n_base, n_new)
    observed = np.abs(pooled[:, :n_base].sum(axis=1))
    enough = observed - _ROUNDING * np.maximum(np.abs(pooled).sum(axis=1), 1e-300)
    is_drawn = comb(among, few) > _ENUMERATED
    at_once = max(100, min(_AT_ONCE, _NUMBERS_AT_ONCE // len(pairs)))
    beyond = np.zeros(len(pairs), dtype=int)
    for chosen in _drawn(among, few, at_once) if is_drawn else _arrangements(among, few, at_once):
        beyond += np.count_nonzero(np.abs(chosen @ pooled.T) >= enough, axis=0)
    if is_drawn:
        beyond, total = beyond + 1, _DRAWN + 1
    else:
        total = comb(among, few)
    yield from (float(p) for p in beyond / total)


def welch_p(base: Interval, new: Interval, least_errors: tuple[float, float] = (0.0, 0.0)) -> float | None:
    """Return the two-sided p of Welch's t test of two means, from their intervals; None if one has a single repetition.

    Welch 1947, "The generalization of 'Student's' problem when several different population variances are involved".
    Standard errors are at least the `least_errors`.
    """
    if base.standard_error is None or new.standard_error is None:
        return None
    first, second = max(base.standard_error, least_errors[0]) ** 2, max(new.standard_error, least_errors[1]) ** 2
    apart = abs(new.mean - base.mean)
    if first + second == 0:
        return 1.0 if apart == 0 else 0.0
    degrees = (first + second) ** 2 / (first**2 / (base.n - 1) + second**2 / (new.n - 1))
    from scipy.stats import t  # noqa: PLC0415 - takes half a second and only results need it

    return float(2 * t.sf(apart / sqrt(first + second), degrees))


def paired_p(differences: Sequence[float]) -> float | None:
    """Return the two-sided p of Student's t test of paired differences; None for fewer than two."""
    if len(differences) < 2:
        return None
    mean = fsum(differences) / len(differences)
    deviation = sqrt(fsum((difference - mean) ** 2 for difference in differences) / (len(differences) - 1))
    if not deviation:
        return 0.0 if mean else 1.0
    from scipy.stats import t  # noqa: PLC0415 - takes half a second and only results need it

    return float(2 * t.sf(abs(mean) / deviation * sqrt(len(differences)), len(differences) - 1))


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


def _drawn(among: int, few: int, at_once: int) -> Iterator["NDArray[np.float64]"]:
    """Yield random arrangements, some rows at a time: 1 for a value in the smaller sample, else 0."""
    import numpy as np  # noqa: PLC0415 - loaded only for a test

    chance = np.random.default_rng(_SEED)
    for begin in range(0, _DRAWN, at_once):
        chosen = np.zeros((min(at_once, _DRAWN - begin), among))
        chosen[:, :few] = 1.0
        yield chance.permuted(chosen, axis=1)


def _arrangements(among: int, few: int, at_once: int) -> Iterator["NDArray[np.float64]"]:
    """Yield all arrangements, in the form of _drawn()."""
    import numpy as np  # noqa: PLC0415 - loaded only for a test

    every = combinations(range(among), few)
    while rows := list(islice(every, at_once)):
        chosen = np.zeros((len(rows), among))
        np.put_along_axis(chosen, np.array(rows), 1.0, axis=1)
        yield chosen
