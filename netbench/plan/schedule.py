"""The interface that selects the next trial of a campaign, from a fixed list or from the results so far.

`CampaignPlan` lists what to measure. `Costs` estimates how long trials and starts take.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from math import inf
from typing import ClassVar

from pydantic import BaseModel

from netbench.config.plugins import SCHEDULES, origin, plugins
from netbench.errors import TestbedError
from netbench.model.campaign import EndedSweep
from netbench.model.frame_size import FrameSize
from netbench.model.profile import NoOptions, Profile
from netbench.model.scenario import VICTIM, Activity, Idle, Network, Off, Scenario, Serve
from netbench.model.search import SearchResult
from netbench.model.source_ceiling import SourceCeiling
from netbench.model.topology import Topology
from netbench.model.trial import GuestTask, TrialFrames, TrialResult, TrialSpec
from netbench.model.units import Load, LoadKind
from netbench.model.verdict import CampaignWarning
from netbench.model.virtualisation import DurationEstimate
from netbench.model.workload import Workload

_NO_TIME = DurationEstimate()
# The kinds of traffic that a schedule may measure.
FRAMES, FLOWS = "frames", "flows"


@dataclass(frozen=True, slots=True)
class VmCosts:
    """Extra time of a testbed with VMs and of a trial on it, in seconds; `vm` is the VM of its UUTs."""

    vm: str | None = None
    start_s: float = 0.0
    trial_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Costs:
    """The time of a campaign in addition to traffic and pauses, in seconds, as measured on two shared cores.

    `start_s` is the time to bring a testbed up, which happens each time that UUTs with other `vms` follow. `vms` are by
    UUT; UUTs without an entry need no VM. `trial_s` is for arming, draining, analysing and storing, `stream_s` for each
    further stream in a trial, `flows_s` for servers and taps in a trial with flows. `guests` contains the extra time of
    each UUT (`NAME`) and neighbour (`UUT.NAME`). Each boot begins with `warm_up_trials`.
    """

    start_s: float = 0.0
    trial_s: float = 0.16
    flows_s: float = 1.6
    stream_s: float = 0.08
    guests: Mapping[str, DurationEstimate] = field(default_factory=dict)
    vms: Mapping[str, VmCosts] = field(default_factory=dict)
    warm_up_trials: int = 0

    def expected_s(self, trials: Iterable[TrialSpec]) -> float:
        """Return the expected time of these trials in this order, in seconds, including the start of guests."""
        return sum(before_s + trial_s for _, before_s, trial_s in self.each(trials)) or self.start_s

    def each(self, trials: Iterable[TrialSpec]) -> Iterator[tuple[TrialSpec, float, float]]:
        """Yield each trial with the seconds to bring something up before it, and those of the trial itself."""
        for vms, on_same_vms in groupby(trials, key=lambda trial: self._vms(trial.uut)):
            before_s = self.start_s + vms.start_s
            for (uut, _), on_one_boot in groupby(on_same_vms, key=lambda trial: (trial.uut, trial.boot)):
                own = list(on_one_boot)
                before_s += self._of(uut).bring_up_s + self.warm_up_trials * self._trial_s(own[0])
                for neighbours, beside in groupby(own, key=lambda trial: [guest.name for guest in trial.neighbours]):
                    before_s += sum(self._of(f"{uut}.{name}").bring_up_s for name in neighbours)
                    for trial in beside:
                        yield trial, before_s, self._trial_s(trial)
                        before_s = 0.0

    def _trial_s(self, trial: TrialSpec) -> float:
        expected = trial.duration_s + trial.settle_before_s + trial.settle_after_s
        expected += self.trial_s + self._vms(trial.uut).trial_s + self._of(trial.uut).trial_s
        expected += (len(trial.streams) - 1) * self.stream_s + (self.flows_s if trial.serves else 0.0)
        longest_s = trial.settle_before_s + trial.duration_s
        for neighbour in trial.neighbours:
            pace = self._of(f"{trial.uut}.{neighbour.name}")
            if neighbour.streams:
                longest_s = max(longest_s, neighbour.duration_s)
                expected += pace.trial_s + len(neighbour.streams) * self.stream_s
            elif neighbour.load is not None:
                expected += pace.idle_s + pace.load_s + (neighbour.load.cpu + neighbour.load.vm) * pace.worker_s
            elif isinstance(neighbour.activity, Idle):
                expected += pace.idle_s
        return expected + longest_s - trial.settle_before_s - trial.duration_s

    def _vms(self, uut: str) -> VmCosts:
        return self.vms.get(uut, VmCosts())

    def _of(self, guest: str) -> DurationEstimate:
        return self.guests.get(guest, _NO_TIME)


@dataclass(frozen=True, slots=True)
class CampaignPlan:
    """The plan of a campaign: these UUTs, by name, in these scenarios of a profile.

    `unsupported` has the reasons why a UUT cannot forward a packet, by UUT and name of the packet, or size and packet
    (`1518 vxlan`), or why it cannot serve a workload, by its name: such trials are left out.
    """

    topology: Topology
    profile: Profile
    uuts: tuple[str, ...]
    scenarios: tuple[Scenario, ...]
    costs: Costs = field(default_factory=Costs)
    finds_maximum: bool = False  # and nothing else, as in TrialSpec
    unsupported: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def carries(self, uut: str, traffic: FrameSize | Workload) -> bool:
        """Return whether a UUT can forward frames of this size and packet, or serve this workload."""
        reasons = self.unsupported.get(uut, {})
        if isinstance(traffic, Workload):
            return traffic.name not in reasons
        if self.profile.tool and all(workload.name in reasons for workload in self.profile.tool):
            return False
        size = traffic
        return size.packet not in reasons and not (size.packet and str(size) in reasons)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams of a victim."""
        return tuple(stream.name for stream in self.topology.own_streams)

    def trial(
        self,
        uut: str,
        scenario: Scenario,
        traffic: FrameSize | Workload,
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
        """Return a trial with `sources` of the victim's streams (0: all), of `duration_s`, otherwise as in the profile.

        Consecutive trials with the same `boot` are measured on one start of the UUT. `first` is the initial rate of its
        sources, in frames/s, and its duration in s; `load` is then the mean. `benchmark`, `restart_at_s` and `catch_up`
        are those of TrialSpec.
        """
        profile, streams = self.profile, self.streams[: sources or None]
        if duration_s is not None and duration_s != profile.duration:
            warm_up = profile.warm_up and profile.warm_up * duration_s / profile.duration
            profile = profile.model_copy(update={"duration": duration_s, "warm_up": warm_up})
        times = profile.duration, profile.warm_up_s
        carries = Serve(traffic, load) if isinstance(traffic, Workload) else Network(load, None, traffic)
        victim = _task(profile, VICTIM, carries, streams, *times)
        if first is not None:
            victim = replace(victim, first_fps=first[0], first_s=first[1])
        times = profile.neighbours_duration, profile.settle.before + profile.warm_up_s
        neighbours = [
            _task(profile, neighbour.name, does, neighbour.streams, *times)
            for neighbour in self.topology.neighbours
            if not isinstance(does := self.topology.activity(scenario, neighbour.name), Off)
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
    """A sequence of trials. A profile names its kind, as registered in the entry points `netbench.schedules`."""

    Options: ClassVar[type[BaseModel]] = NoOptions  # options of this kind of schedule in a profile
    traffic: ClassVar[frozenset[str]] = frozenset({FRAMES})  # that it can measure: frames, flows of tools, or both
    wants_steady: ClassVar[bool] = False  # sources and sinks that choose by the load must be the same at all loads
    # Options of one that finds maxima, as `searches` with one goal for each UUT and frame size; None: it finds none.
    MaximaOptions: ClassVar[type[BaseModel] | None] = None

    def __init__(self, plan: CampaignPlan, options: BaseModel) -> None:
        """UsageError if the schedule cannot measure this plan."""
        self.plan = plan
        self.options = options

    @abstractmethod
    def next(self, results: Mapping[str, TrialResult]) -> TrialSpec | TrialResult | None:
        """Return the next trial, given the results so far by key of their trials; None if everything is measured.

        A result instead of a trial contains the reason why that trial cannot be measured, and is stored for it. When
        this is called again, `results` contains everything that was returned before, also in another process after the
        campaign was stopped. The next trial must depend only on the results.
        """

    @property
    def trials(self) -> Sequence[TrialSpec] | None:
        """All trials in order, if they are known beforehand; None if they depend on results."""
        return None

    @property
    def tried_loads(self) -> Sequence[Load]:
        """Loads of the victim that it will try, so that impossible ones are found beforehand; those of the profile."""
        return self.plan.profile.loads

    @property
    def response_limit_s(self) -> float | None:
        """The limit of response times in a search for the highest rate of a tool, in seconds; None without a limit."""
        return None

    @property
    def objective(self) -> str:
        """The objective of a search in words; empty for other schedules."""
        return ""

    @property
    def planned(self) -> Sequence[TrialSpec]:
        """The trials that are known beforehand, in order: all of `trials`, or those after ones that depend on results.

        In the campaign, their numbers continue after the latter.
        """
        return self.trials or ()

    @property
    def added(self) -> Sequence[TrialSpec]:
        """The trials that results required in addition to the planned ones, so far."""
        return ()

    @property
    def announced(self) -> Sequence[str]:
        """Descriptions of the measurements before the planned trials, one per line; usually none."""
        return ()

    @property
    def scenarios(self) -> tuple[str, ...]:
        """The names of the scenarios of all planned trials; if none are known beforehand, of the whole plan."""
        known = [trial.scenario for trial in self.planned]
        return tuple(dict.fromkeys(known or (case.name for case in self.plan.scenarios)))

    @property
    def ended_sweeps(self) -> Sequence[EndedSweep]:
        """The sweeps whose remaining trials next() has skipped, so far; usually none."""
        return ()

    @property
    def remarks(self) -> Sequence[CampaignWarning]:
        """Warnings for readers of the results about the method of this schedule; usually none."""
        return ()

    @property
    def needed_ceilings(self) -> Collection[tuple[int, FrameSize]]:
        """The numbers of sources and frame sizes for which it needs the ceiling of the sources; usually none."""
        return ()

    def use_ceilings(self, ceilings: Sequence[SourceCeiling]) -> None:
        """Use the ceilings that were calibrated for the campaign; called before next().

        A resumed campaign passes those of its manifest, so that the same results lead to the same trials.
        """
        return

    @property
    def ceilings(self) -> Sequence[SourceCeiling]:
        """The ceilings that the schedule itself found so far, by trials through a UUT; usually none."""
        return ()

    @property
    def searches(self) -> Sequence[SearchResult]:
        """The results so far of each search that was begun; none without a search."""
        return ()

    def expected_number(self, done: Collection[str]) -> int | None:
        """Return the total number of trials, including those with these keys; None if unknown.

        It is an estimate if the trials depend on results.
        """
        return None if self.trials is None else len(self.trials)

    def expected_s(self, done: Collection[str]) -> float | None:
        """Return the expected time of all trials except those with these keys, in seconds; None if unknown."""
        if self.trials is None:
            return None
        return self.plan.costs.expected_s(trial for trial in self.trials if trial.key not in done)


def schedule_kind(name: str) -> type[Schedule]:
    """Return the kind of schedule that profiles select by this name."""
    kind: type[Schedule] = plugins(SCHEDULES)[name]
    return kind


def _task(
    profile: Profile, name: str, activity: Activity, streams: Sequence[str], duration_s: float, warm_up_s: float
) -> GuestTask:
    if isinstance(activity, Serve):
        return GuestTask(name, activity, tuple(streams), None, duration_s, warm_up_s)
    if not isinstance(activity, Network):
        return GuestTask(name, activity)
    load = activity.load
    traffic = None if load is None else TrialFrames(activity.frame_size, load, profile.flows, profile.seed)
    return GuestTask(name, activity, tuple(streams), traffic, duration_s, warm_up_s)


def refuse_wrong_trial(trial: object, schedule: Schedule, uuts: Collection[str], done: Container[str]) -> None:
    """Raise TestbedError for something that a schedule must not return as its next trial."""
    kind = schedule.plan.profile.schedule.kind
    package = origin(SCHEDULES, kind)
    who = f"the schedule {kind}{f' (package {package})' if package else ''} returned"
    if not isinstance(trial, TrialSpec):
        raise TestbedError(f"{who} {trial!r} instead of a trial")
    if trial.uut not in uuts:
        raise TestbedError(f"{who} a trial of {trial.uut}, which is no UUT of this campaign: {', '.join(uuts)}")
    if trial.load.kind is not LoadKind.MAX and not 0 < trial.load.value < inf:
        raise TestbedError(f"{who} a trial with the load {trial.load}: a load must be above 0")
    if trial.key in done:
        raise TestbedError(f"{who} the trial {trial.key} again, which has been measured")
