"""The environment of a campaign, from its manifest: before, after, and what changed in between."""

from collections.abc import Iterator, Mapping

from netbench.report.markup import Column, Html, row, table

_COLUMNS = (Column("Setting"), Column("Before"), Column("After"))
_UNKNOWN = "unknown"
_ALWAYS_MOVING = "activity"  # load and CPU ticks: they tell how busy the host was, not that it was changed

Settings = dict[tuple[str, ...], str]


def environment_table(manifest: Mapping[str, object]) -> Html:
    """A row per setting that is known, in blocks as the manifest nests them; changed settings are marked."""
    before, after = _settings(manifest, "before"), _settings(manifest, "after")
    changed = changed_settings(manifest)
    blocks: dict[str, list[Html]] = {}
    for path in dict.fromkeys((*before, *after)):
        if before.get(path, _UNKNOWN) == after.get(path, _UNKNOWN) == _UNKNOWN:
            continue  # the manifest says that it was looked for; here it would only be in the way
        name = ".".join(path)
        now = after.get(path, _UNKNOWN) if after else "–"
        cells = (name, before.get(path, _UNKNOWN), now)
        blocks.setdefault(path[0], []).append(row(_COLUMNS, cells, css="changed" if name in changed else ""))
    return table(_COLUMNS, blocks.values(), css="environment")


def changed_settings(manifest: Mapping[str, object]) -> list[str]:
    """Names of the settings that differed after the campaign; none while it is not finished."""
    before, after = _settings(manifest, "before"), _settings(manifest, "after")
    if not after:
        return []
    paths = dict.fromkeys((*before, *after))
    return [
        ".".join(path)
        for path in paths
        if path[0] != _ALWAYS_MOVING and before.get(path, _UNKNOWN) != after.get(path, _UNKNOWN)
    ]


def _settings(manifest: Mapping[str, object], when: str) -> Settings:
    return dict(_leaves(manifest.get(when), ()))


def _leaves(value: object, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _leaves(inner, (*path, str(name)))
    elif path:
        yield path, _text(value)


def _text(value: object) -> str:
    if value is None:
        return _UNKNOWN
    if isinstance(value, list | tuple):
        return ", ".join(_text(one) for one in value)
    return str(value)
