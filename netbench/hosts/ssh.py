"""Another machine over SSH: one connection while the host is in use, with netbench's code at the other end.

The user's `ssh` makes the connection, so the user's keys, agents, jump hosts and known hosts apply.
"""

import json
import math
import os
import shlex
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from netbench.errors import MissingError, TestbedError
from netbench.hosts.agent.channel import AgentChannel, NoAnswerError
from netbench.hosts.agent.host import AgentHost
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.clock import Differences, wait_until
from netbench.hosts.code import SCRATCH, archive, archive_of, brought_module_command, unpack_on, unpacking_command
from netbench.hosts.lines import Lines, Tail
from netbench.hosts.relay import piped
from netbench.model.distributions import ClockDifference
from netbench.model.host_spec import SshSpec

_CONNECT_S = 10
_READY_S = 60.0  # until netbench answers there: a slow link takes some time for a megabyte
_BEAT_S = 1.0
_WORDS_S = 1.0
_ALIVE_S = 3  # interval of ssh's own keep-alive requests, in case netbench stops sending
# Runs as root: directly, or by sudo.
_AS_ROOT = 'if [ "$(id -u)" = 0 ]; then exec "$@"; fi; exec sudo -n -- "$@"'
_BE_ROOT = "let that user be root, or use sudo without a password"
_EXPLAINED = {
    "Host key verification failed": (
        "its host key is not among those that are known, or another one: compare it, and change known_hosts "
        "(`ssh-keyscan`, `ssh-keygen -R`)"
    ),
    "Permission denied (": "no key that the agent or the topology offers is accepted there, or the password is wrong",
    "a password is required": _BE_ROOT,
    "exec: sudo:": _BE_ROOT,
    "python3: not found": "install python3 there; `netbench hosts prepare TOPOLOGY` does it",
    "command not found": "install python3 there; `netbench hosts prepare TOPOLOGY` does it",
    "client_loop:": "its SSH connection ended before all of netbench's code was there",
}
# Messages for failures about which ssh itself printed nothing.
_NOT_TOLD: Mapping[type[Exception], str] = {
    EOFError: "its SSH connection ended before netbench answered there",
    TimeoutError: f"netbench did not answer there within {_READY_S:g} s of the connection's begin",
}


def ssh_command(spec: SshSpec, command: Sequence[str], askpass: Path | None = None) -> list[str]:
    """Return the command that runs a command as root on a machine; `askpass`, if given, prints the password."""
    settings = {
        "BatchMode": "no" if askpass else "yes",
        "NumberOfPasswordPrompts": "1",
        "StrictHostKeyChecking": "yes",
        "ConnectTimeout": str(_CONNECT_S),
        "ServerAliveInterval": str(_ALIVE_S),
        "ServerAliveCountMax": str(math.ceil(spec.answer_limit / _ALIVE_S) + 1),
        # A separate connection, used for nothing else.
        "ControlMaster": "no",
        "ControlPath": "none",
        "ClearAllForwardings": "yes",
        "ForwardAgent": "no",
        "LogLevel": "ERROR",
    }
    if spec.known_hosts:
        settings |= {"UserKnownHostsFile": spec.known_hosts, "GlobalKnownHostsFile": "/dev/null"}
    if spec.key:
        settings["IdentitiesOnly"] = "yes"
    words = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    for option, value in (("-l", spec.user), ("-p", spec.ssh_port), ("-i", spec.key)):
        words += [option, str(value)] if value else []
    way = ["env", f"SSH_ASKPASS={askpass}", "SSH_ASKPASS_REQUIRE=force"] if askpass else []
    as_root = shlex.join(["sh", "-c", _AS_ROOT, "netbench", *command])
    return [*way, "ssh", "-T", *words, "--", spec.address, as_root]


class SshHost(AgentHost):
    """A machine that runs netbench's code as root. `told` is its description of the machine at the start.

    The controller gives it up if it does not answer for `answer_s`.
    """

    def __init__(
        self,
        name: str,
        process: Process,
        channel: AgentChannel,
        directory: str,
        told: Mapping[str, Any],
        answer_s: float,
    ) -> None:
        super().__init__(name, channel)
        self._answer_s = answer_s
        self.told = told
        self.scratch = f"{SCRATCH}{told['run']}"
        self._process = process
        self._directory = directory
        self._brought: set[str] = set()
        self._differences = Differences()
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._keep_in_touch, daemon=True)

    def module_command(self, module: str, *arguments: str) -> list[str]:
        """Return the command that runs a module of netbench there; MissingError for other modules."""
        return brought_module_command(self, self._directory, module, *arguments)

    def bring(self, package: str) -> None:
        """Copy another package of this machine there, for modules of netbench; TestbedError when that fails."""
        if package in self._brought:
            return
        unpack_on(self, archive_of(package), self.scratch, self.scratch)
        # Not into that directory: it is in /run, and where systemd mounts that noexec, no library can be loaded.
        run_checked(self, ["ln", "-s", f"{self.scratch}/{package}", self._directory])
        self._brought.add(package)

    @property
    def given_up(self) -> str:
        """Why it was given up although its connection had not ended by itself; else empty."""
        return self._channel.given_up

    def ask(self, kind: bytes, body: bytes) -> bytes:
        """Return the answer to a message of a kind that only its program supports, not every agent."""
        return self._channel.ask(kind, body)

    @property
    def monotonic(self) -> ClockDifference:
        """CLOCK_MONOTONIC there minus that of this machine, from the last answers."""
        return self._differences.monotonic

    @property
    def realtime(self) -> ClockDifference:
        """CLOCK_REALTIME there minus that of this machine, likewise."""
        return self._differences.realtime

    def begin(self) -> None:
        """Wait for the agent, and compare clocks regularly from then on; TestbedError when it does not answer."""
        self.await_answer(_READY_S, str)
        for _ in range(5):
            self._compare_clocks()
        self._beat.start()

    def close(self) -> None:
        self._ended.set()
        with suppress(TestbedError):  # the machine is gone
            self._channel.send(b"Q", 0, b"")
            wait_until(lambda: self._process.poll() is not None, self._answer_s)
        super().close()
        if self._beat.is_alive():
            self._beat.join()

    def _keep_in_touch(self) -> None:
        while not self._ended.wait(_BEAT_S):
            try:
                self._compare_clocks()
            except NoAnswerError:
                within = f"within {self._answer_s:g} s (answer_limit)"
                self._channel.give_up(f"no answer {within}: it hangs, or cannot be reached any more")
                return
            except TestbedError:
                return  # gone; all further requests fail with the cause

    def _compare_clocks(self) -> None:
        before = time.monotonic_ns(), time.time_ns()
        there = self._channel.clocks(self._answer_s)
        after = time.monotonic_ns(), time.time_ns()
        self._differences.add(before, there, after)


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
        self._process, self._lines, self._words = process, Lines(process.stdout), Tail(process.stderr)
        process.stderr.close()  # otherwise a reader that notices its end would take its last output from there
        threading.Thread(target=_bring, args=(process.stdin, archive()), daemon=True).start()

    def host(self) -> SshHost:
        """Return the host once it answers; MissingError when the connection fails, or the machine lacks something."""
        try:
            told = _told(self._lines.take(_READY_S))
        except (TimeoutError, EOFError, ValueError) as error:
            self.end()
            otherwise = _NOT_TOLD.get(type(error), str(error))
            raise MissingError(
                f"host {self._name} ({self._spec.address}): {explained(self._words.text()) or otherwise}"
            ) from error
        channel = AgentChannel(f"host {self._name}", piped(self._process, self._lines.beyond))
        host = SshHost(self._name, self._process, channel, self._directory, told, self._spec.answer_limit)
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
        words = _last_line(self._words.text(_WORDS_S))
        return f"host {self._name}: its SSH connection ended: {words or 'closed at its end'}"

    def end(self) -> None:
        """End the connection; harmless when it has ended."""
        self._process.kill()
        self._process.wait()
        self._words.text(_WORDS_S)


def _bring(pipe: IO[str], data: bytes) -> None:
    with suppress(OSError, ValueError):  # it has ended, or was given up, which the missing answer shows
        view = memoryview(data)
        while view:
            view = view[os.write(pipe.fileno(), view) :]


def _told(line: bytes) -> Mapping[str, Any]:
    with suppress(ValueError):  # text that is not JSON is reported below
        description = json.loads(line)
        if isinstance(description, dict):
            return description
    words = line[:80].decode(errors="replace").strip()
    raise ValueError(f"it said {words!r} first: let the shell of that user print nothing of its own")


def explained(said: str) -> str:
    """Return the message of ssh, or of the other end, with a remedy."""
    hints = [hint for words, hint in _EXPLAINED.items() if words in said]
    return ": ".join([_last_line(said), *hints[:1]]) if said.strip() else ""


def _last_line(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""
