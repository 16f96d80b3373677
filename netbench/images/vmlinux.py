"""The kernel as it is once it has unpacked itself, which takes seconds on an emulated CPU.

QEMU starts such a kernel by the PVH entry point that Linux has for Xen (CONFIG_PVH; QEMU's docs/specs and
hw/i386/x86.c, Documentation/arch/x86/boot.rst for where the compressed kernel is).
"""

import struct

from netbench.images.compression import uncompressed
from netbench.images.elf import Elf

_SETUP_SECTORS_OFFSET, _MAGIC_OFFSET, _PAYLOAD_OFFSET = 0x1F1, 0x202, 0x248
_SECTOR_BYTES = 512
# XEN_ELFNOTE_PHYS32_ENTRY of include/xen/interface/elfnote.h
_PVH_ENTRY = ("Xen", 18)


def directly_bootable(kernel: bytes) -> bytes | None:
    """The uncompressed kernel (an ELF file) in a bzImage; None where there is none that QEMU could start."""
    if kernel[_MAGIC_OFFSET : _MAGIC_OFFSET + 4] != b"HdrS":
        return None
    offset, size = struct.unpack_from("<II", kernel, _PAYLOAD_OFFSET)
    start = (kernel[_SETUP_SECTORS_OFFSET] + 1) * _SECTOR_BYTES + offset
    try:
        content = uncompressed(kernel[start : start + size])
        return content if _PVH_ENTRY in Elf(content).notes else None
    except ValueError:
        return None
