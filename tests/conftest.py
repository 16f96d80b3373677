"""What every test shares: honest skips, and nothing left behind."""

import os
import shutil

import pytest

from tests.machine import machine_state


def pytest_collection_modifyitems(items):
    """Skip, with what is missing, the tests that cannot run here."""
    for item in items:
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: sudo make test"))
        if item.get_closest_marker("chromium") and shutil.which("chromium") is None:
            item.add_marker(pytest.mark.skip(reason="needs headless Chromium: apt-get install chromium"))


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """A test that needs root must leave the machine as it found it."""
    if not request.node.get_closest_marker("root"):
        yield
        return
    before = machine_state()
    yield
    assert machine_state() == before
