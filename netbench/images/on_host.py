"""The files of guest images on a host that may be another machine, and the image that the host requires."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from netbench.errors import MissingError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.hosts.remote_code import has_netbench, scratch_of
from netbench.images.library import Image
from netbench.images.programs import SHELF
from netbench.images.unpacked import unpack
from netbench.linux.locks import STATE_DIRECTORY

_UNPACK_S = 300.0  # on an emulated CPU
# The same steps as in images/unpacked.py, with tools that busybox has too.
_UNPACK = """
set -e
mkdir "$0"
cd "$0"
cpio -i -d -u --quiet <"$1"
for packed in "$2"/*.gz; do
    [ -e "$packed" ] || continue
    gzip -dc "$packed" | cpio -i -d -u --quiet
done
touch etc/hostname etc/resolv.conf
chmod 755 .
"""


def brought(image: Image, host: Host) -> Image:
    """Return the image with the paths of its kernels and initrd on a host; TestbedError when they cannot be sent.

    A host without access to this machine's files receives them once, as long as it is up, or netbench is there.
    """
    if host.shares_files:
        return image
    directory = _bring(image, {image.kernel, image.vmlinuz, image.initrd}, host, kept_in(host))
    kernel, vmlinuz, initrd = (directory / path.name for path in (image.kernel, image.vmlinuz, image.initrd))
    return replace(image, directory=directory, kernel=kernel, vmlinuz=vmlinuz, initrd=initrd)


def kept_in(host: Host) -> Path:
    """Return the directory for one-time files on a host without access to this machine's; removed with netbench."""
    return Path(scratch_of(host)) if has_netbench(host) else STATE_DIRECTORY


def root_on(image: Image, host: Host) -> Path:
    """Return the directory with the unpacked image on a host; MissingError, TestbedError as in `unpack`.

    A host without access to this machine's files unpacks them once, as long as it is up, or netbench is there.
    """
    if host.shares_files:
        return unpack(image)
    # Not below /run, because a container's runtime mounts its own there.
    directory, machine = _bring(image, {image.initrd}, host, Path(scratch_of(host))), outside(host)
    root, unfinished = directory / "root", directory / "root.part"
    if not exists(machine, str(root)):
        run_checked(machine, ["rm", "-rf", str(unfinished)])
        words = str(unfinished), str(directory / image.initrd.name), SHELF
        run_checked(machine, ["sh", "-c", _UNPACK, *words], timeout_s=_UNPACK_S)
        run_checked(machine, ["mv", str(unfinished), str(root)])
    return root


def _bring(image: Image, files: Collection[Path], host: Host, parent: Path) -> Path:
    """Copy files of an image to a directory below `parent` on a host on another machine; return the directory."""
    directory, machine = parent / "images" / image.digest[:12], outside(host)
    run_checked(machine, ["mkdir", "-p", str(directory)])
    for source in files:
        target = directory / source.name
        if not exists(machine, str(target)):
            machine.send(source, f"{target}.part")
            run_checked(machine, ["mv", f"{target}.part", str(target)])
    return directory


def require_in_vm(host: Host, image: str, *programs: str) -> None:
    """Raise MissingError unless the host's VM has these programs; the message names an image with them."""
    machine = outside(host)
    for program in programs:
        if machine.run(["which", program]).exit_code != 0:
            raise MissingError(
                f"{machine}: its image has no {program}: let it have the image {image} (`image: {image}` under hosts; "
                f"`netbench image build --name {image}` makes it)"
            )
