"""Guests beside guests: a second one under QEMU that is idle, computes or forwards, dies or never starts."""

import os
import signal
from pathlib import Path

import pytest

from netbench.results.directory import ResultDirectory
from netbench.statistics.groups import group_trials
from netbench.statistics.interference import relative_maxima
from tests.commands import HELD_UP, netbench, rows, settings, verdict_of
from tests.netns.watching import events, wait_for

pytestmark = pytest.mark.vm

EXACT = settings(
    frame_sizes=64,
    loads="500fps",
    duration="500ms",
    repetitions=1,
    order="sequential",
    tolerance="100%",
    max_lateness="1min",
    generator="afpacket",
)
RUN = ("run", "netns-vmm", "schlosser2011-short", "--uut", "virtio")


def qemu_of(guest: str) -> list[int]:
    """The processes of the guest that bears this name."""
    found = []
    for directory in Path("/proc").iterdir():
        try:
            words = (directory / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"-name" in words and f"{guest},debug-threads=on".encode() in words and words[0].startswith(b"qemu"):
            found.append(int(directory.name))
    return found


def test_both_guests_are_measured_to_the_frame(results):
    """At rates that an emulated guest forwards without loss, independent of the other guest."""
    wanted = settings(scenarios="[dedicated, shared-idle, cpu-light, cpu-heavy, {network: [350fps, 700fps]}]")
    done = netbench(*RUN, "-o", results, *EXACT, *wanted, timeout_s=180)
    assert done.returncode == 0, done.stdout + done.stderr
    trials = {trial.spec.scenario: trial for trial in ResultDirectory(results).results().trials}
    assert len(trials) == 6
    for scenario, trial in trials.items():
        [victim] = trial.streams
        assert (victim.sent.frames, victim.received.frames, victim.unexplained_frames) == (250, 250, 0), scenario
        assert {reason.kind.value for reason in trial.reasons} <= HELD_UP, trial.reasons
        assert (trial.machine_cpu_s or 0) > trial.victim.cpu_s["host"] / 2 > 0
        if scenario == "dedicated":
            assert trial.neighbours == ()
            continue
        [second] = trial.neighbours
        assert {"guest", "host"} <= set(second.cpu_s)
        observed = trial.steps_s["observe"]
        if scenario.startswith("cpu"):
            assert second.cpu_s["load"] > observed / 4, "it has most of its guest's CPU"
            assert second.cpu_s["guest"] > observed / 4
        if scenario.startswith("network"):
            [counts] = second.streams
            assert counts.sent.frames == counts.received.frames
            assert counts.sent.frames > 0
            assert (counts.unexplained_frames, counts.foreign_frames) == (0, 0)
    facts = ResultDirectory(results).results().facts["virtio"]
    assert facts["second: nic"] == "virtio-net-pci"


def test_a_busy_neighbour_on_the_same_cpu_takes_of_the_victims_throughput(results):
    """An idle one has no significant effect."""
    wanted = settings(
        frame_sizes=64,
        loads="20Mbit/s",
        duration="1s",
        repetitions=3,
        tolerance="100%",
        max_lateness="1min",
        order="sequential",
        scenarios="[dedicated, shared-idle, cpu-heavy]",
    )
    done = netbench(
        "run", "netns-isolation", "schlosser2011-short", "--uut", "same-cpu", "-o", results, *wanted, timeout_s=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
    campaign = ResultDirectory(results).results()
    changes = {maximum.scenario: maximum.ratio for maximum in relative_maxima(group_trials(campaign))}
    assert changes["cpu-heavy"].ratio is not None
    assert changes["cpu-heavy"].ratio < 0.9
    assert changes["shared-idle"].ratio is not None
    assert changes["cpu-heavy"].ratio < changes["shared-idle"].ratio
    for trial in campaign.trials:
        if trial.spec.scenario == "cpu-heavy":
            assert trial.neighbours[0].cpu_s["load"] > 0.1


def test_a_neighbour_that_is_killed_is_brought_up_again(results, start):
    wanted = (*EXACT, *settings(scenarios="[dedicated, shared-idle, {network: 700fps}]", duration="1s"))
    campaign = start(*RUN, "-o", results, *wanted)
    wait_for(lambda: any(event["kind"] == "neighbours-ready" for event in events(results)), 180)
    [pid] = qemu_of("virtio.second")
    os.kill(pid, signal.SIGKILL)
    assert campaign.wait(timeout=120) == 0, campaign.communicate()
    assert {verdict_of(row) for row in rows(results)} == {"valid"}
    failed = [event["reasons"] for event in events(results) if event["kind"] == "trial-finished" and event["reasons"]]
    assert "neighbour-failed: neighbour second: guest virtio.second: QEMU was killed by signal 9" in str(failed)
    assert len([event for event in events(results) if event["kind"] == "neighbours-ready"]) == 2
    assert (results / "consoles" / "virtio.second.log").exists()


def test_a_neighbour_that_never_comes_up_costs_what_needs_it(results):
    wanted = settings(scenarios="[dedicated, shared-idle, {network: 700fps}]", topology__neighbours__0__memory="64M")
    done = netbench(*RUN, "-o", results, *EXACT, *wanted, timeout_s=180)
    assert done.returncode == 1, done.stdout + done.stderr
    found = {row["scenario"]: (verdict_of(row), "neighbour-failed" in row["reasons"]) for row in rows(results)}
    assert found == {
        "dedicated": ("valid", False),
        "shared-idle": ("invalid", True),
        "network-700fps": ("invalid", True),
    }
