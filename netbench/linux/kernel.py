"""The seam between what is to be changed or counted on a machine and how that machine is reached."""

from collections.abc import Iterable
from typing import Protocol

from netbench.linux.changes import Change
from netbench.linux.nics import NicCounters
from netbench.model.paths import Place
from netbench.model.points import CounterReading, Points


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

    def read_counters(self, points: Points) -> tuple[CounterReading, ...]:
        """What is counted on it at these points, beyond its NICs' own counters; TestbedError when it cannot be asked.

        What is attached to an interface (rules, classifiers, queueing disciplines) is at the point of the interface;
        what forwards and the backlog are read for all streams together. netbench's own rules are left out.
        """
