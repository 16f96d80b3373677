"""On which side of the guest a frame died: before it entered, inside, after it left."""

from collections.abc import Iterable
from enum import Enum

from netbench.model.points import INSIDE, rank
from netbench.model.trial import TrialResult
from netbench.statistics.placed_losses import UNEXPLAINED, UNKNOWN_PLACE

_GUEST_BEGINS, _GUEST_ENDS = rank("guest ingress NIC"), rank("guest egress NIC")
_IN_GUEST = "guest "
_SOMEWHERE, _CAPTURE = rank(INSIDE), rank("capture")


class Side(Enum):
    """Where a place of loss is, seen from the guest; the value is what a reader sees.

    A frame that the virtual NIC dropped, for want of a buffer of the guest's, died before the guest, whose kernel never
    had it, though the guest's driver tells of it.
    """

    BEFORE = "before the guest"
    INSIDE = "inside the guest"
    AFTER = "after the guest"
    HOST = "no guest on the path"
    TESTER = "in the tester"
    UNKNOWN = "unknown where"


def side(place: str, *, guest: bool) -> Side:
    """The side that a place of loss is on, along a path that runs through a guest or does not.

    It is unknown of what died at the hop `uut`: no counter told one side from another.
    """
    if place in (UNEXPLAINED, UNKNOWN_PLACE):
        return Side.UNKNOWN
    where = rank(place)
    if where == _CAPTURE:
        return Side.TESTER
    if not guest:
        return Side.HOST
    if where == _SOMEWHERE:
        return Side.UNKNOWN
    if where < _GUEST_BEGINS:
        return Side.BEFORE
    return Side.INSIDE if where <= _GUEST_ENDS else Side.AFTER


def uuts_with_guest(trials: Iterable[TrialResult]) -> frozenset[str]:
    """Those UUTs on whose path a guest counted frames, or lost them."""
    return frozenset(trial.spec.uut for trial in trials if any(hop.startswith(_IN_GUEST) for hop in _hops(trial)))


def _hops(trial: TrialResult) -> Iterable[str]:
    yield from (count.hop for count in trial.victim.hops)
    for counts in trial.streams:
        yield from (count.hop for count in counts.hops)
        yield from (loss.hop for loss in counts.lost_at)
