"""UUT `external`: a device between two ports that forwards by itself and that netbench does not control."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import BaseModel, Field

from netbench.errors import UsageError
from netbench.model.fields import Seconds
from netbench.model.paths import StreamPath
from netbench.model.virtualisation import DurationEstimate, Supports
from netbench.uut.base import PROBE_LIMIT_S, Assignment, Ready, UnitUnderTest, UutPlan

_QUIET_TIME_S = 0.05  # unknown; an upper limit for most devices


class ExternalOptions(BaseModel, extra="forbid", frozen=True):
    """`next_hop_macs` are the ingress MAC addresses of a routing UUT, by stream; a bridging UUT needs none.

    `ready_limit` is the time limit, in seconds, until it forwards.
    """

    next_hop_macs: dict[str, str] = {}
    """Ingress MAC addresses of a router, by stream."""
    ready_limit: Annotated[Seconds, Field(gt=0, le=3600)] = PROBE_LIMIT_S
    """Longest time until probes come out."""


class External(UnitUnderTest):
    """A device, a switch, a hypervisor set up by hand, or simply a cable: the user's to configure."""

    Options: ClassVar[type[BaseModel]] = ExternalOptions
    supports = Supports(neighbours=False)

    def __init__(self, options: ExternalOptions) -> None:
        self._next_hop_macs = options.next_hop_macs
        self._ready_limit_s = options.ready_limit

    @property
    def virtualisation(self) -> None:
        """Return None: unknown."""

    def check(self, paths: Sequence[StreamPath]) -> None:
        unknown = set(self._next_hop_macs) - {path.name for path in paths}
        if unknown:
            raise UsageError(f"next_hop_macs: there is no stream {sorted(unknown)[0]!r} in this topology")

    def plan(self, assignment: Assignment) -> UutPlan:
        return UutPlan(pace=DurationEstimate(bring_up_s=0.5))  # it forwards already

    def ready(self) -> Ready:
        """Return at once: probes show later whether it forwards."""
        towards = {path.name: self._next_hop_macs.get(path.name, path.sink.mac) for path in self.site.paths}
        return Ready(towards, _QUIET_TIME_S, probe_limit_s=self._ready_limit_s)
