"""Machines over SSH: hosts, each by one connection to netbench's code there, and guests, by one `ssh` per command.

The user's `ssh` connects to a host, so the user's keys, agents, jump hosts and known hosts apply. A guest has only the
keys that netbench gave it.
"""

import json
import math
import os
import shlex
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Completed, Host, Process, RemoteByCommand, refusal, run_checked
from netbench.hosts.clock import ClockComparison, wait_until
from netbench.hosts.guest_agent.channel import AgentChannel, NoAnswerError
from netbench.hosts.guest_agent.host import AgentHost
from netbench.hosts.pipes import Lines, Tail
from netbench.hosts.relay import piped
from netbench.hosts.remote_code import (
    SCRATCH,
    archive,
    archive_of,
    copied_module_command,
    unpack_on,
    unpacking_command,
)
from netbench.model.host_spec import SshSpec

SSH_PORT = 22  # the default, which known_hosts omits
_CONNECT_S, _CONNECT_GUEST_S = 10, 5
_READY_S = 60.0  # until netbench answers there: a slow link takes some time for a megabyte
_BEAT_S = 1.0
_STDERR_S = 1.0
_POLL_S = 0.2
_SSH_FAILED = 255  # ssh(1), EXIT STATUS
_FREE_PORT = "import socket; s = socket.socket(); s.bind(('127.0.0.1', 0)); print(s.getsockname()[1])"
_ALIVE_S = 3  # interval of ssh's own keep-alive requests, in case netbench stops sending
# Runs as root: directly, or by sudo.
_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; fi; exec sudo -n -- "$@"'
_BE_ROOT = "let that user be root, or use sudo without a password"
# Texts in the errors of ssh, or of the other end, and what to do then.
_REMEDIES = {
    "Host key verification failed": (
        "the host key is unknown, or differs from the known one: compare it, and change known_hosts (`ssh-keyscan`, "
        "`ssh-keygen -R`)"
    ),
    "Permission denied (": "the host accepts neither a key of the agent or the topology, nor the password",
    "a password is required": _BE_ROOT,
    "exec: sudo:": _BE_ROOT,
    "python3: not found": "install python3 there; `netbench hosts prepare TOPOLOGY` does it",
    "command not found": "install python3 there; `netbench hosts prepare TOPOLOGY` does it",
    "client_loop:": "its SSH connection ended before all of netbench's code was there",
}
# Messages for failures about which ssh itself printed nothing.
_WITHOUT_STDERR: Mapping[type[Exception], str] = {
    EOFError: "its SSH connection ended before netbench answered there",
    TimeoutError: f"netbench did not answer there within {_READY_S:g} s of the connection's begin",
}


def _ssh(
    address: str,
    settings: Mapping[str, str],
    *,
    user: str | None,
    port: int | None,
    key: str | None,
    known_hosts: str | None,
) -> list[str]:
    """Return an ssh command without the remote command; only known host keys are accepted, and nothing is forwarded.

    None: as configured by the user. `settings` are options of ssh_config(5).
    """
    options = {"StrictHostKeyChecking": "yes", "ClearAllForwardings": "yes", "ForwardAgent": "no", "LogLevel": "ERROR"}
    if known_hosts:
        options |= {"UserKnownHostsFile": known_hosts, "GlobalKnownHostsFile": "/dev/null"}
    if key:
        options["IdentitiesOnly"] = "yes"
    words = [word for name, value in (options | dict(settings)).items() for word in ("-o", f"{name}={value}")]
    for option, value in (("-l", user), ("-p", port), ("-i", key)):
        words += [option, str(value)] if value else []
    return ["ssh", "-T", *words, "--", address]


def ssh_command(spec: SshSpec, command: Sequence[str], askpass: Path | None = None) -> list[str]:
    """Return the command that runs a command as root on a host; `askpass`, if given, prints the password."""
    settings = {
        "BatchMode": "no" if askpass else "yes",
        "NumberOfPasswordPrompts": "1",
        "ConnectTimeout": str(_CONNECT_S),
        "ServerAliveInterval": str(_ALIVE_S),
        "ServerAliveCountMax": str(math.ceil(spec.answer_limit / _ALIVE_S) + 1),
        # A separate connection, used for nothing else.
        "ControlMaster": "no",
        "ControlPath": "none",
    }
    ssh = _ssh(spec.address, settings, user=spec.user, port=spec.ssh_port, key=spec.key, known_hosts=spec.known_hosts)
    with_password = ["env", f"SSH_ASKPASS={askpass}", "SSH_ASKPASS_REQUIRE=force"] if askpass else []
    as_root = shlex.join(["sh", "-c", _AS_ROOT, "netbench", *command])
    return [*with_password, *ssh, as_root]


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
            "ConnectTimeout": str(_CONNECT_GUEST_S),
            "ControlMaster": "auto",
            "ControlPath": str(self._control),
            "ControlPersist": "yes",
        }
        command = _ssh(address, settings, user=user, port=port, key=str(key), known_hosts=str(known))
        self._command = [*command[:1], "-F", "none", *command[1:]]

    def await_answer(self, limit_s: float, hopeless: Callable[[], str]) -> None:
        error = ""

        def connects() -> bool:
            nonlocal error
            done = self._machine.run([*self._command, "true"], timeout_s=limit_s + _CONNECT_GUEST_S)
            if done.exit_code == 0:
                return True
            if why := hopeless():
                raise TestbedError(why)
            error = _last_line(done.stderr) or f"exit code {done.exit_code}"
            if "verification failed" in done.stderr:
                raise TestbedError(f"{self}: no SSH connection: {error}")
            return False

        if not wait_until(connects, limit_s, _POLL_S):
            raise TestbedError(f"{self}: no SSH connection within {limit_s:g} s of its start: {error}")

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        done = self._machine.run(self._by_ssh(argv), stdin=stdin, timeout_s=timeout_s)
        if done.exit_code == _SSH_FAILED:
            raise refusal(f"{self}: SSH failed", done.stderr.strip() or "no message")
        return replace(done, argv=tuple(argv))

    def spawn(self, argv: Sequence[str]) -> Process:
        """Start a command; a signal ends its connection and pipes, but not the command itself."""
        return self._machine.spawn(self._by_ssh(argv))

    def close(self) -> None:
        if self._control.exists():
            self._machine.run([*self._command[:1], "-O", "exit", *self._command[1:]])

    def _by_ssh(self, argv: Sequence[str]) -> list[str]:
        # The server passes it to a shell, so every word is quoted.
        return [*self._command, shlex.join(argv)]


def free_port(host: Host) -> int:
    """Return an unused TCP port of a host's loopback interface. The host must see this machine's files."""
    return int(run_checked(host, [sys.executable, "-I", "-c", _FREE_PORT]))


class SshHost(AgentHost):
    """A machine that runs netbench's code as root. `description` is that of the machine, which the code sends first.

    The controller gives it up if it does not answer for `answer_s`. `clocks_compared`: the differences of its clocks.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        channel: AgentChannel,
        directory: str,
        description: Mapping[str, Any],
        answer_s: float,
    ) -> None:
        super().__init__(name, channel)
        self._answer_s = answer_s
        self.description = description
        self.scratch = f"{SCRATCH}{description['run']}"
        self._process = process
        self._directory = directory
        self._copied: set[str] = set()
        self.clocks_compared = ClockComparison()
        self._is_closing = threading.Event()
        self._beat = threading.Thread(target=self._compare_clocks_regularly, daemon=True)

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of netbench there; MissingError for other modules."""
        return copied_module_command(self, self._directory, module, *arguments)

    def bring(self, package: str) -> None:
        """Copy another package of this machine there, for modules of netbench; TestbedError when that fails."""
        if package in self._copied:
            return
        unpack_on(self, archive_of(package), self.scratch, self.scratch)
        # Not into that directory: it is in /run, and where systemd mounts that noexec, no library can be loaded.
        run_checked(self, ["ln", "-s", f"{self.scratch}/{package}", self._directory])
        self._copied.add(package)

    def begin(self) -> None:
        """Wait for the agent, and compare clocks regularly from then on; TestbedError when it does not answer."""
        self.await_answer(_READY_S, str)
        for _ in range(5):
            self._compare_clocks()
        self._beat.start()

    def close(self) -> None:
        self._is_closing.set()
        with suppress(TestbedError):  # the machine is gone
            self.channel.send(b"Q", 0, b"")
            wait_until(lambda: self._process.poll() is not None, self._answer_s)
        super().close()
        if self._beat.is_alive():
            self._beat.join()

    def _compare_clocks_regularly(self) -> None:
        while not self._is_closing.wait(_BEAT_S):
            try:
                self._compare_clocks()
            except NoAnswerError:
                within = f"within {self._answer_s:g} s (answer_limit)"
                self.channel.give_up(f"no answer {within}: it hangs, or cannot be reached any more")
                return
            except TestbedError:
                return  # gone; all further requests fail with the cause

    def _compare_clocks(self) -> None:
        before = time.monotonic_ns(), time.time_ns()
        remote = self.channel.clocks(self._answer_s)
        self.clocks_compared.add(before, remote, (time.monotonic_ns(), time.time_ns()))


class Connecting:
    """A connection that is being made: it copies netbench's code into a new `directory` of a machine, and starts
    `module` there with arguments. The module serves as an agent until it receives Q (quit).

    Create it in the main thread, because ssh ends with the thread that started it. Several can be made at once.
    """

    def __init__(
        self,
        name: str,
        spec: SshSpec,
        here: Host,
        directory: str,
        module: str,
        arguments: Sequence[str],
        askpass: Path | None = None,
    ) -> None:
        self._name, self._spec, self._directory = name, spec, directory
        command = ssh_command(spec, unpacking_command(directory, module, *arguments), askpass)
        process = here.spawn(command)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process, self._lines, self._stderr = process, Lines(process.stdout), Tail(process.stderr)
        process.stderr.close()  # otherwise a reader that notices its end would take its last output from there
        threading.Thread(target=_write_all, args=(process.stdin, archive()), daemon=True).start()

    def host(self) -> SshHost:
        """Return the host once it answers; MissingError when the connection fails, or the machine lacks something."""
        try:
            description = _description(self._lines.take(_READY_S))
        except (TimeoutError, EOFError, ValueError) as error:
            self.end()
            why = explained(self._stderr.text()) or _WITHOUT_STDERR.get(type(error), str(error))
            raise MissingError(f"host {self._name} ({self._spec.address}): {why}") from error
        channel = AgentChannel(f"host {self._name}", piped(self._process, self._lines.beyond))
        host = SshHost(self._name, self._process, channel, self._directory, description, self._spec.answer_limit)
        try:
            host.begin()
        except BaseException:  # Ctrl-C too
            host.close()
            raise
        return host

    def death(self) -> str:
        """Return why the connection ended; empty while it has not."""
        if self._process.poll() is None:
            return ""
        error = _last_line(self._stderr.text(_STDERR_S))
        return f"host {self._name}: its SSH connection ended: {error or 'closed at its end'}"

    def end(self) -> None:
        """End the connection; harmless when it has ended."""
        self._process.kill()
        self._process.wait()
        self._stderr.text(_STDERR_S)


def _write_all(pipe: IO[str], data: bytes) -> None:
    with suppress(OSError, ValueError):  # it has ended, or was given up, which the missing answer shows
        view = memoryview(data)
        while view:
            view = view[os.write(pipe.fileno(), view) :]


def _description(line: bytes) -> Mapping[str, Any]:
    with suppress(ValueError):  # text that is not JSON is reported below
        description = json.loads(line)
        if isinstance(description, dict):
            return description
    text = line[:80].decode(errors="replace").strip()
    raise ValueError(f"the login shell of that user printed {text!r} first: let it print nothing")


def explained(stderr: str) -> str:
    """Return the error of ssh, or of the other end, with a remedy."""
    remedies = [remedy for text, remedy in _REMEDIES.items() if text in stderr]
    return ": ".join([_last_line(stderr), *remedies[:1]]) if stderr.strip() else ""


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
