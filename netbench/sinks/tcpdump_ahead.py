"""A tcpdump that is started before its trial is known."""

from collections.abc import Sequence
from dataclasses import dataclass

from netbench.hosts.base import Process

# The limit of its buffer, which is otherwise the largest of any trial so far: the buffer of the last one exists too.
LARGEST_AHEAD_KIB = 32 << 10


@dataclass(frozen=True, slots=True)
class Ahead:
    """The command and the process of a tcpdump that was started ahead of time."""

    command: list[str]
    process: Process

    def serves(self, wanted: Sequence[str]) -> bool:
        """Return whether it runs with this command, and with at least its buffer."""
        is_same = with_buffer(self.command, 0) == with_buffer(wanted, 0)
        return is_same and buffer_kib(self.command) >= buffer_kib(wanted) and self.process.poll() is None


def buffer_kib(command: Sequence[str]) -> int:
    """Return the buffer size of a tcpdump command, in KiB."""
    return int(command[command.index("-B") + 1])


def with_buffer(command: Sequence[str], kib: int) -> list[str]:
    """Return the command with a buffer of this size instead."""
    at = command.index("-B") + 1
    return [*command[:at], str(kib), *command[at + 1 :]]
