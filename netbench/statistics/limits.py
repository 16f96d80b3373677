"""What kept a maximum from being higher: the UUT, or only what it was offered, of which it forwarded everything."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import fmean

from netbench.model.frame_mix import FrameSize
from netbench.model.units import LoadKind
from netbench.statistics.groups import Group, best_groups, grouped

THE_LOAD_ASKED = "the load asked"
THE_SOURCE = "the source"
# Of a load of which no more than this is lost nobody can tell that a higher one would not have been forwarded too.
LOST = 0.005
# A source that its link kept waiting for so much of the time offered what the path takes; as for saturated trials.
_HELD_UP_PART = 0.25
_MOST = 0.5
_ALL = 100.0  # percent


def with_limits(groups: Iterable[Group]) -> tuple[Group, ...]:
    """All groups of a campaign, the maxima among them, as best_groups() has these, with what limited them."""
    found = tuple(groups)
    limits = {id(best): limit_of(best, same) for same in grouped(found, _sweep).values() for best in best_groups(same)}
    return tuple(replace(group, limited_by=limits[id(group)]) if id(group) in limits else group for group in found)


def limit_of(best: Group, same: Sequence[Group]) -> str:
    """What limited a maximum; empty where it was the UUT, or its links.

    `same` are all groups that differ from it in load only. It was the UUT where at this load, or at a higher one that
    counts, more than 0.5 % was lost or the link pushed back. Else it was the load: no higher one was asked for, or the
    source reached none, or no higher one has enough trials that are valid.
    """
    higher = sorted((one for one in same if _height(one) > _height(best)), key=_height)
    counted = [best, *(one for one in higher if one.counts_as_maximum)]
    if any(map(would_not_take_more, counted)):
        return ""
    for one in higher:
        if not one.counts_as_maximum:
            kinds = ", ".join(dict.fromkeys(reason.kind.value for reason in one.reasons))
            return f"the tester: too few valid trials at {one.load}" + (f" ({kinds})" if kinds else "")
    return THE_SOURCE if counted[-1].load.kind is LoadKind.MAX or _is_capped(counted[-1]) else THE_LOAD_ASKED


def _sweep(group: Group) -> tuple[str, str, int, FrameSize]:
    return group.uut, group.scenario, group.sources, group.frame_size


def would_not_take_more(group: Group) -> bool:
    """Whether a load was more than the UUT, with its links, could forward."""
    if group.loss_ratio is not None and group.loss_ratio.mean > LOST:
        return True
    return group.saturated > _MOST * len(group.valid) or _held_up(group)


def _is_capped(group: Group) -> bool:
    """Whether its load is all that could be offered, or would have been more than that."""
    of_maximum = group.load.kind is LoadKind.OF_MAXIMUM and group.load.value >= _ALL
    victims = (one.trial.spec.victim for one in group.valid)
    return of_maximum and any(victim.share_of_less or victim.is_less_than_share for victim in victims)


def _held_up(group: Group) -> bool:
    """Whether the link kept sources waiting that were to send as fast as they can."""
    if group.load.kind is not LoadKind.MAX:
        return False
    parts = [
        counts.link_s / counts.duration_s
        for one in group.valid
        for counts in one.streams
        if counts is not None and counts.link_s is not None and counts.duration_s
    ]
    return bool(parts) and fmean(parts) >= _HELD_UP_PART


def _height(group: Group) -> tuple[bool, float]:
    """By which loads can be compared; one that nobody could tell in frames/s is the lowest."""
    value = group.load.value if group.load.kind is LoadKind.FRAME_RATE else group.load.found_fps or 0.0
    return group.load.kind is LoadKind.MAX, group.intended_fps or value * group.sources
