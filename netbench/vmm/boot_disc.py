"""The boot CD for guests whose VMM cannot load a kernel directly."""

import gzip
import tempfile
from pathlib import Path

from netbench.errors import MissingError
from netbench.hosts.base import Host, exists, machine_name, run_checked
from netbench.hosts.host_wrappers import outside
from netbench.images.library import Image, content_digest
from netbench.images.on_host import kept_in

# Debian's packages isolinux and syslinux-common.
LOADER = ("/usr/lib/ISOLINUX/isolinux.bin", "/usr/lib/syslinux/modules/bios/ldlinux.c32")
_MAKE_S = 300.0


def disc_of(image: Image, words: str, host: Host, directory: Path) -> str:
    """Return the path of the CD image on a host that boots a guest image with `words` as the kernel command line.

    This machine makes it in `directory`, that of the guest, and does not keep it. Other hosts make it once and keep it
    while they are up, or while netbench is installed there.
    MissingError where the host has no boot loader for the CD; TestbedError where the CD cannot be made.
    """
    machine = outside(host)
    parent = kept_in(host) / "discs" if machine_name(host) else directory
    disc = str(parent / f"{image.digest[:12]}-{content_digest(words.encode())[:8]}.iso")
    if not exists(machine, disc):
        _make(image, words, machine, disc)
    return disc


def _make(image: Image, words: str, machine: Host, disc: str) -> None:
    if lacking := [path for path in LOADER if not exists(machine, path)]:
        raise MissingError(
            f"{machine}: there is no {lacking[0]} to boot a guest from a CD: apt-get install isolinux syslinux-common; "
            "a VM that is a host has it with `image: virtualbox`"
        )
    tree = f"{disc}.tree"
    run_checked(machine, ["mkdir", "-p", tree])
    try:
        machine.send(image.vmlinuz, f"{tree}/vmlinuz")
        with tempfile.TemporaryDirectory(prefix="netbench-disc-") as directory:
            # A BIOS reads a CD slowly: a compressed initrd boots faster, although the kernel has to unpack it.
            packed = Path(directory, "initrd")
            packed.write_bytes(gzip.compress(image.initrd.read_bytes(), mtime=0))
            machine.send(packed, f"{tree}/initrd")
        machine.write(f"{tree}/isolinux.cfg", _configuration(words))
        run_checked(machine, ["cp", *LOADER, tree])
        boot = ["-b", "isolinux.bin", "-c", "boot.cat", "-no-emul-boot", "-boot-load-size", "4", "-boot-info-table"]
        run_checked(
            machine, ["xorriso", "-as", "mkisofs", "-quiet", "-o", f"{disc}.part", *boot, tree], timeout_s=_MAKE_S
        )
        run_checked(machine, ["mv", f"{disc}.part", disc])
    finally:
        machine.run(["rm", "-rf", tree, f"{disc}.part"])


def _configuration(words: str) -> str:
    """Return the configuration of ISOLINUX: it boots the only kernel at once."""
    return f"DEFAULT guest\nPROMPT 0\nTIMEOUT 0\nLABEL guest\n KERNEL vmlinuz\n APPEND initrd=initrd {words}\n"
