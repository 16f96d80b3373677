"""The machine a campaign ran on, as its manifest records it.

Everything is read, nothing is changed, root is not needed, and a value that cannot be read is None. The
host's name, MAC addresses and the full kernel command line are left out. Results are meant to be shared,
and these identify a machine or contain secrets, but do not affect its speed.

Warnings about the host: properties of its environment that make the numbers less reliable.
"""

import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache, partial
from importlib import metadata
from pathlib import Path

from pyroute2 import netns as named
from pyroute2.ethtool.ioctl import IoctlEthtool, NoSuchDevice, NotSupportedError

from netbench.errors import NetbenchError
from netbench.linux.cgroups import cpu_limit
from netbench.linux.proc import driver_of, parse_cpu_list, parse_cpu_ticks, speed_mbps_of
from netbench.linux.requirements import Command
from netbench.linux.safety.ports import KernelLink, read_links
from netbench.model.verdict import CampaignWarning, WarningKind
from netbench.testbed.requirements import all_of

Which = Callable[[str], str | None]

# Documented in Documentation/admin-guide/sysctl/{net,kernel,vm}.rst and networking/ip-sysctl.rst.
SYSCTLS = (
    "kernel.sched_rt_runtime_us",
    "kernel.timer_migration",
    "net.bridge.bridge-nf-call-arptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-iptables",
    "net.core.busy_poll",
    "net.core.default_qdisc",
    "net.core.dev_weight",
    "net.core.netdev_budget",
    "net.core.netdev_budget_usecs",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.conf.all.forwarding",
    "net.ipv4.conf.all.rp_filter",
    "net.ipv4.ip_early_demux",
    "net.ipv4.ip_forward",
    "net.ipv6.conf.all.disable_ipv6",
    "net.ipv6.conf.all.forwarding",
    "vm.swappiness",
)

# Documentation/admin-guide/kernel-parameters.rst: those that move work between CPUs or change its cost.
_KERNEL_PARAMETERS = (
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "irqaffinity",
    "isolcpus",
    "mitigations",
    "nohz",
    "nohz_full",
    "nosmt",
    "preempt",
    "processor.max_cstate",
    "rcu_nocbs",
)

_PACKAGES = ("numpy", "pyroute2")
_TOOL_TIMEOUT_S = 5.0
# From this load average on, CPU use is measured for this long.
_WATCHED_FROM, _WATCHED_S = 0.5, 0.25


def read_environment(
    hosts_nics: Mapping[str | None, Sequence[str]] = {},
    *,
    root: Path = Path("/"),
    which: Which = shutil.which,
) -> dict[str, object]:
    """Return the facts that may affect a campaign's numbers, ready for JSON.

    `hosts_nics` names the interfaces to record, by network namespace (None: netbench's own). Interfaces
    and sysctls of netbench's own namespace are at the top, those of others under `namespaces`; values
    that change all the time are under `activity`. Sizes are in bytes. CPU times are in clock ticks since boot
    (proc_stat(5)). Loads are the 1, 5 and 15 minute averages. `cpu_use` is the ratio of all CPU time in use,
    measured only if the load is high. CPU sets are written as the kernel writes them (`0-3,8`). A kernel
    parameter without a value is "". `root` is the directory that contains /proc and /sys.
    """
    namespaces = {name: _namespace(root, name, nics) for name, nics in hosts_nics.items() if name}
    given = dict(word.partition("=")[::2] for word in (_text(root / "proc/cmdline") or "").split())
    memory = re.fullmatch(r"(\d+) kB", _field(root / "proc/meminfo", "MemTotal") or "")
    return {
        "kernel": {
            "release": platform.release(),
            "version": platform.version(),
            "architecture": platform.machine(),
            "parameters": {name: given.get(name) for name in _KERNEL_PARAMETERS},
        },
        "os": os_release().get("PRETTY_NAME"),
        "cpu": _cpu(root),
        "memory_bytes": int(memory[1]) * 1024 if memory else None,
        "virtualisation": virtualisation(root, which),
        "activity": _activity(root),
        **_namespace(root, None, hosts_nics.get(None, ())),
        "namespaces": namespaces,
        "tools": _tool_versions(which),
        "python": {
            "version": platform.python_version(),
            "implementation": sys.implementation.name,
            "packages": {name: package_version(name) for name in _PACKAGES},
        },
    }


def git_revision(directory: Path | None = None, *, which: Which = shutil.which) -> str | None:
    """Return the commit of the checkout that netbench runs from, with `-dirty` when tracked files are modified.

    None without git, and when `directory` (of the netbench package) is not part of a checkout. A virtual
    environment inside another repository is not part of that checkout.
    """
    git = which("git")
    if git is None:
        return None
    directory = directory or Path(__file__).resolve().parent.parent
    # As root, git refuses a checkout that belongs to another user; this code already runs from it.
    # A file system monitor that is configured there must still not be started.
    options = ("--no-optional-locks", "-c", "safe.directory=*", "-c", "core.fsmonitor=false")
    base = [git, *options, "-C", str(directory)]
    # Inside a git hook, GIT_DIR and similar variables point at the repository of the commit.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    if _output([*base, "ls-files", "--error-unmatch", "__init__.py"], environment) is None:
        return None
    # `describe --dirty` writes the index, even with --no-optional-locks.
    commit = _output([*base, "rev-parse", "HEAD"], environment)
    status = _output([*base, "status", "--porcelain", "--branch", "--untracked-files=no"], environment) or ""
    return f"{commit}-dirty" if commit and len(status.splitlines()) > 1 else commit


def os_release() -> dict[str, str]:
    """Return the fields of os-release(5); empty when this system has none."""
    with suppress(OSError):
        return platform.freedesktop_os_release()
    return {}


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _cpu(root: Path) -> dict[str, object]:
    system = root / "sys/devices/system"
    online = _text(system / "cpu/online")
    smt, limit = _text(system / "cpu/smt/active"), cpu_limit(proc=root / "proc")
    governors = {_text(path) for path in system.glob("cpu/cpu[0-9]*/cpufreq/scaling_governor")}
    # x86 and most others; POWER and some ARM kernels; the board, if the CPU has no name.
    models = (_field(root / "proc/cpuinfo", key) for key in ("model name", "cpu", "Model"))
    return {
        "model": next(filter(None, models), None),
        "online": online,
        "online_count": len(parse_cpu_list(online)) if online else os.cpu_count(),
        "allowed": _field(root / "proc/self/status", "Cpus_allowed_list"),
        "limit": limit and {"cpus": limit.cpus, "text": str(limit), "remedy": limit.remedy},
        "smt": None if smt is None else smt == "1",
        "governor": ",".join(sorted(filter(None, governors))) or None,  # several if CPUs differ
        "turbo": _turbo(system),
        "idle_driver": _text(system / "cpu/cpuidle/current_driver"),
        "clocksource": _text(system / "clocksource/clocksource0/current_clocksource"),
    }


def _field(path: Path, key: str) -> str | None:
    """Return the value of the first `key: value` line of a file."""
    for line in (_text(path) or "").splitlines():
        name, colon, value = line.partition(":")
        if colon and name.strip() == key:
            return value.strip()
    return None


def _turbo(system: Path) -> bool | None:
    """Return whether CPUs may exceed their nominal frequency (admin-guide/pm/intel_pstate.rst and cpufreq.rst)."""
    if (no_turbo := _text(system / "cpu/intel_pstate/no_turbo")) is not None:
        return no_turbo == "0"
    if (boost := _text(system / "cpu/cpufreq/boost")) is not None:
        return boost == "1"
    return None


@cache
def virtualisation(root: Path = Path("/"), which: Which = shutil.which) -> Mapping[str, str | None]:
    """Return the hypervisor and the container around netbench: `none`, a name, or None if unknown."""
    detect = which("systemd-detect-virt")
    return {
        "machine": (_output([detect, "--vm"], check=False) if detect else None) or _hypervisor(root),
        "container": _output([detect, "--container"], check=False) if detect else None,
    }


def _hypervisor(root: Path) -> str | None:
    if xen := _text(root / "sys/hypervisor/type"):
        return xen
    flags = _field(root / "proc/cpuinfo", "flags")  # x86 only
    if flags is None:
        return None
    if "hypervisor" not in flags.split():
        return "none"
    return _text(root / "sys/class/dmi/id/sys_vendor") or "unknown"


def _activity(root: Path) -> dict[str, object]:
    """Return the load of other programs. CPU use is measured too: a high load average may come from ended programs."""
    text, ticks, use = _text(root / "proc/loadavg"), _cpu_ticks(root), None
    loads = [float(word) for word in text.split()[:3]] if text else None
    if loads and ticks and loads[0] > _WATCHED_FROM:
        time.sleep(_WATCHED_S)
        later = _cpu_ticks(root) or ticks
        if later["total"] > ticks["total"]:
            use = 1 - (later["idle"] - ticks["idle"]) / (later["total"] - ticks["total"])
    return {"load_average": loads, "cpu_ticks": ticks, "cpu_use": use}


def _cpu_ticks(root: Path) -> dict[str, int] | None:
    """Return the time of all CPUs since boot; `total` omits guest time, which user time already includes."""
    try:
        ticks = parse_cpu_ticks(_text(root / "proc/stat") or "")
    except (ValueError, IndexError):
        return None
    return {"total": sum(ticks), "idle": ticks.idle, "steal": ticks.steal}


def _namespace(root: Path, name: str | None, nics: Sequence[str]) -> dict[str, object]:
    sysctls: dict[str, str | None] = dict.fromkeys(SYSCTLS)
    described: dict[str, object] = dict.fromkeys(nics)
    try:
        with _inside(name):
            sysctls = {key: _sysctl(root, key) for key in SYSCTLS}
            offloads = {nic: _offloads(nic) for nic in nics}
        links = {link.name: link for link in read_links(name)} if nics else {}
        described = {nic: _nic(links.get(nic), offloads[nic], is_here=name is None) for nic in nics}
    except (OSError, NetbenchError):
        pass  # no such namespace, or no permission to enter it: unread values stay None
    return {"sysctls": sysctls, "nics": described}


@contextmanager
def _inside(netns: str | None) -> Iterator[None]:
    """Run the block inside a named network namespace; /proc/sys/net and new sockets of this thread follow it."""
    if netns is None:
        yield
        return
    if netns not in named.listnetns():  # pyroute2 would create it
        raise FileNotFoundError(netns)
    named.pushns(netns)
    try:
        yield
    finally:
        named.popns()


def _sysctl(root: Path, key: str) -> str | None:
    value = _text(root / "proc/sys" / key.replace(".", "/"))
    return None if value is None else " ".join(value.split())


def _nic(link: KernelLink | None, offloads: list[str] | None, *, is_here: bool) -> dict[str, object] | None:
    if link is None:
        return None
    return {
        "kind": link.kind,
        "driver": driver_of(link.name) if is_here else None,
        "speed_mbps": speed_mbps_of(link.name) if is_here else None,
        "mtu": link.mtu,
        "offloads": offloads,
    }


def _offloads(nic: str) -> list[str] | None:
    """Return the features that are on, by the kernel's names (`ethtool -k` groups some of them)."""
    ethtool = IoctlEthtool(nic)
    try:
        features = ethtool.get_features()
        return sorted(name for name in features.keys() if name and features.is_active(name))  # noqa: SIM118 - no mapping
    except (OSError, NoSuchDevice, NotSupportedError):
        return None
    finally:
        ethtool.close()


def _tool_versions(which: Which) -> dict[str, str | None]:
    """Return the version line of each tool; all are started at once, because some are slow."""
    tools = [tool for tool in all_of(Command) if tool.version]
    with ThreadPoolExecutor() as pool:
        lines = pool.map(partial(_version_line, which), tools)
        return dict(zip((tool.name for tool in tools), lines, strict=True))


def _version_line(which: Which, tool: Command) -> str | None:
    path = which(tool.name)
    return _first_line(path, tool.version, Path(path).stat().st_ctime_ns) if path else None


@cache
def _first_line(path: str, option: str, _changed_ns: int) -> str | None:
    """Return the first line a program prints with an option; it runs again only when its file has changed."""
    output = _output([path, option], check=False)
    return output.splitlines()[0] if output else None


def _output(argv: Sequence[str], environment: Mapping[str, str] | None = None, *, check: bool = True) -> str | None:
    """Return the output of a command (some print their version to stderr); None when it fails."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TOOL_TIMEOUT_S,
            env=environment,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if check and done.returncode != 0:
        return None
    return done.stdout.strip() or done.stderr.strip() or None


def package_version(name: str) -> str | None:
    """Return the version of an installed Python package; None when it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


MAX_STEAL_RATIO = 0.01
MAX_LOAD_PER_CPU = 0.5
MAX_CPU_USE = 0.1  # ratio of all CPU time: below this the host is not busy, even if its load average is high

_TEXTS = {
    "frequency": "The CPU frequency governor is {governor}, not performance: the speed of the CPUs, and with it every "
    "rate near a maximum, can change during a trial. Set it before measuring: `echo performance | sudo tee "
    "/sys/devices/system/cpu/cpu*/cpufreq/scaling_governor`.",
    "virtual": "netbench ran inside a virtual machine ({machine}): other virtual machines on its host can take CPU "
    "time at any moment, and its timers pass through the hypervisor. UUTs measured in turns remain comparable; maximum "
    "rates and delays apply only to this virtual machine at that time. Measure on bare metal for numbers that apply "
    "elsewhere.",
    "limited": "A control group limits the CPU time of netbench to {limit}. When it is used up, sources, sinks and "
    "UUTs that are processes stop until the next period. Trials in which that takes longer than a documented limit are "
    "invalid (tester-disturbed). Before measuring, {remedy}.",
    "busy": "The host was busy before the campaign started: load average {load:.2f} over the last minute on {cpus} "
    "CPUs{use}. Throughput may be too low, and loss too high: other programs took CPU time from generator, UUT and "
    "sink. Stop them and measure again.",
    "stolen": "The hypervisor gave {ratio:.1%} of this host's CPU time to others during the campaign ({steal} of "
    "{total} ticks were stolen): unsent frames and loss may be their doing, and maxima too low. Measure again on a "
    "quieter machine or with dedicated CPUs.",
}


def host_warnings(
    environment_before: Mapping[str, object], environment_after: Mapping[str, object] | None
) -> list[CampaignWarning]:
    """Return the warnings about the host, from its environment (`read_environment`) before and after a campaign.

    `environment_after` is None for a campaign that has not ended. Unknown values cause no warning.
    """
    return list(_warnings(environment_before, environment_after or {}))


def is_virtual(environment: Mapping[str, object]) -> bool:
    """Return whether this machine is a virtual one, as its environment states."""
    return _get(environment, "virtualisation", "machine") not in (None, "none")


def _warnings(before: Mapping[str, object], after: Mapping[str, object]) -> Iterator[CampaignWarning]:
    governor = _get(before, "cpu", "governor")
    if isinstance(governor, str) and governor != "performance":
        yield _warning(WarningKind.CPU_FREQUENCY_VARIES, "frequency", governor=governor)
    if is_virtual(before):
        yield _warning(WarningKind.HOST_IS_VIRTUAL, "virtual", machine=_get(before, "virtualisation", "machine"))
    limit, limit_cpus, remedy = (_get(before, "cpu", "limit", name) for name in ("text", "cpus", "remedy"))
    cpus = _get(before, "cpu", "online_count")
    if limit is not None and isinstance(limit_cpus, float) and not (isinstance(cpus, int) and limit_cpus >= cpus):
        yield _warning(WarningKind.CPU_LIMIT, "limited", limit=limit, remedy=remedy)
    loads, use = (_get(before, "activity", name) for name in ("load_average", "cpu_use"))
    if isinstance(loads, list) and loads and isinstance(cpus, int) and loads[0] > cpus * MAX_LOAD_PER_CPU:
        in_use = f", {use:.0%} of them in use at the start" if isinstance(use, float) else ""
        if not (isinstance(use, float) and use < MAX_CPU_USE):
            yield _warning(WarningKind.HOST_WAS_BUSY, "busy", load=loads[0], cpus=cpus, use=in_use)
    total, steal = _growth(before, after, "total"), _growth(before, after, "steal")
    if total and steal is not None and steal > total * MAX_STEAL_RATIO:
        yield _warning(WarningKind.HOST_WAS_BUSY, "stolen", ratio=steal / total, steal=steal, total=total)


def _warning(kind: WarningKind, text: str, **values: object) -> CampaignWarning:
    return CampaignWarning(kind, _TEXTS[text].format_map(values))


def _growth(before: Mapping[str, object], after: Mapping[str, object], counter: str) -> int | None:
    """Return the increase of a CPU time in ticks; None when unknown, or when the host rebooted in between."""
    first, last = (_get(environment, "activity", "cpu_ticks", counter) for environment in (before, after))
    if not (isinstance(first, int) and isinstance(last, int)) or last < first:
        return None
    return last - first


def _get(environment: Mapping[str, object], *path: str) -> object:
    value: object = environment
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
