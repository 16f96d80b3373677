"""A YAML file as plain data with the position of each value.

Only the YAML that topologies and profiles need is accepted: mappings with text keys, lists and scalars. Tags, anchors,
aliases and merge keys are refused, so a small file cannot unfold into a huge one. Words are those of YAML 1.1, in which
`off` is false.
"""

import os
import re
from dataclasses import dataclass, field
from io import StringIO
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.composer import Composer
from ruamel.yaml.error import MarkedYAMLError, StringMark
from ruamel.yaml.error import YAMLError as YAMLError
from ruamel.yaml.events import AliasEvent
from ruamel.yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from ruamel.yaml.resolver import VersionedResolver

from netbench.errors import UsageError
from netbench.model.fields import KeyPath

MAX_BYTES = 1 << 18
MAX_NODES = 10_000  # keys and values; a hundred streams with their links need a quarter of it
_MAX_DEPTH = 20
_MAX_KEY = 100
_MAX_BITS = 64  # of a whole number
# YAML 1.1 reads 010 as eight and 1:30 as ninety; authors rarely mean that, so it stays text.
_OLD_NUMBER = re.compile(r"[-+]?(0[0-9_]+|[0-9][0-9_]*(:[0-5]?[0-9])+(\.[0-9_]*)?)")
_VERSION = "1.1"
# Text here, although YAML 1.1 reads some of it as true, false or a number: mostly, such words are names.
_TEXT = re.compile(r"[yYnN]|[-+]?[0-9_]+[eE].*|[-+]?[0-9_.]+[eE][0-9]+")

Position = tuple[int, int]  # line and column, from 1


class _Resolver(VersionedResolver):
    """Leaves `y`, `n` and `1e3` text, as most readers of YAML 1.1 do."""

    def resolve(self, kind: Any, value: Any, implicit: Any) -> Any:  # noqa: ANN401 - as in ruamel.yaml
        tag = super().resolve(kind, value, implicit)
        return self.DEFAULT_SCALAR_TAG if kind is ScalarNode and implicit[0] and _TEXT.fullmatch(value) else tag


def _safe_yaml(*, one_line: bool = False) -> YAML:
    """Return a reader and writer of plain data."""
    yaml = YAML(typ="safe", pure=True)
    yaml.Resolver = _Resolver
    yaml.version = _VERSION
    yaml.allow_unicode = True
    yaml.default_flow_style = one_line
    yaml.width = 1 << 16
    yaml.sort_base_mapping_type_on_output = False  # type: ignore[assignment]
    return yaml


def yaml_value(text: str | bytes) -> Any:  # noqa: ANN401 - any YAML
    """Return the value of a YAML document; YAMLError if it is none."""
    return _safe_yaml().load(text)


def yaml_text(value: object, *, one_line: bool = False) -> str:
    """Return a value as YAML, in blocks or (`one_line`) as it is written within a line."""
    yaml, stream = _safe_yaml(one_line=one_line), StringIO()
    yaml.dump(value, stream)
    return stream.getvalue().removeprefix(f"%YAML {_VERSION}\n---").lstrip()


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
        # Some files in /proc are regular files, but block their reader.
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
    yaml = _safe_yaml()
    yaml.Composer = _Composer
    try:
        node = yaml.compose(text)
        if not isinstance(node, MappingNode):
            raise UsageError(f"{name}: is empty or not a mapping; expected `key: value` lines")
        reader = _Reader(yaml, name)
        return Document(name, reader.mapping(node, ()), reader.values, reader.keys)
    except _TooManyNodesError as error:
        raise UsageError(
            f"{name}:{error}: more than {MAX_NODES:,} keys and values; a topology or profile is a short file"
        ) from error
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}:{mark.column + 1}" if mark else ""
        raise UsageError(f"{name}{line}: is not valid YAML: {error.problem or error.context}") from error
    except YAMLError as error:
        raise UsageError(f"{name}: is not valid YAML: {str(error).splitlines()[0]}") from error
    except RecursionError as error:
        raise UsageError(f"{name}: is nested too deeply") from error


class _TooManyNodesError(Exception):
    """The position of the first node that is one too many, as text."""


class _Composer(Composer):
    """Refuses aliases, and too many nodes: parsing and validating the rest of a huge file would take too long."""

    nodes = 0

    def compose_node(self, parent: Any, index: Any) -> Any:  # noqa: ANN401 - as in ruamel.yaml
        mark: StringMark = self.parser.peek_event().start_mark
        if self.parser.check_event(AliasEvent):
            raise MarkedYAMLError(problem="aliases (*name) are not supported; write the value out", problem_mark=mark)
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise _TooManyNodesError(f"{mark.line + 1}:{mark.column + 1}")
        return super().compose_node(parent, index)


class _Reader:
    """Converts nodes to plain data, records the position of each value, and refuses unsupported YAML."""

    def __init__(self, yaml: YAML, name: str) -> None:
        self._construct = yaml.constructor.construct_object
        self._name = name
        self.values: dict[KeyPath, Position] = {}
        self.keys: dict[KeyPath, Position] = {}

    def mapping(self, node: MappingNode, path: KeyPath) -> dict[str, object]:
        """Return the values of a node at `path`, by key."""
        data: dict[str, object] = {}
        self.values[path] = _position(node)
        for key_node, value_node in node.value:
            where = self._where(key_node)
            if not isinstance(key_node, ScalarNode):
                raise UsageError(f"{where}: a key must be plain text")
            key = self._encodable(key_node)
            if not key.isprintable() or len(key) > _MAX_KEY:
                raise UsageError(f"{where}: {shortened(repr(key))} is no key: a key is short and on one line")
            if key in data:
                raise UsageError(f"{where}: {key!r} is given twice (first on line {self.keys[(*path, key)][0]})")
            self.keys[(*path, key)] = _position(key_node)
            data[key] = self._value(value_node, (*path, key))
        return data

    def _value(self, node: Node, path: KeyPath) -> object:
        self.values[path] = _position(node)
        if len(path) > _MAX_DEPTH:
            raise UsageError(f"{self._where(node)}: is nested too deeply")
        if isinstance(node, MappingNode):
            return self.mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self._value(item, (*path, index)) for index, item in enumerate(node.value)]
        text = self._encodable(node)
        return (
            text if str(node.tag).endswith((":int", ":float")) and _OLD_NUMBER.fullmatch(text) else self._scalar(node)
        )

    def _scalar(self, node: Node) -> object:
        try:
            value = self._construct(node)
        except (YAMLError, ValueError, OverflowError, LookupError, AttributeError) as error:
            raise self._unreadable(node, getattr(error, "problem", None) or str(error)) from error
        if isinstance(value, int) and value.bit_length() > _MAX_BITS:
            raise self._unreadable(node, "too large a number")
        return value

    def _encodable(self, node: Node) -> str:
        """Return the text of a node; UsageError if it cannot be encoded, such as half of a surrogate pair."""
        text = str(node.value)
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise self._unreadable(node, error.reason) from error
        return text

    def _where(self, node: Node) -> str:
        line, column = _position(node)
        return f"{self._name}:{line}:{column}"

    def _unreadable(self, node: Node, why: str) -> UsageError:
        return UsageError(f"{self._where(node)}: {shortened(repr(node.value))} cannot be read: {why}")


def shortened(text: str) -> str:
    """Return a value as it is quoted in a message."""
    return text if len(text) <= 60 else text[:57] + "…"


def _position(node: Node) -> Position:
    return node.start_mark.line + 1, node.start_mark.column + 1
