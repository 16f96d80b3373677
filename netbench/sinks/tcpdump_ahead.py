"""A tcpdump that is started before it is known for what trial."""

from collections.abc import Sequence
from dataclasses import dataclass

from netbench.hosts.base import Process

# Its buffer is as large as that of any trial so far, but not larger than this: beside it there is that of the last one.
LARGEST_AHEAD_KIB = 32 << 10


@dataclass(frozen=True, slots=True)
class Ahead:
    """Its command, and its process."""

    command: list[str]
    process: Process

    def serves(self, wanted: Sequence[str]) -> bool:
        """Whether it runs, and is what this command would start, or has the larger buffer."""
        is_same = with_buffer(self.command, 0) == with_buffer(wanted, 0)
        return is_same and buffer_kib(self.command) >= buffer_kib(wanted) and self.process.poll() is None


def buffer_kib(command: Sequence[str]) -> int:
    """The size of the buffer that a tcpdump command asks for."""
    return int(command[command.index("-B") + 1])


def with_buffer(command: Sequence[str], kib: int) -> list[str]:
    """The command with a buffer of this size instead."""
    at = command.index("-B") + 1
    return [*command[:at], str(kib), *command[at + 1 :]]
