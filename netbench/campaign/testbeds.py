"""The testbeds of a campaign, one up at a time; the testbed of UUTs that are `on` a VM is inside that VM.

On it run a UUT, its neighbours, and the loads inside them.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Self

from netbench.errors import MachineGoneError, MissingError, TestbedError, UutError
from netbench.hosts.clock import wait_until
from netbench.linux.locks import OtherMeasurement
from netbench.loads.stress_ng import NeighbourLoad, StressLoad
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import GuestTask, TrialSpec
from netbench.testbed.resolved import Resolved
from netbench.testbed.testbed import Testbed
from netbench.trial.setup import TrialSetup
from netbench.uut.base import ActiveGuest

# How long lost hosts may take to come back, and the interval between attempts.
_BACK_S, _AGAIN_S = 60.0, 3.0


class Testbeds:
    """A context manager that takes down the present testbed at the end of the block; MachineGoneError as in lose().

    `opening` brings up a testbed. `opened` is called with each testbed after the first.
    """

    __test__ = False

    def __init__(self, resolved: Resolved, opening: Callable[[Resolved], AbstractContextManager[Testbed]]) -> None:
        self.opened: Callable[[Testbed], None] = lambda _: None
        self._resolved, self._opening = resolved, opening
        self._stack = ExitStack()
        self._up: tuple[str | None, Testbed] | None = None
        self._is_first = True
        self._lost: MachineGoneError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._up = None
        self._stack.__exit__(kind, error, trace)
        if self._lost is not None and error is None:
            raise self._lost

    def of(self, uut: str) -> Testbed:
        """Return the testbed of a UUT, by its name; any other testbed is taken down first.

        Raises the exceptions of bringing up and taking down. If a VM other than the first testbed does not come up,
        UutError is raised.
        """
        on = self.place_of(uut)
        if self._up is not None and self._up[0] == on:
            return self._up[1]
        self._close()
        resolved = self._resolved.on(on)
        try:
            if self.can_lose_hosts and not self._is_first:
                testbed = self._opened_again(resolved)
            else:
                testbed = self._stack.enter_context(self._opening(resolved))
        except (TestbedError, MissingError) as error:
            if on is None or self._is_first:
                raise
            raise UutError(str(error)) from error
        self._up, self._is_first, self._lost = (on, testbed), False, None
        self.opened(testbed)
        return testbed

    def _opened_again(self, resolved: Resolved) -> Testbed:
        """Bring up a testbed with SSH hosts, of which a lost one may come back; TestbedError if it does not."""
        opened: list[Testbed] = []
        reason = ""

        def is_open() -> bool:
            nonlocal reason
            try:
                opened.append(self._stack.enter_context(self._opening(resolved)))
            except (TestbedError, MissingError) as error:
                reason = str(error)
            return bool(opened)

        if not wait_until(is_open, _BACK_S, _AGAIN_S):
            raise TestbedError(f"a host that was lost did not come back within {_BACK_S:g} s: {reason}")
        return opened[0]

    @property
    def can_lose_hosts(self) -> bool:
        """True if it has hosts that are reached by SSH: a lost host may come back."""
        return bool(self._resolved.topology.ssh_hosts)

    def place_of(self, uut: str) -> str | None:
        """Return the VM of a UUT, by the name of the UUT; None if it is not on a VM."""
        return self._resolved.topology.uut(uut).on

    def others(self) -> Sequence[OtherMeasurement]:
        """Return the other campaigns that have measured on this machine since this campaign began."""
        return self._up[1].others() if self._up else []

    def interfaces(self) -> dict[str | None, list[str]]:
        """Return the interfaces of the present testbed on this machine, by network namespace."""
        return self._up[1].interfaces() if self._up else {}

    def lose(self) -> None:
        """Take down the present testbed, which has lost a machine.

        Changes left on that machine are undone when the next testbed is brought up. If none follows, the end of the
        block raises MachineGoneError.
        """
        try:
            self._close()
        except MachineGoneError as error:
            self._lost = error

    def _close(self) -> None:
        self._up = None
        self._stack.close()


class ActiveGuests:
    """The UUT and its neighbours. As a context manager it ends the neighbours on exit; the caller ends the UUT."""

    def __init__(self, testbed: Testbed, spec: UutSpec, active: ActiveGuest) -> None:
        self.active = active
        self._testbed = testbed
        self._spec = spec
        self._stack = ExitStack()
        self._neighbours: dict[str, ActiveGuest] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end_neighbours()

    @property
    def name(self) -> str:
        """The name of the UUT."""
        return self._spec.name

    @property
    def neighbours(self) -> tuple[str, ...]:
        """The names of the running neighbours."""
        return tuple(self._neighbours)

    def have(self, names: Sequence[str]) -> None:
        """Run exactly these neighbours and wait until they are ready; NeighbourError when one does not come up."""
        if set(names) == set(self._neighbours):
            return
        self.end_neighbours()
        for name in names:
            self._neighbours[name] = self._stack.enter_context(self._testbed.neighbour(self._spec, name))

    def end_neighbours(self) -> None:
        """End all neighbours."""
        self._neighbours.clear()
        self._stack.close()

    def consoles(self) -> dict[str, str]:
        """Return the console output of each neighbour."""
        return {name: guest.uut.console() for name, guest in self._neighbours.items()}

    def facts(self) -> dict[str, str]:
        """Return the facts about the UUT and its neighbours that a reader of the results needs."""
        facts = {**self._testbed.facts(self.active), **self._testbed.receiving_facts(self.name)}
        for name, guest in self._neighbours.items():
            facts |= {f"{name}: {fact}": value for fact, value in guest.ready.facts.items()}
        return facts

    def setup(self, trial: TrialSpec) -> TrialSetup:
        """Return the set-up of a trial, with the loads of its tasks; the guests of the tasks must be running."""
        guests = {VICTIM: self.active, **self._neighbours}
        loads = {task.name: self._load(task) for task in trial.guests if task.load is not None}
        serves = any(task.serves for task in trial.guests)
        return self._testbed.setup(guests, loads, serves=serves)

    @property
    def end_connections(self) -> bool:
        """Whether the host of a running guest ends connections for it."""
        return any(guest.uut.ends_connections for guest in (self.active, *self._neighbours.values()))

    def _load(self, task: GuestTask) -> NeighbourLoad:
        guest = self._neighbours[task.name]
        inside = guest.ready.inside
        if inside is None or task.load is None:
            raise TestbedError(f"neighbour {task.name}: there is no way to run a load inside it")
        return StressLoad(f"neighbour {task.name}", inside, task.load, gives_way=guest.plan.own_kernel)
