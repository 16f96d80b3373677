"""UUT `raw`: the host's own kernel forwards, nothing in between. The yardstick for every VMM."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from netbench.errors import TestbedError
from netbench.linux.changes import Change
from netbench.linux.host_shell import HostShell
from netbench.model.entitlement import Entitlement
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import Hops
from netbench.uut.base import EVERYTHING, Reading, Workplace
from netbench.uut.entitling import entitlement_facts, group_changes, way_in
from netbench.uut.forwarding import await_forwarding, bridge_changes, inside_nics, route_changes


class RawOptions(BaseModel):
    """How a kernel forwards: `bridge` (L2) or `route` (L3)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: Literal["bridge", "route"] = "bridge"


class Raw:
    """The kernel of the host the NICs belong to.

    Its entitlement binds what is run on that host by its shell. A kernel forwards on whatever CPU a frame comes in, and
    for no group: that cannot be bound.
    """

    Options: ClassVar[type[BaseModel]] = RawOptions

    def __init__(self, options: RawOptions) -> None:
        self._forward = options.forward
        self._workplace: Workplace | None = None

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError for a stream without ingress and egress NICs."""
        for path in paths:
            inside_nics(path)

    def needs(self) -> frozenset[str]:
        """A kernel that bridges, or one that routes."""
        return frozenset({"bridge", "bridge-nf"} if self._forward == "bridge" else {"forwarding"})

    @property
    def has_own_kernel(self) -> bool:
        """It is the kernel of its machine."""
        return False

    @property
    def load_needs(self) -> frozenset[str] | None:
        """Its load is processes of this machine, or of the VM it is in, which has what it needs."""
        return frozenset({"stress-ng"})

    def commands(
        self, paths: Sequence[StreamPath], name: str = "NAME", entitlement: Entitlement = EVERYTHING
    ) -> list[str]:
        """The changes to the host, as commands."""
        return [change.command for change in [*group_changes(entitlement, "RUN", name), *self._changes(paths)]]

    def provision(self, workplace: Workplace) -> None:
        """Make the kernel forward."""
        self._workplace = workplace
        group = group_changes(workplace.entitlement, workplace.run_id, workplace.name)
        workplace.kernel.make([*group, *self._changes(workplace.paths)])

    @property
    def pace(self) -> Pace:
        """Links are made and removed."""
        return Pace(bring_up_s=0.4, load_s=0.1, worker_s=0.015)

    @property
    def patience_s(self) -> float:
        """A kernel forwards at once."""
        return 0.01

    def ready(self) -> None:
        """Return once every NIC of the UUT forwards; TestbedError names those that do not in time."""
        places = [nic.place for path in self._provisioned.paths for nic in inside_nics(path)]
        await_forwarding(self._provisioned.kernel, places)

    def hops(self) -> Hops:
        """The bridges or the IP layer of where its NICs are."""
        stack = "bridge" if self._forward == "bridge" else "IP layer"
        return Hops(stacks={inside_nics(path)[0].netns: stack for path in self._provisioned.paths})

    def next_hop_mac(self, path: StreamPath) -> str:
        """The sink's MAC through a bridge, the ingress NIC's through a router."""
        return path.sink.mac if self._forward == "bridge" else inside_nics(path)[0].mac

    def reset(self) -> None:
        """A kernel that forwards has no state to bring back."""

    def cpu_s(self) -> dict[str, float]:
        """Nobody counts it."""
        return {}

    def read(self) -> Reading:
        """None of its own: what dies here shows between the counters of its NICs."""
        return Reading()

    def shell(self) -> HostShell:
        """Commands on its host."""
        workplace = self._provisioned
        host, entitlement = workplace.own_host, workplace.entitlement
        return HostShell(host, entitlement.cpus, way_in(host, entitlement, workplace.run_id, workplace.name))

    def log(self) -> str:
        """It has no console."""
        return ""

    def facts(self) -> dict[str, str]:
        """What its load may take of the CPUs; all else is in the manifest of the machine."""
        return entitlement_facts(self._workplace.entitlement) if self._workplace else {}

    def destroy(self) -> None:
        """Nothing beside the changes, which the transaction undoes."""
        self._workplace = None

    @property
    def _provisioned(self) -> Workplace:
        if self._workplace is None:
            raise TestbedError("the UUT is not provisioned")
        return self._workplace

    def _changes(self, paths: Sequence[StreamPath]) -> list[Change]:
        return list(bridge_changes(paths) if self._forward == "bridge" else route_changes(paths))
