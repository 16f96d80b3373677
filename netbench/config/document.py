"""A YAML file as plain data that remembers on which line each value stood.

Only what a topology or profile needs is read: mappings with text keys, lists and scalars. Tags, anchors,
aliases and merge keys are refused, so a small file cannot unfold into a huge one.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from netbench.errors import UsageError

MAX_BYTES = 1 << 20
_MAX_DEPTH = 20
# YAML 1.1 reads 010 as eight and 1:30 as ninety; whoever writes that hardly means it, so it stays text.
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds: `data` for validation, `lines` (from 1) by the path of keys and indices."""

    name: str
    data: dict[str, object]
    lines: dict[tuple[str | int, ...], int] = field(default_factory=dict)

    def where(self, path: tuple[str | int, ...]) -> str:
        """`file:line` of the value at `path`, or of the nearest enclosing value that has a line."""
        while path and path not in self.lines:
            path = path[:-1]
        line = self.lines.get(path)
        return self.name if line is None else f"{self.name}:{line}"


def read_document(path: Path) -> Document:
    """The YAML mapping in a file; UsageError when it is missing, unreadable, binary, huge or not YAML."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: cannot be read: it is no regular file")
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: is larger than {MAX_BYTES >> 20} MiB; a topology or profile is a short YAML file")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not text (byte {error.start} is not UTF-8); expected a YAML file") from error
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """The YAML mapping in `text`; errors speak of it as `name`."""
    try:
        node = _Composer(text, name).get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UsageError(f"{name}{line}: is not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: is not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: is nested too deeply") from error
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{name}: is empty or not a mapping; expected `key: value` lines")
    lines: dict[tuple[str | int, ...], int] = {}
    data = _plain(node, (), lines, name)
    assert isinstance(data, dict)
    return Document(name, data, lines)


class _Composer(yaml.SafeLoader):
    """Composes nodes, refusing aliases at the place where they stand."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported; write the value out",
                problem_mark=self.get_mark(),
            )
        return super().compose_node(parent, index)


def _plain(node: yaml.Node, path: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int], name: str) -> object:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(path) > _MAX_DEPTH:
        raise UsageError(f"{name}:{line}: is nested too deeply")
    if isinstance(node, yaml.MappingNode):
        return _plain_mapping(node, path, lines, name)
    if isinstance(node, yaml.SequenceNode):
        return [_plain(item, (*path, index), lines, name) for index, item in enumerate(node.value)]
    if node.tag.endswith((":int", ":float")) and _OLD_NUMBER.fullmatch(str(node.value)):
        return node.value
    try:
        return yaml.SafeLoader("").construct_object(node)
    except (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError) as error:
        problem = getattr(error, "problem", None) or str(error)
        raise UsageError(f"{name}:{line}: {node.value!r} cannot be read: {problem}") from error


def _plain_mapping(
    node: yaml.MappingNode, path: tuple[str | int, ...], lines: dict[tuple[str | int, ...], int], name: str
) -> dict[str, object]:
    mapping: dict[str, object] = {}
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        if not isinstance(key_node, yaml.ScalarNode):
            raise UsageError(f"{name}:{line}: a key must be plain text")
        key = str(key_node.value)
        if key in mapping:
            raise UsageError(f"{name}:{line}: {key!r} is given twice (first on line {lines[(*path, key)]})")
        lines[(*path, key)] = line
        mapping[key] = _plain(value_node, (*path, key), lines, name)
    return mapping
