"""The seam between a campaign and what it measures next: all trials known beforehand, or chosen by results so far."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from pydantic import BaseModel

from netbench.config.plugins import SCHEDULES, plugins
from netbench.model.campaign import EndedSweep
from netbench.model.frame_mix import FrameSize
from netbench.model.profile import NoOptions, Profile
from netbench.model.scenario import VICTIM, Activity, Network, Off, Scenario
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.topology import Topology
from netbench.model.trial import Frames, GuestTask, TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Warning
from netbench.plan.costs import Costs


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a campaign is to measure: these UUTs, by name, in these scenarios of a profile."""

    topology: Topology
    profile: Profile
    uuts: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    costs: Costs = field(default_factory=Costs)
    finds_maximum: bool = False  # and nothing else: as TrialSpec has it

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of a victim."""
        return tuple(stream.name for stream in self.topology.own_streams)

    def trial(
        self,
        uut: str,
        scenario: Scenario,
        frame_size: FrameSize,
        load: Load,
        repetition: int,
        *,
        index: int,
        sources: int = 0,
        phase: int = 1,
        boot: int = 1,
        duration_s: float | None = None,
        first: tuple[float, float] | None = None,
        benchmark: str = "",
        restart_at_s: float | None = None,
        catch_up: float | None = None,
    ) -> TrialSpec:
        """A trial with so many of the victim's streams (0: all), of `duration_s`, and otherwise as the profile says.

        Trials that follow each other with the same `boot` are measured on one start of the UUT. `first` is the rate,
        in frames/s, that its sources send at first, and for how many seconds: `load` is the mean then. `benchmark`,
        `restart_at_s` and `catch_up` as of TrialSpec.
        """
        profile, streams = self.profile, self.streams[: sources or None]
        if duration_s is not None and duration_s != profile.duration:
            warm_up = profile.warm_up and profile.warm_up * duration_s / profile.duration
            profile = profile.model_copy(update={"duration": duration_s, "warm_up": warm_up})
        times = profile.duration, profile.warm_up_s
        victim = _task(profile, VICTIM, Network(load, None, frame_size), streams, *times)
        if first is not None:
            victim = replace(victim, first_fps=first[0], first_s=first[1])
        times = profile.neighbours_duration, profile.settle.before + profile.warm_up_s
        neighbours = [
            _task(profile, one.name, does, one.streams, *times)
            for one in self.topology.neighbours
            if not isinstance(does := self.topology.activity(scenario, one.name), Off)
        ]
        return TrialSpec(
            index=index,
            uut=uut,
            scenario=scenario.name,
            guests=(victim, *neighbours),
            repetition=repetition,
            phase=phase,
            boot=boot,
            settle_before_s=profile.settle.before,
            settle_after_s=profile.settle.after,
            drain_limit_s=profile.drain_limit,
            tolerance=profile.tolerance,
            max_lateness_s=profile.max_lateness,
            benchmark=benchmark,
            restart_at_s=restart_at_s,
            finds_maximum=self.finds_maximum,
            catch_up=catch_up,
        )


class Schedule(ABC):
    """Hands out trials, one after the other. Named in a profile by its kind, as installed in `netbench.schedules`."""

    Options: ClassVar[type[BaseModel]] = NoOptions  # how a profile describes this kind of schedule
    wants_steady: ClassVar[bool] = False  # sources and sinks that could choose by the load are to be the same at all
    # How it describes one of it that finds maxima, as `searches` with one goal for each UUT and frame size; None: none.
    MaximaOptions: ClassVar[type[BaseModel] | None] = None

    def __init__(self, wanted: Wanted, options: BaseModel) -> None:
        """UsageError when it cannot measure what is wanted."""
        self.wanted = wanted
        self.options = options

    @abstractmethod
    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """What follows, given the results so far by key of their trials; None when everything is measured.

        A result instead of a trial says why that one cannot be measured, and is stored for it. Whatever is handed out
        is in the results when this is called again, also in another process after the campaign was stopped: what
        follows must depend on nothing but the results.
        """

    @property
    def trials(self) -> Sequence[TrialSpec] | None:
        """All trials in order, where they are known beforehand; None where they depend on results."""
        return None

    @property
    def planned(self) -> Sequence[TrialSpec]:
        """Those that are known beforehand, in order: all of `trials`, or what follows those that results decide on.

        In the campaign they are numbered from where these end.
        """
        return self.trials or ()

    @property
    def added(self) -> Sequence[TrialSpec]:
        """Those that results called for beyond the planned ones, so far."""
        return ()

    @property
    def announced(self) -> Sequence[str]:
        """What is measured before the planned trials, in words, a line each; mostly nothing."""
        return ()

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The names of the scenarios of all trials, where these are known beforehand; else of those that are wanted."""
        known = [trial.scenario for trial in self.planned]
        return tuple(dict.fromkeys(known or (case.name for case in self.wanted.scenarios)))

    @property
    def ended_sweeps(self) -> Sequence[EndedSweep]:
        """The sweeps of which next() has left out the trials that were to come, so far; mostly none."""
        return ()

    @property
    def remarks(self) -> Sequence[Warning]:
        """What a reader of the results must know of how it measures; mostly nothing."""
        return ()

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The numbers of sources and frame sizes at which it needs the ceiling of the sources; mostly none."""
        return ()

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Take the ceilings that were calibrated for the campaign, before next() is called.

        A resumed campaign hands in those of its manifest, so that the same trials follow from the same results.
        """
        return

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """The ceilings that the schedule found itself, by trials through a UUT, so far; mostly none."""
        return ()

    @property
    def searches(self) -> Sequence[SearchResult]:
        """What was found of each search that was begun, so far; none where nothing is searched for."""
        return ()

    def expected_number(self, done: Collection[str]) -> int | None:
        """How many trials there will be in all, those with these keys among them; None where that is unknown.

        Where results decide what follows it is an estimate.
        """
        return None if self.trials is None else len(self.trials)

    def expected_s(self, done: Collection[str]) -> float | None:
        """How long all but the trials with these keys should take, in seconds; None where nobody knows."""
        if self.trials is None:
            return None
        return self.wanted.costs.expected_s(trial for trial in self.trials if trial.key not in done)


class AroundSchedule(Schedule):
    """Does something before or with the trials of another schedule, and is as that one in all else."""

    def __init__(self, main: Schedule) -> None:
        """Never refuses."""
        super().__init__(main.wanted, main.options)
        self._main = main

    @property
    def planned(self) -> Sequence[TrialSpec]:
        """Those of the main schedule."""
        return self._main.planned

    @property
    def announced(self) -> Sequence[str]:
        """Likewise."""
        return self._main.announced

    @property
    def ended_sweeps(self) -> Sequence[EndedSweep]:
        """Likewise."""
        return self._main.ended_sweeps

    @property
    def remarks(self) -> Sequence[Warning]:
        """Likewise."""
        return self._main.remarks

    @property
    def searches(self) -> Sequence[SearchResult]:
        """Likewise."""
        return self._main.searches

    def expected_s(self, done: Collection[str]) -> float | None:
        """As the main schedule expects it."""
        return self._main.expected_s(done)


def schedule_kind(name: str) -> type[Schedule]:
    """The kind of schedule of this name, which profiles may name."""
    kind: type[Schedule] = plugins(SCHEDULES)[name]
    return kind


def _task(
    profile: Profile, name: str, activity: Activity, streams: Sequence[str], duration_s: float, warm_up_s: float
) -> GuestTask:
    if not isinstance(activity, Network):
        return GuestTask(name, activity)
    load = activity.load
    traffic = None if load is None else Frames(activity.frame_size, load, profile.flows, profile.seed)
    return GuestTask(name, activity, tuple(streams), traffic, duration_s, warm_up_s)
