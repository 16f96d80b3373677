"""Generators, sinks, tools, UUTs and VMMs by name: all under netbench's entry points, built-in ones too."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from pydantic import BaseModel

from netbench.errors import UsageError
from netbench.model.profile import LOADS, NoOptions

FIGURES = "netbench.figures"
GENERATORS = "netbench.generators"
SCHEDULES = "netbench.schedules"
SINKS = "netbench.sinks"
TOOLS = "netbench.tools"
UUTS = "netbench.uuts"
VMMS = "netbench.vmms"
_WITHIN = {UUTS: (VMMS,)}  # a guest of any VMM can be a UUT, under the name of its VMM
# The member that every kind of a group inherits from its base class.
_INHERITED = {
    GENERATORS: ("sends_mixes", "generators/base.py"),
    SCHEDULES: ("MaximaOptions", "plan/schedule.py"),
    SINKS: ("counts_mixes", "sinks/base.py"),
    TOOLS: ("server_command", "tools/base.py"),
    UUTS: ("supports", "uut/base.py or vmm/base.py"),
    VMMS: ("supports", "vmm/base.py"),
}


@dataclass(frozen=True, slots=True)
class Installed:
    """The classes of a group by name, and the errors of unusable ones by name."""

    kinds: dict[str, Any]
    broken: dict[str, str]


def installed(group: str) -> Installed:
    """Return all installed kinds of a group; UsageError if there are none, because then netbench is not installed."""
    kinds, broken = {}, {}
    entries = _entries(group)
    own = {entry.name for entry in entries if _is_own(entry)}
    for entry in sorted(entries, key=lambda entry: entry.name):
        if entry.name in own and not _is_own(entry):
            broken[f"{entry.name} of another package"] = f"{entry.value} is ignored: netbench has its own {entry.name}"
            continue
        try:
            kinds[entry.name] = _checked(entry.load(), group)
        # Importing a third-party module may raise anything, even SystemExit; the other kinds must still work.
        except (Exception, SystemExit) as error:
            broken[entry.name] = f"{entry.name} ({entry.value}) cannot be imported: {type(error).__name__}: {error}"
    if not entries:
        raise UsageError("netbench is not installed: run `pip install -e .` in its checkout (or `make setup`)")
    return Installed(kinds, broken)


def _checked(kind: object, group: str) -> object:
    """Return the class (of figures, the object) if it belongs to the group; TypeError otherwise."""
    if group == FIGURES:
        if not all(hasattr(kind, member) for member in ("title", "requirement", "build")):
            raise TypeError("it is no Figure of netbench/report/figures/registry.py")
        return kind
    member, base = _INHERITED[group]
    if not isinstance(kind, type) or not hasattr(kind, member):
        raise TypeError(f"it is not derived from the class of its group in netbench/{base}")
    options = getattr(kind, "Options", None)
    if not isinstance(options, type) or not issubclass(options, BaseModel):
        raise TypeError("its Options are no pydantic model")
    return kind


def plugins(group: str) -> dict[str, Any]:
    """Return the importable classes of a group by name."""
    return installed(group).kinds


@cache
def _read_once(read: Callable[..., Iterable[EntryPoint]], group: str, path: tuple[str, ...]) -> tuple[EntryPoint, ...]:
    """Return the entry points of a group on the path. They are cached, because a look-up reads all package files."""
    return tuple(read(group=group))


def origin(group: str, name: str) -> str:
    """Return the package of a class of a group, and its version; empty if unknown."""
    named = [entry for entry in _entries(group) if entry.name == name]
    package = next((entry.dist for entry in sorted(named, key=_is_own, reverse=True)), None)
    return f"{package.name} {package.version}" if package else ""


def is_built_in(group: str, name: str) -> bool:
    """Return whether a class of a group belongs to netbench itself."""
    return any(entry.name == name and _is_own(entry) for entry in _entries(group))


def _entries(group: str) -> list[EntryPoint]:
    groups = (group, *_WITHIN.get(group, ()))
    return [entry for name in groups for entry in _read_once(entry_points, name, tuple(sys.path))]


def _is_own(entry: EntryPoint) -> bool:
    return entry.value.startswith("netbench.")


def other_packages() -> frozenset[str]:
    """Return the top-level modules of all plug-ins that are not netbench's own."""
    groups = (FIGURES, GENERATORS, SCHEDULES, SINKS, TOOLS, UUTS, VMMS)
    entries = (entry for group in groups for entry in _read_once(entry_points, group, tuple(sys.path)))
    return frozenset(entry.module.partition(".")[0] for entry in entries) - {"netbench"}


class Models(dict[str, Any]):
    """The pydantic model of each kind's options, by name; `broken` has the errors of unusable kinds, by name."""

    def __init__(self, models: Mapping[str, Any], broken: Mapping[str, str]) -> None:
        super().__init__(models)
        self.broken = broken


def option_models(group: str) -> Models:
    """Return the option models of a group."""
    plugins_of_group = installed(group)
    return Models({name: kind.Options for name, kind in plugins_of_group.kinds.items()}, plugins_of_group.broken)


def profile_kinds() -> dict[str, Models]:
    """Return the option models of all kinds that a profile chooses, by its key."""
    schedules = installed(SCHEDULES)
    with_maxima = {name: kind.MaximaOptions for name, kind in schedules.kinds.items() if kind.MaximaOptions}
    return {
        "generator": option_models(GENERATORS),
        "schedule": option_models(SCHEDULES),
        "sink": option_models(SINKS),
        "tool": option_models(TOOLS),
        "maxima": Models({LOADS: NoOptions, **with_maxima}, schedules.broken),
    }
