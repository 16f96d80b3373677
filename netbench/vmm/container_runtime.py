"""The seam between a container and what runs it: LXC, podman."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from netbench.vmm.container_root import Root

DIRECTORY = "/run"  # the guest's own, as its runtime sees it: what runtimes write there goes with the guest


class Runtime(Protocol):
    """Runs one container by a command in the foreground, in the network namespace and control group of that."""

    needs: ClassVar[frozenset[str]]  # commands
    version: ClassVar[tuple[str, ...]]  # the command whose last word is its version

    def prepare(self, directory: Path, run_id: str) -> None:
        """Write what it is told by files below the guest's directory; OSError where that cannot be done."""

    def command(self, name: str, host_name: str, root: Root, init: Sequence[str]) -> list[str]:
        """What runs a container whose first process is `init`; its root is laid out in `root` of its directory."""

    def first_processes(self, directory: Path, runtime: int) -> list[int]:
        """The container's first process, by that of its runtime; none while it is not there yet, or has ended."""
