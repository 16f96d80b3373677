"""A host with a stand-in that prints and writes what tcpdump would, and the values that it is armed with."""

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Completed
from netbench.model.stream_paths import stream_paths
from netbench.model.traffic import Stamps
from netbench.sinks.base import Incoming
from tests.unit.capture_files import FLUSH_MAC, START_NS, Frame, ethernet, pcap, stream_frame
from tests.unit.fakes import FakeHost
from tests.unit.inputs import stream_traffic, topology

(PATH,) = stream_paths(topology())
IN_VM = replace(PATH, source=replace(PATH.source, machine="lab"), sink=replace(PATH.sink, machine="lab"))
TRAFFIC = stream_traffic(src_ip=PATH.src_ip, dst_ip=PATH.dst_ip, duration_s=0.1)
FRAMES = [stream_frame(number, src=PATH.src_ip, dst=PATH.dst_ip) for number in range(100)]
FLUSH = Frame(ethernet(bytes(46), dst=FLUSH_MAC), START_NS)

LISTENING = "tcpdump: listening on nb-rx1, link-type EN10MB (Ethernet), snapshot length 64 bytes"
REPORT = """
101 packets captured
110 packets received by filter
7 packets dropped by kernel
3 packets dropped by interface
"""


def incoming(record=Path("c/x"), path=PATH, fps: float | None = 1000.0, stamps=None, **more) -> Incoming:
    return Incoming(path, replace(TRAFFIC, fps=fps), stamps or Stamps(), START_NS, record, **more)


# The stand-in prints its first words, writes a capture to stdout, waits for SIGINT, prints its last words and ends.
STAND_IN = """
import os, signal, sys
first, last, code, capture = sys.argv[1], sys.argv[2], int(sys.argv[3]), bytes.fromhex(sys.argv[4])
def stop(signum, frame):
    os.write(2, last.encode())  # past sys.stderr, which the signal may have found at work
    sys.exit(code)
signal.signal(signal.SIGINT, stop)
os.write(1, capture)
sys.stderr.write(first)
sys.stderr.flush()
while True:
    signal.pause()
"""


class TcpdumpHost(FakeHost):
    """A host with a stand-in for tcpdump, which captures `content`, and 800 MB of memory."""

    def __init__(self, first=LISTENING + "\n", last=REPORT, exit_code=0, script=STAND_IN, content=None):
        super().__init__(files={"/proc/meminfo": "MemFree: 1 kB\nMemAvailable:     800000 kB\n"})
        self.content = pcap([*FRAMES, FLUSH]) if content is None else content
        self._script = script
        self._arguments = [first, last, str(exit_code)]
        self.spawned: list[list[str]] = []
        self.processes: list[subprocess.Popen[str]] = []

    def spawn(self, argv: Sequence[str]) -> "subprocess.Popen[str]":
        self.spawned.append(list(argv))
        target = argv[list(argv).index("-w") + 1]
        if target != "-":
            self.write_capture(target)
        piped = self.content.hex() if target == "-" else ""
        command = [sys.executable, "-c", self._script, *self._arguments, piped]
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(command, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.processes[-1]

    def write_capture(self, target: str) -> None:
        Path(target).write_bytes(self.content)

    @property
    def shares_files(self) -> bool:
        return True


class GuestHost(TcpdumpHost):
    """A host that does not share this machine's files: a capture is on this machine only once it is fetched."""

    def __init__(self, free_kib=1_000_000, **more):
        super().__init__(**more)
        self._free_kib = free_kib
        self.there: dict[str, bytes] = {}

    def write_capture(self, target):
        if self.content:
            self.there[target] = self.content

    @property
    def shares_files(self) -> bool:
        return False

    def run(self, argv, *, stdin="", timeout_s=30.0):
        self.commands.append(tuple(argv))
        if argv[0] == "df":
            title = "Filesystem 1024-blocks Used Available Capacity Mounted on"
            return Completed(tuple(argv), 0, f"{title}\ntmpfs 9000000 8 {self._free_kib} 1% /tmp\n", "")
        self.there.pop(argv[-1], None)
        return Completed(tuple(argv), 0, "", "")

    def fetch(self, path, target):
        if path not in self.there:
            raise TestbedError(f"guest g: {path} cannot be read: No such file or directory")
        target.write_bytes(self.there[path])


class FarHost(GuestHost):
    """Another machine that netbench was copied to: captures are counted there, by `counter` instead of netbench."""

    def __init__(self, scratch: Path, counter: str = "", **more):
        super().__init__(**more)
        self.scratch = str(scratch)
        self._counter = counter

    def module_command(self, module: str, *arguments: str) -> list[str]:
        return [sys.executable, "-c", self._counter] if self._counter else [sys.executable, "-m", module, *arguments]

    def bring(self, package: str) -> None:
        raise AssertionError(f"nothing here needs {package}")

    def spawn(self, argv):
        if "-w" in argv:
            return super().spawn(argv)
        pipe = subprocess.PIPE
        self.processes.append(subprocess.Popen(argv, text=True, stdin=pipe, stdout=pipe, stderr=pipe))
        return self.processes[-1]

    def write_capture(self, target):
        super().write_capture(target)
        Path(target).write_bytes(self.content)
