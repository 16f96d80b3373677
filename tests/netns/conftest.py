"""What the tests of whole campaigns share."""

import pytest

from tests.commands import netbench
from tests.commands import start as start_command


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
