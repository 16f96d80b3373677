"""What is measured: frame sizes, loads, repetitions, times and what makes a trial valid."""

from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from netbench.model.fields import AskedLoadField, FrameSizeField, Mebibytes, Percent, Seconds, listed
from netbench.model.frame_mix import FrameSize
from netbench.model.names import Name
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Activity, Idle, Off, Scenario, expanded
from netbench.model.units import LoadKind

# Ethernet, IPv4, UDP and pktgen headers end at byte 58; one VLAN tag more makes 62.
MIN_SNAP_LENGTH = 62
MAX_SECONDS = 86_400.0
# How much longer than the victim's a neighbour's sources send: a part of the duration, and seconds.
_LONGER_PART = 0.05
_LONGER_S = 0.1
_WARM_UP_PART = 0.25
_NOISE_FLOOR_S = 1.2
_MOST_WARM_UP_TRIALS = 100

T = TypeVar("T")


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    seen: set[T] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{value} is there twice")
        seen.add(value)
    return values


def _distinct_sizes(sizes: tuple[FrameSize, ...]) -> tuple[FrameSize, ...]:
    _distinct(tuple(map(str, sizes)))  # results tell mixes apart by their names
    return sizes


def _differently_named(scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    _distinct(tuple(scenario.name for scenario in scenarios))
    return scenarios


def _kind(value: object) -> object:
    return {"kind": value} if isinstance(value, str) else value


def _warm_up_trials(value: object) -> object:
    """None of them is as if nothing had been said, so that a profile that has some can be overridden."""
    if value is None or value == "auto":
        return value
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _MOST_WARM_UP_TRIALS:
        raise ValueError(f"a number up to {_MOST_WARM_UP_TRIALS}, or auto")
    return value or None


Count = Annotated[int, Field(strict=True, ge=1, le=1000)]


class Settle(BaseModel):
    """Pauses around the traffic, in seconds: after arming, and after the last frame."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    before: Annotated[Seconds, Field(le=MAX_SECONDS)] = 0.02
    after: Annotated[Seconds, Field(le=MAX_SECONDS)] = 0.02


class KindSpec(BaseModel):
    """Which kind of something, and whatever options that kind has."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Name

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})


class NoOptions(BaseModel, extra="forbid"):
    """Those of a kind with nothing to choose."""


class GeneratorSpec(KindSpec):
    """Which generator sends."""

    kind: Name = "afpacket"


class SinkSpec(KindSpec):
    """Which sink receives."""

    kind: Name = "tcpdump"


class ScheduleSpec(KindSpec):
    """What decides which trial is next: by default the lists of the profile."""

    kind: Name = "plan"


class MaximaSpec(KindSpec):
    """How the maxima are found that loads are a share of: by a search, or, for neighbours', by the profile's `loads`.

    `duration` is that of a trial which counts, in seconds; left out, 1 s, or that of the profile where it is shorter.
    """

    kind: Name = "search"
    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] | None = None


LOADS = "loads"  # the kind of maxima that are found without a search


class Profile(BaseModel):
    """One profile. Loads are per stream; times are in seconds; sizes in bytes with FCS, or mixes of several (RFC 6985).

    `streams` holds numbers of sources: 2 means that the first two streams of the victim send at the same time. Left
    out, all of them do; `each` is every number that the topology allows. `reboot` says when guests are restarted.
    `duration` is that of sending; `warm_up` the first part of it, in which queues fill and nothing is measured yet.
    `warm_up_trials` are made on each boot before its first trial, and part of no result: so many, or with `auto` until
    one is no faster and no slower than all before it.
    Captures that `keep_captures` keeps none of are counted while they are made, and on this machine never written to a
    disk; `invalid` keeps those of invalid trials, and writes all of them until a trial is judged. With one that would
    make those kept more than `captures_limit`, in MiB, none is kept any more. With `stop_when_saturated` the loads of a
    sweep go upwards, and it ends once so many of them in a row were saturated. A search, which chooses loads itself,
    needs no `loads`. `maxima` says how those are found that loads are a share of, where any is. At its start a campaign
    repeats a fixed trial for `noise_floor` seconds, which tells how far the host varies; left out, 1.2; 0: it does not.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    description: str = ""
    frame_sizes: Annotated[
        tuple[FrameSizeField, ...], BeforeValidator(listed), AfterValidator(_distinct_sizes), Field(min_length=1)
    ]
    loads: Annotated[tuple[AskedLoadField, ...], BeforeValidator(listed), AfterValidator(_distinct)] = ()
    streams: Literal["each"] | Annotated[tuple[Count, ...], BeforeValidator(listed), AfterValidator(_distinct)] = ()
    scenarios: Annotated[
        tuple[Scenario, ...], BeforeValidator(expanded), AfterValidator(_differently_named), Field(min_length=1)
    ] = (Scenario(name=DEDICATED, activity=Off()),)
    reboot: Literal["visit", "scenario", "trial"] = "visit"
    repetitions: Count = 9
    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 10.0
    warm_up: Annotated[Seconds, Field(le=MAX_SECONDS)] | None = None
    warm_up_trials: Annotated[Literal["auto"] | int | None, BeforeValidator(_warm_up_trials)] = None
    settle: Settle = Settle()
    noise_floor: Annotated[Seconds, Field(le=MAX_SECONDS)] | None = None
    drain_limit: Annotated[Seconds, Field(gt=0, le=600)] = 5.0
    stop_when_saturated: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    order: Literal["interleaved", "sequential", "random"] = "interleaved"
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 1
    tolerance: Annotated[Percent, Field(le=1)] = 0.01
    max_lateness: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 0.05
    retries: Annotated[int, Field(strict=True, ge=0, le=10)] = 2
    flows: Annotated[int, Field(strict=True, ge=1, le=60_000)] = 1
    snap_length: Annotated[int, Field(strict=True, ge=MIN_SNAP_LENGTH, le=262_144)] = 64
    keep_captures: Literal["none", "invalid", "all"] = "none"
    captures_limit: Mebibytes = 10 * 1024
    generator: Annotated[GeneratorSpec, BeforeValidator(_kind)] = GeneratorSpec()
    sink: Annotated[SinkSpec, BeforeValidator(_kind)] = SinkSpec()
    schedule: Annotated[ScheduleSpec, BeforeValidator(_kind)] = ScheduleSpec()
    maxima: Annotated[MaximaSpec, BeforeValidator(_kind)] | None = None  # as of MaximaSpec()

    def scenario(self, name: str) -> Scenario:
        """The scenario of this name; KeyError when there is none. `dedicated` and `shared-idle` there always are."""
        found = {scenario.name: scenario for scenario in self.scenarios}
        always: dict[str, Activity] = {DEDICATED: Off(), SHARED_IDLE: Idle()}
        return found[name] if name in found else Scenario(name=name, activity=always[name])

    @model_validator(mode="after")
    def _warms_up_for_a_part_only(self) -> "Profile":
        if self.warm_up is not None and self.warm_up >= self.duration:
            raise ValueError(
                f"warm_up: {self.warm_up:g} s leaves nothing of the duration, {self.duration:g} s, to measure"
            )
        return self

    @model_validator(mode="after")
    def _has_loads(self) -> "Profile":
        if not self.loads and self.schedule.kind == ScheduleSpec().kind:
            raise ValueError("loads: is missing; for example `loads: [10kfps, 50%, max]`")
        return self

    @model_validator(mode="after")
    def _stops_what_it_plans(self) -> "Profile":
        if self.stop_when_saturated is not None and self.schedule.kind != ScheduleSpec().kind:
            raise ValueError(
                f"stop_when_saturated: goes with schedule plan only; {self.schedule.kind} chooses its loads itself"
            )
        return self

    @model_validator(mode="after")
    def _rises_in_one_unit(self) -> "Profile":
        of_maximum = {load.kind is LoadKind.OF_MAXIMUM for load in self.loads if load.kind is not LoadKind.MAX}
        if self.stop_when_saturated is not None and len(of_maximum) > 1:
            raise ValueError(
                "stop_when_saturated: nobody knows beforehand which of the loads is the higher one; take shares of the "
                "maximum for all of them, or for none"
            )
        return self

    @property
    def warm_up_s(self) -> float:
        """How long of the duration nothing is measured yet: a quarter of it where nothing else is said."""
        return _WARM_UP_PART * self.duration if self.warm_up is None else self.warm_up

    @property
    def noise_floor_s(self) -> float:
        """For how many seconds the fixed trial is repeated whose variation is the noise floor; 0: not at all."""
        return _NOISE_FLOOR_S if self.noise_floor is None else self.noise_floor

    @property
    def neighbours_duration(self) -> float:
        """How long a neighbour's sources send: from before the trial settles until the victim's are surely done."""
        return self.settle.before + self.duration * (1 + _LONGER_PART) + _LONGER_S
