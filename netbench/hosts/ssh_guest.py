"""A guest reached by SSH, at its own address or through a forwarded port of its machine."""

import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Completed, Host, Process, RemoteByCommand, run_checked
from netbench.hosts.clock import wait_until

SSH_PORT = 22  # the default, which known_hosts omits
_CONNECT_S = 5
_POLL_S = 0.2
_SSH_FAILED = 255  # ssh(1), EXIT STATUS
_LISTEN = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"


class SshGuest(RemoteByCommand):
    """A guest by `ssh` on its machine, over one connection that stays open; messages name it `title`.

    `directory` is for the guest's host key, the only one that is accepted, and for the socket of that connection.
    `address` is the guest's own, if it has one; then `port` is not a port of its machine.
    """

    def __init__(
        self,
        name: str,
        title: str,
        machine: Host,
        directory: Path,
        port: int,
        user: str,
        key: Path,
        host_key: str,
        address: str = "127.0.0.1",
    ) -> None:
        super().__init__(name, title)
        self._machine = machine
        # Short: ssh adds 17 characters to the name of a socket it makes, and a path has at most 107 (unix(7)).
        known, self._control = directory / "known_hosts", directory / "s"
        known.write_text(f"{address if port == SSH_PORT else f'[{address}]:{port}'} {host_key.strip()}\n")
        settings = {
            "BatchMode": "yes",
            "ConnectTimeout": str(_CONNECT_S),
            "StrictHostKeyChecking": "yes",
            "UserKnownHostsFile": str(known),
            "GlobalKnownHostsFile": "/dev/null",
            "IdentitiesOnly": "yes",
            "ControlMaster": "auto",
            "ControlPath": str(self._control),
            "ControlPersist": "yes",
            "LogLevel": "ERROR",
        }
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        self._command = ["ssh", "-F", "none", *options, "-i", str(key), "-p", str(port), f"{user}@{address}"]

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        words = ""

        def let_in() -> bool:
            nonlocal words
            done = self._machine.run([*self._command, "true"], timeout_s=limit_s + _CONNECT_S)
            if done.exit_code == 0:
                return True
            if why := hopeless():
                raise TestbedError(why)
            words = (done.stderr.strip().splitlines() or [f"exit code {done.exit_code}"])[-1]
            if "verification failed" in done.stderr:
                raise TestbedError(f"{self}: no way in by SSH: {words}")
            return False

        if not wait_until(let_in, limit_s, _POLL_S):
            raise TestbedError(f"{self}: no way in by SSH within {limit_s:g} s of its start: {words}")

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._machine.run(self._by_ssh(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code == _SSH_FAILED:
            raise TestbedError(f"{self}: SSH failed: {done.stderr.strip() or 'no message'}")
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        """Start a command; a signal ends its connection and pipes, but not the command itself."""
        return self._machine.spawn(self._by_ssh(argv))

    def close(self) -> None:
        if self._control.exists():
            self._machine.run([*self._command, "-O", "exit"])

    def _by_ssh(self, argv: Sequence[str]) -> list[str]:
        # The server passes it to a shell, so every word is quoted.
        return [*self._command, shlex.join(argv)]


def free_port(host: Host) -> int:
    """Return an unused TCP port of a host's loopback interface. The host must see this machine's files."""
    return int(run_checked(host, [sys.executable, "-I", "-c", _LISTEN]))
