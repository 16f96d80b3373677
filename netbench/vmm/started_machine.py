"""The common part of guests under QEMU, with and without libvirt: agent connection and console."""

import re
import socket
from pathlib import Path
from typing import IO

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.pipes import Tail
from netbench.hosts.relay import connect
from netbench.vmm.qemu_command import RunFiles

LAST_WORDS_S = 1.0
# Messages of a kernel that gives up, and of /init about an agent that does not run. If the agent uses the same console,
# its own message may be in the line before.
_TROUBLE = re.compile(r"(\[ *[0-9.]+\] )?(Kernel panic|netbench-guest: error: (the agent|this guest)).*")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x20-\x7e\t]")


def plain(console: str) -> str:
    """Return a guest's console output without colours, cursor movements and empty lines."""
    return "".join(f"{line}\n" for line in (_NOISE.sub("", line).rstrip() for line in console.splitlines()) if line)


def trouble_in(console: str) -> str:
    """Return the first line that explains why a guest will never answer; empty without such a line."""
    return next((match[0] for line in console.splitlines() if (match := _TROUBLE.search(line))), "")


class StartedMachine:
    """One guest under QEMU, from its start to stop()."""

    def __init__(self, name: str, files: RunFiles) -> None:
        self._name = name
        self._files = files
        self._console: Tail | None = None
        self._host: Host | None = None  # where it was started

    @property
    def guest(self) -> str:
        """Its name in messages."""
        return f"guest {self._name}"

    def death(self) -> str:
        """Return how it ended, with its last output; empty while it runs."""
        raise NotImplementedError

    def death_just_now(self) -> str:
        """Return `death` after a sign of it was seen: waits a moment for QEMU to end."""
        raise NotImplementedError

    def trouble(self) -> str:
        """Return why the guest does not run: it has ended, is paused or has crashed; empty if it runs."""
        raise NotImplementedError

    def set_link(self, number: int, *, up: bool) -> None:
        """Switch the carrier of its NIC `number`, from 0, on or off; TestbedError where that is not supported."""
        raise TestbedError(f"{self.guest}: nobody can take the carrier from its NICs")

    def cpu_s(self) -> float:
        """Return the CPU time it has used on this machine, in seconds, kernel and user."""
        raise NotImplementedError

    def memory_bytes(self) -> int | None:
        """Return the memory of QEMU on this machine, including the guest memory that was ever used."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it at once; harmless when it has ended or was never started."""
        raise NotImplementedError

    def connect(self) -> socket.socket:
        """Return a connection to the socket behind the guest's agent port."""
        return self.connected(self._files.channel, "channel")

    def connected(self, path: Path, what: str) -> socket.socket:
        """Return a connection to one of its sockets; TestbedError when that fails."""
        assert self._host is not None, "start() comes first"
        try:
            return connect(self._host, str(path))
        except TestbedError as error:
            self.require_alive()
            raise TestbedError(f"{self.guest}: its {what}: {error}") from error

    def hopeless(self) -> str:
        """Return why the guest will never answer: how QEMU ended, or the guest's failure; empty while it still may."""
        trouble = trouble_in(self.console())
        return self.death() or (f"{self.guest}: {trouble}" if trouble else "")

    def require_alive(self) -> None:
        """Raise TestbedError when it has ended."""
        death = self.death()
        if death:
            raise TestbedError(death)

    def read_console(self, source: IO[str] | socket.socket) -> None:
        """Start reading the guest's console output."""
        self._console = Tail(source)

    def console(self) -> str:
        """Return the guest's console output without colours and cursor movements."""
        if self._console is None:
            return ""
        return plain(self._console.text(LAST_WORDS_S if self._console_ends() else 0.0))

    def words_of_guest(self) -> str:
        """Return the last failure message on its console, else the last line."""
        console = self.console().splitlines()
        trouble = [match[0] for line in console if (match := _TROUBLE.search(line))]
        return next((lines[-1] for lines in (trouble, console) if lines), "")

    def _console_ends(self) -> bool:
        """Return whether the console has no writer any more."""
        return False
