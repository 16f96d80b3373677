"""Sources with backpressure from their link, distinguished from sources that are too slow themselves."""

import json
import os
import signal
import time

import pytest

from tests.commands import netbench, rows, settings
from tests.netns.watching import frames_sent, pids_in, wait_for

pytestmark = pytest.mark.root

# More than any CPU sends, through a UUT that forwards inside the source's system call.
TOO_MUCH = [
    "--uut",
    "bridge",
    *settings(generator="afpacket", frame_sizes=64, repetitions=1, duration="500ms", retries=0),
    *settings(topology__links__0__receive="inline"),
]


@pytest.fixture(autouse=True)
def _before_all_others():
    """No other process takes CPU time from the source, up to the limit of the kernel (0.95 s)."""
    os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    yield
    os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


@pytest.mark.parametrize(("generator", "receive"), [("afpacket", "inline"), ("xdp", "softirq")])
def test_a_link_that_pushes_back_is_a_result_and_ends_the_sweep(results, generator, receive):
    if generator == "xdp":  # it never waits in the kernel, which stops such real-time threads for 50 ms each second
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
    here = settings(generator=generator, topology__links__0__receive=receive)
    wanted = settings(
        loads="max,9000000fps,1000fps,7000000fps,8000000fps", stop_when_saturated=2, repetitions=2, retries=5
    )
    done = netbench("run", "netns", "quick", "-o", results, *TOO_MUCH, *wanted, *here)
    assert done.returncode == 0, done.stderr
    assert "saturated at 7000000fps, 8000000fps; skipped 9000000fps, max (4 trials)" in done.stdout
    found = sorted(rows(results), key=lambda row: (float(row["intended_fps"]), row["repetition"]))
    assert [(row["intended_fps"], row["saturated"], row["reasons"], row["verdict"]) for row in found] == [
        (fps, saturated, "saturated" * (saturated == "yes"), "valid")
        for fps, saturated in (("1000.0", "no"), ("7000000.0", "yes"), ("8000000.0", "yes"))
        for _ in range(2)
    ]
    for row in found[2:]:
        sent, lost, unsent = (int(row[name]) for name in ("sent_frames", "lost_frames", "unsent_frames"))
        assert (sent + unsent, sent - lost) == (round(float(row["intended_fps"]) / 2), int(row["received_frames"]))
        assert float(row["duration_s"]) < 1.5, "it went on for half a second after its end, not until all was sent"
        assert float(row["link_held_s"]) > 0.1
        # The window is a part of the trial, and a source that is uneven by up to 10 % is steady enough.
        assert float(row["throughput_fps"]) == pytest.approx(float(row["offered_fps"]), rel=0.25)
    manifest = json.loads((results / "manifest.json").read_text())
    assert [sweep["skipped_trials"] for sweep in manifest["ended_sweeps"]] == [4]
    assert netbench("resume", results).returncode == 0
    assert len(rows(results)) == 6


def test_a_source_that_was_stopped_is_at_fault_though_its_link_pushes_back_too(results, start):
    campaign = start("run", "netns", "quick", "-o", results, *TOO_MUCH, *settings(loads="8000000fps"))
    wait_for(lambda: frames_sent() > 10_000)
    (source,) = pids_in("nb-netns-source", "afpacket")
    os.kill(source, signal.SIGSTOP)  # seen when its main thread comes to run: within the 100 ms of a turn
    time.sleep(0.3)
    os.kill(source, signal.SIGCONT)
    campaign.communicate(timeout=60)
    (row,) = rows(results)
    assert (row["verdict"], row["saturated"]) == ("invalid", "no")
    assert row["reasons"].startswith("offered-out-of-tolerance")
    assert float(row["source_away_s"]) > 0.1
