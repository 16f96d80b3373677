"""Check for rules or programs of others that interfere with frames: on the tester's NICs, or the reference UUT's."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from netbench.model.points import CountingPoint, whole_path
from netbench.model.scenario import VICTIM
from netbench.model.selftest_record import SelftestCheck
from netbench.model.topology import Topology
from netbench.testbed.testbed import Testbed
from netbench.uut.base import ActiveGuest


class ForeignFilter(NamedTuple):
    """A rule or program of others at a point; `stream` is empty if it affects all streams."""

    stream: str
    point: CountingPoint
    counter: str


def look(testbed: Testbed, active: ActiveGuest) -> list[ForeignFilter]:
    """Return everything at the counting points now that netbench did not attach."""
    setup, declared = testbed.setup({VICTIM: active}), active.ready.points
    paths = {name: whole_path(ends.path, declared.get(name, ())) for name, ends in setup.endpoints.items()}
    points = {stream: tuple(_both_ways(along)) for stream, along in paths.items()}
    named = {(stream, point.name): point for stream, along in paths.items() for point in along}
    anywhere = {point.name: point for along in paths.values() for point in along}
    return [
        ForeignFilter(
            reading.stream, named.get((reading.stream, reading.point)) or anywhere[reading.point], reading.counter
        )
        for reading in setup.read_counters(points)
        if reading.attached
    ]


def judge_attached(found: Iterable[ForeignFilter], topology: Topology) -> SelftestCheck:
    """Check that nothing interferes; each rule or program found is listed once, with its place."""
    links = {stream.name: stream for stream in topology.streams}
    named: dict[str, None] = {}
    for attached in sorted(found, key=lambda entry: entry.point.order):
        stream = links.get(attached.stream)
        nic = getattr(stream, attached.point.where.value, None) if stream else None
        named[f"{attached.counter} at the {attached.point.name}{f' {nic}' if nic else ''}"] = None
    return SelftestCheck(
        name="nothing in the way",
        truth="no rules, programs or shapers of others",
        measured=f"{len(named)} found" if named else "none found",
        passed=not named,
        detail=f"{'; '.join(named)}: not netbench's; remove what is there" if named else "",
    )


def _both_ways(along: Iterable[CountingPoint]) -> Iterator[CountingPoint]:
    """Yield every point in both directions: a hook in an unused direction also shows foreign software."""
    for point in along:
        yield point
        if point.direction:
            yield replace(point, direction="tx" if point.direction == "rx" else "rx")
