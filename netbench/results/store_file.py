"""The SQLite file of a store: connections for writing and reading, and the remedies if they fail."""

import resource
import sqlite3
from contextlib import closing
from pathlib import Path

from netbench.errors import TestbedError, UsageError
from netbench.linux.locks import FILE_SIZE_REMEDY


def connect_for_writing(path: Path) -> sqlite3.Connection:
    """Return a connection that commits to the disk, and creates a missing file; TestbedError if it cannot be opened."""
    try:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -256")  # KiB: added trials are hardly ever read again
    except sqlite3.DatabaseError as error:
        raise TestbedError(f"{path}: cannot be opened: {error}; {write_remedy(error)}") from error
    return connection


def write_remedy(error: sqlite3.DatabaseError) -> str:
    """Return the remedy for a store that cannot be written."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return f"is the disk full? If not, {FILE_SIZE_REMEDY}"
    name = getattr(error, "sqlite_errorname", "")  # set if SQLite itself reported the error
    if name.startswith(("SQLITE_IOERR_SHM", "SQLITE_PROTOCOL", "SQLITE_IOERR_LOCK")):
        return "its file system has no shared memory maps or locks: name a directory on another one with -o"
    if name in ("SQLITE_READONLY", "SQLITE_CANTOPEN"):
        return "is its directory writable?"
    return "is the disk full?"


def connect_for_reading(path: Path) -> sqlite3.Connection:
    """Return a connection that does not write; if the directory is read-only, not even files beside the store."""
    connection = _connect_as(path, "mode=ro")
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError as error:
        # A write-ahead log needs files beside the store. If none can be created, there must be no log.
        connection.close()
        if _has_log(path):
            raise UsageError(
                f"{path}: its latest trials are in {path.name}-wal, which cannot be read here: {error}; "
                "copy the whole directory to where it can be written"
            ) from error
        connection = _connect_as(path, "immutable=1")
    return connection


def _connect_as(path: Path, how: str) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True)


def _has_log(path: Path) -> bool:
    log = path.with_name(f"{path.name}-wal")
    return log.exists() and log.stat().st_size > 0


def is_empty(path: Path) -> bool:
    """Return True if there is no store, or a store without trials; an unreadable store may contain trials."""
    if not path.exists():
        return True
    try:
        # Without a log no process is writing: reading needs no files beside the store.
        with closing(_connect_as(path, "mode=ro" if _has_log(path) else "immutable=1")) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            return "trials" not in tables or connection.execute("SELECT count(*) FROM trials").fetchone() == (0,)
    except sqlite3.Error:
        return False
