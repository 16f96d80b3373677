"""Sink `tcpdump`: armed before the first frame, stopped after the last one is in the file."""

import os
import re
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process, run_checked
from netbench.sinks.base import Arrived, Catch, Listener
from netbench.sinks.flush import FLUSH_MAC
from netbench.sinks.pusher import FLUSH_FRAMES, Pusher

# A frame in the ring costs its snapped bytes and headers around them (tpacket3_hdr, sockaddr_ll, padding).
_RING_OVERHEAD_BYTES = 112
_RING_SECONDS = 1.0
_MIN_RING_BYTES = 4 << 20
_MAX_RING_BYTES = 256 << 20
_UNKNOWN_RATE_RING_BYTES = 128 << 20
# The part of a host's free memory that the rings of all its sinks may take. The kernel does not swap them out.
_RINGS_PART = 4

_ELSEWHERE = Path("/tmp")  # where hosts that are not this machine keep a capture until it is fetched
_FREE_BYTES = 16 << 10

_CLOSING_LINE = re.compile(
    r"^(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)


def ring_bytes(fps: float | None, snap_length: int, most: int = _MAX_RING_BYTES) -> int:
    """Size of the kernel's capture ring: a second's worth of the expected frames, within bounds.

    `most` is what the memory there is allows, in bytes.
    """
    wanted = _UNKNOWN_RATE_RING_BYTES
    if fps is not None:
        wanted = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, most, wanted))


def most_ring_bytes(meminfo: str, sinks: int) -> int:
    """What the ring of one of so many sinks may take of the memory that /proc/meminfo says is available (proc(5))."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M)
    return int(found[1]) * 1024 // (_RINGS_PART * sinks) if found else _MAX_RING_BYTES


def tcpdump_command(
    interface: str, cpus: Sequence[int], catch: Catch, target: Path | None, most_ring: int = _MAX_RING_BYTES
) -> list[str]:
    """The tcpdump command of a trial: only this stream's frames and flush frames, snapped.

    They go to the file `target`, or to stdout. `most_ring` is as in ring_bytes.
    """
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    buffer_kib = ring_bytes(catch.fps, catch.snap_length, most_ring) >> 10
    # Not `inbound`: libpcap filters the first blocks of a capture once more by itself, and knows no directions there.
    ours = f"(udp and src host {catch.src_ip} and dst host {catch.dst_ip}) or ether dst {FLUSH_MAC}"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(catch.snap_length), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(target or "-"), ours]


def target_of(capture: Path, *, has_listener: bool, shares_files: bool) -> Path | None:
    """The file that a host writes a capture to; None where the listener reads it while it is made.

    A host that does not share this machine's files keeps it until it has ended.
    """
    if not shares_files:
        return _ELSEWHERE / capture.name
    return None if has_listener else capture


def flush_wait_s(limit_s: float) -> float:
    """How long to wait for flush frames before more are sent, when `limit_s` is for all of it."""
    return max(0.2, limit_s / 10)


class TcpdumpSink:
    """One tcpdump per trial on one NIC."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._interface = ""
        self._cpus: Sequence[int] = ()
        self._process: Process | None = None
        self._pusher: Pusher | None = None
        self._meminfo = ""
        self._capture = Path()
        self._target: Path | None = None  # the capture, as the host knows it
        self._listener: Listener | None = None
        self._words = ""
        self._flush_frames = 0
        self._flushed = False

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Listen on `interface` of `host`, on `cpus`."""
        self._host, self._interface, self._cpus = host, interface, tuple(cpus)
        self._pusher = Pusher(host, interface)
        self._meminfo = host.read("/proc/meminfo")

    def arm(self, catch: Catch) -> None:
        """Start tcpdump; returns at once."""
        assert self._host is not None, "open() comes first"
        assert self._pusher is not None
        self._words, self._flush_frames, self._flushed = "", 0, False
        self._capture = catch.capture
        self._target = target_of(
            catch.capture, has_listener=catch.listener is not None, shares_files=self._host.shares_files
        )
        self._listener = catch.listener if self._target is None else None
        most_ring = most_ring_bytes(self._meminfo, catch.sinks)
        command = tcpdump_command(self._interface, self._cpus, catch, self._target, most_ring)
        self._process = self._host.spawn(command)
        if self._listener:
            assert self._process.stdout is not None
            self._listener.begin(os.dup(self._process.stdout.fileno()), self._cpus)
            self._process.stdout.close()  # or the listener would share it with whoever reads what is left at the end
        self._pusher.start()

    def armed(self, timeout_s: float) -> bool:
        """Whether tcpdump says that it is listening; when not, `stop` tells why."""
        process = self._running()
        assert process.stderr is not None
        deadline = time.monotonic() + timeout_s
        while "listening on" not in self._words:
            patience = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([process.stderr], [], [], patience)
            words = os.read(process.stderr.fileno(), 4096).decode(errors="replace") if readable else ""
            self._words += words
            if not words:
                return False
        return True

    def flush(self, timeout_s: float) -> None:
        """Send flush frames until one has arrived in the capture: all frames before it are then there."""
        assert self._pusher is not None, "open() comes first"
        process = self._running()
        wait_s = flush_wait_s(timeout_s)
        deadline = time.monotonic() + timeout_s
        while not self._flushed and process.poll() is None and time.monotonic() < deadline:
            seen = self._pusher.push(self._target, wait_s)
            if seen is None:
                return  # the NIC is gone or down: the judge sees that from its counters
            self._flush_frames += FLUSH_FRAMES
            self._flushed = self._listener.await_flush(wait_s) if self._listener else seen

    def stop(self) -> Arrived:
        """Stop tcpdump; its closing report as numbers, or why there is none."""
        process = self._running()
        ended_early = process.poll() is not None
        process.send_signal(signal.SIGINT)  # does nothing to one that has ended
        try:
            _, words = process.communicate(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            _, words = process.communicate()
            words += "\ntcpdump did not stop within 20 s of SIGINT and was killed"
        self._words += words
        self._process = None
        numbers = {what: int(count) for count, what in _CLOSING_LINE.findall(self._words)}
        complete = process.returncode == 0 and "captured" in numbers and not ended_early
        disk_full = self._target is not None and self._bring_home(self._target, complete=complete) < _FREE_BYTES
        return Arrived(
            capture=self._capture,
            captured_frames=numbers.get("captured"),
            filter_frames=numbers.get("received by filter"),
            dropped_frames=_sum(numbers.get("dropped by kernel"), numbers.get("dropped by interface", 0)),
            flush_frames=self._flush_frames,
            flushed=self._flushed,
            error="" if complete else _why(self._words, process.wait()),
            disk_full=disk_full or "No space left on device" in self._words,
            heard=self._listener is not None,
        )

    def close(self) -> None:
        """End a tcpdump that is still there, and what flushes."""
        if self._pusher is not None:
            self._pusher.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _bring_home(self, target: Path, *, complete: bool) -> int:
        """Have the capture on this machine; what is left on the disk it was written to.

        A tcpdump that failed, and so was not `complete`, need not have left one.
        """
        assert self._host is not None
        if self._host.shares_files:
            return _free_bytes(target)
        free = _free_bytes_of(self._host)
        try:
            self._host.fetch(str(target), self._capture)
        except TestbedError:
            if complete:
                raise
        self._host.run(["rm", "-f", str(target)])
        return free

    def _running(self) -> Process:
        if self._process is None:
            raise TestbedError(f"no capture is running on {self._interface}")
        return self._process


def _free_bytes(path: Path) -> int:
    """What is left on the disk of a file: tcpdump does not always say that a write failed."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0  # where nothing can be asked nothing can be written


def _free_bytes_of(host: Host) -> int:
    """What is left where a host that is not this machine keeps captures (`df` of POSIX, option -P)."""
    words = run_checked(host, ["df", "-kP", str(_ELSEWHERE)]).splitlines()[-1].split()
    return int(words[3]) * 1024


def _sum(one: int | None, other: int) -> int | None:
    return None if one is None else one + other


def _why(words: str, exit_code: int) -> str:
    lines = [line for line in words.splitlines() if line.strip() and not _CLOSING_LINE.match(line)]
    ending = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    remark = f": {lines[-1].strip()}" if lines and "listening on" not in lines[-1] else ""
    return f"tcpdump ended before the trial did ({ending}){remark}"
