"""The seam between what is to be done and where it is done."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from netbench.errors import TestbedError


@dataclass(frozen=True, slots=True)
class Completed:
    """A command that has ended."""

    argv: tuple[str, ...]
    exit_code: int
    stdout: str
    stderr: str


class Host(Protocol):
    """A place where commands run and files are read and written."""

    @property
    def name(self) -> str:
        """The name the topology gives it."""

    @property
    def netns(self) -> str | None:
        """Its named network namespace on this machine; None for the one netbench itself runs in."""

    def run(self, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> Completed:
        """Run a command to its end; TestbedError when it cannot start or takes too long.

        The exit code is the caller's to judge; `run_checked` does it.
        """

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        """Start a command with pipes to its stdin, stdout and stderr; it dies when netbench dies."""

    def read(self, path: str) -> str:
        """The text of a file as this host sees it; TestbedError when it cannot be read."""

    def write(self, path: str, text: str) -> None:
        """Write a file as this host sees it; TestbedError when it cannot be written."""


def run_checked(host: Host, argv: Sequence[str], *, stdin: str = "", timeout_s: float = 30.0) -> str:
    """The output of a command that must succeed; TestbedError with its own words when it does not."""
    done = host.run(argv, stdin=stdin, timeout_s=timeout_s)
    if done.exit_code != 0:
        words = done.stderr.strip() or done.stdout.strip() or "no message"
        raise TestbedError(f"host {host.name}: `{' '.join(argv)}` failed with exit code {done.exit_code}: {words}")
    return done.stdout
