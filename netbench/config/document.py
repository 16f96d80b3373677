"""A YAML file as plain data that remembers on which line each value stood.

Only what a topology or profile needs is read: mappings with text keys, lists and scalars. Tags, anchors,
aliases and merge keys are refused, so a small file cannot unfold into a huge one.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from netbench.errors import UsageError

MAX_BYTES = 1 << 18
MAX_NODES = 10_000  # keys and values; a hundred streams with their links take a quarter of it
_MAX_DEPTH = 20
_MAX_KEY = 100
_MAX_BITS = 64  # of a whole number
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
        # Some of the files in /proc, which look like any other, would have a reader wait.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            content = file.read(MAX_BYTES + 1) or b""
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{path}: is larger than {MAX_BYTES >> 10} KiB; a topology or profile is a short YAML file")
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: is not text (byte {error.start} is not UTF-8); expected a YAML file") from error
    return parse_document(text, str(path))


def parse_document(text: str, name: str) -> Document:
    """The YAML mapping in `text`; errors speak of it as `name`."""
    try:
        loader = _Loader(text, name)
        node = loader.get_single_node()
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
    return Document(name, loader.mapping(node, ()), loader.lines)


class _Loader(yaml.SafeLoader):
    """Makes plain data of a text, noting its lines, and refuses what is not needed at the place where it stands."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name
        self.lines: dict[tuple[str | int, ...], int] = {}
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported; write the value out",
                problem_mark=self.get_mark(),
            )
        self._nodes += 1
        if self._nodes > MAX_NODES:  # while they are read: to read on, and to check each, would take its time
            where = f"{self.name}:{self.get_mark().line + 1}"
            raise UsageError(f"{where}: more than {MAX_NODES:,} keys and values; a topology or profile is a short file")
        return super().compose_node(parent, index)

    def mapping(self, node: yaml.MappingNode, path: tuple[str | int, ...]) -> dict[str, object]:
        """What a node at `path` holds, by key."""
        found: dict[str, object] = {}
        self.lines.setdefault(path, _line(node))
        for key_node, value_node in node.value:
            where = f"{self.name}:{_line(key_node)}"
            if not isinstance(key_node, yaml.ScalarNode):
                raise UsageError(f"{where}: a key must be plain text")
            key = self._encodable(key_node)
            if not key.isprintable() or len(key) > _MAX_KEY:
                raise UsageError(f"{where}: {shortened(repr(key))} is no key: a key is short and on one line")
            if key in found:
                raise UsageError(f"{where}: {key!r} is given twice (first on line {self.lines[(*path, key)]})")
            self.lines[(*path, key)] = _line(key_node)
            found[key] = self._value(value_node, (*path, key))
        return found

    def _value(self, node: yaml.Node, path: tuple[str | int, ...]) -> object:
        self.lines.setdefault(path, _line(node))
        if len(path) > _MAX_DEPTH:
            raise UsageError(f"{self.name}:{_line(node)}: is nested too deeply")
        if isinstance(node, yaml.MappingNode):
            return self.mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        text = self._encodable(node)
        return text if node.tag.endswith((":int", ":float")) and _OLD_NUMBER.fullmatch(text) else self._scalar(node)

    def _scalar(self, node: yaml.Node) -> object:
        try:
            value = self.construct_object(node)
        except (yaml.YAMLError, ValueError, OverflowError, LookupError, AttributeError) as error:
            raise self._unreadable(node, getattr(error, "problem", None) or str(error)) from error
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise self._unreadable(node, "too large a number")
        return value

    def _encodable(self, node: yaml.Node) -> str:
        """The text of a node that can be written to a file again, which half of a surrogate pair cannot."""
        text = str(node.value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._unreadable(node, error.reason) from error
        return text

    def _unreadable(self, node: yaml.Node, why: str) -> UsageError:
        return UsageError(f"{self.name}:{_line(node)}: {shortened(repr(node.value))} cannot be read: {why}")


def shortened(text: str) -> str:
    """A value as it is quoted in a message."""
    return text if len(text) <= 60 else text[:57] + "…"


def _line(node: yaml.Node) -> int:
    line: int = node.start_mark.line + 1
    return line
