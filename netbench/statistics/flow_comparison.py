"""Comparison of campaigns with flows: what changed, by how much, and whether chance can explain it.

A cell is a workload at a load through a UUT in a scenario, which both campaigns contain. Its figures are compared one
by one. Units of replication, intervals and p values are as for frames (cell_tests.py).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from statistics import fmean

from netbench.model.campaign import CampaignResults
from netbench.model.units import LoadKind
from netbench.model.verdict import CampaignWarning, ReasonKind
from netbench.model.virtualisation import Setting
from netbench.statistics.cell_tests import (
    NOT_YET_TESTED,
    SINGLE_BOOT,
    TESTS,
    UnitSamples,
    tested_differences,
    usual_variances,
)
from netbench.statistics.change_interval import RUN_PART, SideMean, change_interval, deviation_of_noise_floor
from netbench.statistics.compared_cells import (
    ALL_CELLS,
    DISTURBING,
    LEAST_CHANGE,
    Absence,
    CellSelection,
    FlowCell,
    LeftOut,
    Tested,
)
from netbench.statistics.comparison import doubt_of, of_different_emulation, only_in
from netbench.statistics.flow_costs import leading_figures
from netbench.statistics.flow_figures import FIGURES, FlowFigure, PooledTimes, values_by_boot, values_by_trial
from netbench.statistics.groups import grouped
from netbench.statistics.intervals import RatioOfMeans, deviation_of, known_interval, ratio_of_intervals
from netbench.statistics.workload_groups import WorkloadGroup, workload_groups_of

# A cell that lost more than this part of its trials because the tester was disturbed is inconclusive.
_MOST_DISTURBED = 1 / 3
_KEEPS_UP = 0.95  # part of the load: a UUT that reaches it shows the clock of the client, not its own speed


@dataclass(frozen=True)
class FlowCampaign:
    """A campaign with flows for a comparison; `disturbances` are warnings that the host had other work meanwhile."""

    name: str
    groups: tuple[WorkloadGroup, ...]
    settings: dict[str, Setting]
    disturbances: tuple[CampaignWarning, ...] = ()
    complete: bool = True

    @classmethod
    def of(cls, name: str, results: CampaignResults, selection: CellSelection = ALL_CELLS) -> "FlowCampaign":
        """Return the selected cells of the results of a campaign, with the name that messages use."""
        groups = (
            group
            for group in workload_groups_of(results)
            if selection.includes(group.uut, group.scenario, group.workload)
        )
        disturbances = tuple(warning for warning in results.warnings if warning.kind in DISTURBING)
        return cls(name, tuple(groups), results.settings, disturbances, complete=results.missing_trials <= 0)


@dataclass(frozen=True, slots=True)
class FlowDifference:
    """The change of a figure of a cell.

    The interval of `ratio`, new ÷ base, covers the variation between runs. It is corrected for `tests` figures, and was
    computed from `sides`, the base first. `doubt` is the reason why a difference would not be due to the UUT. The gate
    judges figures with `is_leading`.
    """

    place: FlowCell
    figure: FlowFigure
    base: WorkloadGroup
    new: WorkloadGroup
    ratio: RatioOfMeans
    test: Tested = NOT_YET_TESTED
    doubt: str = ""
    sides: tuple[SideMean, SideMean] | None = None
    tests: int = 1
    is_leading: bool = False

    @property
    def change(self) -> float | None:
        """Relative change; None unless it is significant and at least LEAST_CHANGE."""
        change = self.ratio.change
        if self.doubt or change is None or abs(change) < LEAST_CHANGE or not self.ratio.significant:
            return None
        return change if self.test.significant else None

    @property
    def benefit(self) -> float | None:
        """The significant change, negative where the new campaign is worse; None without one."""
        change = self.change
        return change if change is None or self.figure.is_better_high else -change

    @property
    def largest_change(self) -> float | None:
        """The largest relative change that the interval still allows; None if the interval is unknown."""
        low, high = self.ratio.change_low, self.ratio.change_high
        return None if low is None or high is None else max(abs(low), abs(high))

    @property
    def is_on_one_boot(self) -> bool:
        """Whether all trials of either campaign were on one boot, so that the variation between boots is unknown."""
        return _is_on_one_boot(self.base) or _is_on_one_boot(self.new)


@dataclass(frozen=True)
class FlowComparison:
    """A campaign with flows against the base."""

    base: FlowCampaign
    new: FlowCampaign
    differences: tuple[FlowDifference, ...]
    left_out: tuple[LeftOut, ...]
    doubt: str = ""  # which campaign was disturbed, as text


def compare_flows(
    base: FlowCampaign, others: Sequence[FlowCampaign], *, accept_disturbed: bool = False, in_turn: bool = False
) -> tuple[FlowComparison, ...]:
    """Return the comparison of each other campaign with the base.

    Intervals and p values are corrected for all leading figures, and separately for all others. Cells of disturbed
    campaigns are in doubt, unless `accept_disturbed`. If both sides were measured `in_turn` in one campaign, equal
    repetitions are compared in pairs, and there is no variation between runs.
    """
    comparisons = [_untested(base, new, accept_disturbed=accept_disturbed) for new in others]
    samples = [
        _FlowSamples(number, difference, in_turn=in_turn)
        for number, comparison in enumerate(comparisons)
        for difference in comparison.differences
    ]
    tested: dict[int, FlowDifference] = {}
    for same in grouped(samples, lambda sample: sample.of.is_leading).values():
        ps, usual = tested_differences(same), usual_variances(same)
        tests = max(1, sum(p.test in TESTS for p in ps.values()))
        for sample in same:
            with_interval = sample.with_interval(sqrt(usual[sample.family]), tests)
            tested[id(sample.of)] = replace(with_interval, test=ps[id(sample.of)])
    return tuple(
        replace(comparison, differences=tuple(tested[id(difference)] for difference in comparison.differences))
        for comparison in comparisons
    )


def number_of_flow_tests(comparisons: Iterable[FlowComparison]) -> tuple[int, int]:
    """Return how many p values were corrected for each other: those of leading figures, and those of the others."""
    differences = [difference for comparison in comparisons for difference in comparison.differences]
    tested = [difference for difference in differences if difference.test.test in TESTS]
    leading = sum(difference.is_leading for difference in tested)
    return leading, len(tested) - leading


class _FlowSamples(UnitSamples):
    """The units of replication of a figure on both sides."""

    def __init__(self, comparison: int, difference: FlowDifference, *, in_turn: bool) -> None:
        self.of, self.in_turn = difference, in_turn
        groups = difference.base, difference.new
        values = [_units(difference.figure, group) for group in groups]
        intervals = list(map(known_interval, values))
        super().__init__(
            difference,
            (comparison, difference.place.uut, difference.place.scenario, difference.figure.name),
            values,
            intervals,
            [interval.mean if interval else 0.0 for interval in intervals],
            ratios=_ratios(difference.figure, *groups) if in_turn else None,
            is_testable=difference.ratio.change is not None,
        )

    def with_interval(self, usual: float, tests: int) -> FlowDifference:
        """Return the difference with the interval of its change; `usual` is the relative deviation of its family."""
        difference = self.of
        if difference.ratio.change is None or 0 in self.sizes:
            return difference
        if self.ratios is not None:
            mean, number = fmean(self.ratios), len(self.ratios)
            sides = SideMean(1.0, number, 0.0), SideMean(mean, number, deviation_of(self.ratios, mean))
        else:
            groups = difference.base, difference.new
            shows_speed = not all(_keeps_up(difference.figure, group) for group in groups)
            base, new = (
                self._side(values, difference.figure, group, usual, shows_speed=shows_speed)
                for values, group in zip(self.values, groups, strict=True)
            )
            sides = base, new
        return replace(difference, ratio=change_interval(sides[1], sides[0], tests), sides=sides, tests=tests)

    def _side(
        self, values: Sequence[float], figure: FlowFigure, group: WorkloadGroup, usual: float, *, shows_speed: bool
    ) -> SideMean:
        mean = fmean(values)
        of_unit = max(deviation_of(values, mean), usual * mean)
        boot = deviation_of_noise_floor(SINGLE_BOOT) if shows_speed and _is_on_one_boot(group) else 0.0
        of_run = 0.0 if self.in_turn else max(RUN_PART * of_unit, boot * mean)
        # The percentile of all times together: the mean of those of the boots is another number.
        return SideMean(group.figures[figure.name].mean, len(values), of_unit, of_run)


def _units(figure: FlowFigure, group: WorkloadGroup) -> tuple[float, ...]:
    """Return the values of the units of replication: of the boots, or of the trials of a single or unknown boot."""
    values = values_by_boot(figure, PooledTimes(group.valid))
    by_boot = grouped(values, lambda pair: pair[0])
    if len(by_boot) < 2 or 0 in by_boot:
        return tuple(value for _, value in values)
    return tuple(fmean(value for _, value in of_boot) for of_boot in by_boot.values())


def _ratios(figure: FlowFigure, base: WorkloadGroup, new: WorkloadGroup) -> tuple[float, ...] | None:
    """Return new ÷ base for each common repetition; None if there is none, or the base may be 0."""
    before, after = (
        {trial.spec.repetition: value for trial, value in values_by_trial(figure, group.valid)} for group in (base, new)
    )
    common = [number for number in before if number in after]
    if not common or not all(before[number] for number in common):
        return None
    return tuple(after[number] / before[number] for number in common)


def _keeps_up(figure: FlowFigure, group: WorkloadGroup) -> bool:
    """Return whether a rate is that of the load, so that the clock of the client decides it."""
    interval, load = group.figures[figure.name], group.load.as_rate
    unit = {"Mbit/s": (LoadKind.L1_BIT_RATE, 1e6), "/s": (LoadKind.OPERATION_RATE, 1.0)}.get(figure.unit)
    if unit is None or load.kind is not unit[0]:
        return False
    return interval.mean >= _KEEPS_UP * load.value / unit[1] * group.sources


def _is_on_one_boot(group: WorkloadGroup) -> bool:
    boots = {trial.boot for trial in group.valid}
    return len(boots) == 1 and 0 not in boots


def _untested(base: FlowCampaign, new: FlowCampaign, *, accept_disturbed: bool) -> FlowComparison:
    of_base, of_new = ({FlowCell.of(group): group for group in campaign.groups} for campaign in (base, new))
    emulated = of_different_emulation(base.name, base.settings, new.name, new.settings)
    doubt = "" if accept_disturbed else doubt_of(*((side.name, side.disturbances) for side in (base, new)))
    leading = leading_figures((*base.groups, *new.groups))
    differences, left_out = list[FlowDifference](), list[LeftOut]()
    for place in (*of_base, *(added for added in of_new if added not in of_base)):
        if place.uut in emulated:
            left_out.append(LeftOut(place, emulated[place.uut], Absence.EMULATION))
        elif place in of_base and place in of_new:
            sides = of_base[place], of_new[place]
            if absence := _why_not_compared(*sides):
                left_out.append(LeftOut(place, *absence))
            else:
                of_cell = doubt or ("" if accept_disturbed else _disturbed((base.name, sides[0]), (new.name, sides[1])))
                names = [figure.name for figure in leading[place.workload]]
                differences += _differences(place, *sides, of_cell, names)
                left_out += _without_figure(place, *sides, names)
        else:
            measured, missing = (base, new) if place in of_base else (new, base)
            why = only_in(measured.name, missing.name, is_finished=missing.complete)
            left_out.append(LeftOut(place, why, Absence.ONE_SIDE if missing.complete else Absence.UNFINISHED))
    return FlowComparison(base, new, tuple(differences), tuple(left_out), doubt)


def _why_not_compared(base: WorkloadGroup, new: WorkloadGroup) -> tuple[str, Absence] | None:
    """Return why a common cell is not compared; None if it is."""
    if base.workload != new.workload:
        return f"{base.workload} has other options in each campaign", Absence.OTHER_LOAD
    if base.valid and not new.valid and _number_with(ReasonKind.UUT_FAILED, new) == len(new.trials):
        return "its UUT failed in the new campaign", Absence.DEAD
    if not (base.valid and new.valid):
        which = "either" if not (base.valid or new.valid) else "the base" if not base.valid else "the new campaign"
        return f"no valid trial in {which}", Absence.INVALID
    return None


def _differences(
    place: FlowCell, base: WorkloadGroup, new: WorkloadGroup, doubt: str, leading: Collection[str]
) -> Iterator[FlowDifference]:
    """Yield the differences of all figures that both sides have, except those that are 0 on both."""
    for figure in FIGURES:
        before, after = base.figures.get(figure.name), new.figures.get(figure.name)
        if before is None or after is None or not (before.mean or after.mean):
            continue
        key, ratio = replace(place, figure=figure.name), ratio_of_intervals(after, before)
        yield FlowDifference(key, figure, base, new, ratio, doubt=doubt, is_leading=figure.name in leading)


def _without_figure(
    place: FlowCell, base: WorkloadGroup, new: WorkloadGroup, leading: Iterable[str]
) -> Iterator[LeftOut]:
    """Yield the leading figures of a cell that only one side has."""
    for name in leading:
        if (name in base.figures) is not (name in new.figures):
            side = "the base" if name in new.figures else "the new campaign"
            yield LeftOut(replace(place, figure=name), f"unknown in {side}", Absence.INVALID)


def _disturbed(*sides: tuple[str, WorkloadGroup]) -> str:
    """Return which side lost too many trials of a cell because the tester was disturbed, as text; empty for none."""
    for name, group in sides:
        number, total = _number_with(ReasonKind.TESTER_DISTURBED, group), len(group.trials)
        if number > _MOST_DISTURBED * total:
            return f"the tester was disturbed in {number} of {total} trials of {name}"
    return ""


def _number_with(kind: ReasonKind, group: WorkloadGroup) -> int:
    return sum(any(reason.kind is kind for reason in trial.reasons) for trial in group.trials)
