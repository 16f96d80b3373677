"""Opens a capture, and rejects unreadable files with a one-line message."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO, RawIOBase
from pathlib import Path

from netbench.capture.pcap import FILE_HEADER_BYTES, MAGICS, PLAIN_HEADERS_BYTES, CaptureReader, PcapReader, ReadWindow
from netbench.errors import UsageError

SECTION_START = b"\x0a\x0d\x0d\x0a"  # the first bytes of a pcapng
_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz",
    b"BZh": "bunzip2",
    b"\x04\x22\x4d\x18": "unlz4",
}


@contextmanager
def open_file(path: Path) -> Iterator[FileIO]:
    """Open the file at `path`; UsageError when it is not a regular file, or when reading it fails while it is open."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path}: not a regular file; write the capture to a file first")
        with path.open("rb", buffering=0) as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_stream(file: RawIOBase, name: str, headers_bytes: int = PLAIN_HEADERS_BYTES) -> CaptureReader:
    """Return the reader of the capture in `file`, after waiting for its header; `name` is for messages.

    Where records differ in length, the reader keeps `headers_bytes` of each frame. UsageError when the file is not a
    capture; its batches may raise OSError.
    """
    window = ReadWindow(file)
    whole_header = window.fill(FILE_HEADER_BYTES)
    start = bytes(window.data[window.start : window.start + min(window.available, FILE_HEADER_BYTES)])
    if not start:
        raise UsageError(f"{name}: empty; no capture tool has written to it")
    for sign, tool in _COMPRESSED.items():
        if start.startswith(sign):
            raise UsageError(f"{name}: compressed; unpack it first with {tool}")
    magics = {"<": int.from_bytes(start[:4], "little"), ">": int.from_bytes(start[:4], "big")}
    orders = [order for order, magic in magics.items() if magic in MAGICS]
    is_pcapng = start.startswith(SECTION_START)
    if not orders and not is_pcapng:
        raise UsageError(f"{name}: neither pcap nor pcapng; see what it is with: file {name}")
    if not whole_header:
        raise UsageError(f"{name}: ends or is damaged within its file header")
    if is_pcapng:
        from netbench.capture.pcapng import PcapngReader  # noqa: PLC0415 - a classic pcap needs none

        return PcapngReader(window, headers_bytes)
    reader = PcapReader(window, orders[0], headers_bytes)
    if reader.version[0] != 2:
        major, minor = reader.version
        raise UsageError(f"{name}: pcap version {major}.{minor}; only 2.x can be read")
    return reader
