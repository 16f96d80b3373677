"""What `netbench list` prints: what is shipped and what is installed."""

from collections.abc import Iterator

from netbench.config.document import read_document
from netbench.config.plugins import GENERATORS, SCHEDULES, SINKS, UUTS, plugins
from netbench.config.shipped import PROFILES, TOPOLOGIES, shipped


def listing() -> str:
    """Topologies, profiles, generators, sinks, schedules and UUTs, each with a line of what it is."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for title, folder in (("topologies", TOPOLOGIES), ("profiles", PROFILES)):
        yield f"{title}:"
        for name, path in shipped(folder).items():
            yield f"  {name:32} {read_document(path).data.get('description', '')}"
    for title, group in (("generators", GENERATORS), ("sinks", SINKS), ("schedules", SCHEDULES), ("UUTs", UUTS)):
        yield f"{title}:"
        for name, kind in plugins(group).items():
            summary = (kind.__doc__ or "").strip().partition("\n")[0]
            yield f"  {name:32} {summary}"
