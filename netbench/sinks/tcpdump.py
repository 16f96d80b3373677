"""Sink `tcpdump`: armed before the first frame, stopped after the last one is in the file."""

import inspect
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process, run_checked
from netbench.sinks import flush
from netbench.sinks.base import Arrived, Catch
from netbench.sinks.flush import FLUSH_MAC

# A frame in the ring costs its snapped bytes and headers around them (tpacket3_hdr, sockaddr_ll, padding).
_RING_OVERHEAD_BYTES = 112
_RING_SECONDS = 1.0
_MIN_RING_BYTES = 4 << 20
_MAX_RING_BYTES = 256 << 20
_UNKNOWN_RATE_RING_BYTES = 128 << 20

# Two blocks of 256 KiB, at the least a flush frame can take in one.
FLUSH_FRAMES = 4096
_ELSEWHERE = Path("/tmp")  # where hosts that are not this machine keep a capture until it is fetched
_FREE_BYTES = 16 << 10

_CLOSING_LINE = re.compile(
    r"^(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)


def ring_bytes(fps: float | None, snap_length: int) -> int:
    """Size of the kernel's capture ring: a second's worth of the expected frames, within bounds."""
    if fps is None:
        return _UNKNOWN_RATE_RING_BYTES
    wanted = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, wanted))


def tcpdump_command(interface: str, cpus: Sequence[int], catch: Catch) -> list[str]:
    """The tcpdump command of a trial: only this stream's frames and flush frames, snapped, to a file."""
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    buffer_kib = ring_bytes(catch.fps, catch.snap_length) >> 10
    # Not `inbound`: libpcap filters the first blocks of a capture once more by itself, and knows no directions there.
    ours = f"(udp and src host {catch.src_ip} and dst host {catch.dst_ip}) or ether dst {FLUSH_MAC}"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(catch.snap_length), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(catch.capture), ours]


def there(capture: Path, *, shares_files: bool) -> Path:
    """Where a host keeps a capture until it has ended: where it belongs, if the host shares this machine's files."""
    return capture if shares_files else _ELSEWHERE / capture.name


def flush_command(interface: str, capture: Path, wait_s: float, *, by_itself: bool = False) -> list[str]:
    """The command that pushes the last captured frames out of the kernel.

    `by_itself`: on a host without netbench, where the program is read from stdin.
    """
    program = ["python3", "-I", "-S", "-"] if by_itself else [sys.executable, "-m", flush.__name__]
    return [*program, interface, str(FLUSH_FRAMES), str(capture), f"{wait_s:g}"]


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
        self._capture = Path()
        self._there = Path()  # the capture, as the host knows it
        self._words = ""
        self._flush_frames = 0
        self._flushed = False

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Listen on `interface` of `host`, on `cpus`."""
        self._host, self._interface, self._cpus = host, interface, tuple(cpus)

    def arm(self, catch: Catch) -> None:
        """Start tcpdump; returns at once."""
        assert self._host is not None, "open() comes first"
        self._words, self._flush_frames, self._flushed = "", 0, False
        self._capture = catch.capture
        self._there = there(catch.capture, shares_files=self._host.shares_files)
        command = tcpdump_command(self._interface, self._cpus, replace(catch, capture=self._there))
        self._process = self._host.spawn(command)

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
        """Send flush frames until the capture file ends with one: all frames before it are then in the file."""
        assert self._host is not None, "open() comes first"
        process = self._running()
        by_itself = not self._host.shares_files
        program = inspect.getsource(flush) if by_itself else ""
        wait_s = flush_wait_s(timeout_s)
        command = flush_command(self._interface, self._there, wait_s, by_itself=by_itself)
        deadline = time.monotonic() + timeout_s
        while not self._flushed and process.poll() is None and time.monotonic() < deadline:
            sent = self._host.run(command, stdin=program)
            if sent.exit_code not in (0, flush.NOT_SEEN):
                return  # the NIC is gone or down: the judge sees that from its counters
            self._flush_frames += FLUSH_FRAMES
            self._flushed = sent.exit_code == 0

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
        free = self._bring_home(complete=complete)
        return Arrived(
            capture=self._capture,
            captured_frames=numbers.get("captured"),
            filter_frames=numbers.get("received by filter"),
            dropped_frames=_sum(numbers.get("dropped by kernel"), numbers.get("dropped by interface", 0)),
            flush_frames=self._flush_frames,
            flushed=self._flushed,
            error="" if complete else _why(self._words, process.wait()),
            disk_full="No space left on device" in self._words or free < _FREE_BYTES,
        )

    def close(self) -> None:
        """End a tcpdump that is still there."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _bring_home(self, *, complete: bool) -> int:
        """Have the capture on this machine; what is left on the disk it was written to.

        A tcpdump that failed, and so was not `complete`, need not have left one.
        """
        assert self._host is not None
        if self._host.shares_files:
            return _free_bytes(self._there)
        free = _free_bytes_of(self._host)
        try:
            self._host.fetch(str(self._there), self._capture)
        except TestbedError:
            if complete:
                raise
        self._host.run(["rm", "-f", str(self._there)])
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
        return 0


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
