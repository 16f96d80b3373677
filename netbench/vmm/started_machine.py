"""What is the same of a guest under QEMU, whoever started it: the way to its agent, and what its console says."""

import re
import socket
from pathlib import Path
from typing import IO

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.lines import Tail
from netbench.hosts.relay import connect
from netbench.vmm.qemu_command import RunFiles

LAST_WORDS_S = 1.0
# What a kernel says when it gives up, and what /init says of an agent that does not run; in the line before it there
# may be what the agent says, where that is another way to the same console.
_TROUBLE = re.compile(r"(\[ *[0-9.]+\] )?(Kernel panic|netbench-guest: error: (the agent|this guest)).*")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[^\x20-\x7e\t]")


def plain(console: str) -> str:
    """What a guest wrote to its console, without colours, cursor movements and empty lines."""
    return "".join(f"{line}\n" for line in (_NOISE.sub("", line).rstrip() for line in console.splitlines()) if line)


def trouble_in(console: str) -> str:
    """The first line that says why a guest will never answer; empty where there is none."""
    return next((found[0] for line in console.splitlines() if (found := _TROUBLE.search(line))), "")


class StartedMachine:
    """One guest under QEMU, from its start to stop()."""

    def __init__(self, name: str, files: RunFiles) -> None:
        self._name = name
        self._files = files
        self._console: Tail | None = None
        self._host: Host | None = None  # where it was started

    @property
    def guest(self) -> str:
        """How messages call it."""
        return f"guest {self._name}"

    def death(self) -> str:
        """How it ended, with its last words; empty while it runs."""
        raise NotImplementedError

    def death_just_now(self) -> str:
        """As `death`, for somebody who has seen a sign of it: QEMU may take a moment to end."""
        raise NotImplementedError

    def trouble(self) -> str:
        """Why the guest is not at work: it has ended, is paused or has crashed; empty while it is."""
        raise NotImplementedError

    def set_link(self, number: int, *, up: bool) -> None:
        """Take the carrier from its NIC of this number, from 0, or give it back; TestbedError where nobody does."""
        raise TestbedError(f"{self.guest}: nobody can take the carrier from its NICs")

    def cpu_s(self) -> float:
        """CPU time it has used on this machine, in seconds, kernel and user."""
        raise NotImplementedError

    def memory_bytes(self) -> int | None:
        """Memory that QEMU takes of this machine, that of its guest included as far as it was ever used."""
        raise NotImplementedError

    def stop(self) -> None:
        """End it at once; harmless when it has ended or was never started."""
        raise NotImplementedError

    def connect(self) -> socket.socket:
        """A connection to the socket behind the guest's agent port."""
        return self.connected(self._files.channel, "channel")

    def connected(self, path: Path, what: str) -> socket.socket:
        """A connection to one of its sockets; TestbedError when it cannot be reached."""
        assert self._host is not None, "start() comes first"
        try:
            return connect(self._host, str(path))
        except TestbedError as error:
            self.require_alive()
            raise TestbedError(f"{self.guest}: its {what}: {error}") from error

    def hopeless(self) -> str:
        """Why the guest will never answer: how QEMU ended, or what went wrong in the guest; empty while it may."""
        trouble = trouble_in(self.console())
        return self.death() or (f"{self.guest}: {trouble}" if trouble else "")

    def require_alive(self) -> None:
        """TestbedError when it has ended."""
        death = self.death()
        if death:
            raise TestbedError(death)

    def read_console(self, source: IO[str] | socket.socket) -> None:
        """Read from now on what the guest writes to its console."""
        self._console = Tail(source)

    def console(self) -> str:
        """What the guest wrote to its console, without colours and cursor movements."""
        if self._console is None:
            return ""
        return plain(self._console.text(LAST_WORDS_S if self._console_ends() else 0.0))

    def words_of_guest(self) -> str:
        """What its console says of trouble, else its last line."""
        console = self.console().splitlines()
        trouble = [found[0] for line in console if (found := _TROUBLE.search(line))]
        return next((said[-1] for said in (trouble, console) if said), "")

    def _console_ends(self) -> bool:
        """Whether nobody writes to it any more."""
        return False
