"""Guest images and a host that may be another machine than this one: their files there, and which one it is to have."""

from dataclasses import replace
from pathlib import Path

from netbench.errors import MissingError
from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import has_netbench, outside, scratch_of
from netbench.images.library import Image
from netbench.linux.state import STATE_DIRECTORY


def brought(image: Image, host: Host) -> Image:
    """The image with its kernels and its initrd where a host has them; TestbedError when they cannot be sent there.

    A host that does not see this machine's files gets them once, as long as it is up, or netbench is there.
    """
    if host.shares_files:
        return image
    parent = Path(scratch_of(host)) if has_netbench(host) else STATE_DIRECTORY
    directory = parent / "images" / image.digest[:12]
    files = {path: directory / path.name for path in (image.kernel, image.vmlinuz, image.initrd)}
    machine = outside(host)
    run_checked(machine, ["mkdir", "-p", str(directory)])
    for source, there in files.items():
        if not exists(machine, str(there)):
            machine.send(source, f"{there}.part")
            run_checked(machine, ["mv", f"{there}.part", str(there)])
    kernel, vmlinuz, initrd = files[image.kernel], files[image.vmlinuz], files[image.initrd]
    return replace(image, directory=directory, kernel=kernel, vmlinuz=vmlinuz, initrd=initrd)


def require_in_vm(host: Host, image: str, *programs: str) -> None:
    """MissingError unless a VM that is a host has these programs; it says which image of a VM does."""
    machine = outside(host)
    for program in programs:
        if machine.run(["which", program]).exit_code != 0:
            raise MissingError(
                f"{machine}: its image has no {program}: let it have the image {image} (`image: {image}` under hosts; "
                f"`netbench image build --name {image}` makes it)"
            )
