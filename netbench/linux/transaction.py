"""Changes made one after the other through the journal, and undone as a whole or back to a point."""

from collections.abc import Iterable
from errno import EEXIST

from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import TestbedError
from netbench.linux.changes import AddNamespace, Change, Machine, MovePort
from netbench.linux.drops_here import read_local_counters
from netbench.linux.journal import Journal
from netbench.linux.nics import NicCounters, read_nics
from netbench.model.paths import Place
from netbench.model.points import CounterReading, Points


class Transaction:
    """The changes of one run on this machine, and its counters: the Kernel netbench itself runs on."""

    def __init__(self, journal: Journal, machine: Machine) -> None:
        self._journal = journal
        self._machine = machine

    def make(self, changes: Iterable[Change]) -> None:
        """Make changes in order, each on record before; TestbedError says which one failed and why."""
        for wanted in changes:
            change = wanted.as_found(self._machine)
            number = self._journal.record(change)
            try:
                change.make(self._machine)
            except (NetlinkError, OSError) as error:
                if EEXIST in (getattr(error, "code", None), getattr(error, "errno", None)):
                    self._journal.undone(number)  # somebody else's, made this very moment: not ours to undo
                raise TestbedError(f"`{change.command}` failed: {_reason(error)}") from error

    @property
    def point(self) -> int:
        """Where the transaction stands, for `undo(to=…)`."""
        return len(self._journal.pending)

    def undo(self, to: int = 0) -> list[str]:
        """Take changes back, last first, down to a point; what could not be undone, as messages.

        A change inside a namespace that is itself about to be removed goes with it, unless it is one to a
        port that was only lent to that namespace and is going home.
        """
        doomed = self._journal.pending[to:]
        removed = {change.name for _, change in doomed if isinstance(change, AddNamespace)}
        lent = {(change.netns, change.interface) for _, change in doomed if isinstance(change, MovePort)}
        failures = []
        for number, change in reversed(doomed):
            try:
                place = (change.inside, getattr(change, "interface", ""))
                if change.inside not in removed or place in lent:
                    change.undo(self._machine)
                self._journal.undone(number)
            except (NetlinkError, OSError, TestbedError) as error:
                failures.append(f"`{change.command}` could not be undone: {_reason(error)}")
        return failures

    def read_nics(self, places: Iterable[Place]) -> dict[Place, NicCounters]:
        """The counters of NICs; one that is gone is left out. TestbedError when a whole namespace is gone."""
        return read_nics(self._machine.netlink, places)

    def read_counters(self, points: Points) -> tuple[CounterReading, ...]:
        """What is counted on this machine at these points, beyond its NICs' own counters."""
        return read_local_counters(self._machine.netlink, self._machine.hosts, points)


def _reason(error: BaseException) -> str:
    if isinstance(error, NetlinkError):
        return str(error.args[1] if len(error.args) > 1 else error)
    return getattr(error, "strerror", None) or str(error)
