"""The way into a guest that runs an SSH server, through a port of the host that QEMU forwards to it."""

import shlex
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import Ended
from netbench.hosts.base import Host, run_checked

_CONNECT_S = 5
_POLL_S = 0.2
_SSH_FAILED = 255  # ssh(1), EXIT STATUS
_LISTEN = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"


class SshShell:
    """Commands in one guest by `ssh`, over one connection that is kept.

    `directory` is for the guest's host key, the only one that is accepted, and the socket of that connection.
    """

    def __init__(self, guest: str, host: Host, directory: Path, port: int, user: str, key: Path, host_key: str) -> None:
        self._guest = guest
        self._host = host
        # Short: ssh adds 17 characters to the name of a socket it makes, and a path has at most 107 (unix(7)).
        known, self._control = directory / "known_hosts", directory / "s"
        known.write_text(f"[127.0.0.1]:{port} {host_key.strip()}\n")
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
        self._command = ["ssh", "-F", "none", *options, "-i", str(key), "-p", str(port), f"{user}@127.0.0.1"]

    def hello(self, timeout_s: float, hopeless: Callable[[], str]) -> None:
        """Return once the guest lets us in; TestbedError when it does not, or as soon as `hopeless` says why."""
        deadline = time.monotonic() + timeout_s
        while True:
            done = self._host.run([*self._command, "true"], timeout_s=timeout_s + _CONNECT_S)
            if done.exit_code == 0:
                return
            why = hopeless()
            if why:
                raise TestbedError(why)
            words = done.stderr.strip().splitlines()
            untrusted = any("verification failed" in line for line in words)
            if untrusted or time.monotonic() > deadline:
                last = words[-1] if words else f"exit code {done.exit_code}"
                raise TestbedError(f"{self._guest}: no way in by SSH within {timeout_s:g} s of its start: {last}")
            time.sleep(_POLL_S)

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 20.0) -> Ended:
        """Run a command to its end. The server gives it to a shell, for which every word is quoted."""
        done = self._host.run([*self._command, shlex.join(argv)], stdin=stdin.decode(), timeout_s=timeout_s)
        if done.exit_code == _SSH_FAILED:
            raise TestbedError(f"{self._guest}: SSH failed: {done.stderr.strip() or 'no message'}")
        return Ended(done.exit_code, done.stdout.encode(), done.stderr.encode())

    def close(self) -> None:
        """End the kept connection; harmless when there is none."""
        if self._control.exists():
            self._host.run([*self._command, "-O", "exit"])


def free_port(host: Host) -> int:
    """A TCP port of a host's loopback interface that nobody listens on. The host must see this machine's files."""
    return int(run_checked(host, [sys.executable, "-c", _LISTEN]))
