"""What must be there before anything is touched: tools and guest images. Kernel features show when they are used."""

from collections.abc import Iterable

from netbench.errors import MissingError
from netbench.hosts.local import require_tool
from netbench.images.library import find_image
from netbench.vm.machine import VHOST_DEVICE, qemu_program

_TOOLS = frozenset({"ip", "ethtool", "tcpdump", "taskset", "setpriv", "nft", "ssh", qemu_program()})


def require(needs: Iterable[str]) -> None:
    """MissingError for the first of the needs (in the words of `netbench doctor`) that this host lacks."""
    for need in sorted(needs):
        if need in _TOOLS:
            require_tool(need)
        elif need.startswith("image:"):
            find_image(need.removeprefix("image:"))
        elif need == "vhost" and not VHOST_DEVICE.exists():
            raise MissingError(f"vhost: on is asked for, but this host has no {VHOST_DEVICE}: modprobe vhost_net")
