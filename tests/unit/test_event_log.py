"""The log of events."""

import json
import time
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.model.events import NeighboursReady, TrialStored, UutFailed, UutReady
from netbench.model.verdict import Reason, ReasonKind
from netbench.results.directory import EventLog, attempts_without_result


def test_a_log_is_one_event_a_line_with_its_time(tmp_path):
    path = tmp_path / "events.jsonl"
    log, before = EventLog(path), time.time_ns()
    log.on(TrialStored("a/b", 3, "valid", ("saturated",), 1.5, 1.25, 0.5, 60.0))
    log.on(UutFailed("bridge", "two\nlines, ünï"))
    EventLog(path).on(NeighboursReady("bridge", ("second",)))
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    times = [line.pop("time_ns") for line in lines]
    assert lines == [
        {
            "kind": "trial-stored",
            "key": "a/b",
            "index": 3,
            "verdict": "valid",
            "reasons": ["saturated"],
            "offered_mbps": 1.5,
            "throughput_mbps": 1.25,
            "loss_ratio": 0.5,
            "left_s": 60.0,
            "expected": None,
            "flows": "",
        },
        {"kind": "uut-failed", "uut": "bridge", "why": "two\nlines, ünï"},
        {"kind": "neighbours-ready", "uut": "bridge", "neighbours": ["second"]},
    ]
    assert times == sorted(times)
    assert before <= times[0] <= times[-1] <= time.time_ns()


def test_after_a_cut_last_line_the_next_event_is_whole(tmp_path):
    path = tmp_path / "events.jsonl"
    path.write_text('{"time_ns": 1, "kind": "a"}\n{"time_ns": 2, "ki')
    EventLog(path).on(UutReady("b"))
    assert json.loads(path.read_text().splitlines()[-1])["uut"] == "b"


@pytest.mark.parametrize(("place", "why"), [("/dev/full", "No space left"), ("/no/such/events.jsonl", "No such file")])
def test_a_log_that_cannot_be_written(place, why):
    with pytest.raises(TestbedError, match=f"{place}: cannot be written: {why}"):
        EventLog(Path(place)).on(UutReady("b"))


@pytest.mark.parametrize("reasons", ["[null]", "[5]", "5", "{}", '["odd: x"]', "[" * 100_000])
def test_a_damaged_line_is_left_out(tmp_path, reasons):
    path = tmp_path / "events.jsonl"
    line = '{"kind": "trial-finished", "verdict": "invalid", "key": "a", "reasons": %s}\n'
    path.write_text(line % reasons + line % '["link-down: x"]')
    found = attempts_without_result(path)
    assert found["a"][-1] == (Reason(ReasonKind.LINK_DOWN, "", "x"),)
