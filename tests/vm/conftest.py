"""What the tests of real guests share."""

import tempfile
from pathlib import Path

import pytest

from netbench.testbed.base_changes import base_changes
from netbench.testbed.virtual_machines import running_vm
from tests.vm.lab import TOPOLOGY, Lab, UnmarkedHost


@pytest.fixture(scope="module")
def lab():
    """A VM with the links of a topology in it, for all tests of a module."""
    ((name, spec),) = TOPOLOGY.vms.items()
    with tempfile.TemporaryDirectory(prefix="nbt-") as directory:
        files = Path(directory)
        with running_vm(name, spec, UnmarkedHost("here", "nbt-lab"), files) as vm:
            vm.make(base_changes(TOPOLOGY, name))
            pid = int((files / "pid").read_text())
            yield Lab(vm)
        assert not Path(f"/proc/{pid}").exists()
