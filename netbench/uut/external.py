"""UUT `external`: something between two ports that forwards by itself and that netbench does not control."""

from collections.abc import Sequence
from typing import ClassVar

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.paths import StreamPath
from netbench.uut.base import Ready, UnitUnderTest

_QUIET_TIME_S = 0.05  # unknown; what most devices keep a frame for at most


class ExternalOptions(BaseModel, extra="forbid", frozen=True):
    """`next_hop_macs` gives a routing UUT's ingress MAC address per stream; a bridging one needs none."""

    next_hop_macs: dict[str, str] = {}


class External(UnitUnderTest):
    """A device, a switch, a hypervisor set up by hand, or simply a cable: the user's to configure."""

    Options: ClassVar[type[BaseModel]] = ExternalOptions

    def __init__(self, options: ExternalOptions) -> None:
        self._next_hop_macs = options.next_hop_macs

    def check(self, paths: Sequence[StreamPath]) -> None:
        unknown = set(self._next_hop_macs) - {path.name for path in paths}
        if unknown:
            raise UsageError(f"next_hop_macs: there is no stream {sorted(unknown)[0]!r} in this topology")

    def ready(self) -> Ready:
        """At once: a path that does not forward shows as loss."""
        towards = {path.name: self._next_hop_macs.get(path.name, path.sink.mac) for path in self.site.paths}
        return Ready(towards, _QUIET_TIME_S)
