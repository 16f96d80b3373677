"""Everything one result directory says, in memory: what reports, exports and comparisons are made from."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from netbench.model.frame_mix import FrameSize, size_text
from netbench.model.noise_floor import NoiseFloor
from netbench.model.search import SearchResult
from netbench.model.trial import TrialResult
from netbench.model.verdict import Warning
from netbench.model.virtualisation import Setting


@dataclass(frozen=True, slots=True)
class Maximum:
    """The highest throughput of one stream of a UUT at one frame size, of so many `sources` at once.

    What neighbours are made to forward is a share of it, which it had while they were idle (Schlosser et al. 2011,
    section 3.4), and so may be the loads of the UUT itself. With `limited_by` it is a
    lower bound of that, for this reason. More than `held_fps` the sources do not hold beside it, where that is known.
    `goal` is that of the search by which it was found; empty: it was found among
    the loads of the profile.
    """

    uut: str
    frame_size: FrameSize  # bytes with FCS
    fps: float  # frames per second per stream, the mean over `repetitions`
    load: str  # the load per stream it was reached at, as the profile has it
    repetitions: int  # of a search its trials
    limited_by: str = ""
    held_fps: float | None = None
    goal: str = ""
    sources: int = 1


@dataclass(frozen=True, slots=True)
class EndedSweep:
    """A sweep that was over at these loads, as they were saturated one after the other, and what it left out for that.

    Loads are as the profile has them, upwards.
    """

    uut: str
    scenario: str
    streams: tuple[str, ...]
    frame_size: FrameSize  # bytes with FCS
    saturated_loads: tuple[str, ...]
    skipped_loads: tuple[str, ...]
    skipped_trials: int

    def __str__(self) -> str:
        return (
            f"{self.uut}, {self.scenario}, {'+'.join(self.streams)}, {size_text(self.frame_size, ' bytes')}: "
            f"saturated at {', '.join(self.saturated_loads)}; skipped {', '.join(self.skipped_loads)}"
        )


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of a UUT; None is unknown.

    `start_s` is from when netbench began to set it up until it forwarded, in seconds; `memory_bytes` what its own
    processes took of its machine then.
    """

    uut: str
    number: int  # as of its trials
    start_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WarmUpTrial:
    """A trial that was made to warm a boot up, and is part of no mean: the `number`th of its boot, from 1."""

    number: int
    result: TrialResult


@dataclass(frozen=True, slots=True)
class CampaignResults:
    """A campaign as stored, finished or not.

    `trials` are the kept attempts in plan order, which may be read from a disk each time somebody goes through them;
    `planned_trials` tells how many there should be. `manifest` is manifest.json: the environment before and after,
    versions, seed, command line. `facts` are what each UUT said of itself once it was ready; none of a UUT that never
    was. `maxima` are what loads of neighbours that are a share of one refer to, and `maxima_searches` how these were
    searched for. `ended_sweeps` left out some of the planned trials. `searches` are what trials were made for that no
    plan had. `trials` need not have what their counters said: `added_up` has trials whose counters are those of several
    with the same ones added up, the verdict and UUT the same too, and of how many.
    `warm_ups` are not among `trials`. `noise_floor` is that of the host, measured at the start; None: unknown.
    """

    topology: str
    profile: str
    planned_trials: int
    uuts: tuple[str, ...]  # in the order of the topology
    trials: Sequence[TrialResult]
    warnings: tuple[Warning, ...]
    manifest: Mapping[str, object]
    facts: Mapping[str, Mapping[str, str]]
    maxima: tuple[Maximum, ...] = ()
    ended_sweeps: tuple[EndedSweep, ...] = ()
    searches: tuple[SearchResult, ...] = ()
    maxima_searches: tuple[SearchResult, ...] = ()
    added_up: Iterable[tuple[TrialResult, int]] = ()
    boots: tuple[Boot, ...] = ()
    warm_ups: Iterable[WarmUpTrial] = ()
    noise_floor: NoiseFloor | None = None

    @property
    def wanted_trials(self) -> Iterator[TrialResult]:
        """The trials that were asked for, without those that only found what neighbours' loads are a share of."""
        return (trial for trial in self.trials if not trial.spec.finds_maximum)

    @property
    def in_memory(self) -> "CampaignResults":
        """The same with its trials read once, without what their counters said: for who goes through them often."""
        return replace(self, trials=tuple(trial.without_counters for trial in self.trials))

    @property
    def skipped_trials(self) -> int:
        """How many planned trials are not measured, as their sweeps were over before."""
        return sum(one.skipped_trials for one in self.ended_sweeps)

    @property
    def emulated(self) -> frozenset[str]:
        """The UUTs whose CPU is emulated: their numbers describe the emulator."""
        return frozenset(uut for uut, setting in self.settings.items() if setting.emulators)

    @property
    def settings(self) -> dict[str, Setting]:
        """Where each UUT that said anything of itself ran."""
        return {uut: Setting.of(facts) for uut, facts in self.facts.items()}

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The scenarios that were chosen, in the order of the profile."""
        listed = self.manifest.get("scenarios", ())
        return tuple(listed) if isinstance(listed, list | tuple) else ()
