"""Programs for hosts that have Python without netbench; here they run without any directory of packages."""

import subprocess
import sys
from pathlib import Path

import pytest

from netbench.hosts import module_bundle
from netbench.hosts.module_bundle import bundle
from netbench.tools.client_load import LoopSettings
from netbench.tools.sealed_output import unsealed
from netbench.tools.tcp_client import ClientSettings

LONGEST_ARGUMENT = 128 << 10  # MAX_ARG_STRLEN of Linux: execve(2)


def run(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", bundle(module), *arguments], capture_output=True, text=True, timeout=30
    )


def test_the_client_of_http_runs_from_its_bundle():
    settings = ClientSettings(LoopSettings("127.0.0.1", 1, 0.2, rate=50), "/")
    done = run("netbench.tools.tcp_client", settings.as_argument)
    assert done.stderr == ""
    output = unsealed(done.stdout)
    assert (output["intended"], output["completed"], output["errors"]) == (10, 0, {"refused": 10})


def test_the_client_of_sockperf_runs_from_its_bundle(tmp_path, monkeypatch):
    (tmp_path / "sockperf").write_text("#!/bin/sh\necho broken; exit 3\n")
    (tmp_path / "sockperf").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert run("netbench.tools.sockperf_client").stderr.startswith("sockperf ended with exit code 3. It printed")


@pytest.mark.parametrize("module", ["netbench.tools.tcp_client", "netbench.tools.sockperf_client"])
def test_a_bundle_is_one_argument_of_a_command(module):
    assert len(bundle(module).encode()) < LONGEST_ARGUMENT / 2, "the agent of a guest and `sh -c` may quote it"


FILES = {
    "parts/deep/ends.py": 'END = "end"\n',
    "parts/middle.py": "from parts.deep.ends import END\nTEXT = f'middle, {END}'\n",
    "alone.py": "import sys\nprint('alone', *sys.argv[1:], __name__)\n",
    "parts/first.py": (
        "import sys\nfrom dataclasses import dataclass\n"
        "from parts.deep.ends import END\nfrom parts.middle import TEXT\n"
        "@dataclass(frozen=True, slots=True)\nclass Line:\n    text: str\n"
        "print(Line('first').text, TEXT, END, *sys.argv[1:], __name__, sep=', ')\n"
    ),
    "parts/lazy.py": "def unused():\n    from parts.absent import nothing\nprint('lazy')\n",
}


@pytest.mark.parametrize(
    ("module", "printed"),
    [
        ("alone", "alone x __main__\n"),
        ("parts.first", "first, middle, end, end, x, __main__\n"),
        ("parts.lazy", "lazy\n"),
    ],
)
def test_imported_modules_of_the_package_are_included(tmp_path, monkeypatch, module, printed):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    monkeypatch.setattr(module_bundle, "_source_of", lambda name: _read(tmp_path, name))
    done = run(module, "x")
    assert (done.stdout, done.stderr) == (printed, "")


def _read(directory: Path, module: str) -> str:
    return (directory / f"{module.replace('.', '/')}.py").read_text()
