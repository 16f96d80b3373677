"""Problems that pydantic finds in values, in wording for authors of topologies and profiles."""

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from netbench.model.suggestions import HINT, did_you_mean

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
