"""UUT `raw`: the host's own kernel forwards, nothing in between. The yardstick for every VMM."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from pydantic import BaseModel, ConfigDict

from netbench.links.changes import Change
from netbench.model.paths import StreamPath
from netbench.uut.base import Reading, Workplace
from netbench.uut.forwarding import await_forwarding, bridge_changes, inside_nics, route_changes


class RawOptions(BaseModel):
    """How a kernel forwards: `bridge` (L2) or `route` (L3)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    forward: Literal["bridge", "route"] = "bridge"


class Raw:
    """The kernel of the host the NICs belong to."""

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

    def commands(self, paths: Sequence[StreamPath]) -> list[str]:
        """The changes to the host, as commands."""
        return [change.command for change in self._changes(paths)]

    def provision(self, workplace: Workplace) -> None:
        """Make the kernel forward."""
        self._workplace = workplace
        workplace.kernel.make(self._changes(workplace.paths))

    @property
    def bring_up_s(self) -> float:
        """Links are made and removed."""
        return 0.4

    @property
    def patience_s(self) -> float:
        """A kernel forwards at once."""
        return 0.01

    def ready(self) -> None:
        """Return once every NIC of the UUT forwards; TestbedError names those that do not in time."""
        assert self._workplace is not None, "provision() comes first"
        await_forwarding(self._workplace.kernel, [n.place for path in self._workplace.paths for n in inside_nics(path)])

    def next_hop_mac(self, path: StreamPath) -> str:
        """The sink's MAC through a bridge, the ingress NIC's through a router."""
        return path.sink.mac if self._forward == "bridge" else inside_nics(path)[0].mac

    def reset(self) -> None:
        """A kernel that forwards has no state to bring back."""

    def read(self) -> Reading:
        """None of its own: what dies here shows between the counters of its NICs."""
        return Reading()

    def log(self) -> str:
        """It has no console."""
        return ""

    def facts(self) -> dict[str, str]:
        """Nothing beside the manifest of the machine."""
        return {}

    def destroy(self) -> None:
        """Nothing beside the changes, which the transaction undoes."""
        self._workplace = None

    def _changes(self, paths: Sequence[StreamPath]) -> list[Change]:
        return list(bridge_changes(paths) if self._forward == "bridge" else route_changes(paths))
