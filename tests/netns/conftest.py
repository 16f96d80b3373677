"""Fixtures shared by the tests of extensions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


@pytest.fixture(scope="session")
def entry_points(tmp_path_factory):
    """A directory with the example's entry points."""
    base = tmp_path_factory.mktemp("installed")
    output = "import setuptools; setuptools.setup()"
    subprocess.run([sys.executable, "-c", output, "-q", "egg_info", "--egg-base", base], cwd=EXAMPLE, check=True)
    return base


@pytest.fixture
def installed(entry_points, monkeypatch):
    """The example's entry points, like those of an editable installation."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (entry_points, EXAMPLE))))
    for path in (EXAMPLE, entry_points):
        monkeypatch.syspath_prepend(path)
