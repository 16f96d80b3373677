"""The store: one SQLite file per campaign, one transaction and one JSON document per trial, raw counts as integers.

Counters are stored separately from the documents of trials, because they are large and rarely read. Their names and
points are the same in most trials: each such list is stored once. Each trial stores only the growth of its counters.
"""

import resource
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import TestbedError, UsageError
from netbench.linux.locks import FILE_SIZE_REMEDY
from netbench.model.campaign import Boot, WarmUpTrial
from netbench.model.counts import PointCount
from netbench.model.documents import document_of
from netbench.model.foreign_text import well_formed
from netbench.model.points import PathSection
from netbench.model.trial import TrialResult
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.model.virtualisation import Virtualisation

# For each guest, and then for each of its streams: the name, and all fields of a PointCount except the growth.
_Places = list[tuple[str, list[tuple[str, PathSection, int, str, str]]]]
_PLACES: TypeAdapter[_Places] = TypeAdapter(_Places)
_GROWTHS: TypeAdapter[list[int | None]] = TypeAdapter(list[int | None])
_MOST_SUMS = 256  # in memory at a time


class Counters(NamedTuple):
    """All counters of a trial as JSON: their places, and their growths in the same order."""

    places: str
    growths: str

    @classmethod
    def of(cls, trial: TrialResult) -> "Counters":
        """Return the counters of a trial."""
        lists = list(_lists(trial))
        places: _Places = [
            (name, [(count.point, count.where, count.order, count.counter, count.role) for count in counts])
            for name, counts in lists
        ]
        growths = [count.grew for _, counts in lists for count in counts]
        return cls(document_of(_PLACES, places), document_of(_GROWTHS, growths))

    def given_to(self, trial: TrialResult) -> TrialResult:
        """Return a trial, stored without counters, with these counters; ValueError if they do not match the trial."""
        places = _PLACES.validate_json(self.places, strict=True)
        growths = _GROWTHS.validate_json(self.growths, strict=True)
        names = [name for name, _ in _lists(trial)]
        if [name for name, _ in places] != names or sum(len(points) for _, points in places) != len(growths):
            raise ValueError("the counters are not those of its guests and streams")
        growth = iter(growths)
        lists = iter([tuple([PointCount(*point, next(growth)) for point in points]) for _, points in places])
        guests = []
        for guest in trial.guests:
            counters = next(lists)  # the counters of the guest come before those of its streams
            streams = tuple([replace(stream, counters=next(lists)) for stream in guest.streams])
            guests.append(replace(guest, streams=streams, counters=counters))
        return replace(trial, guests=tuple(guests))


def added_up(trials: Iterable[tuple[str, Hashable, str]]) -> Iterator[tuple[str, str, int]]:
    """Yield the sums of the growths of similar trials: the key of the first trial, the sums and the number of trials.

    `trials` are tuples of the key, the value that trials must share to be added up, and the growths. A counter that is
    unknown in one trial is never added to one that is known in another.
    """
    sums: dict[Hashable, tuple[str, list[int | None], int]] = {}

    def finished() -> Iterator[tuple[str, str, int]]:
        for first, total, number in sums.values():
            yield first, document_of(_GROWTHS, total), number
        sums.clear()

    for key, shared, document in trials:
        growths = _GROWTHS.validate_json(document, strict=True)
        unknown = tuple(place for place, growth in enumerate(growths) if growth is None) if None in growths else ()
        first, total, number = sums.get((shared, unknown, len(growths)), (key, [0] * len(growths), 0))
        total = [None if new is None else (so_far or 0) + new for so_far, new in zip(total, growths, strict=True)]
        sums[shared, unknown, len(growths)] = first, total, number + 1
        if len(sums) == _MOST_SUMS:
            yield from finished()
    yield from finished()


def _lists(trial: TrialResult) -> Iterator[tuple[str, tuple[PointCount, ...]]]:
    for guest in trial.guests:
        yield guest.name, guest.counters
        for stream in guest.streams:
            yield stream.stream, stream.counters


# The version of the tables and of the documents in them. Until netbench 1.0 there is no migration: a store can only be
# read by the version of netbench that wrote it.
SCHEMA_VERSION = 7
# Beside its document a trial has columns for look-up and sorting, and for the growth of its counters. Many trials share
# a row of `counters`, to which `counted` refers. The document is the last column: SQLite has to read a row up to the
# last requested column.
_SCHEMA = f"""
CREATE TABLE trials (
    key TEXT PRIMARY KEY, plan_index INTEGER NOT NULL, uut TEXT NOT NULL, scenario TEXT NOT NULL,
    frame_size INTEGER NOT NULL, repetition INTEGER NOT NULL, boot INTEGER NOT NULL, verdict TEXT NOT NULL,
    counted INTEGER NOT NULL REFERENCES counters, growths TEXT NOT NULL, document TEXT NOT NULL
) STRICT;
CREATE TABLE counters (id INTEGER PRIMARY KEY, places TEXT NOT NULL UNIQUE) STRICT;
CREATE INDEX trials_in_plan_order ON trials (plan_index);
CREATE INDEX trials_by_measurement ON trials (uut, scenario, frame_size);
CREATE TABLE warnings (kind TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, text)) STRICT;
CREATE TABLE uuts (name TEXT NOT NULL, fact TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name, fact)) STRICT;
CREATE TABLE boots (number INTEGER PRIMARY KEY, uut TEXT NOT NULL, start_s REAL, memory_bytes INTEGER) STRICT;
PRAGMA user_version = {SCHEMA_VERSION};
"""
# The table is created with the first warm-up trial. Stores without warm-up trials, and older stores, do not have it.
_WARM_UPS = """
CREATE TABLE IF NOT EXISTS warm_up_trials (
    boot INTEGER NOT NULL, number INTEGER NOT NULL, uut TEXT NOT NULL, document TEXT NOT NULL,
    PRIMARY KEY (boot, number)
) STRICT
"""
_WHOLE = "document, places, growths FROM trials JOIN counters ON id = counted"
_TRIAL = TypeAdapter(TrialResult)
_MOST_KNOWN = 4096  # shared values in memory at a time, while trials are read


class Store(Mapping[str, TrialResult]):
    """The trials of one campaign on disk, by key; each is read on access, and none stays in memory.

    UsageError at a damaged trial.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path) -> None:
        self._connection = connection
        self._path = path

    @classmethod
    def create(cls, path: Path) -> "Store":
        """Create and return a new store; TestbedError if it cannot be written."""
        store = cls(_connect(path), path)
        with store._writing():
            store._connection.executescript(_SCHEMA)
        return store

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Return an existing store for reading and writing.

        UsageError if it is missing, damaged, or of an unknown version.
        """
        return cls._existing(path, _connect)

    @classmethod
    def read(cls, path: Path) -> "Store":
        """Return an existing store for reading, also from a read-only directory; UsageError as in `open`."""
        return cls._existing(path, _connect_for_reading)

    @classmethod
    def _existing(cls, path: Path, connect: Callable[[Path], sqlite3.Connection]) -> "Store":
        if not path.is_file():
            raise UsageError(f"{path}: no such file; is this a result directory of `netbench run`?")
        try:
            connection = connect(path)
            version = connection.execute("PRAGMA user_version").fetchone()[0]
        except (sqlite3.DatabaseError, TestbedError) as error:
            raise UsageError(f"{path}: is not a netbench store: {error}") from error
        if version != SCHEMA_VERSION:
            connection.close()
            raise UsageError(
                f"{path}: has schema version {version}, this netbench reads {SCHEMA_VERSION} alone; "
                "use the netbench that wrote it (see manifest.json)"
            )
        return cls(connection, path)

    def add(self, trial: TrialResult) -> None:
        """Commit one trial, completely or not at all; TestbedError if it cannot be written (a full disk)."""
        spec = trial.spec
        # The document has the sizes of a mix, and the workload of flows, which have no frame size.
        size = 0 if spec.serves else round(spec.frame_size.mean_bytes)
        cell = spec.key, spec.index, spec.uut, spec.scenario, size, spec.repetition
        with self._writing() as db:
            values = *cell, trial.boot, *_measured(db, trial)
            db.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", values)

    def replace(self, trial: TrialResult) -> None:
        """Replace the result of a stored trial; TestbedError if it cannot be written."""
        with self._writing() as db:
            query = "UPDATE trials SET verdict = ?, counted = ?, growths = ?, document = ? WHERE key = ?"
            db.execute(query, (*_measured(db, trial), trial.spec.key))

    def keep_warnings(self, warnings: Sequence[CampaignWarning]) -> None:
        """Store warnings; a warning that is stored already is not repeated."""
        with self._writing() as db:
            db.executemany(
                "INSERT OR IGNORE INTO warnings VALUES (?, ?)",
                [(warning.kind.value, well_formed(warning.text)) for warning in warnings],
            )

    def keep_facts(self, uut: str, facts: Mapping[str, str]) -> None:
        """Store the facts that a UUT reports, in place of its earlier ones."""
        with self._writing() as db:
            db.execute("DELETE FROM uuts WHERE name = ?", (uut,))
            db.executemany(
                "INSERT INTO uuts VALUES (?, ?, ?)", [(uut, fact, well_formed(value)) for fact, value in facts.items()]
            )

    def facts(self) -> dict[str, dict[str, str]]:
        """Return the facts that each UUT reported when it last became ready; UUTs without facts are left out."""
        facts: dict[str, dict[str, str]] = {}
        with self._reading() as db:
            for name, fact, value in db.execute("SELECT name, fact, value FROM uuts ORDER BY rowid"):
                facts.setdefault(name, {})[fact] = Virtualisation(value) if fact == "virtualisation" else value
        return facts

    def keep_boot(self, boot: Boot) -> None:
        """Store a boot; it replaces an earlier boot with this number, on which nothing was measured."""
        with self._writing() as db:
            values = boot.number, boot.uut, boot.start_s, boot.memory_bytes
            db.execute("INSERT OR REPLACE INTO boots VALUES (?, ?, ?, ?)", values)

    def boots(self) -> tuple[Boot, ...]:
        """Return all stored boots."""
        with self._reading() as db:
            return tuple(Boot(*row) for row in db.execute("SELECT uut, number, start_s, memory_bytes FROM boots"))

    def warnings(self) -> tuple[CampaignWarning, ...]:
        """Return all stored warnings."""
        with self._reading() as db:
            rows = db.execute("SELECT kind, text FROM warnings ORDER BY rowid")
            return tuple(CampaignWarning(WarningKind(kind), text) for kind, text in rows)

    def keep_warm_up(self, warm_up: WarmUpTrial) -> None:
        """Commit a warm-up trial, without counters; TestbedError if it cannot be written."""
        result = warm_up.result
        with self._writing() as db:
            db.execute(_WARM_UPS)
            values = result.boot, warm_up.number, result.spec.uut, _document(result.without_counters)
            db.execute("INSERT INTO warm_up_trials VALUES (?, ?, ?, ?)", values)

    def warm_ups(self) -> Iterator[WarmUpTrial]:
        """Yield all warm-up trials in order, boot by boot, one in memory at a time; UsageError as in `trials`."""
        with self._reading() as db:
            if _has_warm_ups(db):
                query = "SELECT number, document FROM warm_up_trials ORDER BY boot, number"
                for number, document in db.execute(query):
                    yield WarmUpTrial(number, _TRIAL.validate_json(document, strict=True))

    def __getitem__(self, key: str) -> TrialResult:
        with self._reading() as db:
            row = db.execute(f"SELECT {_WHOLE} WHERE key = ?", (key,)).fetchone()
            if row is not None:
                return _with_counters(*row)
        raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        with self._reading() as db:
            return db.execute("SELECT 1 FROM trials WHERE key = ?", (key,)).fetchone() is not None

    def __iter__(self) -> Iterator[str]:
        with self._reading() as db:
            yield from [key for (key,) in db.execute("SELECT key FROM trials")]

    def __len__(self) -> int:
        with self._reading() as db:
            return int(db.execute("SELECT count(*) FROM trials").fetchone()[0])

    def last_boot(self) -> int:
        """Return the highest number of a boot with trials or warm-up trials; 0 if there is none."""
        with self._reading() as db:
            tables = ["trials", *(["warm_up_trials"] if _has_warm_ups(db) else [])]
            boots = [db.execute(f"SELECT coalesce(max(boot), 0) FROM {table}").fetchone()[0] for table in tables]
            return int(max(boots))

    def trials(
        self, *, uut: str | None = None, scenario: str | None = None, counters: bool = True
    ) -> Iterator[TrialResult]:
        """Yield trials in plan order, one in memory at a time: all, or only those of a UUT or of a scenario.

        Without `counters` this takes a fraction of the time. UsageError at a damaged trial.
        """
        query = (
            f"SELECT key, {_WHOLE if counters else 'document FROM trials'} "
            "WHERE uut = coalesce(?, uut) AND scenario = coalesce(?, scenario) ORDER BY plan_index"
        )
        known: dict[Hashable, Hashable] = {}  # values that many trials share
        with self._reading() as db:
            for key, document, *of_counters in db.execute(query, (uut, scenario)):
                if len(known) > _MOST_KNOWN:
                    known.clear()
                try:
                    trial = _TRIAL.validate_json(document, strict=True, context=known)
                    yield Counters(*of_counters).given_to(trial) if counters else trial
                except ValidationError as error:
                    raise ValueError(f"trial {key}: {first_problem(error)}") from error

    def added_up(self) -> Iterator[tuple[TrialResult, int]]:
        """Yield one trial per group of trials with the same UUT, verdict and counters, and the size of the group.

        It is the first trial of the group, with the sums of their counters. UsageError as in `trials`.
        """
        query = "SELECT key, uut || ' ' || verdict || ' ' || counted, growths FROM trials ORDER BY plan_index"
        with self._reading() as db:
            for key, growths, number in added_up(db.execute(query)):
                document, places, _ = db.execute(f"SELECT {_WHOLE} WHERE key = ?", (key,)).fetchone()
                yield _with_counters(document, places, growths), number

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        try:
            yield self._connection
        except (sqlite3.Error, TypeError, ValueError) as error:
            wrong = first_problem(error) if isinstance(error, ValidationError) else error
            raise UsageError(f"{self._path}: is damaged: {wrong}") from error

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        try:
            with self._connection:
                yield self._connection
        except sqlite3.IntegrityError as error:
            raise TestbedError(f"{self._path}: this trial is already stored: {error}") from error
        except sqlite3.DatabaseError as error:
            raise TestbedError(f"{self._path}: cannot be written: {error}; {_remedy(error)}") from error


def _has_warm_ups(db: sqlite3.Connection) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'warm_up_trials'"
    return db.execute(query).fetchone() is not None


def _document(trial: TrialResult) -> str:
    return document_of(_TRIAL, replace(trial, guests=tuple(guest.without_counters for guest in trial.guests)))


def _with_counters(document: str, places: str, growths: str) -> TrialResult:
    return Counters(places, growths).given_to(_TRIAL.validate_json(document, strict=True))


def _measured(db: sqlite3.Connection, trial: TrialResult) -> tuple[str, int, str, str]:
    """Return the columns `verdict`, `counted`, `growths` and `document`; a missing row of counters is added."""
    counters = Counters.of(trial)
    db.execute("INSERT OR IGNORE INTO counters (places) VALUES (?)", (counters.places,))
    ((row,),) = db.execute("SELECT id FROM counters WHERE places = ?", (counters.places,))
    return trial.verdict.value, row, counters.growths, _document(trial)


def _connect(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA cache_size = -256")  # KiB: added trials are hardly ever read again
    except sqlite3.DatabaseError as error:
        raise TestbedError(f"{path}: cannot be opened: {error}; {_remedy(error)}") from error
    return connection


def _remedy(error: sqlite3.DatabaseError) -> str:
    """Return the remedy for a store that cannot be written."""
    if resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY:
        return f"is the disk full? If not, {FILE_SIZE_REMEDY}"
    name = getattr(error, "sqlite_errorname", "")  # set if SQLite itself reported the error
    if name.startswith(("SQLITE_IOERR_SHM", "SQLITE_PROTOCOL", "SQLITE_IOERR_LOCK")):
        return "its file system has no shared memory maps or locks: name a directory on another one with -o"
    if name in ("SQLITE_READONLY", "SQLITE_CANTOPEN"):
        return "is its directory writable?"
    return "is the disk full?"


def _connect_for_reading(path: Path) -> sqlite3.Connection:
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


Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class Stored(Iterable[Item]):
    """Items that are read from a store again on each iteration: none stays in memory.

    UsageError as in `Store.read` and `Store.trials`.
    """

    path: Path
    read: Callable[[Store], Iterator[Item]]

    def __iter__(self) -> Iterator[Item]:
        with closing(Store.read(self.path)) as store:
            yield from self.read(store)


class StoredTrials(Stored[TrialResult], Sequence[TrialResult]):
    """The trials of a store in plan order, with their counters if `counters` is True."""

    def __init__(self, path: Path, counters: bool = True) -> None:
        super().__init__(path, lambda store: store.trials(counters=counters))

    def __len__(self) -> int:
        with closing(Store.read(self.path)) as store:
            return len(store)

    def __getitem__(self, place: Any) -> Any:  # noqa: ANN401 - a trial, or several for a slice
        return tuple(self)[place]
