"""The journal: every change is recorded before it is made, so that any process can undo it later.

A journal is a file of JSON lines, each with its checksum: a header, then `{"seq": n, …change…}` before each change and
`{"undone": n}` after it was undone. Undone changes are removed when there are many. The process that owns the journal
locks it. A journal that can be locked is abandoned: the next start, or `netbench clean`, undoes it.
"""

import errno
import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Self
from zlib import crc32

from netbench.errors import MissingError, TestbedError
from netbench.hosts.local import LocalHost, end_marked_processes, marked_processes
from netbench.linux import changes
from netbench.linux.changes import AddNamespace, Change, KeepPort, MovePort
from netbench.linux.changes.base import ChangeRecord
from netbench.linux.locks import (
    FILE_SIZE_REMEDY,
    STATE_DIRECTORY,
    append,
    create_locked,
    lock_file,
    remove_killed,
    state_is_written,
)
from netbench.linux.machine import Machine
from netbench.signals import shielded

_OWN_NAMESPACE = "/proc/self/ns/net"
_HEADER, _CHECKSUM = {"topology", "pid", "netns"}, "crc32"
# Names in journals of earlier versions, of changes and of their fields.
_RENAMED = {
    "AddPeerAddress": "AddAddress",
    "OwnDomain": "AddLibvirtDomain",
    "told": "options_json",  # codespell:ignore told - the field's name in journals of earlier versions
}
# Number of entries about undone changes from which the file is rewritten.
_MANY = 200


class Journal(ChangeRecord):
    """The record of one run's changes in a separate file, `header` first."""

    def __init__(
        self, path: Path, file: IO[str], header: dict[str, object], pending: dict[int, Change], damage: str = ""
    ) -> None:
        super().__init__(pending)
        self._path = path
        self._file = file
        self._header = header
        self._undone = 0  # since the file was last rewritten
        self.damage = damage  # why the end of the file is unreadable; empty if it is not

    @classmethod
    def create(cls, topology: str, directory: Path = STATE_DIRECTORY) -> Self:
        """Return a new, empty journal; MissingError when the state directory cannot be written."""
        path = directory / "journals" / f"{topology}-{uuid.uuid4().hex[:12]}.jsonl"
        with state_is_written(path):
            file = create_locked(path)
        journal = cls(path, file, {"topology": topology, "pid": os.getpid(), "netns": _own_namespace()}, {})
        try:
            journal._append(journal._header)
        except TestbedError:
            journal.remove()
            raise
        return journal

    @classmethod
    def abandoned(cls, directory: Path = STATE_DIRECTORY) -> Iterator[Self]:
        """Yield the journals whose owner is gone, each now locked by this process.

        Journals of a netbench in another network namespace are left alone: their changes are not here.
        """
        for path in sorted((directory / "journals").glob("*.jsonl")):
            with state_is_written(path):
                file = lock_file(path)
            if file is None:
                continue
            header, pending, damage = _read(file, path)
            if header.get("netns", _own_namespace()) == _own_namespace():
                yield cls(path, file, header, pending, damage)
            else:
                file.close()

    @property
    def run_id(self) -> str:
        """The id of this run: its processes have it in their environment."""
        return self._path.stem

    def record(self, change: Change) -> int:
        """Record a change, as ChangeRecord does; TestbedError when the file cannot be written."""
        self._append({"seq": self._next, **to_json(change)})
        return super().record(change)

    def undone(self, number: int) -> None:
        """Note that a change was undone, as ChangeRecord does."""
        with suppress(TestbedError):  # no room: undoing it a second time is harmless, and required
            self._append({"undone": number})
        super().undone(number)
        self._undone += 1
        if self._undone >= _MANY + len(self._pending) and not self.damage:
            self._compact()

    def close(self) -> None:
        """Leave the journal to another process."""
        self._file.close()

    def remove(self) -> None:
        """Remove the file after everything is undone. A damaged one is kept under another name."""
        if self.damage:
            self._path.replace(self._path.with_suffix(".damaged"))
        else:
            self._path.unlink(missing_ok=True)
        self._file.close()

    def _append(self, entry: dict[str, object]) -> None:
        try:
            append(self._file, _line(entry))
        except OSError as error:
            remedy = FILE_SIZE_REMEDY if error.errno == errno.EFBIG else "make room there"
            raise TestbedError(
                f"the journal {self._path} cannot be written: {error.strerror}; {remedy}. netbench makes no further "
                "changes, and undoes the earlier ones"
            ) from error

    def _compact(self) -> None:
        """Rewrite the file without undone changes; it stays locked, so that no other process takes it over."""
        entries = [self._header, *({"seq": number, **to_json(change)} for number, change in self.pending)]
        try:
            file = create_locked(self._path, "".join(map(_line, entries)))
        except OSError:
            return  # no room for both: the old file stays
        self._file.close()
        self._file, self._undone = file, 0


@dataclass(frozen=True, slots=True)
class Cleaned:
    """The processes ended and the changes undone (or, in a dry run, to be undone) for one abandoned run."""

    run_id: str
    processes: tuple[str, ...]
    changes: tuple[str, ...]
    failures: tuple[str, ...]


def clean(dry_run: bool = False, directory: Path = STATE_DIRECTORY) -> list[Cleaned]:
    """End the processes and undo the changes of every run whose owner is gone.

    With `dry_run` nothing is touched. MissingError when the state directory cannot be read or written.
    """
    cleaned = [_clean_journal(journal, dry_run) for journal in Journal.abandoned(directory)]
    if not dry_run:
        remove_killed(directory)
    return cleaned


def _clean_journal(journal: Journal, dry_run: bool) -> Cleaned:
    changes = tuple(change.command for _, change in journal.pending)
    if dry_run:
        processes = tuple(words for _, words in marked_processes(journal.run_id))
        journal.close()
        return Cleaned(journal.run_id, processes, changes, ())
    with shielded():
        ended, failures = undo_run(journal, Machine(None, LocalHost("local", journal.run_id), record=journal))
    damage = (journal.damage,) if journal.damage else ()
    return Cleaned(journal.run_id, tuple(ended), changes, (*failures, *damage))


def undo_run(journal: Journal, machine: Machine) -> tuple[list[str], list[str]]:
    """End the processes of a run and undo its changes; return the processes, and messages about failures.

    After a failure the journal stays: the next start, or `netbench clean`, tries again.
    """
    ended = end_marked_processes(journal.run_id)
    failures = machine.undo()
    if failures:
        journal.close()
    else:
        journal.remove()
    return ended, failures


def to_json(change: Change) -> dict[str, object]:
    """Return a change as JSON-able data; a plug-in's change with its module, so that another process can load it."""
    kind = type(change)
    module = {} if kind.__module__.startswith(changes.__name__) else {"module": kind.__module__}
    return {"change": kind.__name__, **module, **asdict(change)}


def from_json(data: dict[str, Any]) -> Change:
    """Return the change from the data of `to_json`; KeyError or TypeError for anything else."""
    fields = {_RENAMED.get(key, key): value for key, value in data.items()}
    name = str(fields.pop("change"))
    name = _RENAMED.get(name, name)
    if module := fields.pop("module", None):
        try:
            import_module(str(module))
        except ImportError:
            _import_moved(name)
    kind = {kind.__name__: kind for kind in _kinds(Change)}[name]
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in fields.items()})


def _import_moved(name: str) -> None:
    """Import the module that now contains a change of an earlier version of netbench."""
    package = Path(__file__).parents[1]
    for file in package.rglob("*.py"):
        if f"\nclass {name}(" in file.read_text():
            import_module(".".join(file.relative_to(package.parent).with_suffix("").parts))


def _kinds(kind: type[Change]) -> Iterator[type[Change]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from _kinds(subclass)


def _own_namespace() -> int:
    try:
        return Path(_OWN_NAMESPACE).stat().st_ino
    except OSError as error:
        raise MissingError(f"{_OWN_NAMESPACE}: {error.strerror}; mount /proc (mount -t proc proc /proc)") from error


def _read(file: IO[str], path: Path) -> tuple[dict[str, object], dict[int, Change], str]:
    """Return the header, the changes still to be undone, and a message about damage.

    A last line cut short is no damage, because its change was never made; it is removed, so that lines can follow.
    """
    *lines, cut_line = Path(f"/proc/self/fd/{file.fileno()}").read_bytes().split(b"\n")
    os.ftruncate(file.fileno(), os.fstat(file.fileno()).st_size - len(cut_line))
    header: dict[str, object] = {}
    pending: dict[int, Change] = {}
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            checksum = entry.pop(_CHECKSUM, None)  # older versions of netbench wrote none
            if checksum not in (None, _checksum(entry)):
                raise ValueError("its checksum is wrong")
            if "seq" in entry:
                sequence = entry.pop("seq")
                pending[sequence] = from_json(entry)
            elif "undone" in entry:
                pending.pop(entry["undone"], None)
            elif number == 1 and entry.keys() <= _HEADER:
                header = entry
            else:
                raise ValueError("neither a change nor one undone")
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            damage = f"{path}: line {number} is damaged; changes recorded from there on are not undone"
            return header, pending | _possible_loans(pending), damage
    return header, pending, ""


def _possible_loans(pending: dict[int, Change]) -> dict[int, Change]:
    """Return loans of ports that may be on damaged lines: a namespace must not be removed with a port in it."""
    changes = pending.values()
    lent = {change.interface for change in changes if isinstance(change, MovePort)}
    ports = [change.interface for change in changes if isinstance(change, KeepPort) and change.lent]
    namespaces = [change.name for change in changes if isinstance(change, AddNamespace)]
    loans = [MovePort(port, netns) for port in ports if port not in lent for netns in namespaces]
    return dict(enumerate(loans, start=max(pending, default=-1) + 1))


def _line(entry: dict[str, object]) -> str:
    return json.dumps({**entry, _CHECKSUM: _checksum(entry)}) + "\n"


def _checksum(entry: dict[str, object]) -> int:
    return crc32(json.dumps(entry).encode())
