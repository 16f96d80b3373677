"""The seam between a container and its runtime: LXC, podman, libvirt."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar, Protocol

from netbench.hosts.base import Host
from netbench.hosts.host_wrappers import confined
from netbench.linux.changes import Change
from netbench.vmm.base import GuestSpec
from netbench.vmm.container_root import Root

DIRECTORY = "/run"  # private to the guest and its runtime: the files of the runtime are removed with the guest
_LONGEST_HOST_NAME = 64  # sethostname(2); a neighbour's name is UUT.NEIGHBOUR


class Runtime(Protocol):
    """Runs one container by a foreground command in the container's network namespace, on any machine."""

    needs: ClassVar[frozenset[str]]  # requirements, as `netbench doctor` names them
    version: ClassVar[tuple[str, ...]]  # a command; the last word of its output is the version
    entitles: ClassVar[bool] = False  # as in a Vmm

    def changes(self, spec: GuestSpec) -> Iterator[Change]:
        """Return the changes it needs on the machine besides a directory and a network namespace."""
        return iter(())

    def prepare(self, spec: GuestSpec, machine: Host, run_id: str) -> None:
        """Write its configuration files below the guest's directory; TestbedError where that fails.

        `run_id` marks the processes of a run on that machine; empty where the machine ends with the run anyway.
        """

    def facts(self) -> dict[str, str]:
        """Return further facts for RunningGuest.facts(), known once it is prepared."""
        return {}

    def command(self, spec: GuestSpec, root: Root, init: Sequence[str], ways_in: Sequence[str]) -> list[str]:
        """Return the command that runs a container with the first process `init`.

        Its root is laid out in `root` of the guest's directory. The command runs on the guest's CPUs, and in its
        control groups, whose cgroup.procs files are `ways_in`.
        """

    def door(self, spec: GuestSpec) -> str:
        """Return the cgroup.procs file of the control group with the guest's CPU shares; empty: none."""
        return spec.door

    def first_processes(self, machine: Host, directory: Path, runtime: int) -> list[int]:
        """Return the container's first process, given the runtime's process; none before its start or after its end."""


def within(command: Sequence[str], spec: GuestSpec, ways_in: Sequence[str]) -> list[str]:
    """Return a command that runs another one on the guest's CPUs and in these control groups."""
    command = confined(command, spec.host_cpus, "")
    for door in ways_in:
        command = confined(command, (), door)
    return list(command)


def host_name(spec: GuestSpec) -> str:
    """Return the host name inside a container."""
    return spec.name[:_LONGEST_HOST_NAME]
