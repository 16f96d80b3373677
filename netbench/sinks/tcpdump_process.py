"""The tcpdump of a trial: its command, and the process, which reports counts at its end and on signals (SIGUSR1).

The processes on a sink's host that send flush frames, and count captures, on request.
"""

import os
import re
import select
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from netbench.capture.capture_counts import Expected
from netbench.capture.frames import VLAN_TAGS
from netbench.capture.live import LiveCapture
from netbench.errors import TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.pipes import Lines, end
from netbench.hosts.remote_code import module_command_on, program_command
from netbench.hosts.worker_client import WorkerProcess
from netbench.model.frame_template import ExpectedHeaders
from netbench.model.traffic import PKTGEN_MAGIC, Sent, Traffic
from netbench.sinks import flush, remote_capture_count
from netbench.sinks.base import LEARNING_BATCH, Incoming, batched
from netbench.sinks.remote_capture_count import InCapture

_TAG_BYTES = 4
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

_LISTENING = "listening on"
_COUNT = re.compile(
    r"(?:^(?:tcpdump: )?|, )(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)
_VERSION = re.compile(r"tcpdump version (\d+)\.(\d+)")
_LEAST_VERSION = (4, 99)  # SIGUSR2 kills older ones
_REPLY_S = 0.2
# The number of queries whether it is idle, and the pause between them.
_QUERIES, _PAUSE_S = 20, 0.0005


def ring_bytes(fps: float | None, snap_length: int, most: int = _MAX_RING_BYTES) -> int:
    """Return the size of the kernel's capture ring in bytes: the frames expected in a second, within bounds.

    `most` is the limit due to the available memory, in bytes.
    """
    expected = _UNKNOWN_RATE_RING_BYTES
    if fps is not None:
        expected = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, most, expected))


def most_ring_bytes(meminfo: str, sinks: int) -> int:
    """Return how many bytes the ring of one of so many sinks may take of MemAvailable in /proc/meminfo (proc(5))."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M)
    return int(available[1]) * 1024 // (_RINGS_PART * sinks) if available else _MAX_RING_BYTES


def tcpdump_command(
    interface: str, cpus: Sequence[int], incoming: Incoming, target: Path | None, most_ring: int = _MAX_RING_BYTES
) -> list[str]:
    """Return the command that captures this stream's frames, control and flush frames to the file `target`, or stdout.

    Frames are snapped. This stream's frames include those of earlier trials, whose sources had other addresses of the
    same network. With described headers, they are all frames with pktgen's magic number where it may be. `most_ring` is
    the `most` of ring_bytes().
    """
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    traffic = incoming.traffic
    buffer_kib = ring_bytes(traffic.fps, incoming.stored_bytes, most_ring) >> 10
    # Not `inbound`: libpcap itself filters the first blocks of a capture again, without their direction.
    stream_frames = f"udp and src net {incoming.path.src_network} and dst host {traffic.dst_ip}"
    control_frames = _LINK_LOCAL
    if incoming.path.has_reverse:
        # A UUT that redirects all frames delivers flush frames of the other end's sink, which are not this sink's.
        sink_mac = incoming.path.sink.mac or "MAC"  # known once the testbed is up
        control_frames = f"({_LINK_LOCAL} and not ({_FLUSH} and not ether src {sink_mac}))"
    expression = f"({stream_frames}) or {control_frames} or ether proto 0x88cc"
    if incoming.headers is not None:
        expression = f"{control_frames} or ether proto 0x88cc or {_described_frames(incoming, incoming.headers)}"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(incoming.stored_bytes), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(target or "-"), expression]


def _described_frames(incoming: Incoming, headers: ExpectedHeaders) -> str:
    """Return the filter expression for frames with pktgen's magic number where described headers may have it.

    The filter sees frames without their first VLAN tag, which the kernel has taken out. Reading beyond the end of a
    frame rejects it (pcap-filter(7)): the expression comes last, and the smallest offset first.
    """
    template = headers.template
    first_frame = next(iter(template.frames.values()))
    places = {template.payload_at, *headers.also_at, *(at - _TAG_BYTES for at in headers.also_at)}
    if int.from_bytes(first_frame[12:14]) in VLAN_TAGS:
        places.add(template.payload_at - _TAG_BYTES)
    magic = " or ".join(f"ether[{at}:4] = {PKTGEN_MAGIC:#x}" for at in sorted(places) if at > 0)
    # A source of this NIC may send some of them, which the kernel shows to its taps.
    others = [f"ether src {mac}" for mac in headers.not_from] + [f"ether dst {mac}" for mac in headers.not_to]
    return f"(({magic}) and not ({' or '.join(others)}))" if others else f"({magic})"


def capture_file(incoming: Incoming) -> Path:
    """Return the final file of a capture on this machine; unused if it is counted while it is made."""
    return incoming.record.with_name(f"{incoming.record.name}.pcap")


def is_counted_live(incoming: Incoming) -> bool:
    """Return whether a capture is counted while it is made, and never written to a disk.

    Both ends must be on this machine: its clock separates frames of the trial from late ones of earlier trials before
    the source reports its times.
    """
    return not incoming.keep and incoming.path.source.machine is None and incoming.path.sink.machine is None


def target_of(incoming: Incoming, scratch: str = "/tmp") -> Path | None:
    """Return the file that the sink's host writes the capture to; None if it is counted while it is made.

    A host that does not share this machine's files stores it in the directory `scratch` until it has ended.
    """
    if incoming.path.sink.machine is not None:
        return Path(scratch, capture_file(incoming).name)
    return None if is_counted_live(incoming) else capture_file(incoming)


def with_buffer(command: Sequence[str], kib: int) -> list[str]:
    """Return the tcpdump command with a buffer of this size, in KiB."""
    at = command.index("-B") + 1
    return [*command[:at], str(kib), *command[at + 1 :]]


def counts_in(output: str) -> Mapping[str, int]:
    """Return the latest count of each kind in the output of tcpdump; empty if there is none."""
    return {what: int(count) for count, what in _COUNT.findall(output)}


def reports_while_running(version: str) -> bool:
    """Return whether a tcpdump with this version text reports its counts on signals."""
    match = _VERSION.search(version)
    return match is not None and tuple(map(int, match.groups())) >= _LEAST_VERSION


class TcpdumpProcess:
    """A running tcpdump, its command, and its output on stderr so far."""

    def __init__(self, host: Host, command: Sequence[str]) -> None:
        self.command = list(command)
        self.process = host.spawn(command)
        self.live: LiveCapture | None = None  # counts its capture while it is made
        self.output = ""

    @property
    def buffer_kib(self) -> int:
        """The size of its buffer, in KiB."""
        return _buffer_kib(self.command)

    def has_ended(self) -> bool:
        """Return whether the process has ended, for any reason."""
        return self.process.poll() is not None

    def serves(self, command: Sequence[str]) -> bool:
        """Return whether it runs with this command, and with at least its buffer."""
        is_same = with_buffer(self.command, 0) == with_buffer(command, 0)
        return is_same and self.buffer_kib >= _buffer_kib(command) and not self.has_ended()

    def listens(self) -> bool:
        """Return whether its output so far reports that it is listening."""
        assert self.process.stderr is not None
        descriptor = self.process.stderr.fileno()
        if select.select([descriptor], [], [], 0)[0]:
            self.output += os.read(descriptor, 4096).decode(errors="replace")
        return _LISTENING in self.output

    def count_live(self, expected: Expected, from_ns: int, cpus: Sequence[int]) -> None:
        """Count these frames of its capture from `from_ns` on while it is made, by a thread on some CPUs."""
        assert self.process.stdout is not None
        self.live = LiveCapture(expected, from_ns)
        self.live.begin(os.dup(self.process.stdout.fileno()), cpus)
        self.process.stdout.close()  # otherwise the reader of the rest at the end would share it

    def final_counts(self) -> Mapping[str, int] | None:
        """Return its counts once it is idle and has written every counted frame; None if it does not report them.

        Its handler of SIGUSR2 writes the output buffer, even while tcpdump modifies it. tcpdump did not modify it if it
        captured nothing between two replies, the second of which follows the writing.
        """
        earlier = self._query(signal.SIGUSR1)
        for _ in range(_QUERIES):
            now = self._query(signal.SIGUSR1)
            if earlier is None or now is None:
                return None
            if now == earlier:
                last = self._query(signal.SIGUSR2, signal.SIGUSR1)
                return last if last == now else None
            earlier = now
            time.sleep(_PAUSE_S)
        return None

    def signal_end(self) -> None:
        """Signal the process to end, without waiting for it; no effect on an ended process."""
        self.process.send_signal(signal.SIGINT)

    def wait_end(self, limit_s: float) -> None:
        """Read the rest of its output, and wait for its end; it is killed after `limit_s`."""
        ended_before = self.has_ended()
        self.output += end(self.process, limit_s)
        if not ended_before and self.process.returncode == -signal.SIGKILL:
            self.output += f"\ntcpdump did not stop within {limit_s:g} s of SIGINT and was killed"
        if self.live:
            self.live.end()

    def kill(self) -> None:
        """End the process at once."""
        end(self.process)
        if self.live:
            self.live.end()

    def failure(self) -> str:
        """Return why it ended too early, with the last line of its output."""
        exit_code = self.process.returncode
        if exit_code is None:
            return "tcpdump cannot be killed: it is blocked in the kernel"
        lines = [line.strip() for line in self.output.splitlines() if line.strip() and not _COUNT.match(line)]
        ending = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
        remark = f": {lines[-1]}" if lines and _LISTENING not in lines[-1] else ""
        return f"tcpdump ended before the trial did ({ending}){remark}"

    def _query(self, *signals: int) -> Mapping[str, int] | None:
        """Send these signals and return the counts in the reply; None if it contains none."""
        assert self.process.stderr is not None
        descriptor, reply, deadline = self.process.stderr.fileno(), b"", time.monotonic() + _REPLY_S
        for number in signals:
            self.process.send_signal(number)
        while not reply.endswith(b"\n"):
            in_time = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))[0]
            piece = os.read(descriptor, 4096) if in_time else b""
            if not piece:
                break
            reply += piece
        text = reply.decode(errors="replace")
        self.output += text
        counts = counts_in(text)
        return counts if "captured" in counts and text.endswith("\n") and text.count("\n") == 1 else None


def _buffer_kib(command: Sequence[str]) -> int:
    return int(command[command.index("-B") + 1])


# A block of 256 KiB ÷ the least size of a flush frame in it (128 bytes), and one more: the first may begin a block.
FLUSH_FRAMES = 2049
# Python starts during the first flush; on an emulated CPU that takes a second.
_ANSWER_S = 10.0
_COUNT_S = 300.0  # of a capture of minutes, on a slow host


class FlushProcess:
    """One such process, alive from its first use to close()."""

    def __init__(self, host: Host, interface: str) -> None:
        self._host, self._interface = host, interface
        self._process: Process | None = None

    def start(self) -> None:
        """Start the process, so that the first push need not wait for it; TestbedError if it cannot start."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = self._host.spawn(program_command(self._host, flush, self._interface))

    def push(self, capture: Path | None, wait_s: float, frames: int = FLUSH_FRAMES) -> bool | None:
        """Send so many frames; return whether `capture`, a file of the host, ends with one of them within `wait_s`.

        False at once for no file; None if they could not be sent: the NIC or the process is gone, or the NIC is down.
        """
        answer = self._answer_to(f"{frames} {wait_s:g} {capture}\n" if capture else f"{frames} 0\n", wait_s)
        return answer == flush.SEEN if answer in (flush.SEEN, flush.UNSEEN) else None

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        """Send frames from which bridges learn the NIC's port; errors are ignored."""
        for part in batched(frames, LEARNING_BATCH):
            answer = self._answer_to(f"{flush.LEARN} {','.join(frame.hex() for frame in part)}\n", 0.0)
            if answer != flush.UNSEEN:
                return  # the NIC is gone or down: its counters show that to the judge

    def close(self) -> None:
        """End the process; harmless if called twice."""
        process, self._process = self._process, None
        if process is not None:
            end(process)

    def _answer_to(self, request: str, wait_s: float) -> str:
        """Send one line and return the answer, for which the process may wait `wait_s`; empty without an answer."""
        self.start()
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        answer = ""
        with suppress(OSError):  # a dead process does not answer either
            process.stdin.write(request)
            process.stdin.flush()
        with suppress(TimeoutError, EOFError, ValueError):
            answer = Lines(process.stdout).take(wait_s + _ANSWER_S).decode(errors="replace").strip()
        if answer not in (flush.SEEN, flush.UNSEEN) and not answer.startswith(flush.FAILED):
            self.close()  # a late answer must not be mistaken for the next one
        return answer


class CountProcess:
    """One process that counts captures on the host that made them, alive from start() to close()."""

    def __init__(self, host: Host, interface: str) -> None:
        self._host, self._interface = host, interface
        self._process: Process | None = None
        self._worker: WorkerProcess | None = None

    def start(self) -> None:
        """Start the process, so that the first count need not wait for it, and replace one that has died.

        TestbedError if it cannot start.
        """
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = module_command_on(self._host, remote_capture_count.__name__)
            self._process = self._host.spawn(["env", "OPENBLAS_NUM_THREADS=1", *command])
            self._worker = WorkerProcess(f"the counting process for {self._interface} of {self._host}", self._process)

    def count(self, capture: Path, expected: Expected, sent: Sent, traffic: Traffic) -> InCapture:
        """Return the counts of a capture there; TestbedError if the process dies or does not answer: it is ended."""
        self.start()
        assert self._worker is not None
        self._worker.request(remote_capture_count.request(capture, expected, sent, traffic))
        try:
            reply = self._worker.any_reply(_COUNT_S)
            if why := reply.get("failed"):
                raise TestbedError(str(why))
            return TypeAdapter(InCapture).validate_python(reply)
        except (TimeoutError, TestbedError, ValidationError) as error:
            self.close()
            why = f"invalid reply {str(reply)[:80]}" if isinstance(error, ValidationError) else str(error)
            raise TestbedError(why) from error

    def close(self) -> None:
        """End the process; harmless if called twice."""
        worker, self._worker, self._process = self._worker, None, None
        if worker is not None:
            worker.close()
