"""`--set key=value`: its parts, and its position in a document."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from netbench.config.document import Document, KeyPath, parse_document
from netbench.config.wording import close_to
from netbench.errors import UsageError

TOPOLOGY_PREFIX = "topology."
# Keys that may have just a kind, without options.
_KIND_ALONE = ("generator", "schedule", "sink", "maxima", "channel")


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set key=value`: the parts of its key, and its value."""

    steps: tuple[str, ...]
    value: object
    text: str

    @classmethod
    def parse(cls, written: str) -> "Override":
        """Parse `key=value`; the value is YAML, and `a,b` is a list. UsageError when it is neither."""
        text = written.removeprefix(TOPOLOGY_PREFIX)
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {written}: write it as key=value, for example repetitions=3")
        value = value.strip()
        if "," in value and value[0] not in "[{'\"":
            value = f"[{value}]"
        document = parse_document(f"value: {value}\n", f"--set {written}")
        return cls(tuple(key.strip().split(".")), document.data["value"], written)


def overridden(document: Document, texts: Iterable[str]) -> tuple[Document, dict[KeyPath, str]]:
    """Return the changed document, and the override of each changed path; UsageError if a path is impossible."""
    sources: dict[KeyPath, str] = {}
    for override in map(Override.parse, texts):
        path = _put(document, override)
        sources[path] = f"--set {override.text}"
    return document, sources


def _put(document: Document, override: Override) -> KeyPath:
    parent: Any = document.data
    steps, path = override.steps, KeyPath()
    while True:
        if isinstance(parent, dict):
            step: str | int = steps[0]
            steps = steps[1:]
        elif isinstance(parent, list):
            step, steps = _item(parent, steps, override)
        else:
            raise UsageError(f"--set {override.text}: {document.name} has no place for it")
        path = (*path, step)
        if not steps:
            parent[step] = override.value
            return path
        if isinstance(parent, dict):
            if step in _KIND_ALONE and isinstance(parent.get(step), str):
                parent[step] = {"kind": parent[step]}
            parent = parent.setdefault(step, {})
        else:
            parent = parent[step]


def _item(items: Sequence[object], steps: tuple[str, ...], override: Override) -> tuple[int, tuple[str, ...]]:
    """Return the index of an item, given by number or by name (which may contain dots), and the remaining steps."""
    names = [str(item["name"]) if isinstance(item, dict) and "name" in item else "" for item in items]
    for length in range(1, len(steps) + 1):
        name = ".".join(steps[:length])
        if name in names:
            return names.index(name), steps[length:]
    if steps[0].isdecimal() and int(steps[0]) < len(items):
        return int(steps[0]), steps[1:]
    known = list(filter(None, names))
    close = close_to(steps[0], known)
    meant = f"did you mean {close}? " if close else ""
    choices = f"there are {', '.join(known)}, or " if known else ""
    numbers = f"numbers from 0 to {len(items) - 1}" if items else "it is empty"
    raise UsageError(f"--set {override.text}: there is no {steps[0]!r} in that list; {meant}{choices}{numbers}")
