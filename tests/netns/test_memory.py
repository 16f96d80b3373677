"""What netbench itself holds does not grow with the number of trials: by the kernel's account, all that it made of it.

What its own code keeps is counted to the byte in tests/unit/test_campaign_memory.py.
"""

import subprocess
from pathlib import Path

import pytest

from tests.commands import PATIENT, settings, start
from tests.netns.watching import stored, wait_for

pytestmark = pytest.mark.root

SHORT = {
    "duration": "20ms",
    "settle__before": "0s",
    "settle__after": "1ms",
    "frame_sizes": 64,
    "loads": "1000fps",
    "retries": 0,
}
# It levels off once the sources' addresses, of which there are 252, come again: 2 MB in the first 150 trials, 0.3 MB in
# the next 400.
WARM_UP, TRIALS = 260, 140
# Once, when answers of the kernel were kept that nobody asked for any more, it was 60 kB a trial.
MOST_KB_A_TRIAL = 8


def held_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def test_a_controller_does_not_grow_with_its_campaign(results):
    options = [*settings(**SHORT, repetitions=WARM_UP + TRIALS + 10), *PATIENT]
    running = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *options)
    try:
        wait_for(lambda: stored(results) >= WARM_UP, timeout_s=240)
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
