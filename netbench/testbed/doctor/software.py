"""Root, the commands that netbench starts, and the Python that runs it: what is there, and what adds the rest."""

import platform
import re
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Protocol

from netbench.testbed.doctor.checks import Check, Status
from netbench.testbed.requirements import Tool


class Which(Protocol):
    """Finds a command, as shutil.which does: its path, None when it is not there."""

    def __call__(self, name: str, /, *, path: str | None = None) -> str | None:
        """Look in the directories of `path`, None for those of the user's PATH."""


_SYSTEM_DIRECTORIES = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_INSTALL = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "opensuse": "zypper install",
    "arch": "pacman -S",
}
_OTHER_NAMES = {("dnf install", "iproute2"): "iproute"}


def check_root(euid: int, which: Which) -> Check:
    """Whether `euid` may do what netbench does, and how root would start it."""
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


def install_command(package: str, distribution: Iterable[str]) -> str:
    """The command that installs a package, given by its name in Debian.

    `distribution` holds the ID and ID_LIKE of os-release(5), nearest first.
    """
    for name in distribution:
        if command := _INSTALL.get(name):
            return f"{command} {_OTHER_NAMES.get((command, package), package)}"
    return f"install {package} with the package manager of this system"


def distribution_ids() -> list[str]:
    """This system's ID and ID_LIKE of os-release(5), nearest first; empty when it does not say."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return [release.get("ID", ""), *release.get("ID_LIKE", "").split()]


def debian_kernel() -> str:
    """How to install a kernel with everything in it, where Debian has one: a phrase to end a sentence with."""
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if architecture is None or "debian" not in distribution_ids():
        return ""
    return f", for example Debian's own: apt-get install linux-image-{architecture}"


def check_packages() -> Check:
    """Whether the packages that netbench imports are there, and of which versions."""
    needed_for = "netbench itself"
    required = [one for one in metadata.requires("netbench") or () if "extra ==" not in one]
    packages = [match[0] for one in required if (match := re.match(r"[\w.-]+", one))]
    versions = {package: _version(package) for package in packages}
    if missing := [package for package, version in versions.items() if version is None]:
        remedy = f"{sys.executable} -m pip install {' '.join(missing)}"
        return Check("python", Status.MISSING, f"no {', '.join(missing)}", remedy, needed_for)
    found = ", ".join(f"{package} {version}" for package, version in versions.items())
    return Check("python", Status.OK, f"{platform.python_version()} with {found}", "", needed_for)


def check_parquet() -> Check:
    """Whether the one optional package is there."""
    needed_for = "netbench export --format parquet"
    version = _version("pyarrow")
    if version is None:
        return Check("parquet", Status.ABSENT, "no pyarrow", f"{sys.executable} -m pip install pyarrow", needed_for)
    return Check("parquet", Status.OK, f"pyarrow {version}", "", needed_for)


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
