"""The tables of a store, and what brings those of an older version up to date."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from netbench.model.counts import LossRuns, Spread, StreamCounts
from netbench.model.maximum import Maximum

SCHEMA_VERSION = 4

# What a stream has in tables of its own.
_NESTED = ("lost_at", "hops", "delay", "ipdv", "loss_run_lengths")
_SQL_TYPES = {
    "str": "TEXT NOT NULL",
    "int": "INTEGER NOT NULL",
    "float": "REAL NOT NULL",
    "int | None": "INTEGER",
    "float | None": "REAL",
}


def shared_by_streams(guest: str) -> str:
    """What stands for the stream where the streams of a guest share a hop; no stream can have this name.

    `guest` is the name of a neighbour, empty for the victim.
    """
    return f"neighbour {guest}" if guest else ""


def _columns(kind: type[Any]) -> dict[str, str]:
    return {
        field.name: _SQL_TYPES[getattr(field.type, "__name__", str(field.type))]
        for field in fields(kind)
        if field.name not in _NESTED
    }


def _sql(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


COUNT_COLUMNS = _columns(StreamCounts)
SPREAD_COLUMNS = _columns(Spread)
LOSS_RUNS_COLUMNS = _columns(LossRuns)
MAXIMUM_COLUMNS = _columns(Maximum)
NEIGHBOUR_COLUMNS = {"name": "TEXT NOT NULL", "activity": "TEXT NOT NULL", "frame_size": "INTEGER"}

_UUTS = """
CREATE TABLE uuts (name TEXT NOT NULL, fact TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (name, fact)) STRICT;
"""
_NEIGHBOURS = f"""
CREATE TABLE neighbours (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    {_sql(NEIGHBOUR_COLUMNS)}, cpu_s TEXT NOT NULL, PRIMARY KEY (trial, position), UNIQUE (trial, name)
) STRICT;
CREATE TABLE maxima ({_sql(MAXIMUM_COLUMNS)}, PRIMARY KEY (uut, frame_size)) STRICT;
"""
_DELAYS = f"""
CREATE TABLE delays (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL, kind TEXT NOT NULL,
    {_sql(SPREAD_COLUMNS)}, PRIMARY KEY (trial, stream, kind)
) STRICT;
CREATE TABLE loss_runs (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL,
    {_sql(LOSS_RUNS_COLUMNS)}, PRIMARY KEY (trial, stream, from_frames)
) STRICT;
"""
SCHEMA = f"""
CREATE TABLE trials (
    key TEXT PRIMARY KEY, plan_index INTEGER NOT NULL, uut TEXT NOT NULL, scenario TEXT NOT NULL,
    frame_size INTEGER NOT NULL, load TEXT NOT NULL, repetition INTEGER NOT NULL,
    attempt INTEGER NOT NULL, started_ns INTEGER NOT NULL, verdict TEXT NOT NULL, steps_s TEXT NOT NULL,
    streams TEXT NOT NULL, cpu_s TEXT NOT NULL, lifetime INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE streams (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    {_sql(COUNT_COLUMNS)}, guest TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (trial, position)
) STRICT;
CREATE TABLE losses (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL, position INTEGER NOT NULL,
    hop TEXT NOT NULL, frames INTEGER NOT NULL, PRIMARY KEY (trial, stream, position)
) STRICT;
CREATE TABLE hops (
    trial TEXT NOT NULL REFERENCES trials, stream TEXT NOT NULL, position INTEGER NOT NULL,
    hop TEXT NOT NULL, counter TEXT NOT NULL, role TEXT NOT NULL, grew INTEGER,
    PRIMARY KEY (trial, stream, position)
) STRICT;
CREATE TABLE reasons (
    trial TEXT NOT NULL REFERENCES trials, position INTEGER NOT NULL,
    kind TEXT NOT NULL, stream TEXT NOT NULL, detail TEXT NOT NULL, PRIMARY KEY (trial, position)
) STRICT;
CREATE TABLE warnings (kind TEXT NOT NULL, text TEXT NOT NULL, PRIMARY KEY (kind, text)) STRICT;
{_UUTS}
{_NEIGHBOURS}
{_DELAYS}
PRAGMA user_version = {SCHEMA_VERSION};
"""

# Version 1 knew no facts, delays or CPU times, and named the streams of a trial only where they were counted.
_FROM_VERSION_1 = f"""
BEGIN IMMEDIATE;
ALTER TABLE trials ADD COLUMN streams TEXT NOT NULL DEFAULT '[]';
ALTER TABLE trials ADD COLUMN cpu_s TEXT NOT NULL DEFAULT '{{}}';
UPDATE trials SET streams = (
    SELECT json_group_array(stream) FROM (SELECT stream FROM streams WHERE trial = trials.key ORDER BY position)
);
ALTER TABLE streams ADD COLUMN delay_min_ns INTEGER;
ALTER TABLE streams ADD COLUMN delay_median_ns INTEGER;
ALTER TABLE streams ADD COLUMN delay_max_ns INTEGER;
{_UUTS}
PRAGMA user_version = 2;
COMMIT;
"""

# Version 2 knew one guest only.
_FROM_VERSION_2 = f"""
BEGIN IMMEDIATE;
ALTER TABLE trials ADD COLUMN lifetime INTEGER NOT NULL DEFAULT 0;
ALTER TABLE streams ADD COLUMN guest TEXT NOT NULL DEFAULT '';
{_NEIGHBOURS}
PRAGMA user_version = 3;
COMMIT;
"""

# Version 3 knew three figures of a delay, and of order only how many frames were late.
_FROM_VERSION_3 = f"""
BEGIN IMMEDIATE;
{_DELAYS}
INSERT INTO delays (trial, stream, kind, smallest_ns, median_ns, largest_ns)
    SELECT trial, stream, 'delay', delay_min_ns, delay_median_ns, delay_max_ns FROM streams
    WHERE coalesce(delay_min_ns, delay_median_ns, delay_max_ns) IS NOT NULL;
ALTER TABLE streams DROP COLUMN delay_min_ns;
ALTER TABLE streams DROP COLUMN delay_median_ns;
ALTER TABLE streams DROP COLUMN delay_max_ns;
ALTER TABLE streams ADD COLUMN delay_refused TEXT NOT NULL DEFAULT '';
ALTER TABLE streams ADD COLUMN reordering_extent_median_frames INTEGER;
ALTER TABLE streams ADD COLUMN reordering_extent_mean_frames REAL;
ALTER TABLE streams ADD COLUMN reordering_extent_max_frames INTEGER;
PRAGMA user_version = 4;
COMMIT;
"""

# By the version they start from; each leads to the next.
MIGRATIONS: Mapping[int, str] = {1: _FROM_VERSION_1, 2: _FROM_VERSION_2, 3: _FROM_VERSION_3}
