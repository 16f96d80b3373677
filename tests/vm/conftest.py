"""Fixtures shared by the tests of real guests."""

import tempfile
from pathlib import Path

import pytest

from netbench.testbed.bring_up import base_changes
from netbench.testbed.virtual_machines import running_vm
from tests.vm.disk_image import LACKING, make_disk
from tests.vm.lab import TOPOLOGY, Lab, UnmarkedHost, build_or_skip, yards_in_vm


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


@pytest.fixture(scope="session")
def disk(tmp_path_factory):
    """A directory with a disk image and the keys to it, for all tests."""
    if LACKING:
        pytest.skip(f"needs {', '.join(LACKING)}: make test installs them")
    directory = tmp_path_factory.mktemp("disk")
    make_disk(directory)
    return directory


@pytest.fixture(scope="module")
def image(request):
    """The image of the VM that a module calls LAB, built if missing."""
    build_or_skip(request.module.LAB.vm.image)


@pytest.fixture(scope="module")
def labs(request, image):
    """A function that gives a yard in that VM, or in another one like it where it has hung."""
    with yards_in_vm(request.module.LAB) as labs:
        yield labs
