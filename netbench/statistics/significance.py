"""Whether two samples differ: a permutation test, Welch's for few repetitions, Holm's correction for many tests."""

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import combinations, islice
from math import comb, fsum, sqrt
from typing import TYPE_CHECKING

from netbench.statistics.intervals import Interval

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05  # what CONFIDENCE leaves
FEWEST = 3  # repetitions; of two, which are alike by chance too often, no test is right for UUTs that have two modes
_ENUMERATED = 200_000  # arrangements: all of ten and ten repetitions
_DRAWN = 50_000  # of more, so many are drawn
_AT_ONCE, _NUMBERS_AT_ONCE = 10_000, 1_000_000  # so that they fit into memory
_SEED = 1  # the same data has the same p
_ROUNDING = 1e-9  # of the largest sum: sums in another order differ by less


class Test(Enum):
    """How a p value was found. The value is what people read."""

    PERMUTATION = "permutation"
    WELCH = "Welch's t"
    PAIRED = "paired t"
    ALIKE = "all alike"
    NONE = "none"

    __test__ = False  # not a test class, whatever pytest reads into its name


def permutation_p(base: Sequence[float], new: Sequence[float]) -> float:
    """How often the means of two samples are at least as far apart when it is left to chance which value is whose.

    Two-sided; every arrangement is tried, or 50,000 drawn where there are more than 200,000 (Fisher 1935, "The Design
    of Experiments", section 21; of drawn ones p = (b + 1) ÷ (m + 1), Phipson and Smyth 2010, "Permutation p-values
    should never be zero"). It asks nothing of the distribution but that repetitions can be exchanged.
    """
    (found,) = permutation_ps([(base, new)])
    return found


def permutation_ps(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> list[float]:
    """The p of each pair of samples, as `permutation_p` has it; pairs of equal sizes share the arrangements."""
    found = [0.0] * len(pairs)
    by_sizes: dict[tuple[int, int], list[int]] = {}
    for place, (base, new) in enumerate(pairs):
        by_sizes.setdefault((len(base), len(new)), []).append(place)
    for (n_base, n_new), places in by_sizes.items():
        for place, p in zip(places, _of_equal_sizes([pairs[one] for one in places], n_base, n_new), strict=True):
            found[place] = p
    return found


def _of_equal_sizes(
    pairs: Sequence[tuple[Sequence[float], Sequence[float]]], n_base: int, n_new: int
) -> Iterator[float]:
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

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
    yield from (float(one) for one in beyond / total)


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


def paired_p(differences: Sequence[float]) -> float | None:
    """The two-sided p of Student's t test of paired differences; None for fewer than two."""
    if len(differences) < 2:
        return None
    mean = fsum(differences) / len(differences)
    deviation = sqrt(fsum((one - mean) ** 2 for one in differences) / (len(differences) - 1))
    if not deviation:
        return 0.0 if mean else 1.0
    from scipy.stats import t  # noqa: PLC0415 - half a second that only results need

    return float(2 * t.sf(abs(mean) / deviation * sqrt(len(differences)), len(differences) - 1))


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


def _drawn(among: int, few: int, at_once: int) -> Iterator["NDArray[np.float64]"]:
    """Arrangements drawn by chance, some rows at a time: 1 where a value is in the smaller sample, else 0."""
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

    chance = np.random.default_rng(_SEED)
    for begin in range(0, _DRAWN, at_once):
        chosen = np.zeros((min(at_once, _DRAWN - begin), among))
        chosen[:, :few] = 1.0
        yield chance.permuted(chosen, axis=1)


def _arrangements(among: int, few: int, at_once: int) -> Iterator["NDArray[np.float64]"]:
    """All arrangements, likewise."""
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

    every = combinations(range(among), few)
    while rows := list(islice(every, at_once)):
        chosen = np.zeros((len(rows), among))
        np.put_along_axis(chosen, np.array(rows), 1.0, axis=1)
        yield chosen
