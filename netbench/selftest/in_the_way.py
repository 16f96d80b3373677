"""Whether anybody else's rules or programs stand in the frames' way: on the tester's own NICs or on the reference's."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from netbench.model.points import CountingPoint, whole_path
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import Check
from netbench.model.topology import Topology
from netbench.testbed.testbed import Testbed
from netbench.uut.base import ActiveGuest


class Attached(NamedTuple):
    """What somebody put in the way at a point; `stream` is empty where it is in the way of all."""

    stream: str
    point: CountingPoint
    counter: str


def look(testbed: Testbed, active: ActiveGuest) -> list[Attached]:
    """What is there at this moment that netbench did not put there."""
    setup, declared = testbed.setup({VICTIM: active}), active.ready.points
    paths = {name: whole_path(ends.path, declared.get(name, ())) for name, ends in setup.endpoints.items()}
    points = {stream: tuple(_both_ways(along)) for stream, along in paths.items()}
    named = {(stream, point.name): point for stream, along in paths.items() for point in along}
    anywhere = {point.name: point for along in paths.values() for point in along}
    return [
        Attached(one.stream, named.get((one.stream, one.point)) or anywhere[one.point], one.counter)
        for one in setup.read_counters(points)
        if one.attached
    ]


def judge_attached(found: Iterable[Attached], topology: Topology) -> Check:
    """Nothing must stand in the way; what does is named, each once, with its place."""
    links = {stream.name: stream for stream in topology.streams}
    named: dict[str, None] = {}
    for one in sorted(found, key=lambda one: one.point.order):
        stream = links.get(one.stream)
        nic = getattr(stream, one.point.where.value, None) if stream else None
        named[f"{one.counter} at the {one.point.name}{f' {nic}' if nic else ''}"] = None
    return Check(
        name="nothing in the way",
        truth="no rules, programs or shapers of others",
        measured=f"{len(named)} found" if named else "none found",
        passed=not named,
        detail=f"{'; '.join(named)}: not netbench's; remove what is there" if named else "",
    )


def _both_ways(along: Iterable[CountingPoint]) -> Iterator[CountingPoint]:
    """Both ways at every NIC: what stands in a way that no frame should take tells of a stranger too."""
    for point in along:
        yield point
        if point.direction:
            yield replace(point, direction="tx" if point.direction == "rx" else "rx")
