"""What a shell completes beside commands and options: topologies, profiles, and the names that they have.

Each is asked for while somebody waits for a key to answer: files are read without being checked, and nothing is
imported that this does not need.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from typer import Context

from netbench.errors import NetbenchError


def topologies(incomplete: str) -> list[str]:
    """Shipped topologies, and files that may be one; none once it is a path, which shells complete themselves."""
    from netbench.config.shipped import TOPOLOGIES

    return list(_files(TOPOLOGIES, incomplete))


def profiles(incomplete: str) -> list[str]:
    """The same of profiles."""
    from netbench.config.shipped import PROFILES

    return list(_files(PROFILES, incomplete))


def uuts(context: Context, incomplete: str) -> list[str]:
    """The UUTs of the topology that the command line names; none where it names none yet."""
    from netbench.config.shipped import TOPOLOGIES

    written = _written(TOPOLOGIES, _argument(context, "topology", 0))
    listed = written.get("uuts")
    names = [one.get("name") for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [str(name) for name in names if str(name).startswith(incomplete)]


def scenarios(context: Context, incomplete: str) -> list[str]:
    """The scenarios of the profile that the command line names; of one that has none, what there always is."""
    from netbench.config.shipped import PROFILES
    from netbench.model.scenario import DEDICATED, expanded

    written = _written(PROFILES, _argument(context, "profile", 1))
    try:
        found = expanded(written.get("scenarios", DEDICATED))
    except ValueError:
        return []
    names = [one.get("name") for one in found if isinstance(one, dict)] if isinstance(found, tuple) else []
    return [str(name) for name in names if str(name).startswith(incomplete)]


def _files(folder: str, incomplete: str) -> Iterator[str]:
    from netbench.config.shipped import shipped

    if "/" in incomplete:
        return
    here: Iterable[str] = (path.name for path in sorted(Path().glob("*.y*ml")))
    yield from (name for name in (*shipped(folder), *here) if name.startswith(incomplete))


def _argument(context: Context, name: str, place: int) -> object:
    """What the command line says; the option that is being completed has no value yet, and leaves arguments unread."""
    left = context.args
    return context.params.get(name) or (left[place] if place < len(left) else None)


def _written(folder: str, name: object) -> dict[str, object]:
    """What the file that is meant has; nothing where there is none, or it cannot be read."""
    from netbench.config.document import read_document
    from netbench.config.shipped import find

    try:
        return read_document(find(folder, str(name))).data if name else {}
    except NetbenchError:
        return {}
