"""A web server of known behaviour, which truth and tests of tools are taken from; it imports the standard library only.

`known_server ADDRESS PORT BEHAVIOUR`: the behaviour is JSON. Requests are numbered from 1 as they arrive. One of
`every` requests has the `fault`; the others are answered after `delay_s`. `stall_from_s` and `stall_s`: so long after
the first request, nothing is answered for so long. `serial_s`: requests are answered one after the other, each of them
so long after the one before.
"""

import itertools
import json
import socket
import struct
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any

HEAD = "HTTP/1.1 {} Known\r\nServer: known/1\r\nContent-Length: {}\r\n\r\n"
BODY = b"x" * 100
_SILENT_S = 60.0


class KnownServer:
    """The requests so far, and when the next one may be answered."""

    def __init__(self, behaviour: Mapping[str, Any]) -> None:
        self.behaviour = behaviour
        self.numbers = itertools.count(1)
        self.lock = threading.Lock()
        self.first_s = self.free_s = 0.0

    def serve(self, connection: socket.socket) -> None:
        """Answer the requests of a connection until it ends."""
        with connection:
            try:
                while self.has_request(connection) and self.answered(connection, self.arrival()):
                    pass
            except OSError:
                return

    @staticmethod
    def has_request(connection: socket.socket) -> bool:
        """Receive a request; return False where the connection ends instead."""
        received = b""
        while not received.endswith(b"\r\n\r\n"):
            piece = connection.recv(4096)
            if not piece:
                return False
            received += piece
        return True

    def arrival(self) -> int:
        """Return the number of a request, after waiting until it is to be answered."""
        wanted, now = self.behaviour, time.monotonic()
        with self.lock:
            number = next(self.numbers)
            self.first_s = self.first_s or now
            answer_s = self.free_s = max(now, self.free_s) + wanted.get("serial_s", 0.0)
        answer_s += wanted.get("delay_s", 0.0)
        since_s = now - self.first_s - wanted.get("stall_from_s", 1e9)
        if 0 <= since_s < wanted.get("stall_s", 0.0):
            answer_s = now + wanted["stall_s"] - since_s
        if wanted.get("fault") == "slow" and number % wanted["every"] == 0:
            answer_s += wanted["slow_s"]
        time.sleep(max(0.0, answer_s - time.monotonic()))
        return number

    def answered(self, connection: socket.socket, number: int) -> bool:
        """Answer a request; return whether the connection goes on."""
        fault = self.behaviour.get("fault") if number % self.behaviour.get("every", 1) == 0 else None
        if fault == "closed":
            return False
        if fault == "reset":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            return False
        if fault == "silent":
            time.sleep(_SILENT_S)
        if fault == "malformed":
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            return True
        if fault == "short":
            connection.sendall(HEAD.format(200, 2 * len(BODY)).encode() + BODY)
            return False
        if fault == "dribble":  # a byte at a time
            for byte in HEAD.format(200, len(BODY)).encode() + BODY:
                connection.sendall(bytes([byte]))
            return True
        status = 500 if fault == "status" else 200
        connection.sendall(HEAD.format(status, len(BODY)).encode() + BODY)
        return True


def main() -> None:
    """Serve until killed."""
    address, port, behaviour = sys.argv[1:]
    server = KnownServer(json.loads(behaviour))
    with socket.create_server((address, int(port)), backlog=4096) as listener:
        while True:
            connection, _ = listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=server.serve, args=(connection,), daemon=True).start()


if __name__ == "__main__":
    main()
