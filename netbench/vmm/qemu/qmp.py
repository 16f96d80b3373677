"""A guest reached through QEMU's guest agent (qemu-ga) inside it."""

import asyncio
import socket
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from qemu.qmp import QMPClient, QMPError

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, RemoteByCommand
from netbench.hosts.clock import wait_until
from netbench.model.foreign_text import decoded, encoded

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


_POLL_S = 0.02
_PING_S = 2.0
# PATH of a service in the guest may lack root's tools.
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class AgentConnection(Protocol):
    """A connection to the agent of one guest; both methods raise TestbedError without an answer."""

    def command(self, name: str, arguments: Mapping[str, object] = {}, timeout_s: float = 10.0) -> Any:  # noqa: ANN401 - each command has its own type
        """Return the result of a command, in QMP's types."""

    def close(self) -> None:
        """Close the connection; harmless when called twice."""


class GuestAgentHost(RemoteByCommand):
    """A guest whose agent `connect` connects to; messages name it `title`."""

    def __init__(self, name: str, title: str, connect: Callable[[], AgentConnection]) -> None:
        super().__init__(name, title)
        self._connect = connect
        self._connection: AgentConnection | None = None

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        if not wait_until(lambda: self._answers(hopeless), limit_s, _POLL_S):
            raise TestbedError(
                f"{self}: its guest agent did not answer within {limit_s:g} s of its start; does the image run qemu-ga?"
            )

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end (`guest-exec` of the QEMU Guest Agent Protocol Reference)."""
        wanted: dict[str, object] = {"path": "/usr/bin/env", "arg": list(argv), "env": [_PATH], "capture-output": True}
        if stdin:
            wanted["input-data"] = b64encode(encoded(stdin)).decode()
        try:
            return self._run(argv, wanted, timeout_s)
        except (LookupError, TypeError, ValueError) as error:
            raise TestbedError(f"{self}: its guest agent's answer makes no sense: {error!r}") from error

    def _run(self, argv: Sequence[str], wanted: dict[str, object], timeout_s: float) -> Completed:
        pid = self._ask("guest-exec", wanted)["pid"]
        status: dict[str, Any] = {}

        def exited() -> bool:
            status.update(self._ask("guest-exec-status", {"pid": pid}))
            return bool(status["exited"])

        if not wait_until(exited, timeout_s, _POLL_S):
            raise TestbedError(f"{self}: `{' '.join(argv)}` did not end within {timeout_s:g} s")
        code = -int(status["signal"]) if "signal" in status else int(status["exitcode"])
        return Completed(tuple(argv), code, _text(status.get("out-data", "")), _text(status.get("err-data", "")))

    def spawn(self, argv: Sequence[str]) -> NoReturn:
        """Raise TestbedError: the agent's protocol does not support interaction with a running command."""
        raise TestbedError(f"{self}: its guest agent cannot talk with `{argv[0]}` while it runs; use the channel `ssh`")

    def close(self) -> None:
        if self._connection is not None:
            with suppress(TestbedError):  # the guest has gone
                self._connection.close()
            self._connection = None

    def _answers(self, hopeless: Callable[[], str]) -> bool:
        try:
            # A new connection each time: a request sent before the agent listens is answered late, or never.
            self._connection = self._connect()
            self._connection.command("guest-ping", timeout_s=_PING_S)
        except TestbedError as error:
            self.close()
            if why := hopeless():
                raise TestbedError(why) from error
            return False
        return True

    def _ask(self, command: str, arguments: dict[str, object]) -> Any:  # noqa: ANN401 - QMP's own types
        if self._connection is None:
            raise TestbedError(f"{self}: its guest agent was not waited for")
        return self._connection.command(command, arguments)


def _text(data: str) -> str:
    return decoded(b64decode(data))
