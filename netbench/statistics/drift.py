"""Stability of a UUT over a campaign: drift, differences between its boots, and deviating first trials.

All of it is computed from residuals: the throughput of a trial ÷ the mean of its cell − 1. Residuals of different cells
can be combined. A UUT that forwards its whole offered load does not show its speed. Such cells count only if there are
no others.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING, TypeVar

from netbench.model.trial import TrialResult
from netbench.statistics.groups import Group, grouped
from netbench.statistics.significance import ALPHA, CorrectedResult, holm
from netbench.statistics.totals import THROUGHPUT_FPS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from netbench.statistics.trend import TimeSeries

LEAST_DRIFT = 0.01  # of the throughput: a smaller drift is reported without a warning
FEWEST_BOOTS = 5  # with fewer boots, no trend can reach p ≤ 5 %
_NOT_LIMITED_PART = 0.99  # of the intended load: a cell that forwards more is not limited by its UUT
_FIRST = 3  # the most trials of a boot that count as its first ones
_LONG = 200  # trials of a boot
_DRAWN = 999
_MANY, _DRAWN_OF_MANY = 10_000, 99  # trials: above this, fewer orders are drawn, to save time and memory
_SEED = 1  # the same data always gives the same p


class Points(Enum):
    """The points that are compared along time. Reports show the value."""

    BOOTS = "boots"
    TRIALS = "trials of the same boot"


@dataclass(frozen=True, slots=True)
class Residual:
    """A trial and its throughput ÷ the mean of its cell − 1.

    `apart_s` is its time since the mean time of its cell's trials. `place` is its number within its boot, from 1.
    `limited`: whether its UUT forwarded less than the intended load in this cell.
    """

    trial: TrialResult
    cell: int
    relative: float
    apart_s: float
    place: int
    limited: bool

    @property
    def boot(self) -> int:
        """The boot of the trial."""
        return self.trial.boot


class _Tested(CorrectedResult):
    """The result of a test; `corrected` is its p, corrected for the number of UUTs of the campaign."""

    __slots__ = ()

    @property
    def _size(self) -> float | None:
        """Its size as a part of the throughput; None if unknown."""
        raise NotImplementedError

    @property
    def is_large(self) -> bool:
        """Whether it is significant and large enough for a warning."""
        return self.significant and self._size is not None and abs(self._size) >= LEAST_DRIFT


@dataclass(frozen=True, slots=True)
class Drift(_Tested):
    """The relative change of the throughput of a UUT from its first trial to its last.

    The change and its 95 % interval are None if unknown; `unknown` is the reason.
    """

    over_s: float
    points: Points
    change: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    corrected: float | None = None
    unknown: str = ""

    @property
    def _size(self) -> float | None:
        return self.change

    @property
    def largest_change(self) -> float | None:
        """The largest drift that the interval still allows; None if the interval is unknown."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


@dataclass(frozen=True, slots=True)
class BootEffect:
    """A boot, the start of its first trial (CLOCK_REALTIME), and its mean residual over `trials` trials."""

    number: int
    started_ns: int
    mean: float
    trials: int


@dataclass(frozen=True, slots=True)
class BootEffects(_Tested):
    """Whether boots of a UUT differ by more than trials within them: standard deviations of both, as ratios.

    `between` is the scatter of boots without the contribution of the scatter of trials.
    """

    boots: tuple[BootEffect, ...]  # in the order of time
    between: float
    within: float
    p: float
    corrected: float | None = None

    @property
    def _size(self) -> float:
        return self.between

    @property
    def largest_step(self) -> tuple[BootEffect, BootEffect]:
        """The two consecutive boots that differ most."""
        pairs = zip(self.boots, self.boots[1:], strict=False)
        return max(pairs, key=lambda pair: abs(pair[1].mean - pair[0].mean))


@dataclass(frozen=True, slots=True)
class FirstTrials(_Tested):
    """The relative change of the throughput of the first `trials` of each boot compared with the later ones.

    `trials` is the number, up to three, for which the change stands out most.
    """

    trials: int
    change: float
    p: float
    corrected: float | None = None

    @property
    def _size(self) -> float:
        return self.change


@dataclass(frozen=True, slots=True)
class Steadiness:
    """The stability of a UUT; residuals are in the order of time."""

    uut: str
    residuals: tuple[Residual, ...]
    drift: Drift
    boots: BootEffects | None = None
    first: FirstTrials | None = None

    @property
    def below_saturation(self) -> bool:
        """Whether it forwarded its whole offered load in every cell, so that its speed was not measured."""
        return not any(residual.limited for residual in self.residuals)


def steadiness_of(groups: Iterable[Group]) -> tuple[Steadiness, ...]:
    """Return the stability of each UUT over a campaign, with p values corrected for the number of UUTs (Holm)."""
    results = [_of_uut(uut, uut_groups) for uut, uut_groups in grouped(groups, lambda group: group.uut).items()]
    drifts = _corrected([result.drift for result in results])
    boots = _corrected([result.boots for result in results])
    first = _corrected([result.first for result in results])
    tested = zip(results, drifts, boots, first, strict=True)
    return tuple(replace(result, drift=drift, boots=effects, first=trials) for result, drift, effects, trials in tested)


_AnyTested = TypeVar("_AnyTested", Drift, BootEffects | None, FirstTrials | None)


def _corrected(results: Sequence[_AnyTested]) -> list[_AnyTested]:
    """Return the results of one test of each UUT with their p values corrected for each other."""
    corrected = iter(holm([result.p for result in results if result is not None and result.p is not None]))
    return [
        result if result is None or result.p is None else replace(result, corrected=next(corrected))
        for result in results
    ]


def _of_uut(uut: str, groups: Sequence[Group]) -> Steadiness:
    all_residuals = _residuals(groups)
    limited = [residual for residual in all_residuals if residual.limited] or all_residuals
    drift = _drift(limited)
    change = drift.change or 0.0
    # Remove a significant drift before testing differences between boots and first trials.
    slope = change / drift.over_s if drift.p is not None and drift.p <= ALPHA and drift.over_s else 0.0
    level = [replace(residual, relative=residual.relative - slope * residual.apart_s) for residual in limited]
    return Steadiness(uut, all_residuals, drift, _boot_effects(level), _first_trials(level))


def _residuals(groups: Sequence[Group]) -> tuple[Residual, ...]:
    """Return the residuals of all valid trials of cells with at least two of them, in the order of time."""
    trials = sorted(
        (totals.trial for group in groups for totals in group.everything), key=lambda trial: trial.started_ns
    )
    places = {
        id(trial): place
        for boot_trials in grouped(trials, lambda trial: trial.boot).values()
        for place, trial in enumerate(boot_trials, start=1)
    }
    residuals = []
    for cell, group in enumerate(groups):
        known = [(totals.trial, fps) for totals in group.valid if (fps := THROUGHPUT_FPS.read(totals)) is not None]
        if len(known) < 2 or not any(fps for _, fps in known):
            continue
        mean = fmean(fps for _, fps in known)
        centre_ns = sum(trial.started_ns for trial, _ in known) // len(known)
        intended = group.intended_fps
        limited = intended is None or mean < _NOT_LIMITED_PART * intended
        residuals += [
            Residual(trial, cell, fps / mean - 1, (trial.started_ns - centre_ns) / 1e9, places[id(trial)], limited)
            for trial, fps in known
        ]
    return tuple(sorted(residuals, key=lambda residual: residual.trial.started_ns))


def _drift(residuals: Sequence[Residual]) -> Drift:
    """Return the drift: between boots if at least FEWEST_BOOTS exist, otherwise between trials of the same boot."""
    from netbench.statistics.trend import trend, trend_over_boots  # noqa: PLC0415 - loads numpy

    if not residuals:
        return Drift(0.0, Points.TRIALS, unknown="no cell has two valid trials")
    over_s = (residuals[-1].trial.started_ns - residuals[0].trial.started_ns) / 1e9
    over_boots = _over_boots(residuals)
    boots = {boot: place for place, boot in enumerate(grouped(over_boots, lambda residual: residual.boot))}
    if len(boots) >= FEWEST_BOOTS:
        points = Points.BOOTS
        series = [_series(cell, boots) for cell in grouped(over_boots, lambda residual: residual.cell).values()]
        overall = trend_over_boots(series)
    else:
        points = Points.TRIALS
        same = grouped(residuals, lambda residual: (residual.cell, residual.boot)).values()
        series = [_series(same_boot) for same_boot in same if len(same_boot) > 1]
        overall = trend(series)
    alike = bool(series) and all(len(set(cell_series.values)) == 1 for cell_series in series)
    if overall is None or (overall.smallest_p > ALPHA and not alike):
        few = f"{len(boots)} boots: too few to separate drift from differences between boots ({FEWEST_BOOTS} needed)"
        return Drift(over_s, points, unknown=few if len(boots) > 1 else "too few repetitions")
    low, high = (None if slope is None else slope * over_s for slope in (overall.low, overall.high))
    return Drift(over_s, points, overall.slope * over_s, low, high, overall.p)


def _series(own: Sequence[Residual], boots: Mapping[int, int] | None = None) -> "TimeSeries":
    from netbench.statistics.trend import TimeSeries  # noqa: PLC0415 - as above

    numbers = [boots[residual.boot] for residual in own] if boots else []
    return TimeSeries([residual.apart_s for residual in own], _values(own), numbers)


def _over_boots(residuals: Sequence[Residual]) -> list[Residual]:
    """Return the residuals of cells that were measured on several boots."""
    cells = grouped(residuals, lambda residual: residual.cell).values()
    several = {cell[0].cell for cell in cells if len({residual.boot for residual in cell}) > 1}
    return [residual for residual in residuals if residual.cell in several]


def _boot_effects(residuals: Sequence[Residual]) -> BootEffects | None:
    """Return the analysis of variance of residuals by boots.

    Its p is from a permutation test: within each cell, trials are assigned to boots at random, which
    scipy.stats.permutation_test cannot do. None for fewer than two boots, or without degrees of freedom to tell them
    apart.
    """
    import numpy as np  # noqa: PLC0415 - loaded only for a test

    own = _over_boots(residuals)
    by_boot = grouped(own, lambda residual: residual.boot)
    cells = [np.array(places) for places in grouped(range(len(own)), lambda place: own[place].cell).values()]
    degrees = len(own) - len(cells) - len(by_boot) + 1
    if len(by_boot) < 2 or degrees < 1:
        return None
    values = np.array(_values(own))
    numbers = {boot: place for place, boot in enumerate(by_boot)}
    at = np.array([numbers[residual.boot] for residual in own])
    sizes = np.bincount(at).astype(float)
    chance = np.random.default_rng(_SEED)
    drawn = _DRAWN if len(own) <= _MANY else _DRAWN_OF_MANY
    sums = np.zeros((drawn, len(by_boot)))
    for places in cells:
        shuffled = chance.permuted(np.tile(values[places], (drawn, 1)), axis=1)
        if len(set(cell_boots := at[places].tolist())) == len(cell_boots):
            sums[:, at[places]] += shuffled
        else:
            np.add.at(sums.T, at[places], shuffled.T)
    observed = np.bincount(at, values)
    effect, by_chance = float(np.sum(observed**2 / sizes)), np.sum(sums**2 / sizes, axis=1)
    p = (np.count_nonzero(by_chance >= effect * (1 - 1e-9)) + 1) / (drawn + 1)
    within = max(0.0, float(np.sum((values - (observed / sizes)[at]) ** 2))) / degrees
    usual = (len(own) - float(np.sum(sizes**2)) / len(own)) / (len(by_boot) - 1)
    between = max(0.0, effect / (len(by_boot) - 1) - within) / usual
    boots = [
        BootEffect(boot, trials[0].trial.started_ns, fmean(_values(trials)), len(trials))
        for boot, trials in by_boot.items()
    ]
    return BootEffects(tuple(boots), sqrt(between), sqrt(within), float(p))


def _first_trials(residuals: Sequence[Residual]) -> FirstTrials | None:
    """Return by how much the first trials of boots stand out, for the number of trials that stands out most.

    Its p is from a permutation test that draws the first trials of each boot at random. None without a boot that has
    both first and later trials. If the trials of a boot are not in random order, cells that scatter more may come
    first, and the result is only a hint.
    """
    import numpy as np  # noqa: PLC0415 - as above

    by_boot = grouped(residuals, lambda residual: residual.boot).values()
    boots = [boot for boot in by_boot if 0 < sum(residual.place <= _FIRST for residual in boot) < len(boot)]
    if not boots:
        return None
    chance = np.random.default_rng(_SEED)
    numbers = range(1, _FIRST + 1)
    sums = np.zeros((_DRAWN + 1, _FIRST))  # first trials − mean of their boot; row 0: as measured
    counts = np.zeros(_FIRST)
    for boot in boots:
        values = np.array(_values(boot))
        values -= values.mean()
        drawn = np.vstack([values[:_FIRST], _begun_by_chance(values, chance)])
        for number in numbers:
            first = sum(residual.place <= number for residual in boot)
            # Relative to the mean of the other trials of the boot.
            sums[:, number - 1] += drawn[:, :first].sum(axis=1) * len(boot) / (len(boot) - first)
            counts[number - 1] += first
    changes = sums / np.maximum(counts, 1)
    scatter = changes[1:].std(axis=0)
    standard = np.divide(np.abs(changes), scatter, out=np.zeros_like(changes), where=scatter > 0)
    most = standard.max(axis=1)
    p = (np.count_nonzero(most[1:] >= most[0] * (1 - 1e-9)) + 1) / (_DRAWN + 1)
    best = int(np.argmax(standard[0]))
    return FirstTrials(best + 1, float(changes[0, best]), float(p))


def _begun_by_chance(values: "NDArray[np.float64]", chance: "np.random.Generator") -> "NDArray[np.float64]":
    """Return the first values of a boot with these values in random order, one row per draw.

    For a long boot, a row may contain the same value twice, which is rare.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if len(values) > _LONG:
        return values[chance.integers(len(values), size=(_DRAWN, _FIRST))]
    return chance.permuted(np.tile(values, (_DRAWN, 1)), axis=1)[:, :_FIRST]


def _values(residuals: Iterable[Residual]) -> list[float]:
    return [residual.relative for residual in residuals]
