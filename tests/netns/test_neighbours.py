"""Neighbours that are pairs of NICs of this machine's kernel, and campaigns in which they fail."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from netbench.hosts.local import MARK
from netbench.model.limits import LIMITED_BY_UUT
from netbench.results.directory import ResultDirectory
from tests.commands import FEW, netbench, rows, settings, verdict_of
from tests.netns.watching import events, stored, wait_for

pytestmark = [pytest.mark.root, pytest.mark.stress]

LIMIT_FPS = 5000
# With a known limit below the rate of any machine, and a buffer for the frames of a delayed source.
LIMITED = {
    "name": "raw",
    "kind": "reference",
    "forward": "route",
    "limit": {"fps": LIMIT_FPS, "burst": 100},
    "neighbours": {"second": {"kind": "raw", "forward": "route"}},
}
SMALL = [*FEW, *settings(loads="800fps", duration="300ms", order="sequential")]
SMALL += settings(topology__uuts=json.dumps([LIMITED]))
RUN = ("run", "netns-neighbour", "schlosser2011-short", "--uut", "raw", *SMALL)


def loads() -> list[int]:
    """The stress-ng processes that any netbench started, the first one of each load before its workers."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
            ours = MARK.encode() + b"=" in (directory / "environ").read_bytes()
        except OSError:
            continue
        if directory.name.isdecimal() and ours and words[0].endswith(b"stress-ng"):
            found.append(int(directory.name))
    return sorted(found)


def reasons(results: Path) -> dict[str, str]:
    """The reasons against the trials of each scenario; empty without any."""
    return {row["scenario"]: row["reasons"] for row in rows(results) if not row["guest"]}


def test_every_scenario_of_the_paper(results):
    """Their order is recorded, the loads run, and both sides are in every export."""
    done = netbench(*RUN, "-o", results)
    assert done.returncode == 0, done.stdout + done.stderr
    all_rows = rows(results)
    found = {(row["scenario"], row["guest"]): row for row in all_rows if row["finds_maximum"] == "no"}
    of_maximum = {row["lifetime"] for row in all_rows if row["finds_maximum"] == "yes"}
    assert set(found) == {
        ("dedicated", ""),
        ("shared-idle", ""),
        ("cpu-light", ""),
        ("cpu-heavy", ""),
        ("network-50", ""),
        ("network-50", "second"),
        ("network-95", ""),
        ("network-95", "second"),
    }
    for (scenario, guest), row in found.items():
        assert (row["lost_frames"], row["unexplained_frames"], verdict_of(row)) == ("0", "0", "valid"), row
        assert row["lifetime"] not in of_maximum, "the maximum is found on a boot of its own"
        busy = scenario.startswith("cpu") and not guest
        assert (float(row["cpu_load_s"] or 0) > 0) is busy, row
        assert float(row["cpu_machine_s"]) > 0
    assert len({row["lifetime"] for row in found.values()}) == 1, "all scenarios are measured on one boot"
    campaign = ResultDirectory(results).results()
    for trial in campaign.wanted_trials:
        assert_counted_as_by_nics(trial)
        assert (trial.machine_cpu_s or 0) > 0
    assert found["cpu-heavy", ""]["activity"] == "second: stress-ng --cpu 8 --vm 4"
    light, heavy = (float(found[name, ""]["cpu_load_s"]) for name in ("cpu-light", "cpu-heavy"))
    assert heavy > 0 < light
    [maximum] = campaign.maxima
    for share in (50, 95):
        intended = float(found[f"network-{share}", "second"]["intended_fps"])
        assert intended == pytest.approx(maximum.fps * share / 100)
    assert loads() == []


def assert_counted_as_by_nics(trial):
    """Assert that the NICs of both sides have counted the frames sent and received."""
    for counts in (*trial.streams, *(counts for neighbour in trial.neighbours for counts in neighbour.streams)):
        nics = {(counter.point, counter.counter): counter.grew for counter in counts.counters}
        assert nics["source NIC", "tx"] == nics["ingress NIC", "rx"] == counts.sent.frames
        assert nics["egress NIC", "tx"] == nics["sink NIC", "rx"] == counts.received.frames


def test_a_share_is_of_the_true_limit_though_the_list_of_loads_ends_far_below(results, start):
    """Even though the search for it was killed in the middle and resumed."""
    wanted = (*settings(maxima__duration="500ms", maxima__duration_sum="1500ms", retries=3), "--scenario", "network-*")
    campaign = start(*RUN, "-o", results, *wanted)
    wait_for(lambda: results.exists() and stored(results) >= 4, 60)
    campaign.send_signal(signal.SIGKILL)
    assert campaign.wait(timeout=60) == -signal.SIGKILL
    begun = stored(results)
    assert all(row["finds_maximum"] == "yes" for row in rows(results))
    cleaned = netbench("clean")
    assert cleaned.returncode == 0, cleaned.stderr
    done = netbench("resume", results, timeout_s=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert stored(results) > begun
    found = ResultDirectory(results).results()
    [search], [maximum] = found.maxima_searches, found.maxima
    assert search.scenario == "shared-idle"
    assert search.upper is not None
    assert search.lower is not None
    late_s = max(counts.sent.max_lateness_s for trial in found.trials for counts in trial.streams)
    if late_s < 0.02 or maximum.limited_by.is_uut:
        assert (search.state.value, maximum.limited_by) == ("found", LIMITED_BY_UUT)
        # 2 % of the intended load; the lower bound is the offered load.
        assert search.upper - search.lower <= 0.07 * search.upper
        # A delayed source sends late frames all at once, which exceed the limit: less comes out, never more.
        assert maximum.fps >= 0.85 * LIMIT_FPS
    else:
        # Where other processes repeatedly take the CPU of the source, the maximum is marked as doubtful.
        assert search.state.value in ("found", "at-least")
    assert 800 < maximum.fps <= 1.12 * LIMIT_FPS, "the list of loads ends at 800"
    for trial in found.wanted_trials:
        share = float(trial.spec.scenario.removeprefix("network-")) / 100
        [counts] = trial.neighbours[0].streams
        assert counts.intended_fps == pytest.approx(maximum.fps * share)
    assert [trial.spec.index for trial in found.trials] == list(range(len(found.trials)))


def test_a_list_of_loads_that_ends_below_the_limit_has_no_maximum(results):
    done = netbench(*RUN, "-o", results, *settings(maxima="loads"), "--scenario", "network-*")
    assert done.returncode == 1, done.stdout + done.stderr
    found = {(row["scenario"], row["reasons"]) for row in rows(results) if not row["guest"]}
    assert {(scenario, "maximum-unknown" in why) for scenario, why in found} == {
        ("shared-idle", False),
        ("network-50", True),
        ("network-95", True),
    }
    assert "≥ 0.5" in done.stdout, "of 800 frames/s nothing was lost"


def test_a_load_that_dies_costs_an_attempt_at_its_trial_and_no_other(results, start):
    computing = ("--scenario", "dedicated", "--scenario", "cpu-*")
    campaign = start(*RUN, "-o", results, *settings(duration="1s", retries=1), *computing)
    wait_for(lambda: len(loads()) == 2, 60)  # the one worker of cpu-light, and its parent
    time.sleep(0.4)  # the trial sends for a second
    os.kill(loads()[-1], signal.SIGKILL)
    assert campaign.wait(timeout=120) == 0, campaign.communicate()
    assert {row["scenario"]: (verdict_of(row), row["attempt"]) for row in rows(results)} == {
        "dedicated": ("valid", "1"),
        "cpu-light": ("valid", "2"),
        "cpu-heavy": ("valid", "1"),
    }
    failed = [event["reasons"] for event in events(results) if event["kind"] == "trial-finished" and event["reasons"]]
    [why] = [output for output in failed if "neighbour-load-failed" in str(output)]
    assert "neighbour second: its load `stress-ng --cpu 1`" in why[0]
    assert loads() == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_under_load_nothing_is_left_and_it_goes_on_later(results, start, how):
    two = ("--scenario", "dedicated", "--scenario", "cpu-heavy")
    campaign = start(*RUN, "-o", results, *settings(duration="1s"), *two)
    wait_for(lambda: len(loads()) >= 13, 60)  # 8 + 4 workers and the parent, with children of the memory workers
    campaign.send_signal(how)
    assert campaign.wait(timeout=60) == (130 if how == signal.SIGINT else -signal.SIGKILL)
    if how == signal.SIGKILL:
        cleaned = netbench("clean")
        assert cleaned.returncode == 0, cleaned.stderr
        assert "stress-ng" in cleaned.stdout
    assert loads() == []
    before = stored(results)
    done = netbench("resume", results, timeout_s=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert before < stored(results) == 2
    assert set(reasons(results).values()) == {""}
