"""CPU and memory limits of process groups: the control groups of a host, and the CPU limits on a process here.

Both versions of control groups: v1's controllers `cpu` (sched-design-CFS.rst, sched-bwc.rst) and `memory`
(cgroup-v1/memory.rst), and v2 (cgroup-v2.rst). The limits of all parent groups count too.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, run_checked

USUAL_DIRECTORY = "/sys/fs/cgroup"
_ESCAPED = re.compile(r"\\(\d{3})")
_PERIOD_US = 100_000
_USUAL_WEIGHT = 100  # v2's cpu.weight; v1's cpu.shares are 1024 then


@dataclass(frozen=True, slots=True)
class _Controller:
    """The control groups of a machine with one controller; `directory` contains the top-level ones."""

    directory: str = USUAL_DIRECTORY
    version: int = 2


class CpuController(_Controller):
    """The control groups of a machine that share its CPUs."""

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


class MemoryController(_Controller):
    """The control groups of a machine that limit memory."""

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


def _find(host: Host, controller: str, user: str, option: str) -> tuple[str, int]:
    """Return directory and version of the groups that have a controller."""
    root = machine_root(host)
    for line in host.read(f"{root.removesuffix('/root')}/mounts").splitlines():
        _, directory, kind, options, *_ = line.split()
        controllers: list[str] = []
        if kind == "cgroup":
            controllers = options.split(",")
        elif kind == "cgroup2":
            with suppress(TestbedError):  # hidden by another mount
                controllers = host.read(f"{root}{directory}/cgroup.controllers").split()
        if controller in controllers:
            break
    else:
        raise MissingError(
            f"{user} control groups with the {controller} controller, which this machine lacks: boot a kernel with "
            f"{option} and mount them (mount -t cgroup2 cgroup2 /sys/fs/cgroup)"
        )
    if host.run(["test", "-w", root + directory]).exit_code != 0:
        raise MissingError(
            f"{user} control groups, and {directory} is not writable: run netbench as root and outside this container, "
            "or give the container --privileged"
        )
    return directory, 1 if kind == "cgroup" else 2


def cgroup_procs(host: Host, controller: CpuController | MemoryController, group: str) -> str:
    """Return the file by which a process of a host enters a group."""
    return f"{machine_root(host)}{controller.directory}/{group}/cgroup.procs"


def machine_root(host: Host) -> str:
    """Return the path of the machine's own files, from any of its namespaces: `ip netns exec` mounts another /sys.

    It is the root of netbench's own process there: the root of the first process may be inaccessible.
    """
    return f"/proc/{run_checked(host, ['sh', '-c', 'echo $PPID']).strip()}/root"


class CpuLimit(NamedTuple):
    """At most `cpus` CPUs (0.5: half of one) in each period of `period_s`, according to `file`."""

    cpus: float
    period_s: float
    file: str

    def __str__(self) -> str:
        return f"{self.cpus:.0%} of a CPU in each {self.period_s * 1e3:g} ms ({self.file})"

    @property
    def remedy(self) -> str:
        """How to remove it."""
        unlimited = "-1" if self.file.endswith("quota_us") else "max"
        return (
            "raise or remove it: docker run --cpus, resources.limits.cpu of Kubernetes, CPUQuota= of systemd, or "
            f"echo {unlimited} >{self.file}"
        )


class _Group(NamedTuple):
    """A group of a process; `name` is its directory on the machine, `directory` the path to read it."""

    version: int
    directory: Path
    name: str


def cpu_limit(process: int | str = "self", proc: Path = Path("/proc")) -> CpuLimit | None:
    """Return the tightest limit on a process, of its group or a parent; None without one, or if it is unreadable."""
    limits = [limit for group in _groups(process, proc) if (limit := _limit(group))]
    return min(limits, key=lambda limit: limit.cpus, default=None)


def exhausts_limit(process: int | str = "self") -> bool:
    """Return whether one thread that never sleeps uses up the CPU time that the limit on a process allows."""
    limit = cpu_limit(process)
    return limit is not None and limit.cpus <= 1


def throttled_s(process: int | str = "self", proc: Path = Path("/proc")) -> float | None:
    """Return how long limits have stopped the groups of a process, in s, summed over CPUs; None: unknown."""
    known = [seconds for group in _groups(process, proc) if (seconds := _throttled_s(group)) is not None]
    return sum(known) if known else None


def _groups(process: int | str, proc: Path) -> Iterator[_Group]:
    """Yield the groups of a process that have a CPU controller, the innermost first."""
    own = proc / str(process)
    try:
        member = (own / "cgroup").read_text().splitlines()
        mounts = (own / "mountinfo").read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return
    mounted = (_mounted(version, path, mounts) for version, path in _memberships(member))
    place = next((place for place in mounted if place), None)
    if place is None:
        return
    version, mount, inside = place
    for path in (inside, *inside.parents):
        name = str(PurePosixPath(mount) / path)
        # By the root of that process: inside a network namespace, /sys may lack control groups.
        yield _Group(version, Path(f"{own}/root{name}"), name)


def _memberships(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield version and path of each group that may limit CPUs: v1's controller before v2."""
    words = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    yield from ((1, path) for _, controllers, path in words if "cpu" in controllers.split(","))
    yield from ((2, path) for number, controllers, path in words if number == "0" and not controllers)


def _mounted(version: int, path: str, mounts: list[str]) -> tuple[int, str, PurePosixPath] | None:
    """Return version, mount point of the groups, and a group's path below that (proc_pid_mountinfo(5))."""
    for line in mounts:
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        if kind != ("cgroup" if version == 1 else "cgroup2") or (version == 1 and "cpu" not in options.split(",")):
            continue
        root, mount = (_ESCAPED.sub(lambda code: chr(int(code[1], 8)), word) for word in before.split(" ")[3:5])
        if not path.startswith("/.."):
            with suppress(ValueError):
                return version, mount, PurePosixPath(path).relative_to(root)
        # Its path belongs to another cgroup namespace: the mounted group is its own, or a parent.
        return version, mount, PurePosixPath()
    return None


def _limit(group: _Group) -> CpuLimit | None:
    names = ("cpu.max",) if group.version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
    try:
        quota, period, *_ = " ".join((group.directory / name).read_text() for name in names).split()
        if quota in ("max", "-1"):
            return None
        return CpuLimit(int(quota) / int(period), int(period) / 1e6, f"{group.name}/{names[0]}")
    except (OSError, ValueError, ZeroDivisionError):
        return None  # the root group has no limit


def _throttled_s(group: _Group) -> float | None:
    try:
        stat = dict(line.split() for line in (group.directory / "cpu.stat").read_text().splitlines())
        return int(stat["throttled_time"]) / 1e9 if group.version == 1 else int(stat["throttled_usec"]) / 1e6
    except (OSError, ValueError, KeyError):
        return None
