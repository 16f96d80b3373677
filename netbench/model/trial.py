"""A trial as planned and as measured: guests side by side, of which the first is the victim."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from operator import is_
from typing import Annotated

from pydantic import AfterValidator

from netbench.model.counts import PointCount, StreamCounts
from netbench.model.fields import LoadField, alike
from netbench.model.flow_result import FlowResult
from netbench.model.frame_size import FrameSize
from netbench.model.limits import LIMITED_BY_UUT, LimitCause
from netbench.model.scenario import VICTIM, ActivityField, Network, Serve, Stress
from netbench.model.stored_counts import CountsField
from netbench.model.tester import Disturbance, StreamEnds
from netbench.model.units import Load, LoadKind, nearest_rate
from netbench.model.verdict import Reason, ReasonKind, Verdict, worst
from netbench.model.workload import Workload

_FINDS_MAXIMUM = "/maximum"  # the suffix of the keys of trials that find a maximum


@dataclass(frozen=True, slots=True)
class TrialFrames:
    """Frames of one size, or a mix: each source sends them at `load`, with this number of flows drawn from `seed`."""

    size: FrameSize  # bytes with FCS
    load: LoadField
    flows: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class GuestTask:
    """The task of one guest in a trial.

    `traffic` is sent through it by the sources of its `streams`, each for `duration_s` seconds, of which the first
    `warm_up_s` are not measured. A guest that serves has clients there instead. `traffic` is None if the guest forwards
    nothing, and, for a neighbour, while the maximum that
    its load is a share of is unknown. With `first_fps` the sources send at that rate for `first_s` seconds, and the
    rest of all frames after that: the load is the mean. `share_of_less` is the reason if its share is one of a lower
    bound of the maximum; mostly empty. `is_less_than_share`: the load is below the share, because the sources sustain
    no more.
    """

    name: str
    activity: ActivityField
    streams: tuple[str, ...] = ()
    traffic: TrialFrames | None = None
    duration_s: float = 0.0
    warm_up_s: float = 0.0
    first_fps: float | None = None
    first_s: float = 0.0
    share_of_less: str = ""
    is_less_than_share: bool = False

    @property
    def load(self) -> Stress | None:
        """The load that it computes in addition to forwarding."""
        return self.activity if isinstance(self.activity, Stress) else None

    @property
    def serves(self) -> Serve | None:
        """Its activity, if it serves clients instead of forwarding frames."""
        return self.activity if isinstance(self.activity, Serve) else None

    @property
    def unknown_share(self) -> Network | None:
        """Its activity, if that is a share of a maximum which is still unknown."""
        return self.activity if isinstance(self.activity, Network) and self.traffic is None else None


@dataclass(frozen=True, slots=True)
class LoadReference:
    """The reference of loads that are shares: the maximum `rate` of each stream in the `unit`, and its limit.

    `held_fps` is the most frames/s that the sources sustain beside the UUT, if it is known.
    """

    rate: float
    limited_by: LimitCause = LIMITED_BY_UUT
    held_fps: float | None = None
    unit: LoadKind = LoadKind.FRAME_RATE

    def part(self, percent: float) -> tuple[float, bool]:
        """Return this share as a rate, limited to what can be offered; and whether the limit applied."""
        requested = self.rate * percent / 100
        most = self.held_fps or (inf if self.limited_by.is_uut else self.rate)
        return min(requested, most), requested > most


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One complete measurement: UUT × scenario × task of each guest × repetition, and how it is made and judged.

    `guests` begins with the victim. Trials of one planned `boot` follow each other on one start of the UUT, unless it
    fails. Trials of a `phase` need the results of earlier phases. `benchmark` names the test of RFC 2544 that the trial
    is for, if its load is not steady. It keeps the trial from being a repetition of others. `tolerance` is the allowed
    distance of the victim's offered load from the intended one, as a ratio. `max_lateness_s` is how far its sources may
    fall behind. At `restart_at_s` seconds after their start the victim is ended and started again, while they go on. A
    trial that `finds_maximum` serves only to find the maximum that loads are a share of. `catch_up` is the ratio by
    which the victim's sources may exceed the rate to catch up, as in Traffic.
    """

    index: int  # position in the campaign, from 0
    uut: str
    scenario: str
    guests: Annotated[tuple[GuestTask, ...], AfterValidator(alike)]
    repetition: int  # from 1
    phase: int = 1
    boot: int = 1
    settle_before_s: float = 0.02
    settle_after_s: float = 0.02
    drain_limit_s: float = 5.0
    tolerance: float = 0.01
    max_lateness_s: float = 0.05
    benchmark: str = ""
    restart_at_s: float | None = None
    finds_maximum: bool = False
    catch_up: float | None = None

    @property
    def victim(self) -> GuestTask:
        """The measured guest."""
        return self.guests[0]

    @property
    def neighbours(self) -> tuple[GuestTask, ...]:
        """All other guests."""
        return self.guests[1:]

    def task(self, guest: str) -> GuestTask:
        """Return the task of a guest; KeyError for an absent guest."""
        return {task.name: task for task in self.guests}[guest]

    @property
    def streams(self) -> tuple[str, ...]:
        """The victim's streams."""
        return self.victim.streams

    @property
    def frames(self) -> TrialFrames:
        """The frames of the victim's sources."""
        assert self.victim.traffic is not None, "a victim that does not serve forwards"
        return self.victim.traffic

    @property
    def serves(self) -> Serve | None:
        """The victim's activity, if it serves clients instead of forwarding frames."""
        return self.victim.serves

    @property
    def kind_of_traffic(self) -> FrameSize | Workload:
        """The size of the victim's frames, or its workload: trials of one kind of traffic are compared."""
        return self.serves.workload if self.serves else self.frame_size

    @property
    def frame_size(self) -> FrameSize:
        """The size of the victim's frames, in bytes with FCS."""
        return self.frames.size

    @property
    def load(self) -> Load:
        """The intended load of each of the victim's sources or clients."""
        return self.serves.load if self.serves else self.frames.load

    @property
    def duration_s(self) -> float:
        """How long the victim's sources send."""
        return self.victim.duration_s

    @property
    def key(self) -> str:
        """Its identity within its campaign, independent of the order."""
        streams = "+".join(self.streams)
        what_for = _FINDS_MAXIMUM if self.finds_maximum else ""
        traffic = self.kind_of_traffic
        return f"{self.uut}/{self.scenario}/{streams}/{traffic}/{self.load}/{self.repetition}{what_for}"

    @property
    def unknown_sizes(self) -> frozenset[FrameSize]:
        """The frame sizes of the unknown maxima that loads of neighbours are a share of."""
        return frozenset(share.frame_size for guest in self.guests if (share := guest.unknown_share))

    def with_maximum(self, maximum: LoadReference) -> "TrialSpec":
        """Return the trial with the victim's load, a share of this maximum of its streams, as a rate."""
        rate, is_less = maximum.part(self.load.value)
        trial = self.at_rate(Load(maximum.unit, nearest_rate(rate, maximum.unit)))
        victim = replace(trial.victim, share_of_less=maximum.limited_by.stored, is_less_than_share=is_less)
        return replace(trial, guests=(victim, *trial.neighbours))

    def at_rate(self, rate: Load) -> "TrialSpec":
        """Return the trial with this rate as the value of the victim's load, which is a share of a maximum."""
        load = replace(self.load, found=rate)
        if self.serves:
            victim = replace(self.victim, activity=replace(self.serves, load=load))
        else:
            victim = replace(self.victim, traffic=replace(self.frames, load=load))
        return replace(self, guests=(victim, *self.neighbours))

    def with_maxima(self, maxima: Mapping[FrameSize, LoadReference]) -> "TrialSpec":
        """Return the trial with all loads that are a share of a maximum in frames/s; `maxima` are by frame size."""
        return replace(self, guests=tuple(_resolved(guest, maxima, self.victim.traffic) for guest in self.guests))


def key_finds_maximum(key: str) -> bool:
    """Return whether a trial of this key serves only to find a maximum."""
    return key.endswith(_FINDS_MAXIMUM)


@dataclass(frozen=True, slots=True)
class GuestResult:
    """One guest over one trial: the counts of its streams, in the order of its task, and its CPU time.

    `cpu_s` is in seconds by consumer, as in Reading, plus `load`: the CPU time of the processes of its load, as counted
    by its own kernel. A guest that serves has `flows` instead of the counts of streams.
    """

    name: str
    streams: tuple[CountsField, ...] = ()
    counters: tuple[PointCount, ...] = ()  # those that do not separate streams
    cpu_s: dict[str, float] = field(default_factory=dict)
    flows: tuple[FlowResult, ...] = ()

    @property
    def without_counters(self) -> "GuestResult":
        """The same without the readings of its counters, which are most of it."""
        if not self.counters and not any(stream.counters for stream in self.streams):
            return self
        return replace(self, streams=tuple(replace(stream, counters=()) for stream in self.streams), counters=())


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial as measured: its guests in the order of the spec, none if it was not measured, and its reasons.

    `boot` numbers the starts of UUTs in a campaign, from 1: trials of the same one were measured on the same start.
    `machine_cpu_s` is all CPU time that the machine of the UUT used during the trial, `machine_softirq_s` the part of
    softirqs in it. `ends` are the sources and sinks, by stream; empty if nothing was measured. `thrown_away` has the
    reasons against each earlier attempt. `disturbance` is None if it is unknown.
    """

    spec: TrialSpec
    attempt: int  # from 1; the attempt that was kept
    started_ns: int  # CLOCK_REALTIME
    guests: tuple[GuestResult, ...]
    reasons: tuple[Reason, ...]
    steps_s: dict[str, float]  # how long each step of the trial took, in seconds
    machine_cpu_s: float | None = None
    boot: int = 0  # 0: unknown, or never started
    ends: dict[str, StreamEnds] = field(default_factory=dict)
    thrown_away: tuple[tuple[Reason, ...], ...] = ()
    machine_softirq_s: float | None = None
    disturbance: Disturbance | None = None

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its reasons; valid without any."""
        return worst([reason.kind.verdict for reason in self.reasons]) if self.reasons else Verdict.VALID

    @property
    def valid_at_once(self) -> bool:
        """Whether it is valid, and was so at the first attempt in which the tester was not disturbed.

        A disturbance is found by the tester's own clocks, regardless of the throughput. Therefore repeating disturbed
        trials selects no throughput.
        """
        disturbed = sum(
            any(reason.kind is ReasonKind.TESTER_DISTURBED for reason in reasons) for reasons in self.thrown_away
        )
        return self.verdict is Verdict.VALID and self.attempt - disturbed == 1

    @property
    def saturated(self) -> frozenset[str]:
        """The streams, of any guest, of which backpressure by the link reduced the offered load."""
        return frozenset(reason.stream for reason in self.reasons if reason.kind is ReasonKind.SATURATED)

    @property
    def is_saturated(self) -> bool:
        """Whether the victim is saturated: the trial counts for the load that was offered."""
        return not self.saturated.isdisjoint(self.spec.streams)

    @property
    def without_counters(self) -> "TrialResult":
        """The same without the readings of its guests' counters, and without its ends."""
        guests = tuple([guest.without_counters for guest in self.guests])
        if not self.ends and all(map(is_, guests, self.guests)):
            return self
        return replace(self, guests=guests, ends={})

    @property
    def victim(self) -> GuestResult:
        """The measured guest; without counts if the trial was not measured."""
        return self.guests[0] if self.guests else GuestResult(VICTIM)

    @property
    def streams(self) -> tuple[StreamCounts, ...]:
        """The counts of the victim's streams."""
        return self.victim.streams

    @property
    def neighbours(self) -> tuple[GuestResult, ...]:
        """All other guests."""
        return self.guests[1:]


def _resolved(guest: GuestTask, maxima: Mapping[FrameSize, LoadReference], of_victim: TrialFrames | None) -> GuestTask:
    activity = guest.unknown_share
    if activity is None or activity.share is None or activity.frame_size not in maxima:
        return guest
    maximum = maxima[activity.frame_size]
    load = Load.of_fps(maximum.rate * activity.share / 100)
    traffic = replace(of_victim or TrialFrames(activity.frame_size, load), size=activity.frame_size, load=load)
    return replace(guest, traffic=traffic, share_of_less=maximum.limited_by.stored)
