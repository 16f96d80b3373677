"""Undoing the compressions of kernels and their modules."""

import bz2
import lzma
import zlib

from netbench.images.tools import last_words, run_tool

_GZIP, _XZ, _LZMA, _BZIP2, _ZSTD = b"\x1f\x8b", b"\xfd7zXZ\0", b"\x5d\0\0", b"BZh", b"\x28\xb5\x2f\xfd"


def uncompressed(content: bytes) -> bytes:
    """What gzip, xz, lzma, bzip2 or zstd made `content` of, or `content` when none of them did.

    Only the first stream counts: a kernel's build appends the size. ValueError when it is damaged, MissingError
    without the command zstd, as Python's library does not know that format.
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


def _zstd(content: bytes) -> bytes:
    done = run_tool(["zstd", "--decompress", "--stdout"], stdin=content)
    if not done.stdout:
        raise ValueError(f"damaged compressed data; zstd says:\n{last_words(done)}")
    return done.stdout
