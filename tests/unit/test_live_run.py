"""The thread of the source `xdp` leaves the kernel at the end, by its own timer, whatever else runs."""

import json
import subprocess
import sys

import pytest

# Emulates the kernel's loop by pause(2), which only a signal ends. The main thread sleeps and ends nothing.
PLAYED = """
import ctypes, json, sys, time
from netbench.generators.xdp import live_run
calls = []
def run_live(*_):
    calls.append(time.monotonic())
    ctypes.CDLL(None).pause()
live_run.run_live = run_live
live_run.take_signals()
begun = time.monotonic()
end_ns = time.monotonic_ns() + 200_000_000
run = live_run.LiveRun(0, b"", 1, lambda: False, (), end_ns, limited=sys.argv[1] == "limited")
run.start()
run._has_left.wait(5)
left_s = time.monotonic() - begun
spent = run.spent()
run.finish()
run.join()
print(json.dumps({"left_s": left_s, "calls": len(calls), "ran": spent is not None, "error": run.error}))
"""


@pytest.mark.parametrize(("how", "calls"), [("unlimited", range(1, 2)), ("limited", range(2, 6))])
def test_it_ends_by_the_clock_though_no_other_thread_ends_it(how: str, calls: range) -> None:
    done = subprocess.run([sys.executable, "-c", PLAYED, how], capture_output=True, text=True, timeout=20, check=True)
    found = json.loads(done.stdout)
    assert (found["ran"], found["error"]) == (True, "")
    assert 0.19 < found["left_s"] < 2
    assert found["calls"] in calls, "one call each 50 ms where a CPU limit would stop others meanwhile"
