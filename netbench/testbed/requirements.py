"""What must be there before anything is touched: tools, guest images, KVM. Kernel features show when they are used."""

import tempfile
from collections.abc import Iterable
from pathlib import Path

from netbench.errors import MissingError
from netbench.hosts.local import LocalHost, require_tool
from netbench.images.library import DEFAULT_IMAGE, find_image
from netbench.linux.cgroups import find_controller
from netbench.vmm.acceleration import choose
from netbench.vmm.qemu_command import VHOST_DEVICE, qemu_program

_TOOLS = frozenset({"ip", "ethtool", "tcpdump", "taskset", "setpriv", "nft", "ssh", "stress-ng", qemu_program()})


def require(needs: Iterable[str]) -> None:
    """MissingError for the first of the needs (in the words of `netbench doctor`) that this host lacks."""
    wanted = sorted(needs)
    images = [need.removeprefix("image:") for need in wanted if need.startswith("image:")]
    for need in wanted:
        if need in _TOOLS:
            require_tool(need)
        elif need.startswith("image:"):
            find_image(need.removeprefix("image:"))
        elif need == "kvm":
            _require_kvm(images[0] if images else DEFAULT_IMAGE)
        elif need == "cgroup-cpu":
            find_controller(LocalHost("local", "requirements"))
        elif need == "vhost" and not VHOST_DEVICE.exists():
            raise MissingError(f"vhost: on is asked for, but this host has no {VHOST_DEVICE}: modprobe vhost_net")


def _require_kvm(image: str) -> None:
    with tempfile.TemporaryDirectory(prefix="netbench-kvm-") as directory:
        choose("kvm", LocalHost("local", "requirements"), Path(directory), image)
