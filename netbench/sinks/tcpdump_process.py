"""The tcpdump command of a trial: its filter, its buffer size, and the destination of the capture."""

import os
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from netbench.hosts.base import Process
from netbench.sinks.base import Incoming

# Group addresses that no bridge forwards (IEEE 802.1Q, table 8-1): those of control frames and of flush frames.
_LINK_LOCAL = "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0)"
# Of these, the address of flush frames.
_FLUSH = "ether[4:2] = 0x000f"
# In the ring, a frame takes its snapped bytes and headers around them (tpacket3_hdr, sockaddr_ll, padding).
_RING_OVERHEAD_BYTES = 112
_RING_SECONDS = 1.0
_MIN_RING_BYTES = 4 << 20
_MAX_RING_BYTES = 256 << 20
_UNKNOWN_RATE_RING_BYTES = 128 << 20
# The part of a host's free memory that the rings of all its sinks may take. The kernel does not swap them out.
_RINGS_PART = 4

_NUMBER = re.compile(
    r"(?:^(?:tcpdump: )?|, )(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)
_VERSION = re.compile(r"tcpdump version (\d+)\.(\d+)")
_FLUSHES = (4, 99)  # the first version that SIGUSR2 does not kill
_ANSWER_S = 0.2
# The number of queries whether it is idle, and the pause between them.
_QUESTIONS, _PAUSE_S = 20, 0.0005


def ring_bytes(fps: float | None, snap_length: int, most: int = _MAX_RING_BYTES) -> int:
    """Return the size of the kernel's capture ring in bytes: the frames expected in a second, within bounds.

    `most` is the limit due to the available memory, in bytes.
    """
    wanted = _UNKNOWN_RATE_RING_BYTES
    if fps is not None:
        wanted = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, most, wanted))


def most_ring_bytes(meminfo: str, sinks: int) -> int:
    """Return how many bytes the ring of one of so many sinks may take of MemAvailable in /proc/meminfo (proc(5))."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M)
    return int(available[1]) * 1024 // (_RINGS_PART * sinks) if available else _MAX_RING_BYTES


def tcpdump_command(
    interface: str, cpus: Sequence[int], incoming: Incoming, target: Path | None, most_ring: int = _MAX_RING_BYTES
) -> list[str]:
    """Return the command that captures this stream's frames, control and flush frames to the file `target`, or stdout.

    Frames are snapped. This stream's frames include those of earlier trials, whose sources had other addresses of the
    same network. `most_ring` is the `most` of ring_bytes().
    """
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    traffic = incoming.traffic
    buffer_kib = ring_bytes(traffic.fps, incoming.snap_length, most_ring) >> 10
    # Not `inbound`: libpcap itself filters the first blocks of a capture again, without their direction.
    stream_frames = f"udp and src net {incoming.path.src_network} and dst host {traffic.dst_ip}"
    control_frames = _LINK_LOCAL
    if incoming.path.has_reverse:
        # A UUT that redirects all frames delivers flush frames of the other end's sink, which are not this sink's.
        own = incoming.path.sink.mac or "MAC"  # known once the testbed is up
        control_frames = f"({_LINK_LOCAL} and not ({_FLUSH} and not ether src {own}))"
    wanted = f"({stream_frames}) or {control_frames} or ether proto 0x88cc"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(incoming.snap_length), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(target or "-"), wanted]


def capture_file(incoming: Incoming) -> Path:
    """Return the final file of a capture on this machine; unused if it is counted while it is made."""
    return incoming.record.with_name(f"{incoming.record.name}.pcap")


def is_counted_live(incoming: Incoming) -> bool:
    """Return whether a capture is counted while it is made, and never written to a disk.

    Both ends must be on this machine: its clock separates frames of the trial from late ones of earlier trials before
    the source reports its times.
    """
    return not incoming.keep and incoming.path.source.machine is None and incoming.path.sink.machine is None


def target_of(incoming: Incoming, elsewhere: str = "/tmp") -> Path | None:
    """Return the file that the sink's host writes the capture to; None if it is counted while it is made.

    A host that does not share this machine's files stores it in the directory `elsewhere` until it has ended.
    """
    if incoming.path.sink.machine is not None:
        return Path(elsewhere, capture_file(incoming).name)
    return None if is_counted_live(incoming) else capture_file(incoming)


def numbers_in(words: str) -> Mapping[str, int]:
    """Return the latest count of each kind in the output of tcpdump; empty if there is none."""
    return {what: int(count) for count, what in _NUMBER.findall(words)}


def is_number(line: str) -> bool:
    """Return whether a line of the output of tcpdump contains counts."""
    return _NUMBER.match(line) is not None


def tells_while_running(version: str) -> bool:
    """Return whether a tcpdump with this version text can be queried by `Inquiry`."""
    match = _VERSION.search(version)
    return match is not None and tuple(map(int, match.groups())) >= _FLUSHES


class Inquiry:
    """Queries to one running tcpdump; `words` is its output in response."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.words = ""

    def complete_numbers(self) -> Mapping[str, int] | None:
        """Return its counts once it is idle and has written every counted frame; None if it does not report them.

        Its handler of SIGUSR2 writes the output buffer, even while tcpdump modifies it. tcpdump did not modify it if it
        captured nothing between two answers, the second of which follows the writing.
        """
        earlier = self._ask(signal.SIGUSR1)
        for _ in range(_QUESTIONS):
            now = self._ask(signal.SIGUSR1)
            if earlier is None or now is None:
                return None
            if now == earlier:
                last = self._ask(signal.SIGUSR2, signal.SIGUSR1)
                return last if last == now else None
            earlier = now
            time.sleep(_PAUSE_S)
        return None

    def _ask(self, *signals: int) -> Mapping[str, int] | None:
        """Send these signals and return the counts in the answer; None if it contains none."""
        assert self._process.stderr is not None
        descriptor, output, deadline = self._process.stderr.fileno(), b"", time.monotonic() + _ANSWER_S
        for number in signals:
            self._process.send_signal(number)
        while not output.endswith(b"\n"):
            in_time = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(descriptor, 4096) if in_time else b""
            if not piece:
                break
            output += piece
        text = output.decode(errors="replace")
        self.words += text
        numbers = numbers_in(text)
        return numbers if "captured" in numbers and text.endswith("\n") and text.count("\n") == 1 else None
