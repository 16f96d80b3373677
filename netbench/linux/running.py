"""Other measurements on this machine: each netbench holds a lock while it measures, and notifies those before it.

Two that measure at once take CPU time from each other, even on different testbeds. A file whose lock is free belongs to
a netbench that was killed, and does not count.
"""

import fcntl
import json
import os
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from netbench.linux.state import STATE_DIRECTORY, append, lock_file, state_is_written

_LOOK_AGAIN_S = 0.5


@dataclass(frozen=True, slots=True)
class Other:
    """Another netbench that measures, and the time since which it, or both, do so (ISO 8601)."""

    pid: int
    topology: str
    since: str


class Presence:
    """This netbench as seen by others. `met` are those that it found."""

    def __init__(self, path: Path, met: list[Other]) -> None:
        self._path = path
        self._met = met

    def others(self) -> list[Other]:
        """Return all that have measured at the same time so far: those that it found, and those that found it."""
        return [*self._met, *_lines(self._path)[1:]]


@contextmanager
def present(topology: str, directory: Path = STATE_DIRECTORY) -> Iterator[Presence]:
    """Be visible to others for the block, and notify those that exist. MissingError as of `lock_testbed`."""
    path = _folder(directory) / f"{uuid.uuid4().hex}.json"
    own = Other(os.getpid(), topology, datetime.now(UTC).isoformat(timespec="seconds"))
    locked_first = path.with_suffix(".new")  # before it is locked, it would look like that of a killed one
    with ExitStack() as stack:
        with state_is_written(path):
            file = lock_file(locked_first)
            assert file is not None, "nobody else has this name"
            stack.enter_context(file)
            stack.callback(path.unlink, missing_ok=True)
            stack.callback(locked_first.unlink, missing_ok=True)
            append(file, _line(own))
            locked_first.rename(path)
            # All that begin from now on find this one: of any two, at least one finds the other.
            found = {
                other_path: other
                for other_path, other in _measuring(directory).items()
                if other_path != path and _tell(other_path, own)
            }
        yield Presence(path, [replace(other, since=own.since) for other in found.values()])


@contextmanager
def when_alone(tell: Callable[[Other], object], directory: Path = STATE_DIRECTORY) -> Iterator[None]:
    """Enter the block when no other measures any more, one waiting netbench at a time; call `tell` for each other one.

    The caller must be `present` before it leaves the block. MissingError as of `lock_testbed`.
    """
    reported: set[Other] = set()
    turn: IO[str] | None = None
    with ExitStack() as stack:
        while True:
            with state_is_written(directory):
                if turn is None and (turn := lock_file(directory / "locks" / "waiting")):
                    stack.enter_context(turn)
                ahead = set(_measuring(directory).values())
            if turn and not ahead:
                break
            for other in ahead - reported:
                tell(other)
            reported |= ahead
            time.sleep(_LOOK_AGAIN_S)
        yield


def others_now(directory: Path = STATE_DIRECTORY) -> list[Other]:
    """Return the others that measure now, if this user may see them."""
    with suppress(OSError):
        return [other for other in _measuring(directory).values() if other.pid != os.getpid()]
    return []


def forget_killed(directory: Path = STATE_DIRECTORY) -> None:
    """Remove the files of those that were killed; MissingError as of `lock_testbed`."""
    with state_is_written(_folder(directory)):
        _measuring(directory)


def _measuring(directory: Path) -> dict[Path, Other]:
    """Return those that measure now, by their files; remove the files of killed ones."""
    found: dict[Path, Other] = {}
    for path in _folder(directory).glob("*.json"):
        try:
            with path.open("rb") as file:
                # A shared lock, so that two can look at the same time.
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                path.unlink(missing_ok=True)
        except BlockingIOError:
            found |= dict(zip([path], _lines(path), strict=False))  # the first entry, if the file still exists
        except FileNotFoundError:
            pass  # it has ended just now
    return found


def _tell(path: Path, own: Other) -> bool:
    """Add this one to the file of another; return whether the file still exists."""
    try:
        # Without O_CREAT: the file must not reappear after its owner has ended.
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND), "a") as file:
            append(file, _line(own))
    except FileNotFoundError:
        return False
    return True


def _lines(path: Path) -> list[Other]:
    """Return the owner of a file, and those that came later; empty if the file is gone."""
    try:
        return [Other(**json.loads(line)) for line in path.read_text().splitlines()]
    except FileNotFoundError:
        return []


def _line(other: Other) -> str:
    return json.dumps(asdict(other)) + "\n"


def _folder(directory: Path) -> Path:
    return directory / "running"
