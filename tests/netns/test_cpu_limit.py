"""netbench in a control group with less CPU time than one CPU has: every trial ends, and none is valid."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from netbench.errors import MissingError
from netbench.hosts.local import LocalHost
from netbench.linux.cgroups import find_controller
from tests.commands import netbench, rows, settings

HERE = LocalHost("here", "")
SMALL = settings(frame_sizes=64, loads="100000fps", repetitions=1, duration="500ms", retries=0, generator="xdp")
NAPI = settings(topology__links__0__receive="napi")


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that may use 30 % of a CPU."""
    try:
        controller = find_controller(HERE)
    except MissingError as error:
        pytest.skip(str(error))  # there is no CPU controller here, and no package adds it
    directory = Path(controller.directory) / "limited"
    directory.mkdir()
    for file, text in controller.settings(None, 0.3):
        (directory / file).write_text(text)
    yield directory
    while (directory / "cgroup.procs").read_text():
        time.sleep(0.05)
    directory.rmdir()


def start_in(group: Path, *arguments: object) -> "subprocess.Popen[str]":
    """Start netbench in a control group."""
    inside = ["sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', str(group)]
    argv = [*inside, sys.executable, "-m", "netbench", *map(str, arguments)]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=dict(os.environ))


def test_a_loop_in_the_kernel_leaves_cpu_time_for_what_ends_it(group: Path, tmp_path: Path) -> None:
    campaign = start_in(group, "run", "netns", "quick", "-o", tmp_path / "o", "--uut", "bridge", *SMALL, *NAPI)
    reported, _ = campaign.communicate(timeout=60)
    assert campaign.returncode == 0
    assert "A control group limits the CPU time of netbench to 30% of a CPU in each 100 ms" in " ".join(
        reported.split()
    )
    (row,) = rows(tmp_path / "o")
    assert row["verdict"] == "invalid"
    assert "tester-disturbed" in row["reasons"].split(";")
    assert float(row["stalled_s"]) > 0.1


def test_sigterm_ends_a_long_trial(group: Path, tmp_path: Path) -> None:
    results = tmp_path / "o"
    more = (*SMALL, *NAPI, *settings(duration="60s"))
    campaign = start_in(group, "run", "netns", "quick", "-o", results, "--uut", "bridge", *more)
    while not (results / "events.jsonl").exists() or "trial-started" not in (results / "events.jsonl").read_text():
        assert campaign.poll() is None
        time.sleep(0.1)
    time.sleep(2)
    campaign.terminate()
    began_s = time.monotonic()
    campaign.communicate(timeout=50)
    assert campaign.returncode == 143
    assert time.monotonic() - began_s < 30
    assert netbench("clean").returncode == 0
