"""What a reader of results must know of a guest, as facts: names and texts."""

from netbench.hosts.base import Host, run_checked
from netbench.images.library import find_image
from netbench.vmm.acceleration import Acceleration
from netbench.vmm.qemu_command import qemu_program


def guest_facts(here: Host, acceleration: Acceleration, image: str, kernel: str) -> dict[str, str]:
    """How its CPU runs and, where it is emulated, why; QEMU's version, its image, its kernel's release."""
    facts = {"accelerator": acceleration.accelerator}
    if acceleration.emulated:
        facts["emulated"] = acceleration.why
    version = run_checked(here, [qemu_program(), "--version"]).splitlines()[0]
    facts["qemu"] = version.removeprefix("QEMU emulator version ")
    return {**facts, "image": image, "guest_kernel": kernel}


def image_name(name: str) -> str:
    """The name of one of netbench's guest images, and the beginning of its digest."""
    image = find_image(name)
    return f"{image.name} {image.digest[:12]}"
