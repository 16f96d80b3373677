"""Faults of texts that are not in scapy's notation, with their place: unquoted addresses, brackets, missing commas.

Python's parser reports most of these faults far from their cause. They are therefore searched for in the text itself.
"""

import re

from netbench.model.packet_layers import LAYERS, layer_name
from netbench.model.packet_values import DescriptionError

_PAIRS = {"(": ")", "[": "]", "{": "}"}
_TEXT = re.compile(r"""(?P<quote>["'])(?:\\.|(?!(?P=quote))[^\\\n])*(?P=quote)?|#[^\n]*""")  # or a comment
_ADDRESS = r"(?:[0-9]{1,3}(?:\.[0-9]{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})"
_UNQUOTED = re.compile(
    rf"\b(?P<field>[A-Za-z]\w{{0,40}})\s*=\s*(?:\[\s*)?(?P<first>{_ADDRESS})(?P<more>/[0-9]{{1,3}}|\s*-\s*{_ADDRESS})?"
    r"(?=\s*[,)\]])",
    re.ASCII,
)
_ADJACENT = re.compile(r"(?<=[\w)\]}])\s+(?=[\w(\[{])")  # two values without a comma between them
_ANYTHING = re.compile(r"\b([A-Za-z]\w{0,40})\s*=\s*\*(?=\s*[,)\]])", re.ASCII)
_CALL = re.compile(r"([A-Za-z]\w{0,40})\s*\Z", re.ASCII)
_SHOWN = 20  # characters of the text at the fault


def syntax_fault(text: str, error: SyntaxError, example: str, lines_before: int = 0) -> DescriptionError:
    """Return why Python's parser refuses a text, with the field or layer and the column; `example` is the remedy.

    The parser has read `lines_before` more lines before the text.
    """
    bare = _TEXT.sub(lambda match: (" " if match[0].startswith("#") else "_") * len(match[0]), text)
    is_open_text = error.msg.startswith("unterminated")
    if not is_open_text:
        if match := _UNQUOTED.search(bare):
            return _unquoted(bare, match)
        if match := _ANYTHING.search(bare):
            title = f"{_layer_at(bare, match.start())}.{match[1]}"
            return DescriptionError(title, f"* is no value; in expect write {match[1]}=any, elsewhere leave it out")
        if unpaired := _bracket_fault(bare):
            return unpaired
    lines = text.split("\n")
    line = (error.lineno or 0) - lines_before
    if not 1 <= line <= len(lines) or not error.offset:
        at_end = " at its end" if line > len(lines) else ""
        return DescriptionError("packet", f"is not in scapy's notation{at_end}; {example}")
    column = min(error.offset, len(lines[line - 1]) + 1)
    begin = sum(len(before) + 1 for before in lines[: line - 1]) + column - 1
    misses_comma = "forgot a comma" in error.msg
    if misses_comma and (adjacent := _ADJACENT.search(bare, begin)):  # the parser reports the argument before
        begin = adjacent.end()
    shown = text[begin:].partition("\n")[0].strip()
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    at = f"{_place(text, begin)}, at {shown!r}" if shown else _place(text, begin)
    if is_open_text:
        fault = "the quote is not closed; add another one behind the text"
    elif misses_comma:
        is_code = _layer_at(bare, begin) not in (*LAYERS, "packet")
        pairs = "STLPktBuilder(pkt=…, vm=[…])" if is_code else "UDP(sport=53, dport=53)"
        fault = f"a comma is missing here; write commas between values, for example {pairs}"
    else:
        fault = f"is not in scapy's notation; {example}"
    return DescriptionError(_layer_at(bare, begin), f"{at}: {fault}")


def _unquoted(bare: str, match: re.Match[str]) -> DescriptionError:
    title = f"{_layer_at(bare, match.start())}.{match['field']}"
    if not match["more"]:
        return DescriptionError(title, f'write addresses in quotes: "{match["first"]}"')
    written = match["first"] + match["more"]
    text = f'write one address in quotes, "{match["first"]}"; to send from many, write'
    return DescriptionError(title, f"{text} vary: {{{title}: {{random: {written}}}}}")


def _bracket_fault(bare: str) -> DescriptionError | None:
    """Return the first bracket that closes none, or else the innermost that is not closed; None if all are paired."""
    opened: list[int] = []
    for at, character in enumerate(bare):
        if character in _PAIRS:
            opened.append(at)
        elif character in _PAIRS.values():
            if not opened:
                return DescriptionError("packet", f"{_place(bare, at)}: {character!r} closes no bracket; remove it")
            begin = opened.pop()
            closing = _PAIRS[bare[begin]]
            if character != closing:
                fault = f"{character!r} does not close {bare[begin]!r}; write {closing!r} instead"
                return DescriptionError(_layer_at(bare, at), f"{_place(bare, at)}: {fault}")
    if not opened:
        return None
    begin = opened[-1]
    fault = f"{bare[begin]!r} is not closed; add {_PAIRS[bare[begin]]!r}"
    return DescriptionError(_layer_at(bare, begin + 1), f"{_place(bare, begin)}: {fault}")


def _place(text: str, at: int) -> str:
    """Return the place of a character in words, counted from 1; the line only for texts of several lines."""
    before = text[:at]
    column = f"column {at - (before.rfind(chr(10)) + 1) + 1}"
    return f"line {before.count(chr(10)) + 1}, {column}" if "\n" in text.strip() else column


def _layer_at(bare: str, at: int) -> str:
    """Return the name of the call whose brackets enclose a place in a text; `packet` outside of all calls."""
    closed = 0
    for index in range(at - 1, -1, -1):
        if bare[index] in _PAIRS.values():
            closed += 1
        elif bare[index] in _PAIRS:
            if closed:
                closed -= 1
            elif match := _CALL.search(bare[max(0, index - 60) : index]):
                return layer_name(match[1]) if layer_name(match[1]) in LAYERS else match[1]
    return "packet"
