"""What a guest is made of, besides its kernel and the modules of it."""

import json
from pathlib import Path

from netbench.hosts.agent import program as agent_program
from netbench.images.library import content_digest
from netbench.images.wanted_modules import WANTED

# Raised when the same recipe and packages would give another image.
BUILDER = 2

DEFAULT_KERNELS = {"amd64": "linux-image-amd64", "arm64": "linux-image-arm64"}
PACKAGES = (
    "busybox-static",
    "dash",
    "ethtool",
    "iproute2",
    "netbase",
    "nftables",
    "python3-minimal",
    "stress-ng",
    "tcpdump",
)
# The shell is dash: busybox's takes its own `ip` and `tc` for those of iproute2, whatever PATH says.
COMMANDS = ("bridge", "busybox", "ethtool", "ip", "nft", "python3", "sh", "tc", "tcpdump")
# With the libraries that nothing else needs they are a third of a guest.
PACKED_COMMANDS = ("stress-ng",)
# What commands read besides their libraries: names of protocols, and the delay distributions of netem.
# libgcc_s is loaded by the C library itself, when a thread is cancelled.
FILES = ("etc/protocols", "usr/lib/*/libgcc_s.so.1", "usr/lib/*.dist")
# tcpdump gives up root for this user.
ACCOUNTS = {
    "etc/passwd": "root:x:0:0:root:/root:/bin/sh\ntcpdump:x:100:100::/:/bin/false\n",
    "etc/group": "root:x:0:\ntcpdump:x:100:\n",
    "etc/hosts": "127.0.0.1 localhost netbench-guest\n::1 localhost\n",
}
MOUNT_POINTS = ("dev", "proc", "root", "run", "sys", "tmp", "var/log")

INIT = Path(__file__).parent / "guest" / "init"
AGENT = Path(agent_program.__file__)


def digest() -> str:
    """One hash of all of the above, and of the modules wanted."""
    decisions = (BUILDER, PACKAGES, COMMANDS, PACKED_COMMANDS, FILES, ACCOUNTS, MOUNT_POINTS, WANTED)
    own = [content_digest(path.read_bytes()) for path in (INIT, AGENT)]
    return content_digest(json.dumps([decisions, *own], sort_keys=True).encode())
