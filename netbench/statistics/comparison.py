"""Campaigns compared: what changed from one to another, by how much, and whether that can be chance.

Cells are the measurements that both have, and of each UUT, scenario, number of sources and frame size the most
throughput over the loads that both have: below saturation whatever is offered comes out, and only that tells a slower
UUT.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import isclose, sqrt
from statistics import median, variance

from netbench.model.campaign import CampaignResults
from netbench.model.frame_mix import FrameMix, FrameSize, size_text
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import ReasonKind
from netbench.model.virtualisation import Setting
from netbench.statistics.counted import LOSS_RATIO, THROUGHPUT_FPS
from netbench.statistics.groups import Group, best_groups, group_trials, grouped
from netbench.statistics.interference import ratio_of_maxima
from netbench.statistics.intervals import (
    DifferenceOfMeans,
    RatioOfMeans,
    difference_of_intervals,
    ratio_of_intervals,
)
from netbench.statistics.limits import with_limits
from netbench.statistics.significance import ALPHA, FEWEST, Test, holm, permutation_p, smallest_p, welch_p
from netbench.statistics.totals import TrialTotals

# What is less than this is called no difference, whatever the p: repetitions of a campaign resemble each other more
# than two campaigns do, and what the tester itself adds to a rate is of this size.
LEAST_CHANGE = 0.001  # of the throughput
LEAST_DIFFERENCE = 0.0001  # of the frames offered


@dataclass(frozen=True, slots=True)
class Place:
    """What a cell is about; without a `load` the highest throughput at any."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize  # bytes with FCS
    load: Load | None

    @property
    def of_maximum(self) -> "Place":
        """The cell of the highest throughput that this load is one of."""
        return replace(self, load=None)

    def __str__(self) -> str:
        sources = f"{self.sources} source{'s' * (self.sources > 1)}"
        what = "highest throughput" if self.load is None else str(self.load)
        return f"{self.uut}, {self.scenario}, {sources}, {size_text(self.frame_size, ' bytes')}, {what}"


@dataclass(frozen=True)
class Campaign:
    """A campaign as it is compared: its groups, as reports have them, and the loads that were skipped as saturated."""

    name: str
    groups: tuple[Group, ...]
    skipped: frozenset[Place]
    settings: Mapping[str, Setting]

    @classmethod
    def of(cls, name: str, results: CampaignResults) -> "Campaign":
        """What a result directory says, under a name."""
        skipped = set()
        for one in results.ended_sweeps:
            with suppress(ValueError):  # a manifest that somebody edited: what cannot be read was not skipped
                loads = [Load.parse(load) for load in one.skipped_loads]
                skipped |= {Place(one.uut, one.scenario, len(one.streams), one.frame_size, load) for load in loads}
        return cls(name, group_trials(results), frozenset(skipped), results.settings)


@dataclass(frozen=True, slots=True)
class Tested:
    """The p of a difference, as found and corrected for how many were tested; None where it cannot be tested."""

    test: Test
    p: float | None
    corrected: float | None = None

    @property
    def significant(self) -> bool:
        """Whether it is more than chance would do in one of twenty comparisons of two equal campaigns."""
        return self.corrected is not None and self.corrected <= ALPHA


@dataclass(frozen=True, slots=True)
class Difference:
    """What changed in a cell. Of a maximum there is no loss, for the two may be at different loads."""

    place: Place
    base: Group
    new: Group
    throughput: RatioOfMeans
    throughput_test: Tested
    loss: DifferenceOfMeans | None
    loss_test: Tested | None

    @property
    def change(self) -> float | None:
        """Relative change of the throughput, where it is significant and not too small to mean anything.

        That asks for the corrected p and for an interval that leaves out "no change": nobody is told both.
        """
        change = self.throughput.change
        if change is None or abs(change) < LEAST_CHANGE or not self.throughput.significant:
            return None
        return change if self.throughput_test.significant else None

    @property
    def change_of_loss(self) -> float | None:
        """Change of the loss ratio, likewise."""
        if self.loss is None or self.loss_test is None or not self.loss_test.significant:
            return None
        least = max(self.loss.half_width or 0.0, LEAST_DIFFERENCE)
        return self.loss.difference if abs(self.loss.difference) >= least else None

    def is_regression(self, more_than: float) -> bool:
        """Whether it is slower by more than this part of the base's throughput, significantly."""
        return self.change is not None and -self.change > more_than

    @property
    def excluded(self) -> float | None:
        """A relative change of the throughput above this can be excluded; None where the interval is unknown."""
        low, high = self.throughput.change_low, self.throughput.change_high
        return None if low is None or high is None else max(abs(low), abs(high))


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell that is not compared, and why; `dead`: its UUT failed in the new campaign alone, in every trial."""

    place: Place
    why: str
    dead: bool = False

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True)
class Comparison:
    """A campaign against the base; the cells of the highest throughput come first."""

    base: Campaign
    new: Campaign
    differences: tuple[Difference, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def maxima(self) -> tuple[Difference, ...]:
        """The cells of the highest throughput."""
        return tuple(one for one in self.differences if one.place.load is None)

    @property
    def by_load(self) -> tuple[Difference, ...]:
        """The other cells."""
        return tuple(one for one in self.differences if one.place.load is not None)

    @property
    def slower(self) -> tuple[Difference, ...]:
        """Cells with significantly less throughput."""
        return tuple(one for one in self.differences if one.change is not None and one.change < 0)

    @property
    def faster(self) -> tuple[Difference, ...]:
        """Cells with significantly more."""
        return tuple(one for one in self.differences if one.change is not None and one.change > 0)


def compare(base: Campaign, others: Sequence[Campaign]) -> tuple[Comparison, ...]:
    """Each of the other campaigns against the base, the p values corrected for all cells of all of them together.

    Throughput and loss are corrected each for itself: a regression is one of throughput.
    """
    comparisons = [_untested(base, other) for other in others]
    pairs = [(number, one) for number, each in enumerate(comparisons) for one in each.differences]
    of_throughput = _tested([_Pair(number, one, of_loss=False) for number, one in pairs])
    of_loss = _tested([_Pair(number, one, of_loss=True) for number, one in pairs if one.loss is not None])
    return tuple(
        replace(
            comparison,
            differences=tuple(
                replace(one, throughput_test=of_throughput[id(one)], loss_test=of_loss.get(id(one)))
                for one in comparison.differences
            ),
        )
        for comparison in comparisons
    )


def number_of_tests(comparisons: Iterable[Comparison]) -> int:
    """How many p values of throughput were corrected for each other."""
    differences = (one for comparison in comparisons for one in comparison.differences)
    return sum(one.throughput_test.test in (Test.PERMUTATION, Test.WELCH) for one in differences)


def why_nothing_compares(comparison: Comparison) -> str:
    """What two campaigns without a common cell differ in, in words."""
    base, new = comparison.base, comparison.new
    for one in (base, new):
        if not any(group.valid for group in one.groups):
            return f"{one.name} has no valid trial"
    sides = [[place_of(group) for group in one.groups] for one in (base, new)]
    for words, read in _DIMENSIONS:
        here, there = (list(dict.fromkeys(map(read, side))) for side in sides)
        if not set(here) & set(there):
            return f"{words}: {_listed(here)} in {base.name}, {_listed(there)} in {new.name}"
    reasons = list(dict.fromkeys(f"{one.place.uut}: {one.why}" for one in comparison.left_out))
    return "; ".join(reasons[:_LISTED])


_LISTED = 5
_DIMENSIONS: tuple[tuple[str, Callable[[Place], str]], ...] = (
    ("they have no UUT in common", lambda place: place.uut),
    ("they have no scenario in common", lambda place: place.scenario),
    ("they have no number of sources in common", lambda place: str(place.sources)),
    ("they have no frame size in common", lambda place: _frames(place.frame_size)),
    ("their loads are in different units", lambda place: _unit(place.load)),
    ("they have no load in common", lambda place: str(place.load)),
)


def _frames(size: FrameSize) -> str:
    """What is compared: mixes of one name may be of other sequences."""
    return f"{size} ({size.in_letters})" if isinstance(size, FrameMix) else str(size)


def _unit(load: Load | None) -> str:
    return "" if load is None else load.kind.value


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def place_of(group: Group) -> Place:
    """The cell of a group."""
    return Place(group.uut, group.scenario, group.sources, group.frame_size, group.load.as_asked)


def maxima_over(groups: Iterable[Group], loads: Collection[Place]) -> dict[Place, Group]:
    """The groups with the highest throughput over these cells of loads, by the cell of the maximum."""
    best = best_groups(with_limits(group for group in groups if place_of(group) in loads))
    return {place_of(group).of_maximum: group for group in best}


_Named = tuple[str, Mapping[str, Setting]]
_NOT_YET = Tested(Test.NONE, None)
_NO_MAXIMUM = "in one of the two less than two thirds of the trials of any common load were valid at the first attempt"


def _untested(base: Campaign, new: Campaign) -> Comparison:
    of_base, of_new = ({place_of(group): group for group in one.groups} for one in (base, new))
    emulated = of_different_emulation((base.name, base.settings), (new.name, new.settings))
    places = {one for one in of_base.keys() | base.skipped if one in of_new or one in new.skipped}
    others = {one: _other_rate(of_base[one], of_new[one]) for one in places if one in of_base and one in of_new}
    common = {one for one in places if one.uut not in emulated and not others.get(one)}
    left_out = []
    found = []
    for place in (*of_base, *(one for one in of_new if one not in of_base)):
        if place.uut in emulated:
            left_out.append(LeftOut(place, emulated[place.uut]))
        elif place in common and place in of_base and place in of_new:
            difference = _at_load(place, of_base[place], of_new[place])
            if isinstance(difference, LeftOut):
                left_out.append(difference)
            else:
                found.append(difference)
        elif place in places:
            left_out.append(LeftOut(place, others.get(place) or "skipped as saturated in one of the two"))
        else:
            left_out.append(LeftOut(place, f"only in {base.name if place in of_base else new.name}"))
    maxima = tuple(_maxima(base, new, common))
    without = dict.fromkeys(one.place.of_maximum for one in found)
    for one in maxima:
        without.pop(one.place)
    left_out += [LeftOut(place, _NO_MAXIMUM) for place in without]
    return Comparison(base, new, (*maxima, *found), tuple(left_out))


def of_different_emulation(base: _Named, new: _Named) -> dict[str, str]:
    """UUTs of which one CPU more is emulated on one side, and what is said of that: figures of such do not compare.

    A side is a campaign's name and where its UUTs ran.
    """
    (base_name, before), (new_name, after) = base, new
    return {
        uut: f"{_lower(setting)} in {base_name}; {_lower(after[uut])} in {new_name}"
        for uut, setting in before.items()
        if uut in after and setting.emulators != after[uut].emulators
    }


def _lower(setting: Setting) -> str:
    text = str(setting)
    return text[0].lower() + text[1:]


def _other_rate(base: Group, new: Group) -> str:
    """What is to be said where the same words mean another rate, as a share of another line rate does.

    A share of the maximum is meant to be another rate where the UUT forwards more, or less.
    """
    if base.load.kind is LoadKind.OF_MAXIMUM:
        return ""
    before, after = base.intended_fps, new.intended_fps
    if before is None or after is None or isclose(before, after, rel_tol=1e-6):
        return ""
    return f"means {before:,.0f} frames/s in one and {after:,.0f} in the other"


def _at_load(place: Place, base: Group, new: Group) -> Difference | LeftOut:
    before, after = base.throughput_fps, new.throughput_fps
    if before is not None and after is None and all(map(_failed, new.everything)):
        return LeftOut(place, "its UUT failed in the new campaign", dead=True)
    if before is None or after is None:
        which = "either" if before is after else "the base" if before is None else "the new campaign"
        return LeftOut(place, f"no valid trial in {which}")
    losses = base.loss_ratio, new.loss_ratio
    loss = None if losses[0] is None or losses[1] is None else difference_of_intervals(losses[1], losses[0])
    return Difference(place, base, new, ratio_of_intervals(after, before), _NOT_YET, loss, None)


def _failed(one: TrialTotals) -> bool:
    return ReasonKind.UUT_FAILED in (reason.kind for reason in one.trial.reasons)


def _maxima(base: Campaign, new: Campaign, common: Collection[Place]) -> Iterable[Difference]:
    of_base, of_new = maxima_over(base.groups, common), maxima_over(new.groups, common)
    uncounted = [{place_of(one) for one in campaign.groups if not one.counts_as_maximum} for campaign in (base, new)]
    for place, best in of_base.items():
        other = of_new.get(place)
        before, after = best.throughput_fps, None if other is None else other.throughput_fps
        if other is None or before is None or after is None:
            continue
        ratio = ratio_of_maxima(
            after,
            before,
            base_load_counts=place_of(best) not in uncounted[1],
            new_load_counts=place_of(other) not in uncounted[0],
            base_is_limit=not best.limited_by,
            new_is_limit=not other.limited_by,
        )
        yield Difference(place, best, other, ratio, _NOT_YET, None, None)


class _Pair:
    """The repetitions of a cell on either side: their throughputs, or their loss ratios.

    `comparison` is the number of the one that it is from.
    """

    def __init__(self, comparison: int, difference: Difference, *, of_loss: bool) -> None:
        read = LOSS_RATIO if of_loss else THROUGHPUT_FPS
        self.difference = difference
        # What is expected to scatter alike.
        self.family = (comparison, difference.place.uut, difference.place.scenario)
        self.testable = of_loss or difference.throughput.change is not None
        self.groups = (difference.base, difference.new)
        self.values = tuple(
            tuple(value for one in group.valid if (value := read.read(one)) is not None) for group in self.groups
        )
        self.intervals = tuple(read.over(group.valid) for group in self.groups)
        self.scales = (1.0, 1.0) if of_loss else tuple(one.mean if one else 0.0 for one in self.intervals)
        self.sizes = tuple(map(len, self.values))

    @property
    def alike(self) -> bool:
        """Whether all repetitions of both are the same, so that chance cannot make a difference of them."""
        return len({value for values in self.values for value in values}) == 1

    @property
    def relative_variance(self) -> float | None:
        """The mean of the variances of both, each in units of its mean; None where one cannot be known."""
        if min(self.sizes) < 2 or 0 in self.scales:
            return None
        pairs = zip(self.values, self.scales, strict=True)
        return sum(variance(values) / scale**2 for values, scale in pairs) / 2

    def tested(self, test: Test, usual: float) -> float | None:
        """The p by this test; `usual` is the relative variance of the cells of the same UUT."""
        if test is Test.PERMUTATION:
            return permutation_p(*self.values)
        (base, new), (n_base, n_new) = self.intervals, self.sizes
        if base is None or new is None:
            return None
        first, second = (scale * sqrt(usual / n) for scale, n in zip(self.scales, (n_base, n_new), strict=True))
        return welch_p(base, new, (first, second))


def _tested(pairs: Sequence[_Pair]) -> dict[int, Tested]:
    """Of each pair, by its difference, the p, found by the permutation test where that could be significant.

    Which test it is depends on the numbers of repetitions and of cells alone, not on what was measured. Cells whose
    repetitions are all the same on both sides are no tests: nothing could come of them.
    """
    testable = [one for one in pairs if min(one.sizes) >= FEWEST and one.testable]
    open_ones = [one for one in testable if not one.alike]
    usual = _usual_variances(open_ones)
    made: dict[int, Tested] = {id(one.difference): _NOT_YET for one in pairs}
    made |= {id(one.difference): Tested(Test.ALIKE, 1.0, 1.0) for one in testable if one.alike}
    tests = [Test.PERMUTATION if smallest_p(*one.sizes) * len(open_ones) <= ALPHA else Test.WELCH for one in open_ones]
    ps = [one.tested(test, usual[one.family]) for one, test in zip(open_ones, tests, strict=True)]
    known = [(one, test, p) for one, test, p in zip(open_ones, tests, ps, strict=True) if p is not None]
    corrected = holm([p for _, _, p in known])
    for (one, test, p), total in zip(known, corrected, strict=True):
        made[id(one.difference)] = Tested(test, p, total)
    return made


def _usual_variances(pairs: Sequence[_Pair]) -> dict[tuple[int, str, str], float]:
    """The median of the relative variances of the cells of each UUT and scenario.

    Two or three repetitions may well be alike by chance; taken for themselves, such would show any difference as
    significant.
    """
    found = {}
    for family, own in grouped(pairs, lambda one: one.family).items():
        known = [value for one in own if (value := one.relative_variance) is not None]
        found[family] = median(known) if known else 0.0
    return found
