"""Comparison of campaigns: what changed, by how much, and whether chance can explain it.

A cell is a measurement that both campaigns contain, or the highest throughput of a UUT, scenario, number of sources and
frame size over their common loads. Only the highest throughput shows a slower UUT: below saturation every offered frame
is forwarded. A load is common if its rate in frames/s is equal. A share of a maximum is another rate in each campaign.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import Enum
from fnmatch import fnmatchcase
from math import fsum, hypot, isclose, sqrt
from statistics import fmean, median

from netbench.model.campaign import CampaignResults, NoiseFloor
from netbench.model.frame_mix import FrameMix, FrameSize, size_text
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning, ReasonKind, WarningKind
from netbench.model.virtualisation import Setting
from netbench.statistics.change_interval import (
    RUN_PART,
    SideMean,
    change_interval,
    deviation_of_noise_floor,
    difference_interval,
    units_of,
)
from netbench.statistics.counted import LOSS_RATIO, THROUGHPUT_FPS
from netbench.statistics.groups import Group, best_groups, group_trials, grouped
from netbench.statistics.interference import ratio_of_maxima
from netbench.statistics.intervals import (
    DifferenceOfMeans,
    RatioOfMeans,
    difference_of_intervals,
    known_interval,
    ratio_of_intervals,
)
from netbench.statistics.limits import with_limits, would_not_take_more
from netbench.statistics.significance import ALPHA, FEWEST, Test, holm, paired_p, permutation_ps, smallest_p, welch_p
from netbench.statistics.totals import TrialTotals

# Smaller differences are not reported for any p: repetitions within a campaign are more alike than two campaigns, and
# the error of the tester itself is of this size.
LEAST_CHANGE = 0.001  # of the throughput
LEAST_DIFFERENCE = 0.0001  # of the frames offered
# An offered load below this part of that in the other campaign explains a lower throughput.
_OFFERED_ALIKE = 0.99
# A UUT that forwards more than this part of its offered load hardly scatters.
_KEEPS_UP = 0.95
# A cell that lost more than this part of its trials because the tester was disturbed is inconclusive.
_MOST_DISTURBED = 1 / 3
# The 95 % half width, as a ratio, of the throughput between boots, if only one boot was measured; as for a single
# search.
SINGLE_BOOT = 0.1
# Warnings that the host had other work while a campaign was measured.
DISTURBING = (WarningKind.HOST_WAS_BUSY, WarningKind.OTHER_CAMPAIGN)


@dataclass(frozen=True, slots=True)
class ComparedCell:
    """The key of a cell; without a `load` it is the highest throughput at any load."""

    uut: str
    scenario: str
    sources: int
    frame_size: FrameSize  # bytes with FCS
    load: Load | None

    @property
    def of_maximum(self) -> "ComparedCell":
        """The cell of the highest throughput over the loads that include this one."""
        return replace(self, load=None)

    def __str__(self) -> str:
        sources = f"{self.sources} source{'s' * (self.sources > 1)}"
        what = "highest throughput" if self.load is None else str(self.load)
        return f"{self.uut}, {self.scenario}, {sources}, {size_text(self.frame_size, ' bytes')}, {what}"


@dataclass(frozen=True, slots=True)
class CellSelection:
    """Which cells are compared, by names or patterns with *; empty ones select all."""

    uuts: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    sizes: tuple[str, ...] = ()

    def includes(self, uut: str, scenario: str, frame_size: FrameSize) -> bool:
        """Return whether a measurement is selected."""
        values = (self.uuts, uut), (self.scenarios, scenario), (self.sizes, str(frame_size))
        return all(
            not patterns or any(fnmatchcase(value, pattern) for pattern in patterns) for patterns, value in values
        )


ALL_CELLS = CellSelection()


@dataclass(frozen=True)
class Campaign:
    """A campaign for a comparison: its groups, as in reports, and the loads that were skipped as saturated.

    `disturbances` are the warnings that the host had other work meanwhile. `noise_floor` is the half width, as a ratio,
    by which repeats of one fixed trial vary on its host; None if it was not measured.
    """

    name: str
    groups: tuple[Group, ...]
    skipped: frozenset[ComparedCell]
    settings: Mapping[str, Setting]
    disturbances: tuple[CampaignWarning, ...] = ()
    noise_floor: float | None = None
    complete: bool = True

    @classmethod
    def of(cls, name: str, results: CampaignResults, selection: CellSelection = ALL_CELLS) -> "Campaign":
        """Return the selected cells of the results of a campaign, with the name that messages use."""
        skipped = set()
        for sweep in results.ended_sweeps:
            with suppress(ValueError):  # edited manifest: an unreadable load was not skipped
                loads = [Load.parse(load) for load in sweep.skipped_loads]
                skipped |= {
                    ComparedCell(sweep.uut, sweep.scenario, len(sweep.streams), sweep.frame_size, load)
                    for load in loads
                }
        missing = results.planned_trials - len(results.trials) - results.skipped_trials
        return cls(
            name,
            tuple(
                group
                for group in group_trials(results)
                if selection.includes(group.uut, group.scenario, group.frame_size)
            ),
            frozenset(place for place in skipped if selection.includes(place.uut, place.scenario, place.frame_size)),
            results.settings,
            tuple(warning for warning in results.warnings if warning.kind in DISTURBING),
            half_width_of(results.noise_floor),
            complete=missing <= 0,
        )


def half_width_of(floor: NoiseFloor | None) -> float | None:
    """Return the noise floor as the ratio of a 95 % half width; None if it was not measured."""
    return None if floor is None else floor.half_width


@dataclass(frozen=True, slots=True)
class Tested:
    """The p of a difference, raw and corrected for the number of tests; None if it cannot be tested."""

    test: Test
    p: float | None
    corrected: float | None = None

    @property
    def significant(self) -> bool:
        """Whether chance causes such a difference in at most one of twenty comparisons of equal campaigns."""
        return self.corrected is not None and self.corrected <= ALPHA


@dataclass(frozen=True, slots=True)
class Difference:
    """The change of a cell. A maximum has no `loss`, because the two may be at different loads.

    The interval of `throughput` covers the variation between runs and is corrected for `tests` cells. It was computed
    from `sides`, the base first. `doubt` is the reason why a difference would not be due to the UUT; usually empty.
    """

    place: ComparedCell
    base: Group
    new: Group
    throughput: RatioOfMeans
    throughput_test: Tested
    loss: DifferenceOfMeans | None
    loss_test: Tested | None
    doubt: str = ""
    sides: tuple[SideMean, SideMean] | None = None
    tests: int = 1
    samples: tuple[Group, Group] | None = None  # the trials that are averaged, if these are of several loads

    @property
    def change(self) -> float | None:
        """Relative change of the throughput; None unless it is significant and at least LEAST_CHANGE.

        It is significant if the corrected p is, the interval excludes "no change", and no campaign was disturbed.
        """
        change = self.throughput.change
        if self.doubt or change is None or abs(change) < LEAST_CHANGE or not self.throughput.significant:
            return None
        return change if self.throughput_test.significant else None

    @property
    def change_of_loss(self) -> float | None:
        """Change of the loss ratio; None unless it is significant and at least LEAST_DIFFERENCE."""
        if self.doubt or self.loss is None or self.loss_test is None or not self.loss_test.significant:
            return None
        least = max(self.loss.half_width or 0.0, LEAST_DIFFERENCE)
        return self.loss.difference if abs(self.loss.difference) >= least else None

    @property
    def excluded(self) -> float | None:
        """The relative change of the throughput above which any can be excluded; None if the interval is unknown."""
        low, high = self.throughput.change_low, self.throughput.change_high
        return None if low is None or high is None else max(abs(low), abs(high))

    @property
    def is_on_one_boot(self) -> bool:
        """Whether all trials of either campaign were on one boot, so that the variation between boots is unknown."""
        return any(map(_is_on_one_boot, self.samples or (self.base, self.new)))


class Absence(Enum):
    """Why a cell is not compared. Exports contain the value."""

    ONE_SIDE = "one-side"  # only one of the campaigns measured it
    UNFINISHED = "unfinished"  # only one measured it, and the other one is not finished
    OTHER_LOAD = "other-load"  # its load has another rate in each campaign, or only the source was the limit
    INVALID = "invalid"  # too few of its trials are valid on one side
    EMULATION = "emulation"  # the CPU of its UUT is emulated on one side
    DEAD = "uut-failed"  # its UUT failed in every trial of the new campaign, but not in the base


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A cell that is not compared, with the reason as text and as a kind."""

    place: ComparedCell
    why: str
    kind: Absence = Absence.OTHER_LOAD

    @property
    def dead(self) -> bool:
        """Whether its UUT failed in the new campaign alone."""
        return self.kind is Absence.DEAD

    def __str__(self) -> str:
        return f"{self.place}: {self.why}"


@dataclass(frozen=True)
class Comparison:
    """A campaign against the base; the cells of the highest throughput come first."""

    base: Campaign
    new: Campaign
    differences: tuple[Difference, ...]
    left_out: tuple[LeftOut, ...]
    doubt: str = ""  # which campaign was disturbed, as text

    @property
    def maxima(self) -> tuple[Difference, ...]:
        """The cells of the highest throughput."""
        return tuple(cell for cell in self.differences if cell.place.load is None)

    @property
    def by_load(self) -> tuple[Difference, ...]:
        """The other cells."""
        return tuple(cell for cell in self.differences if cell.place.load is not None)

    @property
    def slower(self) -> tuple[Difference, ...]:
        """Cells with significantly less throughput."""
        return tuple(cell for cell in self.differences if cell.change is not None and cell.change < 0)

    @property
    def faster(self) -> tuple[Difference, ...]:
        """Cells with significantly more throughput."""
        return tuple(cell for cell in self.differences if cell.change is not None and cell.change > 0)


def compare(
    base: Campaign, others: Sequence[Campaign], *, accept_disturbed: bool = False, in_turn: bool = False
) -> tuple[Comparison, ...]:
    """Return the comparison of each other campaign with the base; intervals and p values are corrected for all cells.

    Throughput and loss are corrected separately: a regression is one of throughput. Cells of disturbed campaigns are in
    doubt, unless `accept_disturbed`. If both sides were measured `in_turn` in one campaign, equal repetitions of both
    are compared in pairs, and there is no variation between runs.
    """
    comparisons = [_untested(base, campaign, accept_disturbed=accept_disturbed) for campaign in others]
    pairs = [(number, cell) for number, comparison in enumerate(comparisons) for cell in comparison.differences]
    throughputs = [_Pair(number, cell, of_loss=False, in_turn=in_turn) for number, cell in pairs]
    of_throughput = _tested(throughputs)
    losses = [_Pair(number, cell, of_loss=True) for number, cell in pairs if cell.loss is not None]
    of_loss = _tested(losses)
    loss_tests = max(1, sum(tested.test in _TESTS for tested in of_loss.values()))
    loss_intervals = {id(pair.difference): pair.loss(0.0 if in_turn else RUN_PART, loss_tests) for pair in losses}
    tests = sum(tested.test in _TESTS for tested in of_throughput.values())
    usual = _usual_variances(throughputs)
    floors = [(base.noise_floor, campaign.noise_floor) for campaign in others]
    with_intervals = {
        id(pair.difference): pair.with_interval(
            sqrt(usual[pair.family]), None if in_turn else floors[pair.comparison], max(tests, 1)
        )
        for pair in throughputs
    }
    return tuple(
        replace(
            comparison,
            differences=tuple(
                replace(
                    with_intervals[id(cell)],
                    throughput_test=of_throughput[id(cell)],
                    loss=loss_intervals.get(id(cell)),
                    loss_test=of_loss.get(id(cell)),
                )
                for cell in comparison.differences
            ),
        )
        for comparison in comparisons
    )


def number_of_tests(comparisons: Iterable[Comparison]) -> int:
    """Return how many p values of throughput were corrected for each other."""
    differences = (difference for comparison in comparisons for difference in comparison.differences)
    return sum(difference.throughput_test.test in _TESTS for difference in differences)


def why_nothing_compares(comparison: Comparison, *, is_selection: bool = False) -> str:
    """Return why two campaigns have no common cell, as text; `is_selection`: only some cells were selected."""
    base, new = comparison.base, comparison.new
    for campaign in (base, new):
        if not any(group.valid for group in campaign.groups):
            return f"{campaign.name} has no valid trial" + (" of the selected cells" if is_selection else "")
    sides = [[place_of(group) for group in campaign.groups] for campaign in (base, new)]
    for words, read in _DIMENSIONS:
        base_values, new_values = (list(dict.fromkeys(map(read, side))) for side in sides)
        if not set(base_values) & set(new_values):
            return f"{words}: {_listed(base_values)} in {base.name}, {_listed(new_values)} in {new.name}"
    reasons = list(dict.fromkeys(f"{cell.place.uut}: {cell.why}" for cell in comparison.left_out))
    return "; ".join(reasons[:_LISTED])


_TESTS = (Test.PERMUTATION, Test.WELCH, Test.PAIRED)
_LISTED = 5
_DIMENSIONS: tuple[tuple[str, Callable[[ComparedCell], str]], ...] = (
    ("they have no UUT in common", lambda place: place.uut),
    ("they have no scenario in common", lambda place: place.scenario),
    ("they have no number of sources in common", lambda place: str(place.sources)),
    ("they have no frame size in common", lambda place: _frames(place.frame_size)),
    ("their loads are in different units", lambda place: _unit(place.load)),
    ("they have no load in common", lambda place: str(place.load)),
)


def _frames(size: FrameSize) -> str:
    """Return a frame size as text, with the sequence of a mix: mixes of one name may have different sequences."""
    return f"{size} ({size.in_letters})" if isinstance(size, FrameMix) else str(size)


def _unit(load: Load | None) -> str:
    return "" if load is None else load.kind.value


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def place_of(group: Group) -> ComparedCell:
    """Return the key of the cell of a group."""
    return ComparedCell(group.uut, group.scenario, group.sources, group.frame_size, group.load.as_requested)


def maxima_over(groups: Iterable[Group], loads: Collection[ComparedCell]) -> dict[ComparedCell, Group]:
    """Return the groups with the highest throughput over these cells of loads, by the cell of the maximum."""
    best = best_groups(with_limits(group for group in groups if place_of(group) in loads))
    return {place_of(group).of_maximum: group for group in best}


_Named = tuple[str, Mapping[str, Setting]]
_NOT_YET = Tested(Test.NONE, None)
_NO_MAXIMUM = "in one of the two less than two thirds of the trials of any common load were valid at the first attempt"


def _untested(base: Campaign, new: Campaign, *, accept_disturbed: bool) -> Comparison:
    of_base, of_new = ({place_of(group): group for group in campaign.groups} for campaign in (base, new))
    emulated = of_different_emulation((base.name, base.settings), (new.name, new.settings))
    places = {place for place in of_base.keys() | base.skipped if place in of_new or place in new.skipped}
    others = {
        place: _other_rate(of_base[place], of_new[place]) for place in places if place in of_base and place in of_new
    }
    common = {place for place in places if place.uut not in emulated and not others.get(place)}
    disturbed = [] if accept_disturbed else [(campaign.name, campaign.disturbances) for campaign in (base, new)]
    doubt = doubt_of(*disturbed)
    left_out = []
    differences = []
    for place in (*of_base, *(added for added in of_new if added not in of_base)):
        if place.uut in emulated:
            left_out.append(LeftOut(place, emulated[place.uut], Absence.EMULATION))
        elif place in common and place in of_base and place in of_new:
            own = doubt or ("" if accept_disturbed else _disturbed_trials((base, of_base[place]), (new, of_new[place])))
            difference = _at_load(place, of_base[place], of_new[place], own)
            if isinstance(difference, LeftOut):
                left_out.append(difference)
            else:
                differences.append(difference)
        elif place in places:
            left_out.append(LeftOut(place, others.get(place) or "skipped as saturated in one of the two"))
        else:
            measured, missing = (base, new) if place in of_base else (new, base)
            left_out.append(_only_in(measured, missing, place))
    maxima = tuple(
        replace(
            maximum,
            doubt=doubt or ("" if accept_disturbed else _disturbed_trials((base, maximum.base), (new, maximum.new))),
        )
        for maximum in _maxima(base, new, common)
    )
    without = dict.fromkeys(difference.place.of_maximum for difference in differences)
    for maximum in maxima:
        without.pop(maximum.place, None)
    left_out += [LeftOut(place, _NO_MAXIMUM, Absence.INVALID) for place in without]
    return Comparison(base, new, (*maxima, *differences), tuple(left_out), doubt)


def _only_in(measured: Campaign, missing: Campaign, place: ComparedCell) -> LeftOut:
    if missing.complete:
        return LeftOut(place, f"only in {measured.name}", Absence.ONE_SIDE)
    return LeftOut(place, f"only in {measured.name}; {missing.name} is unfinished", Absence.UNFINISHED)


def _disturbed_trials(*sides: tuple[Campaign, Group]) -> str:
    """Return which side lost too many trials of a cell because the tester was disturbed, as text; empty for none."""
    for campaign, group in sides:
        kinds = ({reason.kind for reason in totals.trial.reasons} for totals in group.everything)
        number, total = sum(ReasonKind.TESTER_DISTURBED in trial_kinds for trial_kinds in kinds), len(group.everything)
        if number > _MOST_DISTURBED * total:
            return f"the tester was disturbed in {number} of {total} trials of {campaign.name}"
    return ""


def doubt_of(*sides: tuple[str, Iterable[CampaignWarning]]) -> str:
    """Return which campaigns were disturbed and by what, as text; empty for none. A side is a name and its warnings."""
    disturbed = [
        f"{name} was disturbed ({', '.join(kinds)})"
        for name, warnings in sides
        if (kinds := list(dict.fromkeys(warning.kind.value for warning in warnings if warning.kind in DISTURBING)))
    ]
    return "; ".join(disturbed)


def of_different_emulation(base: _Named, new: _Named) -> dict[str, str]:
    """Return a text for each UUT whose emulated CPUs differ between the sides, so that its figures are not comparable.

    A side is the name of a campaign and the settings in which its UUTs ran.
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
    """Return why a load of the same name has another rate in each campaign, as text; empty if the rates are equal."""
    before, after = base.intended_fps, new.intended_fps
    is_share = base.load.kind is LoadKind.OF_MAXIMUM
    if is_share and (before is None or after is None):
        return "the load is a share of a maximum that was not found in one of the two"
    if before is None or after is None or isclose(before, after, rel_tol=1e-6):
        return ""
    means = f"means {before:,.0f} frames/s in one and {after:,.0f} in the other"
    if is_share:
        return f"the load is a share of a maximum and {means}; measure with --loads-from to compare it"
    return means


def _at_load(place: ComparedCell, base: Group, new: Group, doubt: str) -> Difference | LeftOut:
    before, after = base.throughput_fps, new.throughput_fps
    if before is not None and after is None and all(map(_failed, new.everything)):
        return LeftOut(place, "its UUT failed in the new campaign", Absence.DEAD)
    if before is None or after is None:
        which = "either" if before is after else "the base" if before is None else "the new campaign"
        return LeftOut(place, f"no valid trial in {which}", Absence.INVALID)
    if why := _source_is_limit(base, new):
        return LeftOut(place, why)
    losses = base.loss_ratio, new.loss_ratio
    loss = None if losses[0] is None or losses[1] is None else difference_of_intervals(losses[1], losses[0])
    ratio = ratio_of_intervals(after, before)
    if _is_offered_less(new, base):
        ratio = replace(ratio, high=None, bound="≥")
    elif _is_offered_less(base, new):
        ratio = replace(ratio, low=_least(ratio, base, new), bound="≤")
    return Difference(place, base, new, ratio, _NOT_YET, loss, None, doubt)


def _source_is_limit(base: Group, new: Group) -> str:
    """Return why the source, not the UUT, limits the throughput at a load, as text; empty if it does not.

    A side that was offered less than the other and forwarded all of it could have forwarded more.
    """
    before, after = base.offered_fps, new.offered_fps
    if before is None or after is None:
        return ""
    limits = [would_not_take_more(group) for group in (base, new)]
    if base.load.kind is LoadKind.MAX and not all(limits):
        which = "either campaign" if not any(limits) else "the base" if limits[1] else "the new campaign"
        return f"the source was the limit in {which}, not the UUT"
    lower = 0 if before.mean < after.mean else 1
    apart = min(before.mean, after.mean) < _OFFERED_ALIKE * max(before.mean, after.mean)
    if apart and not limits[lower]:
        return f"the source offered {before.mean:,.0f} frames/s in the base and {after.mean:,.0f} in the new campaign"
    return ""


def _is_offered_less(one: Group, other: Group) -> bool:
    """Return whether the source limits `one`: it was offered less than `other` and forwarded it."""
    offered, offered_other = one.offered_fps, other.offered_fps
    if offered is None or offered_other is None or would_not_take_more(one):
        return False
    return offered.mean < (1 - LEAST_CHANGE) * offered_other.mean


def _least(ratio: RatioOfMeans, base: Group, new: Group) -> float | None:
    """Return the lower limit of a ratio whose base was offered less.

    With the offered load of the new campaign, the base would have forwarded at most all of it.
    """
    offered, offered_new = base.offered_fps, new.offered_fps
    if ratio.low is None or offered is None or offered_new is None or not offered_new.mean:
        return None
    return ratio.low * min(1.0, offered.mean / offered_new.mean)


def _failed(one: TrialTotals) -> bool:
    return ReasonKind.UUT_FAILED in (reason.kind for reason in one.trial.reasons)


def _maxima(base: Campaign, new: Campaign, common: Collection[ComparedCell]) -> Iterable[Difference]:
    of_base, of_new = maxima_over(base.groups, common), maxima_over(new.groups, common)
    uncounted = [
        {place_of(group) for group in campaign.groups if not group.counts_as_maximum} for campaign in (base, new)
    ]
    for place, best in of_base.items():
        new_best = of_new.get(place)
        before, after = best.maximum_of_run_fps, None if new_best is None else new_best.maximum_of_run_fps
        if new_best is None or before is None or after is None:
            continue
        ratio = ratio_of_maxima(
            after,
            before,
            base_load_counts=place_of(best) not in uncounted[1],
            new_load_counts=place_of(new_best) not in uncounted[0],
            base_is_limit=not best.limited_by,
            new_is_limit=not new_best.limited_by,
        )
        samples = (_on_plateau(best, base.groups), _on_plateau(new_best, new.groups))
        yield Difference(place, best, new_best, ratio, _NOT_YET, None, None, samples=samples)


def _on_plateau(best: Group, groups: Iterable[Group]) -> Group:
    """Return the maximum with the trials of all loads of its plateau."""
    loads = {load.as_requested for load in best.plateau.loads} if best.plateau else set()
    place = place_of(best).of_maximum
    same = (group for group in groups if group.load.as_requested in loads and place_of(group).of_maximum == place)
    valid = tuple(trial for group in same for trial in group.valid)
    return replace(best, valid=valid) if valid else best


class _Pair:
    """The units of replication of a cell on both sides: their throughputs, or their loss ratios.

    `comparison` is the index of its comparison.
    """

    def __init__(self, comparison: int, difference: Difference, *, of_loss: bool, in_turn: bool = False) -> None:
        read = LOSS_RATIO if of_loss else THROUGHPUT_FPS
        self.comparison = comparison
        self.difference = difference
        self.groups = difference.samples or (difference.base, difference.new)
        # Cells of a family scatter alike. A UUT that keeps up forwards its offered load without any scatter.
        limited = any(map(_falls_short, self.groups))
        self.family = (comparison, difference.place.uut, difference.place.scenario, limited)
        self.testable = of_loss or difference.throughput.change is not None
        self.ratios = _ratios(*self.groups) if in_turn else None
        self.values = tuple(units_of(group, read) for group in self.groups)
        self.intervals = tuple(
            read.over(group.valid) if len(values) == len(group.valid) else known_interval(values)
            for values, group in zip(self.values, self.groups, strict=True)
        )
        self.scales = (
            (1.0, 1.0) if of_loss else tuple(interval.mean if interval else 0.0 for interval in self.intervals)
        )
        self.sizes = tuple(map(len, self.values))

    def with_interval(self, usual: float, floors: tuple[float | None, float | None] | None, tests: int) -> Difference:
        """Return the difference with the interval of its change; `usual` is the relative deviation of its family.

        `floors` are the noise floors of the two campaigns; None if both sides were measured in turn in one campaign.
        """
        difference = self.difference
        if self.ratios is not None and difference.throughput.change is not None:
            return self._with_paired_interval(self.ratios, tests)
        runs: tuple[float | None, float | None] = (None, None)
        if floors is not None:
            # If all intended frames are forwarded, the clock of the source decides the throughput.
            is_limited = any(map(_is_limit_shown, (difference.base, difference.new)))
            floor_widths = (
                max(floor or 0.0, SINGLE_BOOT if _is_on_one_boot(group) else 0.0) if is_limited else 0.0
                for group, floor in zip(self.groups, floors, strict=True)
            )
            base, new = map(deviation_of_noise_floor, floor_widths)
            runs = base, new
        sides = tuple(
            self._side(values, group, usual, run)
            for values, group, run in zip(self.values, self.groups, runs, strict=True)
            if values
        )
        if len(sides) < 2 or difference.throughput.change is None:
            return difference
        before, after = sides
        return self._with_sides(before, after, tests)

    def loss(self, run_part: float, tests: int) -> DifferenceOfMeans:
        """Return the difference of the loss ratios with its interval.

        `run_part` is the deviation between runs ÷ that between units.
        """
        sides = []
        for values, group in zip(self.values, self.groups, strict=True):
            own = _deviation(values) if len(values) > 1 else 0.0
            least = deviation_of_noise_floor(LOSS_RATIO.counting_half_width(group.valid))
            sides.append(SideMean(fmean(values), len(values), own, run_part * own, least))
        base, new = sides
        return difference_interval(new, base, tests)

    def _with_paired_interval(self, ratios: Sequence[float], tests: int) -> Difference:
        """Return the difference with an interval from the scatter of the ratios of repetitions.

        Variation that both sides have in common is not part of it.
        """
        mean, count = fmean(ratios), len(ratios)
        deviation = _deviation(ratios) if count > 1 else 0.0
        counted = [
            THROUGHPUT_FPS.counting_half_width(group.valid) / scale
            for group, scale in zip(self.groups, self.scales, strict=True)
            if scale
        ]
        least = deviation_of_noise_floor(hypot(*counted)) * mean
        return self._with_sides(SideMean(1.0, count, 0.0), SideMean(mean, count, deviation, 0.0, least), tests)

    def _with_sides(self, base: SideMean, new: SideMean, tests: int) -> Difference:
        difference = self.difference
        ratio = change_interval(new, base, tests)
        if difference.throughput.bound == "≤":
            low = None if difference.place.load is None else _least(ratio, difference.base, difference.new)
            ratio = replace(ratio, low=low, bound="≤")
        elif difference.throughput.bound == "≥":
            ratio = replace(ratio, high=None, bound="≥")
        return replace(difference, throughput=ratio, sides=(base, new), tests=tests)

    def _side(self, values: Sequence[float], group: Group, usual: float, run: float | None) -> SideMean:
        mean = fmean(values)
        own = _deviation(values) if len(values) > 1 else 0.0
        least = deviation_of_noise_floor(THROUGHPUT_FPS.counting_half_width(group.valid))
        of_unit = max(own, usual * mean)
        of_run = 0.0 if run is None else max(RUN_PART * of_unit, run * mean)
        return SideMean(mean, len(values), of_unit, of_run, least)

    @property
    def alike(self) -> bool:
        """Whether all repetitions of both sides are equal, so that chance cannot cause a difference."""
        return len({value for values in self.values for value in values}) == 1

    @property
    def relative_variance(self) -> float | None:
        """The mean of the relative variances of both sides; None if either is unknown."""
        if min(self.sizes) < 2 or 0 in self.scales:
            return None
        pairs = zip(self.values, self.scales, strict=True)
        return sum(_deviation(values) ** 2 / scale**2 for values, scale in pairs) / 2

    def test(self, tests: int) -> Test:
        """Return the kind of test for its p, given the number of tests."""
        if self.ratios is not None:
            return Test.PAIRED
        return Test.PERMUTATION if smallest_p(*self.sizes) * tests <= ALPHA else Test.WELCH

    def t_test(self, usual: float) -> float | None:
        """Return the p of the t test; `usual` is the relative variance of the cells of the same family."""
        if self.ratios is not None:
            return paired_p([ratio - 1 for ratio in self.ratios])
        (base, new), (n_base, n_new) = self.intervals, self.sizes
        if base is None or new is None:
            return None
        first, second = (scale * sqrt(usual / n) for scale, n in zip(self.scales, (n_base, n_new), strict=True))
        return welch_p(base, new, (first, second))


def _tested(pairs: Sequence[_Pair]) -> dict[int, Tested]:
    """Return the p of each pair by its difference, from the permutation test if that can be significant.

    The kind of test depends only on the numbers of repetitions and of cells, not on the measured values. Cells whose
    repetitions are all equal on both sides do not count as tests, because they cannot show a difference.
    """
    testable = [pair for pair in pairs if min(pair.sizes) >= FEWEST and pair.testable]
    varying = [pair for pair in testable if not pair.alike]
    usual = _usual_variances(varying)
    made: dict[int, Tested] = {id(pair.difference): _NOT_YET for pair in pairs}
    made |= {id(pair.difference): Tested(Test.ALIKE, 1.0, 1.0) for pair in testable if pair.alike}
    tests = [pair.test(len(varying)) for pair in varying]
    permuted = [pair for pair, test in zip(varying, tests, strict=True) if test is Test.PERMUTATION]
    by_permutation = iter(permutation_ps([(pair.values[0], pair.values[1]) for pair in permuted]))
    ps = [
        next(by_permutation) if test is Test.PERMUTATION else pair.t_test(usual[pair.family])
        for pair, test in zip(varying, tests, strict=True)
    ]
    known = [(pair, test, p) for pair, test, p in zip(varying, tests, ps, strict=True) if p is not None]
    corrected = holm([p for _, _, p in known])
    for (pair, test, p), total in zip(known, corrected, strict=True):
        made[id(pair.difference)] = Tested(test, p, total)
    return made


def _ratios(base: Group, new: Group) -> tuple[float, ...] | None:
    """Return new ÷ base for each common repetition, from the means over its trials; None if the base may be 0."""
    sides = []
    for group in (base, new):
        trials = grouped(group.valid, lambda totals: totals.trial.spec.repetition)
        known = {
            number: [fps for totals in repetition_trials if (fps := THROUGHPUT_FPS.read(totals)) is not None]
            for number, repetition_trials in trials.items()
        }
        sides.append({number: fmean(values) for number, values in known.items() if values})
    before, after = sides
    common = [number for number in before if number in after]
    if not common or not all(before[number] for number in common):
        return None
    return tuple(after[number] / before[number] for number in common)


def _deviation(values: Sequence[float]) -> float:
    """Return the sample standard deviation; the exact one of `statistics` is too slow for thousands of cells."""
    mean = fmean(values)
    return sqrt(fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _is_on_one_boot(group: Group) -> bool:
    """Return whether all valid trials were measured on the same boot of the UUT; False if boots are unknown."""
    boots = {trial.boot for trial in group.valid}
    return len(boots) == 1 and 0 not in boots


def _is_limit_shown(group: Group) -> bool:
    return group.is_overloaded or group.load.kind is LoadKind.MAX


def _falls_short(group: Group) -> bool:
    """Return whether a UUT forwards clearly less than the intended or offered load."""
    forwarded, offered = group.throughput_fps, group.offered_fps
    most = group.intended_fps or (offered.mean if offered else 0.0)
    return forwarded is not None and forwarded.mean < _KEEPS_UP * most


def _usual_variances(pairs: Sequence[_Pair]) -> dict[tuple[int, str, str, bool], float]:
    """Return the median of the relative variances of the cells of each family.

    Two or three repetitions may be alike by chance. On their own they would make any difference significant.
    """
    variances = {}
    for family, family_pairs in grouped(pairs, lambda pair: pair.family).items():
        known = [value for pair in family_pairs if (value := pair.relative_variance) is not None]
        variances[family] = median(known) if known else 0.0
    return variances
