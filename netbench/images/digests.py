"""SHA-256 of files and of plain data."""

import hashlib
import json
from pathlib import Path


def file_digest(path: Path) -> str | None:
    """The SHA-256 of a file in hexadecimal; None where there is none to read."""
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def content_digest(*contents: bytes) -> str:
    """The SHA-256 of the contents, one after the other, in hexadecimal."""
    digest = hashlib.sha256()
    for content in contents:
        digest.update(content)
    return digest.hexdigest()


def data_digest(data: object) -> str:
    """The SHA-256 of what JSON can hold, however its keys are ordered, in hexadecimal."""
    return content_digest(json.dumps(data, sort_keys=True).encode())
