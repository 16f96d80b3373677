"""Problems of values, in wording for authors of topologies and profiles."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # shell completion must not wait for this import
    from pydantic import ValidationError

# By the type of pydantic's problem; the values in braces are from its context.
_WORDS = {
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "bytes_type": "text",
    "dataclass_type": "`key: value` lines",
    "dict_type": "`key: value` lines",
    "finite_number": "a finite number",
    "float_parsing": "a number",
    "float_type": "a number",
    "frozen_set_type": "a list, for example [a, b]",
    "greater_than": "more than {gt}",
    "greater_than_equal": "at least {ge}",
    "int_from_float": "a whole number",
    "int_parsing": "a whole number",
    "int_parsing_size": "a whole number that is not that large",
    "int_type": "a whole number",
    "ip_any_address": "an IP address, for example 198.18.0.1",
    "ip_v4_address": "an IPv4 address, for example 198.18.0.1",
    "ip_v6_address": "an IPv6 address",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "list_type": "a list, for example [a, b]",
    "mapping_type": "`key: value` lines",
    "model_attributes_type": "`key: value` lines",
    "model_type": "`key: value` lines",
    "multiple_of": "a multiple of {multiple_of}",
    "none_required": "left out",
    "path_type": "a path",
    "set_type": "a list, for example [a, b]",
    "string_sub_type": "text",
    "string_too_long": "at most {max_length} characters long",
    "string_too_short": "at least {min_length} characters long",
    "string_type": "text",
    "string_unicode": "text",
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
# `there is no stream 's9'; streams are s1, s2`, and the like
_UNKNOWN_NAME = re.compile(
    r"(?P<said>.*'(?P<name>[^']+)'[^';]*; )(?P<rest>(?:there|[A-Za-z]+) are (?P<known>.+))", re.S
)
_ONE_OF = re.compile(r"one of (?P<known>'?[a-z0-9-]+'?(?:, '?[a-z0-9-]+'?)*)")
_TIME = re.compile(r".*\d\s*(?:us|ms|s|min|h)\s*")
_MEMORY = re.compile(r".*\d\s*[MG]i?B?\s*")
_ALIKE = 0.65  # of difflib's ratio: `rwa` matches `raw`
HINT = "; did you mean "


def words_for(problem: Mapping[str, Any]) -> str:
    """Return the allowed values or the fault of a value, given one of the errors of pydantic's ValidationError."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return with_hint(str(problem["msg"]).partition(", ")[2], problem["input"])
    if kind == "missing":
        return "is missing"
    if kind in ("literal_error", "enum"):
        return "must be " + one_of(
            problem["input"], re.findall(r"'((?:[^'\\]|\\.)*)'", str(context.get("expected", "")))
        )
    if kind == "union_tag_invalid":
        expected = re.findall(r"'([^']*)'", context["expected_tags"])
        return "the kind must be " + one_of(context["tag"], expected)
    if kind == "union_tag_not_found":
        return "needs a kind"
    if kind == "string_pattern_mismatch":
        pattern = context.get("pattern", "")
        return f"must be {_PATTERNS.get(pattern, f'text that matches {pattern}')}"
    if kind == "too_short":
        return f"must have at least {context['min_length']} of them"
    if kind == "too_long":
        return f"must have at most {context['max_length']} of them"
    if kind == "string_type" and isinstance(problem["input"], bool):
        return "must be text; write a word that YAML takes for true or false in quotes"
    if kind == "string_type" and isinstance(problem["input"], int | float):
        return f'must be text; write it in quotes: "{problem["input"]}"'
    if kind in _WORDS:
        limits = {name: _as_written(limit, problem["input"]) for name, limit in context.items()}
        return f"must be {_WORDS[kind].format_map(limits)}"
    # Types of problems that only options of third-party plug-ins can have.
    return re.sub(r"^(?:Input|Value) should ", "must ", str(problem["msg"]))


def first_problem(error: "ValidationError") -> str:
    """Return the problem of a value that no user wrote, in one line."""
    problem = error.errors(include_url=False)[0]
    return f"{'.'.join(map(str, problem['loc'])) or 'the whole'}: {words_for(problem)}"


def _as_written(limit: object, value: object) -> str:
    """Return a limit in the unit of the value that exceeds it."""
    if not isinstance(limit, int | float) or not isinstance(value, str):
        return str(limit)
    if value.strip().endswith("%"):
        return f"{100 * limit:g}%"
    return f"{limit:g}{'s' if _TIME.fullmatch(value) else 'M' if _MEMORY.fullmatch(value) else ''}"


def one_of(value: object, allowed: Sequence[str]) -> str:
    """Return the allowed values, with a suggestion for the value that was meant."""
    *others, last = allowed or [""]
    return f"{' or '.join(filter(None, (', '.join(others), last)))}{did_you_mean(value, allowed)}"


def joined(words: Sequence[str]) -> str:
    """Return the messages about several forms of a value as one message."""
    parts = [message.partition(HINT) for message in dict.fromkeys(words)]
    texts = [first.removeprefix("must be ") if number else first for number, (first, _, _) in enumerate(parts)]
    hints = [hint + rest for _, hint, rest in parts if hint]
    return " or ".join(texts) + "".join(hints[:1])


def did_you_mean(value: object, known: Sequence[str]) -> str:
    """Return `; did you mean …?` if one of the known names resembles a value; empty otherwise."""
    close = close_to(value, known)
    return f"{HINT}{close}?" if close else ""


def close_to(value: object, known: Sequence[str]) -> str:
    """Return the known name that a value resembles; empty if there is none."""
    by_small = {name.lower(): name for name in known}
    small = str(value).lower()
    begins = [name for name in by_small if len(small) > 1 and name.startswith(small)]
    found = begins[:1] or difflib.get_close_matches(small, list(by_small), n=1, cutoff=_ALIKE)
    return by_small[found[0]] if found else ""


def with_hint(text: str, value: object = None) -> str:
    """Return a message with a suggestion, if it lists the known names and names, or is about, another one."""
    if "did you mean" in text:
        return text
    if found := _UNKNOWN_NAME.fullmatch(text):
        close = close_to(found["name"], found["known"].split(", "))
        return f"{found['said']}did you mean {close}? {found['rest']}" if close else text
    if isinstance(value, str) and (allowed := _ONE_OF.search(text)):
        return text.removesuffix(".") + did_you_mean(value, allowed["known"].replace("'", "").split(", "))
    return text
