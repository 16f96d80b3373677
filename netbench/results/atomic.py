"""Files written whole or not at all."""

import os
from pathlib import Path

from netbench.errors import TestbedError, UsageError


def write_atomically(path: Path, content: bytes) -> None:
    """Put `content` at `path` by way of a temporary file beside it; an older file stays until then.

    What is there but no regular file (a pipe, /dev/stdout) is written to as it is. UsageError where the
    path cannot be written to at all, TestbedError where writing broke off, for example on a full disk.
    """
    target = path.resolve()  # a symbolic link stays one
    try:
        if target.exists() and not target.is_file():
            target.write_bytes(content)
        else:
            _replace(target, content)
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no directory {target.parent}; make it first or name another file") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory; name a file in it") from None
    except PermissionError:
        raise UsageError(f"{path}: no permission to write there; name another file") from None
    except OSError as error:
        raise TestbedError(f"{path} was not written: {error.strerror}; make room or name another file") from None


def _replace(target: Path, content: bytes) -> None:
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
