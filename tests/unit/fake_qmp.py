"""A small server of QEMU's protocol on a socket: its monitor, or an agent in a guest."""

import json
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

GREETING = {"QMP": {"version": {"qemu": {"major": 7, "minor": 2, "micro": 0}, "package": ""}, "capabilities": []}}
Answer = Callable[[str, Mapping[str, Any]], Any]


class Refusal(Exception):
    """An error as the answer."""


class FakeQmp:
    """Answers each command, on any number of successive connections, until it is closed.

    `greets`: it sends a greeting and takes `qmp_capabilities`, as QEMU does and its guest agent does not.
    """

    def __init__(self, path: Path, answer: Answer, *, greets: bool) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.connections = 0
        self._answer = answer
        self._greets = greets
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        with suppress(OSError):  # it was closed before
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(20)

    def _serve(self) -> None:
        with suppress(OSError):  # close() has shut the listener
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                with connection, suppress(OSError):  # the client has gone
                    if self._greets:
                        _say(connection, GREETING)
                    for asked in _texts(connection):
                        _say(connection, self._reply(asked))

    def _reply(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        name, arguments = asked["execute"], asked.get("arguments", {})
        number = {"id": asked["id"]} if "id" in asked else {}
        if name == "qmp_capabilities":
            return {"return": {}, **number}
        self.asked.append((name, dict(arguments)))
        try:
            return {"return": self._answer(name, arguments), **number}
        except Refusal as refusal:
            return {"error": {"class": "GenericError", "desc": str(refusal)}, **number}


def _texts(connection: socket.socket) -> Iterator[dict[str, Any]]:
    """Yield the commands; nothing separates one from the next."""
    text = ""
    while data := connection.recv(4096):
        text += data.decode()
        while text.strip():
            try:
                asked, end = json.JSONDecoder().raw_decode(text)
            except ValueError:
                break  # in the middle of a command
            text = text[end:].lstrip()
            yield asked


def _say(connection: socket.socket, what: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(what).encode() + b"\n")
