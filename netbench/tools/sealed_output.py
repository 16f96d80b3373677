"""JSON as netbench's own clients print it: one line, and a second line with its checksum, so that damage is noticed."""

import json
from hashlib import sha256
from typing import Any


def sealed(value: object) -> str:
    """Return a value as JSON with its checksum, in two lines."""
    text = json.dumps(value)
    return f"{text}\n{sha256(text.encode()).hexdigest()}\n"


def unsealed(output: str) -> Any:  # noqa: ANN401 - any JSON
    """Return the value of such lines; ValueError for anything else."""
    text, _, checksum = output.rstrip("\n").rpartition("\n")
    if sha256(text.encode(errors="surrogateescape")).hexdigest() != checksum:
        raise ValueError("a text without its checksum")
    return json.loads(text)
