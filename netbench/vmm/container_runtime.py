"""The seam between a container and what runs it: LXC, podman, libvirt."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from netbench.hosts.base import Host
from netbench.hosts.composed import confined
from netbench.linux.changes import Change
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_root import Root

DIRECTORY = "/run"  # the guest's own, as its runtime sees it: what runtimes write there goes with the guest
_LONGEST_HOST_NAME = 64  # sethostname(2); a neighbour is called UUT.NEIGHBOUR


class Runtime(Protocol):
    """Runs one container by a command in the foreground, in the network namespace of that, on some machine."""

    needs: ClassVar[frozenset[str]]  # in the words of `netbench doctor`
    version: ClassVar[tuple[str, ...]]  # the command whose last word is its version
    entitles: ClassVar[bool] = False  # as of a Vmm

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """What it needs on the machine besides a directory and a network namespace."""
        return iter(())

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Write what it is told by files below the guest's directory; TestbedError where that cannot be done.

        `run_id` is what the processes of a run bear there; empty where the machine ends with the run anyway.
        """

    def facts(self) -> dict[str, str]:
        """As of a RunningGuest, what else is known once it is prepared."""
        return {}

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], ways_in: Sequence[str]) -> list[str]:
        """What runs a container whose first process is `init`; its root is laid out in `root` of its directory.

        It runs where the guest may, and in its control groups, whose files for processes are `ways_in`.
        """

    def door(self, spec: GuestSpec) -> str:
        """The file by which processes enter the control group that the guest may take CPU time in; empty: any."""
        return spec.door

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        """The container's first process, by that of its runtime; none while it is not there yet, or has ended."""


def within(command: Sequence[str], spec: GuestSpec, ways_in: Sequence[str]) -> list[str]:
    """A command that runs another one where the guest may, and in these control groups."""
    command = confined(command, spec.host_cpus, "")
    for door in ways_in:
        command = confined(command, (), door)
    return list(command)


def host_name(spec: GuestSpec) -> str:
    """What a container calls itself."""
    return spec.name[:_LONGEST_HOST_NAME]
