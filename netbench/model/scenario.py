"""Scenarios: the activity of each neighbour while the victim is measured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)

from netbench.errors import KeyedError
from netbench.model.fields import FRAME_SIZE_SCHEMA, Name, NicName, listed, located_error, stored_load, written_load
from netbench.model.frame_size import MIN_FRAME_SIZE, FrameSize, parse_frame_size
from netbench.model.suggestions import choices, did_you_mean
from netbench.model.units import Load, LoadKind, load_hint, percent_hint
from netbench.model.workload import WORKLOAD_SCHEMA, Workload, workload_of

VICTIM = "victim"  # the measured guest; all others are its neighbours
DEDICATED = "dedicated"
SHARED_IDLE = "shared-idle"

_SHARE = re.compile(r"(\d+(?:\.\d+)?)\s*%(?: of (?:the )?maximum)?")
_OF_LINE_RATE = " of line rate"
_MOST_WORKERS = 1024
_SMALLEST = FrameSize.of(MIN_FRAME_SIZE)


@dataclass(frozen=True, slots=True)
class Off:
    """The neighbour is absent."""

    def __str__(self) -> str:
        return "off"


@dataclass(frozen=True, slots=True)
class Idle:
    """The neighbour is present and does nothing."""

    def __str__(self) -> str:
        return "idle"


@dataclass(frozen=True, slots=True)
class Stress:
    """The neighbour runs stress-ng with `cpu` workers that compute, and `vm` workers that fill and free memory."""

    cpu: int = 0
    vm: int = 0

    def __str__(self) -> str:
        return " ".join(
            ["stress-ng", *(f"--{name} {number}" for name, number in (("cpu", self.cpu), ("vm", self.vm)) if number)]
        )


@dataclass(frozen=True, slots=True)
class Network:
    """The neighbour forwards frames of `frame_size` at one rate on each of its streams.

    The rate is `load`, or `share` percent of the highest throughput of one stream of the victim. That was measured with
    frames of this size while its neighbours were idle (Schlosser et al. 2011, section 3.4). One of the two is None.
    """

    load: Load | None
    share: float | None = None
    frame_size: FrameSize = _SMALLEST

    @property
    def rate(self) -> str:
        """The rate as users write it."""
        if self.load is None:
            return f"{self.share:g}%"
        return f"{self.load}{_OF_LINE_RATE if self.load.kind is LoadKind.SHARE else ''}"

    def __str__(self) -> str:
        of = " of the maximum" if self.load is None else ""
        return f"forwards {self.frame_size.long_as} frames at {self.rate}{of}"


@dataclass(frozen=True, slots=True)
class Serve:
    """The guest serves a client beside the source of each of its streams, which requests `load`."""

    workload: Workload
    load: Load

    def __str__(self) -> str:
        return f"serves {self.workload} at {self.load}"


Activity = Off | Idle | Stress | Network | Serve

_NAMED: Mapping[str, Activity] = {
    "off": Off(),
    "idle": Idle(),
    "cpu-light": Stress(cpu=1),
    "cpu-heavy": Stress(cpu=8, vm=4),
}


NAMES = tuple(name for name, activity in _NAMED.items() if isinstance(activity, Stress))  # of scenarios that compute
_MEANT: Mapping[str, Activity] = {
    DEDICATED: Off(),
    SHARED_IDLE: Idle(),
    **{name: _NAMED[name] for name in NAMES},
}


def _activity(value: object) -> Activity:
    if isinstance(value, Activity):
        return value
    if value is False:  # YAML reads an unquoted off as false
        return Off()
    if isinstance(value, str) and value in _NAMED:
        return _NAMED[value]
    if isinstance(value, dict):
        if set(value) == {"stress"}:
            return _stress(value["stress"])
        if "network" in value and set(value) <= {"network", "frame_size"}:
            rate, size = value["network"], value.get("frame_size", MIN_FRAME_SIZE)
            # Parsed values are cached: results have the same few in every trial.
            return _same_network(rate, size) if isinstance(rate, str) and type(size) is int else _network(rate, size)
        if set(value) == {"serve", "load"}:
            return _serve(value["serve"], value["load"])
    raise ValueError(
        f"a neighbour does one of {', '.join(_NAMED)}, {{stress: {{cpu: N, vm: N}}}}, {{serve: TOOL, load: LOAD}}, or "
        "{network: RATE}, RATE being 50% of the maximum measured in shared-idle, 20000fps, 10Mbit/s or max"
        f"{did_you_mean(value, _NAMED)}"
    )


def _stress(value: object) -> Stress:
    if not isinstance(value, dict) or not value or not set(value) <= {"cpu", "vm"}:
        raise KeyedError("stress", "numbers of workers, for example {cpu: 8, vm: 4}")
    for name, number in value.items():
        if type(number) is not int or not 0 <= number <= _MOST_WORKERS:
            raise KeyedError("stress", f"{name}: a number of workers, 0 to {_MOST_WORKERS}")
    if not any(value.values()):
        raise KeyedError("stress", "no workers at all; write idle for that")
    return Stress(**value)


def _serve(tool: object, load: object) -> Serve:
    if not isinstance(load, str | Mapping):  # results have the rate of a share in a mapping
        raise KeyedError("load", f"a load needs a unit; write for example 100/s, 10Mbit/s or max{load_hint(load)}")
    try:
        parsed = stored_load(load)
    except ValueError as error:
        raise KeyedError("load", f"{error}") from error
    try:
        return Serve(workload_of(tool), parsed)
    except ValueError as error:
        raise KeyedError("serve", f"{error}") from error


def _network(rate: object, frame_size: object) -> Network:
    try:
        size = parse_frame_size(frame_size)
    except ValueError as error:
        raise KeyedError("frame_size", f"{error}") from error
    if not isinstance(rate, str):
        hint = percent_hint(rate) if isinstance(rate, int | float) and 0 < rate <= 100 else load_hint(rate)
        raise KeyedError("network", f"a rate needs a unit; write for example 50%, 20000fps, 10Mbit/s or max{hint}")
    share = _SHARE.fullmatch(rate.strip())
    if share is None:
        try:
            return Network(Load.parse(rate.removesuffix(_OF_LINE_RATE)), None, size)
        except ValueError as error:
            raise KeyedError("network", f"{rate!r}: {error}") from error
    if not 0 < float(share[1]) <= 1000:
        raise KeyedError("network", "a share of the maximum is more than 0% and at most 1000%")
    return Network(None, float(share[1]), size)


_same_network = lru_cache(maxsize=1024)(_network)


def written(activity: Activity) -> object:
    """Return an activity as a profile has it."""
    match activity:
        case Stress():
            workers = {name: number for name, number in (("cpu", activity.cpu), ("vm", activity.vm)) if number}
            return {"stress": workers}
        case Network():
            return {"network": activity.rate, "frame_size": activity.frame_size.written}
        case Serve():
            return {"serve": activity.workload.written, "load": written_load(activity.load)}
    return str(activity)


_WORKERS = {"type": "integer", "minimum": 0, "maximum": _MOST_WORKERS}
_ACTIVITY_SCHEMA = {
    "anyOf": [
        {"enum": [*_NAMED, False]},
        {
            "type": "object",
            "required": ["stress"],
            "additionalProperties": False,
            "properties": {"stress": {"type": "object", "properties": {"cpu": _WORKERS, "vm": _WORKERS}}},
        },
        {
            "type": "object",
            "required": ["network"],
            "additionalProperties": False,
            "properties": {"network": {"type": "string"}, "frame_size": FRAME_SIZE_SCHEMA},
        },
        {
            "type": "object",
            "required": ["serve", "load"],
            "additionalProperties": False,
            "properties": {"serve": WORKLOAD_SCHEMA, "load": {"type": "string"}},
        },
    ]
}
ActivityField = Annotated[
    Activity, PlainValidator(_activity), PlainSerializer(written), WithJsonSchema(_ACTIVITY_SCHEMA)
]


class Scenario(BaseModel):
    """The activity of every neighbour, unless `neighbours` has another one for it by name."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    written_instead: ClassVar[tuple[str, ...]] = ("network", "frame_size")  # of an activity, read by expanded()

    name: Name
    """Name in results."""
    activity: ActivityField = Idle()
    """Activity of all neighbours: off, idle, cpu-light, cpu-heavy, {stress: {cpu: 2, vm: 1}}, {network: 50%,
    frame_size: 64}, {serve: http, load: 100/s}."""
    neighbours: dict[NicName, ActivityField] = {}
    """Deviating activities, by neighbour."""
    streams: Annotated[tuple[Annotated[int, Field(strict=True, ge=1, le=1000)], ...], BeforeValidator(listed)] = ()
    """Numbers of the victim's sources. Default: as the profile."""

    @model_validator(mode="after")
    def _is_what_it_is_called(self) -> Self:
        """Raise ValueError if a scenario has a reserved name of comparisons and the report, but another activity."""
        meant = _MEANT.get(self.name)
        if meant is not None and {self.activity, *self.neighbours.values()} != {meant}:
            raise located_error(
                ("name",), f"{self.name} means that every neighbour is or does: {meant}; choose another name"
            )
        return self

    def of(self, neighbour: str) -> Activity:
        """Return the activity of one neighbour."""
        return self.neighbours.get(neighbour, self.activity)


def expanded(items: object) -> object:
    """Return the scenarios of a profile, with each item that defines several replaced by these.

    A name means the scenario of that name. `{network: [50%, 95%]}` defines one scenario per rate, named after
    the item (`network` without a name): `network-50`, `network-95`. Other items are left for validation.
    """
    if items in (None, [None]):
        raise ValueError("name at least one scenario, for example dedicated")
    written = items if isinstance(items, list | tuple) else [items]
    scenarios: list[object] = []
    for index, item in enumerate(written):
        try:
            scenarios += scenarios_of(item)
        except ValueError as error:
            key = error.key if isinstance(error, KeyedError) else ""
            place = (key,) if isinstance(item, dict) and key in item else ()
            raise located_error((index, *place) if written is items else place, str(error)) from error
    return tuple(scenarios)


def scenarios_of(item: object) -> list[object]:
    """Return the scenarios that one item of a profile defines; ValueError if that is impossible."""
    if isinstance(item, str):
        return [_named(item)]
    return _steps(item) if isinstance(item, dict) and "network" in item else [item]


def _named(name: str) -> dict[str, object]:
    if name in _MEANT:
        return {"name": name, "activity": _MEANT[name]}
    raise ValueError(
        f"{name!r} is no scenario; {choices(name, _MEANT)}, "
        "{network: [50%, 95%]}, and those you name yourself: {name: …, activity: …}"
    )


def _steps(item: Mapping[str, Any]) -> list[object]:
    rest = {key: value for key, value in item.items() if key not in ("network", "frame_size", "name", "activity")}
    if "activity" in item:
        raise ValueError("a scenario has either activity or network")
    base = item.get("name", "network")
    rates = item["network"] if isinstance(item["network"], list) else [item["network"]]
    if not rates:
        raise KeyedError("network", "name at least one rate, for example [50%, 95%]")
    activities = [_network(rate, item.get("frame_size", MIN_FRAME_SIZE)) for rate in rates]
    return [{**rest, "name": f"{base}-{_step_name(activity)}", "activity": activity} for activity in activities]


def _step_name(activity: Network) -> str:
    return activity.rate.rstrip("%").replace("bit/s", "bps").replace("% ", "-").replace(" ", "-")
