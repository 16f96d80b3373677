"""A machine reached through its agent, here the real one as a process: the channel, and the host behind it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from netbench.errors import MachineGoneError, TestbedError
from netbench.hosts.base import run_checked
from netbench.hosts.guest_agent import host
from netbench.hosts.guest_agent import program as agent
from netbench.hosts.guest_agent.channel import AgentChannel, Decoder, Message, encoded_command
from netbench.hosts.guest_agent.host import AgentHost, GuestProcess
from netbench.hosts.guest_agent.program import HEADER, LONGEST_BODY
from netbench.hosts.host_wrappers import MonitoredHost, NamespaceHost
from netbench.model.foreign_text import decoded

DEATH = "guest g: QEMU was killed by signal 9: Kernel panic - not syncing: Out of memory"


class Guest:
    """An agent as it runs in a guest, its host, and how it died: empty while it lives."""

    def __init__(self) -> None:
        self.socket, theirs = socket.socketpair()
        command = [sys.executable, "-I", "-S", agent.__file__, f"fd:{theirs.fileno()}"]
        self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        self.death = ""

    def connect(self) -> None:
        """Greet it; earlier data belongs to an earlier controller."""
        self.channel = AgentChannel("guest g", self.socket)
        self.host = MonitoredHost(AgentHost("uut", self.channel), lambda: self.death, MachineGoneError)
        self.host.await_answer(20, str)

    def die(self, death=DEATH) -> None:
        """End the agent, and with it the channel."""
        self.process.kill()
        self.process.wait()
        self.death = death


@pytest.fixture
def newborn():
    guest = Guest()
    yield guest
    guest.host.close()
    guest.process.kill()
    guest.process.wait(20)


@pytest.fixture
def guest(newborn):
    newborn.connect()
    return newborn


@pytest.fixture
def channel(guest):
    return guest.channel


def test_a_command_that_a_signal_ends(channel):
    assert channel.run(["sh", "-c", "kill -TERM $$"]).exit_code == -signal.SIGTERM


def test_what_is_no_command_reports_so(channel):
    with pytest.raises(TestbedError, match=r"guest g: `no-such-command x` cannot start: No such file or directory"):
        channel.run(["no-such-command", "x"])


def test_text_of_any_length_comes_through_both_ways(channel):
    text = "".join(map(chr, range(256))) * 16_384  # more than any pipe or socket holds at once
    assert channel.run(["cat"], text.encode()).stdout == text


def test_many_commands_at_once_keep_apart(channel):
    processes = [GuestProcess(channel, ["sh", "-c", f"sleep 0.0{9 - n}; seq {n} {n + 20000}"]) for n in range(8)]
    outputs = [process.communicate(timeout=20)[0] for process in processes]
    assert outputs == ["".join(f"{number}\n" for number in range(n, n + 20001)) for n in range(8)]


def test_files_come_and_go(channel, tmp_path):
    data = os.urandom(300_000)
    channel.put(str(tmp_path / "file"), data)
    assert (tmp_path / "file").read_bytes() == data
    assert channel.get(str(tmp_path / "file")) == data
    channel.put(str(tmp_path / "file"), b"")
    assert channel.get(str(tmp_path / "file")) == b""


def test_a_long_file_keeps_no_one_waiting(channel):
    ended = threading.Event()
    number = channel.expect(lambda message: ended.set() if message is None or not message.body else None)
    channel.send(b"G", number, b"/dev/zero")  # it has no end
    try:
        assert channel.clocks().monotonic_ns
        assert not ended.is_set()
    finally:
        channel.give_up("enough")


def test_a_controller_that_takes_nothing_any_more_has_gone():
    ours, theirs = socket.socketpair()
    program = "import sys; from netbench.hosts.guest_agent.program import Agent; "
    program += f"Agent({theirs.fileno()}, comes_back=False, silence_s=0.2).serve()"
    process = subprocess.Popen([sys.executable, "-c", program], pass_fds=[theirs.fileno()])
    theirs.close()
    ours.sendall(Message(b"R", 1, encoded_command(["cat", "/dev/zero"])).encode())
    try:
        assert process.wait(20) == 0  # although nothing was closed
    finally:
        process.kill()
        ours.close()


def test_files_that_cannot_be_read_or_written_say_why(channel, tmp_path):
    with pytest.raises(TestbedError, match="nothing cannot be read: No such file or directory"):
        channel.get(str(tmp_path / "nothing"))
    with pytest.raises(TestbedError, match="cannot be written: Is a directory"):
        channel.put(str(tmp_path), b"x")


def test_clocks_are_those_of_the_guest(channel):
    earlier = time.monotonic_ns(), time.time_ns()
    clocks = channel.clocks()
    assert earlier[0] <= clocks.monotonic_ns <= time.monotonic_ns()
    assert earlier[1] - 1000 <= clocks.realtime_ns <= time.time_ns() + 1000


MALFORMED = [
    HEADER.pack(b"R", 1, 0),  # no words
    Message(b"R", 1, b"true").encode(),  # a word without its end
    Message(b"R", 1, b"\0").encode(),
    Message(b"K", 1, b"nine").encode(),
    Message(b"K", 1, b"").encode(),
    Message(b"R", 7, b"sleep\x009\0").encode() + Message(b"K", 7, b"99999999999999999999").encode(),
    Message(b"R", 7, b"sleep\x009\0").encode() + Message(b"K", 7, b"4096").encode(),
    Message(b"R", 7, b"sleep\x009\0").encode() * 2,
    Message(b"G", 1, b"/pro\0c").encode(),
    Message(b"G", 1, b"").encode(),
    Message(b"G", 1, b"/dev/zero").encode() * 2,
    Message(b"P", 1, b"").encode(),
    Message(b"I", 99, b"\xff" * 100).encode(),
    bytes(range(256)) * 8,
    HEADER.pack(b"R", 1, LONGEST_BODY + 1) + b"\xff" * 40,
    HEADER.pack(b"?", 2**32 - 1, 2**32 - 1),
]


@pytest.mark.parametrize("reported", MALFORMED, ids=range(len(MALFORMED)))
def test_an_agent_survives_what_is_malformed(newborn, reported):
    newborn.socket.sendall(reported)
    newborn.connect()
    assert newborn.host.run(["echo", "well"]).stdout == "well\n"


def test_a_message_that_is_never_completed_is_given_up(newborn, tmp_path):
    newborn.host = newborn.die() or None
    program = tmp_path / "agent.py"
    program.write_text(Path(agent.__file__).read_text().replace("= 10.0, 1000", "= 0.2, 1000"))
    newborn.socket, theirs = socket.socketpair()
    command = [sys.executable, "-I", "-S", str(program), f"fd:{theirs.fileno()}"]
    newborn.process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
    theirs.close()
    newborn.socket.sendall(HEADER.pack(b"R", 1, LONGEST_BODY) + b"tail")
    newborn.connect()
    assert newborn.host.run(["echo", "well"]).stdout == "well\n"


def test_a_process_that_cannot_start_ends_as_in_a_shell(channel):
    process = GuestProcess(channel, ["no-such-command"])
    assert process.communicate(timeout=10) == ("", "No such file or directory\n")
    assert process.returncode == 127


def test_no_one_has_to_read_what_a_process_writes(channel):
    process = GuestProcess(channel, ["sh", "-c", "seq 1 200000; echo done >&2"])
    assert process.stderr.readline() == "done\n"
    assert process.wait(10) == 0
    assert channel.run(["echo", "x"]).stdout == "x\n"


def test_a_guest_that_never_answers():
    ours, theirs = socket.socketpair()
    channel = AgentChannel("guest g", ours)
    with pytest.raises(TestbedError, match=r"guest g did not answer within 0.3 s"):
        channel.hello(0.3)
    with pytest.raises(TestbedError, match="it has died"):
        channel.hello(60, hopeless=lambda: "it has died")
    channel.close()
    theirs.close()


@given(
    st.lists(st.tuples(st.sampled_from(b"HREOS"), st.integers(0, 2**32 - 1), st.binary(max_size=50))),
    st.integers(1, 60),
)
def test_messages_survive_any_cut(messages, step):
    sent = [Message(bytes([kind]), number, body) for kind, number, body in messages]
    data = b"".join(message.encode() for message in sent)
    decoder, received = Decoder(), []
    for start in range(0, len(data), step):
        decoder.take(data[start : start + step])
        received += decoder.messages()
    assert received == sent


def test_a_guest_that_dies_is_noticed_by_all_who_wait(guest):
    channel, process = guest.channel, GuestProcess(guest.channel, ["sleep", "60"])
    guest.process.kill()
    with pytest.raises(TestbedError, match="guest g: it is gone"):
        channel.run(["sleep", "60"])
    assert process.wait(10) == -signal.SIGKILL
    assert process.communicate(timeout=10) == ("", "")
    for ask in (lambda: channel.run(["true"]), lambda: channel.get("/x"), channel.clocks, lambda: channel.hello(1)):
        with pytest.raises(TestbedError, match="guest g: it is gone"):
            ask()


def test_a_controller_that_comes_anew_finds_nothing_of_the_one_before(newborn):
    """Processes of an earlier controller have ended, and its late answers are not taken for the new one's."""
    ours = newborn.socket
    ours.sendall(Message(b"R", 5, b"sh\0-c\0echo $$; exec sleep 60\0").encode() + b"noise of a terminal \r\n")
    pid = int(ours.recv(100)[9:])
    ours.sendall(Message(b"G", 6, b"/proc/self/cmdline").encode())
    newborn.connect()
    assert not Path(f"/proc/{pid}").exists()
    assert newborn.channel.run(["echo", "x"]).stdout == "x\n"


def test_a_host_speaks_text(guest):
    assert (guest.host.name, guest.host.netns, guest.host.shares_files) == ("uut", None, False)
    done = guest.host.run(["sh", "-c", "cat; echo wrong >&2; exit 3"], stdin="ä\n")
    assert (done.argv[0], done.exit_code, done.stdout, done.stderr) == ("sh", 3, "ä\n", "wrong\n")
    with pytest.raises(TestbedError, match="guest g: `sh -c exit 3` failed with exit code 3: no message"):
        run_checked(guest.host, ["sh", "-c", "exit 3"])
    assert guest.host.run(["printf", r"\377"]).stdout == decoded(b"\xff"), "whatever a guest prints is text"
    process = guest.host.spawn(["cat"])
    assert (process.communicate("hello\n", timeout=20), process.returncode) == (("hello\n", ""), 0)


def test_files_of_a_host(guest, tmp_path):
    there, here = tmp_path / "there", tmp_path / "here"
    guest.host.write(str(there), "ä\n")
    assert guest.host.read(str(there)) == "ä\n"
    there.write_bytes(bytes(range(256)))
    guest.host.fetch(str(there), here)
    assert here.read_bytes() == bytes(range(256))
    with pytest.raises(TestbedError, match="/no/place cannot be written: No such file or directory"):
        guest.host.fetch(str(there), tmp_path / "no/place")


EVERY_WAY = [
    lambda host, here: host.run(["true"]),
    lambda host, here: host.spawn(["true"]),
    lambda host, here: host.read("/proc/version"),
    lambda host, here: host.write("/proc/sys/kernel/hostname", "x"),
    lambda host, here: host.fetch("/proc/version", here),
]


@pytest.mark.parametrize("ask", EVERY_WAY, ids=["run", "spawn", "read", "write", "fetch"])
def test_how_a_guest_died_is_reported_instead_of_what_it_did_not_answer(guest, ask, tmp_path):
    is_gone = threading.Event()
    guest.channel.expect(lambda message: is_gone.set())
    guest.die()
    assert is_gone.wait(20), "a process started before is reported later"
    with pytest.raises(MachineGoneError, match=f"^{DEATH}$"):
        ask(guest.host, tmp_path / "x")
    guest.death = ""
    with pytest.raises(MachineGoneError, match="^guest g: it is gone$"):
        ask(guest.host, tmp_path / "x")


@pytest.fixture
def commands(guest, monkeypatch, tmp_path):
    """A stand-in for `ip` in the guest, which only prints its arguments."""
    seen = tmp_path / "seen"
    stand_in = tmp_path / "ip"
    stand_in.write_text(f'#!/bin/sh\necho "$@" >> {seen}\nshift 3\nexec "$@"\n')
    stand_in.chmod(0o755)
    run = guest.channel.run
    monkeypatch.setattr(guest.channel, "run", lambda argv, *more: run([str(stand_in), *argv[1:]], *more))
    return seen


def test_a_namespace_inside_a_guest(guest, commands, tmp_path):
    inside = NamespaceHost(AgentHost("sink", guest.channel), "nb-lab-sink")
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


def test_a_guest_that_hangs_is_given_up_and_no_one_waits_for_it_again(guest, monkeypatch):
    monkeypatch.setattr(host, "_HANG_S", 0.2)
    begin = time.monotonic()
    guest.process.send_signal(signal.SIGSTOP)
    try:
        with pytest.raises(MachineGoneError, match=r"guest g: `true` did not end within 0.2 s, and it hangs"):
            guest.host.run(["true"], timeout_s=0.2)
        with pytest.raises(MachineGoneError, match=r"guest g: it hangs: no answer about its clocks"):
            guest.host.run(["true"], timeout_s=3600)
    finally:
        guest.process.send_signal(signal.SIGCONT)
    assert time.monotonic() - begin < 60


def test_a_command_that_takes_too_long_is_no_sign_of_a_guest_that_hangs(guest):
    with pytest.raises(TestbedError, match=r"guest g: `sleep 60` did not end within 0.2 s") as caught:
        guest.host.run(["sleep", "60"], timeout_s=0.2)
    assert not isinstance(caught.value, MachineGoneError)
    assert guest.host.run(["echo", "well"]).stdout == "well\n"


def test_what_a_guest_reports_without_end_is_given_up(guest):
    with pytest.raises(TestbedError, match="guest g: `yes` printed too much: more than 64 MiB"):
        guest.host.run(["yes"])
    process = guest.host.spawn(["yes"])  # its pipe is not read
    assert process.wait(60) == -9
    with pytest.raises(TestbedError, match="guest g: it sent more than 64 MiB of /dev/zero"):
        guest.host.read("/dev/zero")


def test_a_message_that_is_too_long_is_not_waited_for():
    decoder = Decoder()
    decoder.take(HEADER.pack(b"O", 1, LONGEST_BODY + 1))
    with pytest.raises(ValueError, match="a message of 16777217 bytes"):
        decoder.messages()
    noise = Decoder()
    for _ in range(100):
        noise.take(bytes(10_000))
        assert not noise.skip_to(b"here")
    noise.take(b"he")
    assert not noise.skip_to(b"here")
    noise.take(b"re")
    assert noise.skip_to(b"here")
    assert len(noise._unread) == 4
