"""Searches for the highest rate within a service level, in whole campaigns, against servers of known capacity."""

import json
import os
from pathlib import Path

import pytest

from netbench.model.limits import LimitKind
from netbench.model.search import SearchState
from netbench.results.directory import ResultDirectory
from tests.commands import netbench, settings
from tests.netns.watching import stored, wait_for

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


def search(results, behaviour, schedule, *more, **options):
    """The result of a search on a server of this behaviour."""
    profile = results.with_suffix(".yaml")
    tool = {"kind": "known", "behaviour": json.dumps(behaviour), **options}
    profile.write_text(json.dumps({"name": "known", "tool": tool, "schedule": {"kind": "slo", **schedule}}))
    done = netbench("run", "netns", profile, "-o", results, "--uut", "route", *SHORT, *more, timeout_s=240)
    assert done.returncode == 0, done.stderr + done.stdout
    (found,) = ResultDirectory(results).results().searches
    return found, done


# A server that answers one request after the other has a capacity of 1 ÷ its time for each of them.
@pytest.mark.parametrize(("capacity", "below_s"), [(50, None), (500, 0.03)])
def test_the_capacity_is_found_within_the_width(known, results, capacity, below_s):
    level = {} if below_s is None else {"below": f"{below_s * 1e3:g}ms"}
    bounds = {"highest": f"{4 * capacity}/s", "lowest": f"{capacity // 5}/s", "width": "20%"}
    found, done = search(results, {"serial_s": 1 / capacity}, {**level, **bounds})
    assert found.state is SearchState.FOUND, done.stdout
    assert found.lower <= 1.02 * capacity
    assert 0.98 * capacity <= found.upper
    assert found.is_regular
    assert f"known/1/{found.goal}: " in done.stdout


@pytest.mark.parametrize(("percentile", "is_met"), [(99, False), (95, True)])
def test_one_late_response_of_50_matters_to_some_percentiles(known, results, percentile, is_met):
    """All others take no time: only the percentile decides, at any rate."""
    behaviour = {"every": 50, "fault": "slow", "slow_s": 0.4}
    bounds = {"percentile": percentile, "below": "0.3s", "highest": "100/s", "lowest": "50/s", "width": "50%"}
    found, _ = search(results, behaviour, bounds)
    assert (found.state is SearchState.AT_LEAST) is is_met
    assert found.limited_by_request is is_met
    assert (found.state is SearchState.AT_MOST) is not is_met


def test_the_closed_loop_begins_the_search(known, results):
    """The capacity is 100/s, with any number of clients."""
    found, _ = search(results, {"serial_s": 0.01}, {"below": "50ms", "verified": 1, "lowest": "25/s"})
    assert (found.state, found.limited_by.kind) in (
        (SearchState.AT_LEAST, LimitKind.CLOSED_LOOP),
        (SearchState.FOUND, LimitKind.UUT),  # the closed loop of a trial was a request faster
    )
    assert 90 <= (found.lower or 0) <= 102


def test_a_client_that_is_the_limit_is_named(known, results):
    """The server answers at once; the client is too busy above 60/s."""
    schedule = {"below": "0.5s", "highest": "100/s", "lowest": "25/s", "width": "50%", "verified": 1}
    found, done = search(results, {}, schedule, busy_from=60)
    assert (found.state, found.lower) == (SearchState.AT_LEAST, 44), done.stdout  # 25, 62, 44
    assert found.limited_by.kind is LimitKind.TRIAL_REASON
    assert found.limited_by.stored.startswith("tester-limited: the client used 100% of a CPU")
    assert "limited by tester-limited: the client used 100% of a CPU" in done.stdout


def test_killed_and_resumed_it_finds_the_same(known, results, start):
    profile = results.with_suffix(".yaml")
    tool = {"kind": "known", "behaviour": json.dumps({"serial_s": 0.01})}
    schedule = {"kind": "slo", "below": "50ms", "highest": "400/s", "lowest": "20/s", "width": "20%"}
    profile.write_text(json.dumps({"name": "known", "tool": tool, "schedule": schedule}))
    running = start("run", "netns", profile, "-o", results, "--uut", "route", *SHORT)
    wait_for(lambda: stored(results) >= 3)
    running.kill()
    running.communicate()
    before = [trial.spec.key for trial in ResultDirectory(results).results().trials]
    done = netbench("resume", results, timeout_s=240)
    assert done.returncode == 0, done.stderr + done.stdout
    after = ResultDirectory(results).results()
    (found,) = after.searches
    keys = [trial.spec.key for trial in after.trials]
    assert keys[: len(before)] == before
    assert len(keys) == len(set(keys)) == found.trials
    assert found.is_regular
    assert 0.79 * 100 <= (found.lower or 0) <= 102


def test_loads_are_shares_of_the_searched_maximum(known, results):
    profile = results.with_suffix(".yaml")
    tool = {"kind": "known", "behaviour": json.dumps({"serial_s": 0.01})}
    maxima = {"kind": "slo", "below": "50ms", "highest": "400/s", "lowest": "20/s", "width": "20%", "duration": "1s"}
    profile.write_text(json.dumps({"name": "known", "tool": tool, "loads": ["50%"], "maxima": maxima}))
    done = netbench("run", "netns", profile, "-o", results, "--uut", "route", *SHORT, timeout_s=240)
    assert done.returncode == 0, done.stderr + done.stdout
    campaign = ResultDirectory(results).results()
    (maximum,) = campaign.maxima_searches
    (trial,) = campaign.wanted_trials
    (flow,) = trial.victim.flows
    assert trial.spec.load.as_rate.value == round((maximum.lower or 0) / 2)
    assert flow.intended == pytest.approx(1.6 * (maximum.lower or 0) / 2, abs=1)
