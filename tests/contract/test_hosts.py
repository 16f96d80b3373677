"""The contract of hosts, checked for every kind that needs no other machine, and for the fake of other tests."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from netbench.errors import MachineGoneError, MissingError, TestbedError
from netbench.hosts.base import Completed, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.guest_agent import program
from netbench.hosts.guest_agent.channel import AgentChannel
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.host_wrappers import ConfinedHost, MonitoredHost, NamedHost, NamespaceHost
from netbench.hosts.local import LocalHost, end_marked_processes, marked_processes
from netbench.hosts.ssh import SshGuest
from tests.unit.fakes import FakeHost

RUN = "netbench-contract-test"
LOCAL = LocalHost("local", RUN)
NETNS = "nb-contract"


class SshMachine(LocalHost):
    """A machine whose `ssh` runs the command on the machine itself, by a shell as an SSH server does."""

    def run(self, argv, *, stdin="", timeout_s=30.0):
        return super().run(["sh", "-c", argv[-1]], stdin=stdin, timeout_s=timeout_s)

    def spawn(self, argv):
        return super().spawn(["sh", "-c", f"exec {argv[-1]}"])


def ssh_guest(tmp_path):
    return SshGuest("g", "guest g", SshMachine("m", RUN), tmp_path, 22, "root", tmp_path / "key", "ssh-ed25519 A")


@pytest.fixture
def agent():
    """A host behind an agent, which runs as a process of this machine."""
    ours, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", program.__file__, f"fd:{theirs.fileno()}"]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    host = AgentHost("uut", AgentChannel("guest g", ours))
    host.await_answer(20, str)
    yield host
    host.close()
    process.wait(20)


@pytest.fixture
def namespace():
    run_checked(LOCAL, ["ip", "netns", "add", NETNS])
    yield NamespaceHost(LOCAL, NETNS)
    run_checked(LOCAL, ["ip", "netns", "del", NETNS])


WITH_PROCESSES = [
    "local",
    "named",
    "confined",
    "agent",
    "monitored",
    pytest.param("namespace", marks=pytest.mark.root),
]


@pytest.fixture(params=[*WITH_PROCESSES, "ssh guest", "fake"])
def host(request, tmp_path):
    """A host on which `echo hello` prints hello, `false` fails, and the file `there` can be read and written."""
    (tmp_path / "there").write_text("before\n")
    match request.param:
        case "named":
            return NamedHost(LOCAL, "other")
        case "confined":
            return ConfinedHost(LOCAL, sorted(os.sched_getaffinity(0)))
        case "monitored":
            return MonitoredHost(request.getfixturevalue("agent"), str)
        case "ssh guest":
            return ssh_guest(tmp_path)
        case "fake":
            answers = {"echo": Completed((), 0, "hello\n", ""), "false": Completed((), 1, "", "")}
            return FakeHost(answers, {str(tmp_path / "there"): "before\n"}, is_here=True)
        case "local":
            return LOCAL
        case kind:
            return request.getfixturevalue(kind)


with_processes = pytest.mark.parametrize("host", WITH_PROCESSES, indirect=True)


def test_a_command_and_its_exit_code(host):
    done = host.run(["echo", "hello"])
    assert (done.argv, done.exit_code, done.stdout, done.stderr) == (("echo", "hello"), 0, "hello\n", "")
    assert host.run(["false"]).exit_code == 1
    with pytest.raises(TestbedError, match=f"^{host}: `false` failed with exit code 1: no message"):
        run_checked(host, ["false"])


def test_files_are_read_and_written(host, tmp_path):
    there = str(tmp_path / "there")
    assert host.read(there) == "before\n"
    host.write(there, "after")
    assert host.read(there) == "after"
    host.fetch(there, tmp_path / "fetched")
    assert (tmp_path / "fetched").read_text() == "after"
    (tmp_path / "source").write_text("sent")
    host.send(tmp_path / "source", there)
    assert host.read(there) == "sent"


def test_a_file_of_this_machine_is_shared_or_copied_once(host, tmp_path):
    source, directory = tmp_path / "program", tmp_path / "scratch" / "deep"
    source.write_text("first")
    path = host.share(source, str(directory))
    assert (path == str(source)) == host.shares_files
    assert path in (str(source), str(directory / "program"))
    if not host.shares_files:
        source.write_text("second")
        assert host.share(source, str(directory)) == path
        assert host.read(path) == "first"
        assert [file.name for file in directory.iterdir()] == ["program"]


def test_a_file_that_is_missing(host):
    with pytest.raises(TestbedError, match="/no/such/file"):
        host.read("/no/such/file")
    with pytest.raises(TestbedError, match="/no/such/file"):
        host.write("/no/such/file", "")


@with_processes
def test_a_command_with_input_and_special_characters(host):
    assert host.run(["cat"], stdin="a\nb\n").stdout == "a\nb\n"
    assert host.run(["printf", "%s|", "a b", "$HOME; id", "*", "", "ü"]).stdout == "a b|$HOME; id|*||ü|"


@with_processes
def test_a_command_that_takes_too_long_is_ended_with_the_processes_it_started(host, tmp_path):
    child = tmp_path / "child"
    for limit_s in (0.3, 5.0):
        with pytest.raises(TestbedError, match=f"did not end within {limit_s:g} s"):
            host.run(["sh", "-c", f"sleep 60 & echo $! >{child}; wait"], timeout_s=limit_s)
        if child.exists() and child.read_text():  # or this machine was stalled before the shell had begun
            break
    assert wait_until(lambda: not is_running(int(child.read_text())), 10)


@with_processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_signal_reaches_a_process_and_the_processes_it_started(host, number):
    process = host.spawn(["sh", "-c", "sleep 60 & echo $!; wait"])
    child = int(process.stdout.readline())
    assert process.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.05)
    process.send_signal(number)
    assert process.wait(20) == -number
    assert wait_until(lambda: not is_running(child), 10)
    process.send_signal(number)  # without effect
    process.communicate()


@with_processes
def test_a_spawned_process_has_pipes(host):
    process = host.spawn(["cat"])
    process.stdin.write("hello\n")
    process.stdin.flush()
    assert process.stdout.readline() == "hello\n"
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0


def is_running(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # it ended before or while it was read
        return False


# This machine only


def test_a_command_that_is_missing():
    with pytest.raises(MissingError, match="no-such-command"):
        LOCAL.run(["no-such-command"])


def test_commands_have_no_locale():
    assert "LC_ALL=C\n" in LOCAL.run(["env"]).stdout


def test_a_spawned_process_bears_the_mark_of_its_run():
    process = LocalHost("local", "netbench-contract-mark").spawn(["cat"])
    assert process.stdin
    assert process.stdout
    try:
        process.stdin.write("hello\n")
        process.stdin.flush()
        assert process.stdout.readline() == "hello\n"  # before that, it may be setpriv
        assert list(marked_processes("netbench-contract-mark")) == [(process.pid, "cat")]
        assert list(marked_processes("netbench-contract-mar")) == []
    finally:
        assert end_marked_processes("netbench-contract-mark") == ["cat"]
        process.communicate()
    assert process.returncode == -9


ORPHAN = """
import os
from netbench.hosts.local import LocalHost
child = LocalHost("local", "netbench-contract-orphan").spawn(["cat"])
child.stdin.write("ready\\n")
child.stdin.flush()
child.stdout.readline()
os.kill(os.getpid(), 9)
"""


def test_a_spawned_process_dies_with_netbench():
    """Its pipes stay open while it lives, so it ends only if it is killed."""
    done = subprocess.run([sys.executable, "-c", ORPHAN], timeout=60, check=False)
    assert done.returncode == -9
    assert wait_until(lambda: not any(marked_processes("netbench-contract-orphan")), 20)


def test_ctrl_c_at_the_terminal_does_not_reach_a_spawned_process():
    process = LOCAL.spawn(["cat"])
    try:
        assert os.getsid(process.pid) == process.pid
    finally:
        process.kill()
        process.communicate()


def test_a_namespace_that_is_gone():
    gone = NamespaceHost(LocalHost("n", "x"), "nb-no-such-namespace")
    for use in (gone.run, gone.spawn):
        with pytest.raises(MachineGoneError, match="host n: its namespace nb-no-such-namespace is gone"):
            use(["echo", "hello"])
