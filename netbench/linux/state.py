"""netbench's files for cleaning up: locks and journals, which disappear with a reboot like the changes."""

import errno
import fcntl
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

from netbench.errors import MissingError

STATE_DIRECTORY = Path("/run/netbench")
FILE_SIZE_REMEDY = "raise the limit on the size of files (ulimit -f)"  # of EFBIG


def lock_file(path: Path) -> IO[str] | None:
    """Return the file, open and locked by this process until closed; None when another process has the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    if not path.exists() or path.stat().st_ino != os.fstat(file.fileno()).st_ino:
        file.close()  # its owner has replaced or removed it meanwhile
        return None
    return file


def append(file: IO[str], text: str) -> None:
    """Append to a file of `lock_file`, all of the text or nothing; OSError when that fails (a full disk).

    It bypasses the file's buffer, whose content would be written, or fail, a second time at close.
    """
    before, data = os.fstat(file.fileno()).st_size, text.encode()
    try:
        while data:  # after a partial write, the next one fails with the reason
            data = data[os.write(file.fileno(), data) :]
    except OSError:
        if os.fstat(file.fileno()).st_size > before:
            os.ftruncate(file.fileno(), before)
        raise


@contextmanager
def state_is_written(path: Path) -> Iterator[None]:
    """Raise MissingError, with a remedy, where the block cannot write a file of the state."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            hint = f"make room in {STATE_DIRECTORY.parent}"
        elif error.errno == errno.EROFS:
            hint = f"{STATE_DIRECTORY.parent} is read-only here: mount a tmpfs there, or make it writable"
        elif error.errno == errno.EFBIG:
            hint = FILE_SIZE_REMEDY
        else:
            hint = "netbench needs root for this"
        raise MissingError(f"{path} cannot be written: {error.strerror}; {hint}") from error


def lock_testbed(stack: ExitStack, resources: Iterable[str], directory: Path = STATE_DIRECTORY) -> None:
    """Lock each resource (`netns:…`, `port:…`) until `stack` is closed.

    MissingError when another netbench has one of the locks, or when the state directory cannot be written.
    """
    for resource in sorted(resources):
        path = directory / "locks" / re.sub(r"[^A-Za-z0-9._:-]", "_", resource)
        with state_is_written(path):
            file = lock_file(path)
        if file is None:
            owner = path.read_text().strip() or "another process"
            raise MissingError(
                f"the testbed is in use: {resource} is held by netbench with process id {owner}; wait until it is done"
            )
        stack.enter_context(file)
        with state_is_written(path):
            file.truncate(0)
            append(file, str(os.getpid()))
