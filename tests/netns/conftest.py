"""Fixtures shared by the tests of extensions."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "extension"


@pytest.fixture
def installed(tmp_path_factory, monkeypatch):
    """The example's entry points, like those of an editable installation."""
    base = tmp_path_factory.mktemp("installed")
    output = "import setuptools; setuptools.setup()"
    subprocess.run([sys.executable, "-c", output, "-q", "egg_info", "--egg-base", base], cwd=EXAMPLE, check=True)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(map(str, (base, EXAMPLE))))
    for path in (EXAMPLE, base):
        monkeypatch.syspath_prepend(path)
