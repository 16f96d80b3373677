"""A machine reached through its agent, here the real one as a process: commands, files, and what a death explains."""

import signal
import socket
import subprocess
import sys
import time

import pytest

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.agent import host
from netbench.hosts.agent import program as agent
from netbench.hosts.agent.channel import AgentChannel
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import run_checked
from netbench.hosts.composed import Explained, Namespaced

DEATH = "guest lab: QEMU was killed by signal 9: Kernel panic - not syncing: Out of memory"


class Guest:
    """An agent, the host it is, and how it died: empty while it lives."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", agent.__file__, f"fd:{theirs.fileno()}"]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.death = ""
        self.channel = AgentChannel("guest lab", ours)
        self.host = Explained(AgentHost("uut", self.channel), lambda: self.death, MachineGoneError)
        self.host.await_answer(20, str)

    def die(self, death=DEATH) -> None:
        """End the agent, and with it the channel."""
        self.process.kill()
        self.process.wait()
        self.death = death


@pytest.fixture
def guest():
    guest = Guest()
    yield guest
    guest.host.close()
    guest.process.kill()
    guest.process.wait(20)


def test_commands_with_their_input_output_and_exit_code(guest):
    done = guest.host.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin="ä\n")
    assert (done.argv[0], done.exit_code, done.stdout, done.stderr) == ("sh", 3, "ä\n", "wrong\n")
    assert run_checked(guest.host, ["echo", "a b"]) == "a b\n"
    with pytest.raises(TestbedError, match="guest lab: `sh -c exit 3` failed with exit code 3: no message"):
        run_checked(guest.host, ["sh", "-c", "exit 3"])
    assert guest.host.run(["printf", r"\377"]).stdout == "\N{REPLACEMENT CHARACTER}", "whatever a guest prints is text"


def test_it_is_no_part_of_this_machine(guest):
    assert (guest.host.name, guest.host.netns, guest.host.shares_files) == ("uut", None, False)


def test_processes(guest):
    process = guest.host.spawn(["cat"])
    assert process.communicate("hello\n", timeout=20) == ("hello\n", "")
    assert process.returncode == 0


def test_files(guest, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    guest.host.write(str(there), "ä\n")
    assert guest.host.read(str(there)) == "ä\n"
    data = bytes(range(256)) * 4096
    there.write_bytes(data)
    guest.host.fetch(str(there), here)
    assert here.read_bytes() == data


def test_files_that_are_not_there_or_cannot_be(guest, tmp_path):
    with pytest.raises(TestbedError, match="guest lab: /no/file cannot be read: No such file or directory"):
        guest.host.read("/no/file")
    with pytest.raises(TestbedError, match="guest lab: /no/file cannot be written: No such file or directory"):
        guest.host.write("/no/file", "")
    with pytest.raises(TestbedError, match="guest lab: /no/file cannot be read"):
        guest.host.fetch("/no/file", tmp_path / "x")
    (tmp_path / "there").touch()
    with pytest.raises(TestbedError, match="/no/place cannot be written: No such file or directory"):
        guest.host.fetch(str(tmp_path / "there"), tmp_path / "no/place")


EVERY_WAY = [
    lambda host, here: host.run(["true"]),
    lambda host, here: host.spawn(["true"]),
    lambda host, here: host.read("/proc/version"),
    lambda host, here: host.write("/proc/sys/kernel/hostname", "x"),
    lambda host, here: host.fetch("/proc/version", here),
]


@pytest.mark.parametrize("ask", EVERY_WAY, ids=["run", "spawn", "read", "write", "fetch"])
def test_how_a_guest_died_is_said_instead_of_what_it_did_not_answer(guest, ask, tmp_path):
    guest.die()
    with pytest.raises(TestbedError, match="Out of memory") as caught:
        ask(guest.host, tmp_path / "x")
    assert str(caught.value) == DEATH


@pytest.mark.parametrize("ask", EVERY_WAY[:1])
def test_a_channel_that_is_gone_though_qemu_runs_says_so(guest, ask, tmp_path):
    guest.die(death="")
    with pytest.raises(TestbedError, match="guest lab: it is gone"):
        ask(guest.host, tmp_path / "x")


def test_a_guest_that_lives_is_not_declared_dead(guest):
    with pytest.raises(TestbedError, match="guest lab: `sleep 60` did not end within 0.1 s"):
        guest.host.run(["sleep", "60"], timeout_s=0.1)


@pytest.fixture
def commands(guest, monkeypatch, tmp_path):
    """A stand-in for `ip` in the guest, which only says what it was asked for."""
    seen = tmp_path / "seen"
    stand_in = tmp_path / "ip"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nshift 3\nexec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr(guest.channel, "run", _with(guest.channel.run, stand_in))
    return seen


def _with(run, stand_in):
    def replaced(argv, *more):
        assert argv[:3] == ["ip", "netns", "exec"]
        return run([str(stand_in), *argv[1:]], *more)

    return replaced


def test_a_namespace_inside_a_guest(guest, commands, tmp_path):
    inside = Namespaced(AgentHost("sink", guest.channel), "nb-lab-sink")
    assert (inside.name, inside.netns, inside.shares_files) == ("sink", "nb-lab-sink", False)
    done = inside.run(["echo", "hello"])
    assert (done.argv, done.stdout) == (("echo", "hello"), "hello\n")
    file = str(tmp_path / "file")
    inside.write(file, "x")
    assert inside.read(file) == "x"
    assert commands.read_text().splitlines() == [
        "netns exec nb-lab-sink echo hello",
        f"netns exec nb-lab-sink dd of={file} bs=1M iflag=fullblock status=none",
        f"netns exec nb-lab-sink cat {file}",
    ]
    with pytest.raises(TestbedError, match="host sink: `cat /no/file` failed with exit code 1: .*No such file"):
        inside.read("/no/file")


def test_a_guest_that_hangs_is_given_up_and_nobody_waits_for_it_again(guest, monkeypatch):
    monkeypatch.setattr(host, "_SIGN_OF_LIFE_S", 0.2)
    begin = time.monotonic()
    guest.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(MachineGoneError, match=r"guest lab: `true` did not end within 0.2 s, and it hangs"):
            guest.host.run(["true"], timeout_s=0.2)
        with pytest.raises(MachineGoneError, match=r"guest lab: it hangs: no sign of life"):
            guest.host.run(["true"], timeout_s=3600)
    finally:
        guest.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - begin < 60


def test_a_command_that_takes_too_long_is_no_sign_of_a_guest_that_hangs(guest):
    with pytest.raises(TestbedError, match=r"`sleep 60` did not end within 0.2 s") as caught:
        guest.host.run(["sleep", "60"], timeout_s=0.2)
    assert not isinstance(caught.value, MachineGoneError)
    assert guest.host.run(["echo", "well"]).stdout == "well\n"
