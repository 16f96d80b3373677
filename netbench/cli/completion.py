"""Shell completion beyond commands and options: topologies, profiles, and the names in them.

Each completion must respond quickly to a key press. Therefore files are read without being checked, and only the
necessary modules are imported.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from typer import Context

from netbench.errors import NetbenchError


def topologies(incomplete: str) -> list[str]:
    """Return shipped topologies and files that may be one; none for a path: shells complete paths themselves."""
    from netbench.config.shipped import TOPOLOGIES

    return list(_files(TOPOLOGIES, incomplete))


def profiles(incomplete: str) -> list[str]:
    """Return the same for profiles."""
    from netbench.config.shipped import PROFILES

    return list(_files(PROFILES, incomplete))


def uuts(context: Context, incomplete: str) -> list[str]:
    """Return the UUTs of the topology on the command line; none without a topology."""
    from netbench.config.shipped import TOPOLOGIES

    written = _written(TOPOLOGIES, _argument(context, "topology", 0))
    listed = written.get("uuts")
    names = [entry.get("name") for entry in listed if isinstance(entry, dict)] if isinstance(listed, list) else []
    return [str(name) for name in names if str(name).startswith(incomplete)]


def scenarios(context: Context, incomplete: str) -> list[str]:
    """Return the scenarios of the profile on the command line; the default for a profile without scenarios."""
    from netbench.config.shipped import PROFILES
    from netbench.model.scenario import DEDICATED, expanded

    written = _written(PROFILES, _argument(context, "profile", 1))
    try:
        entries = expanded(written.get("scenarios", DEDICATED))
    except ValueError:
        return []
    names = [entry.get("name") for entry in entries if isinstance(entry, dict)] if isinstance(entries, tuple) else []
    return [str(name) for name in names if str(name).startswith(incomplete)]


def _files(folder: str, incomplete: str) -> Iterator[str]:
    from netbench.config.shipped import shipped

    if "/" in incomplete:
        return
    here: Iterable[str] = (path.name for path in sorted(Path().glob("*.y*ml")))
    yield from (name for name in (*shipped(folder), *here) if name.startswith(incomplete))


def _argument(context: Context, name: str, place: int) -> object:
    """Return an argument of the command line; the option being completed has no value, so arguments may be unparsed."""
    left = context.args
    return context.params.get(name) or (left[place] if place < len(left) else None)


def _written(folder: str, name: object) -> dict[str, object]:
    """Return the content of the named file; empty without a file, or when it cannot be read."""
    from netbench.config.document import read_document
    from netbench.config.shipped import find

    try:
        return read_document(find(folder, str(name))).data if name else {}
    except NetbenchError:
        return {}
