"""Values as users write them in topologies and profiles: times and amounts of memory, with their units."""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from netbench.model.frame_size import MAX_MTU, MIN_FRAME_SIZE, NAMED_MIXES, FrameSize, largest_frame, parse_frame_size
from netbench.model.units import (
    Load,
    LoadKind,
    load_hint,
    memory_hint,
    parse_mebibytes,
    parse_seconds,
    percent_hint,
    plain,
)

# An interface name has at most 15 characters (IFNAMSIZ); netbench's names have a prefix, bridges `nb-br-`.
NIC_NAME = r"^[a-z][a-z0-9-]{0,11}$"
NicName = Annotated[str, StringConstraints(pattern=NIC_NAME)]
StreamName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9-]{0,8}$")]
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")]
# No characters that `ip -batch` takes for quotes, a comment or a continued line; no control characters.
PORT_NAME = r"""^[^\s\x00-\x1f\x7f-\x9f/#'"\\]{1,15}$"""
PortName = Annotated[str, StringConstraints(pattern=PORT_NAME)]

Shared = TypeVar("Shared", bound=Hashable)

KeyPath = tuple[str | int, ...]  # of keys and indices in a document
LOCATED = "located"  # the type of errors whose message has its subject, and needs neither field nor value
LOCATED_KEY = "located_key"  # the same, of a key instead of its value


def as_kind(value: object) -> object:
    """Return `{"kind": value}` for the name of a kind without options; other values unchanged."""
    return {"kind": value} if isinstance(value, str) else value


def located_error(path: KeyPath, message: str, value: object = None, kind: str = LOCATED) -> ValidationError:
    """Return an error of the value at a path below the one that is being validated."""
    error = PydanticCustomError(kind, "{message}", {"message": message})
    return ValidationError.from_exception_data("value", [{"type": error, "loc": path, "input": value}])


def listed(value: object) -> Sequence[Any]:
    """Return the value as a list: a single value means a list of it."""
    return value if isinstance(value, list | tuple) else [value]


def alike(value: Shared, info: ValidationInfo) -> Shared:
    """Return an equal value that was read before, if any, so that many documents share one object; it must not change.

    The reader keeps these values in a dict, the context of validation; without a context nothing is shared.
    """
    known: dict[Shared, Shared] | None = info.context
    return value if known is None else known.setdefault(value, value)


def _seconds(value: object) -> float:
    if not isinstance(value, str | int | float):
        raise ValueError("not a time; write for example 500ms or 2s")
    return parse_seconds(value)


def parse_percent(value: object, example: str = "0.5%") -> float:
    """Return the ratio of a text such as `0.5%`; ValueError, with an example, for anything else."""
    match = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?)\s*%", value.strip()) if isinstance(value, str) else None
    if not match:
        raise ValueError(f"not a percentage{percent_hint(value) or f'; write for example {example}'}")
    return float(Decimal(match[1]) / 100)


def percent_text(ratio: float) -> str:
    """Return a ratio as users write it."""
    return f"{plain(Decimal(repr(ratio)) * 100)}%"


def _mebibytes(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        raise ValueError(f"an amount of memory needs a unit; write for example 256M or 1G{memory_hint(value)}")
    return parse_mebibytes(value if isinstance(value, str) else "")


# A calibrated rate beside its share, in results of version 0.1.
_CALIBRATED = re.compile(r"(?P<load>.*) \((?P<fps>\d{1,30}(?:\.\d{1,30})?)fps\)")


def stored_load(value: object) -> Load:
    """Return a load as users write it, or as results have it, with its rate; ValueError for anything else."""
    if isinstance(value, Load):
        return value
    if isinstance(value, str) and (match := _CALIBRATED.fullmatch(value)):
        value = match.groupdict()
    if isinstance(value, Mapping) and set(value) == {"load", "fps"}:
        return replace(Load.parse(str(value["load"])), found=Load.of_fps(float(value["fps"])))
    if isinstance(value, Mapping) and set(value) == {"load", "rate"}:
        return replace(Load.parse(str(value["load"])), found=Load.parse(str(value["rate"])))
    if not isinstance(value, str):
        raise ValueError(f"a load needs a unit; write for example 400Mbit/s, 148809fps, 50% or max{load_hint(value)}")
    return Load.parse(value)


def written_load(load: Load) -> object:
    """Return a load as results have it: as in a profile, with the rate of a maximum once that is known."""
    if load.found is None:
        return str(load)
    is_of_frames = load.found.kind is LoadKind.FRAME_RATE
    return {"load": str(load), **({"fps": load.found.value} if is_of_frames else {"rate": str(load.found)})}


def _uncalibrated(load: Load) -> Load:
    if load.found is not None:
        raise ValueError(f"a profile has no rate of the maximum, because that is measured; write {load}")
    return load


FRAME_SIZE_SCHEMA = {
    "anyOf": [
        {"type": "integer", "minimum": MIN_FRAME_SIZE, "maximum": largest_frame(MAX_MTU)},
        {"enum": list(NAMED_MIXES)},
        {
            "type": "object",
            "required": ["name", "genome"],
            "additionalProperties": False,
            "properties": {
                "name": {"type": "string"},
                "genome": {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["integer", "string"]}}]},
                "sizes": {"type": "object", "additionalProperties": {"type": "integer"}},
            },
        },
    ]
}
# As users write it; what results have may name a packet, too.
FrameSizeField = Annotated[
    FrameSize,
    BeforeValidator(parse_frame_size),
    PlainSerializer(lambda size: size.written),
    WithJsonSchema(FRAME_SIZE_SCHEMA),
]
LoadField = Annotated[
    Load,
    BeforeValidator(stored_load),
    PlainSerializer(written_load),
    WithJsonSchema(
        {
            "type": "string",
            "examples": ["400Mbit/s", "148809fps", "50%", "50% of maximum", "max"],
            "pattern": r"^\s*(max|[0-9.]+\s*([kKMGT]?bit/s|[kKM]?fps|[kKM]?/s|%|% of (the )?maximum))\s*$",
        }
    ),
]
ProfileLoadField = Annotated[LoadField, AfterValidator(_uncalibrated)]
Seconds = Annotated[
    float,
    BeforeValidator(_seconds),
    WithJsonSchema(
        {
            "type": ["string", "number"],
            "examples": ["500ms", "2s", "2min"],
            "minimum": 0,
            "pattern": r"^\s*[0-9.]+\s*(us|ms|s|min|h)\s*$",
        }
    ),
]
Mebibytes = Annotated[
    int,
    BeforeValidator(_mebibytes),
    PlainSerializer(lambda mib: f"{mib}M"),
    Field(ge=1),
    WithJsonSchema(
        {"type": "string", "examples": ["256M", "1G"], "pattern": r"^\s*[0-9]+\s*[MG](i?B)?\s*$"},
    ),
]
PERCENT_SCHEMA: dict[str, Any] = {
    "type": "string",
    "examples": ["0.5%"],
    "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*%\s*$",
}
Percent = Annotated[
    float, BeforeValidator(parse_percent), PlainSerializer(percent_text), WithJsonSchema(PERCENT_SCHEMA)
]
Memory = Annotated[Mebibytes, Field(ge=16)]
Vcpus = Annotated[int, Field(strict=True, ge=1, le=255)]
BootLimit = Annotated[Seconds, Field(gt=0, le=3600)]
