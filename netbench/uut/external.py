"""UUT `external`: something between two ports that forwards by itself and that netbench does not control."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel, ConfigDict

from netbench.errors import UsageError
from netbench.model.entitlement import Entitlement
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import Hops
from netbench.uut.base import EVERYTHING, Reading, Workplace


class ExternalOptions(BaseModel):
    """`next_hop_macs` gives a routing UUT's ingress MAC address per stream; a bridging one needs none."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    next_hop_macs: dict[str, str] = {}


class External:
    """A device, a switch, a hypervisor set up by hand, or simply a cable."""

    Options: ClassVar[type[BaseModel]] = ExternalOptions

    def __init__(self, options: ExternalOptions) -> None:
        self._next_hop_macs = options.next_hop_macs

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError when a MAC address is given for a stream that does not exist."""
        unknown = set(self._next_hop_macs) - {path.name for path in paths}
        if unknown:
            raise UsageError(f"next_hop_macs: there is no stream {sorted(unknown)[0]!r} in this topology")

    def needs(self) -> frozenset[str]:
        """Nothing of this host."""
        return frozenset()

    @property
    def has_own_kernel(self) -> bool:
        """Nobody knows."""
        return False

    @property
    def load_needs(self) -> frozenset[str] | None:
        """None: there is no way in."""
        return None

    def commands(
        self, paths: Sequence[StreamPath], name: str = "NAME", entitlement: Entitlement = EVERYTHING
    ) -> list[str]:
        """None: it is the user's to configure."""
        return []

    def provision(self, workplace: Workplace) -> None:
        """It is there already."""

    @property
    def pace(self) -> Pace:
        """It is there already."""
        return Pace()

    @property
    def patience_s(self) -> float:
        """Unknown; what most devices keep a frame for at most."""
        return 0.05

    def ready(self) -> None:
        """It is up to the user; a path that does not forward shows as loss."""

    def hops(self) -> Hops:
        """Nothing of a machine that netbench can look into."""
        return Hops()

    def next_hop_mac(self, path: StreamPath) -> str:
        """The MAC given for this stream, else the sink's own."""
        return self._next_hop_macs.get(path.name, path.sink.mac)

    def reset(self) -> None:
        """Not netbench's to change."""

    def cpu_s(self) -> dict[str, float]:
        """Nobody counts it."""
        return {}

    def read(self) -> Reading:
        """Unknown: netbench does not see inside."""
        return Reading()

    def shell(self) -> None:
        """There is no way in."""

    def log(self) -> str:
        """It has no console."""
        return ""

    def facts(self) -> dict[str, str]:
        """None that netbench knows."""
        return {}

    def destroy(self) -> None:
        """Not netbench's to end."""
