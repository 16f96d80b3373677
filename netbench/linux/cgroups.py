"""CPU and memory limits of process groups: the directories of a machine's control groups, and their settings.

Both versions of control groups: v1's controllers `cpu` (sched-design-CFS.rst, sched-bwc.rst) and `memory`
(cgroup-v1/memory.rst), and v2 (cgroup-v2.rst).
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked

USUAL_DIRECTORY = "/sys/fs/cgroup"
_PERIOD_US = 100_000
_USUAL_WEIGHT = 100  # v2's cpu.weight; v1's cpu.shares are 1024 then


@dataclass(frozen=True, slots=True)
class CpuController:
    """The control groups of a machine that share its CPUs; `directory` contains the top-level ones."""

    directory: str = USUAL_DIRECTORY
    version: int = 2

    def settings(self, weight: int | None, limit: float | None) -> Iterator[tuple[str, str]]:
        """Yield file and text of each setting of a group, for a weight (100 is usual) and a limit (1.0: one CPU)."""
        if weight is not None and self.version == 1:
            yield "cpu.shares", str(round(weight * 1024 / _USUAL_WEIGHT))
        elif weight is not None:
            yield "cpu.weight", str(weight)
        if limit is not None and self.version == 1:
            yield "cpu.cfs_period_us", str(_PERIOD_US)
            yield "cpu.cfs_quota_us", str(round(limit * _PERIOD_US))
        elif limit is not None:
            yield "cpu.max", f"{round(limit * _PERIOD_US)} {_PERIOD_US}"


@dataclass(frozen=True, slots=True)
class MemoryController:
    """The control groups of a machine that limit memory; `directory` contains the top-level ones."""

    directory: str = USUAL_DIRECTORY
    version: int = 2

    def settings(self, mib: int) -> Iterator[tuple[str, str]]:
        """Yield file and text of each setting of a group, for at most `mib` MiB, none of it in swap.

        A kernel without swap may lack the second file.
        """
        yield ("memory.limit_in_bytes" if self.version == 1 else "memory.max"), str(mib << 20)
        yield ("memory.swappiness" if self.version == 1 else "memory.swap.max"), "0"


def find_controller(host: Host) -> CpuController:
    """Return the CPU controller of a host's machine; MissingError without one, or where no groups can be made."""
    return CpuController(*_find(host, "cpu", "cpu_weight and cpu_limit need", "CONFIG_CFS_BANDWIDTH"))


def find_memory_controller(host: Host) -> MemoryController:
    """Return the memory controller of a host's machine; raises the same errors."""
    return MemoryController(*_find(host, "memory", "memory of a container needs", "CONFIG_MEMCG"))


def _find(host: Host, controller: str, who: str, option: str) -> tuple[str, int]:
    found = _mounted(host, controller)
    if found is None:
        raise MissingError(
            f"{who} control groups with the {controller} controller, which this machine has not: boot a "
            f"kernel with {option} and mount them (mount -t cgroup2 cgroup2 /sys/fs/cgroup)"
        )
    directory, _ = found
    if host.run(["test", "-w", machine_root(host) + directory]).exit_code != 0:
        raise MissingError(
            f"{who} control groups, and none may be made in {directory}: run netbench as "
            "root and outside this container, or give the container --privileged"
        )
    return found


def door(host: Host, controller: CpuController | MemoryController, group: str) -> str:
    """Return the file by which a process of a host enters a group."""
    return f"{machine_root(host)}{controller.directory}/{group}/cgroup.procs"


def _mounted(host: Host, controller: str) -> tuple[str, int] | None:
    """Return directory and version of the groups that have a controller."""
    outside = machine_root(host)
    for line in host.read(f"{outside.removesuffix('/root')}/mounts").splitlines():
        _, directory, kind, options, *_ = line.split()
        if kind == "cgroup" and controller in options.split(","):
            return directory, 1
        if kind == "cgroup2" and controller in _read(host, f"{outside}{directory}/cgroup.controllers").split():
            return directory, 2
    return None


def _read(host: Host, path: str) -> str:
    try:
        return host.read(path)
    except TestbedError:
        return ""  # hidden by another mount


def machine_root(host: Host) -> str:
    """Return the path of the machine's own files, from any of its namespaces: `ip netns exec` mounts another /sys.

    It is the root of netbench's own process there: the root of the first process may be inaccessible.
    """
    own = os.getpid() if host.shares_files else run_checked(host, ["sh", "-c", "echo $PPID"]).strip()
    return f"/proc/{own}/root"
