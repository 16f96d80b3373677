"""Writes files completely or not at all."""

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import IO

from netbench.errors import TestbedError, UsageError

_TEMPORARY = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")


def write_atomically(path: Path, content: bytes) -> None:
    """Write `content` to `path`; raises as `file_written_atomically` does."""
    with file_written_atomically(path) as file:
        file.write(content)


@contextmanager
def file_written_atomically(path: Path) -> Iterator[IO[bytes]]:
    """Yield a temporary file that replaces `path` after a block without error; an older file stays until then.

    An existing path that is not a regular file (a pipe, /dev/stdout) is written to directly. UsageError if the path
    cannot be written to at all, TestbedError if writing is interrupted, for example by a full disk.
    """
    target = path.resolve()  # a symbolic link is kept
    try:
        # Not the target of a special file: the target of /dev/stdout may not be a path.
        is_special = path.exists() and not path.is_file()
        opened: AbstractContextManager[IO[bytes]] = path.open("wb") if is_special else _replacement(target)
        with opened as file:
            yield file
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(f"{path}: no directory {target.parent}; make it first or name another file") from None
    except IsADirectoryError:
        raise UsageError(f"{path} is a directory; name a file in it") from None
    except PermissionError:
        raise UsageError(f"{path}: no permission to write there; name another file") from None
    except BrokenPipeError:
        raise  # the reader of the pipe is gone, which is not an error
    except OSError as error:
        raise TestbedError(f"{path} was not written: {error.strerror}; make room or name another file") from None


def remove_temporary_files(directory: Path) -> None:
    """Remove the files of killed writers from a directory; no other process may write to it meanwhile."""
    for path in directory.iterdir():
        if is_temporary(path):
            path.unlink(missing_ok=True)


def is_temporary(path: Path) -> bool:
    """Return True if a file is the temporary replacement of another file."""
    return _TEMPORARY.fullmatch(path.name) is not None


@contextmanager
def _replacement(target: Path) -> Iterator[IO[bytes]]:
    # No file or link prepared by somebody else can be written to instead: the name is new, or opening fails.
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")
    _remove_abandoned(target)
    try:
        with temporary.open("xb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
        directory = os.open(target.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)  # the new name, not only the file (fsync(2))
        finally:
            os.close(directory)
    finally:
        temporary.unlink(missing_ok=True)


def _remove_abandoned(target: Path) -> None:
    """Remove the temporary files of killed writers of a file; those of running writers are locked."""
    for path in target.parent.iterdir():
        if is_temporary(path) and path.name.startswith(f".{target.name}."):
            with suppress(OSError), path.open("rb") as file:  # locked, or another process removes it
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                path.unlink()
