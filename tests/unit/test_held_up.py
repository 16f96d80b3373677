"""Which failed tests are run again."""

import time

import pytest

from tests.held_up import HeldUp, LeftBehindError

STAT = "cpu  100 20 300 4000 50 6 70 {} 9 10\n"


@pytest.fixture
def stat(tmp_path):
    path = tmp_path / "stat"
    path.write_text(STAT.format(800))
    return path


@pytest.fixture
def held_up(stat):
    watch = HeldUp(stat)
    watch.start()
    time.sleep(0.1)
    yield watch
    watch.stop()


def test_only_what_came_while_the_hypervisor_took_much_at_once(held_up, stat):
    assert not held_up.excuses(AssertionError())
    stat.write_text(STAT.format(804))
    time.sleep(0.5)
    assert not held_up.excuses(AssertionError()), "a little is usual"
    stat.write_text(STAT.format(810))
    time.sleep(0.5)
    with pytest.warns(UserWarning, match=r"took 0\.06 s of CPU time"):
        assert held_up.excuses(AssertionError())
    assert not held_up.excuses(LeftBehindError())
    held_up.start()
    assert not held_up.excuses(AssertionError()), "that was the test before"
