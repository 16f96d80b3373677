"""The environment of a campaign, from its manifest: before, after, and the changes in between."""

import shlex
from collections.abc import Iterator, Mapping

from netbench.report.formats import UNKNOWN, count
from netbench.report.markup import TableColumn, element, table
from netbench.report.sections import Section, note, section
from netbench.statistics.groups import grouped

_UNKNOWN = "unknown"
_ALWAYS_MOVING = "activity"  # load and CPU ticks: the activity of the host, not its settings

Path = tuple[str, ...]  # the names under which a setting is nested


def environment_section(manifest: Mapping[str, object]) -> Section:
    """Command and seed; a row per known setting, in the blocks of the manifest.

    Changed settings come first, with both values; the others have a single value.
    """
    command = manifest.get("command")
    words = [str(word) for word in command] if isinstance(command, list | tuple) else []
    before, after = _settings(manifest, "before"), _settings(manifest, "after")
    paths = list(dict.fromkeys((*before, *after)))

    def told(settings: Mapping[Path, str], path: Path) -> str:
        return settings.get(path, _UNKNOWN)

    changed = [
        path for path in paths if after and path[0] != _ALWAYS_MOVING and told(before, path) != told(after, path)
    ]
    if changed:
        names = ", ".join(map(".".join, changed))
        remark = f"{count(len(changed), 'setting')} changed during the campaign: {names}."
    elif after:
        remark = "No setting changed during the campaign."
    else:
        remark = "What holds after the campaign is not known yet."
    # Settings without a value are in the manifest only.
    known = [path for path in paths if {told(before, path), told(after, path)} != {_UNKNOWN}]
    moving = [path for path in known if not after or told(before, path) != told(after, path)]
    both: tuple[TableColumn[Path], ...] = (
        TableColumn("Setting", ".".join),
        TableColumn("Before", lambda path: told(before, path)),
        TableColumn("After", lambda path: told(after, path) if after else UNKNOWN),
    )
    once: tuple[TableColumn[Path], ...] = (
        TableColumn("Setting, the same before and after", ".".join),
        TableColumn("Value", lambda path: told(before, path)),
    )
    constant = [path for path in known if path not in moving]
    return section(
        "environment",
        "Environment",
        element(
            "dl",
            element("dt", "command"),
            element("dd", element("code", shlex.join(words) or _UNKNOWN)),
            element("dt", "seed"),
            element("dd", _text(manifest.get("seed"))),
        ),
        note(remark),
        *(
            table(
                columns,
                grouped(listed, lambda path: path[0]).values(),
                "environment",
                lambda path: "changed" if path in changed else "",
            )
            for columns, listed in ((both, moving), (once, constant))
            if listed
        ),
    )


def _settings(manifest: Mapping[str, object], when: str) -> dict[Path, str]:
    return dict(_leaves(manifest.get(when), ()))


def _leaves(value: object, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name)))
    elif path:
        yield path, _text(value)


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, list | tuple):
        return ", ".join(_text(item) for item in value)
    return str(value)
