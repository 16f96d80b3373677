"""UUT `raw`: the host's own kernel forwards, nothing in between. The yardstick for every VMM."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel

from netbench.hosts.composed import Confined
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import Kind, forwarding_point
from netbench.uut.base import Assignment, Ready, UnitUnderTest, UutPlan
from netbench.uut.entitling import entitlement_facts, group_changes, way_in
from netbench.uut.forwarding import await_forwarding, forwarding_changes, inside_nics

_QUIET_TIME_S = 0.01  # a kernel forwards at once


class RawOptions(BaseModel, extra="forbid", frozen=True):
    """How a kernel forwards: `bridge` (L2) or `route` (L3)."""

    forward: Literal["bridge", "route"] = "bridge"


class Raw(UnitUnderTest):
    """The kernel of the host the NICs belong to.

    Its entitlement binds what is run on that host from inside it. A kernel forwards on whatever CPU a frame comes in,
    and for no group: that cannot be bound.
    """

    Options: ClassVar[type[BaseModel]] = RawOptions

    def __init__(self, options: RawOptions) -> None:
        self._forward = options.forward

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            inside_nics(path)

    def plan(self, assignment: Assignment) -> UutPlan:
        return UutPlan(
            steps=(*group_changes(assignment), *forwarding_changes(assignment.paths, self._forward)),
            needs=frozenset({"bridge", "bridge-nf"} if self._forward == "bridge" else {"forwarding"}),
            load_needs=frozenset({"stress-ng"}),
            pace=Pace(bring_up_s=0.4, load_s=0.1, worker_s=0.015),
        )

    def ready(self) -> Ready:
        site, own = self.site, self.site.assignment
        nics = {path.name: inside_nics(path) for path in site.paths}
        await_forwarding(site.machine, [nic.place for pair in nics.values() for nic in pair])
        bridged = {path.name: path.sink.mac for path in site.paths}
        routed = {stream: ingress.mac for stream, (ingress, _) in nics.items()}
        kind = Kind.BRIDGE if self._forward == "bridge" else Kind.IP_LAYER
        return Ready(
            next_hop_macs=bridged if self._forward == "bridge" else routed,
            quiet_time_s=_QUIET_TIME_S,
            inside=Confined(site.host, own.entitlement.cpus, way_in(site.host, own)),
            facts=entitlement_facts(own.entitlement),
            points={path.name: (forwarding_point(path, kind),) for path in site.paths},
        )
