"""A socket of a host, reached from another machine: here by the very program that runs there."""

import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from netbench.errors import TestbedError
from netbench.hosts.clock import wait_until
from netbench.hosts.local import LocalHost
from netbench.hosts.relay import connect, piped, within_reach

HERE = LocalHost("here", "no-run")


class Elsewhere(LocalHost):
    """This machine, as if it were another one, with the processes started there."""

    def __init__(self) -> None:
        super().__init__("there", "no-run")
        self.started: list[subprocess.Popen[str]] = []

    @property
    def shares_files(self) -> bool:
        return False

    def spawn(self, argv):
        self.started.append(super().spawn(argv))
        return self.started[-1]


@pytest.fixture(params=[LocalHost("here", "no-run"), Elsewhere()], ids=["here", "elsewhere"])
def host(request):
    return request.param


@pytest.fixture
def server(tmp_path):
    """A server that greets each client, and returns its data reversed until that ends."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(tmp_path / "socket"))
    listening.listen()

    def serve():
        with listening, listening.accept()[0] as connection:
            connection.sendall(b"welcome\n")
            with suppress(ConnectionResetError):  # the client left without reading it
                while data := connection.recv(1 << 16):
                    connection.sendall(data[::-1])

    thread = threading.Thread(target=serve)
    thread.start()
    yield tmp_path / "socket"
    thread.join(20)
    assert not thread.is_alive(), "it did not notice the end"


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (piece := connection.recv(size - len(data))):
        data += piece
    return data


def test_bytes_go_both_ways_whole_and_the_end_is_reported(host, server):
    every_byte = bytes(range(256)) * 8
    with connect(host, str(server)) as connection:
        connection.settimeout(20)
        assert received(connection, 8) == b"welcome\n"
        connection.sendall(every_byte)
        assert sorted(received(connection, len(every_byte))) == sorted(every_byte)


def test_a_process_whose_end_another_thread_has_seen_meanwhile_can_be_killed(monkeypatch):
    process = HERE.spawn(["true"])
    process.wait(20)
    monkeypatch.setattr(process, "poll", lambda: None)  # as it was a moment ago
    process.kill()


def test_who_insists_on_a_file_has_one_as_long_as_it_is_opened(host, server):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        with within_reach(host, str(server)) as near:
            assert (near == str(server)) == host.shares_files
            connection.connect(near)
        assert Path(near).exists() == host.shares_files
        assert received(connection, 8) == b"welcome\n"
        connection.sendall(b"later")
        assert sorted(received(connection, 5)) == sorted(b"later")


def test_who_has_connected_is_served_though_the_file_goes_at_once(tmp_path):
    """The block is left before the connection is accepted: ten times, as the outcome depends on scheduling."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "socket"))
        listening.listen()
        for _ in range(10):
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(20)
                with within_reach(Elsewhere(), str(tmp_path / "socket")) as near:
                    connection.connect(near)
                with listening.accept()[0] as there:
                    there.sendall(b"welcome\n")
                    assert received(connection, 8) == b"welcome\n"


@pytest.mark.parametrize("is_opened", [False, True], ids=["a file that no one opens", "a socket that is closed"])
def test_nothing_runs_on_without_its_file_or_socket(server, is_opened):
    host = Elsewhere()
    if is_opened:
        connect(host, str(server)).close()
    else:
        with within_reach(host, str(server)) as near:
            assert Path(near).exists()
    assert wait_until(lambda: host.started[0].poll() is not None, 20, 0.01)


@pytest.mark.parametrize("name", ["missing", "x" * 200])
def test_a_socket_that_no_one_listens_at_is_named(host, tmp_path, name):
    with pytest.raises(TestbedError, match=f"^host t?here: .*{name} cannot be reached: ."):
        connect(host, str(tmp_path / name))


def test_the_socket_ends_with_the_process_it_stands_for():
    with piped(HERE.spawn(["sh", "-c", "read line; echo got $line"])) as connection:
        connection.settimeout(20)
        connection.sendall(b"this\n")
        assert received(connection, 100) == b"got this\n"


def test_a_process_that_does_not_read_is_killed_with_its_socket():
    process = HERE.spawn(["sleep", "600"])
    began_s = time.monotonic()
    piped(process).close()
    assert wait_until(lambda: process.poll() is not None, 20, 0.01)
    assert time.monotonic() - began_s < 20
