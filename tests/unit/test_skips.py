"""In CI a test that is skipped because something installable is missing fails the run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.skips import is_excused

ROOT = Path(__file__).parents[2]
SUITE = """
import pytest

def test_it_works():
    pass

@pytest.mark.skip(reason={reason!r})
def test_it_is_skipped():
    pass
"""


@pytest.mark.parametrize(
    ("reason", "excused"),
    [
        ("needs tcx: no such attach type", True),
        ("needs vcsim, and go1.19.8 is too old to build it: put a vcsim on the PATH", True),
        ("not checked: what it counts; vcsim has no guests that run, and moves no frames", True),
        ("this machine has cgroup-cpu", True),
        ("needs root: sudo make test", False),
        ("needs LXC: apt-get install lxc", False),
        ("capinfos is not installed", False),
        ("this machine has no capinfos", False),
        ("", False),
    ],
)
def test_only_lacks_of_the_platform_are_excused(reason, excused):
    assert is_excused(reason) is excused


@pytest.mark.parametrize(
    ("reason", "ci", "code"),
    [
        ("needs busybox: apt-get install busybox-static", "true", pytest.ExitCode.TESTS_FAILED),
        ("needs busybox: apt-get install busybox-static", "", pytest.ExitCode.OK),
        ("needs control groups with the memory controller", "true", pytest.ExitCode.OK),
    ],
)
def test_a_run_with_a_skip(tmp_path, reason, ci, code):
    (tmp_path / "test_it.py").write_text(SUITE.format(reason=reason))
    plugins = ["-p", "tests.skips", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *plugins, "-c", os.devnull, tmp_path]
    done = subprocess.run(command, cwd=ROOT, env=os.environ | {"CI": ci}, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stdout
    assert ("test_it_is_skipped: needs busybox" in done.stdout) is (code == pytest.ExitCode.TESTS_FAILED)
