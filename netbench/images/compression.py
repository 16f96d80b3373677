"""Decompresses kernels and their modules.

A kernel takes seconds to unpack itself on an emulated CPU. A VMM can start an unpacked kernel by the PVH entry point
that Linux has for Xen (CONFIG_PVH; include/xen/interface/elfnote.h; Documentation/arch/x86/boot.rst describes the place
of the compressed kernel).
"""

import bz2
import lzma
import struct
import zlib

from netbench.images.elf import Elf
from netbench.images.tools import last_words, run_tool

_GZIP, _XZ, _LZMA, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x5d\0\0", b"BZh", b"\x28\xb5\x2f\xfd"

_SETUP_SECTORS_OFFSET, _MAGIC_OFFSET, _PAYLOAD_OFFSET = 0x1F1, 0x202, 0x248
_SECTOR_BYTES = 512
# XEN_ELFNOTE_PHYS32_ENTRY of include/xen/interface/elfnote.h
_PVH_ENTRY = ("Xen", 18)


def uncompressed(content: bytes) -> bytes:
    """Return `content` decompressed by gzip, xz, lzma, bzip2 or zstd, or unchanged when it is not compressed.

    Only the first stream counts: a kernel's build appends the size. ValueError when it is damaged, MissingError
    without the command zstd, because Python's library does not support that format.
    """
    try:
        if content.startswith(_GZIP):
            return zlib.decompressobj(wbits=zlib.MAX_WBITS | 16).decompress(content)
        if content.startswith((_XZ, _LZMA)):
            return lzma.LZMADecompressor().decompress(content)
        if content.startswith(_BZIP2):
            return bz2.BZ2Decompressor().decompress(content)
    except (OSError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"damaged compressed data: {error}") from None
    return _zstd(content) if content.startswith(_ZSTD) else content


def directly_bootable(kernel: bytes) -> bytes | None:
    """Return the uncompressed kernel (an ELF file) in a bzImage; None where it has none that a VMM can start."""
    if kernel[_MAGIC_OFFSET : _MAGIC_OFFSET + 4] != b"HdrS":
        return None
    offset, size = struct.unpack_from("<II", kernel, _PAYLOAD_OFFSET)
    start = (kernel[_SETUP_SECTORS_OFFSET] + 1) * _SECTOR_BYTES + offset
    try:
        content = uncompressed(kernel[start : start + size])
        return content if _PVH_ENTRY in Elf(content).notes else None
    except ValueError:
        return None


def _zstd(content: bytes) -> bytes:
    done = run_tool(["zstd", "--decompress", "--stdout"], stdin=content)
    if not done.stdout:
        raise ValueError(f"damaged compressed data; zstd says:\n{last_words(done)}")
    return done.stdout
