"""What netbench itself holds does not grow with the number of trials: by the kernel's account, all that it made of it.

What its own code keeps is counted to the byte in tests/unit/test_campaign_memory.py.
"""

import subprocess
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from netbench.hosts.clock import wait_until
from tests.commands import PATIENT, settings, start
from tests.netns.watching import stored

pytestmark = pytest.mark.root

SHORT = {
    "duration": "20ms",
    "settle__before": "0s",
    "settle__after": "1ms",
    "frame_sizes": 64,
    "loads": "1000fps",
    "retries": 0,
}
# It levels off before the sources' addresses, of which there are 252, come again: 2 MB in the first 150 trials, 0.3 MB
# in the next 400. malloc may keep a freed window of the capture (4 MB, once for a thread) at any time, so that what
# grows by the trial is what grows in each of several stretches.
WARM_UP, STRETCHES, TRIALS = 170, 4, 25
# With unread answers of the kernel kept in memory, it was 60 kB a trial.
MOST_KB_A_TRIAL = 8


def has_stored(results: Path, trials: int) -> bool:
    return stored(results) >= trials


def held_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("RssAnon")).split()[1])


def test_a_controller_does_not_grow_with_its_campaign(results):
    looks = [WARM_UP + stretch * TRIALS for stretch in range(STRETCHES + 1)]
    options = [*settings(**SHORT, repetitions=looks[-1] + 10), *PATIENT]
    running = start("run", "netns", "quick", "-o", results, "--uut", "bridge", *options)
    seen = []
    try:
        for trials in looks:
            assert wait_until(partial(has_stored, results, trials), 240, every_s=0.1)
            seen.append((stored(results), held_kb(running.pid)))
    finally:
        running.terminate()
        try:
            running.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            running.kill()
            raise
    grown = [(late_kb - early_kb) / (late - early) for (early, early_kb), (late, late_kb) in pairwise(seen)]
    assert min(grown) < MOST_KB_A_TRIAL, seen
