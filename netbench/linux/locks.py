"""Locks: one testbed for one controller, and the other measurements on this machine.

The files of locks and journals disappear with a reboot, like the changes. Each netbench holds a lock while it measures,
and notifies the earlier ones: two that measure at once take CPU time from each other, even on different testbeds. A
file whose lock is free belongs to a netbench that was killed, and does not count.
"""

import errno
import fcntl
import json
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from netbench.errors import MissingError

STATE_DIRECTORY = Path("/run/netbench")
FILE_SIZE_REMEDY = "raise the limit on the size of files (ulimit -f)"  # of EFBIG
_POLL_S = 0.5


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


def create_locked(path: Path, text: str = "") -> IO[str]:
    """Return a new file with this text, locked by this process until closed; it replaces an existing one.

    It gets its name only when it is locked, because an unlocked file would look abandoned by a killed netbench.
    """
    unnamed = path.with_suffix(".new")
    with suppress(FileNotFoundError, NotADirectoryError):  # lock_file makes the directory, or raises the error
        unnamed.unlink()
    file = lock_file(unnamed)
    assert file is not None, "no other process uses this name"
    try:
        append(file, text)
        unnamed.rename(path)
    except BaseException:  # Ctrl-C too
        unnamed.unlink(missing_ok=True)
        file.close()
        raise
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
            owner = path.read_text().strip() or "unknown"
            raise MissingError(
                f"the testbed is in use: netbench with process id {owner} has locked {resource}; wait until it ends"
            )
        stack.enter_context(file)
        with state_is_written(path):
            file.truncate(0)
            append(file, str(os.getpid()))


@dataclass(frozen=True, slots=True)
class OtherMeasurement:
    """Another netbench that measures, and since when both do so, or it alone (ISO 8601)."""

    pid: int
    topology: str
    since: str


class MeasurementLock:
    """This netbench's file, to which later ones add themselves. `earlier` are those that measured before it."""

    def __init__(self, path: Path, earlier: list[OtherMeasurement]) -> None:
        self._path = path
        self._earlier = earlier

    def overlapping(self) -> list[OtherMeasurement]:
        """Return all that have measured at the same time so far, earlier and later ones."""
        return [*self._earlier, *_lines(self._path)[1:]]


@contextmanager
def measuring(topology: str, directory: Path = STATE_DIRECTORY) -> Iterator[MeasurementLock]:
    """Be visible to other measurements for the block, and notify them. MissingError as of `lock_testbed`."""
    path = _folder(directory) / f"{uuid.uuid4().hex}.json"
    own = OtherMeasurement(os.getpid(), topology, datetime.now(UTC).isoformat(timespec="seconds"))
    with ExitStack() as stack:
        with state_is_written(path):
            stack.enter_context(create_locked(path, _line(own)))
            stack.callback(path.unlink, missing_ok=True)
            # All that begin from now on find this one: of any two, at least one finds the other.
            running = _locked(directory)
            earlier = [other for file, other in running.items() if file != path and _add_to(file, own)]
        yield MeasurementLock(path, [replace(other, since=own.since) for other in earlier])


@contextmanager
def when_alone(report: Callable[[OtherMeasurement], object], directory: Path = STATE_DIRECTORY) -> Iterator[None]:
    """Enter the block when no other measures any more, one waiting netbench at a time; `report` each other one once.

    The caller must be `measuring` before it leaves the block. MissingError as of `lock_testbed`.
    """
    reported: set[OtherMeasurement] = set()
    turn: IO[str] | None = None
    with ExitStack() as stack:
        while True:
            with state_is_written(directory):
                if turn is None and (turn := lock_file(directory / "locks" / "waiting")):
                    stack.enter_context(turn)
                earlier = set(_locked(directory).values())
            if turn and not earlier:
                break
            for other in earlier - reported:
                report(other)
            reported |= earlier
            time.sleep(_POLL_S)
        yield


def other_measurements(directory: Path = STATE_DIRECTORY) -> list[OtherMeasurement]:
    """Return the others that measure now, if this user may see them."""
    with suppress(OSError):
        return [other for other in _locked(directory).values() if other.pid != os.getpid()]
    return []


def remove_killed(directory: Path = STATE_DIRECTORY) -> None:
    """Remove the files of those that were killed; MissingError as of `lock_testbed`."""
    with state_is_written(_folder(directory)):
        _locked(directory)


def _locked(directory: Path) -> dict[Path, OtherMeasurement]:
    """Return those that measure now, by their files; remove the files of killed ones."""
    locked: dict[Path, OtherMeasurement] = {}
    for path in _folder(directory).glob("*.json"):
        try:
            with path.open("rb") as file:
                # A shared lock, so that two can look at the same time.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except BlockingIOError:
            locked |= dict(zip([path], _lines(path), strict=False))  # the first entry, if the file still exists
        except FileNotFoundError:
            pass  # it has ended just now
    return locked


def _add_to(path: Path, own: OtherMeasurement) -> bool:
    """Add this measurement to the file of another; return whether the file still exists."""
    try:
        # Without O_CREAT: the file must not reappear after its owner has ended.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "a") as file:
            append(file, _line(own))
    except FileNotFoundError:
        return False
    return True


def _lines(path: Path) -> list[OtherMeasurement]:
    """Return the owner of a file, and those that came later; empty if the file is gone."""
    try:
        return [OtherMeasurement(**json.loads(line)) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def _line(other: OtherMeasurement) -> str:
    return json.dumps(asdict(other)) + "\n"


def _folder(directory: Path) -> Path:
    return directory / "running"
