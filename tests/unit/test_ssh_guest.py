"""A guest reached by SSH, with a stand-in for `ssh` that prints its arguments."""

import base64
import shlex
import socket
from itertools import pairwise

import pytest

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.hosts.local import LocalHost
from netbench.hosts.ssh import SshGuest, free_port
from tests.unit.fakes import FakeHost

DENIED = "root@127.0.0.1: Permission denied (publickey).\n"
CHANGED = "@@@@@\nIT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\nHost key verification failed.\n"
RESET = "kex_exchange_identification: read: Connection reset by peer\n"


class Machine(FakeHost):
    """A host whose ssh returns the answers in order, the last one again and again."""

    def __init__(self, *answers: tuple[int, str, str]) -> None:
        super().__init__()
        self._rest = list(answers)
        self.inputs: list[str] = []

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        self.inputs.append(stdin)
        answer = self._rest.pop(0) if len(self._rest) > 1 else self._rest[0]
        return Completed(tuple(argv), *answer)


@pytest.fixture
def reach(tmp_path):
    """A guest on a machine with these answers."""

    def reach(*answers):
        host = Machine(*answers)
        key = tmp_path / "a key"
        guest = SshGuest("g", "guest g", host, tmp_path, 40022, "admin", key, "ssh-ed25519 AAAAC3 root@image\n")
        return host, guest

    return reach


def settings_of(command):
    return dict(word.split("=", 1) for option, word in pairwise(command) if option == "-o")


def test_only_the_key_that_was_given_lets_us_in_and_only_that_guest_is_let_in(reach, tmp_path):
    host, guest = reach((0, "", ""))
    guest.run(["uname", "-r"])
    (command,) = host.commands
    assert command[:3] == ("ssh", "-F", "none")
    words = ("-l", "admin", "-p", "40022", "-i", str(tmp_path / "a key"), "--", "127.0.0.1", "uname -r")
    assert command[-9:] == words
    given = settings_of(command)
    assert (tmp_path / "known_hosts").read_text() == "[127.0.0.1]:40022 ssh-ed25519 AAAAC3 root@image\n"
    assert given["UserKnownHostsFile"] == str(tmp_path / "known_hosts")
    assert given["GlobalKnownHostsFile"] == "/dev/null"
    assert (given["StrictHostKeyChecking"], given["IdentitiesOnly"], given["BatchMode"]) == ("yes", "yes", "yes")


@pytest.mark.parametrize(
    "words", [["echo", "a b"], ["echo", "$HOME; id", "*", ""], ["sh", "-c", "echo 'x' && exit 3"], ["echo", "ü\n"]]
)
def test_every_word_reaches_the_command_as_it_is(reach, words):
    """The server passes one text to a shell."""
    host, guest = reach((0, "", ""))
    guest.run(words)
    assert shlex.split(host.commands[0][-1]) == words


def test_a_connection_that_fails_is_no_exit_code_of_the_command(reach):
    _, guest = reach((255, "", "client_loop: send disconnect: Broken pipe\n"))
    with pytest.raises(TestbedError, match="^guest g: SSH failed: client_loop: send disconnect: Broken pipe$"):
        guest.run(["true"])
    _, guest = reach((255, "", ""))
    with pytest.raises(TestbedError, match="guest g: SSH failed: no message"):
        guest.run(["true"])


@pytest.mark.parametrize("refusal", [RESET, DENIED], ids=["not yet there", "its key is not known yet"])
def test_waiting_tries_until_it_is_let_in(reach, refusal):
    """Some images install the key late in their boot."""
    host, guest = reach((255, "", refusal), (255, "", refusal), (0, "", ""))
    guest.await_answer(60, str)
    assert [command[-1] for command in host.commands] == ["true"] * 3


@pytest.mark.parametrize(
    ("answer", "limit_s", "hope", "expected_message"),
    [
        ((255, "", CHANGED), 60, "", r"^guest g: no SSH connection: .*key verification failed"),
        ((255, "", DENIED), 0.1, "", r"no SSH connection within 0.1 s of its start: .*Permission denied"),
        ((255, "", RESET), 0.1, "", "within 0.1 s of its start: kex_exchange_identification: .* reset by peer"),
        ((1, "", ""), 0, "", "within 0 s of its start: exit code 1"),
        ((255, "", RESET), 60, "QEMU has ended", "^QEMU has ended$"),
    ],
    ids=["the host key is another", "in time", "with the last words", "without words", "no hope"],
)
def test_waiting_gives_up(reach, answer, limit_s, hope, expected_message):
    host, guest = reach(answer)
    with pytest.raises(TestbedError, match=expected_message):
        guest.await_answer(limit_s, lambda: hope)
    assert limit_s < 60 or len(host.commands) == 1


def test_files_by_commands(reach, tmp_path):
    host, guest = reach((0, base64.b64encode(b"\xff\0").decode(), ""))
    guest.fetch("/a file", tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == b"\xff\0"
    guest.write("/x", "text")
    guest.read("/x")
    assert [command[-1] for command in host.commands] == [
        "base64 '/a file'",
        "dd of=/x bs=1M iflag=fullblock status=none",
        "cat /x",
    ]
    assert host.inputs[1] == "text"


def test_the_connection_that_is_kept_is_ended(reach, tmp_path):
    host, guest = reach((0, "", ""))
    guest.close()
    assert host.commands == [], "there is none"
    (tmp_path / "s").touch()
    guest.close()
    (command,) = host.commands
    assert command[:3] == ("ssh", "-O", "exit")
    assert settings_of(command)["ControlPath"] == str(tmp_path / "s")
    (tmp_path / "s").unlink()
    guest.close()
    assert len(host.commands) == 1


def test_a_free_port_is_one_that_can_be_listened_on():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", free_port(LocalHost("local", "x"))))


def test_a_guest_with_an_address_of_its_own_is_reached_there(tmp_path):
    host = Machine((0, "", ""))
    SshGuest("g", "guest g", host, tmp_path, 22, "root", tmp_path / "key", "ssh-ed25519 AAAAC3", "192.0.2.7").run(
        ["true"]
    )
    assert host.commands[0][-3:] == ("--", "192.0.2.7", "true")
    assert (tmp_path / "known_hosts").read_text() == "192.0.2.7 ssh-ed25519 AAAAC3\n", "as known_hosts(5) has port 22"
