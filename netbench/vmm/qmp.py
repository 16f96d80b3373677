"""A connection by QMP, QEMU's machine protocol: to QEMU itself, or to its agent in a guest."""

import asyncio
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from qemu.qmp import QMPClient, QMPError

from netbench.errors import TestbedError

_ANSWER_S = 10.0


class QmpConnection:
    """A connection to a QMP server. Every method raises TestbedError, with the prefix `whose`, without an answer."""

    def __init__(self, whose: str, connected: socket.socket, *, greets: bool) -> None:
        """Connect over a stream socket, which is closed with this connection.

        `greets`: whether the server sends a greeting and negotiates. QEMU does, its guest agent does not.
        """
        self._whose = whose
        self._loop = asyncio.new_event_loop()
        self._client = QMPClient(whose)
        self._client.await_greeting = self._client.negotiate = greets
        try:
            self._wait(self._client.connect(connected), _ANSWER_S)
        except TestbedError:
            self._loop.close()
            connected.close()
            raise

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = _ANSWER_S) -> Any:  # noqa: ANN401 - each command has its own type
        """Return the result of a command, in QMP's types (QEMU QMP Reference Manual)."""
        return self._wait(self._client.execute(name, dict(arguments) or None), timeout_s)

    def close(self) -> None:
        """Close the connection; harmless when the server has gone, and when called twice."""
        if not self._loop.is_closed():
            with suppress(TestbedError):  # the server has gone
                self._wait(self._client.disconnect(), _ANSWER_S)
            self._loop.close()

    def _wait(self, doing: Any, timeout_s: float) -> Any:  # noqa: ANN401 - any awaitable
        try:
            return self._loop.run_until_complete(asyncio.wait_for(doing, timeout_s))
        except TimeoutError as error:
            raise TestbedError(f"{self._whose} did not answer within {timeout_s:g} s") from error
        except (QMPError, OSError, EOFError) as error:
            raise TestbedError(f"{self._whose}: {error or type(error).__name__}") from error
