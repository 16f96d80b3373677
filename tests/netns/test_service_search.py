"""Searches for the highest rate within a service level, in whole campaigns, against servers of known capacity."""

import json
import os
from pathlib import Path

import pytest

from netbench.model.limits import LimitKind
from netbench.model.search import SearchState
from netbench.results.directory import ResultDirectory
from tests.commands import netbench, settings

pytestmark = pytest.mark.root

REPOSITORY = Path(__file__).parents[2]
# The servers sleep most of the time: other programs of the machine hardly matter.
SHORT = settings(repetitions=1, duration="2s", warm_up="400ms", retries=0, tolerance="100%")


@pytest.fixture
def known(tmp_path, monkeypatch):
    """The entry point of the tool `known`, like that of an installed package."""
    package = tmp_path / "known_tool-1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: known-tool\nVersion: 1\n")
    (package / "entry_points.txt").write_text("[netbench.tools]\nknown = tests.netns.known_tool:Known\n")
    path = [str(tmp_path), str(REPOSITORY), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    monkeypatch.syspath_prepend(str(tmp_path))


def search(results, behaviour, schedule, *more):
    """The result of a search on a server of this behaviour."""
    profile = results.with_suffix(".yaml")
    tool = {"kind": "known", "behaviour": json.dumps(behaviour)}
    profile.write_text(json.dumps({"name": "known", "tool": tool, "schedule": {"kind": "slo", **schedule}}))
    done = netbench("run", "netns", profile, "-o", results, "--uut", "route", *SHORT, *more, timeout_s=240)
    assert done.returncode == 0, done.stderr + done.stdout
    (found,) = ResultDirectory(results).results().searches
    return found, done


# A server that answers one request after the other has a capacity of 1 ÷ its time for each of them.
@pytest.mark.parametrize("capacity", [50, 200, 500])
@pytest.mark.parametrize("below_s", [None, 0.03])
def test_the_capacity_is_found_within_the_width(known, results, capacity, below_s):
    level = {} if below_s is None else {"below": f"{below_s * 1e3:g}ms"}
    bounds = {"highest": f"{4 * capacity}/s", "lowest": f"{capacity // 10}/s", "width": "5%"}
    found, done = search(results, {"serial_s": 1 / capacity}, {**level, **bounds})
    assert found.state is SearchState.FOUND, done.stdout
    assert found.lower <= 1.02 * capacity
    assert 0.98 * capacity <= found.upper
    assert found.is_regular
    assert f"known/1/{found.goal}: " in done.stdout
