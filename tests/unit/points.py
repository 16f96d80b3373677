"""Counting points of made-up paths, with counts and losses by the name of the point."""

from collections.abc import Sequence

from netbench.model.counts import DropKind, Loss, PointCount
from netbench.model.points import UUT, CountingPoint, PathSection, PointKind, forwarding_point, whole_path
from netbench.model.stream_paths import stream_paths
from netbench.trial.observation import CounterDelta
from netbench.trial.segments import RING_FULL
from tests.unit.inputs import topology

(_PATH,) = stream_paths(topology())
GUEST = (
    forwarding_point(_PATH, PointKind.BRIDGE, PathSection.BEFORE),
    CountingPoint("ingress tap", PathSection.BEFORE, direction="tx", passing=True),
    CountingPoint("VMM ingress", PathSection.BEFORE, names_segment=True),
    CountingPoint("guest ingress NIC", PathSection.INSIDE, direction="rx", passing=True),
    CountingPoint("guest softnet", PathSection.INSIDE),
    CountingPoint("guest IP layer", PathSection.INSIDE),
    CountingPoint("guest", PathSection.INSIDE, names_segment=True),
    CountingPoint("guest egress queue", PathSection.INSIDE),
    CountingPoint("guest egress NIC", PathSection.INSIDE, direction="tx", passing=True),
    CountingPoint("VMM egress", PathSection.BEHIND, names_segment=True),
    CountingPoint("egress tap", PathSection.BEHIND, direction="rx", passing=True),
    CountingPoint("egress bridge", PathSection.BEHIND, names_segment=True),
)
THROUGH_GUEST = whole_path(_PATH, GUEST)
BY_KIND = {kind: whole_path(_PATH, (forwarding_point(_PATH, kind),)) for kind in (PointKind.BRIDGE, PointKind.IP_LAYER)}
THROUGH_UUT = whole_path(_PATH, ())


def at(name: str, points: Sequence[CountingPoint] = THROUGH_GUEST) -> CountingPoint:
    """The point of this name on the path through a guest, or on the one given."""
    named = {point.name: point for point in points}
    return named.get(name) or CountingPoint(name, order=named[UUT].order)


def growth(
    name: str,
    counter: str,
    role: str,
    frames: int | None,
    points: Sequence[CountingPoint] = THROUGH_GUEST,
    *,
    shared: bool = False,
    silent: str = "",
    indiscriminate: bool = False,
) -> CounterDelta:
    """The growth of a counter at the point of this name."""
    return CounterDelta(at(name, points), counter, role, frames, shared, silent, indiscriminate, (name, counter))


def count(name: str, counter: str, role: str, grew: int | None) -> PointCount:
    """The growth of a counter as it is stored."""
    return growth(name, counter, role, grew).count


def loss(place: str, frames: int, points: Sequence[CountingPoint] = THROUGH_GUEST) -> Loss:
    """Frames lost at a place, a point with its cause in brackets."""
    name, _, cause = place.removesuffix(")").partition(" (")
    point = at(name, points)
    dropper = DropKind.RING if cause == RING_FULL else DropKind.UNKNOWN
    return Loss(name, cause, point.where, point.order, frames, dropper=dropper)
