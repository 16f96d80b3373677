"""Opens a capture of any kind that can be read, and refuses the others in one clear line.

Classic pcap is read here. Of pcapng, which has many more parts, tcpdump makes classic pcap on the way.
"""

import re
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from io import RawIOBase
from pathlib import Path
from typing import IO, cast

from netbench.capture.pcap import FILE_HEADER_BYTES, MAGICS, Ending, FrameBatch, PcapReader, Window
from netbench.errors import MissingError, UsageError

_PCAPNG = b"\x0a\x0d\x0d\x0a"
_PCAPNG_BLOCK_HEADER_BYTES = 8
_PCAPNG_AS_PCAP = ["tcpdump", "-r", "-", "-w", "-", "--time-stamp-precision=nano"]
_TRUNCATED = re.compile(r"truncated pcapng dump file; tried to read (\d+) bytes, only got (\d+)")

_COMPRESSED = {
    b"\x1f\x8b": "gunzip",
    b"\x28\xb5\x2f\xfd": "unzstd",
    b"\xfd7zXZ": "unxz",
    b"BZh": "bunzip2",
    b"\x04\x22\x4d\x18": "unlz4",
}


@contextmanager
def open_capture(path: Path) -> Iterator[PcapReader]:
    """The reader of the file at `path`; UsageError when it is no capture that can be read, or no such file.

    Reading errors while the file is open are UsageErrors too. MissingError for pcapng where there is no tcpdump.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise UsageError(f"{path}: not a regular file; write the capture to a file first")
        with path.open("rb", buffering=0) as file:
            start = file.read(len(_PCAPNG))
            file.seek(0)
            if start == _PCAPNG:
                with _pcapng_reader(file, str(path)) as reader:
                    yield reader
            else:
                yield read_stream(file, str(path))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror or error}") from error


def read_stream(file: RawIOBase, name: str) -> PcapReader:
    """The reader of a capture that comes in through `file`, whose header it waits for; `name` is for messages.

    UsageError when it is no capture; its batches may raise OSError.
    """
    window = Window(file)
    reader = PcapReader(window, _byte_order(window, name))
    if reader.version[0] != 2:
        major, minor = reader.version
        raise UsageError(f"{name}: pcap version {major}.{minor}; only 2.x can be read")
    return reader


def _byte_order(window: Window, name: str) -> str:
    whole_header = window.fill(FILE_HEADER_BYTES)
    start = bytes(window.data[window.start : window.start + min(window.available, FILE_HEADER_BYTES)])
    if not start:
        raise UsageError(f"{name}: empty; no capture tool has written to it")
    for sign, tool in _COMPRESSED.items():
        if start.startswith(sign):
            raise UsageError(f"{name}: compressed; unpack it first with {tool}")
    magics = {"<": int.from_bytes(start[:4], "little"), ">": int.from_bytes(start[:4], "big")}
    orders = [order for order, magic in magics.items() if magic in MAGICS]
    if not orders:
        raise UsageError(f"{name}: neither pcap nor pcapng; see what it is with: file {name}")
    if not whole_header:
        raise UsageError(f"{name}: ends or is damaged within its file header")
    return orders[0]


class _PcapngReader(PcapReader):
    """What tcpdump makes of a pcapng file, and how it says that the file ends."""

    def __init__(self, window: Window, order: str, tcpdump: "subprocess.Popen[bytes]", name: str) -> None:
        super().__init__(window, order)
        self.flavour = "pcapng"
        self._tcpdump, self._name = tcpdump, name

    def batches(self) -> Iterator[FrameBatch]:
        yield from super().batches()
        complaint = _complaint(self._tcpdump)
        if truncated := _TRUNCATED.search(complaint):
            wanted, got = map(int, truncated.groups())
            within_block = wanted != _PCAPNG_BLOCK_HEADER_BYTES
            self.ending = Ending(leftover_bytes=got + (_PCAPNG_BLOCK_HEADER_BYTES if within_block else 0))
        elif complaint.startswith("an interface has a "):
            raise UsageError(f"{self._name}: {complaint}; make one file of each interface first, with Wireshark")
        elif complaint:
            self.ending = Ending(damage=complaint)


@contextmanager
def _pcapng_reader(file: IO[bytes], name: str) -> Iterator[_PcapngReader]:
    pipe = subprocess.PIPE
    try:
        # The file is its stdin: whatever user tcpdump turns into, and wherever it may read.
        tcpdump = subprocess.Popen(_PCAPNG_AS_PCAP, stdin=file, stdout=pipe, stderr=pipe, bufsize=0)
    except FileNotFoundError as error:
        raise MissingError(f"{name}: pcapng is read by tcpdump, which is not here: apt-get install tcpdump") from error
    with tcpdump:
        try:
            window = Window(cast(RawIOBase, tcpdump.stdout))
            if not window.fill(FILE_HEADER_BYTES):
                raise UsageError(f"{name}: {_complaint(tcpdump) or 'tcpdump makes nothing of it'}")
            yield _PcapngReader(window, _byte_order(window, name), tcpdump, name)
        finally:
            tcpdump.kill()  # nothing to one that has ended


def _complaint(tcpdump: "subprocess.Popen[bytes]") -> str:
    """Its last words, once it has ended; empty when it was content."""
    assert tcpdump.stderr is not None
    words = tcpdump.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    return words.removeprefix("tcpdump: ").removeprefix("pcap_loop: ") if tcpdump.wait() else ""
