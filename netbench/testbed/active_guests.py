"""A running UUT and its running neighbours, and the loads inside them."""

from collections.abc import Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from netbench.errors import TestbedError
from netbench.loads.stress_ng import NeighbourLoad, StressLoad
from netbench.model.scenario import VICTIM
from netbench.model.topology_specs import UutSpec
from netbench.model.trial import GuestTask, TrialSpec
from netbench.testbed.testbed import Testbed
from netbench.trial.setup import TrialSetup
from netbench.uut.base import ActiveGuest


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
        return self._testbed.setup(guests, loads)

    def _load(self, task: GuestTask) -> NeighbourLoad:
        guest = self._neighbours[task.name]
        inside = guest.ready.inside
        if inside is None or task.load is None:
            raise TestbedError(f"neighbour {task.name}: there is no way to run a load inside it")
        return StressLoad(f"neighbour {task.name}", inside, task.load, gives_way=guest.plan.own_kernel)
