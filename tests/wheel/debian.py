"""Another Debian to run things in: a root file system made of its packages, kept in netbench's cache."""

import hashlib
import shutil
import subprocess
from pathlib import Path

from netbench.images.library import cache_directory

PACKAGES = (
    "ca-certificates",
    "cpio",
    "ethtool",
    "iproute2",
    "kmod",
    "mmdebstrap",
    "nftables",
    "python3-venv",
    "tcpdump",
    "xz-utils",
)
_LEFT_OUT = ("doc", "locale", "man")
_TIME_LIMIT_S = 480
# Run by a shell with private mounts. The machine's package sources and its pip configuration are used there too;
# netbench's files in /run are separate. $1: the root; $2: a directory shared by both sides.
_ENTER = """
set -e
root=$1 shared=$2
shift 2
mount --bind $root $root # so that `ip netns exec` finds a mount point at its root
for place in proc sys dev; do mount --rbind /$place $root/$place; done
mount -t tmpfs -o mode=755 none $root/run
mount -t tmpfs -o mode=1777 none $root/tmp
for file in /etc/resolv.conf /etc/pip.conf; do
    [ ! -e $file ] || { touch $root$file && mount --bind $file $root$file; }
done
for directory in /etc/apt /etc/ssl/certs /usr/share/keyrings /var/lib/apt/lists $shared; do
    mkdir -p $root$directory
    mount --bind $directory $root$directory
done
exec chroot $root "$@"
"""


class Unavailable(Exception):
    """No root can be made, for the given reason."""


def root_of(release: str) -> Path:
    """The root of a Debian release by its code name, made at the first call; Unavailable where that fails."""
    named = hashlib.sha256(" ".join((*PACKAGES, *_LEFT_OUT)).encode()).hexdigest()[:8]
    root = cache_directory() / "roots" / f"{release}-{named}"
    if root.is_dir():
        return root
    if shutil.which("mmdebstrap") is None:
        raise Unavailable("there is no mmdebstrap: apt-get install mmdebstrap")
    unfinished = root.with_suffix(".unfinished")
    shutil.rmtree(unfinished, ignore_errors=True)  # left by a run that was killed
    root.parent.mkdir(parents=True, exist_ok=True)
    options = ["--variant=apt", f"--include={','.join(PACKAGES)}", '--aptopt=Acquire::Languages "none"']
    options += [f"--dpkgopt=path-exclude=/usr/share/{path}/*" for path in _LEFT_OUT]
    argv = ["mmdebstrap", "--quiet", *options, release, str(unfinished), f"deb {_archive()} {release} main"]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_TIME_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        raise Unavailable(f"mmdebstrap took more than {_TIME_LIMIT_S} s") from None
    if done.returncode:
        raise Unavailable(f"mmdebstrap made no root of {release}: {done.stderr[-500:]}")
    unfinished.rename(root)
    return root


def entering(root: Path, shared: Path) -> list[str]:
    """The prefix of a command to run in the root; `shared` has the same path there."""
    return ["unshare", "--mount", "--propagation=private", "sh", "-c", _ENTER, "enter", str(root), str(shared)]


def _archive() -> str:
    """The URI from which this machine gets Debian's packages."""
    argv = ["apt-get", "indextargets", "--format=$(ORIGIN) $(COMPONENT) $(REPO_URI)", "Created-By: Packages"]
    try:
        lines = subprocess.run(argv, capture_output=True, text=True, check=False).stdout.splitlines()
    except FileNotFoundError:
        raise Unavailable("there is no apt-get here") from None
    archives = [line.split()[2] for line in lines if line.startswith("Debian main ") and "security" not in line]
    if not archives:
        raise Unavailable("apt has no source of Debian's main archive here; see /etc/apt, and run `apt-get update`")
    return archives[0]
