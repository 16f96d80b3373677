"""The store: one SQLite file a campaign, one transaction a trial, raw counts as integers."""

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError, UsageError
from netbench.model.counts import HopCount, HopLoss, StreamCounts
from netbench.model.trial import TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind, Warning, WarningKind
from netbench.results.schema import COUNT_COLUMNS, FROM_VERSION_1, SCHEMA, SCHEMA_VERSION

_OF_NO_STREAM = ""  # the stream of hops that do not tell streams apart


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
            if _version(connection) == 1:
                connection.executescript(FROM_VERSION_1)
            version = _version(connection)
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
        row = (
            spec.key, spec.index, spec.uut, spec.scenario, spec.frame_size, str(spec.load), spec.repetition,
            trial.attempt, trial.started_ns, trial.verdict.value, json.dumps(trial.steps_s),
            json.dumps(spec.streams), json.dumps(trial.cpu_s),
        )  # fmt: skip
        with self._writing() as db:
            db.execute(f"INSERT INTO trials VALUES ({_marks(len(row))})", row)
            for position, counts in enumerate(trial.streams):
                values = [getattr(counts, name) for name in COUNT_COLUMNS]
                db.execute(f"INSERT INTO streams VALUES ({_marks(len(values) + 2)})", (spec.key, position, *values))
                _insert(db, "losses", spec.key, counts.stream, counts.lost_at)
                _insert(db, "hops", spec.key, counts.stream, counts.hops)
            _insert(db, "hops", spec.key, _OF_NO_STREAM, trial.hops)
            for position, reason in enumerate(trial.reasons):
                row_ = (spec.key, position, reason.kind.value, reason.stream, reason.detail)
                db.execute("INSERT INTO reasons VALUES (?, ?, ?, ?, ?)", row_)

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

    def warnings(self) -> tuple[Warning, ...]:
        """All warnings noted."""
        rows = self._rows("SELECT kind, text FROM warnings ORDER BY rowid")
        try:
            return tuple(Warning(WarningKind(row["kind"]), row["text"]) for row in rows)
        except ValueError as error:
            raise UsageError(f"{self._path}: is damaged: {error}") from error

    def keys(self) -> set[str]:
        """The keys of the trials that are done."""
        return {row["key"] for row in self._rows("SELECT key FROM trials")}

    def trials(self) -> tuple[TrialResult, ...]:
        """All trials in plan order; UsageError when the file does not hold what it should."""
        try:
            return self._trials()
        except (sqlite3.Error, LookupError, TypeError, ValueError, RecursionError) as error:
            raise UsageError(f"{self._path}: is damaged: {error}") from error

    def _trials(self) -> tuple[TrialResult, ...]:
        streams = _grouped(self._rows("SELECT * FROM streams ORDER BY trial, position"), "trial")
        losses = _grouped(self._rows("SELECT * FROM losses ORDER BY trial, stream, position"), "trial", "stream")
        hops = _grouped(self._rows("SELECT * FROM hops ORDER BY trial, stream, position"), "trial", "stream")
        reasons = _grouped(self._rows("SELECT * FROM reasons ORDER BY trial, position"), "trial")
        return tuple(
            _trial(row, streams.get((row["key"],), []), losses, hops, reasons.get((row["key"],), []))
            for row in self._rows("SELECT * FROM trials ORDER BY plan_index")
        )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def _rows(self, query: str) -> list[sqlite3.Row]:
        try:
            return self._connection.execute(query).fetchall()
        except (sqlite3.Error, UnicodeDecodeError) as error:
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


def _insert(db: sqlite3.Connection, table: str, key: str, stream: str, items: Sequence[HopLoss | HopCount]) -> None:
    for position, item in enumerate(items):
        values = (key, stream, position, *asdict(item).values())
        db.execute(f"INSERT INTO {table} VALUES ({_marks(len(values))})", values)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _grouped(rows: Sequence[sqlite3.Row], *by: str) -> dict[tuple[Any, ...], list[sqlite3.Row]]:
    groups: dict[tuple[Any, ...], list[sqlite3.Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


def _counts(row: sqlite3.Row) -> dict[str, Any]:
    """The columns of StreamCounts; ValueError where one holds what the schema would never have let in."""
    values = {name: row[name] for name in COUNT_COLUMNS}
    for name, kind in COUNT_COLUMNS.items():
        wanted = {"TEXT": str, "INTEGER": int, "REAL": float}[kind.split()[0]]
        value = values[name]
        if not isinstance(value, wanted) and not (value is None and "NOT NULL" not in kind):
            raise ValueError(f"{name} of stream {row['stream']} of {row['trial']} is {value!r}")
    return values


def _hops(rows: Sequence[sqlite3.Row]) -> tuple[HopCount, ...]:
    return tuple(HopCount(row["hop"], row["counter"], row["role"], row["grew"]) for row in rows)


def _names(text: str) -> tuple[str, ...]:
    names = json.loads(text)
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ValueError(f"{text} are no names of streams")
    return tuple(names)


def _seconds(text: str) -> dict[str, float]:
    seconds = json.loads(text)
    if not isinstance(seconds, dict) or not all(isinstance(value, float | int) for value in seconds.values()):
        raise ValueError(f"{text} are no times")
    return seconds


def _trial(
    row: sqlite3.Row,
    streams: Sequence[sqlite3.Row],
    losses: dict[tuple[Any, ...], list[sqlite3.Row]],
    hops: dict[tuple[Any, ...], list[sqlite3.Row]],
    reasons: Sequence[sqlite3.Row],
) -> TrialResult:
    spec = TrialSpec(
        index=row["plan_index"],
        uut=row["uut"],
        scenario=row["scenario"],
        streams=_names(row["streams"]),
        frame_size=row["frame_size"],
        load=Load.parse(row["load"]),
        repetition=row["repetition"],
    )
    counts = tuple(
        StreamCounts(
            **_counts(stream),
            lost_at=tuple(HopLoss(r["hop"], r["frames"]) for r in losses.get((row["key"], stream["stream"]), [])),
            hops=_hops(hops.get((row["key"], stream["stream"]), [])),
        )
        for stream in streams
    )
    return TrialResult(
        spec=spec,
        attempt=row["attempt"],
        started_ns=row["started_ns"],
        streams=counts,
        reasons=tuple(Reason(ReasonKind(r["kind"]), r["stream"], r["detail"]) for r in reasons),
        steps_s=_seconds(row["steps_s"]),
        hops=_hops(hops.get((row["key"], _OF_NO_STREAM), [])),
        cpu_s=_seconds(row["cpu_s"]),
    )
