"""netbench's own processes import nothing from the current directory or from paths of the environment."""

import os
import subprocess

import pytest

from netbench.hosts.local import LocalHost
from netbench.hosts.ssh import free_port
from netbench.hosts.trusted_code import module_command, search_path
from netbench.uut.forwarder_process import Impairments

HOSTILE = ("array", "base64", "json", "netbench", "numpy", "os", "pydantic", "runpy", "socket", "struct", "time")


@pytest.fixture
def hostile(tmp_path, monkeypatch):
    """A current directory, also in PYTHONPATH and PATH, where everything leaves a trace when it is run; the traces."""
    trace = tmp_path / "trace"
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text(f"open({str(trace)!r}, 'a').write('{name} ')\n")
    (tmp_path / "echo").write_text(f"#!/bin/sh\necho echo >>{trace}\n")
    (tmp_path / "echo").chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:")
    monkeypatch.setenv("PATH", os.pathsep.join((".", "", os.environ["PATH"])))
    return lambda: trace.read_text() if trace.exists() else ""


@pytest.mark.parametrize(
    ("module", "arguments"),
    [
        ("netbench.generators.afpacket.afpacket_worker", ["no-such-nic", "1"]),
        ("netbench.sinks.flush", ["no-such-nic"]),
        ("netbench.uut.forwarder_process", ["no-such-nic", "no-such-nic", Impairments().model_dump_json()]),
        ("netbench.uut.reception_probe", ["no-such-nic", "02:00:00:00:00:01"]),
    ],
)
def test_a_module_is_run_and_nothing_that_lies_about(hostile, module, arguments):
    command = module_command(module, *arguments)
    assert command[-len(arguments) - 1 :] == [module, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
    assert hostile() == ""
    assert "No module named" not in done.stderr


def test_nor_is_a_program(hostile):
    here = LocalHost("local", "netbench-test-modules")
    assert here.run(["echo", "ours"]).stdout == "ours\n"
    assert here.spawn(["echo", "ours"]).communicate(timeout=20)[0] == "ours\n"
    assert free_port(here) > 0
    assert hostile() == ""
    assert "" not in search_path().split(os.pathsep)


def test_the_module_of_an_extension_that_only_its_user_can_find(tmp_path, monkeypatch):
    (tmp_path / "extension_of_test").mkdir()
    (tmp_path / "extension_of_test" / "__init__.py").write_text("")
    (tmp_path / "extension_of_test" / "sends.py").write_text("import json, sys; print(json.dumps(sys.argv[1:]))")
    (tmp_path / "json.py").write_text("raise SystemExit('not the library')")
    monkeypatch.syspath_prepend(tmp_path)
    done = subprocess.run(
        module_command("extension_of_test.sends", "one"), capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr) == ('["one"]\n', "")
