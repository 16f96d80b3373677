"""A guest on a stand-in for QEMU: its start, the detection of its end, and the messages about it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.local import LocalHost
from netbench.vmm.base import CableEnd, GuestSpec
from netbench.vmm.qemu.command import KernelBoot, VirtualMachine
from netbench.vmm.qemu.process import QemuGuest
from tests.unit.fake_qmp import FakeQmp, Refusal

# The stand-in prints its complaint and ends when the file `end` appears, with the exit code in that file.
STAND_IN = """
import os, signal, sys, threading, time
place, complaint, console = sys.argv[1:]
print(console, end="", flush=True)
sys.stderr.write(complaint)
sys.stderr.flush()
for _ in range(2):
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
with open(f"{place}/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(f"{place}/pid.new", f"{place}/pid")
while not os.path.exists(f"{place}/end"):
    time.sleep(0.005)
os._exit(int(open(f"{place}/end").read()))
"""
MACHINE = VirtualMachine("g", KernelBoot(Path("/k"), Path("/i")), "tcg", 2)
CABLES = tuple(CableEnd(name, "02:6e:67:00:01:01", "virtio", Path("/s"), listens=False) for name in ("eth1", "eth2"))


def guest_of(host: "QemuHost") -> QemuGuest:
    return QemuGuest(GuestSpec("g", host.place, cables=CABLES), MACHINE, host)


class QemuHost(LocalHost):
    """A host with the stand-in, and the monitor of the started guest."""

    def __init__(self, place: Path, complaint: str = "", console: str = "") -> None:
        super().__init__("here", "no-run")
        self.place = place
        self.status = "running"
        self.monitor: FakeQmp | None = None
        self.processes: list[subprocess.Popen[str]] = []
        self.with_monitor = True
        self._said = [complaint, console]

    def spawn(self, argv):
        command = [sys.executable, "-c", STAND_IN, str(self.place), *self._said]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        if self.with_monitor:
            self.monitor = FakeQmp(self.place / "qmp", self._answer, greets=True)
            (self.place / "agent").touch()
        return self.processes[-1]

    def end(self, code: int = 0) -> None:
        """Let the guest end by itself."""
        (self.place / "end.new").write_text(str(code))
        (self.place / "end.new").rename(self.place / "end")
        self.processes[-1].wait(20)

    def _answer(self, name, arguments):
        if name == "query-status":
            return {"status": self.status, "running": self.status == "running"}
        if name == "query-cpus-fast":
            tasks = sorted(int(task.name) for task in Path(f"/proc/{self.processes[-1].pid}/task").iterdir())
            return [{"cpu-index": number, "thread-id": thread} for number, thread in enumerate(tasks[1:])]
        raise Refusal(f"The command {name} has not been found")


@pytest.fixture
def started(tmp_path):
    """Start the stand-in, and end what it leaves behind."""
    hosts, guests = [], []

    def start(complaint="", console=""):
        host = QemuHost(tmp_path, complaint, console)
        guest = guest_of(host)
        hosts.append(host)
        guests.append(guest)
        guest.start()
        return host, guest

    yield start
    for guest in guests:
        guest.stop()
    for host in hosts:
        if host.monitor:
            host.monitor.close()
        assert [process.poll() is None for process in host.processes] == [False] * len(host.processes)


PANIC = "[    1.0] Kernel panic - not syncing: System is deadlocked on memory\r\n[    1.1] Rebooting in 1 seconds..\r\n"


def test_a_guest_that_runs(started):
    _, guest = started()
    assert guest.end_of_vmm() == guest.hopeless() == guest.death() == ""
    assert 0 <= guest.cpu_s() < 60


def test_ending_it_is_harmless_at_any_time(started):
    host, guest = started()
    guest.stop()
    assert host.processes[0].returncode == -9
    guest.stop()
    never = guest_of(host)
    never.stop()
    assert never.death() == ""


@pytest.mark.parametrize("status", ["paused", "internal-error", "guest-panicked", "io-error"])
def test_a_guest_that_does_not_run_though_qemu_does(started, status):
    host, guest = started()
    host.status = status
    assert guest.death() == f"guest g is not running: QEMU reports '{status}'"
    assert guest.end_of_vmm() == ""


@pytest.mark.parametrize(
    ("complaint", "console", "message"),
    [
        ("qemu: could not open /dev/net/tun\n", PANIC, "ended with exit code 1: qemu: could not open /dev/net/tun"),
        ("one\ntwo\n", "", "ended with exit code 1: two"),
        ("", PANIC, "ended with exit code 1: [    1.0] Kernel panic - not syncing: System is deadlocked on memory"),
        ("", "booting\n\x1b[32mgoing down\x1b[0m\r\n\r\n", "ended with exit code 1: going down"),
        ("", "", "ended with exit code 1: the guest wrote nothing, as happens with too little memory"),
    ],
)
def test_how_it_ended_is_reported_with_the_last_words_of_qemu_or_of_the_guest(started, complaint, console, message):
    host, guest = started(complaint, console)
    host.end(1)
    assert guest.end_of_vmm() == guest.end_just_now() == guest.death() == f"guest g: QEMU {message}"


def test_a_guest_that_was_killed(started):
    """It was killed from outside: earlier output of the guest is unrelated."""
    host, guest = started("qemu-system-x86_64: terminating on signal 9 from pid 1\n", "login:\n")
    host.processes[0].kill()
    assert guest.end_just_now() == "guest g: QEMU was killed by signal 9"


def test_a_guest_in_trouble_is_hopeless_though_qemu_runs(started):
    _, guest = started(console="booting\nHnetbench" + PANIC + "more\n")
    assert guest.hopeless() == "guest g: [    1.0] Kernel panic - not syncing: System is deadlocked on memory"
    assert guest.end_of_vmm() == ""


@pytest.mark.parametrize("sockets", [(), ("qmp", "agent")], ids=["at once", "before its monitor speaks"])
def test_qemu_that_ends_instead_of_starting_reports_why(tmp_path, sockets):
    host = QemuHost(tmp_path, "qemu-system-x86_64: cannot set up guest memory: Cannot allocate memory\n")
    host.with_monitor = False
    for name in sockets:
        (tmp_path / name).touch()
    (tmp_path / "end").write_text("1")
    guest = guest_of(host)
    with pytest.raises(TestbedError, match="^guest g: QEMU ended with exit code 1: .*: Cannot allocate memory$"):
        guest.start()
    guest.stop()


def test_a_channel_that_cannot_be_reached(started):
    host, guest = started()
    with pytest.raises(TestbedError, match="guest g: its channel: .*/agent cannot be reached: Connection refused"):
        guest.channel()
    host.end(1)
    with pytest.raises(TestbedError, match="guest g: QEMU ended with exit code 1"):
        guest.channel()


def test_a_cable_is_pulled_by_the_monitor(started):
    host, guest = started()
    with pytest.raises(TestbedError, match="The command set_link has not been found"):
        guest.set_link("eth2", up=False)
    assert host.monitor.asked[-1] == ("set_link", {"name": "nic1", "up": False})


def test_threads_are_bound_as_asked(started):
    host, guest = started()
    (cpu, *_) = sorted(os.sched_getaffinity(0))
    everywhere = os.sched_getaffinity(host.processes[0].pid)
    tasks = sorted(int(task.name) for task in Path(f"/proc/{host.processes[0].pid}/task").iterdir())
    assert len(tasks) == 3
    guest.pin([(), (cpu,)], ())
    assert [os.sched_getaffinity(task) for task in tasks] == [everywhere, everywhere, {cpu}]
    guest.pin((), (cpu,))
    assert [os.sched_getaffinity(task) for task in tasks] == [{cpu}, everywhere, {cpu}]


def test_a_cpu_that_is_not_there_is_named(started):
    _, guest = started()
    with pytest.raises(TestbedError, match="guest g cannot be pinned to CPUs 9999: .*Invalid argument"):
        guest.pin([(9999,)], ())
