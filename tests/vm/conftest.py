"""What the tests of real guests share."""

import tempfile
from pathlib import Path

import pytest

from netbench.testbed import base_changes
from netbench.vm.running import running_vm
from tests.commands import netbench
from tests.commands import start as start_command
from tests.vm.lab import TOPOLOGY, Lab, UnmarkedHost


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def start():
    """Start a netbench that a failing test does not leave running."""
    started = []

    def begin(*arguments):
        started.append(start_command(*arguments))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()
            netbench("clean")


@pytest.fixture(scope="module")
def lab():
    """A VM with the links of a topology in it, for all tests of a module."""
    ((name, spec),) = TOPOLOGY.vms.items()
    with tempfile.TemporaryDirectory(prefix="nbt-") as directory:
        files = Path(directory)
        with running_vm(name, spec, UnmarkedHost("here", "nbt-lab"), files) as vm:
            vm.kernel.make(base_changes(TOPOLOGY, name))
            pid = int((files / "pid").read_text())
            yield Lab(vm)
        assert not Path(f"/proc/{pid}").exists()
