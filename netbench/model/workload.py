"""The work of a server in a trial: a tool with its options, and how users write it.

A tool runs flows between a client, beside the source's NIC, and a server in a guest.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from itertools import product
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer, PlainValidator, WithJsonSchema

from netbench.errors import KeyedError
from netbench.model.fields import KeyPath, listed, located_error
from netbench.model.frame_size import FrameSize, stored_frame_size
from netbench.model.suggestions import choices

Scalar = str | int | float | bool
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9 ._=%-]{0,98}[A-Za-z0-9._=%-])?")
_NAME_RULE = "letters, digits, spaces and . _ = % -, at most 100"
_PATH = "path"  # the key of a workload's path, beside its options
_KIND = re.compile(r"[a-z][a-z0-9-]{0,19}")


class FlowPath(StrEnum):
    """The ends of a workload's flows: the places of client and server.

    `to-guest`: beside the source, in the guest. `through`: beside the source, beside the sink; the guest forwards.
    `between-guests`: in a neighbour, in the guest. `loopback`: both in the guest, without a link.
    """

    TO_GUEST = "to-guest"
    THROUGH = "through"
    BETWEEN_GUESTS = "between-guests"
    LOOPBACK = "loopback"


@dataclass(frozen=True, slots=True)
class Workload:
    """A tool by its kind, the path of its flows, and its options as the profile has them.

    `name` identifies it in results.
    """

    tool: str
    name: str
    options: tuple[tuple[str, Scalar], ...] = ()
    path: FlowPath = FlowPath.TO_GUEST

    @property
    def written(self) -> dict[str, Scalar]:
        """The workload as a profile has it."""
        path = {} if self.path is FlowPath.TO_GUEST else {"path": self.path.value}
        return {"kind": self.tool, "name": self.name, **path, **dict(self.options)}

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which users select it: its own and that of its tool."""
        return self.name, self.tool

    def option(self, name: str) -> Scalar | None:
        """Return the value of an option; None for the default of the tool."""
        return dict(self.options).get(name)

    def __str__(self) -> str:
        return self.name


def workloads_of(value: object) -> tuple[Workload, ...]:
    """Return the workloads of a profile's `tool`: a kind, a mapping, or a list of these.

    An option with a list of values makes one workload for each value, or each combination of values. Its name then has
    the values: `iperf3 message_size=64`. The same applies to `path`, except that its default is not in the name.
    ValueError, with the path of the key, for anything else.
    """
    workloads: list[Workload] = []
    for index, item in enumerate(listed(value)):
        where: KeyPath = (index,) if isinstance(value, list | tuple) else ()
        try:
            workloads += [item] if isinstance(item, Workload) else _expanded(item)
        except ValueError as error:
            key = error.key if isinstance(error, KeyedError) else ""
            raise located_error((*where, key) if key else where, str(error)) from error
    names = [workload.name for workload in workloads]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two tools are called {name!r}; give each a `name`")
    return tuple(workloads)


def workload_of(value: object) -> Workload:
    """Return the single workload of a neighbour, or of a stored trial."""
    found = [value] if isinstance(value, Workload) else list(_expanded(value))
    if len(found) != 1:
        raise ValueError("one tool with one value for each option")
    return found[0]


def _expanded(value: object) -> Iterator[Workload]:
    if isinstance(value, str):
        value = {"kind": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("kind"), str):
        raise ValueError("a tool is a kind, such as iperf3, or a mapping with its `kind` and its options")
    options = {str(key): option for key, option in value.items() if key not in ("kind", "name")}
    kind, name = value["kind"], value.get("name", value["kind"])
    if not _KIND.fullmatch(kind):
        raise KeyedError("kind", f"{kind!r} is no name of a tool")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise KeyedError("name", _NAME_RULE)
    for key, option in options.items():
        if isinstance(option, list | tuple) and not option:
            raise KeyedError(key, "a list of values has at least one")
        for scalar in listed(option):
            if not isinstance(scalar, Scalar):
                raise KeyedError(key, "a text, a number, true or false, or a list of these")
            if key == _PATH and scalar not in [*FlowPath]:
                raise KeyedError(key, f"{scalar!r} is no path of flows; {choices(scalar, [*FlowPath])}")
    varied = [key for key, option in options.items() if isinstance(option, list | tuple)]
    for values in product(*(options[key] for key in varied)):
        chosen = dict(zip(varied, values, strict=True))
        named = {key: scalar for key, scalar in chosen.items() if (key, scalar) != (_PATH, FlowPath.TO_GUEST)}
        suffix = "".join(f" {key}={_text(scalar)}" for key, scalar in named.items())
        if not _NAME.fullmatch(name + suffix):
            raise KeyedError("name", f"{name + suffix!r}: {_NAME_RULE}; choose a shorter name, or list fewer options")
        settings = {**options, **chosen}
        path = FlowPath(str(settings.pop(_PATH, FlowPath.TO_GUEST)))
        yield Workload(kind, name + suffix, tuple(settings.items()), path)


def _text(scalar: Scalar) -> str:
    return str(scalar).lower() if isinstance(scalar, bool) else str(scalar)


def _traffic(value: object) -> FrameSize | Workload:
    if isinstance(value, FrameSize | Workload):
        return value
    return workload_of(value) if isinstance(value, Mapping) and "kind" in value else stored_frame_size(value)


def traffic_text(traffic: FrameSize | Workload, unit: str = "") -> str:
    """Return a frame size as text, with the unit after its number, or the name of a workload."""
    return traffic.name if isinstance(traffic, Workload) else traffic.text(unit)


# The kind of traffic of trials and searches, as results have it.
TrafficField = Annotated[
    FrameSize | Workload,
    PlainValidator(_traffic),
    PlainSerializer(lambda traffic: traffic.written if isinstance(traffic, Workload) else traffic.stored),
]

_PATH_SCHEMA: dict[str, Any] = {"enum": [path.value for path in FlowPath]}
WORKLOAD_SCHEMA: dict[str, Any] = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "required": ["kind"],
            "properties": {
                "kind": {"type": "string"},
                "name": {"type": "string"},
                _PATH: {"anyOf": [_PATH_SCHEMA, {"type": "array", "items": _PATH_SCHEMA}]},
            },
        },
    ]
}
WorkloadsField = Annotated[
    tuple[Workload, ...],
    BeforeValidator(workloads_of),
    PlainSerializer(lambda works: [work.written for work in works]),
    WithJsonSchema({"anyOf": [*WORKLOAD_SCHEMA["anyOf"], {"type": "array", "items": WORKLOAD_SCHEMA}]}),
]
