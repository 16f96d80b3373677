"""A byte stream to a Unix socket on a host, or to a command's pipes, as a socket of this machine.

A program on the host relays the data. `ssh -L` would be no replacement: netbench's VMs have no SSH server, and on a
host over SSH root's sockets are out of reach for a user who becomes root by sudo.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.pipes import Lines, end

_PIECE_BYTES = 1 << 16
_ANSWER_S = 20.0  # enough for Python to start, even on an emulated CPU
_CONNECTED = "connected"
# The relay on a host that is not this machine; it works without netbench there.
_PROGRAM = f"""
import os, select, socket, sys
remote = socket.socket(socket.AF_UNIX)
try:
    remote.connect(sys.argv[1])
except OSError as error:
    sys.exit(error.strerror)
print("{_CONNECTED}", flush=True)
while True:
    for ready in select.select([0, remote], [], [])[0]:
        data = os.read(0 if ready == 0 else remote.fileno(), {_PIECE_BYTES})
        if not data:
            sys.exit()
        if ready == 0:
            remote.sendall(data)
        while ready != 0 and data:
            data = data[os.write(1, data):]
"""


def connect(host: Host, path: str) -> socket.socket:
    """Return a connection to the Unix socket at `path` on a host; TestbedError when no process listens there."""
    if not host.shares_files:
        return piped(*_relay(host, path))
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        raise TestbedError(f"{host}: {path} cannot be reached: {error.strerror}") from error
    return connection


@contextmanager
def within_reach(host: Host, path: str) -> Iterator[str]:
    """Yield a path on this machine for the Unix socket at `path` on a host, for clients that need one: one connection.

    The connection is made in the block, and may outlive it. TestbedError when no process listens there.
    """
    if host.shares_files:
        yield path
        return
    with TemporaryDirectory(prefix="netbench-") as directory, closing(socket.socket(socket.AF_UNIX)) as listening:
        near = Path(directory, "s")
        listening.bind(str(near))
        listening.listen(1)
        process, already_read = _relay(host, path)

        accepting = threading.Thread(target=lambda: _carry(listening.accept()[0], process, already_read), daemon=True)
        accepting.start()
        try:
            yield str(near)
        finally:
            # Ends the wait if no client has connected; a client that has is earlier in the queue.
            with closing(socket.socket(socket.AF_UNIX)) as last:
                last.connect(str(near))
            accepting.join()


def piped(process: Process, already_read: bytes = b"") -> socket.socket:
    """Return the pipes of a process as a socket; closing the socket kills the process."""
    ours, theirs = socket.socketpair()
    _carry(theirs, process, already_read)
    return ours


def _carry(theirs: socket.socket, process: Process, already_read: bytes) -> None:
    """Relay data between a socket and a process, in both directions, until either ends."""

    def write() -> None:
        assert process.stdin is not None
        with suppress(OSError, ValueError):  # it has ended, or its pipes are closed
            while data := theirs.recv(_PIECE_BYTES):
                while data:
                    data = data[os.write(process.stdin.fileno(), data) :]
        process.kill()

    def read() -> None:
        assert process.stdout is not None
        with suppress(OSError, ValueError):  # the socket is closed, or the pipes are
            data = already_read or os.read(process.stdout.fileno(), _PIECE_BYTES)
            while data:
                theirs.sendall(data)
                data = os.read(process.stdout.fileno(), _PIECE_BYTES)
        with suppress(OSError):  # closed at the other end
            theirs.shutdown(socket.SHUT_RDWR)
        writer.join()
        end(process)
        theirs.close()

    # Daemon threads, so that netbench can end even if the other end of a pipe stays open.
    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    threading.Thread(target=read, daemon=True).start()


def _relay(host: Host, path: str) -> tuple[Process, bytes]:
    """Return the connected relay process on a host, and the data read from it so far."""
    process = host.spawn(["python3", "-I", "-S", "-c", _PROGRAM, path])
    assert process.stdout is not None
    lines = Lines(process.stdout)
    try:
        connected = lines.take(_ANSWER_S) == _CONNECTED.encode()
    except (TimeoutError, EOFError, ValueError):
        connected = False
    if not connected:
        raise TestbedError(f"{host}: {path} cannot be reached: {end(process).strip() or 'no answer'}")
    return process, lines.beyond
