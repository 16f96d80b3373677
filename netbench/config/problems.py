"""The problems of a document, collected: each with its position, its field, its value, and the allowed values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from netbench.config.document import Document, KeyPath, shortened, value_at
from netbench.config.named_places import place_of
from netbench.config.wording import close_to, joined, with_hint, words_for
from netbench.errors import UsageError
from netbench.model.scenario import expanded
from netbench.model.topology_specs import NeighbourSpec, UutSpec

# Kinds of UUTs, generators or sinks, with the model of each kind's options.
Kinds = Mapping[str, type[BaseModel]]

_MOST_TOLD = 20
_SECRET = "password"  # a key whose value, or a value below it, may be the secret itself by mistake

M = TypeVar("M", bound=BaseModel)


class Problems:
    """Collects the problems of one document and raises them as one UsageError, one per line."""

    def __init__(self, document: Document, sources: Mapping[KeyPath, str]) -> None:
        self._document = document
        self._sources = sources
        self._found: list[str] = []

    def validate(self, model: type[M], data: object, prefix: KeyPath, besides: Iterable[str] = ()) -> M | None:
        """Return the model of `data`, or None after recording the problems; `besides` are keys removed from it."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self._note_all(error, model, prefix, besides)
        except RecursionError:
            self._found.append(f"{self._document.name}: is nested too deeply")
        return None

    def check_kind(self, what: str, kind: str, options: dict[str, object], kinds: Kinds, prefix: KeyPath) -> None:
        """Check the options of an object that is chosen by its kind."""
        if kind not in kinds:
            broken: Mapping[str, str] = getattr(kinds, "broken", {})
            known = with_hint(f"{kind!r} is no kind of {what}; there are {', '.join(sorted(kinds))}")
            self._found.append(f"{self._where((*prefix, 'kind'))}: {broken.get(kind, known)}")
            return
        self.validate(kinds[kind], options, prefix, UutSpec.model_fields if what == "UUT" else ())

    def note(self, path: KeyPath, message: str) -> None:
        """Record one more problem."""
        self._found.append(f"{self._where(path)}: {_field_name(path)}: {message}")

    def check_neighbour(self, neighbour: NeighbourSpec, uut: UutSpec, kinds: Kinds, prefix: KeyPath) -> None:
        """Check a neighbour as it is beside a UUT, as if it were written at `prefix`."""
        try:
            beside = neighbour.beside(uut)
            kind = kinds.get(beside.kind or uut.kind)
            spec = beside.as_uut(uut, kind.model_fields if kind else ())
        except ValidationError as error:
            self._note_all(error, NeighbourSpec, prefix)
            return
        self.check_kind("UUT", spec.kind, spec.options, kinds, prefix)
        covered = neighbour.options if neighbour.kind is None else {}  # checked by check_meant_for_somebody()
        for option in beside.options:
            if option in UutSpec.model_fields and option not in covered:
                known = kind.model_fields if kind else ()
                self.note((*prefix, option), self._unknown_key(option, sorted({*NeighbourSpec.model_fields, *known})))

    def check_meant_for_somebody(
        self, neighbour: NeighbourSpec, uuts: Iterable[UutSpec], kinds: Kinds, prefix: KeyPath
    ) -> None:
        """Check that each option of a neighbour without a kind exists for the kind of at least one UUT."""
        if neighbour.kind is not None:
            return
        known = {field for uut in uuts if uut.kind in kinds for field in kinds[uut.kind].model_fields}
        for option in neighbour.options:
            if option not in known:
                self.note((*prefix, option), self._unknown_key(option, sorted({*NeighbourSpec.model_fields, *known})))

    def raise_if_any(self) -> None:
        """Raise UsageError with the problems found, in the order of the file; of too many, the first ones."""
        found = list(dict.fromkeys(self._found))
        if found:
            more = len(found) - _MOST_TOLD
            lines = [*found[:_MOST_TOLD], f"{self._document.name}: and {more} more problems"] if more > 0 else found
            raise UsageError("\n".join(lines))

    def _note_all(
        self, error: ValidationError, model: type[BaseModel], prefix: KeyPath, besides: Iterable[str] = ()
    ) -> None:
        found = [
            problem
            for problem in error.errors(include_url=False, include_context=True)
            # pydantic also reports a list with only invalid items as too short.
            if not (problem["type"] == "too_short" and problem["input"])
        ]
        for tried, same in groupby(found, key=lambda problem: self._tried(problem, prefix)):
            alternatives = list(same)
            forms = {problem["loc"][len(tried)] for problem in alternatives if tried is not None}
            for group in [alternatives] if len(forms) > 1 else [[problem] for problem in alternatives]:
                self._note(group, model, prefix, besides)

    def _tried(self, problem: Mapping[str, Any], prefix: KeyPath) -> KeyPath | None:
        """Return the path where one of several forms of a value was tried; None if there is one form only."""
        for length, step in enumerate(problem["loc"]):
            if self._is_tag(step, problem, length, prefix):
                found: KeyPath = problem["loc"][:length]
                return found
        return None

    def _is_tag(self, step: object, problem: Mapping[str, Any], length: int, prefix: KeyPath) -> bool:
        """Return whether a step of pydantic's path is no key of the document, but names one of several tried forms."""
        last = length == len(problem["loc"]) - 1
        if not isinstance(step, str) or (last and problem["type"] in ("missing", "extra_forbidden")):
            return False
        before = _cleaned(problem["loc"][:length])
        here = value_at(self._document.data, (*prefix, *before))
        if step == "[key]" or (isinstance(here, dict) and step in here):
            return False
        return "[" in step or "-" in step or (isinstance(here, dict) and not last)

    def _note(
        self,
        alternatives: Sequence[Mapping[str, Any]],
        model: type[BaseModel],
        prefix: KeyPath,
        besides: Iterable[str],
    ) -> None:
        """Record one problem, or one for all forms of a value: of these forms, those with the deepest problems."""
        deepest = max(len(form["loc"]) for form in alternatives)
        inside = [form for form in alternatives if len(form["loc"]) == deepest]
        problem = inside[0]
        steps = [
            step
            for length, step in enumerate(problem["loc"])
            if step != "[key]" and not self._is_tag(step, problem, length, prefix)
        ]
        path = prefix + tuple(steps)
        field = _field_name(path)
        reported = inside if isinstance(value_at(self._document.data, path[:-1]), list) else alternatives
        words = joined([words_for(form) for form in reported])
        written, is_key = self._written(path), False
        if problem["type"] == "extra_forbidden":
            within = path[len(prefix) : -1]
            allowed = [*(() if within else besides), *_allowed_keys(model, within)]
            words, is_key = self._unknown_key(str(path[-1]), allowed), True
        elif problem["type"] == "missing":
            pass  # there is no value to report
        elif problem["loc"] and problem["loc"][-1] == "[key]":
            is_key, words = True, f"a key here is {words.removeprefix('must be ')}"
        elif problem["input"] is None:
            words = f"is empty: {words}"
        elif problem["type"] == "value_error" and isinstance(problem["input"], dict | list | tuple | BaseModel):
            scenario = self._scenario_that_makes_no_sense(words) if written == ("scenarios",) else None
            written, is_key = (scenario, False) if scenario else place_of(words, self._document.data, written)
        elif path and path[-1] == _SECRET:
            words = "is where it is read from, never itself: {env: NAME} or {file: PATH}"
        elif not isinstance(problem["input"], dict | BaseModel):
            shown = "what stands there" if _SECRET in path else _shown(problem["input"])
            words = f"{shown} is not allowed: {words}"
        self._found.append(f"{self._where(written, key=is_key)}: {field + ': ' if field else ''}{words}")

    def _written(self, path: KeyPath) -> KeyPath:
        """Return where a value was written: one scenario of a file may define several."""
        scenarios = self._document.data.get("scenarios")
        if path[:1] != ("scenarios",) or len(path) < 2 or not isinstance(scenarios, list):
            return path
        index = path[1]
        assert isinstance(index, int)
        for place, item in enumerate(scenarios):
            made = expanded([item])
            index -= len(made) if isinstance(made, tuple) else 1
            if index < 0:
                return ("scenarios", place, *path[2:])
        return path

    def _scenario_that_makes_no_sense(self, message: str) -> KeyPath | None:
        """Return the path of the first invalid scenario, with the key that the message begins with, if it has it."""
        scenarios = self._document.data.get("scenarios")
        for place, item in enumerate(scenarios if isinstance(scenarios, list) else ()):
            try:
                expanded([item])
            except ValueError:
                key = message.partition(":")[0]
                return ("scenarios", place, key) if isinstance(item, dict) and key in item else ("scenarios", place)
        return None

    def _unknown_key(self, key: str, allowed: Sequence[str]) -> str:
        """Return the message for an unknown key, with a suggestion, which is too slow for hundreds of keys."""
        close = close_to(key, allowed) if len(self._found) < _MOST_TOLD else ""
        hint = f"did you mean {close!r}? " if close else ""
        return f"unknown key; {hint}allowed here: {', '.join(allowed) or 'none'}"

    def _where(self, path: KeyPath, *, key: bool = False) -> str:
        for length in range(len(path), 0, -1):
            source = self._sources.get(path[:length])
            if source:
                return source
        if path and path not in self._document.values:  # nor is it from the file: an override put its content there
            for place, source in self._sources.items():
                if place[: len(path)] == path:
                    return source
        return self._document.where(path, key=key)


def _cleaned(steps: Sequence[str | int]) -> KeyPath:
    return tuple(step for step in steps if step != "[key]")


def _field_name(path: KeyPath) -> str:
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else str(step)
    return name


def _shown(value: object) -> str:
    """Return a value as written in YAML, except text, which is quoted."""
    is_as_in_python = not isinstance(value, list | bool)
    text = repr(value) if is_as_in_python else yaml.safe_dump(value, default_flow_style=True, width=1000)
    text = text.strip().removesuffix("...")
    return shortened(" ".join(text.split()))


def _allowed_keys(model: type[BaseModel], path: KeyPath) -> Iterator[str]:
    """Yield the keys of the model at `path` below `model`, following the annotations of its fields."""
    here: type[BaseModel] = model
    for step in path:
        if isinstance(step, str) and step in here.model_fields:
            inner = _model_in(here.model_fields[step].annotation)
            here = inner or here
    yield from here.model_fields
    yield from getattr(here, "written_instead", ())


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        found = _model_in(argument)
        if found:
            return found
    return None
