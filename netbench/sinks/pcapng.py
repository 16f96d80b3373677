"""Captures that anybody made: classic pcap, and pcapng, of whose many more parts tcpdump makes classic pcap."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import FileIO, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, cast

from netbench.capture.captured import CaptureCounts
from netbench.capture.counting import count_frames
from netbench.capture.pcap import FILE_HEADER_BYTES, Ending, FrameBatch, PcapReader, Window
from netbench.capture.reading import byte_order, open_file, read_stream
from netbench.errors import MissingError, UsageError

if TYPE_CHECKING:
    import subprocess

_PCAPNG = b"\x0a\x0d\x0d\x0a"
_BLOCK_HEADER_BYTES = 8
_AS_PCAP = ["tcpdump", "-r", "-", "-w", "-", "--time-stamp-precision=nano"]
_TRUNCATED = re.compile(r"truncated pcapng dump file; tried to read (\d+) bytes, only got (\d+)")


def analyze_any_capture(path: Path) -> CaptureCounts:
    """As `analyze_capture`, where each pair of addresses with pktgen's magic is a stream, of pcapng too.

    MissingError for pcapng where there is no tcpdump.
    """
    with open_file(path) as file:
        start = file.read(len(_PCAPNG))
        file.seek(0)
        if start != _PCAPNG:
            return count_frames(read_stream(file, str(path)), str(path))
        with _pcapng_reader(file, str(path)) as reader:
            return count_frames(reader, str(path))


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
            within_block = wanted != _BLOCK_HEADER_BYTES
            self.ending = Ending(leftover_bytes=got + (_BLOCK_HEADER_BYTES if within_block else 0))
        elif complaint.startswith("an interface has a "):
            raise UsageError(f"{self._name}: {complaint}; make one file of each interface first, with Wireshark")
        elif complaint:
            self.ending = Ending(damage=complaint)


@contextmanager
def _pcapng_reader(file: FileIO, name: str) -> Iterator[_PcapngReader]:
    import subprocess  # noqa: PLC0415 - a classic pcap needs none, and is read in less time than it takes to load

    pipe = subprocess.PIPE
    try:
        # The file is its stdin: whatever user tcpdump turns into, and wherever it may read.
        tcpdump = subprocess.Popen(_AS_PCAP, stdin=file, stdout=pipe, stderr=pipe, bufsize=0)
    except FileNotFoundError as error:
        raise MissingError(f"{name}: pcapng is read by tcpdump, which is not here: apt-get install tcpdump") from error
    with tcpdump:
        try:
            window = Window(cast(RawIOBase, tcpdump.stdout))
            if not window.fill(FILE_HEADER_BYTES):
                raise UsageError(f"{name}: {_complaint(tcpdump) or 'tcpdump makes nothing of it'}")
            yield _PcapngReader(window, byte_order(window, name), tcpdump, name)
        finally:
            tcpdump.kill()  # nothing to one that has ended


def _complaint(tcpdump: "subprocess.Popen[bytes]") -> str:
    """Its last words, once it has ended; empty when it was content."""
    assert tcpdump.stderr is not None
    words = tcpdump.stderr.read().decode(errors="replace").strip().rpartition("\n")[2]
    return words.removeprefix("tcpdump: ").removeprefix("pcap_loop: ") if tcpdump.wait() else ""
