"""The store: one SQLite file per campaign, one transaction and one JSON document per trial, raw counts as integers."""

import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from netbench.config.wording import first_problem
from netbench.errors import TestbedError, UsageError
from netbench.model.campaign import Boot, WarmUpTrial
from netbench.model.documents import document_of
from netbench.model.foreign_text import well_formed
from netbench.model.trial import TrialResult
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.model.virtualisation import Virtualisation
from netbench.results.store_file import connect_for_reading, connect_for_writing, write_remedy
from netbench.results.stored_counters import Counters, added_up

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
        store = cls(connect_for_writing(path), path)
        with store._writing():
            store._connection.executescript(_SCHEMA)
        return store

    @classmethod
    def open(cls, path: Path) -> "Store":
        """Return an existing store for reading and writing.

        UsageError if it is missing, damaged, or of an unknown version.
        """
        return cls._existing(path, connect_for_writing)

    @classmethod
    def read(cls, path: Path) -> "Store":
        """Return an existing store for reading, also from a read-only directory; UsageError as in `open`."""
        return cls._existing(path, connect_for_reading)

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
            raise TestbedError(f"{self._path}: cannot be written: {error}; {write_remedy(error)}") from error


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
