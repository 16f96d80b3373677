"""Topologies and profiles from YAML, with overrides; every problem named by file, line, field and value."""

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from netbench.config.document import Document, parse_document, read_document, shortened
from netbench.errors import UsageError
from netbench.model.profile import Profile
from netbench.model.topology import NeighbourSpec, Topology, UutSpec

# Kinds of UUTs, generators or sinks, and the model that checks the options of each.
Kinds = Mapping[str, type[BaseModel]]

TOPOLOGY_PREFIX = "topology."
_MOST_TOLD = 20
# Keys for which the kind will do where it has no options.
_KIND_ALONE = ("generator", "schedule", "sink", "maxima", "channel")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class Override:
    """One `--set key=value`: where it goes and what it says."""

    path: tuple[str | int, ...]
    value: object
    text: str

    @classmethod
    def parse(cls, written: str) -> "Override":
        """Read `key=value`; the value is YAML, and `a,b` is a list. UsageError when it is neither."""
        text = written.removeprefix(TOPOLOGY_PREFIX)
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {written}: write it as key=value, for example repetitions=3")
        value = value.strip()
        if "," in value and value[0] not in "[{'\"":
            value = f"[{value}]"
        document = parse_document(f"value: {value}\n", f"--set {written}")
        path = tuple(int(part) if part.isdecimal() else part for part in key.strip().split("."))
        return cls(path, document.data["value"], written)


def load_topology(path: Path, uut_kinds: Kinds, overrides: Sequence[str] = ()) -> Topology:
    """A topology file with its overrides (`topology.…=…`) applied; UsageError names each problem."""
    chosen = [text for text in overrides if text.startswith(TOPOLOGY_PREFIX)]
    document, sources = _overridden(read_document(path), chosen)
    document.data.setdefault("name", path.stem)
    problems = _Problems(document, sources)
    topology = problems.validate(Topology, document.data, ())
    for index, uut in enumerate(topology.uuts if topology else ()):
        problems.check_kind("UUT", uut.kind, uut.options, uut_kinds, ("uuts", index))
    problems.raise_if_any()
    assert topology is not None
    for index, neighbour in enumerate(topology.neighbours):
        problems.check_meant_for_somebody(neighbour, topology.uuts, uut_kinds, ("neighbours", index))
    for uut_index, uut in enumerate(topology.uuts):
        for index, neighbour in enumerate(topology.neighbours):
            changed = neighbour.name in uut.neighbours
            where = ("uuts", uut_index, "neighbours", neighbour.name) if changed else ("neighbours", index)
            problems.check_neighbour(neighbour, uut, uut_kinds, where)
    problems.raise_if_any()
    return topology


def load_profile(path: Path, kinds: Mapping[str, Kinds], overrides: Sequence[str] = ()) -> Profile:
    """A profile file with its overrides applied, `kinds` by key; UsageError names each problem."""
    chosen = [text for text in overrides if not text.startswith(TOPOLOGY_PREFIX)]
    document, sources = _overridden(read_document(path), chosen)
    document.data.setdefault("name", path.stem)
    problems = _Problems(document, sources)
    profile = problems.validate(Profile, document.data, ())
    if profile:
        generator, schedule, sink = profile.generator, profile.schedule, profile.sink
        problems.check_kind("generator", generator.kind, generator.options, kinds["generator"], ("generator",))
        problems.check_kind("schedule", schedule.kind, schedule.options, kinds["schedule"], ("schedule",))
        if maxima := profile.maxima:
            problems.check_kind("maxima", maxima.kind, maxima.options, kinds["maxima"], ("maxima",))
        model = kinds["sink"].get(sink.kind)
        if sink.kind != generator.kind or model is not kinds["generator"].get(sink.kind):
            problems.check_kind("sink", sink.kind, sink.options, kinds["sink"], ("sink",))
        elif sink.options:
            problems.note(("sink",), f"one {sink.kind} sends and receives: its options stand under generator")
    problems.raise_if_any()
    assert profile is not None
    return profile


def _overridden(document: Document, texts: Iterable[str]) -> tuple[Document, dict[tuple[str | int, ...], str]]:
    sources: dict[tuple[str | int, ...], str] = {}
    for override in map(Override.parse, texts):
        parent: Any = document.data
        for step in override.path[:-1]:
            if isinstance(parent, dict):
                if step in _KIND_ALONE and isinstance(parent.get(step), str):
                    parent[step] = {"kind": parent[step]}
                parent = parent.setdefault(step, {})
            elif isinstance(parent, list) and isinstance(step, int) and step < len(parent):
                parent = parent[step]
            else:
                parent = None
        last: Any = override.path[-1]
        if isinstance(parent, dict) or (isinstance(parent, list) and isinstance(last, int) and last < len(parent)):
            parent[last] = override.value
        else:
            raise UsageError(f"--set {override.text}: {document.name} has no place for it")
        sources[override.path] = f"--set {override.text}"
    return document, sources


class _Problems:
    """Collects what is wrong with one document and raises it all as one UsageError, a line each."""

    def __init__(self, document: Document, sources: Mapping[tuple[str | int, ...], str]) -> None:
        self._document = document
        self._sources = sources
        self._found: list[str] = []

    def validate(self, model: type[M], data: object, prefix: tuple[str | int, ...]) -> M | None:
        """The model made of `data`, or None with the problems noted."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self._note_all(error, model, prefix)
        except RecursionError:
            self._found.append(f"{self._document.name}: is nested too deeply")
        return None

    def check_kind(
        self, what: str, kind: str, options: dict[str, object], kinds: Kinds, prefix: tuple[str | int, ...]
    ) -> None:
        """Check the options of what is chosen by its kind."""
        if kind not in kinds:
            known = ", ".join(sorted(kinds))
            self._found.append(f"{self._where((*prefix, 'kind'))}: {kind!r} is no kind of {what}; there are {known}")
            return
        self.validate(kinds[kind], options, prefix)

    def note(self, path: tuple[str | int, ...], message: str) -> None:
        """One more problem."""
        self._found.append(f"{self._where(path)}: {_field_name(path)}: {message}")

    def check_neighbour(
        self, neighbour: NeighbourSpec, uut: UutSpec, kinds: Kinds, prefix: tuple[str | int, ...]
    ) -> None:
        """Check what a neighbour is beside a UUT, as if it were written at `prefix`."""
        try:
            beside = neighbour.beside(uut)
            kind = kinds.get(beside.kind or uut.kind)
            spec = beside.as_uut(uut, kind.model_fields if kind else ())
        except ValidationError as error:
            self._note_all(error, NeighbourSpec, prefix)
            return
        self.check_kind("UUT", spec.kind, spec.options, kinds, prefix)
        told = neighbour.options if neighbour.kind is None else {}  # by check_meant_for_somebody()
        for option in beside.options:
            if option in UutSpec.model_fields and option not in told:
                known = kind.model_fields if kind else ()
                self.note((*prefix, option), self._unknown_key(option, sorted({*NeighbourSpec.model_fields, *known})))

    def check_meant_for_somebody(
        self, neighbour: NeighbourSpec, uuts: Iterable[UutSpec], kinds: Kinds, prefix: tuple[str | int, ...]
    ) -> None:
        """Check that each option of a neighbour that takes the kinds of its UUTs is one of any of these kinds."""
        if neighbour.kind is not None:
            return
        known = {field for uut in uuts if uut.kind in kinds for field in kinds[uut.kind].model_fields}
        for option in neighbour.options:
            if option not in known:
                self.note((*prefix, option), self._unknown_key(option, sorted({*NeighbourSpec.model_fields, *known})))

    def raise_if_any(self) -> None:
        """UsageError with the problems found, in the order of the file; of very many, the first ones."""
        found = list(dict.fromkeys(self._found))
        if found:
            more = len(found) - _MOST_TOLD
            told = [*found[:_MOST_TOLD], f"{self._document.name}: and {more} more problems"] if more > 0 else found
            raise UsageError("\n".join(told))

    def _note_all(self, error: ValidationError, model: type[BaseModel], prefix: tuple[str | int, ...]) -> None:
        for problem in error.errors(include_url=False, include_context=True):
            # A list of which every item is wrong is too short for pydantic, besides.
            if not (problem["type"] == "too_short" and problem["input"]):
                self._note(problem, model, prefix)

    def _note(self, problem: Mapping[str, Any], model: type[BaseModel], prefix: tuple[str | int, ...]) -> None:
        path = prefix + tuple(step for step in problem["loc"] if step != "[key]")
        field = _field_name(path)
        message = problem["msg"].removeprefix("Value error, ")
        if problem["type"] == "extra_forbidden":
            message = self._unknown_key(str(path[-1]), list(_allowed_keys(model, path[len(prefix) : -1])))
        elif problem["type"] == "missing":
            message = "is missing"
        elif not isinstance(problem["input"], dict | BaseModel):
            message = f"{_shown(problem['input'])} is not allowed: {_lower(message)}"
        self._found.append(f"{self._where(path)}: {field + ': ' if field else ''}{message}")

    def _unknown_key(self, key: str, allowed: Sequence[str]) -> str:
        """What is wrong with a key, and which may have been meant; to find that takes time: not for hundreds."""
        close = difflib.get_close_matches(key, allowed, n=1) if len(self._found) < _MOST_TOLD else []
        hint = f"did you mean {close[0]!r}? " if close else ""
        return f"unknown key; {hint}allowed here: {', '.join(allowed) or 'none'}"

    def _where(self, path: tuple[str | int, ...]) -> str:
        for length in range(len(path), 0, -1):
            source = self._sources.get(path[:length])
            if source:
                return source
        return self._document.where(path)


def _field_name(path: tuple[str | int, ...]) -> str:
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else str(step)
    return name


def _shown(value: object) -> str:
    text = (
        yaml.safe_dump(value, default_flow_style=True, width=1000).strip() if isinstance(value, list) else repr(value)
    )
    return shortened(" ".join(text.split()))


def _lower(message: str) -> str:
    return message[0].lower() + message[1:] if message[1:2].islower() else message


def _allowed_keys(model: type[BaseModel], path: tuple[str | int, ...]) -> Iterator[str]:
    """The keys of the model at `path` below `model`, found by following the annotations of its fields."""
    here: type[BaseModel] = model
    for step in path:
        if isinstance(step, str) and step in here.model_fields:
            inner = _model_in(here.model_fields[step].annotation)
            here = inner or here
    yield from here.model_fields


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None
