"""Which failed tests are run again."""

import time

import pytest

from netbench.hosts.clock import wait_until
from tests.held_up import HeldUp, LeftBehindError

STAT = "cpu  100 20 300 4000 50 6 70 {} 9 10\n"
SCHEDSTAT = "5000000 {} 7\n"


@pytest.fixture
def proc(tmp_path):
    """A directory like /proc."""
    (tmp_path / "thread-self").mkdir()
    stolen(tmp_path, 800)
    waited(tmp_path, 0)
    return tmp_path


def stolen(proc, ticks):
    replaced(proc / "stat", STAT.format(ticks))


def waited(proc, ms):
    replaced(proc / "thread-self" / "schedstat", SCHEDSTAT.format(ms * 1_000_000))


def replaced(file, text):
    """Replace a file at once: a reader sees the old text or the new one."""
    whole = file.with_name("new")
    whole.write_text(text)
    whole.replace(file)


@pytest.fixture
def held_up(proc):
    watch = HeldUp(proc)
    watch.start()
    time.sleep(0.3)  # it has read the first values
    yield watch
    watch.stop()


@pytest.mark.parametrize(
    ("change", "little", "much", "words"),
    [
        (stolen, 804, 810, r"the hypervisor took 0\.\d\d s of CPU time at once"),
        (waited, 15, 45, r"other programs kept a thread from running for 0\.0\d s at once"),
    ],
)
def test_only_what_came_while_this_machine_was_stalled(held_up, proc, change, little, much, words):
    assert not held_up.excuses(AssertionError())
    change(proc, little)
    time.sleep(0.5)
    assert not held_up.excuses(AssertionError()), "a little is usual"
    change(proc, much)
    with pytest.warns(UserWarning, match=words):
        assert wait_until(lambda: held_up.excuses(AssertionError()), 20)
    assert not held_up.excuses(LeftBehindError())
    assert not held_up.excuses(None)
    held_up.start()
    assert not held_up.excuses(AssertionError()), "that was the test before"


def test_where_the_kernel_counts_no_waits_the_hypervisor_alone_excuses(proc):
    (proc / "thread-self" / "schedstat").unlink()
    watch = HeldUp(proc)
    watch.start()
    time.sleep(0.3)
    stolen(proc, 810)
    with pytest.warns(UserWarning, match="the hypervisor"):
        assert wait_until(lambda: watch.excuses(AssertionError()), 20)
    watch.stop()
