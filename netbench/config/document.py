"""A YAML file as plain data with the position of each value.

Only the YAML that topologies and profiles need is accepted: mappings with text keys, lists and scalars. Tags, anchors,
aliases and merge keys are refused, so a small file cannot unfold into a huge one.
"""

import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from netbench.errors import UsageError

MAX_BYTES = 1 << 18
MAX_NODES = 10_000  # keys and values; a hundred streams with their links need a quarter of it
_MAX_DEPTH = 20
_MAX_KEY = 100
_MAX_BITS = 64  # of a whole number
# YAML 1.1 reads 010 as eight and 1:30 as ninety; authors rarely mean that, so it stays text.
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")


KeyPath = tuple[str | int, ...]  # of keys and indices
Position = tuple[int, int]  # line and column, from 1


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file: `data` for validation, and the positions of values and of keys.

    A position is line and column, from 1, by the path of keys and indices.
    """

    name: str
    data: dict[str, object]
    values: dict[KeyPath, Position] = field(default_factory=dict)
    keys: dict[KeyPath, Position] = field(default_factory=dict)

    def where(self, path: KeyPath, *, key: bool = False) -> str:
        """Return `file:line:column` of the value at `path`, or of its key; if unknown, of the nearest parent value."""
        if key and path in self.keys:
            return self._at(self.keys[path])
        while path and path not in self.values:
            path = path[:-1]
        return self._at(self.values[path]) if path in self.values else self.name

    def _at(self, place: Position) -> str:
        line, column = place
        return f"{self.name}:{line}:{column}"


def value_at(data: object, path: KeyPath) -> object:
    """Return the value at a path in plain data; None if there is none."""
    here: Any = data
    for step in path:
        try:
            here = here[step]
        except (LookupError, TypeError):
            return None
    return here


def read_document(path: Path) -> Document:
    """Return the YAML mapping in a file; UsageError when it is missing, unreadable, binary, huge or not YAML."""
    try:
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: cannot be read: it is no regular file")
        # Some files in /proc look like regular files, but block their reader.
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
    """Return the YAML mapping in `text`; errors call it `name`."""
    try:
        loader = _Loader(text, name)
        node = loader.get_single_node()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{name}{line}: is not valid YAML: {error.problem or error.context}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{name}: is not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: is nested too deeply") from error
    if not isinstance(node, yaml.MappingNode):
        raise UsageError(f"{name}: is empty or not a mapping; expected `key: value` lines")
    return Document(name, loader.mapping(node, ()), loader.values, loader.keys)


class _Loader(yaml.SafeLoader):
    """Converts a text to plain data, records the position of each value, and refuses unsupported YAML."""

    def __init__(self, text: str, name: str) -> None:
        super().__init__(text)
        self.name = name
        self.values: dict[KeyPath, Position] = {}
        self.keys: dict[KeyPath, Position] = {}
        self._nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.MarkedYAMLError(
                problem="aliases (*name) are not supported; write the value out",
                problem_mark=self._next_mark(),
            )
        self._nodes += 1
        if self._nodes > MAX_NODES:  # checked while parsing: parsing and validating the rest would take too long
            mark = self._next_mark()
            where = f"{self.name}:{mark.line + 1}:{mark.column + 1}"
            raise UsageError(f"{where}: more than {MAX_NODES:,} keys and values; a topology or profile is a short file")
        return super().compose_node(parent, index)

    def _next_mark(self) -> yaml.Mark:
        mark: yaml.Mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # PyYAML has no types
        return mark

    def mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, object]:
        """Return the values of a node at `path`, by key."""
        found: dict[str, object] = {}
        self.values[path] = _place(node)
        for key_node, value_node in node.value:
            where = self._where(key_node)
            if not isinstance(key_node, yaml.ScalarNode):
                raise UsageError(f"{where}: a key must be plain text")
            key = self._encodable(key_node)
            if not key.isprintable() or len(key) > _MAX_KEY:
                raise UsageError(f"{where}: {shortened(repr(key))} is no key: a key is short and on one line")
            if key in found:
                raise UsageError(f"{where}: {key!r} is given twice (first on line {self.keys[(*path, key)][0]})")
            self.keys[(*path, key)] = _place(key_node)
            found[key] = self._value(value_node, (*path, key))
        return found

    def _value(self, node: yaml.Node, path: KeyPath) -> object:
        self.values[path] = _place(node)
        if len(path) > _MAX_DEPTH:
            raise UsageError(f"{self._where(node)}: is nested too deeply")
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
        """Return the text of a node; UsageError if it cannot be encoded, such as half of a surrogate pair."""
        text = str(node.value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._unreadable(node, error.reason) from error
        return text

    def _where(self, node: yaml.Node) -> str:
        line, column = _place(node)
        return f"{self.name}:{line}:{column}"

    def _unreadable(self, node: yaml.Node, why: str) -> UsageError:
        return UsageError(f"{self._where(node)}: {shortened(repr(node.value))} cannot be read: {why}")


def shortened(text: str) -> str:
    """Return a value as it is quoted in a message."""
    return text if len(text) <= 60 else text[:57] + "…"


def _place(node: yaml.Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1
