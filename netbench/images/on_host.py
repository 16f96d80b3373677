"""Guest images and a host that may be another machine than this one: their files there, and which one it is to have."""

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from netbench.errors import MissingError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import has_netbench, outside, scratch_of
from netbench.images.library import Image
from netbench.images.programs import SHELF
from netbench.images.unpacked import unpack
from netbench.linux.state import STATE_DIRECTORY

_UNPACK_S = 300.0  # on an emulated CPU
# As images/unpacked.py does it, by what busybox has too.
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
    """The image with its kernels and its initrd where a host has them; TestbedError when they cannot be sent there.

    A host that does not see this machine's files gets them once, as long as it is up, or netbench is there.
    """
    if host.shares_files:
        return image
    directory = _bring(image, {image.kernel, image.vmlinuz, image.initrd}, host, kept_in(host))
    kernel, vmlinuz, initrd = (directory / path.name for path in (image.kernel, image.vmlinuz, image.initrd))
    return replace(image, directory=directory, kernel=kernel, vmlinuz=vmlinuz, initrd=initrd)


def kept_in(host: Host) -> Path:
    """Where a host that does not see this machine's files keeps what is made once, until it goes or netbench does."""
    return Path(scratch_of(host)) if has_netbench(host) else STATE_DIRECTORY


def root_on(image: Image, host: Host) -> Path:
    """Where a host has the files of an image as a directory; MissingError, TestbedError as of `unpack`.

    One that does not see this machine's files unpacks them once, as long as it is up, or netbench is there.
    """
    if host.shares_files:
        return unpack(image)
    # Not below /run, of which a container's runtime has its own.
    directory, machine = _bring(image, {image.initrd}, host, Path(scratch_of(host))), outside(host)
    root, unfinished = directory / "root", directory / "root.part"
    if not exists(machine, str(root)):
        run_checked(machine, ["rm", "-rf", str(unfinished)])
        words = str(unfinished), str(directory / image.initrd.name), SHELF
        run_checked(machine, ["sh", "-c", _UNPACK, *words], timeout_s=_UNPACK_S)
        run_checked(machine, ["mv", str(unfinished), str(root)])
    return root


def _bring(image: Image, files: Collection[Path], host: Host, parent: Path) -> Path:
    """Have these files of an image in a directory of a host that is another machine, below `parent`; where that is."""
    directory, machine = parent / "images" / image.digest[:12], outside(host)
    run_checked(machine, ["mkdir", "-p", str(directory)])
    for source in files:
        there = directory / source.name
        if not exists(machine, str(there)):
            machine.send(source, f"{there}.part")
            run_checked(machine, ["mv", f"{there}.part", str(there)])
    return directory


def require_in_vm(host: Host, image: str, *programs: str) -> None:
    """MissingError unless a VM that is a host has these programs; it says which image of a VM does."""
    machine = outside(host)
    for program in programs:
        if machine.run(["which", program]).exit_code != 0:
            raise MissingError(
                f"{machine}: its image has no {program}: let it have the image {image} (`image: {image}` under hosts; "
                f"`netbench image build --name {image}` makes it)"
            )
