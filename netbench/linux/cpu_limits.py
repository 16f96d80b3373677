"""CPU limits of control groups on processes of this machine: their quotas, and how long they stopped processes.

Both versions: v1's controller `cpu` (sched-bwc.rst) and v2 (cgroup-v2.rst). The limits of all parent groups count too.
Only the standard library is imported here: workers use this.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

_ESCAPED = re.compile(r"\\(\d{3})")


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
        nothing = "-1" if self.file.endswith("quota_us") else "max"
        return (
            "raise or remove it: docker run --cpus, resources.limits.cpu of Kubernetes, CPUQuota= of systemd, or "
            f"echo {nothing} >{self.file}"
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
    found = (_mounted(version, path, mounts) for version, path in _memberships(member))
    place = next((place for place in found if place), None)
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
