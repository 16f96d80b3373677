"""The CPU limits of a guest on this machine: which CPUs, with which weight, and how much CPU time at most."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema

from netbench.model.fields import PERCENT_SCHEMA, parse_percent, percent_text
from netbench.model.suggestions import did_you_mean

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
