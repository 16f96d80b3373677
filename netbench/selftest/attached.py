"""Whether anybody else's rules or programs stand in the frames' way: on the tester's own NICs or on the reference's."""

from collections.abc import Iterable

from netbench.model.paths import StreamPath
from netbench.model.points import HopPoint, HopReading, rank
from netbench.model.scenario import VICTIM
from netbench.model.selftest import Check
from netbench.model.topology import Topology
from netbench.testbed.testbed import Testbed
from netbench.uut.base import ActiveGuest

_STRANGERS = ("nft", "br_netfilter: nft", "XDP", "tc ")
# Disciplines that only queue; one that shapes, limits or impairs is in the way.
_PLAIN_QUEUES = ("qdisc mq", "qdisc pfifo", "qdisc pfifo_fast", "qdisc fq", "qdisc fq_codel", "qdisc mqprio")


def look(testbed: Testbed, active: ActiveGuest) -> list[HopReading]:
    """What is there at this moment that netbench did not put there."""
    bench = testbed.bench({VICTIM: active})
    points = [point for lane in bench.lanes.values() for point in _points(lane.path)]
    return [one for one in bench.read_hops(points, [active.uut.hops()]) if _stands_in_the_way(one)]


def judge_obstacles(found: Iterable[HopReading], topology: Topology) -> Check:
    """Nothing must stand in the way; what does is named, each once, with its place."""
    links = {stream.name: stream for stream in topology.streams}
    nics = {"source NIC": "source", "ingress NIC": "ingress", "egress NIC": "egress", "sink NIC": "sink"}
    named: dict[str, None] = {}
    for one in sorted(found, key=lambda one: rank(one.hop)):
        stream = links.get(one.stream)
        nic = getattr(stream, nics.get(one.hop, ""), None) if stream else None
        named[f"{one.counter} at the {one.hop}{f' {nic}' if nic else ''}"] = None
    return Check(
        name="nothing in the way",
        truth="no rules, programs or shapers of others",
        measured=f"{len(named)} found" if named else "none found",
        passed=not named,
        detail=f"{'; '.join(named)}: not netbench's; remove what is there" if named else "",
    )


def _points(path: StreamPath) -> Iterable[HopPoint]:
    """Both ways at every NIC: what stands in a way that no frame should take tells of a stranger too."""
    for role, nic in path.nics.items():
        for direction in ("rx", "tx"):
            yield HopPoint(path.name, f"{role} NIC", nic.place, direction)


def _stands_in_the_way(one: HopReading) -> bool:
    if one.counter.startswith("qdisc"):
        return one.counter not in _PLAIN_QUEUES
    return one.counter.startswith(_STRANGERS)
