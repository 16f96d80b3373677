"""The journal: every change is on record before it is made, so that anyone can undo it later.

A journal is a file of JSON lines: a header, then `{"seq": n, …change…}` before each change and
`{"undone": n}` after it was taken back. The process that owns it holds a lock on it; a journal that can
be locked belongs to nobody any more and is for the next start, or `netbench clean`, to undo.
"""

import json
import os
import uuid
from collections.abc import Iterator
from io import TextIOWrapper
from pathlib import Path
from typing import IO, Self

from netbench.errors import MissingError, TestbedError
from netbench.linux.changes import Change, from_json, to_json
from netbench.linux.state import STATE_DIRECTORY, lock_file


class Journal:
    """The record of one run's changes, in the order they were made."""

    def __init__(self, path: Path, file: IO[str], pending: dict[int, Change], damage: str = "") -> None:
        self._path = path
        self._file = file
        self._pending = pending
        self.damage = damage  # why the end of the file could not be read; empty when it could
        self._next = max(pending, default=-1) + 1

    @classmethod
    def create(cls, topology: str, directory: Path = STATE_DIRECTORY) -> Self:
        """A new, empty journal; MissingError when the state directory cannot be written."""
        path = directory / "journals" / f"{topology}-{uuid.uuid4().hex[:12]}.jsonl"
        locked_first = path.with_suffix(".new")  # before it is locked, no one may take it for an abandoned one
        try:
            file = lock_file(locked_first)
            locked_first.rename(path)
        except OSError as error:
            raise MissingError(f"{path} cannot be written: {error.strerror}; netbench needs root for this") from error
        assert file is not None, "a fresh name cannot be locked by someone else"
        journal = cls(path, file, {})
        journal._append({"topology": topology, "pid": os.getpid(), "netns": _own_namespace()})
        return journal

    @classmethod
    def abandoned(cls, directory: Path = STATE_DIRECTORY) -> Iterator[Self]:
        """The journals whose owner is gone, each locked by this process now.

        Those of a netbench that ran in another network namespace are left alone: their changes are not here.
        """
        for path in sorted((directory / "journals").glob("*.jsonl")):
            try:
                file = lock_file(path)
            except OSError as error:
                raise MissingError(
                    f"{path} cannot be opened: {error.strerror}; netbench needs root for this"
                ) from error
            if file is None:
                continue
            header, pending, damage = _read(file, path)
            _drop_cut_line(file)
            if header.get("netns", _own_namespace()) == _own_namespace():
                yield cls(path, file, pending, damage)
            else:
                file.close()

    @property
    def run_id(self) -> str:
        """What names this run: its processes carry it in their environment."""
        return self._path.stem

    @property
    def pending(self) -> list[tuple[int, Change]]:
        """The changes not yet undone, in the order they were made."""
        return sorted(self._pending.items())

    def record(self, change: Change) -> int:
        """Put a change on record, before it is made; its number."""
        number = self._next
        self._append({"seq": number, **to_json(change)})
        self._pending[number] = change
        self._next += 1
        return number

    def undone(self, number: int) -> None:
        """Note that a change was taken back."""
        self._append({"undone": number})
        del self._pending[number]

    def remove(self) -> None:
        """Everything is undone: the record is no longer needed. A damaged one is kept under another name."""
        if self.damage:
            self._path.replace(self._path.with_suffix(".damaged"))
        else:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def close(self) -> None:
        """Leave the journal for somebody else to finish."""
        self._file.close()

    def _append(self, entry: dict[str, object]) -> None:
        try:
            self._file.write(json.dumps(entry) + "\n")
            self._file.flush()
        except OSError as error:
            raise TestbedError(
                f"the journal {self._path} cannot be written: {error.strerror}; nothing was changed"
            ) from error


def _own_namespace() -> int:
    return Path("/proc/self/ns/net").stat().st_ino


def _drop_cut_line(file: IO[str]) -> None:
    """Make room for whole lines after one that was cut short."""
    content = Path(f"/proc/self/fd/{file.fileno()}").read_bytes()
    os.ftruncate(file.fileno(), content.rfind(b"\n") + 1)


def _read(file: IO[str], path: Path) -> tuple[dict[str, object], dict[int, Change], str]:
    """The header, what is still to be undone, and what is wrong with the file.

    A last line cut short is nothing wrong: it was never acted on.
    """
    file.seek(0)
    lines = file.buffer.read().split(b"\n") if isinstance(file, TextIOWrapper) else []
    header: dict[str, object] = {}
    pending: dict[int, Change] = {}
    for number, line in enumerate(lines[:-1], start=1):
        try:
            entry = json.loads(line)
            if "seq" in entry:
                sequence = entry.pop("seq")
                pending[sequence] = from_json(entry)
            elif "undone" in entry:
                pending.pop(entry["undone"], None)
            else:
                header = dict(entry)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return header, pending, f"{path}: line {number} is damaged; changes recorded from there on are not undone"
    return header, pending, ""
