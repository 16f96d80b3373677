"""The plan of a measurement: frame sizes, loads, repetitions, times and conditions of a valid trial."""

from collections.abc import Mapping
from itertools import product
from math import ceil
from typing import Annotated, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo, model_validator

from netbench.errors import KeyedError
from netbench.model.fields import (
    FrameSizeField,
    Mebibytes,
    Name,
    Percent,
    ProfileLoadField,
    Seconds,
    as_kind,
    listed,
    refuse_bare_number,
)
from netbench.model.frame_size import FrameSize
from netbench.model.packet import Packet
from netbench.model.packet_description import with_siblings
from netbench.model.packet_fields import ExpectField, PacketsField, VaryField, packet_error
from netbench.model.packet_values import DescriptionError
from netbench.model.scenario import DEDICATED, SHARED_IDLE, Activity, Idle, Off, Scenario, expanded
from netbench.model.units import Load, LoadKind
from netbench.model.workload import Workload, WorkloadsField

# Ethernet, IPv4, UDP and pktgen headers end at byte 58; one VLAN tag more makes 62.
MIN_SNAP_LENGTH = 62
MAX_SECONDS = 86_400.0
# How much longer a neighbour's sources send than the victim's: a ratio of the duration, plus seconds.
_LONGER_PART = 0.05
_LONGER_S = 0.1
_START_OF_TOOL_S = 1.5
_WARM_UP_PART = 0.25
# Keys that flows have no use for.
_IS_FOR_FRAMES = "is for frames, and this profile runs flows with a tool; remove it"
_OF_FRAMES = {
    **dict.fromkeys(("packet", "vary", "expect", "stop_when_saturated", "warm_up_trials"), _IS_FOR_FRAMES),
    "flows": "this key counts UDP port pairs of frames; with a tool, use its option `parallel` or `clients`",
}
_NOISE_FLOOR_S = 1.2
_MOST_WARM_UP_TRIALS = 100

T = TypeVar("T")


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    seen: set[T] = set()
    for value in values:
        if value in seen:
            raise ValueError(f"{value} is defined twice")
        seen.add(value)
    return values


def _with_tool_units(value: object, info: ValidationInfo) -> object:
    """Return a load as written; ValueError for a number without a unit where a tool's client has the load."""
    if info.data.get("tool"):
        refuse_bare_number(value)
    return value


def _of_tool(loads: tuple[Load, ...], info: ValidationInfo) -> tuple[Load, ...]:
    """Return the loads; with a tool, which has no line rate, a share is one of the maximum of its workload."""
    if not info.data.get("tool"):
        return loads
    return tuple(Load(LoadKind.OF_MAXIMUM, load.value) if load.kind is LoadKind.SHARE else load for load in loads)


def _distinct_sizes(sizes: tuple[FrameSize, ...]) -> tuple[FrameSize, ...]:
    _distinct(tuple(map(str, sizes)))  # results identify mixes by their names
    return sizes


def _differently_named(scenarios: tuple[Scenario, ...]) -> tuple[Scenario, ...]:
    _distinct(tuple(scenario.name for scenario in scenarios))
    return scenarios


def _warm_up_trials(value: object) -> object:
    """Return the number; 0 is the same as a missing value, so that an override can reset it."""
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
    """Pause after arming, before sending."""
    after: Annotated[Seconds, Field(le=MAX_SECONDS)] = 0.02
    """Least time from the last frame sent until counters are read."""


class KindSpec(BaseModel):
    """A kind, and the options of that kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Name
    """Name of the kind; further keys are its options."""

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})


class NoOptions(BaseModel, extra="forbid"):
    """The options of a kind without options."""


class GeneratorSpec(KindSpec):
    """The generator that sends."""

    kind: Name = "afpacket"


class SinkSpec(KindSpec):
    """The sink that receives."""

    kind: Name = "tcpdump"


class ScheduleSpec(KindSpec):
    """The schedule that selects the next trial: by default the lists of the profile."""

    kind: Name = "plan"


class MaximaSpec(KindSpec):
    """The search for the maxima that loads are a share of: a kind of search, or the profile's `loads`.

    `search` finds those of frames, `slo` those of workloads; the others are found with their default options.
    """

    kind: Name = "search"
    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] | None = None
    """Duration of a trial that counts. Default: that of the profile, of frames at most 1 s."""


MAXIMA_OF_WORKLOADS = "slo"  # the usual kind of search for those of workloads
LOADS = "loads"  # the kind of maxima that are found without a search


class Profile(BaseModel):
    """One profile. Loads are per stream; times are in seconds; sizes in bytes with FCS, or mixes of several (RFC 6985).

    Captures that are not kept are counted while they are made, and on this machine never written to a disk. With
    `invalid`, all captures are written until their trial is judged. A search chooses loads itself, and needs no
    `loads`. `warm_up_trials: auto` repeats trials until one is no faster and no slower than all before it.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: Name
    """Default: the name of the file."""
    description: str = ""
    """One line for `netbench list`."""
    frame_sizes: Annotated[tuple[FrameSizeField, ...], BeforeValidator(listed), AfterValidator(_distinct_sizes)] = ()
    """Bytes with FCS: 64 to 1518, or up to 9234 if every link has an `mtu` for them; `imix`, `imix-v6`; frame mixes."""
    tool: WorkloadsField = ()
    """Tools that run flows to a server in each guest, instead of frames through it: a kind, `{kind: …}` with its
    options, or a list of these. A list of values of an option makes one workload for each."""
    packet: PacketsField = (None,)
    """Headers of the frames: `Ether()/IPv6()/UDP()`, a shipped packet, a mapping of `headers` (or `trex`: its code),
    `name`, `vary` and `expect`, `plain`, or a list of these. Default: `plain`, which is Ethernet, IPv4 and UDP."""
    vary: VaryField = None
    """Fields of `packet`, if it is a single one, that vary from frame to frame: `{UDP.sport: {random: 1024-65535}}`."""
    expect: ExpectField = None
    """Headers of `packet`, if it is a single one, at the sink, where the UUT changes them; `any`: a field that is not
    compared; a mapping of `headers` and `vary`, if it changes fields that vary. Default: as the UUT is configured to
    send it."""
    loads: Annotated[
        tuple[Annotated[ProfileLoadField, BeforeValidator(_with_tool_units)], ...],
        BeforeValidator(listed),
        AfterValidator(_of_tool),
        AfterValidator(_distinct),
    ] = ()
    """Load of each source: 400Mbit/s (L1), 148809fps, 50% (of line rate), 50% of maximum (of the UUT), max. Of each
    client of a tool: 100/s, 10Mbit/s (payload), 50% (of the maximum that `maxima` finds), max."""
    streams: Literal["each"] | Annotated[tuple[Count, ...], BeforeValidator(listed), AfterValidator(_distinct)] = ()
    """Numbers of streams that send at once: 2 are the first two. `each`: 1, 2, … all of them. Default: all."""
    scenarios: Annotated[
        tuple[Scenario, ...], BeforeValidator(expanded), AfterValidator(_differently_named), Field(min_length=1)
    ] = (Scenario(name=DEDICATED, activity=Off()),)
    """Activity of the neighbours."""
    reboot: Literal["visit", "scenario", "trial"] = "visit"
    """When guests restart: at each visit of the UUT, for each scenario, or for each trial."""
    repetitions: Count = 9
    """Repetitions of each trial."""
    duration: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 10.0
    """Sending time of a trial."""
    warm_up: Annotated[Seconds, Field(le=MAX_SECONDS)] | None = None
    """First part of `duration`, in which throughput is not measured. Default: a quarter."""
    warm_up_trials: Annotated[Literal["auto"] | int | None, BeforeValidator(_warm_up_trials)] = None
    """Trials on each boot before its first one, part of no result: 0 to 100, or `auto` (2 to 10)."""
    settle: Settle = Settle()
    """Pauses around the traffic."""
    noise_floor: Annotated[Seconds, Field(le=MAX_SECONDS)] | None = None
    """Time for repeats of a fixed trial at the start, to measure how far the host varies. 0: none. Default: 1.2 s."""
    drain_limit: Annotated[Seconds, Field(gt=0, le=600)] = 5.0
    """Longest wait for missing frames; more than the longest delay of the UUT."""
    stop_when_saturated: Annotated[int, Field(strict=True, ge=1, le=1000)] | None = None
    """Number of saturated loads in a row after which a sweep ends. Default: never."""
    order: Literal["interleaved", "sequential", "random"] = "interleaved"
    """interleaved: every UUT in each repetition, trials shuffled. sequential: UUT by UUT. random: all shuffled."""
    seed: Annotated[int, Field(strict=True, ge=0, lt=2**32)] = 1
    """Seed of the order and of the flows."""
    tolerance: Annotated[Percent, Field(le=1)] = 0.01
    """Allowed deviation of the offered load. A value above 3% also replaces the limit of 3% for disturbed trials."""
    max_lateness: Annotated[Seconds, Field(gt=0, le=MAX_SECONDS)] = 0.05
    """Lateness of a source above which a trial is suspicious; at most a tenth of `duration`."""
    retries: Annotated[int, Field(strict=True, ge=0, le=10)] = 2
    """Repetitions of an invalid trial."""
    flows: Annotated[int, Field(strict=True, ge=1, le=60_000)] = 1
    """UDP port pairs of each stream, drawn pseudo-randomly (RFC 4814)."""
    snap_length: Annotated[int, Field(strict=True, ge=MIN_SNAP_LENGTH, le=262_144)] = 64
    """Captured bytes of each frame."""
    keep_captures: Literal["none", "invalid", "all"] = "none"
    """Captures to keep. With `none` they are counted live and never stored."""
    witness: Literal["all", "1/2", "1/4", "1/8", "1/16", "1/32", "1/64", "none"] = "all"
    """Connections of a tool that taps capture: all, a part where capturing all disturbs, or none."""
    captures_limit: Mebibytes = 10 * 1024
    """Largest total size of kept captures. Afterwards none is kept (event `captures-full`)."""
    generator: Annotated[GeneratorSpec, BeforeValidator(as_kind)] = GeneratorSpec()
    """What sends: a kind, or `{kind: …}` with its options."""
    sink: Annotated[SinkSpec, BeforeValidator(as_kind)] = SinkSpec()
    """What receives: a kind, or `{kind: …}` with its options."""
    schedule: Annotated[ScheduleSpec, BeforeValidator(as_kind)] = ScheduleSpec()
    """What selects the next trial: `plan` (the lists of the profile), or a search with its options: `search` for rates
    of frames, `slo` for rates of a tool."""
    maxima: Annotated[MaximaSpec, BeforeValidator(as_kind)] | None = None  # as of MaximaSpec()
    """Search for the maxima that loads are a share of, with its options: `search` for frames, `slo` for workloads; or
    `loads`: the plateau of all loads."""

    def scenario(self, name: str) -> Scenario:
        """Return the scenario of this name; KeyError if there is none. `dedicated` and `shared-idle` always exist."""
        by_name = {scenario.name: scenario for scenario in self.scenarios}
        always: dict[str, Activity] = {DEDICATED: Off(), SHARED_IDLE: Idle()}
        return by_name[name] if name in by_name else Scenario(name=name, activity=always[name])

    @model_validator(mode="after")
    def _has_one_kind_of_traffic(self) -> "Profile":
        if self.tool and self.frame_sizes:
            raise KeyedError("tool", "a profile has either a tool, which runs flows, or frame_sizes; remove one")
        if not (self.tool or self.frame_sizes):
            raise KeyedError("frame_sizes", "is missing; for example `frame_sizes: [64, 512, 1500]`")
        for key, fault in _OF_FRAMES.items() if self.tool else ():
            if getattr(self, key) != type(self).model_fields[key].get_default(call_default_factory=True):
                raise KeyedError(key, fault)
        if not self.tool and self.witness != "all":
            raise KeyedError("witness", "is about the connections of a tool, and this profile sends frames; remove it")
        if self.tool and self.maxima and self.maxima.kind == LOADS:
            raise KeyedError("maxima", "loads show no maximum of a tool, which this profile has; write slo or search")
        for load in self.loads:
            if load.kind is LoadKind.OPERATION_RATE and not self.tool:
                raise KeyedError("loads", f"{load} is a rate of a tool's requests; write {load.value:g}fps")
        return self

    @model_validator(mode="after")
    def _describes_packets(self) -> "Profile":
        try:
            described = self.packets
        except DescriptionError as error:
            raise packet_error(error, str(error.path[0])) from error
        if described and self.flows > 1:
            raise KeyedError("flows", f"are the UDP port pairs of the plain packet; {self._flows_remedy(described)}")
        return self

    def _flows_remedy(self, described: Mapping[str, Packet]) -> str:
        """Return the keys that replace `flows` for described packets."""
        if any(packet.vary for packet in described.values()):
            return "remove flows: `vary` determines their number"
        names = [layer.name for packet in described.values() for layer in packet.layers]
        ported = next((name for name in names if name in ("UDP", "TCP")), "")
        if not ported:
            return "remove flows; let a field of the packet vary instead (`vary`)"
        where = "" if len(self.described_packets) == 1 else " in the mapping of a packet"
        return f"remove flows; write{where} vary: {{{ported}.sport: {{random: 1024-65535, count: {self.flows}}}}}"

    @model_validator(mode="after")
    def _warms_up_for_a_part_only(self) -> "Profile":
        if self.warm_up is not None and self.warm_up >= self.duration:
            raise KeyedError(
                "warm_up", f"{self.warm_up:g} s leaves nothing of the duration, {self.duration:g} s, to measure"
            )
        return self

    @model_validator(mode="after")
    def _has_loads(self) -> "Profile":
        if not self.loads and self.schedule.kind == ScheduleSpec().kind:
            raise KeyedError("loads", "is missing; for example `loads: [10kfps, 50%, max]`")
        return self

    @model_validator(mode="after")
    def _stops_what_it_plans(self) -> "Profile":
        if self.stop_when_saturated is not None and self.schedule.kind != ScheduleSpec().kind:
            raise KeyedError(
                "stop_when_saturated", f"goes with schedule plan only; {self.schedule.kind} chooses its loads itself"
            )
        return self

    @model_validator(mode="after")
    def _rises_in_one_unit(self) -> "Profile":
        of_maximum = {load.kind is LoadKind.OF_MAXIMUM for load in self.loads if load.kind is not LoadKind.MAX}
        if self.stop_when_saturated is not None and len(of_maximum) > 1:
            raise KeyedError(
                "stop_when_saturated",
                "the order of these loads is unknown before the maximum is measured; use shares "
                "of the maximum for all loads, or for none",
            )
        return self

    @property
    def kinds_of_traffic(self) -> tuple[FrameSize | Workload, ...]:
        """All frames to measure with, or all workloads."""
        return self.tool or self.all_frame_sizes

    @property
    def described_packets(self) -> tuple[Packet | None, ...]:
        """The packets in their order, with all fields that vary; None is the plain one."""
        return with_siblings(self.packet, self.vary, self.expect)

    @property
    def packets(self) -> Mapping[str, Packet]:
        """The described packets, by name."""
        return {packet.name: packet for packet in self.described_packets if packet}

    @property
    def packet_names(self) -> tuple[str, ...]:
        """The names of the packets in their order; empty is the plain one."""
        return tuple(packet.name if packet else "" for packet in self.described_packets)

    @property
    def all_frame_sizes(self) -> tuple[FrameSize, ...]:
        """All frames to measure with: each size or mix with each packet, packet by packet in their order.

        Sizes that name a packet already, as those of a calibration, keep it.
        """
        pairs = product(self.packet_names, self.frame_sizes)
        return tuple(dict.fromkeys(size.with_packet(size.packet or name) for name, size in pairs))

    @property
    def warm_up_s(self) -> float:
        """The first part of the duration, in which nothing is measured yet: a quarter of it by default, in seconds."""
        return _WARM_UP_PART * self.duration if self.warm_up is None else self.warm_up

    @property
    def noise_floor_s(self) -> float:
        """The time for repeating the fixed trial that measures the noise floor, in seconds; 0: not measured.

        Its trial sends frames: a profile of flows has none.
        """
        if self.tool:
            return 0.0
        return _NOISE_FLOOR_S if self.noise_floor is None else self.noise_floor

    @property
    def neighbours_duration(self) -> float:
        """How long a neighbour's sources send: from before the trial settles until the victim's have surely ended."""
        if self.tool:  # clients start after the sources, and some run for whole seconds
            return self.settle.before + ceil(self.duration) * (1 + _LONGER_PART) + _START_OF_TOOL_S
        return self.settle.before + self.duration * (1 + _LONGER_PART) + _LONGER_S
