"""The rows of a store back to what was put in."""

import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from netbench.model.counts import HopCount, HopLoss, LossRuns, Spread, StreamCounts
from netbench.model.maximum import Maximum
from netbench.model.trial import NeighbourResult, TrialResult, TrialSpec
from netbench.model.units import Load
from netbench.model.verdict import Reason, ReasonKind
from netbench.results.schema import (
    COUNT_COLUMNS,
    LOSS_RUNS_COLUMNS,
    MAXIMUM_COLUMNS,
    NEIGHBOUR_COLUMNS,
    SPREAD_COLUMNS,
    shared_by_streams,
)

Rows = Sequence[sqlite3.Row]
Grouped = dict[tuple[Any, ...], list[sqlite3.Row]]
_PYTHON_TYPES = {"TEXT": str, "INTEGER": int, "REAL": float}


@dataclass(frozen=True, slots=True)
class StoredTrials:
    """The tables that trials are in, each by what its rows belong to.

    LookupError, TypeError or ValueError where they do not hold what they should.
    """

    trials: Rows
    streams: Grouped  # by trial and guest
    losses: Grouped  # by trial and stream
    hops: Grouped  # by trial and stream
    delays: Grouped  # by trial, stream and kind
    loss_runs: Grouped  # by trial and stream
    reasons: Grouped  # by trial
    neighbours: Grouped  # by trial

    @classmethod
    def read(cls, query: Callable[[str], Rows]) -> Self:
        """Read them all."""
        return cls(
            trials=query("SELECT * FROM trials ORDER BY plan_index"),
            streams=_grouped(query("SELECT * FROM streams ORDER BY trial, position"), "trial", "guest"),
            losses=_grouped(query("SELECT * FROM losses ORDER BY trial, stream, position"), "trial", "stream"),
            hops=_grouped(query("SELECT * FROM hops ORDER BY trial, stream, position"), "trial", "stream"),
            delays=_grouped(query("SELECT * FROM delays"), "trial", "stream", "kind"),
            loss_runs=_grouped(query("SELECT * FROM loss_runs ORDER BY from_frames"), "trial", "stream"),
            reasons=_grouped(query("SELECT * FROM reasons ORDER BY trial, position"), "trial"),
            neighbours=_grouped(query("SELECT * FROM neighbours ORDER BY trial, position"), "trial"),
        )

    def results(self) -> tuple[TrialResult, ...]:
        """The trials in plan order."""
        known = {(trial, row["name"]) for (trial,), rows in self.neighbours.items() for row in rows}
        for trial, guest in self.streams:
            if guest and (trial, guest) not in known:
                raise ValueError(f"{trial} has streams of {guest!r}, which is none of its neighbours")
        return tuple(self._trial(row) for row in self.trials)

    def _trial(self, row: sqlite3.Row) -> TrialResult:
        key = row["key"]
        spec = TrialSpec(
            index=row["plan_index"],
            uut=row["uut"],
            scenario=row["scenario"],
            streams=_names(row["streams"]),
            frame_size=row["frame_size"],
            load=Load.parse(row["load"]),
            repetition=row["repetition"],
        )
        return TrialResult(
            spec=spec,
            attempt=row["attempt"],
            started_ns=row["started_ns"],
            streams=self._counts(key, ""),
            reasons=tuple(
                Reason(ReasonKind(one["kind"]), one["stream"], one["detail"]) for one in self.reasons.get((key,), [])
            ),
            steps_s=_seconds(row["steps_s"]),
            hops=self._hops(key, shared_by_streams("")),
            cpu_s=_seconds(row["cpu_s"]),
            neighbours=tuple(self._neighbour(key, one) for one in self.neighbours.get((key,), [])),
            lifetime=checked(row, {"lifetime": "INTEGER NOT NULL"})["lifetime"],
        )

    def _neighbour(self, key: str, row: sqlite3.Row) -> NeighbourResult:
        return NeighbourResult(
            **checked(row, NEIGHBOUR_COLUMNS),
            streams=self._counts(key, row["name"]),
            hops=self._hops(key, shared_by_streams(row["name"])),
            cpu_s=_seconds(row["cpu_s"]),
        )

    def _counts(self, key: str, guest: str) -> tuple[StreamCounts, ...]:
        return tuple(
            StreamCounts(
                **checked(row, COUNT_COLUMNS),
                lost_at=tuple(HopLoss(one["hop"], one["frames"]) for one in self.losses.get((key, row["stream"]), [])),
                hops=self._hops(key, row["stream"]),
                delay=self._spread(key, row["stream"], "delay"),
                ipdv=self._spread(key, row["stream"], "ipdv"),
                loss_run_lengths=tuple(
                    LossRuns(**checked(one, LOSS_RUNS_COLUMNS)) for one in self.loss_runs.get((key, row["stream"]), [])
                ),
            )
            for row in self.streams.get((key, guest), [])
        )

    def _spread(self, key: str, stream: str, kind: str) -> Spread | None:
        (row,) = self.delays.get((key, stream, kind), [None])
        return None if row is None else Spread(**checked(row, SPREAD_COLUMNS))

    def _hops(self, key: str, stream: str) -> tuple[HopCount, ...]:
        rows = self.hops.get((key, stream), [])
        return tuple(HopCount(row["hop"], row["counter"], row["role"], row["grew"]) for row in rows)


def stored_maximum(row: sqlite3.Row) -> Maximum:
    """A row of the table `maxima`; LookupError or ValueError where it does not hold what it should."""
    return Maximum(**checked(row, MAXIMUM_COLUMNS))


def checked(row: sqlite3.Row, columns: Mapping[str, str]) -> dict[str, Any]:
    """These columns of a row; ValueError where one holds what the schema would never have let in."""
    values = {name: row[name] for name in columns}
    for name, kind in columns.items():
        wanted, value = _PYTHON_TYPES[kind.split()[0]], values[name]
        if not isinstance(value, wanted) and not (value is None and "NOT NULL" not in kind):
            raise ValueError(f"{name} is {value!r} among {', '.join(f'{cell!r}' for cell in tuple(row)[:3])}")
    return values


def _grouped(rows: Rows, *by: str) -> Grouped:
    groups: Grouped = {}
    for row in rows:
        groups.setdefault(tuple(row[name] for name in by), []).append(row)
    return groups


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
