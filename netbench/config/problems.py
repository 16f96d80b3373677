"""The problems of a document, collected: each with its position, its field, its value, and the allowed values.

Problems that pydantic finds are worded for authors of topologies and profiles.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from netbench.config.document import Document, shortened, value_at, yaml_text
from netbench.errors import UsageError
from netbench.model.fields import LOCATED, KeyPath
from netbench.model.scenario import scenarios_of
from netbench.model.suggestions import HINT, choices, close_to, did_you_mean
from netbench.model.topology_specs import NeighbourSpec, UutSpec

if TYPE_CHECKING:  # shell completion must not wait for this import
    from pydantic import ValidationError


# By the type of pydantic's problem; the values in braces are from its context.
_WORDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "dict_type": "`key: value` lines",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number that is not that large",
    "int_type": "a whole number",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list, for example [a, b]",
    "model_attributes_type": "`key: value` lines",
    "model_type": "`key: value` lines",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "string_type": "text",
    "tuple_type": "a list, for example [a, b]",
}
# The characters of names, by the patterns in netbench/model.
_PATTERNS = {
    r"^[a-z][a-z0-9-]{0,11}$": "a name of at most 12 small letters, digits and dashes that begins with a letter",
    r"^[a-z][a-z0-9-]{0,8}$": "a name of at most 9 small letters, digits and dashes that begins with a letter",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$": "a name of at most 40 letters, digits, dots, dashes and underscores",
    r"""^[^\s\x00-\x1f\x7f-\x9f/#'"\\]{1,15}$""": (
        "the name of a network interface: at most 15 characters without blanks, control characters, slashes, quotes, "
        "# and backslashes"
    ),
}
# The message of typer for an option with a fixed set of values.
_CHOICES = re.compile(r"'[^']*' is not one of '(.+)'\.?")
_TIME = re.compile(r".*\d\s*(?:us|ms|s|min|h)\s*")
_MEMORY = re.compile(r".*\d\s*[MG]i?B?\s*")


def words_for(problem: Mapping[str, Any]) -> str:
    """Return the allowed values or the fault of a value, given one of the errors of pydantic's ValidationError."""
    kind, context, value = problem["type"], problem.get("ctx", {}), problem["input"]
    match kind:
        case "value_error" | "assertion_error":
            text = str(problem["msg"]).partition(", ")[2]
            is_choice = _CHOICES.fullmatch(text)
            return text.removesuffix(".") + did_you_mean(value, is_choice[1].split("', '")) if is_choice else text
        case "missing":
            return "is missing"
        case "literal_error" | "enum":
            allowed = re.findall(r"'((?:[^'\\]|\\.)*)'", str(context.get("expected", "")))
            return f"must be {_one_of(value, allowed)}"
        case "union_tag_invalid":
            allowed = re.findall(r"'([^']*)'", context["expected_tags"])
            return f"the kind must be {_one_of(context['tag'], allowed)}"
        case "union_tag_not_found":
            return "needs a kind"
        case "string_pattern_mismatch":
            pattern = context.get("pattern", "")
            return f"must be {_PATTERNS.get(pattern, f'text that matches {pattern}')}"
        case "too_short":
            return f"must have at least {context['min_length']} of them"
        case "too_long":
            return f"must have at most {context['max_length']} of them"
        case "string_type" if isinstance(value, bool):
            return "must be text; write a word that YAML takes for true or false in quotes"
        case "string_type" if isinstance(value, int | float):
            return f'must be text; write it in quotes: "{value}"'
    if kind in _WORDS:
        limits = {name: _as_written(limit, value) for name, limit in context.items()}
        return f"must be {_WORDS[kind].format_map(limits)}"
    # Located errors, and types of problems that only options of third-party plug-ins can have.
    return re.sub(r"^(?:Input|Value) should ", "must ", str(problem["msg"]))


def first_problem(error: "ValidationError") -> str:
    """Return the problem of a value that no user wrote, in one line."""
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {words_for(problem)}"


def joined(words: Sequence[str]) -> str:
    """Return the messages about several forms of a value as one message."""
    parts = [message.partition(HINT) for message in dict.fromkeys(words)]
    texts = [first.removeprefix("must be ") if number else first for number, (first, _, _) in enumerate(parts)]
    hints = [hint + rest for _, hint, rest in parts if hint]
    return " or ".join(texts) + "".join(hints[:1])


def _one_of(value: object, allowed: Sequence[str]) -> str:
    """Return the allowed values, with a suggestion for the value that was meant."""
    *others, last = allowed or [""]
    return f"{' or '.join(filter(None, (', '.join(others), last)))}{did_you_mean(value, allowed)}"


def _as_written(limit: object, value: object) -> str:
    """Return a limit in the unit of the value that exceeds it."""
    if not isinstance(limit, int | float) or not isinstance(value, str):
        return str(limit)
    if value.strip().endswith("%"):
        return f"{100 * limit:g}%"
    return f"{limit:g}{'s' if _TIME.fullmatch(value) else 'M' if _MEMORY.fullmatch(value) else ''}"


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
        self.validate(kinds[kind], options, prefix, UutSpec.model_fields if what == "UUT" else ())

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
        if kind == LOCATED:
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
            source = self._with_named_key(source, words)
        elif path and path[-1] == _SECRET:
            words = "is where it is read from, never itself: {env: NAME} or {file: PATH}"
        elif not isinstance(value, dict | BaseModel):
            shown = "its value" if _SECRET in path else _shown(value)
            words = f"{shown} is not allowed: {words}"
        field = "" if kind == LOCATED else _field_name(path)
        self._problems.append(f"{self._where(source, key=is_key)}: {f'{field}: ' if field else ''}{words}")

    def _with_named_key(self, path: KeyPath, message: str) -> KeyPath:
        """Return the path of the key that the message of a model begins with: `queues: …`; else the given path."""
        key = message.partition(":")[0]
        mapping = value_at(self._document.data, path)
        return (*path, key) if isinstance(mapping, dict) and key in mapping else path

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
