"""Hooks and fixtures of all tests: justified skips, and nothing left behind."""

import os
import shutil
import signal

import pytest
from hypothesis import settings

from netbench.errors import MissingError
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.vmm.qemu.command import qemu_program
from tests.commands import netbench
from tests.commands import start as start_command
from tests.held_up import RUNS_AGAIN, HeldUp, LeftBehindError
from tests.machine import machine_state

# Machines are shared: the time of an example has no meaning.
settings.register_profile("netbench", deadline=None)
settings.load_profile("netbench")


pytest.register_assert_rewrite("tests.contract")  # tests inherit its classes, and show values in failed asserts
pytest_plugins = ["tests.skips"]
HELD_UP = pytest.StashKey[HeldUp]()


def pytest_configure(config):
    # Runners of parallel tests set it, and Python's readline does so without changing os.environ. Output that is not a
    # terminal has no width.
    os.environ.pop("COLUMNS", None)
    os.unsetenv("COLUMNS")
    # Background processes of a script ignore Ctrl-C, and so would all processes that tests interrupt.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    config.stash[HELD_UP] = HeldUp()


def pytest_unconfigure(config):
    config.stash[HELD_UP].stop()


def pytest_collection_modifyitems(config, items):
    """Skip, with what is missing, the tests that cannot run here; those that measure may be run again."""
    for item in items:
        if item.get_closest_marker("root") or item.get_closest_marker("vm"):
            # QEMU may hang while it emulates two CPUs: docs/run-guests.md.
            may_hang = item.get_closest_marker("vm_may_hang") is not None
            # A test with its own timeout takes long, and is repeated only once, or twice where QEMU may hang.
            reruns = RUNS_AGAIN
            if item.get_closest_marker("timeout"):
                reruns = 2 if may_hang else 1
            excuse = True if may_hang else config.stash[HELD_UP].excuses
            item.add_marker(pytest.mark.flaky(reruns=reruns, condition=excuse))
        if item.get_closest_marker("root") and os.geteuid() != 0:
            item.add_marker(pytest.mark.skip(reason="needs root: sudo make test"))
        if item.get_closest_marker("vm") and (lacking := _lacking_for_guests()):
            item.add_marker(pytest.mark.skip(reason=lacking))
        if item.get_closest_marker("stress") and shutil.which("stress-ng") is None:
            item.add_marker(pytest.mark.skip(reason="needs stress-ng: apt-get install stress-ng"))
        if item.get_closest_marker("chromium") and shutil.which("chromium") is None:
            item.add_marker(pytest.mark.skip(reason="needs headless Chromium: apt-get install chromium"))


def _lacking_for_guests() -> str:
    if os.geteuid() != 0:
        return "needs root: sudo make test"
    if shutil.which(qemu_program()) is None:
        return f"needs {qemu_program()}: apt-get install qemu-system-x86"
    try:
        find_image(DEFAULT_IMAGE)
    except MissingError as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def nothing_left_behind(request):
    """A test that needs root, or guests, must leave the machine as it found it."""
    if not any(request.node.get_closest_marker(marker) for marker in ("root", "vm")):
        yield
        return
    request.config.stash[HELD_UP].start()
    before = machine_state()
    yield
    after = machine_state()
    if after != before:
        raise LeftBehindError({what: (before[what], after[what]) for what in before if before[what] != after[what]})


@pytest.fixture(autouse=True, scope="module")
def no_selftest_of_this_machine(tmp_path_factory):
    """Tests do not use the results of self-tests on this machine, or in the tests of another file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETBENCH_STATE", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def results(tmp_path):
    return tmp_path / "results"


@pytest.fixture
def start():
    """Start a netbench that a failing test does not leave running."""
    started = []

    def begin(*arguments, netns="", **more):
        started.append(start_command(*arguments, netns=netns, **more))
        return started[-1]

    yield begin
    for process in started:
        if process.poll() is None:
            process.kill()
            process.communicate()
            netbench("clean")
