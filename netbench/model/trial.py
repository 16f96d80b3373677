"""A trial as planned and as measured: guests side by side, the first of which is the victim."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import inf
from operator import is_
from typing import Annotated

from pydantic import AfterValidator

from netbench.model.counts import PointCount, StreamCounts
from netbench.model.disturbance import Disturbance
from netbench.model.fields import LoadField, alike
from netbench.model.frame_mix import FrameSize
from netbench.model.scenario import VICTIM, ActivityField, Network, Stress
from netbench.model.tester import StreamEnds
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind, Verdict, worst

_FINDS_MAXIMUM = "/maximum"  # the end of the keys of trials that do


@dataclass(frozen=True, slots=True)
class Frames:
    """Frames of one size, or a mix: each source sends them at `load`, over so many flows drawn from `seed`."""

    size: FrameSize  # bytes with FCS
    load: LoadField
    flows: int = 1
    seed: int = 1


@dataclass(frozen=True, slots=True)
class GuestTask:
    """What one guest does in a trial.

    `traffic` is what the sources of its `streams` send through it, each for `duration_s` seconds, of which the first
    `warm_up_s` are not measured; None where it forwards nothing, and, beside the victim, while nobody knows the
    maximum that its load is a share of. With `first_fps` they send at that rate for `first_s` seconds, and what is left
    of all frames after that: the load is the mean. `share_of_less` says why what it is a share of is only a lower bound
    of that maximum; mostly empty. One that `is_less_than_share` of it is all that the sources hold.
    """

    name: str
    activity: ActivityField
    streams: tuple[str, ...] = ()
    traffic: Frames | None = None
    duration_s: float = 0.0
    warm_up_s: float = 0.0
    first_fps: float | None = None
    first_s: float = 0.0
    share_of_less: str = ""
    is_less_than_share: bool = False

    @property
    def load(self) -> Stress | None:
        """What it computes beside forwarding."""
        return self.activity if isinstance(self.activity, Stress) else None

    @property
    def unknown_share(self) -> Network | None:
        """Its activity, where that is a share of a maximum which is not known yet."""
        return self.activity if isinstance(self.activity, Network) and self.traffic is None else None


@dataclass(frozen=True, slots=True)
class Reference:
    """What loads are a share of: a maximum in frames/s of each stream, or less, where `limited_by` says why.

    `held_fps` is the most that the sources hold beside the UUT, where that is known.
    """

    fps: float
    limited_by: str = ""
    held_fps: float | None = None

    def part(self, percent: float) -> tuple[float, bool]:
        """So much of it in frames/s, or the most that can be offered; and whether that is less."""
        asked = self.fps * percent / 100
        most = self.held_fps or (self.fps if self.limited_by else inf)
        return min(asked, most), asked > most


@dataclass(frozen=True, slots=True)
class TrialSpec:
    """One measurement, complete: UUT × scenario × what each guest does × repetition, and how it is made and judged.

    `guests` begins with the victim. Trials of one planned `boot` follow each other on one start of the UUT, unless it
    fails; those of a `phase` need what earlier ones found. `benchmark` names the test of RFC 2544 that it is for, where
    its load is not a steady one, so that it is no repetition of any other. `tolerance` is how far the offered load of
    the victim may be from the intended one, as a ratio, `max_lateness_s` how far its sources may fall behind. At
    `restart_at_s` seconds after their start the victim is ended and started again, while they go on. One that
    `finds_maximum` is made for nothing but to find what loads are a share of. `catch_up` is by what part of the rate
    the victim's sources may exceed it to catch up, as Traffic has it.
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
        """The guest that is measured."""
        return self.guests[0]

    @property
    def neighbours(self) -> tuple[GuestTask, ...]:
        """All other guests."""
        return self.guests[1:]

    def task(self, guest: str) -> GuestTask:
        """What a guest does; KeyError for one that is not there."""
        return {task.name: task for task in self.guests}[guest]

    @property
    def streams(self) -> tuple[str, ...]:
        """The victim's streams."""
        return self.victim.streams

    @property
    def frames(self) -> Frames:
        """What the victim's sources send."""
        assert self.victim.traffic is not None, "the victim forwards in every trial"
        return self.victim.traffic

    @property
    def frame_size(self) -> FrameSize:
        """The size of the victim's frames, in bytes with FCS."""
        return self.frames.size

    @property
    def load(self) -> Load:
        """The intended load of each of the victim's sources."""
        return self.frames.load

    @property
    def duration_s(self) -> float:
        """How long the victim's sources send."""
        return self.victim.duration_s

    @property
    def key(self) -> str:
        """What identifies this trial within its campaign, whatever the order."""
        streams = "+".join(self.streams)
        what_for = _FINDS_MAXIMUM if self.finds_maximum else ""
        return f"{self.uut}/{self.scenario}/{streams}/{self.frame_size}/{self.load}/{self.repetition}{what_for}"

    @property
    def unknown_sizes(self) -> frozenset[FrameSize]:
        """The frame sizes of those maxima that loads of neighbours are a share of, and that are not known yet."""
        return frozenset(share.frame_size for guest in self.guests if (share := guest.unknown_share))

    def with_maximum(self, maximum: Reference) -> "TrialSpec":
        """The trial with the victim's load in frames/s, which is a share of this maximum of its streams."""
        fps, is_less = maximum.part(self.load.value)
        load = replace(self.load, found_fps=float(f"{fps:.6g}"))
        victim = replace(
            self.victim,
            traffic=replace(self.frames, load=load),
            share_of_less=maximum.limited_by,
            is_less_than_share=is_less,
        )
        return replace(self, guests=(victim, *self.neighbours))

    def with_maxima(self, maxima: Mapping[FrameSize, Reference]) -> "TrialSpec":
        """The trial with loads that are a share of a maximum in frames/s; `maxima` are by frame size."""
        return replace(self, guests=tuple(_resolved(guest, maxima, self.frames) for guest in self.guests))


def key_finds_maximum(key: str) -> bool:
    """Whether a trial of this key finds a maximum, and nothing else."""
    return key.endswith(_FINDS_MAXIMUM)


@dataclass(frozen=True, slots=True)
class GuestResult:
    """One guest over one trial: the counts of its streams, in the order of its task, and its CPU time.

    `cpu_s` is in seconds by whose it is, as Reading has it, and `load`: what the processes that make up its load used,
    as its own kernel counts it.
    """

    name: str
    streams: tuple[StreamCounts, ...] = ()
    counters: tuple[PointCount, ...] = ()  # those that do not tell streams apart
    cpu_s: dict[str, float] = field(default_factory=dict)

    @property
    def without_counters(self) -> "GuestResult":
        """The same without what its counters said, which is most of it."""
        if not self.counters and not any(one.counters for one in self.streams):
            return self
        return replace(self, streams=tuple(replace(one, counters=()) for one in self.streams), counters=())


@dataclass(frozen=True, slots=True)
class TrialResult:
    """One trial as measured: its guests in the order of the spec, none where it was not, and the reasons against it.

    `boot` numbers the starts of UUTs in a campaign, from 1: trials of the same one were measured on the same start.
    `machine_cpu_s` is all CPU time that the machine of the UUT used during the trial, `machine_softirq_s` what of it
    softirqs did. `ends` are what sent and received, by stream; none where nothing was measured. `thrown_away` has what
    spoke against each earlier attempt. `disturbance` is None where nothing is known of it.
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

        A disturbance is found by the tester's own clocks, whatever the throughput: repeating such a trial picks none.
        """
        disturbed = sum(
            any(reason.kind is ReasonKind.TESTER_DISTURBED for reason in reasons) for reasons in self.thrown_away
        )
        return self.verdict is Verdict.VALID and self.attempt - disturbed == 1

    @property
    def saturated(self) -> frozenset[str]:
        """The streams, of any guest, whose link pushed back so that less was offered than intended."""
        return frozenset(reason.stream for reason in self.reasons if reason.kind is ReasonKind.SATURATED)

    @property
    def is_saturated(self) -> bool:
        """Whether that is so of the victim: the trial counts for the load that was offered."""
        return not self.saturated.isdisjoint(self.spec.streams)

    @property
    def without_counters(self) -> "TrialResult":
        """The same without what its guests' counters said, and without its ends."""
        guests = tuple([guest.without_counters for guest in self.guests])
        if not self.ends and all(map(is_, guests, self.guests)):
            return self
        return replace(self, guests=guests, ends={})

    @property
    def victim(self) -> GuestResult:
        """The guest that is measured; without counts where the trial was not."""
        return self.guests[0] if self.guests else GuestResult(VICTIM)

    @property
    def streams(self) -> tuple[StreamCounts, ...]:
        """The counts of the victim's streams."""
        return self.victim.streams

    @property
    def neighbours(self) -> tuple[GuestResult, ...]:
        """All other guests."""
        return self.guests[1:]


def _resolved(guest: GuestTask, maxima: Mapping[FrameSize, Reference], of_victim: Frames) -> GuestTask:
    activity = guest.unknown_share
    if activity is None or activity.share is None or activity.frame_size not in maxima:
        return guest
    found = maxima[activity.frame_size]
    load = Load.of_fps(found.fps * activity.share / 100)
    traffic = replace(of_victim, size=activity.frame_size, load=load)
    return replace(guest, traffic=traffic, share_of_less=found.limited_by)
