"""Whether two samples differ: a permutation test, Welch's for few repetitions, Holm's correction for many tests."""

from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, combinations
from math import comb, sqrt
from typing import TYPE_CHECKING

from netbench.statistics.intervals import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # what CONFIDENCE leaves
FEWEST = 3  # repetitions; of two, which are alike by chance too often, no test is right for UUTs that have two modes
_ENUMERATED = 200_000  # arrangements: all of ten and ten repetitions
_DRAWN = 100_000  # of more, so many are drawn
_AT_ONCE = 10_000  # so that they fit into memory
_SEED = 1  # the same data has the same p
_ROUNDING = 1e-9  # of the largest sum: sums in another order differ by less


class Test(Enum):
    """How a p value was found. The value is what people read."""

    PERMUTATION = "permutation"
    WELCH = "Welch's t"
    ALIKE = "all alike"
    NONE = "none"

    __test__ = False  # not a test class, whatever pytest reads into its name


def permutation_p(base: Sequence[float], new: Sequence[float]) -> float:
    """How often the means of two samples are at least as far apart when it is left to chance which value is whose.

    Two-sided; every arrangement is tried, or 100,000 drawn where there are more than 200,000 (Fisher 1935, "The Design
    of Experiments", section 21; of drawn ones p = (b + 1) ÷ (m + 1), Phipson and Smyth 2010, "Permutation p-values
    should never be zero"). It asks nothing of the distribution but that repetitions can be exchanged.
    """
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

    pooled = np.array([*base, *new], dtype=float)
    pooled -= pooled.mean()
    few = min(len(base), len(new))
    observed = abs(pooled[: len(base)].sum())
    enough = observed - _ROUNDING * max(np.abs(pooled).sum(), 1e-300)
    if comb(len(pooled), few) <= _ENUMERATED:
        sums = pooled[_arrangements(len(pooled), few)].sum(axis=1)
        return float(np.mean(np.abs(sums) >= enough))
    chance = np.random.default_rng(_SEED)
    at_once = np.tile(pooled, (_AT_ONCE, 1))
    drawn = (chance.permuted(at_once, axis=1)[:, :few].sum(axis=1) for _ in range(_DRAWN // _AT_ONCE))
    return float((sum(np.sum(np.abs(sums) >= enough) for sums in drawn) + 1) / (_DRAWN + 1))


def welch_p(base: Interval, new: Interval, least_errors: tuple[float, float] = (0.0, 0.0)) -> float | None:
    """The two-sided p of Welch's t test of two means, from their intervals; None where one is of a single repetition.

    Welch 1947, "The generalization of 'Student's' problem when several different population variances are involved".
    Standard errors are at least the `least_errors`, known from elsewhere.
    """
    if base.standard_error is None or new.standard_error is None:
        return None
    first, second = max(base.standard_error, least_errors[0]) ** 2, max(new.standard_error, least_errors[1]) ** 2
    apart = abs(new.mean - base.mean)
    if first + second == 0:
        return 1.0 if apart == 0 else 0.0
    degrees = (first + second) ** 2 / (first**2 / (base.n - 1) + second**2 / (new.n - 1))
    from scipy.stats import t  # noqa: PLC0415 - half a second that only results need

    return float(2 * t.sf(apart / sqrt(first + second), degrees))


def smallest_p(base: int, new: int) -> float:
    """The smallest p that the permutation test of samples of these sizes can have, however far apart they are."""
    arrangements = comb(base + new, min(base, new))
    return 2 / arrangements if arrangements <= _ENUMERATED else 1 / (_DRAWN + 1)


def repetitions_needed(tests: int) -> int | None:
    """Repetitions on either side with which a permutation test can be significant among so many; None for too many."""
    return next((n for n in range(FEWEST, 20) if smallest_p(n, n) * max(tests, 1) <= ALPHA), None)


def holm(ps: Sequence[float]) -> list[float]:
    """The p values corrected for their number, in the same order (Holm 1979, "A simple sequentially rejective multiple
    test procedure"): if none of what is tested differs, any of them is 5 % or less in at most 5 % of cases, however
    they depend on each other.
    """
    corrected = [0.0] * len(ps)
    highest = 0.0
    for done, place in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - done) * ps[place]))
        corrected[place] = highest
    return corrected


@lru_cache(maxsize=4)
def _arrangements(among: int, few: int) -> "NDArray[np.intp]":
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

    flat = np.fromiter(chain.from_iterable(combinations(range(among), few)), dtype=np.intp)
    return flat.reshape(-1, few)
