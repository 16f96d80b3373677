"""Comparison of campaigns: what changed, by how much, and whether chance can explain it.

A cell is a measurement that both campaigns contain, or the highest throughput of a UUT, scenario, number of sources and
frame size over their common loads. Only the highest throughput shows a slower UUT: below saturation every offered frame
is forwarded. A load is common if its rate in frames/s is equal. A share of a maximum is another rate in each campaign.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import isclose, sqrt

from netbench.model.frame_size import FrameSize
from netbench.model.units import LoadKind
from netbench.model.verdict import CampaignWarning, ReasonKind
from netbench.model.virtualisation import Setting
from netbench.statistics.cell_tests import (
    NOT_YET_TESTED,
    TESTS,
    CellSamples,
    least_ratio,
    tested_differences,
    usual_variances,
)
from netbench.statistics.change_interval import RUN_PART
from netbench.statistics.compared_cells import (
    DISTURBING,
    LEAST_CHANGE,
    Absence,
    Campaign,
    ComparedCell,
    Comparison,
    Difference,
    LeftOut,
    place_of,
)
from netbench.statistics.groups import Group, best_groups, grouped
from netbench.statistics.interference import ratio_of_maxima
from netbench.statistics.intervals import DifferenceOfMeans, ratio_of_intervals
from netbench.statistics.limits import with_limits, would_not_take_more

# An offered load below this part of that in the other campaign explains a lower throughput.
_OFFERED_ALIKE = 0.99
# A cell that lost more than this part of its trials because the tester was disturbed is inconclusive.
_MOST_DISTURBED = 1 / 3


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
    throughputs = [CellSamples(number, cell, of_loss=False, in_turn=in_turn) for number, cell in pairs]
    of_throughput = tested_differences(throughputs)
    losses = [CellSamples(number, cell, of_loss=True) for number, cell in pairs if cell.loss is not None]
    of_loss = tested_differences(losses)
    loss_tests = max(1, sum(tested.test in TESTS for tested in of_loss.values()))
    loss_intervals = {id(pair.difference): pair.loss(0.0 if in_turn else RUN_PART, loss_tests) for pair in losses}
    tests = max(1, sum(tested.test in TESTS for tested in of_throughput.values()))
    usual = usual_variances(throughputs)

    def tested(samples: CellSamples) -> Difference:
        cell, floors = id(samples.difference), (base.noise_floor, others[samples.comparison].noise_floor)
        return replace(
            samples.with_interval(sqrt(usual[samples.family]), None if in_turn else floors, tests),
            throughput_test=of_throughput[cell],
            loss=loss_intervals.get(cell),
            loss_test=of_loss.get(cell),
        )

    differences = grouped(throughputs, lambda samples: samples.comparison)
    return tuple(
        replace(comparison, differences=tuple(map(tested, differences.get(number, ()))))
        for number, comparison in enumerate(comparisons)
    )


def number_of_tests(comparisons: Iterable[Comparison]) -> int:
    """Return how many p values of throughput were corrected for each other."""
    differences = (difference for comparison in comparisons for difference in comparison.differences)
    return sum(difference.throughput_test.test in TESTS for difference in differences)


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


_LISTED = 5
_DIMENSIONS: tuple[tuple[str, Callable[[ComparedCell], str]], ...] = (
    ("they have no UUT in common", lambda place: place.uut),
    ("they have no scenario in common", lambda place: place.scenario),
    ("they have no number of sources in common", lambda place: str(place.sources)),
    ("they have no frame size in common", lambda place: _frames(place.frame_size.without_packet)),
    ("they have no packet in common", lambda place: place.frame_size.packet or "plain"),
    ("they have no packet in common at one frame size", lambda place: _frames(place.frame_size)),
    ("their loads are in different units", lambda place: "" if place.load is None else place.load.kind.value),
    ("they have no load in common", lambda place: str(place.load)),
)


def _frames(size: FrameSize) -> str:
    """Return a frame size as text, with the sequence of a mix: mixes of one name may have different sequences."""
    return f"{size} ({size.in_letters})" if size.is_mix else str(size)


def _listed(names: Sequence[str]) -> str:
    more = f", and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return ", ".join(names[:_LISTED]) + more


def maxima_over(groups: Iterable[Group], loads: Collection[ComparedCell]) -> dict[ComparedCell, Group]:
    """Return the groups with the highest throughput over these cells of loads, by the cell of the maximum."""
    best = best_groups(with_limits(group for group in groups if place_of(group) in loads))
    return {place_of(group).of_maximum: group for group in best}


_NO_MAXIMUM = "in one campaign, no common load has two thirds of its trials valid at the first attempt"


def _untested(base: Campaign, new: Campaign, *, accept_disturbed: bool) -> Comparison:
    of_base, of_new = ({place_of(group): group for group in campaign.groups} for campaign in (base, new))
    emulated = of_different_emulation(base.name, base.settings, new.name, new.settings)
    places = {place for place in of_base.keys() | base.skipped if place in of_new or place in new.skipped}
    others = {
        place: _other_rate(of_base[place], of_new[place]) for place in places if place in of_base and place in of_new
    }
    changed = of_different_packets(base.name, base.packets, new.name, new.packets)
    common = {
        place
        for place in places
        if place.uut not in emulated and place.frame_size.packet not in changed and not others.get(place)
    }
    disturbed = [] if accept_disturbed else [(campaign.name, campaign.disturbances) for campaign in (base, new)]
    doubt = doubt_of(*disturbed)

    def doubt_of_cell(of_base: Group, of_new: Group) -> str:
        return doubt or ("" if accept_disturbed else _disturbed_trials((base, of_base), (new, of_new)))

    left_out = []
    differences = []
    for place in (*of_base, *(added for added in of_new if added not in of_base)):
        if place.uut in emulated:
            left_out.append(LeftOut(place, emulated[place.uut], Absence.EMULATION))
        elif place.frame_size.packet in changed:
            left_out.append(LeftOut(place, changed[place.frame_size.packet], Absence.OTHER_PACKET))
        elif place in common and place in of_base and place in of_new:
            difference = _at_load(place, of_base[place], of_new[place], doubt_of_cell(of_base[place], of_new[place]))
            if isinstance(difference, LeftOut):
                left_out.append(difference)
            else:
                differences.append(difference)
        elif place in places:
            left_out.append(LeftOut(place, others.get(place) or "skipped as saturated in one campaign"))
        else:
            measured, missing = (base, new) if place in of_base else (new, base)
            why = only_in(measured.name, missing.name, is_finished=missing.complete)
            left_out.append(LeftOut(place, why, Absence.ONE_SIDE if missing.complete else Absence.UNFINISHED))
    maxima = tuple(
        replace(maximum, doubt=doubt_of_cell(maximum.base, maximum.new)) for maximum in _maxima(base, new, common)
    )
    found = {maximum.place for maximum in maxima}
    sweeps = dict.fromkeys(difference.place.of_maximum for difference in differences)
    left_out += [LeftOut(place, _NO_MAXIMUM, Absence.INVALID) for place in sweeps if place not in found]
    return Comparison(base, new, (*maxima, *differences), tuple(left_out), doubt)


def only_in(measured: str, missing: str, *, is_finished: bool) -> str:
    """Return that only one campaign contains a measurement, as text; `is_finished`: the other one, `missing`, is."""
    return f"only in {measured}" if is_finished else f"only in {measured}; {missing} is unfinished"


def _disturbed_trials(*sides: tuple[Campaign, Group]) -> str:
    """Return which side lost too many trials of a cell because the tester was disturbed, as text; empty for none."""
    for campaign, group in sides:
        number, total = _number_with(ReasonKind.TESTER_DISTURBED, group), len(group.everything)
        if number > _MOST_DISTURBED * total:
            return f"the tester was disturbed in {number} of {total} trials of {campaign.name}"
    return ""


def _number_with(kind: ReasonKind, group: Group) -> int:
    """Return the number of trials with a reason of this kind."""
    return sum(any(reason.kind is kind for reason in totals.trial.reasons) for totals in group.everything)


def doubt_of(*sides: tuple[str, Iterable[CampaignWarning]]) -> str:
    """Return which campaigns were disturbed and by what, as text; empty for none. A side is a name and its warnings."""
    disturbed = [
        f"{name} was disturbed ({', '.join(kinds)})"
        for name, warnings in sides
        if (kinds := list(dict.fromkeys(warning.kind.value for warning in warnings if warning.kind in DISTURBING)))
    ]
    return "; ".join(disturbed)


def of_different_emulation(
    base: str, before: Mapping[str, Setting], new: str, after: Mapping[str, Setting]
) -> dict[str, str]:
    """Return a text for each UUT whose emulated CPUs differ between the sides, so that its figures are not comparable.

    `before` and `after` are the settings in which the UUTs of the campaigns `base` and `new` ran.
    """
    return {
        uut: f"{_lower(setting)} in {base}; {_lower(after[uut])} in {new}"
        for uut, setting in before.items()
        if uut in after and setting.emulators != after[uut].emulators
    }


def of_different_packets(
    base: str, before: Mapping[str, object], new: str, after: Mapping[str, object]
) -> dict[str, str]:
    """Return a text for each name of packets that are different on the sides, so that they are not comparable.

    `before` and `after` are the packets of the campaigns `base` and `new`, as a user would write them.
    """
    return {
        name: f"packet {name}: {_changed_parts(packet, after[name])} in {base}; "
        f"{_changed_parts(after[name], packet)} in {new}"
        for name, packet in before.items()
        if name in after and packet != after[name]
    }


def _changed_parts(packet: object, other: object) -> str:
    """Return the parts of a packet that differ from the other one, as text: its headers, what varies, what arrives."""
    if not isinstance(packet, Mapping) or not isinstance(other, Mapping):
        return str(packet)
    changed = [key for key in dict.fromkeys((*packet, *other)) if packet.get(key) != other.get(key)]
    return ", ".join(
        f"{'' if key == 'headers' else f'{key} '}{packet[key]}".replace("'", "") if key in packet else f"no {key}"
        for key in changed
    )


def _lower(setting: Setting) -> str:
    text = str(setting)
    return text[0].lower() + text[1:]


def _other_rate(base: Group, new: Group) -> str:
    """Return why a load of the same name has another rate in each campaign, as text; empty if the rates are equal."""
    before, after = base.intended_fps, new.intended_fps
    is_share = base.load.kind is LoadKind.OF_MAXIMUM
    if is_share and (before is None or after is None):
        return "the load is a share of a maximum that was not found in one campaign"
    if before is None or after is None or isclose(before, after, rel_tol=1e-6):
        return ""
    means = f"means {before:,.0f} frames/s in one and {after:,.0f} in the other"
    if is_share:
        return f"the load is a share of a maximum and {means}; measure with --loads-from to compare it"
    return means


def _at_load(place: ComparedCell, base: Group, new: Group, doubt: str) -> Difference | LeftOut:
    before, after = base.throughput_fps, new.throughput_fps
    if before is not None and after is None and _number_with(ReasonKind.UUT_FAILED, new) == len(new.everything):
        return LeftOut(place, "its UUT failed in the new campaign", Absence.DEAD)
    if before is None or after is None:
        which = "either" if before is after else "the base" if before is None else "the new campaign"
        return LeftOut(place, f"no valid trial in {which}", Absence.INVALID)
    if why := _source_is_limit(base, new):
        return LeftOut(place, why)
    losses = base.loss_ratio, new.loss_ratio
    loss = None if losses[0] is None or losses[1] is None else DifferenceOfMeans(losses[1].mean - losses[0].mean, None)
    ratio = ratio_of_intervals(after, before)
    if _is_offered_less(new, base):
        ratio = replace(ratio, high=None, bound="≥")
    elif _is_offered_less(base, new):
        ratio = replace(ratio, low=least_ratio(ratio, base, new), bound="≤")
    return Difference(place, base, new, ratio, NOT_YET_TESTED, loss, None, doubt)


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


def _is_offered_less(group: Group, other: Group) -> bool:
    """Return whether the source limits `group`: it was offered less than `other` and forwarded it."""
    offered, offered_other = group.offered_fps, other.offered_fps
    if offered is None or offered_other is None or would_not_take_more(group):
        return False
    return offered.mean < (1 - LEAST_CHANGE) * offered_other.mean


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
            base_is_limit=not best.is_lower_bound,
            new_is_limit=not new_best.is_lower_bound,
        )
        samples = (_on_plateau(best, base.groups), _on_plateau(new_best, new.groups))
        yield Difference(place, best, new_best, ratio, NOT_YET_TESTED, None, None, samples=samples)


def _on_plateau(best: Group, groups: Iterable[Group]) -> Group:
    """Return the maximum with the trials of all loads of its plateau."""
    loads = {load.as_requested for load in best.plateau.loads} if best.plateau else set()
    place = place_of(best).of_maximum
    same = (group for group in groups if group.load.as_requested in loads and place_of(group).of_maximum == place)
    valid = tuple(trial for group in same for trial in group.valid)
    return replace(best, valid=valid) if valid else best
