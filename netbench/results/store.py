"""The store: one SQLite file a campaign, one transaction a trial, raw counts as integers."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import astuple
from pathlib import Path

from netbench.errors import TestbedError, UsageError
from netbench.model.counts import HopCount, HopLoss, StreamCounts
from netbench.model.maximum import Maximum
from netbench.model.trial import TrialResult
from netbench.model.verdict import Warning, WarningKind
from netbench.results.schema import COUNT_COLUMNS, MIGRATIONS, SCHEMA, SCHEMA_VERSION, shared_by_streams
from netbench.results.stored import StoredTrials, checked, stored_maximum

_DAMAGE = (sqlite3.Error, LookupError, TypeError, ValueError, RecursionError)


class Store:
    """The trials of one campaign on disk."""

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def create(cls, path: Path) -> "Store":
        """A new store; TestbedError when it cannot be written."""
        store = cls(_connect(path), path)
        with store._writing():
            store._connection.executescript(SCHEMA)
        return store

    @classmethod
    def open(cls, path: Path) -> "Store":
        """An existing store to add to, brought to this schema version if it is older.

        UsageError when it is missing, damaged, or of a version that is not known here.
        """
        return cls._existing(path, lambda: _connect(path))

    @classmethod
    def read(cls, path: Path) -> "Store":
        """An existing store to read from, which may lie where nothing can be written; UsageError as `open`."""
        return cls._existing(path, lambda: _connect_for_reading(path))

    @classmethod
    def _existing(cls, path: Path, connect: Callable[[], sqlite3.Connection]) -> "Store":
        if not path.is_file():
            raise UsageError(f"{path}: no such file; is this a result directory of `netbench run`?")
        try:
            connection = connect()
            while (version := _version(connection)) in MIGRATIONS:
                connection.executescript(MIGRATIONS[version])
        except (sqlite3.DatabaseError, TestbedError) as error:
            raise UsageError(f"{path}: is not a netbench store: {error}") from error
        if version != SCHEMA_VERSION:
            connection.close()
            raise UsageError(
                f"{path}: has schema version {version}, this netbench reads 1 to {SCHEMA_VERSION}; "
                "use the netbench that wrote it (see manifest.json)"
            )
        return cls(connection, path)

    def add(self, trial: TrialResult) -> None:
        """Commit one trial, whole or not at all; TestbedError when it cannot be written (a full disk)."""
        spec = trial.spec
        streams = [
            (guest, counts)
            for guest, of_guest in (("", trial.streams), *((one.name, one.streams) for one in trial.neighbours))
            for counts in of_guest
        ]
        with self._writing() as db:
            _insert(
                db,
                "trials",
                spec.key,
                spec.index,
                spec.uut,
                spec.scenario,
                spec.frame_size,
                str(spec.load),
                spec.repetition,
                trial.attempt,
                trial.started_ns,
                trial.verdict.value,
                json.dumps(trial.steps_s),
                json.dumps(spec.streams),
                json.dumps(trial.cpu_s),
                trial.lifetime,
            )
            for position, (guest, counts) in enumerate(streams):
                _insert_stream(db, spec.key, position, guest, counts)
            _insert_each(db, "hops", spec.key, shared_by_streams(""), trial.hops)
            for position, one in enumerate(trial.neighbours):
                cpu_s = json.dumps(one.cpu_s)
                _insert(db, "neighbours", spec.key, position, one.name, one.activity, one.frame_size, cpu_s)
                _insert_each(db, "hops", spec.key, shared_by_streams(one.name), one.hops)
            for position, reason in enumerate(trial.reasons):
                _insert(db, "reasons", spec.key, position, reason.kind.value, reason.stream, reason.detail)

    def keep_warnings(self, warnings: Sequence[Warning]) -> None:
        """Note warnings; one that is already there stays single."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR IGNORE INTO warnings VALUES (?, ?)",
                [(one.kind.value, one.text) for one in warnings],
            )

    def keep_facts(self, uut: str, facts: Mapping[str, str]) -> None:
        """Note what a UUT says of itself, in place of what it said before."""
        with self._writing() as db:
            db.execute("DELETE FROM uuts WHERE name = ?", (uut,))
            db.executemany("INSERT INTO uuts VALUES (?, ?, ?)", [(uut, fact, value) for fact, value in facts.items()])

    def facts(self) -> dict[str, dict[str, str]]:
        """What each UUT said of itself when it last became ready; UUTs that said nothing are not there."""
        facts: dict[str, dict[str, str]] = {}
        for row in self._rows("SELECT name, fact, value FROM uuts ORDER BY rowid"):
            facts.setdefault(row["name"], {})[row["fact"]] = row["value"]
        return facts

    def keep_maximum(self, maximum: Maximum) -> None:
        """Note a maximum, in place of what there was of this UUT and frame size."""
        values = astuple(maximum)
        with self._writing() as db:
            db.execute(f"INSERT OR REPLACE INTO maxima VALUES ({_marks(len(values))})", values)

    def maxima(self) -> tuple[Maximum, ...]:
        """The maxima noted, in the order in which they were."""
        with self._damage_told():
            return tuple(map(stored_maximum, self._rows("SELECT * FROM maxima ORDER BY rowid")))

    def warnings(self) -> tuple[Warning, ...]:
        """All warnings noted."""
        rows = self._rows("SELECT kind, text FROM warnings ORDER BY rowid")
        with self._damage_told():
            return tuple(Warning(WarningKind(row["kind"]), row["text"]) for row in rows)

    def keys(self) -> set[str]:
        """The keys of the trials that are done."""
        return {row["key"] for row in self._rows("SELECT key FROM trials")}

    def last_lifetime(self) -> int:
        """The highest lifetime of guests that trials were measured in; 0 for none."""
        with self._damage_told():
            (row,) = self._rows("SELECT max(lifetime) AS lifetime FROM trials")
            return checked(row, {"lifetime": "INTEGER"})["lifetime"] or 0

    def trials(self) -> tuple[TrialResult, ...]:
        """All trials in plan order; UsageError when the file does not hold what it should."""
        with self._damage_told():
            return StoredTrials.read(self._rows).results()

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, query: str) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise UsageError(f"{self._path}: is damaged: {error}") from error

    @contextmanager
    def _damage_told(self) -> Iterator[None]:
        try:
            yield
        except _DAMAGE as error:
            raise UsageError(f"{self._path}: is damaged: {error}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.IntegrityError as error:
            raise TestbedError(f"{self._path}: this trial is already stored: {error}") from error
        except sqlite3.DatabaseError as error:
            raise TestbedError(f"{self._path}: cannot be written: {error}; is the disk full?") from error


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path)
        connection.row_factory = sqlite3.Row
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.DatabaseError as error:
        raise TestbedError(f"{path}: cannot be opened: {error}") from error
    return connection


def _connect_for_reading(path: Path) -> sqlite3.Connection:
    """A connection that writes nothing, not even beside the file where that is not possible."""
    address = path.resolve().as_uri()
    connection = sqlite3.connect(f"{address}?mode=ro", uri=True)
    try:
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # A write-ahead log needs files beside the store; in a directory that is read-only there is none to read.
        connection.close()
        connection = sqlite3.connect(f"{address}?immutable=1", uri=True)
    if _version(connection) < SCHEMA_VERSION:
        connection = _copy_in_memory(connection)
    connection.row_factory = sqlite3.Row
    return connection


def _copy_in_memory(connection: sqlite3.Connection) -> sqlite3.Connection:
    """A copy that can be brought up to date without a change to the file."""
    copy = sqlite3.connect(":memory:")
    connection.backup(copy)
    connection.close()
    return copy


def _version(connection: sqlite3.Connection) -> int:
    version: int = connection.execute("PRAGMA user_version").fetchone()[0]
    return version


def _insert(db: sqlite3.Connection, table: str, *values: object) -> None:
    db.execute(f"INSERT INTO {table} VALUES ({_marks(len(values))})", values)


def _insert_stream(db: sqlite3.Connection, key: str, position: int, guest: str, counts: StreamCounts) -> None:
    # By name: what an older version did not have comes last in its table.
    names = ("trial", "position", "guest", *COUNT_COLUMNS)
    values = (key, position, guest, *(getattr(counts, name) for name in COUNT_COLUMNS))
    db.execute(f"INSERT INTO streams ({', '.join(names)}) VALUES ({_marks(len(values))})", values)
    _insert_each(db, "losses", key, counts.stream, counts.lost_at)
    _insert_each(db, "hops", key, counts.stream, counts.hops)
    for kind, spread in (("delay", counts.delay), ("ipdv", counts.ipdv)):
        if spread is not None:
            _insert(db, "delays", key, counts.stream, kind, *astuple(spread))
    for one in counts.loss_run_lengths:
        _insert(db, "loss_runs", key, counts.stream, *astuple(one))


def _insert_each(
    db: sqlite3.Connection, table: str, key: str, stream: str, items: Sequence[HopLoss | HopCount]
) -> None:
    for position, item in enumerate(items):
        _insert(db, table, key, stream, position, *astuple(item))


def _marks(count: int) -> str:
    return ", ".join("?" * count)
