"""The content of one result directory in memory: the input of reports, exports and comparisons."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT, LimitCause
from netbench.model.search import SearchResult
from netbench.model.trial import TrialResult
from netbench.model.verdict import CampaignWarning
from netbench.model.virtualisation import Setting


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """The variation between repeats of one fixed `trial`, measured at the start of a campaign.

    `half_width` is a ratio of the mean: 95 % of repeats with the duration of a campaign trial lie within the mean ±
    this ratio. The `repeats` themselves are shorter; `throughputs_fps` are their throughputs in frames/s. `run_to_run`
    is the 95 % half width, as a ratio, of the variation of maxima between runs on this kind of host. It is not
    measured.
    """

    half_width: float
    repeats: int
    trial: str
    throughputs_fps: tuple[float, ...] = ()
    run_to_run: float = 0.0

    def __str__(self) -> str:
        percent = f"{100 * self.half_width:.0f}" if self.half_width >= 0.01 else f"{100 * self.half_width:.1g}"
        text = f"This host varies by ±{percent} % between repeats. Intervals of throughput under overload include this."
        if not self.run_to_run:
            return text
        more = f"another ±{100 * self.run_to_run:.0f} %, the variation between runs"
        return f"{text} It is a virtual machine: intervals of maxima contain {more}."


@dataclass(frozen=True, slots=True)
class Maximum:
    """The highest throughput of one stream of a UUT at one frame size, of so many `sources` at once.

    Loads of neighbours are a share of it; it was measured while they were idle (Schlosser et al. 2011, section 3.4).
    Loads of the UUT itself may be a share of it too. `limited_by` another limit than the UUT, it is a lower bound.
    `held_fps` is the most that the sources sustain beside the UUT; None: unknown. `goal` is the goal of the search that
    found it; empty: it was found among the loads of the profile.
    """

    uut: str
    frame_size: FrameSize  # bytes with FCS
    fps: float  # frames per second per stream, the mean over `repetitions`
    load: str  # the load per stream at which it was reached, as the profile has it
    repetitions: int  # with a search: its trials
    limited_by: LimitCause = LIMITED_BY_UUT
    held_fps: float | None = None
    goal: str = ""
    sources: int = 1


@dataclass(frozen=True, slots=True)
class EndedSweep:
    """A sweep that ended early, because its last loads were saturated one after the other, and the loads it skipped.

    Loads are written as in the profile, in ascending order.
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
            f"{self.uut}, {self.scenario}, {'+'.join(self.streams)}, {self.frame_size.text(' bytes')}: "
            f"saturated at {', '.join(self.saturated_loads)}; skipped {', '.join(self.skipped_loads)}"
        )


@dataclass(frozen=True, slots=True)
class Boot:
    """One start of a UUT; None is unknown.

    `start_s` is the time from the begin of its set-up until it forwarded, in seconds. `memory_bytes` is the memory that
    its own processes used on its machine then.
    """

    uut: str
    number: int  # as in its trials
    start_s: float | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class WarmUpTrial:
    """A trial that only warmed a boot up, and is part of no mean: the `number`th of its boot, from 1."""

    number: int
    result: TrialResult


@dataclass(frozen=True, slots=True)
class CampaignResults:
    """A campaign as stored, finished or not.

    `trials` are the kept attempts in plan order, which may be read from disk at each iteration; `planned_trials` is
    their planned number. `manifest` is manifest.json: the environment before and after, versions, seed, command line.
    `facts` are those that each UUT reported once it was ready; empty for a UUT that never was. `maxima` are the maxima
    that loads of neighbours are a share of; `maxima_searches` are the searches for them. `ended_sweeps` skipped some of
    the planned trials. `searches` are those that made the trials if there was no plan. `trials` may lack the readings
    of counters. `added_up` has trials with added-up counters and their number: each stands for several trials with the
    same counters, verdict and UUT. `warm_ups` are not among `trials`. `noise_floor` is that of the host, measured at
    the start; None: unknown. `stream_hosts` are the hosts of the source and of the UUT of each stream, if known.
    """

    topology: str
    profile: str
    planned_trials: int
    uuts: tuple[str, ...]  # in the order of the topology
    trials: Sequence[TrialResult]
    warnings: tuple[CampaignWarning, ...]
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
    stream_hosts: Mapping[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def wanted_trials(self) -> Iterator[TrialResult]:
        """The requested trials, without those that only found the maxima for loads of neighbours."""
        return (trial for trial in self.trials if not trial.spec.finds_maximum)

    @property
    def has_flows(self) -> bool:
        """Whether its requested trials run flows to servers; those of other campaigns send frames through guests."""
        first = next(self.wanted_trials, None)
        return first is not None and first.spec.serves is not None

    @property
    def in_memory(self) -> "CampaignResults":
        """The same with its trials read once, without readings of counters: for several passes over them."""
        return replace(self, trials=tuple(trial.without_counters for trial in self.trials))

    @property
    def skipped_trials(self) -> int:
        """The number of planned trials that were not measured because their sweeps ended early."""
        return sum(sweep.skipped_trials for sweep in self.ended_sweeps)

    @property
    def missing_trials(self) -> int:
        """How many planned trials were neither measured nor skipped."""
        return self.planned_trials - len(self.trials) - self.skipped_trials

    @property
    def emulated(self) -> frozenset[str]:
        """The UUTs whose CPU is emulated: their numbers describe the emulator."""
        return frozenset(uut for uut, setting in self.settings.items() if setting.emulators)

    @property
    def settings(self) -> dict[str, Setting]:
        """The setting of each UUT that reported facts."""
        return {uut: Setting.of(facts) for uut, facts in self.facts.items()}

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The selected scenarios, in the order of the profile."""
        listed = self.manifest.get("scenarios", ())
        return tuple(listed) if isinstance(listed, list | tuple) else ()

    @property
    def packets(self) -> Mapping[str, object]:
        """The packets of the profile by name ("" is the plain one), in its order, as a user would write them."""
        described = self.manifest.get("packets", {})
        return described if isinstance(described, Mapping) else {}
