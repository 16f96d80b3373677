"""The seam between what is to be done and where it is done."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


class Host(Protocol):
    """A place where commands run and files are read and written.

    `netns` is the name of its network namespace, None for the one netbench itself runs in.
    """

    @property
    def name(self) -> str:
        """The name the topology gives it."""

    @property
    def netns(self) -> str | None:
        """Its named network namespace on this machine, if it is one."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it cannot start or takes too long.

        The exit code is the caller's to judge; `run_checked` in this module does it.
        """

    def spawn(self, argv: Sequence[str], *, environment: Mapping[str, str] | None = None) -> "subprocess.Popen[str]":
        """Start a command with pipes to its stdin, stdout and stderr; it dies with netbench."""

    def read(self, path: str) -> str:
        """The text of a file as this host sees it; TestbedError when it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file as this host sees it; TestbedError when it cannot be written."""
