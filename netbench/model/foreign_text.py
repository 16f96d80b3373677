"""Names and texts from other software: of processes, interfaces, namespaces and files, with arbitrary bytes.

All of them are read with `decoded`: a byte that is not UTF-8 becomes a surrogate, and is encoded back unchanged.
`well_formed` converts them for output that must be UTF-8: results, reports and JSON.
"""

import json
import re
from pathlib import Path
from typing import Any

ENCODING, ERRORS = "utf-8", "surrogateescape"
_SURROGATE = re.compile("[\ud800-\udfff]")
_OF_BYTES = 0xDC00  # PEP 383
_ESCAPED = "\\ud"


def decoded(data: bytes) -> str:
    """Return bytes from the kernel or from a program as text."""
    return data.decode(ENCODING, ERRORS)


def encoded(text: str) -> bytes:
    """Return the bytes from which `decoded` made this text."""
    return text.encode(ENCODING, ERRORS)


def read_text(path: Path) -> str:
    """Return the text of a file with foreign content; OSError as for every file."""
    return decoded(path.read_bytes())


def read_lines(path: Path) -> list[str]:
    """Return the lines of such a file; only the newline ends a line, unlike in str.splitlines()."""
    lines = read_text(path).split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def well_formed(text: str) -> str:
    """Return the text with each byte that is not UTF-8 as `\\xff`."""
    return _SURROGATE.sub(_spelled, text)


def json_of(value: Any, **options: Any) -> str:  # noqa: ANN401 - as of json.dumps
    """Return JSON like json.dumps, with well-formed text only."""
    text = json.dumps(value, **options)
    return json.dumps(well_formed_within(json.loads(text)), **options) if _ESCAPED in text else text


def well_formed_within(value: Any) -> Any:  # noqa: ANN401 - what JSON can hold
    """Return a JSON value with all its texts well-formed."""
    match value:
        case str():
            return well_formed(value)
        case dict():
            return {well_formed_within(key): well_formed_within(inner) for key, inner in value.items()}
        case list() | tuple():
            return [well_formed_within(inner) for inner in value]
    return value


def _spelled(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - _OF_BYTES:02x}" if _OF_BYTES + 0x80 <= code < _OF_BYTES + 0x100 else f"\\u{code:04x}"
