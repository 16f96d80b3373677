"""What the machine gives to measure with: CPUs, clock, memory, disk, NICs."""

import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from pyroute2.netlink.exceptions import NetlinkError

from netbench.errors import NetbenchError
from netbench.linux.safety import Port, read_ports, refuse_unsafe_port
from netbench.testbed.doctor.checks import Check, Status

_MIN_CPUS = 2
_MIN_FREE_BYTES = 2 * 1024**3
_MIN_MEMORY_BYTES = 1024**3
_CPU_SYSFS = Path("/sys/devices/system/cpu")
_CLOCK_SYSFS = Path("/sys/devices/system/clocksource/clocksource0")
# These need a device access or an exit to the hypervisor for every reading (timekeeping.rst, virt/kvm).
_SLOW_CLOCKS = ("acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies")


def check_cpus() -> Check:
    """Whether the roles of a test need not share a CPU."""
    needed_for = "generator, UUT and sink on CPUs of their own"
    count = len(os.sched_getaffinity(0))
    if count >= _MIN_CPUS:
        return Check("cpus", Status.OK, f"{count} CPUs", "", needed_for)
    remedy = f"give this machine, or netbench's CPU set, at least {_MIN_CPUS} CPUs"
    return Check("cpus", Status.WARNING, f"{count} CPU", remedy, needed_for)


def check_governor() -> Check:
    """Whether the CPUs keep one frequency."""
    needed_for = "CPUs of constant speed"
    governors = {_read(path) for path in _CPU_SYSFS.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    if not governors:
        return Check("governor", Status.OK, "none: this kernel does not set CPU frequencies", "", needed_for)
    found = ", ".join(sorted(governors))
    if governors == {"performance"}:
        return Check("governor", Status.OK, found, "", needed_for)
    remedy = f"echo performance | sudo tee {_CPU_SYSFS}/cpu*/cpufreq/scaling_governor"
    return Check("governor", Status.WARNING, found, remedy, needed_for)


def check_clocksource() -> Check:
    """Whether the clock is read without leaving the CPU."""
    needed_for = "pacing and time stamps at little cost"
    current = _read(_CLOCK_SYSFS / "current_clocksource")
    if current not in _SLOW_CLOCKS:
        return Check("clocksource", Status.OK, current or "unknown", "", needed_for)
    available = _read(_CLOCK_SYSFS / "available_clocksource").split()
    fast = next((name for name in available if name not in _SLOW_CLOCKS), None)
    remedy = (
        f"echo {fast} | sudo tee {_CLOCK_SYSFS}/current_clocksource"
        if fast
        else "`sudo dmesg | grep -i tsc` says why the kernel does not trust the CPU's time stamp counter"
    )
    return Check("clocksource", Status.WARNING, f"{current}, which is slow to read", remedy, needed_for)


def check_memory() -> Check:
    """Whether captures find room in memory."""
    needed_for = "capture buffers"
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    if match is None:
        return Check("memory", Status.WARNING, "unknown: /proc/meminfo cannot be read", "", needed_for)
    available = int(match[1]) * 1024
    found = f"{available / 1024**3:.1f} GiB available"
    if available >= _MIN_MEMORY_BYTES:
        return Check("memory", Status.OK, found, "", needed_for)
    return Check("memory", Status.WARNING, found, "end other programs or add memory", needed_for)


def check_disk() -> Check:
    """Whether captures find room in the current directory."""
    needed_for = "captures and results"
    try:
        directory = Path.cwd()
        free = shutil.disk_usage(directory).free
    except OSError as error:
        found = f"the current directory cannot be looked at: {error.strerror}"
        return Check("disk", Status.WARNING, found, "go to another directory", needed_for)
    found = f"{free / 1024**3:.1f} GiB free at {directory}"
    if free >= _MIN_FREE_BYTES:
        return Check("disk", Status.OK, found, "", needed_for)
    return Check("disk", Status.WARNING, found, "choose a directory on another disk with -o", needed_for)


def check_all_ports() -> list[Check]:
    """Each NIC of this host, with what uses it; none of them has to be free."""
    try:
        nics = [port for port in read_ports() if port.kind is None and port.name != "lo"]
    except (OSError, NetlinkError, NetbenchError) as error:
        return [Check("ports", Status.WARNING, f"not checked: {error}", "", "testbeds of real NICs")]
    return [_listed_port(port) for port in nics]


def _listed_port(port: Port) -> Check:
    speed = f"{port.speed_mbps} Mbit/s" if port.speed_mbps else "speed unknown"
    carrier = "link up" if port.carrier else "no link"
    found = f"{port.driver or 'driver unknown'}, {speed}, {carrier}, {port.mac}"
    if port.in_use:
        found += f": {'; '.join(port.in_use)}"
    status = Status.IN_USE if port.in_use else Status.OK
    return Check(f"port:{port.name}", status, found, "", "testbeds of real NICs")


def check_named_ports(needs: frozenset[str], addresses: Mapping[str, Collection[str]]) -> Iterator[Check]:
    """The ports among `needs`; of the `addresses` that the user names for each, none makes it one in use."""
    for name in sorted(need.removeprefix("port:") for need in needs if need.startswith("port:")):
        needed_for = "the topology, which names it"
        try:
            refuse_unsafe_port(name, addresses.get(name, ()))
        except NetbenchError as error:
            yield Check(f"port:{name}", Status.MISSING, str(error), "change the topology", needed_for)
        else:
            yield Check(f"port:{name}", Status.OK, "there, and free", "", needed_for)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""
