"""The problems of a document, collected: each with its position, its field, its value, and the allowed values."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from netbench.config.document import Document, shortened, value_at, yaml_text
from netbench.config.wording import joined, words_for
from netbench.errors import KeyedError, UsageError
from netbench.model.fields import LOCATED, LOCATED_KEY, KeyPath
from netbench.model.scenario import scenarios_of
from netbench.model.suggestions import choices, close_to
from netbench.model.topology_specs import NeighbourSpec, UutSpec

# Kinds of UUTs, generators or sinks, with the model of each kind's options.
Kinds = Mapping[str, type[BaseModel]]

_MOST_PROBLEMS = 20
_SECRET = "password"  # a key whose value, or a value below it, may be the secret itself by mistake

M = TypeVar("M", bound=BaseModel)


class Problems:
    """Collects the problems of one document and raises them as one UsageError, one per line.

    `sources` are the overrides of its values, by path.
    """

    def __init__(self, document: Document, sources: Mapping[KeyPath, str]) -> None:
        self._document = document
        self._sources = sources
        self._problems: list[str] = []

    def validate(self, model: type[M], data: object, prefix: KeyPath, other_keys: Iterable[str] = ()) -> M | None:
        """Return the model of `data`, or None after recording the problems; `other_keys` were removed from it."""
        try:
            return model.model_validate(data)
        except ValidationError as error:
            self._note_all(error, model, prefix, other_keys)
        except RecursionError:
            self._problems.append(f"{self._document.name}: is nested too deeply")
        return None

    def check_kind(self, what: str, kind: str, options: dict[str, object], kinds: Kinds, prefix: KeyPath) -> None:
        """Check the options of an object that is chosen by its kind."""
        if kind not in kinds:
            broken: Mapping[str, str] = getattr(kinds, "broken", {})
            unknown = f"{kind!r} is no kind of {what}; {choices(kind, sorted(kinds))}"
            self._problems.append(f"{self._where((*prefix, 'kind'))}: {broken.get(kind, unknown)}")
            return
        model = kinds[kind]
        if options and not model.model_fields and what == "schedule":
            chosen = (*prefix, "kind") if (*prefix, "kind") in self._sources else (*prefix, next(iter(options)))
            fault = f"the kind {kind} has no options; write `--set {what}={kind}`"
            self._problems.append(f"{self._where(chosen)}: {what}: {fault}")
            return
        others = {name: other for name, other in kinds.items() if what == "UUT" and name != kind}
        for option in [option for option in options if option not in model.model_fields]:
            if having := sorted(name for name, other in others.items() if option in other.model_fields):
                self.note((*prefix, option), f"{kind} has no such option; kinds with it: {', '.join(having)}")
                options = {name: value for name, value in options.items() if name != option}
        self.validate(model, options, prefix, UutSpec.model_fields if what == "UUT" else ())

    def note(self, path: KeyPath, message: str) -> None:
        """Record one more problem."""
        self._problems.append(f"{self._where(path)}: {_field_name(path)}: {message}")

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
        checked = neighbour.options if neighbour.kind is None else {}  # by check_options_of_neighbour()
        options = [option for option in beside.options if option in UutSpec.model_fields and option not in checked]
        self._note_unknown(options, kind.model_fields if kind else (), prefix)

    def check_options_of_neighbour(
        self, neighbour: NeighbourSpec, uuts: Iterable[UutSpec], kinds: Kinds, prefix: KeyPath
    ) -> None:
        """Check that each option of a neighbour without a kind exists for the kind of at least one UUT."""
        if neighbour.kind is None:
            known = {field for uut in uuts if uut.kind in kinds for field in kinds[uut.kind].model_fields}
            self._note_unknown([option for option in neighbour.options if option not in known], known, prefix)

    def _note_unknown(self, options: Iterable[str], known: Iterable[str], prefix: KeyPath) -> None:
        for option in options:
            allowed = sorted({*NeighbourSpec.model_fields, *known})
            self.note((*prefix, option), self._unknown_key(option, allowed))

    def raise_if_any(self) -> None:
        """Raise UsageError with the problems, in the order of the file; of too many, the first ones."""
        problems = list(dict.fromkeys(self._problems))
        if len(problems) > _MOST_PROBLEMS:
            more = f"{self._document.name}: and {len(problems) - _MOST_PROBLEMS} more problems"
            problems = [*problems[:_MOST_PROBLEMS], more]
        if problems:
            raise UsageError("\n".join(problems))

    def _note_all(
        self, error: ValidationError, model: type[BaseModel], prefix: KeyPath, other_keys: Iterable[str] = ()
    ) -> None:
        errors = [
            problem
            for problem in error.errors(include_url=False, include_context=True)
            # pydantic also reports a list with only invalid items as too short.
            if not (problem["type"] == "too_short" and problem["input"])
        ]
        for path, same in groupby(errors, key=lambda problem: self._path_of_union(problem, prefix)):
            alternatives = list(same)
            forms = {problem["loc"][len(path)] for problem in alternatives if path is not None}
            for group in [alternatives] if len(forms) > 1 else [[problem] for problem in alternatives]:
                self._note_problem(group, model, prefix, other_keys)

    def _path_of_union(self, problem: Mapping[str, Any], prefix: KeyPath) -> KeyPath | None:
        """Return the path of a value of which pydantic tried several forms; None if it has one form only."""
        tags = (length for length in range(len(problem["loc"])) if self._is_tag(problem, length, prefix))
        length = next(tags, None)
        return None if length is None else tuple(problem["loc"][:length])

    def _is_tag(self, problem: Mapping[str, Any], length: int, prefix: KeyPath) -> bool:
        """Return whether a step of pydantic's path is no key of the document, but names one of several forms."""
        *before, step = problem["loc"][: length + 1]
        is_last = length == len(problem["loc"]) - 1
        if not isinstance(step, str) or (is_last and problem["type"] in ("missing", "extra_forbidden")):
            return False
        parent = value_at(self._document.data, (*prefix, *(key for key in before if key != "[key]")))
        if step == "[key]" or (isinstance(parent, dict) and step in parent):
            return False
        return "[" in step or "-" in step or (isinstance(parent, dict) and not is_last)

    def _note_problem(
        self,
        alternatives: Sequence[Mapping[str, Any]],
        model: type[BaseModel],
        prefix: KeyPath,
        other_keys: Iterable[str],
    ) -> None:
        """Record one problem, or one for all forms of a value: of these forms, those with the deepest problems."""
        deepest = max(len(form["loc"]) for form in alternatives)
        inside = [form for form in alternatives if len(form["loc"]) == deepest]
        problem = inside[0]
        kind, value = problem["type"], problem["input"]
        steps = [
            step
            for length, step in enumerate(problem["loc"])
            if step != "[key]" and not self._is_tag(problem, length, prefix)
        ]
        path = prefix + tuple(steps)
        in_list = isinstance(value_at(self._document.data, path[:-1]), list)
        words = joined([words_for(form) for form in (inside if in_list else alternatives)])
        source, is_key = self._source_path(path), False
        if kind == LOCATED_KEY:
            is_key = True
        elif kind == LOCATED:
            is_key = isinstance(source[-1], str) and isinstance(value_at(self._document.data, source), dict)
        elif kind == "extra_forbidden":
            within = path[len(prefix) : -1]
            allowed = [*(() if within else other_keys), *_allowed_keys(model, within)]
            words, is_key = self._unknown_key(str(path[-1]), allowed), True
        elif kind == "missing":
            pass  # there is no value to report
        elif problem["loc"] and problem["loc"][-1] == "[key]":
            words, is_key = f"a key here is {words.removeprefix('must be ')}", True
        elif value is None:
            words = f"is empty: {words}"
        elif kind == "value_error" and isinstance(value, dict | list | tuple | BaseModel):
            source = self._with_its_key(source, problem["ctx"]["error"])
        elif path and path[-1] == _SECRET:
            words = "is where it is read from, never itself: {env: NAME} or {file: PATH}"
        elif not isinstance(value, dict | BaseModel):
            shown = "its value" if _SECRET in path else _shown(value)
            words = f"{shown} is not allowed: {words}"
        field = "" if kind in (LOCATED, LOCATED_KEY) else _field_name(path)
        self._problems.append(f"{self._where(source, key=is_key)}: {f'{field}: ' if field else ''}{words}")

    def _with_its_key(self, path: KeyPath, error: Exception) -> KeyPath:
        """Return the path of the key that an error of a model is about; the given path for none."""
        mapping = value_at(self._document.data, path)
        if isinstance(error, KeyedError) and isinstance(mapping, dict) and error.key in mapping:
            return (*path, error.key)
        return path

    def _source_path(self, path: KeyPath) -> KeyPath:
        """Return where a value was written: one scenario of a file may define several."""
        scenarios = self._document.data.get("scenarios")
        if path[:1] != ("scenarios",) or len(path) < 2 or not isinstance(scenarios, list):
            return path
        index = path[1]
        assert isinstance(index, int)
        for position, item in enumerate(scenarios):
            try:
                index -= len(scenarios_of(item))
            except ValueError:
                return path
            if index < 0:
                return ("scenarios", position, *path[2:])
        return path

    def _unknown_key(self, key: str, allowed: Sequence[str]) -> str:
        """Return the message for an unknown key, with a suggestion, which is too slow for hundreds of keys."""
        close = close_to(key, allowed) if len(self._problems) < _MOST_PROBLEMS else ""
        hint = f"did you mean {close!r}? " if close else ""
        return f"unknown key; {hint}allowed here: {', '.join(allowed) or 'none'}"

    def _where(self, path: KeyPath, *, key: bool = False) -> str:
        for length in range(len(path), 0, -1):
            if source := self._sources.get(path[:length]):
                return source
        if path and path not in self._document.values:  # nor is it from the file: an override put its content there
            for changed, source in self._sources.items():
                if changed[: len(path)] == path:
                    return source
        return self._document.where(path, key=key)


def _field_name(path: KeyPath) -> str:
    name = ""
    for step in path:
        name += f"[{step}]" if isinstance(step, int) else f".{step}" if name else str(step)
    return name


def _shown(value: object) -> str:
    """Return a value as written in YAML, except text, which is quoted."""
    text = yaml_text(value, one_line=True) if isinstance(value, list | bool) else repr(value)
    return shortened(" ".join(text.strip().removesuffix("...").split()))


def _allowed_keys(model: type[BaseModel], path: KeyPath) -> Iterator[str]:
    """Yield the keys of the model at `path` below `model`, following the annotations of its fields."""
    inner: type[BaseModel] = model
    for step in path:
        if isinstance(step, str) and step in inner.model_fields:
            inner = _model_in(inner.model_fields[step].annotation) or inner
    yield from inner.model_fields
    yield from getattr(inner, "written_instead", ())


def _model_in(annotation: object) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    models = (_model_in(argument) for argument in getattr(annotation, "__args__", ()))
    return next((model for model in models if model), None)
