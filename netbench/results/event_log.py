"""events.jsonl: the events of a campaign with their times, one event per line."""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError
from netbench.model.events import Event, TrialFinished, TrialStored
from netbench.model.foreign_text import json_of
from netbench.model.limits import Limit
from netbench.model.verdict import Reason, Verdict

_STORED = f'"kind": "{TrialStored.kind}"'.encode()


def stored_trials(path: Path) -> int:
    """Return the number of stored trials by the log, which may lag behind by one; 0 without a log."""
    return sum(_STORED in line for line in _lines(path))


def attempts_without_result(path: Path) -> dict[str, list[tuple[Reason, ...]]]:
    """Return the reasons against invalid attempts at trials that a killed run has not stored, by key of the trial.

    The log does not record the streams of reasons.
    """
    attempts: dict[str, list[tuple[Reason, ...]]] = {}
    for line in _lines(path):
        try:
            event = json.loads(line)
            if event["kind"] == TrialStored.kind:
                attempts.pop(event["key"], None)
            elif event["kind"] == TrialFinished.kind and event["verdict"] == Verdict.INVALID.value:
                reasons = tuple(map(Reason.parse, event["reasons"]))
                attempts.setdefault(event["key"], []).append(reasons)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):  # damaged, or cut when killed
            continue
    return attempts


def _lines(path: Path) -> Iterator[bytes]:
    with suppress(OSError), path.open("rb") as file:
        yield from file


def _fields(value: Any) -> dict[str, object]:  # noqa: ANN401 - any dataclass
    return {field.name: getattr(value, field.name) for field in fields(value)}


def _plain(value: object) -> object:
    """Return the stored form of a limit, the fields of any other dataclass, or else the text of a value."""
    if isinstance(value, Limit):
        return value.stored
    return _fields(value) if is_dataclass(value) else str(value)


class EventLog:
    """Appends each event at once, with its time (CLOCK_REALTIME); a killed run leaves at most a cut last line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on(self, event: Event) -> None:
        """Append the event; TestbedError if the disk is full."""
        line = json_of({"time_ns": time.time_ns(), "kind": event.kind, **_fields(event)}, default=_plain)
        try:
            with self._path.open("a+b") as file:
                if file.seek(0, os.SEEK_END):
                    file.seek(-1, os.SEEK_END)
                    if file.read() != b"\n":
                        file.write(b"\n")
                file.write(line.encode() + b"\n")
        except OSError as error:
            raise TestbedError(f"{self._path}: cannot be written: {error.strerror}") from error
