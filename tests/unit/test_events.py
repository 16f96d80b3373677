"""The stream of events, and its log."""

import json
import time

import pytest

from netbench.errors import TestbedError
from netbench.results.events import Announcer, Event, EventLog


class Ear:
    def __init__(self, name, heard):
        self.name, self.heard = name, heard

    def on(self, event):
        self.heard.append((self.name, event))


def test_every_observer_is_told_in_order():
    heard: list[tuple[str, Event]] = []
    before = time.time_ns()
    Announcer([Ear("a", heard), Ear("b", heard)]).announce("trial-stored", index=3, verdict="valid")
    (first, event), (second, same) = heard
    assert (first, second) == ("a", "b")
    assert event is same
    assert (event.kind, event.details) == ("trial-stored", {"index": 3, "verdict": "valid"})
    assert before <= event.time_ns <= time.time_ns()


def test_a_log_is_one_event_a_line(tmp_path):
    path = tmp_path / "events.jsonl"
    log = EventLog(path)
    log.on(Event("uut-ready", 5, {"uut": "bridge"}))
    assert path.read_text() == '{"time_ns": 5, "kind": "uut-ready", "uut": "bridge"}\n'
    log.on(Event("note", 6, {"text": "two\nlines, ünï", "path": tmp_path}))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[1] == {"time_ns": 6, "kind": "note", "text": "two\nlines, ünï", "path": str(tmp_path)}


def test_a_log_is_gone_on_with(tmp_path):
    path = tmp_path / "events.jsonl"
    for number in range(3):
        EventLog(path).on(Event("x", number, {}))
    assert [json.loads(line)["time_ns"] for line in path.read_text().splitlines()] == [0, 1, 2]


def test_after_a_cut_last_line_the_next_event_is_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"time_ns": 1, "kind": "a"}\n{"time_ns": 2, "ki')
    EventLog(path).on(Event("b", 3, {}))
    assert json.loads(path.read_text().splitlines()[-1]) == {"time_ns": 3, "kind": "b"}


@pytest.mark.parametrize(("place", "why"), [("/dev/full", "No space left"), ("/no/such/events.jsonl", "No such file")])
def test_a_log_that_cannot_be_written(place, why):
    from pathlib import Path

    with pytest.raises(TestbedError, match=f"{place}: cannot be written: {why}"):
        EventLog(Path(place)).on(Event("x", 1, {}))
