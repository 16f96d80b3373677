"""Neighbours that are pairs of NICs of this machine's kernel, and what becomes of a campaign when something happens."""

import os
import signal
import time
from pathlib import Path

import pytest

from netbench.hosts.local import MARK
from tests.commands import FEW, netbench, rows, settings, verdict_of
from tests.netns.watching import events, stored, wait_for

pytestmark = [pytest.mark.root, pytest.mark.stress]

SMALL = [*FEW, *settings(loads="800fps", duration="300ms", order="sequential")]
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
    """What speaks against the trials of each scenario; empty for nothing."""
    return {row["scenario"]: row["reasons"] for row in rows(results) if not row["guest"]}


def test_every_scenario_of_the_paper(results):
    """Their order is on record, the loads are seen to run, and both sides are in every export."""
    done = netbench(*RUN, "-o", results)
    assert done.returncode == 0, done.stdout + done.stderr
    found = {(row["scenario"], row["guest"]): row for row in rows(results)}
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
        assert row["lifetime"] == ("1" if scenario == "shared-idle" else "2"), "its maximum is a visit of its own"
        busy = scenario.startswith("cpu") and not guest
        assert (float(row["cpu_load_s"] or 0) > 0) is busy, row
        assert float(row["cpu_machine_s"]) > 0
    assert found["cpu-heavy", ""]["activity"] == "second: stress-ng --cpu 8 --vm 4"
    light, heavy = (float(found[name, ""]["cpu_load_s"]) for name in ("cpu-light", "cpu-heavy"))
    assert heavy > 0 < light
    assert float(found["network-50", "second"]["intended_fps"]) == pytest.approx(400, rel=0.2)
    assert loads() == []


def test_a_load_that_dies_costs_its_trial_and_no_other(results, start):
    computing = ("--scenario", "dedicated", "--scenario", "cpu")
    campaign = start(*RUN, "-o", results, *settings(duration="2s", retries=0), *computing)
    wait_for(lambda: len(loads()) == 2, 60)  # the one worker of cpu-light, and its parent
    time.sleep(1)  # the trial sends for two
    os.kill(loads()[-1], signal.SIGKILL)
    assert campaign.wait(timeout=120) == 1, campaign.communicate()
    found = reasons(results)
    assert found.pop("cpu-light") == "neighbour-load-failed"
    assert set(found.values()) == {""}, found
    [why] = [event["reasons"] for event in events(results) if event["kind"] == "trial-finished" and event["reasons"]]
    assert "neighbour second: its load `stress-ng --cpu 1`" in why[0]
    assert loads() == []


def test_a_load_that_dies_is_started_again_where_the_profile_allows_it(results, start):
    campaign = start(*RUN, "-o", results, *settings(duration="2s"), "--scenario", "cpu-light")
    wait_for(lambda: len(loads()) == 2, 60)
    time.sleep(1)
    os.kill(loads()[0], signal.SIGKILL)
    assert campaign.wait(timeout=120) == 0, campaign.communicate()
    [row] = rows(results)
    assert (verdict_of(row), row["attempt"]) == ("valid", "2")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_stopped_under_load_nothing_is_left_and_it_goes_on_later(results, start, how):
    two = ("--scenario", "dedicated", "--scenario", "cpu-heavy")
    campaign = start(*RUN, "-o", results, *settings(duration="2s"), *two)
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
