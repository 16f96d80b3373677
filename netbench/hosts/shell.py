"""The seam between what is to be done in a guest and the way into it."""

from collections.abc import Callable, Sequence
from typing import Protocol

from netbench.errors import TestbedError
from netbench.hosts.agent.channel import Ended


class Shell(Protocol):
    """A way to run commands in one guest: the agent, SSH, or QEMU's guest agent.

    Every method raises TestbedError, naming the guest, when the guest does not answer in time or is gone.
    """

    def hello(self, timeout_s: float, hopeless: Callable[[], str]) -> None:
        """Return once the guest answers; TestbedError when it does not, or as soon as `hopeless` says why it cannot."""

    def run(self, argv: Sequence[str], stdin: bytes = b"", timeout_s: float = 20.0) -> Ended:
        """Run a command to its end; the exit code is the caller's to judge."""

    def close(self) -> None:
        """End the conversation; harmless when called twice."""


def run_in_guest(shell: Shell, guest: str, argv: Sequence[str], stdin: bytes = b"") -> str:
    """The output of a command that must succeed; TestbedError with its own words when it does not."""
    done = shell.run(argv, stdin)
    if done.exit_code != 0:
        words = (done.stderr.strip() or done.stdout.strip()).decode(errors="replace") or "no message"
        raise TestbedError(f"{guest}: `{' '.join(argv)}` failed with exit code {done.exit_code}: {words}")
    return done.stdout.decode(errors="replace")
