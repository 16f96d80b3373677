"""The files of a guest image on the host that starts a guest of it, which may be another machine than this one."""

from dataclasses import replace

from netbench.hosts.base import Host, exists, run_checked
from netbench.hosts.composed import outside
from netbench.images.library import Image
from netbench.linux.state import STATE_DIRECTORY


def brought(image: Image, host: Host) -> Image:
    """The image with its kernels and its initrd where a host has them; TestbedError when they cannot be sent there.

    A host that does not see this machine's files gets them once, as long as it is up.
    """
    if host.shares_files:
        return image
    directory = STATE_DIRECTORY / "images" / image.digest[:12]
    files = {path: directory / path.name for path in (image.kernel, image.vmlinuz, image.initrd)}
    machine = outside(host)
    run_checked(machine, ["mkdir", "-p", str(directory)])
    for source, there in files.items():
        if not exists(machine, str(there)):
            machine.send(source, f"{there}.part")
            run_checked(machine, ["mv", f"{there}.part", str(there)])
    kernel, vmlinuz, initrd = files[image.kernel], files[image.vmlinuz], files[image.initrd]
    return replace(image, directory=directory, kernel=kernel, vmlinuz=vmlinuz, initrd=initrd)
