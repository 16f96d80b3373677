"""The links of a VM: made, changed and counted by commands inside it.

A VM is netbench's own and ends with the run: nothing need be put on record, and only what makes room for the
next unit under test is taken back.
"""

from collections.abc import Callable, Iterable

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import Host, run_checked
from netbench.linux.changes import ByCommand, Change
from netbench.linux.drops import by_namespace
from netbench.linux.drops_by_command import counters_command, parse_counters
from netbench.linux.ip_link import list_command, parse_links
from netbench.linux.nics import NicCounters
from netbench.model.paths import Place
from netbench.model.points import CounterReading, Points

# What iproute2 says of what is not there any more, and so is undone already.
_GONE = (
    "Cannot find device",
    "does not exist",
    "No such file or directory",
    "No such process",
    "Cannot assign requested address",
)


class GuestKernel:
    """The kernel of a VM; `host` gives the VM's host for each of its network namespaces (None: outside all)."""

    def __init__(self, host: Callable[[str | None], Host]) -> None:
        self._host = host
        self._made: list[Change] = []

    @property
    def point(self) -> int:
        """Where its changes stand, for `undo(to=…)`."""
        return len(self._made)

    def make(self, changes: Iterable[Change]) -> None:
        """Make changes in order; TestbedError says which one failed and why."""
        for wanted in changes:
            if isinstance(wanted, ByCommand):
                host = self._host(wanted.netns)
                change = wanted.found_by(host)
                self._made.append(change)  # made in part, it can be undone all the same
                change.make_by(host)
            else:
                run_checked(self._host(None), wanted.argv)
                self._made.append(wanted)

    def undo(self, to: int = 0) -> list[str]:
        """Take changes back, last first, down to a point; what could not be undone, as messages."""
        failures = []
        while len(self._made) > to:
            change = self._made.pop()
            try:
                if isinstance(change, ByCommand):
                    change.undo_by(self._host(change.netns))
                elif change.undo_argv:
                    run_checked(self._host(None), change.undo_argv)
            except MachineGoneError:
                self._made.clear()  # all changes went with it
            except TestbedError as error:
                if not any(words in str(error) for words in _GONE):
                    failures.append(str(error))
        return failures

    def read_nics(self, places: Iterable[Place]) -> dict[Place, NicCounters]:
        """The counters of NICs in the VM; one that is gone is left out. TestbedError when it cannot be asked."""
        wanted: dict[str | None, list[Place]] = {}
        for place in places:
            wanted.setdefault(place.netns, []).append(place)
        found: dict[Place, NicCounters] = {}
        for netns, there in wanted.items():
            links = parse_links(run_checked(self._host(None), list_command(netns)))
            found |= {place: links[place.interface] for place in there if place.interface in links}
        return found

    def read_counters(self, points: Points) -> tuple[CounterReading, ...]:
        """What drops frames in the VM, beyond its NICs' own counters; TestbedError when it cannot be asked."""
        namespaces = tuple(by_namespace(points))
        host = self._host(None)
        printed = run_checked(host, counters_command(namespaces))
        try:
            return parse_counters(printed, namespaces, points)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise TestbedError(f"{host}: its counters make no sense: {error}") from error
