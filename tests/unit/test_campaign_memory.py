"""The memory that a campaign uses does not depend on the number of its past trials."""

import gc
import tracemalloc
from glob import escape
from pathlib import Path

import netbench
from tests.unit.fake_campaign import FakeCampaign
from tests.unit.inputs import topology

# The code of netbench alone, wherever the checkout is: its .venv may be in a folder of the same name.
PACKAGE = f"{escape(str(Path(netbench.__file__).parent))}/*"
WARM_UP, TRIALS = 260, 250  # in 252 trials the sources' addresses have all been used once
# The key of a trial alone takes 80 bytes.
MOST_BYTES_A_TRIAL = 40


def test_nothing_of_a_stored_trial_stays_in_memory(tmp_path, monkeypatch):
    campaign = FakeCampaign.on(topology(), tmp_path / "results", monkeypatch)
    held = {}

    def look(trial: int) -> None:
        if trial == 1:
            tracemalloc.start()
        elif trial in (WARM_UP, WARM_UP + TRIALS):
            gc.collect()
            taken = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, PACKAGE)])
            held[trial] = sum(trace.size for trace in taken.traces)

    campaign.testbed.before_trial = look
    try:
        campaign.run(repetitions=WARM_UP + TRIALS)
    finally:
        tracemalloc.stop()
    assert held[WARM_UP + TRIALS] - held[WARM_UP] < MOST_BYTES_A_TRIAL * TRIALS
