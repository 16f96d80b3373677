"""The seam between what is to be changed or counted on a machine and how that machine is reached."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from netbench.linux.changes import Change
from netbench.linux.nics import NicCounters
from netbench.model.paths import Place
from netbench.model.points import HopPoint, HopReading


class Kernel(Protocol):
    """A running kernel whose links netbench makes, changes and counts: this machine's, or that of a VM."""

    @property
    def point(self) -> int:
        """Where its changes stand, for `undo(to=…)`."""

    def make(self, changes: Iterable[Change]) -> None:
        """Make changes in order; TestbedError says which one failed and why."""

    def undo(self, to: int = 0) -> list[str]:
        """Take changes back, last first, down to a point; what could not be undone, as messages."""

    def read_nics(self, places: Iterable[Place]) -> dict[Place, NicCounters]:
        """The counters of NICs on it; one that is gone is left out. TestbedError when it cannot be asked."""

    def read_hops(self, points: Sequence[HopPoint], forwarding: Mapping[str | None, str]) -> tuple[HopReading, ...]:
        """What drops frames on it, beyond its NICs' own counters; TestbedError when it cannot be asked.

        `points` are the interfaces on streams' paths; `forwarding` has, for each namespace in which a UUT forwards, by
        what: `bridge` or `IP layer`. What is attached to an interface (rules, classifiers, queueing disciplines) is at
        the interface's hop, the rest, for all streams together, at `bridge`, `IP layer` and `softnet backlog`.
        netbench's own rules are left out.
        """
