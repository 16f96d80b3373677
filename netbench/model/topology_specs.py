"""The parts of a topology: links, streams, UUTs and neighbours, and the CPU limits of guests."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from netbench.model.documents import plain
from netbench.model.fields import (
    PERCENT_SCHEMA,
    Name,
    NicName,
    StreamName,
    listed,
    located_error,
    parse_percent,
    percent_text,
)
from netbench.model.frame_size import MAX_MTU, USUAL_MTU
from netbench.model.packet_fields import PacketField
from netbench.model.paths import TURNED_ROUND, split_endpoint
from netbench.model.suggestions import choices, did_you_mean
from netbench.model.traffic import NapiPolicy, Receive
from netbench.model.units import bit_rate_hint, format_bit_rate, parse_bit_rate

Cpu = Annotated[int, Field(strict=True, ge=0)]
Cpus = tuple[Cpu, ...]
_WORDS = ("same-cpu", "sibling", "other-core")


def _placement(value: object) -> object:
    listed = isinstance(value, list | tuple) and value and all(type(cpu) is int and cpu >= 0 for cpu in value)
    if not listed and value not in _WORDS:
        raise ValueError(
            f"a neighbour's place is one of {', '.join(_WORDS)}, or CPUs by number, for example [1, 2]"
            f"{did_you_mean(value, _WORDS)}"
        )
    return value


# The CPUs of a neighbour relative to the victim: its CPU, the hardware sibling of that CPU, or another core.
Placement = Annotated[Literal["same-cpu", "sibling", "other-core"] | Cpus, BeforeValidator(_placement)]
CpuWeight = Annotated[int, Field(strict=True, ge=1, le=10_000)]


def _limit(value: object) -> float:
    limit = parse_percent(value, "50%")
    if not 0.01 <= limit <= 1024:
        raise ValueError("a limit is at least 1% of one CPU")
    return limit


CpuLimit = Annotated[
    float,
    BeforeValidator(_limit),
    PlainSerializer(percent_text),
    WithJsonSchema({**PERCENT_SCHEMA, "examples": ["50%"]}),
]


@dataclass(frozen=True, slots=True)
class CpuShares:
    """CPUs by number (empty: all), a weight (cgroup v2's cpu.weight, 100 is usual), a limit (1.0 is one whole CPU)."""

    cpus: tuple[int, ...] = ()
    weight: int | None = None
    limit: float | None = None


class StrictModel(BaseModel):
    """A model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _positive_rate(value: object) -> float:
    if not isinstance(value, str):
        raise ValueError(f"a link rate needs a unit; write for example 1Gbit/s{bit_rate_hint(value)}")
    rate = parse_bit_rate(value)
    if rate <= 0:
        raise ValueError("a link rate must be more than 0")
    return rate


_RATE_SCHEMA = {"type": "string", "examples": ["1Gbit/s"], "pattern": r"^\s*[0-9.]+\s*[kKMGT]?bit/s\s*$"}
BitRate = Annotated[
    float, BeforeValidator(_positive_rate), PlainSerializer(format_bit_rate), WithJsonSchema(_RATE_SCHEMA)
]


def _endpoint(text: str) -> str:
    split_endpoint(text)
    return text


Endpoint = Annotated[str, AfterValidator(_endpoint)]


class LinkSpec(StrictModel):
    """A link: a veth pair, an existing cable, or a cable between VMs. Its rate is in bit/s (L1)."""

    ends: Annotated[tuple[Endpoint, ...], Field(min_length=1, max_length=2)]
    """One or two NICs as host/nic. Two that are no ports become a veth pair; two ports are an existing cable; two NICs
    of VMs are cabled by netbench; a single port is cabled to an external device."""
    rate: BitRate
    """Line rate (L1). Nominal for veth pairs: shares of line rate refer to it."""
    receive: Receive = "inline"
    """How the UUT receives on a veth pair: inline, in the source's system call; napi, from a ring of 256 frames by a
    kernel thread; softirq, from that ring on the source's CPU."""
    mtu: Annotated[int, Field(strict=True, ge=USUAL_MTU, le=MAX_MTU)] | None = None
    """MTU of both ends. A port must have it already."""

    @property
    def title(self) -> str:
        """Its ends as messages name them: `link source/tx1 – uut/in1`."""
        return f"link {' – '.join(self.ends)}"

    @property
    def mtu_bytes(self) -> int:
        """The MTU in effect."""
        return self.mtu or USUAL_MTU


class StreamSpec(StrictModel):
    """One source port → one ingress NIC → UUT → one egress NIC → one sink port."""

    name: StreamName
    """At most 9 characters."""
    reverse: StreamName | None = None
    """The stream whose reverse direction this is (RFC 2544, section 14); all NICs are then left out."""
    source: Endpoint
    """NIC that sends."""
    ingress: Endpoint | None = None
    """NIC at which frames enter the UUT; left out for `external` and `esxi`."""
    egress: Endpoint | None = None
    """NIC at which frames leave the UUT; left out for `external` and `esxi`."""
    sink: Endpoint
    """NIC that receives."""
    packet: PacketField = None
    """Headers of its frames in every trial, as in profiles; `vary` and `expect` are in its mapping. Default: those of
    the trial."""

    @property
    def nics(self) -> tuple[str, ...]:
        """All its NICs in order from source to sink."""
        return tuple(self.nics_by_role.values())

    @property
    def nics_by_role(self) -> dict[str, str]:
        """The same by role: source, ingress, egress, sink."""
        return {role: nic for role in TURNED_ROUND if (nic := getattr(self, role)) is not None}


class UutSpec(BaseModel):
    """A unit under test: its name, its kind, and the options of that kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: Name
    """Name in results."""
    kind: Name
    """Kind of UUT."""
    on: NicName | None = None
    """VM or SSH host on which this UUT, its source and its sink run. Default: as `hosts` defines."""
    host_cpus: Cpus = ()
    """CPUs of the machine that the UUT may use. Default: all."""
    cpu_weight: CpuWeight | None = None
    """cgroup weight; 100 is the usual one."""
    cpu_limit: CpuLimit | None = None
    """Largest share of CPU time; 50% is half a CPU."""
    napi_policy: NapiPolicy = "other"
    """Scheduling policy of the kernel threads that receive for this UUT (`receive: napi`)."""
    neighbours: dict[NicName, dict[str, Any]] = {}
    """Deviating options of neighbours beside this UUT, by name."""

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    @property
    def cpu_shares(self) -> CpuShares:
        """Its CPU limits on its machine."""
        return CpuShares(self.host_cpus, self.cpu_weight, self.cpu_limit)


class NeighbourSpec(BaseModel):
    """Another guest on the UUT's host. Its kind and options are those of the UUT, unless they are given here."""

    model_config = ConfigDict(extra="allow", frozen=True)

    name: NicName
    """Name in scenarios and results."""
    kind: Name | None = None
    """Default: the UUT's kind, with its options except `pin`."""
    streams: Annotated[tuple[StreamName, ...], BeforeValidator(listed)] = ()
    """Streams through this neighbour. Without any it has no NICs."""
    placement: Placement | None = None
    """CPUs relative to the UUT: same-cpu, sibling, other-core; or CPU numbers. Default: the scheduler's choice."""
    cpu_weight: CpuWeight | None = None
    """cgroup weight."""
    cpu_limit: CpuLimit | None = None
    """Largest share of CPU time."""

    @property
    def options(self) -> dict[str, object]:
        """The options of the kind, as written."""
        return dict(self.model_extra or {})

    def beside(self, uut: UutSpec) -> "NeighbourSpec":
        """Return it with this UUT's changes; pydantic's ValidationError if they are invalid."""
        changes = uut.neighbours.get(self.name, {})
        return type(self).model_validate({**plain(self, exclude_none=True), **changes})

    def as_uut(self, uut: UutSpec, known: Collection[str]) -> UutSpec:
        """Return it as a UUT specification beside this UUT, without CPUs, which are assigned elsewhere.

        `known` are the options of its kind. If it has no `kind`, options that this kind lacks are left out:
        they are for the kinds of other UUTs.
        """
        kind = self.kind or uut.kind
        inherited = uut.options if kind == uut.kind else {}
        meant = self.options
        if self.kind is None:
            for_this = uut.neighbours.get(self.name, {})
            meant = {name: value for name, value in meant.items() if name in known or name in for_this}
        options = {name: value for name, value in inherited.items() if name != "pin"} | meant
        spec = {"name": f"{uut.name}.{self.name}", "kind": kind, **options}
        if self.cpu_weight is not None:
            spec["cpu_weight"] = self.cpu_weight
        if self.cpu_limit is not None:
            spec["cpu_limit"] = percent_text(self.cpu_limit)
        return UutSpec.model_validate(spec)


def with_reverse_streams(streams: object) -> object:
    """Return the streams of a topology with the NICs of each reverse stream filled in from the stream that it reverses.

    A located ValidationError for an impossible reverse stream.
    """
    if not isinstance(streams, list | tuple):
        return streams
    written = [dict(item) if isinstance(item, Mapping) else item for item in streams]
    for place, stream in enumerate(written):
        if isinstance(stream, dict) and isinstance(stream.get("reverse"), str):
            if why := _not_reversible(stream["reverse"], written, place):
                raise located_error((place, "reverse"), why, stream["reverse"], "stream_reverse")
            reversed_stream = next(
                item for item in written if isinstance(item, dict) and item.get("name") == stream["reverse"]
            )
            for role, turned in TURNED_ROUND.items():
                expected, actual = reversed_stream.get(turned), stream.get(role)
                if actual not in (None, expected):
                    why = f"a reverse stream has the NICs of {stream['reverse']} in opposite roles; leave this out"
                    raise located_error((place, role), why, actual, "stream_reverse")
                if expected is not None:
                    stream[role] = expected
    return written


def _not_reversible(name: str, streams: Sequence[object], place: int) -> str:
    """Return why the stream at a place cannot be the reverse of the named one; empty if it can."""
    named = [
        (number, item) for number, item in enumerate(streams) if isinstance(item, dict) and item.get("name") == name
    ]
    if not named:
        known = [str(item["name"]) for item in streams if isinstance(item, dict) and "name" in item]
        return f"there is no stream {name!r}; {choices(name, known, 'streams')}"
    number, forth = named[0]
    if number >= place:
        return f"stream {name} must come before its reverse stream"
    if forth.get("reverse"):
        return f"stream {name} is itself the reverse of {forth['reverse']}"
    for earlier in streams[:place]:
        if isinstance(earlier, dict) and earlier.get("reverse") == name:
            return f"stream {name} has a reverse stream already, {earlier.get('name')}"
    return ""
