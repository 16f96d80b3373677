"""Checks of a machine as a tester: root, commands, Python, CPUs, clock, memory, disk, NICs."""

import os
import platform
import re
import shlex
import shutil
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Protocol

from pyroute2.netlink.exceptions import NetlinkError

from netbench.config.plugins import FIGURES, GENERATORS, SCHEDULES, SINKS, TOOLS, UUTS, installed
from netbench.errors import NetbenchError
from netbench.linux.cgroups import cpu_limit
from netbench.linux.requirements import Command
from netbench.linux.safety.ports import CandidatePort, read_ports, refuse_unsafe_port
from netbench.testbed.environment import os_release, package_version

_MIN_CPUS = 2
_MIN_FREE_BYTES = 2 * 1024**3
_MIN_MEMORY_BYTES = 1024**3
_CPU_SYSFS = Path("/sys/devices/system/cpu")
_CLOCK_SYSFS = Path("/sys/devices/system/clocksource/clocksource0")
# Each reading of these needs a device access or an exit to the hypervisor (timekeeping.rst, virt/kvm).
_SLOW_CLOCKS = ("acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies")
_SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_REAL_NICS = "testbeds of real NICs"


class Status(StrEnum):
    """The result of a check. Only `missing` prevents the requested work."""

    OK = "ok"
    MISSING = "missing"
    WARNING = "warning"  # it works, but its numbers need care; or it could not be checked
    ABSENT = "absent"  # not needed for the requested work
    IN_USE = "in use"  # a port that other traffic or software uses


@dataclass(frozen=True, slots=True)
class HostCheck:
    """One checked property. `remedy` is the command or change that adds it; empty: nothing to do."""

    name: str
    status: Status
    found: str
    remedy: str
    needed_for: str


class Which(Protocol):
    """A function that finds a command, like shutil.which: returns its path, or None when it is not there."""

    def __call__(self, name: str, /, *, path: str | None = None) -> str | None:
        """Search the directories of `path`; None: those of the user's PATH."""


def check_root(euid: int, which: Which) -> HostCheck:
    """Check whether `euid` has the rights that netbench needs; the remedy is the command that runs it as root."""
    needed_for = "making links, sending and capturing frames"
    if euid == 0:
        return HostCheck("root", Status.OK, "running as root", "", needed_for)
    # The PATH of sudo omits virtual environments.
    started_as = Path(sys.argv[0])
    is_netbench = started_as.name == "netbench" and started_as.is_file()
    command = str(started_as.absolute()) if is_netbench else which("netbench") or "netbench"
    return HostCheck("root", Status.MISSING, f"running as user {euid}", f"sudo {command} doctor", needed_for)


def check_tool(tool: Command, which: Which, euid: int, *, needed: bool = True) -> HostCheck:
    """Check whether netbench, started by `euid` or as root, finds the tool."""
    if path := which(tool.name):
        return HostCheck(tool.name, Status.OK, path, "", tool.needed_for)
    elsewhere = which(tool.name, path=_SYSTEM_DIRECTORIES)
    if elsewhere and euid != 0:
        return HostCheck(tool.name, Status.OK, f"{elsewhere}, where root finds it", "", tool.needed_for)
    if elsewhere:
        remedy = f"export PATH=$PATH:{Path(elsewhere).parent}"
        return HostCheck(tool.name, Status.MISSING, f"{elsewhere}, which is not in PATH", remedy, tool.needed_for)
    status = Status.MISSING if needed else Status.ABSENT
    return HostCheck(tool.name, status, "not installed", install_command(tool.package), tool.needed_for)


def install_command(packages: str, distribution: Iterable[str] | None = None) -> str:
    """Return how to install packages, given by their names in Debian: a command on Debian, elsewhere a sentence.

    `distribution` is the ID and ID_LIKE of os-release(5); None: that of this machine.
    """
    if "debian" in (distribution_ids() if distribution is None else distribution):
        return f"apt-get install {packages}"
    return f"install {packages} (as Debian names it) with the package manager of this system"


def unattended_install(packages: Collection[str], distribution: Iterable[str]) -> str:
    """Return the command that installs the packages without prompts; empty for no packages or outside Debian."""
    if not packages or "debian" not in distribution:
        return ""
    return f"DEBIAN_FRONTEND=noninteractive apt-get install -y {shlex.join(packages)}"


def distribution_ids() -> list[str]:
    """Return this system's ID and ID_LIKE of os-release(5), nearest first; empty when it has no os-release."""
    release = os_release()
    return [release["ID"], *release.get("ID_LIKE", "").split()] if "ID" in release else []


def debian_kernel() -> str:
    """Return how to install Debian's full kernel, as a phrase that ends a sentence; empty on other systems."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if architecture is None or "debian" not in distribution_ids():
        return ""
    return f", for example Debian's own: apt-get install linux-image-{architecture}"


def machine_checks() -> list[HostCheck]:
    """Check CPUs, clock, memory, disk and Python packages of this machine."""
    return [
        _check_cpus(),
        _check_cpu_limit(),
        _check_governor(),
        _check_clocksource(),
        _check_memory(),
        _check_disk(),
        _check_packages(),
        _check_parquet(),
    ]


def _check(name: str, needed_for: str, found: str, remedy: str = "", *, is_good: bool) -> HostCheck:
    """Return a check that is a warning, with the remedy, unless `is_good`."""
    return HostCheck(name, Status.OK if is_good else Status.WARNING, found, "" if is_good else remedy, needed_for)


def _check_cpus() -> HostCheck:
    count = len(os.sched_getaffinity(0))
    remedy = f"give this machine, or netbench's CPU set, at least {_MIN_CPUS} CPUs"
    found = f"{count} CPU{'s' if count > 1 else ''}"
    return _check("cpus", "generator, UUT and sink on CPUs of their own", found, remedy, is_good=count >= _MIN_CPUS)


def _check_cpu_limit() -> HostCheck:
    """Check whether a control group limits the CPU time of netbench to less than its CPUs have."""
    limit, needed_for = cpu_limit(), "sources that send without pauses"
    if limit is None:
        return _check("cpu limit", needed_for, "none", is_good=True)
    is_enough = limit.cpus >= len(os.sched_getaffinity(0))
    return _check("cpu limit", needed_for, str(limit), limit.remedy, is_good=is_enough)


def _check_governor() -> HostCheck:
    governors = {_read(path) for path in _CPU_SYSFS.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    found = ", ".join(sorted(governors)) or "none: this kernel does not set CPU frequencies"
    remedy = f"echo performance | sudo tee {_CPU_SYSFS}/cpu*/cpufreq/scaling_governor"
    return _check("governor", "CPUs of constant speed", found, remedy, is_good=governors <= {"performance"})


def _check_clocksource() -> HostCheck:
    """Check whether the clock can be read without leaving the CPU."""
    needed_for = "pacing and time stamps at little cost"
    current = _read(_CLOCK_SYSFS / "current_clocksource")
    if current not in _SLOW_CLOCKS:
        return _check("clocksource", needed_for, current or "unknown", is_good=True)
    available = _read(_CLOCK_SYSFS / "available_clocksource").split()
    fast = next((name for name in available if name not in _SLOW_CLOCKS), None)
    remedy = (
        f"echo {fast} | sudo tee {_CLOCK_SYSFS}/current_clocksource"
        if fast
        else "`sudo dmesg | grep -i tsc` shows why the kernel does not trust the CPU's time stamp counter"
    )
    return _check("clocksource", needed_for, f"{current}, which is slow to read", remedy, is_good=False)


def _check_memory() -> HostCheck:
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    if match is None:
        return _check("memory", "capture buffers", "unknown: /proc/meminfo cannot be read", is_good=False)
    available = int(match[1]) * 1024
    found, is_enough = f"{available / 1024**3:.1f} GiB available", available >= _MIN_MEMORY_BYTES
    return _check("memory", "capture buffers", found, "end other programs or add memory", is_good=is_enough)


def _check_disk() -> HostCheck:
    """Check whether there is enough space for captures in the current directory."""
    needed_for = "captures and results"
    try:
        directory = Path.cwd()
        free = shutil.disk_usage(directory).free
    except OSError as error:
        found = f"the current directory cannot be read: {error.strerror}"
        return _check("disk", needed_for, found, "go to another directory", is_good=False)
    found, is_enough = f"{free / 1024**3:.1f} GiB free at {directory}", free >= _MIN_FREE_BYTES
    return _check("disk", needed_for, found, "choose a directory on another disk with -o", is_good=is_enough)


def _check_packages() -> HostCheck:
    """Check whether the packages that netbench imports are installed, and report their versions."""
    required = [requirement for requirement in metadata.requires("netbench") or () if "extra ==" not in requirement]
    packages = [match[0] for requirement in required if (match := re.match(r"[\w.-]+", requirement))]
    versions = {package: package_version(package) for package in packages}
    if missing := [package for package, version in versions.items() if version is None]:
        return HostCheck("python", Status.MISSING, f"no {', '.join(missing)}", _pip(missing), "netbench itself")
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return HostCheck("python", Status.OK, f"{platform.python_version()} with {found}", "", "netbench itself")


def _check_parquet() -> HostCheck:
    """Check whether the only optional package, pyarrow, is installed."""
    needed_for = "netbench export --format parquet"
    version = package_version("pyarrow")
    if version is None:
        return HostCheck("parquet", Status.ABSENT, "no pyarrow", _pip(["pyarrow"]), needed_for)
    return HostCheck("parquet", Status.OK, f"pyarrow {version}", "", needed_for)


def _pip(packages: Collection[str]) -> str:
    return shlex.join([sys.executable, "-m", "pip", "install", *packages])


def check_plug_ins() -> list[HostCheck]:
    """Return a check for each plug-in that cannot be imported; the others work without it."""
    remedy = "install the missing dependency, or remove its package"
    return [
        HostCheck(f"plug-in:{name}", Status.WARNING, why, remedy, f"the kind or figure {name}")
        for group in (FIGURES, GENERATORS, SCHEDULES, SINKS, TOOLS, UUTS)
        for name, why in installed(group).broken.items()
    ]


def check_all_ports() -> list[HostCheck]:
    """Return a check for each NIC of this host, with its other users; none of the NICs needs to be free."""
    try:
        nics = [port for port in read_ports() if port.kind is None and port.name != "lo"]
    except (OSError, NetlinkError, NetbenchError) as error:
        return [HostCheck("ports", Status.WARNING, f"not checked: {error}", "", _REAL_NICS)]
    return [_listed_port(port) for port in nics]


def _listed_port(port: CandidatePort) -> HostCheck:
    speed = f"{port.speed_mbps} Mbit/s" if port.speed_mbps else "speed unknown"
    carrier = "link up" if port.carrier else "no link"
    users = f": {'; '.join(port.in_use)}" if port.in_use else ""
    found = f"{port.driver or 'driver unknown'}, {speed}, {carrier}, {port.mac}{users}"
    return HostCheck(f"port:{port.name}", Status.IN_USE if port.in_use else Status.OK, found, "", _REAL_NICS)


def check_named_ports(needs: frozenset[str], addresses: Mapping[str, Collection[str]]) -> Iterator[HostCheck]:
    """Check the ports among `needs`; the `addresses` that the user names for a port do not make it a port in use."""
    for name in sorted(need.removeprefix("port:") for need in needs if need.startswith("port:")):
        needed_for = "the topology, which names it"
        try:
            refuse_unsafe_port(name, addresses.get(name, ()))
        except NetbenchError as error:
            yield HostCheck(f"port:{name}", Status.MISSING, str(error), "change the topology", needed_for)
        else:
            yield HostCheck(f"port:{name}", Status.OK, "there, and free", "", needed_for)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
