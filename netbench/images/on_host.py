"""The files of guest images on a host that may be another machine, and the image that the host requires.

Images are unpacked into directories for guests without their own kernel: once, and kept.
"""

import fcntl
from dataclasses import replace
from pathlib import Path

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, exists, machine_name, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.hosts.local import LocalHost
from netbench.hosts.remote_code import has_netbench, scratch_of
from netbench.images.library import SHELF, Image, cache_directory
from netbench.linux.locks import STATE_DIRECTORY

_UNPACK_S = 300.0  # on an emulated CPU
# Unpacks the archive $1 and the packed commands in its directory $2 to the directory $0, completely or not at all. The
# files touched are mount points of runtimes.
_UNPACK = """
set -e
rm -rf "$0.part"
mkdir -p "$0.part"
cd "$0.part"
cpio -i -d -u --quiet <"$1"
for packed in "$2"/*.gz; do
    [ ! -e "$packed" ] || gzip -dc "$packed" | cpio -i -d -u --quiet
done
touch etc/hostname etc/resolv.conf
chmod 755 .
mv "$0.part" "$0"
"""


def brought(image: Image, host: Host) -> Image:
    """Return the image with the paths of its kernels and initrd on a host; TestbedError when they cannot be sent.

    A host without access to this machine's files receives them once, as long as it is up, or netbench is there.
    """
    directory = str(kept_in(host) / "images" / image.digest[:12])
    files = image.kernel, image.vmlinuz, image.initrd
    kernel, vmlinuz, initrd = (Path(host.share(file, directory)) for file in files)
    return replace(image, directory=initrd.parent, kernel=kernel, vmlinuz=vmlinuz, initrd=initrd)


def kept_in(host: Host) -> Path:
    """Return the directory for one-time files on a host without access to this machine's; removed with netbench."""
    return Path(scratch_of(host)) if has_netbench(host) else STATE_DIRECTORY


def roots(cache: Path | None = None) -> Path:
    """Return the directory of all images that are unpacked on this machine."""
    return (cache or cache_directory()) / "roots"


def unpack(image: Image, cache: Path | None = None) -> Path:
    """Return the directory with the files of an image on this machine; it is created if necessary.

    MissingError without cpio or permission, TestbedError where it cannot be unpacked. Must run as root, the owner of
    the files.
    """
    target = roots(cache) / image.digest[:16]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / ".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # until it is closed
            _unpack(LocalHost("local", "images"), image.initrd, target)
    except PermissionError as error:
        raise MissingError(f"{error.filename}: no permission; be root, or set NETBENCH_CACHE") from None
    except OSError as error:
        raise TestbedError(f"{error.filename or target}: {error.strerror}; make room there") from None
    return target


def root_on(image: Image, host: Host) -> Path:
    """Return the directory with the unpacked image on a host; MissingError, TestbedError as in `unpack`.

    A host without access to this machine's files unpacks them once, as long as it is up, or netbench is there.
    """
    if not machine_name(host):
        return unpack(image)
    # Not below /run, because a container's runtime mounts its own there.
    directory = Path(scratch_of(host), "images", image.digest[:12])
    initrd = host.share(image.initrd, str(directory))
    _unpack(outside(host), Path(initrd), directory / "root")
    return directory / "root"


def _unpack(machine: Host, initrd: Path, target: Path) -> None:
    if not exists(machine, str(target)):
        run_checked(machine, ["sh", "-c", _UNPACK, str(target), str(initrd), SHELF], timeout_s=_UNPACK_S)


def require_in_vm(host: Host, image: str, *programs: str) -> None:
    """Raise MissingError unless the host's VM has these programs; the message names an image with them."""
    machine = outside(host)
    for program in programs:
        if machine.run(["which", program]).exit_code != 0:
            raise MissingError(
                f"{machine}: its image has no {program}; use `image: {image}` under hosts "
                f"(built by `netbench image build --name {image}`)"
            )
