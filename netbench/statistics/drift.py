"""Whether a UUT stayed the same over a campaign: drift, differences between its boots, first trials unlike the others.

All of it is of residuals: by how much a trial forwarded more than its cell on average, as a part of that. Those of
different cells can be looked at together. A UUT that forwards whatever it is offered says nothing of its speed, so only
cells count in which it does not, unless there are no others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import sqrt
from statistics import fmean
from typing import TYPE_CHECKING

from netbench.model.trial import TrialResult
from netbench.statistics.counted import THROUGHPUT_FPS
from netbench.statistics.groups import Group, grouped
from netbench.statistics.significance import ALPHA, holm
from netbench.statistics.trend import Series, trend, trend_over_boots

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

LEAST_DRIFT = 0.01  # of the throughput: what is less is told, but nobody is warned of it
FEWEST_BOOTS = 5  # of fewer, no order is rarer than 5 % of all orders
_KEEPS_UP = 0.99  # of the intended load: a cell that forwards more is not limited by its UUT
_FIRST = 3  # how many trials of a boot may be its first ones
_LONG = 200  # trials of a boot
_DRAWN = 999
_MANY, _DRAWN_OF_MANY = 10_000, 99  # trials: of more, fewer orders are drawn, for time and memory
_SEED = 1  # the same data has the same p


class Points(Enum):
    """What is compared along time. The value is what people read."""

    BOOTS = "boots"
    TRIALS = "trials of the same boot"


@dataclass(frozen=True, slots=True)
class Residual:
    """A trial and its throughput ÷ the mean of its cell − 1; `apart_s` is from the mean time of its cell's trials.

    `place` is which trial of its boot it is, from 1; `limited`: whether its UUT forwarded less than was intended in its
    cell.
    """

    trial: TrialResult
    cell: int
    relative: float
    apart_s: float
    place: int
    limited: bool


class _Tested:
    """What a test found; `corrected` is its p with all UUTs of the campaign considered."""

    __slots__ = ()
    corrected: float | None

    @property
    def _size(self) -> float | None:
        """How large it is, as a part of the throughput; None where that is unknown."""
        raise NotImplementedError

    @property
    def significant(self) -> bool:
        """Whether it is more than chance would do in one of twenty steady campaigns."""
        return self.corrected is not None and self.corrected <= ALPHA

    @property
    def is_large(self) -> bool:
        """Whether it is significant, and large enough to be warned of."""
        return self.significant and self._size is not None and abs(self._size) >= LEAST_DRIFT


@dataclass(frozen=True, slots=True)
class Drift(_Tested):
    """By how much the throughput of a UUT changed from its first trial to its last, as a part of it.

    The change is None where it is unknown, and `unknown` says why; its 95 % interval likewise.
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
    def excluded(self) -> float | None:
        """A drift above this can be excluded; None where the interval is unknown."""
        return None if self.low is None or self.high is None else max(abs(self.low), abs(self.high))


@dataclass(frozen=True, slots=True)
class BootEffect:
    """A boot, when its first trial was (CLOCK_REALTIME), and its mean residual over so many trials."""

    number: int
    started_ns: int
    mean: float
    trials: int


@dataclass(frozen=True, slots=True)
class BootEffects(_Tested):
    """Whether boots of a UUT differ by more than trials within them do: standard deviations of both, as ratios.

    `between` is what is left of the scatter of boots when that of trials is taken out.
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
        """The two boots, one after the other, that differ most."""
        pairs = zip(self.boots, self.boots[1:], strict=False)
        return max(pairs, key=lambda pair: abs(pair[1].mean - pair[0].mean))


@dataclass(frozen=True, slots=True)
class FirstTrials(_Tested):
    """By how much the first `trials` of each boot forwarded more than those after them, of all numbers up to three the
    one that stands out most.
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
    """What is known of how steady a UUT was; residuals are in the order of time."""

    uut: str
    residuals: tuple[Residual, ...]
    drift: Drift
    boots: BootEffects | None = None
    first: FirstTrials | None = None

    @property
    def below_saturation(self) -> bool:
        """Whether it forwarded what it was offered in every cell, so that only that can be told of it."""
        return not any(one.limited for one in self.residuals)


def steadiness_of(groups: Iterable[Group]) -> tuple[Steadiness, ...]:
    """How steady each UUT was over a campaign, p values corrected for the number of UUTs (Holm)."""
    found = [_of_uut(uut, own) for uut, own in grouped(groups, lambda group: group.uut).items()]
    drifts = dict(_corrected((one.uut, one.drift.p) for one in found))
    boots = dict(_corrected((one.uut, one.boots.p if one.boots else None) for one in found))
    first = dict(_corrected((one.uut, one.first.p if one.first else None) for one in found))
    return tuple(
        replace(
            one,
            drift=replace(one.drift, corrected=drifts.get(one.uut)),
            boots=one.boots and replace(one.boots, corrected=boots.get(one.uut)),
            first=one.first and replace(one.first, corrected=first.get(one.uut)),
        )
        for one in found
    )


def _corrected(ps: Iterable[tuple[str, float | None]]) -> Iterator[tuple[str, float]]:
    known = [(uut, p) for uut, p in ps if p is not None]
    yield from zip((uut for uut, _ in known), holm([p for _, p in known]), strict=True)


def _of_uut(uut: str, groups: Sequence[Group]) -> Steadiness:
    every = _residuals(groups)
    telling = [one for one in every if one.limited] or every
    drift = _drift(telling)
    found = drift.change or 0.0
    # What drift alone makes of boots and of first trials is no difference of theirs.
    slope = found / drift.over_s if drift.p is not None and drift.p <= ALPHA and drift.over_s else 0.0
    level = [replace(one, relative=one.relative - slope * one.apart_s) for one in telling]
    return Steadiness(uut, every, drift, _boot_effects(level), _first_trials(level))


def _residuals(groups: Sequence[Group]) -> tuple[Residual, ...]:
    """Those of all valid trials of cells with two of them or more, in the order of time."""
    trials = sorted((one.trial for group in groups for one in group.everything), key=lambda one: one.started_ns)
    places = {id(one): place for own in grouped(trials, _boot).values() for place, one in enumerate(own, start=1)}
    found = []
    for cell, group in enumerate(groups):
        known = [(one.trial, fps) for one in group.valid if (fps := THROUGHPUT_FPS.read(one)) is not None]
        if len(known) < 2 or not any(fps for _, fps in known):
            continue
        mean = fmean(fps for _, fps in known)
        centre_ns = sum(trial.started_ns for trial, _ in known) // len(known)
        intended = group.intended_fps
        limited = intended is None or mean < _KEEPS_UP * intended
        found += [
            Residual(trial, cell, fps / mean - 1, (trial.started_ns - centre_ns) / 1e9, places[id(trial)], limited)
            for trial, fps in known
        ]
    return tuple(sorted(found, key=lambda one: one.trial.started_ns))


def _drift(residuals: Sequence[Residual]) -> Drift:
    """Over pairs of trials of the same cell: of different boots where there are enough, else of the same boot."""
    if not residuals:
        return Drift(0.0, Points.TRIALS, unknown="no cell has two valid trials")
    over_s = (residuals[-1].trial.started_ns - residuals[0].trial.started_ns) / 1e9
    over_boots = _over_boots(residuals)
    boots = {boot: place for place, boot in enumerate(grouped(over_boots, _boot_of))}
    if len(boots) >= FEWEST_BOOTS:
        points = Points.BOOTS
        series = [_series(own, boots) for own in grouped(over_boots, lambda one: one.cell).values()]
        found = trend_over_boots(series)
    else:
        points = Points.TRIALS
        same = grouped(residuals, lambda one: (one.cell, _boot_of(one))).values()
        series = [_series(own) for own in same if len(own) > 1]
        found = trend(series)
    alike = bool(series) and all(len(set(one.values)) == 1 for one in series)
    if found is None or (found.smallest_p > ALPHA and not alike):
        few = f"{len(boots)} boots: too few to tell drift from how boots differ, which takes {FEWEST_BOOTS}"
        return Drift(over_s, points, unknown=few if len(boots) > 1 else "too few repetitions")
    low, high = (None if slope is None else slope * over_s for slope in (found.low, found.high))
    return Drift(over_s, points, found.slope * over_s, low, high, found.p)


def _series(own: Sequence[Residual], boots: Mapping[int, int] | None = None) -> Series:
    numbers = [boots[_boot_of(one)] for one in own] if boots else []
    return Series([one.apart_s for one in own], _values(own), numbers)


def _over_boots(residuals: Sequence[Residual]) -> list[Residual]:
    """Those of cells that were measured on several boots."""
    cells = grouped(residuals, lambda one: one.cell).values()
    several = {own[0].cell for own in cells if len({_boot_of(one) for one in own}) > 1}
    return [one for one in residuals if one.cell in several]


def _boot_effects(residuals: Sequence[Residual]) -> BootEffects | None:
    """The analysis of variance of residuals by boots, its p by chance deciding within each cell which trial was on
    which boot (a permutation test, as `significance.permutation_p`); None for fewer than two boots, or nothing else
    to tell them apart by.
    """
    import numpy as np  # noqa: PLC0415 - what needs no test need not wait for it

    own = _over_boots(residuals)
    by_boot = grouped(own, _boot_of)
    cells = [np.array(places) for places in grouped(range(len(own)), lambda place: own[place].cell).values()]
    degrees = len(own) - len(cells) - len(by_boot) + 1
    if len(by_boot) < 2 or degrees < 1:
        return None
    values = np.array(_values(own))
    numbers = {boot: place for place, boot in enumerate(by_boot)}
    at = np.array([numbers[_boot_of(one)] for one in own])
    sizes = np.bincount(at).astype(float)
    chance = np.random.default_rng(_SEED)
    drawn = _DRAWN if len(own) <= _MANY else _DRAWN_OF_MANY
    sums = np.zeros((drawn, len(by_boot)))
    for places in cells:
        shuffled = chance.permuted(np.tile(values[places], (drawn, 1)), axis=1)
        if len(set(numbers_there := at[places].tolist())) == len(numbers_there):
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
    """Whether the first trials of boots stand out: p by chance deciding which of its trials a boot began with, for the
    number that stands out most.

    None without a boot of first trials and others. Of a boot whose trials are in no random order, cells that scatter
    more may come first: what is found then is a hint.
    """
    import numpy as np  # noqa: PLC0415 - as above

    by_boot = grouped(residuals, _boot_of).values()
    boots = [own for own in by_boot if 0 < sum(one.place <= _FIRST for one in own) < len(own)]
    if not boots:
        return None
    chance = np.random.default_rng(_SEED)
    numbers = range(1, _FIRST + 1)
    sums = np.zeros((_DRAWN + 1, _FIRST))  # of the first trials less the mean of their boot; what was measured at first
    counts = np.zeros(_FIRST)
    for own in boots:
        values = np.array(_values(own))
        values -= values.mean()
        drawn = np.vstack([values[:_FIRST], _begun_by_chance(values, chance)])
        for number in numbers:
            first = sum(one.place <= number for one in own)
            # Less the mean of the others of the boot.
            sums[:, number - 1] += drawn[:, :first].sum(axis=1) * len(own) / (len(own) - first)
            counts[number - 1] += first
    changes = sums / np.maximum(counts, 1)
    scatter = changes[1:].std(axis=0)
    standard = np.divide(np.abs(changes), scatter, out=np.zeros_like(changes), where=scatter > 0)
    most = standard.max(axis=1)
    p = (np.count_nonzero(most[1:] >= most[0] * (1 - 1e-9)) + 1) / (_DRAWN + 1)
    best = int(np.argmax(standard[0]))
    return FirstTrials(best + 1, float(changes[0, best]), float(p))


def _begun_by_chance(values: "NDArray[np.float64]", chance: "np.random.Generator") -> "NDArray[np.float64]":
    """What a boot with these values begins with where chance decides it: a row for each time that it does.

    Of a long boot the same value may come twice, which hardly ever happens.
    """
    import numpy as np  # noqa: PLC0415 - as above

    if len(values) > _LONG:
        return values[chance.integers(len(values), size=(_DRAWN, _FIRST))]
    return chance.permuted(np.tile(values, (_DRAWN, 1)), axis=1)[:, :_FIRST]


def _boot(trial: TrialResult) -> int:
    return trial.boot


def _boot_of(one: Residual) -> int:
    return one.trial.boot


def _values(residuals: Iterable[Residual]) -> list[float]:
    return [one.relative for one in residuals]
