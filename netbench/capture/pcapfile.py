"""Opens a capture file of any kind that can be read, and refuses the others in one clear line."""

import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path

from netbench.capture.pcap import FILE_HEADER_BYTES, MAGICS, PcapReader
from netbench.capture.pcapng import SECTION_HEADER, PcapngReader, section_order
from netbench.capture.reading import Reader
from netbench.capture.window import Window
from netbench.errors import UsageError

_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz",
    b"BZh": "bunzip2",
    b"\x04\x22\x4d\x18": "unlz4",
}


@contextmanager
def open_capture(path: Path) -> Iterator[Reader]:
    """The reader that fits the file at `path`; UsageError when there is none, or no such file.

    Reading errors while the file is open are UsageErrors too.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path}: not a regular file; write the capture to a file first")
        with path.open("rb", buffering=0) as file:
            yield _reader(path, Window(file))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_stream(file: RawIOBase, name: str) -> Reader:
    """The reader of a capture that comes in through `file`, whose header it waits for; `name` is for messages.

    UsageError when it is no capture; its batches may raise OSError.
    """
    return _reader(name, Window(file))


def _reader(path: Path | str, window: Window) -> Reader:
    whole_header = window.fill(FILE_HEADER_BYTES)
    start = bytes(window.data[window.start : window.start + min(window.available, FILE_HEADER_BYTES)])
    if not start:
        raise UsageError(f"{path}: empty; no capture tool has written to it")
    for sign, tool in _COMPRESSED.items():
        if start.startswith(sign):
            raise UsageError(f"{path}: compressed; unpack it first with {tool}")
    magics = {"<": int.from_bytes(start[:4], "little"), ">": int.from_bytes(start[:4], "big")}
    orders = [order for order, magic in magics.items() if magic in MAGICS]
    is_pcapng = magics["<"] == SECTION_HEADER
    if not orders and not is_pcapng:
        raise UsageError(f"{path}: neither pcap nor pcapng; see what it is with: file {path}")
    section = section_order(start) if is_pcapng else None
    if not whole_header or (is_pcapng and section is None):
        raise UsageError(f"{path}: ends or is damaged within its file header")
    return _pcap(path, window, orders[0]) if section is None else PcapngReader(window, section)


def _pcap(path: Path | str, window: Window, order: str) -> PcapReader:
    reader = PcapReader(window, order)
    if reader.version[0] != 2:
        major, minor = reader.version
        raise UsageError(f"{path}: pcap version {major}.{minor}; only 2.x can be read")
    return reader
