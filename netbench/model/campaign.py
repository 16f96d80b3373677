"""Everything one result directory says, in memory: what reports, exports and comparisons are made from."""

from collections.abc import Mapping
from dataclasses import dataclass

from netbench.model.maximum import Maximum
from netbench.model.trial import TrialResult
from netbench.model.verdict import Warning


@dataclass(frozen=True, slots=True)
class CampaignResults:
    """A campaign as stored, finished or not.

    `trials` are the kept attempts in plan order; `planned_trials` tells how many there should be.
    `manifest` is manifest.json: the environment before and after, versions, seed, command line. `facts` are
    what each UUT said of itself once it was ready; none of a UUT that never was. `maxima` are what loads of neighbours
    that are a share of one refer to.
    """

    topology: str
    profile: str
    planned_trials: int
    uuts: tuple[str, ...]  # in the order of the topology
    trials: tuple[TrialResult, ...]
    warnings: tuple[Warning, ...]
    manifest: Mapping[str, object]
    facts: Mapping[str, Mapping[str, str]]
    maxima: tuple[Maximum, ...] = ()

    @property
    def emulated(self) -> frozenset[str]:
        """The UUTs whose CPU is emulated: their numbers describe the emulator."""
        return frozenset(uut for uut, facts in self.facts.items() if "emulated" in facts)

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios in the order of the profile, then those that only trials name."""
        listed = self.manifest.get("scenarios", ())
        names = listed if isinstance(listed, list | tuple) else ()
        return tuple(dict.fromkeys((*names, *(trial.spec.scenario for trial in self.trials))))
