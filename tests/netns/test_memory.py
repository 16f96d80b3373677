"""What netbench itself holds does not grow with the number of trials."""

import subprocess
from pathlib import Path

import pytest

from tests.commands import settings, start
from tests.netns.watching import stored, wait_for

pytestmark = pytest.mark.root

SHORT = {"duration": "20ms", "settle__before": "0s", "settle__after": "1ms", "frame_sizes": 64, "loads": "1000fps"}
PATIENT = {"retries": 0, "tolerance": "100%", "max_lateness": "1min"}
WARM_UP, TRIALS = 40, 100
# Once, when answers of the kernel were kept that nobody asked for any more, it was 60 kB a trial.
MOST_KB_A_TRIAL = 20


def held_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def test_a_controller_does_not_grow_with_its_campaign(results):
    options = settings(**SHORT, **PATIENT, repetitions=WARM_UP + TRIALS + 10)
    running = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *options)
    try:
        wait_for(lambda: stored(results) >= WARM_UP, timeout_s=60)
        early_kb, early = held_kb(running.pid), stored(results)
        wait_for(lambda: stored(results) >= WARM_UP + TRIALS, timeout_s=120)
        late_kb, late = held_kb(running.pid), stored(results)
    finally:
        running.terminate()
        try:
            running.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    assert (late_kb - early_kb) / (late - early) < MOST_KB_A_TRIAL
