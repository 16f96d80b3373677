"""The commands that add packages, for each family of distributions."""

import platform
from collections.abc import Iterable

_INSTALL = {
    "debian": "apt-get install",
    "fedora": "dnf install",
    "rhel": "dnf install",
    "suse": "zypper install",
    "opensuse": "zypper install",
    "arch": "pacman -S",
}
_OTHER_NAMES = {("dnf install", "iproute2"): "iproute"}


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
