"""Generators, sinks, UUTs and VMMs by name: whatever is installed under netbench's entry points, its own ones too."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.profile import LOADS, NoOptions

GENERATORS = "netbench.generators"
SCHEDULES = "netbench.schedules"
SINKS = "netbench.sinks"
UUTS = "netbench.uuts"
VMMS = "netbench.vmms"
_WITHIN = {UUTS: (VMMS,)}  # a guest of any VMM can be a UUT, under the name of its VMM
# What every kind of a group has from the class that it is derived from.
_INHERITED = {
    GENERATORS: ("sends_mixes", "generators/base.py"),
    SCHEDULES: ("MaximaOptions", "plan/schedule.py"),
    SINKS: ("counts_mixes", "sinks/base.py"),
    UUTS: ("supports", "uut/base.py or vmm/base.py"),
    VMMS: ("supports", "vmm/base.py"),
}


@dataclass(frozen=True, slots=True)
class Installed:
    """The classes of a group by name, and why others, by name too, cannot be used."""

    kinds: dict[str, Any]
    broken: dict[str, str]


def installed(group: str) -> Installed:
    """All that is installed of a group; UsageError when that is nothing, as netbench itself is not."""
    kinds, broken = {}, {}
    entries = [
        entry for one in (group, *_WITHIN.get(group, ())) for entry in _read_once(entry_points, one, tuple(sys.path))
    ]
    for entry in sorted(entries, key=lambda one: one.name):
        try:
            kinds[entry.name] = _checked(entry.load(), group)
        # Whatever somebody's module does when it is imported, sys.exit() too: the others are not to blame.
        except (Exception, SystemExit) as error:
            broken[entry.name] = f"{entry.name} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
    if not entries:
        raise UsageError("netbench is not installed: run `pip install -e .` in its checkout (or `make setup`)")
    return Installed(kinds, broken)


def _checked(kind: object, group: str) -> object:
    """A class of a group; TypeError where it is none."""
    member, base = _INHERITED[group]
    if not isinstance(kind, type) or not hasattr(kind, member):
        raise TypeError(f"it is not derived from the class of its group in netbench/{base}")
    options = getattr(kind, "Options", None)
    if not isinstance(options, type) or not issubclass(options, BaseModel):
        raise TypeError("its Options are no pydantic model")
    return kind


def plugins(group: str) -> dict[str, Any]:
    """The classes of a group by name, as far as they can be imported."""
    return installed(group).kinds


@cache
def _read_once(found: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """The entry points of a group of what is on the path: each look goes through the files of all that is installed."""
    return tuple(found(group=group))


def origin(group: str, name: str) -> str:
    """The package that a class of a group is from, and its version; empty where that is not known."""
    groups = (group, *_WITHIN.get(group, ()))
    entries = (entry for one in groups for entry in _read_once(entry_points, one, tuple(sys.path)))
    found = next((entry.dist for entry in entries if entry.name == name), None)
    return f"{found.name} {found.version}" if found else ""


class Models(dict[str, Any]):
    """The pydantic model of each kind's options, by name; `broken` says why others cannot be used, by name too."""

    def __init__(self, models: Mapping[str, Any], broken: Mapping[str, str]) -> None:
        super().__init__(models)
        self.broken = broken


def option_models(group: str) -> Models:
    """Those of a group."""
    found = installed(group)
    return Models({name: kind.Options for name, kind in found.kinds.items()}, found.broken)


def profile_kinds() -> dict[str, Models]:
    """The same for all that a profile chooses, by its key."""
    schedules = installed(SCHEDULES)
    finding = {name: kind.MaximaOptions for name, kind in schedules.kinds.items() if kind.MaximaOptions}
    return {
        "generator": option_models(GENERATORS),
        "schedule": option_models(SCHEDULES),
        "sink": option_models(SINKS),
        "maxima": Models({LOADS: NoOptions, **finding}, schedules.broken),
    }
