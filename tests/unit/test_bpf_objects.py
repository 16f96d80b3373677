"""The BPF objects in the package match their source, and errors of loading name the reason."""

import re
import shutil
import subprocess
from importlib.resources import files
from pathlib import Path

import pytest

from netbench.bpf.libbpf import libbpf, load
from netbench.errors import MissingError

PROGRAMS = Path(str(files("netbench.bpf") / "programs"))
ROOT = Path(__file__).parents[2]


def test_objects_are_built_from_their_source(tmp_path):
    if not shutil.which("clang"):
        pytest.skip("there is no clang, which `make test` installs")
    version = subprocess.run(["clang", "--version"], capture_output=True, text=True, check=True).stdout
    if not re.search(r"version 14\.", version):
        pytest.skip(f"needs clang 14, whose objects are in the package; here is {version.splitlines()[0]}")
    subprocess.run(["make", "-s", "bpf", f"BPF_OBJECTS={tmp_path}"], cwd=ROOT, check=True)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert built == {path.name: path.read_bytes() for path in PROGRAMS.glob("*.bpf.o")}
    assert len(built) == len(list(PROGRAMS.glob("*.c")))


def test_without_libbpf_the_error_names_the_package(monkeypatch):
    monkeypatch.setattr("netbench.bpf.libbpf._LIBRARY", "libbpf.so.nb")
    libbpf.cache_clear()
    with pytest.raises(MissingError, match=r"libbpf\.so\.nb cannot be loaded .*install libbpf1"):
        load("forward")
