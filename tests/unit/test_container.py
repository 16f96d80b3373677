"""Containers without a runtime: how the output of runtimes is read, and what is refused beforehand."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from netbench.errors import MachineGoneError, TestbedError, UsageError
from netbench.hosts.base import Completed, Host
from netbench.vmm import connected_guest
from netbench.vmm.base import GuestSpec
from netbench.vmm.container import container
from netbench.vmm.container.container import Container, ContainerGuest, ContainerOptions
from netbench.vmm.container.runtime import Lxc
from tests.unit.fakes import FakeHost

SPEC = GuestSpec("g", Path("/x/a"))
READY = "netbench-container: ready"


class Runtime(Lxc):
    """It reports these first processes."""

    def __init__(self, *pids: int) -> None:
        self.pids = pids

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        return list(self.pids)


class Here(FakeHost):
    """A machine on which a container is a process that prints everything before its output is read."""

    def __init__(self, message: str) -> None:
        super().__init__()
        self._says = message
        self.process: subprocess.Popen[str] | None = None

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        return Completed(tuple(argv), 0, "", "")

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(["sh", "-c", self._says], stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        time.sleep(0.1)
        return self.process


@pytest.fixture
def guests() -> Iterator[list[ContainerGuest]]:
    made: list[ContainerGuest] = []
    yield made
    for guest in made:
        guest.stop()


def started(message: str, runtime: Runtime, guests: list[ContainerGuest]) -> ContainerGuest:
    guests.append(guest := ContainerGuest(SPEC, Here(message), runtime))
    guest.start(["true"], {})
    return guest


def test_one_that_is_ready_before_anybody_looks_is_ready(guests, monkeypatch):
    monkeypatch.setattr(container, "is_there", lambda machine, pid: True)
    guest = started(f"echo 4711; echo {READY}; exec sleep 60", Runtime(4712), guests)
    guest.await_answer(1.0)
    assert guest.console() == f"{READY}\n"


@pytest.mark.parametrize("pids", [(), (4712, 4713)])
def test_one_whose_first_process_cannot_be_reported_is_an_error(guests, monkeypatch, pids):
    monkeypatch.setattr(connected_guest, "LAST_WORDS_S", 0.01)
    guest = started(f"echo 4711; echo {READY}; exec sleep 60", Runtime(*pids), guests)
    with pytest.raises(TestbedError, match=f"guest g: its runtime lists {len(pids)} first processes"):
        guest.await_answer(1.0)


def test_one_whose_runtime_does_not_start_reports_why(guests):
    with pytest.raises(TestbedError, match="guest g: its runtime cannot be started: mount: no permission"):
        started("echo mount: no permission >&2; exit 1", Runtime(), guests)


def test_who_is_in_it_learns_that_it_is_gone_by_the_error_asked_for(guests, monkeypatch):
    monkeypatch.setattr(container, "is_there", lambda machine, pid: True)
    guest = started(f"echo 4711; echo {READY}; exec sleep 60", Runtime(2**22 + 1), guests)  # no process has this id
    guest.await_answer(1.0)
    monkeypatch.setattr(container, "is_there", lambda machine, pid: False)
    with pytest.raises(MachineGoneError, match="guest g: its first process has ended"):
        guest.host(MachineGoneError).run(["true"])


def test_a_path_that_podman_would_take_for_another_is_refused(tmp_path):
    (root := tmp_path / "a,b").mkdir()
    options = {"root": "image", "image": str(root)}
    Container(ContainerOptions.model_validate(options)).check(())
    with pytest.raises(UsageError, match="podman ends a path at the comma in .*/a,b"):
        Container(ContainerOptions.model_validate({**options, "runtime": "podman"})).check(())


def test_a_dry_run_reports_the_cache_that_is_in_use(monkeypatch):
    monkeypatch.setenv("NETBENCH_CACHE", "/my/cache")
    assert "/my/cache/roots/DIGEST/usr usr" in Container(ContainerOptions(root="image")).command(SPEC)


@pytest.mark.parametrize("runtime", ["lxc", "podman", "libvirt"])
def test_a_host_name_is_no_longer_than_the_kernel_takes(runtime):
    spec = GuestSpec(f"{'u' * 40}.{'n' * 40}", Path("/x/a"))
    command = Container(ContainerOptions.model_validate({"runtime": runtime})).command(spec)
    assert f"{'u' * 40}.{'n' * 23} " in command
    assert f"{'u' * 40}.{'n' * 24}" not in command
