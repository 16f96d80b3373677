"""The commands that netbench starts: where they are, and which package holds them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from netbench.testbed.doctor.checks import Check, Status
from netbench.testbed.doctor.packages import distribution_ids, install_command
from netbench.vmm.qemu_command import qemu_program


class Which(Protocol):
    """Finds a command, as shutil.which does: its path, None when it is not there."""

    def __call__(self, name: str, /, *, path: str | None = None) -> str | None:
        """Look in the directories of `path`, None for those of the user's PATH."""


@dataclass(frozen=True, slots=True)
class Tool:
    """A command that netbench starts; `package` is the one that holds it in Debian."""

    name: str
    package: str
    needed_for: str
    optional: bool = False  # only some topologies need it


_QEMU_PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "qemu-system-aarch64": "qemu-system-arm"}
TOOLS = (
    Tool("ip", "iproute2", "running commands inside network namespaces"),
    Tool("tcpdump", "tcpdump", "capturing at the sinks"),
    Tool("nft", "nftables", "reference UUTs, whose drops are known"),
    Tool("ethtool", "ethtool", "switching the offloads of NICs off"),
    Tool("taskset", "util-linux", "pinning processes to CPUs"),
    Tool("setpriv", "util-linux", "child processes that end with netbench"),
    Tool(qemu_program(), _QEMU_PACKAGES.get(qemu_program(), "qemu-system"), "guests", optional=True),
    Tool("stress-ng", "stress-ng", "loads of neighbours that are no guests", optional=True),
    Tool("ssh", "openssh-client", "guests whose disk image is reached over SSH", optional=True),
)
_SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def check_tool(tool: Tool, which: Which, euid: int, *, needed: bool = True) -> Check:
    """Whether the tool is where netbench, started by `euid` or as root, will find it."""
    if path := which(tool.name):
        return Check(tool.name, Status.OK, path, "", tool.needed_for)
    elsewhere = which(tool.name, path=_SYSTEM_DIRECTORIES)
    if elsewhere and euid != 0:
        return Check(tool.name, Status.OK, f"{elsewhere}, where root finds it", "", tool.needed_for)
    if elsewhere:
        remedy = f"export PATH=$PATH:{Path(elsewhere).parent}"
        return Check(tool.name, Status.MISSING, f"{elsewhere}, which is not in PATH", remedy, tool.needed_for)
    remedy = install_command(tool.package, distribution_ids())
    status = Status.MISSING if needed else Status.ABSENT
    return Check(tool.name, status, "not installed", remedy, tool.needed_for)
