"""A Linux kernel that netbench changes and reads counters of: this machine's, a VM's or a guest's."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby

from netbench.errors import ChangeError, Fault, MachineGoneError, MissingError, NetbenchError, TestbedError
from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import NamedHost, NamespaceHost
from netbench.linux.changes import AddNamespace, Change, KernelRequest, MachineState, MovePort
from netbench.linux.changes.base import ChangeRecord, run_batch
from netbench.linux.counters import iproute_counters, netlink_counters
from netbench.linux.counters.counting_points import MachineReading, NicCounters
from netbench.linux.netlink import Netlink
from netbench.linux.proc import USER_HZ, busy_s, parse_cpu_ticks
from netbench.model.distributions import SAME_CLOCK, ClockDifference
from netbench.model.paths import InterfaceRef
from netbench.model.points import CounterReading, Points

_NEEDED = "netbench needs all capabilities of root there, and /proc/sys, /sys and /run writable"


class Machine:
    """A machine, given by its host outside all network namespaces; `name` is that of a VM, None for this machine.

    Changes are made in order, and recorded before they are made: in a journal, or in memory for a VM of netbench, which
    ends with the run. `netlink` reads counters of this machine without commands. `facts` matter for reading the
    results.
    """

    def __init__(
        self,
        name: str | None,
        host: Host,
        *,
        record: ChangeRecord | None = None,
        netlink: Netlink | None = None,
        cpus: Sequence[int] = (),
        facts: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.cpus = cpus
        self.facts = facts or {}
        self._host = host
        self._record = ChangeRecord() if record is None else record
        self._netlink = netlink

    def host(self, netns: str | None = None, name: str = "") -> Host:
        """Return the machine, or a network namespace of it, as a host with that name."""
        host = NamedHost(self._host, name) if name else self._host
        return NamespaceHost(host, netns) if netns else host

    @property
    def monotonic(self) -> ClockDifference:
        """CLOCK_MONOTONIC there minus that of this machine; the same clock unless a subclass compares them."""
        return SAME_CLOCK

    @property
    def realtime(self) -> ClockDifference | None:
        """CLOCK_REALTIME there minus that of this machine; None unless a subclass compares them."""
        return SAME_CLOCK if self.name is None else None

    @property
    def point(self) -> int:
        """The number of changes so far, for `undo(to=…)`."""
        return len(self._record.pending)

    def make(self, changes: Iterable[Change]) -> None:
        """Make changes in order; TestbedError for one that failed, MissingError for one that the machine rejects."""
        for batch in _batches(changes):
            state = MachineState(self._host)
            complete = [change.with_former_state(state) for change in batch]
            numbers = [self._record.record(change) for change in complete]
            for place, error in self._make(complete).items():
                for number in numbers[place + 1 :]:
                    self._record.undone(number)  # not attempted
                if Fault.EXISTS in error.fault:
                    self._record.undone(numbers[place])  # made by somebody else at this very moment: not to be undone
                command = f"`{complete[place].command}` failed: {error}"
                if Fault.DENIED in error.fault:
                    raise MissingError(f"{command}; {_NEEDED}")
                raise ChangeError(command, complete[place], str(error))

    def undo(self, to: int = 0) -> list[str]:
        """Undo changes, last first, down to a point; return a message for each failure.

        A change inside a namespace that is itself to be removed goes with it. Exception: changes to a port that was
        only lent to that namespace and is moved back. A namespace that still contains such a port stays. Failures are
        tried once more, because something may have killed the command.
        """
        return self._undo_each(to) and self._undo_each(to)

    def _undo_each(self, to: int) -> list[str]:
        doomed = self._record.pending[to:]
        removed = {change.name for _, change in doomed if isinstance(change, AddNamespace)}
        lent = {(change.netns, change.interface) for _, change in doomed if isinstance(change, MovePort)}
        for _, change in doomed:
            if isinstance(change, MovePort):
                change.name_back(self._host)
        numbers = {id(change): number for number, change in doomed}
        alone = [
            change
            for _, change in reversed(doomed)
            if change.inside not in removed or (change.inside, getattr(change, "interface", "")) in lent
        ]
        failures = []
        stranded: list[MovePort] = []
        for batch in _batches(alone, undoing=True):
            kept = {place: words for place, change in enumerate(batch) if (words := _kept_for(change, stranded))}
            tried = [place for place in range(len(batch)) if place not in kept]
            failed = self._undo([batch[place] for place in tried]) if tried else {}
            failed = kept | {tried[nth]: words for nth, words in failed.items()}
            for place, change in enumerate(batch):
                number = numbers.pop(id(change))
                if place not in failed:
                    self._record.undone(number)
                    continue
                failures.append(f"`{change.command}` could not be undone: {failed[place]}")
                if isinstance(change, MovePort):
                    stranded.append(change)
                elif isinstance(change, AddNamespace):
                    removed.remove(change.name)
        for _, change in doomed:
            if id(change) in numbers and change.inside in removed:
                self._record.undone(numbers[id(change)])  # it went with its namespace
        return failures

    def read_nics(self, places: Iterable[InterfaceRef]) -> dict[InterfaceRef, NicCounters]:
        """Return the counters of NICs; without NICs that are gone. TestbedError when the machine does not answer."""
        by_netns: dict[str | None, list[InterfaceRef]] = {}
        for place in places:
            by_netns.setdefault(place.netns, []).append(place)
        counters: dict[InterfaceRef, NicCounters] = {}
        for netns, members in by_netns.items():
            nics = (
                netlink_counters.read_nics(self._netlink, netns)
                if self._netlink
                else iproute_counters.read_nics(self._host, netns)
            )
            counters |= {place: nics[place.interface] for place in members if place.interface in nics}
        return counters

    def count(self, points: Points) -> MachineReading:
        """Return the counts at these points, and the CPU time; TestbedError without an answer, or for a missing NIC.

        Drops by hooks of an interface (rules, classifiers, queueing disciplines) count at the point of the interface.
        Counters of the forwarding layer and the backlog are common to all streams. netbench's own rules are left out.
        """
        if self._netlink:
            return MachineReading(netlink_counters.read_counters(self._netlink, self.host, points), self.cpu_s())
        return iproute_counters.count(self._host, points)

    def read_counters(self, points: Points) -> tuple[CounterReading, ...]:
        """Return only the counters of `count`."""
        return self.count(points).counters

    def cpu_s(self) -> float:
        """Return the CPU time since the boot, in seconds, of all its CPUs; TestbedError without an answer."""
        return self.cpu_and_softirq_s()[0]

    def cpu_and_softirq_s(self) -> tuple[float, float]:
        """Return the same, and the softirqs' part of it: a kernel forwards in softirqs, which belong to no process."""
        text = self._host.read("/proc/stat")
        try:
            return busy_s(text), parse_cpu_ticks(text).softirq / USER_HZ
        except (ValueError, IndexError) as error:
            raise TestbedError(f"{self._host}: its CPU time makes no sense: {error}") from error

    def _make(self, batch: Sequence[Change]) -> dict[int, TestbedError]:
        """Make a batch; return the failures by place in the batch; changes after one were not attempted."""
        requests = [change for change in batch if isinstance(change, KernelRequest)]
        if requests:
            return run_batch(self._host, requests[0].tool, [request.line for request in requests])
        try:
            batch[0].make(self._host)
        except TestbedError as error:
            return {0: error}
        return {}

    def _undo(self, batch: Sequence[Change]) -> dict[int, str]:
        """Undo a batch; return the failures by place in the batch."""
        if self._netlink:
            for change in batch:
                if isinstance(change, AddNamespace):
                    self._netlink.forget(change.name)
        requests = [change for change in batch if isinstance(change, KernelRequest)]
        try:
            if requests:
                places = [place for place, request in enumerate(requests) if request.undo_line]
                lines = [requests[place].undo_line for place in places]
                failed = run_batch(self._host, requests[0].undo_tool, lines, force=True) if lines else {}
                return {places[nth]: str(error) for nth, error in failed.items() if Fault.GONE not in error.fault}
            batch[0].undo(self._host)
        except MachineGoneError:
            return {}  # all changes are gone with the machine
        except NetbenchError as error:
            return dict.fromkeys(range(len(batch)), str(error))
        except (OSError, ValueError, LookupError) as error:  # a defect, which must not prevent other undos
            return dict.fromkeys(range(len(batch)), repr(error))
        return {}


def _kept_for(change: Change, stranded: Iterable[MovePort]) -> str:
    """Return why a change must stay until lent ports are moved back; empty where it need not."""
    for port in stranded:
        of_port = change.inside is None and getattr(change, "interface", "") == port.interface
        if of_port or (isinstance(change, AddNamespace) and change.name == port.netns):
            return f"it waits for the port {port.interface}, which is still in the network namespace {port.netns}"
    return ""


def _batches(changes: Iterable[Change], *, undoing: bool = False) -> Iterator[list[Change]]:
    """Return the changes in order, in batches that one command makes."""

    def tool(change: Change) -> object:
        if isinstance(change, KernelRequest):
            return change.undo_tool if undoing else change.tool
        return object()  # equal to no other: a separate batch

    return (list(batch) for _, batch in groupby(changes, tool))
