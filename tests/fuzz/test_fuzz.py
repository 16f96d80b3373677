"""Every fuzz target for a moment, from the same start each time; `make fuzz` takes longer."""

import importlib.util
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from netbench.capture.capture_counts import Span
from netbench.capture.counting import analyze_capture
from tests.fuzz import captures
from tests.fuzz.targets import TARGETS
from tests.unit.capture_files import pcap

RUNS = {"capture": 250, "topology": 75, "profile": 125}


@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="needs atheris, which has no wheel for here")
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_is_found(tmp_path, name):
    command = [sys.executable, "-m", "tests.fuzz", name, tmp_path, f"-runs={RUNS[name]}", "-seed=1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    runs = re.search(r"^Done (\d+) runs", done.stderr, re.MULTILINE)
    assert runs is not None, done.stderr[-3000:]
    assert int(runs[1]) >= RUNS[name], "libFuzzer tries some of its seeds once more than it is asked to"


@pytest.mark.parametrize("name", TARGETS)
def test_targets_know_good_from_bad(name):
    outcomes = [TARGETS[name].check(seed) for seed in TARGETS[name].seeds()]
    assert any(outcomes), "fuzzing begins with inputs that are accepted"
    assert TARGETS[name].check(b"\xff" * 64) is None


@pytest.mark.parametrize("wrong", [{"leftover_bytes": 1}, {"span": Span(1, 64, 64, 64, None, None)}])
def test_a_wrong_count_is_found(monkeypatch, wrong):
    monkeypatch.setattr(captures, "analyze_capture", lambda path: replace(analyze_capture(path), **wrong))
    with pytest.raises(AssertionError):
        captures.check(pcap([]))
