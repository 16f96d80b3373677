"""What happened when: one stream of events for the console, the log and tests alike."""

import json
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netbench.errors import TestbedError


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened: its kind, when (CLOCK_REALTIME, ns), and JSON-able details."""

    kind: str
    time_ns: int
    details: dict[str, object]


class Observer(Protocol):
    """Anything that wants to know."""

    def on(self, event: Event) -> None:
        """Take note of an event."""


class EventLog:
    """events.jsonl: one event a line, appended as it happens; a killed run leaves at most a cut last line."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def on(self, event: Event) -> None:
        """Append the event; TestbedError when the disk is full."""
        line = json.dumps({"time_ns": event.time_ns, "kind": event.kind, **event.details}, default=str)
        try:
            with self._path.open("a+b") as file:
                if file.seek(0, os.SEEK_END) and (file.seek(-1, os.SEEK_END), file.read())[1] != b"\n":
                    file.write(b"\n")
                file.write(line.encode() + b"\n")
        except OSError as error:
            raise TestbedError(f"{self._path}: cannot be written: {error.strerror}") from error


class Announcer:
    """Tells several observers."""

    def __init__(self, observers: Sequence[Observer]) -> None:
        self._observers = tuple(observers)

    def announce(self, kind: str, **details: object) -> None:
        """Tell all observers, in order."""
        event = Event(kind, time.time_ns(), details)
        for observer in self._observers:
            observer.on(event)
