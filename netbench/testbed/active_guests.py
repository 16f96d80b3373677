"""A UUT that is up and those of its neighbours that are: who is there, and what each does in a trial."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from netbench.errors import TestbedError
from netbench.loads.base import Neighbour
from netbench.loads.idle import Idle
from netbench.loads.stress_ng import StressLoad
from netbench.model.profile import Profile
from netbench.model.scenario import Activity, Network, Stress
from netbench.model.topology import Topology, UutSpec
from netbench.model.trial import TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.testbed.testbed import Testbed
from netbench.trial.setup import Companion
from netbench.uut.base import ActiveGuest


class Household:
    """As a context manager, it ends the neighbours when the block is left; the UUT is the caller's."""

    def __init__(self, testbed: Testbed, topology: Topology, spec: UutSpec, active: ActiveGuest) -> None:
        self.active = active
        self._testbed = testbed
        self._topology = topology
        self._spec = spec
        self._stack = ExitStack()
        self._present: dict[str, ActiveGuest] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disperse()

    @property
    def company(self) -> tuple[str, ...]:
        """The neighbours that are there."""
        return tuple(self._present)

    def gather(self, names: Sequence[str]) -> None:
        """Have these neighbours there, ready, and no others; NeighbourError when one does not come up."""
        if set(names) == set(self._present):
            return
        self.disperse()
        for name in names:
            self._present[name] = self._stack.enter_context(self._testbed.neighbour(self._spec, name))

    def disperse(self) -> None:
        """End all neighbours."""
        self._present.clear()
        self._stack.close()

    def log(self) -> dict[str, str]:
        """What each neighbour wrote to its console."""
        return {name: guest.uut.console() for name, guest in self._present.items()}

    def facts(self) -> dict[str, str]:
        """What a reader of the results must know of the UUT, and of its neighbours."""
        facts = dict(self._testbed.facts(self.active))
        for name, guest in self._present.items():
            facts |= {f"{name}: {fact}": value for fact, value in guest.ready.facts.items()}
        return facts

    def companions(self, spec: TrialSpec, profile: Profile, maxima: Mapping[int, float]) -> tuple[Companion, ...]:
        """What each neighbour that is there does in a trial.

        `maxima` has the frames per second that shares of a maximum refer to, by frame size.
        """
        scenario = profile.scenario(spec.scenario)
        return tuple(self._companion(name, self._topology.activity(scenario, name), maxima) for name in self._present)

    def _companion(self, name: str, activity: Activity, maxima: Mapping[int, float]) -> Companion:
        guest = self._present[name]
        if not isinstance(activity, Network):
            return Companion(name, guest, self._load(name, guest, activity), str(activity))
        rate = activity.load
        if activity.share is not None:
            rate = Load(LoadKind.FRAME_RATE, maxima[activity.frame_size] * activity.share / 100)
        streams = next(one.streams for one in self._topology.neighbours if one.name == name)
        return Companion(name, guest, Idle(), str(activity), streams, activity.frame_size, rate)

    def _load(self, name: str, guest: ActiveGuest, activity: Activity) -> Neighbour:
        if not isinstance(activity, Stress):
            return Idle()
        inside = guest.ready.inside
        if inside is None:
            raise TestbedError(f"neighbour {name}: there is no way to run a load inside it")
        return StressLoad(f"neighbour {name}", inside, activity, gives_way=guest.plan.own_kernel)
