"""The way into a guest that runs QEMU's guest agent (qemu-ga)."""

import time
from base64 import b64decode, b64encode
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import Ended
from netbench.hosts.qmp import QmpConnection

_POLL_S = 0.02
_PATIENCE_S = 2.0
# What a service of the guest has as PATH need not hold the tools of root.
_PATH = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class GuestAgentShell:
    """A conversation with the guest agent of one guest, over the socket at `path`."""

    def __init__(self, guest: str, path: Path) -> None:
        self._guest = guest
        self._path = path
        self._connection: QmpConnection | None = None

    def hello(self, timeout_s: float, hopeless: Callable[[], str]) -> None:
        """Return once the agent answers; TestbedError when it does not, or as soon as `hopeless` says why it cannot."""
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                # A new connection each time: what was asked before the agent listened is answered later, or never.
                self._connection = QmpConnection(f"{self._guest}: its guest agent", self._path, greets=False)
                self._connection.command("guest-ping", timeout_s=_PATIENCE_S)
                return
            except TestbedError as error:
                self.close()
                why = hopeless()
                if why:
                    raise TestbedError(why) from error
                if time.monotonic() > deadline:
                    raise TestbedError(
                        f"{self._guest}: its guest agent did not answer within {timeout_s:g} s of its start; "
                        "does the image run qemu-ga?"
                    ) from error
                time.sleep(_POLL_S)

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 20.0) -> Ended:
        """Run a command to its end (`guest-exec` of the QEMU Guest Agent Protocol Reference)."""
        deadline = time.monotonic() + timeout_s
        wanted = {"path": "/usr/bin/env", "arg": list(argv), "env": [_PATH], "capture-output": True}
        if stdin:
            wanted["input-data"] = b64encode(stdin).decode()
        pid = self._ask("guest-exec", wanted)["pid"]
        while True:
            status = self._ask("guest-exec-status", {"pid": pid})
            if status["exited"]:
                return _ended(status)
            if time.monotonic() > deadline:
                raise TestbedError(f"{self._guest}: `{' '.join(argv)}` did not end within {timeout_s:g} s")
            time.sleep(_POLL_S)

    def close(self) -> None:
        """End the conversation; harmless when called twice."""
        if self._connection is not None:
            with suppress(TestbedError):
                self._connection.close()
            self._connection = None

    def _ask(self, command: str, arguments: dict[str, object]) -> Any:  # noqa: ANN401 - QMP's own types
        if self._connection is None:
            raise TestbedError(f"{self._guest}: nobody said hello to its guest agent")
        return self._connection.command(command, arguments)


def _ended(status: dict[str, Any]) -> Ended:
    code = -int(status["signal"]) if "signal" in status else int(status["exitcode"])
    return Ended(code, b64decode(status.get("out-data", "")), b64decode(status.get("err-data", "")))
