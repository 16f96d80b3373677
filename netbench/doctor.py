"""What this host can run, what it lacks, and the exact command that adds it.

A kernel feature counts when it has been used successfully, in a network namespace made for that and
removed again; a name in a list of modules or a configuration file is not believed.
"""

import errno
import fcntl
import json
import os
import platform
import re
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from pyroute2 import IPRoute
from pyroute2 import netns as namespaces
from pyroute2.netlink.exceptions import NetlinkError
from rich.console import Console
from rich.text import Text

from netbench.errors import ExitCode, NetbenchError
from netbench.links.safety import Port, read_ports, refuse_unsafe_port

PROBE_PREFIX = "nb-probe-"

_MIN_CPUS = 2
_MIN_FREE_BYTES = 2 * 1024**3
_MIN_MEMORY_BYTES = 1024**3
_TIMEOUT_S = 10.0
_CPU_SYSFS = Path("/sys/devices/system/cpu")
_CLOCK_SYSFS = Path("/sys/devices/system/clocksource/clocksource0")
# These need a device access or an exit to the hypervisor for every reading (timekeeping.rst, virt/kvm).
_SLOW_CLOCKS = ("acpi_pm", "hpet", "jiffies", "pit", "refined-jiffies")


class Which(Protocol):
    """Finds a command, as shutil.which does: its path, None when it is not there."""

    def __call__(self, name: str, /, *, path: str | None = None) -> str | None:
        """Look in the directories of `path`, None for those of the user's PATH."""


class Status(StrEnum):
    """What a check came to. Only `missing` keeps netbench from doing what was asked for."""

    OK = "ok"
    MISSING = "missing"
    WARNING = "warning"  # it works, with numbers to be read with care; or it could not be checked
    ABSENT = "absent"  # nothing that was asked for needs it
    IN_USE = "in use"  # a port that carries something else


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. `remedy` is the command or change that adds it; empty: nothing to be done."""

    name: str
    status: Status
    found: str
    remedy: str
    needed_for: str


@dataclass(frozen=True, slots=True)
class _Tool:
    name: str
    package: str
    needed_for: str


@dataclass(frozen=True, slots=True)
class _Feature:
    """Something of the kernel: tried by `probe` once everything in `requires` is there."""

    name: str
    needed_for: str
    requires: tuple[str, ...]
    option: str  # of the kernel's configuration
    module: str  # that holds it, where it may be one
    probe: "Callable[[_Bench], str]"
    optional: bool = False


class _ProbeError(Exception):
    """A feature is not there; the text says what was seen."""


def diagnose(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    which: Which = shutil.which,
    euid: int | None = None,
) -> list[Check]:
    """Look at this host.

    `needs` are names from `known_needs()` and `port:NAME` for interfaces to be taken over; what they
    rest on is looked at too. None looks at everything, and then optional features are only reported.
    `addresses` are those the user names for each port. Raises ValueError for an unknown need.
    """
    unknown = {need for need in needs or () if not need.startswith("port:")} - known_needs()
    if unknown:
        raise ValueError(f"unknown needs: {', '.join(sorted(unknown))}")
    euid = os.geteuid() if euid is None else euid
    wanted = None if needs is None else _with_prerequisites(needs)
    checks = [_root(euid, which)]
    checks += [_tool(tool, which, euid) for tool in _TOOLS if wanted is None or tool.name in wanted]
    features = [feature for feature in _FEATURES if wanted is None or feature.name in wanted]
    checks += _kernel(features, {check.name: check for check in checks}, needs or frozenset(), which)
    checks += [_cpus(), _governor(), _clocksource(), _memory(), _disk(), _packages(), _parquet()]
    checks += _all_ports() if needs is None else _named_ports(needs, addresses)
    return checks


def known_needs() -> frozenset[str]:
    """Root, the tools and the kernel features that a topology may need."""
    return frozenset({"root", *(tool.name for tool in _TOOLS), *(feature.name for feature in _FEATURES)})


def exit_code(checks: Iterable[Check]) -> ExitCode:
    """3 when something needed is missing, 0 otherwise."""
    missing = any(check.status is Status.MISSING for check in checks)
    return ExitCode.MISSING if missing else ExitCode.DONE


def doctor_text(checks: Iterable[Check]) -> Text:
    """One line a check, what to do below it (once), and a summary; print it with `soft_wrap=True`."""
    checks = list(checks)
    width = max((len(check.name) for check in checks), default=0)
    text = Text()
    said: set[str] = set()
    for check in checks:
        text.append(f"{check.status:<8}", style=_STYLES[check.status])
        text.append(f"{check.name:<{width}}  {check.found}\n")
        if check.status is not Status.OK:
            text.append(f"{'':<8}{'':<{width}}  for: {check.needed_for}\n", style="dim")
        if check.remedy and check.remedy not in said:
            text.append(f"{'':<8}{'':<{width}}  do:  ")
            text.append(f"{check.remedy}\n", style="bold")
            said.add(check.remedy)
    missing = [check.name for check in checks if check.status is Status.MISSING]
    if missing:
        text.append(f"\nMissing: {', '.join(missing)}.\n", style="red")
    else:
        text.append("\nNothing that is needed is missing.\n", style="green")
    return text


def doctor_json(checks: Iterable[Check]) -> str:
    """`{"ok": …, "checks": [{name, status, found, remedy, needed_for}, …]}`."""
    checks = list(checks)
    ok = exit_code(checks) is ExitCode.DONE
    return json.dumps({"ok": ok, "checks": [asdict(check) for check in checks]}, indent=2)


def run_doctor(
    needs: frozenset[str] | None = None,
    *,
    addresses: Mapping[str, Collection[str]] = {},
    as_json: bool = False,
    console: Console | None = None,
) -> ExitCode:
    """Look at this host, print what was found to `console` (stdout), and say how to exit."""
    checks = diagnose(needs, addresses=addresses)
    console = console or Console(highlight=False)
    if as_json:
        console.print(doctor_json(checks), markup=False, highlight=False, soft_wrap=True)
    else:
        console.print(doctor_text(checks), soft_wrap=True, end="")
    return exit_code(checks)


_STYLES = {
    Status.OK: "green",
    Status.MISSING: "bold red",
    Status.WARNING: "yellow",
    Status.ABSENT: "dim",
    Status.IN_USE: "dim",
}


# Tools and packages


_TOOLS = (
    _Tool("ip", "iproute2", "running commands inside network namespaces"),
    _Tool("tcpdump", "tcpdump", "capturing at the sinks"),
    _Tool("nft", "nftables", "reference UUTs, whose drops are known"),
    _Tool("ethtool", "ethtool", "switching the offloads of NICs off"),
    _Tool("taskset", "util-linux", "pinning processes to CPUs"),
    _Tool("setpriv", "util-linux", "child processes that end with netbench"),
)
_INSTALL = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "opensuse": "zypper install",
    "arch": "pacman -S",
}
_OTHER_NAMES = {("dnf install", "iproute2"): "iproute"}
_SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def install_command(package: str, distribution: Iterable[str]) -> str:
    """The command that installs a package, given by its name in Debian.

    `distribution` holds the ID and ID_LIKE of os-release(5), nearest first.
    """
    for name in distribution:
        if command := _INSTALL.get(name):
            return f"{command} {_OTHER_NAMES.get((command, package), package)}"
    return f"install {package} with the package manager of this system"


def _distribution() -> list[str]:
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def _tool(tool: _Tool, which: Which, euid: int) -> Check:
    if path := which(tool.name):
        return Check(tool.name, Status.OK, path, "", tool.needed_for)
    elsewhere = which(tool.name, path=_SYSTEM_DIRECTORIES)
    if elsewhere and euid != 0:
        return Check(tool.name, Status.OK, f"{elsewhere}, where root finds it", "", tool.needed_for)
    if elsewhere:
        remedy = f"export PATH=$PATH:{Path(elsewhere).parent}"
        return Check(tool.name, Status.MISSING, f"{elsewhere}, which is not in PATH", remedy, tool.needed_for)
    remedy = install_command(tool.package, _distribution())
    return Check(tool.name, Status.MISSING, "not installed", remedy, tool.needed_for)


_IMPORTS = {
    "numpy": "numpy",
    "plotly": "plotly",
    "pydantic": "pydantic",
    "pyroute2": "pyroute2",
    "PyYAML": "yaml",
    "rich": "rich",
    "scipy": "scipy",
    "typer": "typer",
}


def _packages() -> Check:
    needed_for = "netbench itself"
    missing = [package for package, module in _IMPORTS.items() if find_spec(module) is None]
    if missing:
        remedy = f"{sys.executable} -m pip install {' '.join(missing)}"
        return Check("python", Status.MISSING, f"no {', '.join(missing)}", remedy, needed_for)
    versions = ", ".join(f"{package} {_version(package)}" for package in _IMPORTS)
    return Check("python", Status.OK, f"{platform.python_version()} with {versions}", "", needed_for)


def _parquet() -> Check:
    needed_for = "netbench export --format parquet"
    if find_spec("pyarrow") is None:
        return Check("parquet", Status.ABSENT, "no pyarrow", f"{sys.executable} -m pip install pyarrow", needed_for)
    return Check("parquet", Status.OK, f"pyarrow {_version('pyarrow')}", "", needed_for)


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "of unknown version"


# The machine


def _root(euid: int, which: Which) -> Check:
    needed_for = "making links, sending and capturing frames"
    if euid == 0:
        return Check("root", Status.OK, "running as root", "", needed_for)
    remedy = f"sudo {_own_command(which)} doctor"
    return Check("root", Status.MISSING, f"running as user {euid}", remedy, needed_for)


def _own_command(which: Which) -> str:
    """How root starts this netbench: the PATH of sudo has no virtual environments in it."""
    started_as = Path(sys.argv[0])
    if started_as.name == "netbench" and started_as.is_file():
        return str(started_as.absolute())
    return which("netbench") or "netbench"


def _cpus() -> Check:
    needed_for = "generator, UUT and sink on CPUs of their own"
    count = len(os.sched_getaffinity(0))
    if count >= _MIN_CPUS:
        return Check("cpus", Status.OK, f"{count} CPUs", "", needed_for)
    remedy = f"give this machine, or netbench's CPU set, at least {_MIN_CPUS} CPUs"
    return Check("cpus", Status.WARNING, f"{count} CPU", remedy, needed_for)


def _governor() -> Check:
    needed_for = "CPUs of constant speed"
    governors = {_read(path) for path in _CPU_SYSFS.glob("cpu[0-9]*/cpufreq/scaling_governor")} - {""}
    if not governors:
        return Check("governor", Status.OK, "none: this kernel does not set CPU frequencies", "", needed_for)
    found = ", ".join(sorted(governors))
    if governors == {"performance"}:
        return Check("governor", Status.OK, found, "", needed_for)
    remedy = f"echo performance | sudo tee {_CPU_SYSFS}/cpu*/cpufreq/scaling_governor"
    return Check("governor", Status.WARNING, found, remedy, needed_for)


def _clocksource() -> Check:
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


def _memory() -> Check:
    needed_for = "capture buffers"
    match = re.search(r"^MemAvailable:\s+(\d+) kB", _read(Path("/proc/meminfo")), re.MULTILINE)
    if match is None:
        return Check("memory", Status.WARNING, "unknown: /proc/meminfo cannot be read", "", needed_for)
    available = int(match[1]) * 1024
    found = f"{available / 1024**3:.1f} GiB available"
    if available >= _MIN_MEMORY_BYTES:
        return Check("memory", Status.OK, found, "", needed_for)
    return Check("memory", Status.WARNING, found, "end other programs or add memory", needed_for)


def _disk() -> Check:
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


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# Ports


def _all_ports() -> list[Check]:
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


def _named_ports(needs: frozenset[str], addresses: Mapping[str, Collection[str]]) -> Iterator[Check]:
    for name in sorted(need.removeprefix("port:") for need in needs if need.startswith("port:")):
        needed_for = "the topology, which names it"
        try:
            refuse_unsafe_port(name, addresses.get(name, ()))
        except NetbenchError as error:
            yield Check(f"port:{name}", Status.MISSING, str(error), "change the topology", needed_for)
        else:
            yield Check(f"port:{name}", Status.OK, "there, and free", "", needed_for)


# The kernel


class _Bench:
    """Where features are tried: a namespace with the veth pair `nbp0` – `nbp1`, once those probes ran."""

    def __init__(self, stack: ExitStack, which: Which) -> None:
        self._stack = stack
        self._which = which

    def netns(self) -> str:
        self._stack.enter_context(_probe_namespace())
        return "made one and entered it"

    def veth(self) -> str:
        with IPRoute() as iproute:
            iproute.link("add", ifname="nbp0", kind="veth", peer={"ifname": "nbp1"})
            for name in ("nbp0", "nbp1"):
                iproute.link("set", index=iproute.link_lookup(ifname=name)[0], state="up")
        return "made a pair"

    def bridge(self) -> str:
        with IPRoute() as iproute:
            iproute.link("add", ifname="nbpbr", kind="bridge")
            bridge, port = (iproute.link_lookup(ifname=name)[0] for name in ("nbpbr", "nbp1"))
            iproute.link("set", index=port, master=bridge)
            iproute.link("set", index=port, master=0)
        return "made one and gave it a port"

    def bridge_nf(self) -> str:
        switches = sorted(Path("/proc/sys/net/bridge").glob("bridge-nf-call-*"))
        for switch in switches:
            before = switch.read_text()
            switch.write_text("0")
            now = switch.read_text().strip()
            switch.write_text(before)
            if now != "0":
                raise _ProbeError(f"{switch.name} stays {now} when set to 0")
        return "can be switched off" if switches else "br_netfilter is not loaded: nothing to switch off"

    def forwarding(self) -> str:
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        return "net.ipv4.ip_forward can be set"

    def packet(self) -> str:
        frame = bytes(12) + struct.pack("!H", _ETH_P_EXPERIMENT) + b"netbench".ljust(46)
        with (
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender,
            socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ETH_P_EXPERIMENT)) as receiver,
        ):
            sender.setsockopt(_SOL_PACKET, _PACKET_QDISC_BYPASS, 1)
            sender.bind(("nbp0", _ETH_P_EXPERIMENT))
            receiver.bind(("nbp1", _ETH_P_EXPERIMENT))
            receiver.settimeout(_TIMEOUT_S)
            sender.send(frame)
            if receiver.recv(2048) != frame:
                raise _ProbeError("the frame received is not the one that was sent")
        return "sent a frame past the queueing discipline and received it"

    def nftables(self) -> str:
        for family in ("bridge", "ip"):
            self._nft(f"add table {family} nbp")
            self._nft(f"add chain {family} nbp c {{ type filter hook forward priority 0; }}")
        return "made filter chains for bridged and routed frames"

    def numgen(self) -> str:
        for family in ("bridge", "ip"):
            self._nft(f"add rule {family} nbp c numgen inc mod 100 < 7 counter drop")
        return "made a rule that drops 7 of 100 frames"

    def ingress(self) -> str:
        self._nft("add table netdev nbp")
        self._nft('add chain netdev nbp c { type filter hook ingress device "nbp0" priority 0; }')
        return "made an ingress chain"

    def netem(self) -> str:
        with IPRoute() as iproute:
            iproute.tc("add", "netem", iproute.link_lookup(ifname="nbp0")[0], "1:", delay=1000)
        return "delayed a link"

    def pktgen(self) -> str:
        if Path("/proc/net/pktgen").exists():
            return "loaded"
        if _loadable(self._which, "pktgen"):
            return "not loaded; the module is there"
        raise _ProbeError("not in this kernel")

    def tun(self) -> str:
        with Path("/dev/net/tun").open("r+b", buffering=0) as device:
            fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH14x", b"nbptap", _IFF_TAP | _IFF_NO_PI))
        return "made a tap"

    def kvm(self) -> str:
        if not Path("/dev/kvm").exists():
            raise _ProbeError("no /dev/kvm")
        return "/dev/kvm is present, not probed: only starting a guest shows whether it works"

    def xdp(self) -> str:
        socket.socket(_AF_XDP, socket.SOCK_RAW, 0).close()
        return "opened a socket"

    def _nft(self, ruleset: str) -> None:
        done = subprocess.run(
            [self._which("nft") or "nft", "-f", "-"],
            input=ruleset,
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
        )
        if done.returncode != 0:
            words = done.stderr.partition("Error: ")[2] or done.stderr
            raise _ProbeError((words.splitlines() or [f"nft exited with {done.returncode}"])[0])


_ETH_P_EXPERIMENT = 0x88B5  # IEEE Std 802, local experimental EtherType 1
_SOL_PACKET = 263
_PACKET_QDISC_BYPASS = 20
_AF_XDP = 44
_TUNSETIFF = 0x400454CA
_IFF_TAP = 0x0002
_IFF_NO_PI = 0x1000

_IN_NETNS = ("root", "netns")
_ON_VETH = (*_IN_NETNS, "veth")
_WITH_NFT = (*_IN_NETNS, "nft")
_FEATURES = (
    _Feature("netns", "testbeds of network namespaces", ("root",), "CONFIG_NET_NS", "", _Bench.netns),
    _Feature("veth", "links between namespaces", _IN_NETNS, "CONFIG_VETH", "veth", _Bench.veth),
    _Feature("packet", "the generator afpacket", _ON_VETH, "CONFIG_PACKET", "af_packet", _Bench.packet),
    _Feature("bridge", "UUTs that bridge", _ON_VETH, "CONFIG_BRIDGE", "bridge", _Bench.bridge),
    _Feature("bridge-nf", "bridges that no host firewall filters", (*_ON_VETH, "bridge"), "", "", _Bench.bridge_nf),
    _Feature("forwarding", "UUTs that route", _IN_NETNS, "CONFIG_SYSCTL", "", _Bench.forwarding),
    _Feature("nftables", "reference UUTs", _WITH_NFT, "CONFIG_NF_TABLES_BRIDGE", "nf_tables", _Bench.nftables),
    _Feature(
        "numgen",
        "reference UUTs that drop k of n frames",
        (*_WITH_NFT, "nftables"),
        "CONFIG_NFT_NUMGEN",
        "nft_numgen",
        _Bench.numgen,
    ),
    _Feature(
        "nft-ingress",
        "reference UUTs that limit a rate",
        (*_ON_VETH, "nft"),
        "CONFIG_NF_TABLES_NETDEV",
        "nf_tables",
        _Bench.ingress,
        optional=True,
    ),
    _Feature("pktgen", "the generator pktgen", (), "CONFIG_NET_PKTGEN", "pktgen", _Bench.pktgen, optional=True),
    _Feature(
        "netem",
        "links of known delay",
        _ON_VETH,
        "CONFIG_NET_SCH_NETEM",
        "sch_netem",
        _Bench.netem,
        optional=True,
    ),
    _Feature("tun", "taps for guests", _IN_NETNS, "CONFIG_TUN", "tun", _Bench.tun, optional=True),
    _Feature("kvm", "fast guests", (), "CONFIG_KVM", "kvm", _Bench.kvm, optional=True),
    _Feature("xdp", "generators on XDP sockets", _IN_NETNS, "CONFIG_XDP_SOCKETS", "", _Bench.xdp, optional=True),
)


def _with_prerequisites(needs: Iterable[str]) -> frozenset[str]:
    requires = {feature.name: feature.requires for feature in _FEATURES}
    wanted: set[str] = set()
    pending = list(needs)
    while pending:
        need = pending.pop()
        if need not in wanted:
            wanted.add(need)
            pending += requires.get(need, ())
    return frozenset(wanted)


def _kernel(features: Iterable[_Feature], done: dict[str, Check], needs: frozenset[str], which: Which) -> list[Check]:
    """Try the features in order; `done` are the checks that they may rest on."""
    checks = []
    with ExitStack() as stack:
        bench = _Bench(stack, which)
        for feature in features:
            unmet = [done[name] for name in feature.requires if done[name].status is not Status.OK]
            needed = not feature.optional or feature.name in needs
            check = _not_checked(feature, unmet[0]) if unmet else _try(feature, bench, needed, which)
            done[feature.name] = check
            checks.append(check)
    return checks


def _not_checked(feature: _Feature, unmet: Check) -> Check:
    return Check(feature.name, Status.WARNING, f"not checked: needs {unmet.name}", unmet.remedy, feature.needed_for)


def _try(feature: _Feature, bench: _Bench, needed: bool, which: Which) -> Check:
    try:
        found = feature.probe(bench)
    except (OSError, NetlinkError, _ProbeError, subprocess.TimeoutExpired) as error:
        status = Status.MISSING if needed else Status.ABSENT
        reason = _reason(error)
        remedy = _kernel_remedy(feature, reason, which)
        return Check(feature.name, status, reason, remedy, feature.needed_for)
    return Check(feature.name, Status.OK, found, "", feature.needed_for)


def _reason(error: Exception) -> str:
    match error:
        case NetlinkError():
            return f"the kernel refuses: {os.strerror(error.code)}"
        case TimeoutError():
            return f"nothing happened within {_TIMEOUT_S:g} s"
        case OSError(errno=int(number)):
            # pyroute2 puts the step that failed where Python puts the errno's text.
            step = "" if error.strerror == os.strerror(number) else f" ({error.strerror})"
            where = f": {error.filename}" if error.filename else ""
            return f"the kernel refuses: {os.strerror(number)}{step}{where}"
        case subprocess.TimeoutExpired():
            return f"nft did not end within {error.timeout:g} s"
    return str(error)


def _kernel_remedy(feature: _Feature, reason: str, which: Which) -> str:
    if any(os.strerror(number) in reason for number in (errno.EPERM, errno.EACCES, errno.EROFS)):
        return "run netbench outside this container, or give the container --privileged"
    if feature.module and _loadable(which, feature.module):
        return f"modprobe {feature.module}"
    return f"boot a kernel with {feature.option}{_debian_kernel()}" if feature.option else ""


def _debian_kernel() -> str:
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if architecture is None or "debian" not in _distribution():
        return ""
    return f", for example Debian's own: apt-get install linux-image-{architecture}"


def _loadable(which: Which, module: str) -> bool:
    """Whether modprobe knows the module; it is not loaded for that."""
    modprobe = which("modprobe")
    if modprobe is None:
        return False
    try:
        done = subprocess.run([modprobe, "-n", "-q", module], capture_output=True, timeout=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


@contextmanager
def _probe_namespace() -> Iterator[None]:
    """This thread within a new network namespace, which goes with all it holds, whatever happens."""
    _remove_stale_namespaces()
    name = f"{PROBE_PREFIX}{os.getpid()}"
    try:
        namespaces.create(name)
        namespaces.pushns(name)
        try:
            yield
        finally:
            namespaces.popns()
    finally:
        _remove_namespace(name)


def _remove_stale_namespaces() -> None:
    """Remove those of doctors that were killed."""
    for name in namespaces.listnetns():
        pid = name.removeprefix(PROBE_PREFIX)
        if name.startswith(PROBE_PREFIX) and pid.isdecimal() and not Path("/proc", pid).exists():
            _remove_namespace(name)


def _remove_namespace(name: str) -> None:
    with suppress(OSError):
        namespaces.remove(name)
