"""Generators, sinks, UUTs and VMMs by name: whatever is installed under netbench's entry points, its own ones too."""

from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from netbench.errors import MissingError, UsageError
from netbench.model.profile import LOADS, NoOptions

GENERATORS = "netbench.generators"
SCHEDULES = "netbench.schedules"
SINKS = "netbench.sinks"
UUTS = "netbench.uuts"
VMMS = "netbench.vmms"
_WITHIN = {UUTS: (VMMS,)}  # a guest of any VMM can be a UUT, under the name of its VMM


def plugins(group: str) -> dict[str, Any]:
    """The classes of a group by name; MissingError when one that is named cannot be imported."""
    found = {}
    entries = [entry for one in (group, *_WITHIN.get(group, ())) for entry in _read_once(entry_points, one)]
    for entry in sorted(entries, key=lambda one: one.name):
        try:
            found[entry.name] = entry.load()
        except (ImportError, AttributeError) as error:
            raise MissingError(f"{entry.name} ({entry.value}) cannot be imported: {error}") from error
    if not found:
        raise UsageError("netbench is not installed: run `pip install -e .` in its checkout (or `make setup`)")
    return found


@cache
def _read_once(found: Callable[..., Iterable[EntryPoint]], group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group: each look goes through the files of all that is installed, and is one of dozens."""
    return tuple(found(group=group))


def origin(group: str, name: str) -> str:
    """The package that a class of a group is from, and its version; empty where that is not known."""
    found = next((entry.dist for entry in entry_points(group=group, name=name)), None)
    return f"{found.name} {found.version}" if found else ""


def option_models(group: str) -> dict[str, Any]:
    """The pydantic model of each kind's options, by name."""
    return {name: kind.Options for name, kind in plugins(group).items()}


def profile_kinds() -> dict[str, dict[str, Any]]:
    """The same for all that a profile chooses, by its key."""
    finding = {name: kind.MaximaOptions for name, kind in plugins(SCHEDULES).items() if kind.MaximaOptions}
    return {
        "generator": option_models(GENERATORS),
        "schedule": option_models(SCHEDULES),
        "sink": option_models(SINKS),
        "maxima": {LOADS: NoOptions, **finding},
    }
