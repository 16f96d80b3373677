"""Sink `tcpdump`: armed before the first frame, stopped once the last one is in the capture, then counted."""

import shlex
import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from netbench.capture.capture_counts import Expected
from netbench.capture.pcap import pcap_bytes
from netbench.errors import MachineGoneError, NetbenchError, TestbedError, UsageError
from netbench.hosts.base import Host, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.remote_code import has_netbench, scratch_of
from netbench.hosts.trusted_code import module_command
from netbench.linux.requirements import Command
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks import flush
from netbench.sinks.base import Incoming, Sink, SinkKind, SinkPreference
from netbench.sinks.measuring_window import received_of, settled
from netbench.sinks.remote_capture_count import InCapture, count, is_whole
from netbench.sinks.tcpdump_process import (
    FLUSH_FRAMES,
    CountProcess,
    FlushProcess,
    TcpdumpProcess,
    capture_file,
    counts_in,
    is_counted_live,
    most_ring_bytes,
    reports_while_running,
    target_of,
    tcpdump_command,
    with_buffer,
)

_FREE_BYTES = 16 << 10
_NAME = "tcpdump"
_POLL_S = 0.002
_STOP_S = 20.0
# Time for the output of tcpdump to pass the pipe.
_READ_S = 0.2
# Flush frames are sent in pieces until one is captured: on average the kernel's block is half full.
_PIECE_FRAMES = FLUSH_FRAMES // 8 + 1
# The largest buffer of a prespawned tcpdump, in KiB: the buffer of the last one exists too.
_LARGEST_PRESPAWNED_KIB = 32 << 10


class Tcpdump(SinkKind):
    """tcpdump, one process per trial, whose capture is counted while it is made or from its file."""

    needs = frozenset({_NAME})
    counts_mixes: ClassVar[bool] = True
    counts_packets: ClassVar[bool] = True
    program = _NAME
    auto_sink = SinkPreference(rank=2, trusted_fps=300_000)  # half of its rate on two CPUs that ran all else as well
    may_need = (Command(_NAME, _NAME, "capturing at the sinks", version="--version"),)

    def sink(self) -> "TcpdumpSink":
        return TcpdumpSink()


class TcpdumpSink(Sink):
    """One tcpdump per trial on one NIC.

    Starting and ending one take some 25 ms each, in which the kernel waits for all CPUs (RCU). If captures are counted
    while they are made, the next tcpdump is therefore started when a trial has drained. The last one reports its
    counts before it ends, and its end is not awaited.
    """

    _count_process: CountProcess
    _flush_process: FlushProcess
    _incoming: Incoming
    _stopped: TcpdumpProcess

    def __init__(self) -> None:
        self._tcpdump: TcpdumpProcess | None = None
        self._prespawned_tcpdump: TcpdumpProcess | None = None
        self._prespawned_kib = 0
        self._ending: list[TcpdumpProcess] = []  # were signalled to end, and have reported everything
        self._counts: Mapping[str, int] = {}
        self._from_ns = 0  # when the trial began, if a prespawned tcpdump may have captured earlier frames
        self._is_open = False
        self._interface = ""
        self._version = "the version of its host"
        self._options: dict[str, str] | None = None  # None (the usual ones) until it is armed

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        capture = tcpdump_command(interface, cpus, incoming, target_of(incoming))
        flushing = ["python3", "-I", "-S", "netbench/sinks/flush.py", interface]
        if incoming.path.sink.machine is None:
            flushing = module_command(flush.__name__, interface)
        return [shlex.join(capture), shlex.join(flushing)]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self._host, self._interface, self._cpus, self._is_open = host, interface, tuple(cpus), True
        self._flush_process, self._count_process = FlushProcess(host, interface), CountProcess(host, interface)
        self._is_counted_there = has_netbench(host) and not host.shares_files
        if self._is_counted_there:
            self._count_process.start()
        self._meminfo = host.read("/proc/meminfo")
        self._version = _version_on(host)

    def identity(self) -> Identity:
        """Return the identity with the buffer of the last trial."""
        return Identity(_NAME, self._version, self._options, 1)

    def writes(self, incoming: Incoming) -> int:
        traffic = incoming.traffic
        if traffic.frames is None or is_counted_live(incoming):
            return 0
        return pcap_bytes(traffic.frames, _largest_bytes(incoming), incoming.stored_bytes)

    def arm(self, incoming: Incoming) -> None:
        self._error, self._flushed, self._disk_full, self._counts = "", False, False, {}
        self._incoming = incoming
        most_ring = most_ring_bytes(self._meminfo, incoming.sinks)
        command = tcpdump_command(self._interface, self._cpus, incoming, self._target(incoming), most_ring)
        prespawned, self._prespawned_tcpdump = self._prespawned_tcpdump, None
        self._from_ns = 0
        if prespawned and prespawned.serves(command):
            self._tcpdump, self._from_ns = prespawned, time.time_ns()
        else:
            if prespawned:
                self._end_later(prespawned)
            self._tcpdump = TcpdumpProcess(self._host, command)
        self._options = {"snap_length": str(incoming.stored_bytes), "buffer_kib": str(self._tcpdump.buffer_kib)}
        if is_counted_live(incoming):
            self._tcpdump.count_live(incoming.expected, self._from_ns, self._cpus)
        self._flush_process.start()

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        self._flush_process.prime_fdb(frames)

    def armed(self, timeout_s: float) -> bool:
        """Return whether tcpdump reports that it is listening."""
        tcpdump = self._running
        wait_until(lambda: tcpdump.listens() or tcpdump.has_ended(), timeout_s, _POLL_S)
        if self._from_ns and not tcpdump.listens():  # it ended before the trial began, for any reason
            self._end_later(tcpdump)
            self.arm(self._incoming)
            return self.armed(timeout_s)
        return tcpdump.listens()

    def processes(self) -> Sequence[int]:
        process = self._tcpdump.process if self._tcpdump else None
        return (process.pid,) if self._host.shares_files and isinstance(process, subprocess.Popen) else ()

    def stop(self, limit_s: float) -> None:
        """Push all arrived frames into the capture, end tcpdump, and copy the capture to this machine."""
        tcpdump, incoming = self._running, self._incoming
        if tcpdump.listens():
            if tcpdump.live and reports_while_running(self._version):
                self._prespawn(tcpdump)
            self._flush(tcpdump, limit_s)
        self._await_ending()
        if self._is_complete(tcpdump):
            self._end_later(tcpdump)
            self._tcpdump, self._stopped = None, tcpdump
            return
        ended_early = tcpdump.has_ended()
        tcpdump.signal_end()
        tcpdump.wait_end(_STOP_S)
        self._tcpdump, self._stopped = None, tcpdump
        self._counts = counts_in(tcpdump.output)
        if tcpdump.process.returncode != 0 or "captured" not in self._counts or ended_early:
            self._error = tcpdump.failure()
        self._disk_full = "No space left on device" in tcpdump.output
        if tcpdump.live is None:
            self._disk_full |= self._fetch(incoming) < _FREE_BYTES

    def received(self, sent: Sent) -> Received:
        incoming = self._incoming
        counted = self._counted(incoming, sent)
        file, target = capture_file(incoming), self._target(incoming)
        where = f"{file}; free some, or write elsewhere with -o"
        if self._is_remote(incoming):
            self._host.run(["rm", "-f", str(target)])  # in any case: its disk would fill over the trials
            where = f"{target} on {self._host}; free some there"
        no_room = unsettled = ""
        if counted.frames is None and self._disk_full:
            no_room = f"no space left for {where}"
        if counted.frames is not None and not self._flushed:
            unsettled = "the last frames may still have been in the kernel when tcpdump was stopped"
        dropped = self._counts.get("dropped by kernel")
        return replace(
            counted,
            matched=self._counts.get("received by filter"),
            dropped=None if dropped is None else dropped + self._counts.get("dropped by interface", 0),
            no_room=no_room,
            unsettled=unsettled,
            counted_by=_NAME,
            by_tap=True,
        )

    def close(self) -> None:
        if self._is_open:
            self._flush_process.close()
            self._count_process.close()
        if self._tcpdump is not None:
            self._tcpdump.kill()
            self._tcpdump = None
        self.rest()
        self._await_ending()

    def rest(self) -> None:
        if self._prespawned_tcpdump is not None:
            self._prespawned_tcpdump.kill()
            self._prespawned_tcpdump = None

    @property
    def _running(self) -> TcpdumpProcess:
        if self._tcpdump is None:
            raise TestbedError(f"no capture is running on {self._interface}")
        return self._tcpdump

    def _is_complete(self, tcpdump: TcpdumpProcess) -> bool:
        """Return whether all frames that tcpdump counted have been read, so that its end need not be awaited."""
        if not (tcpdump.live and self._flushed and reports_while_running(self._version)):
            return False
        counts = tcpdump.final_counts()
        if counts is None or not tcpdump.live.await_frames(counts["captured"], _READ_S):
            return False
        self._counts = counts
        return True

    def _prespawn(self, tcpdump: TcpdumpProcess) -> None:
        """Start the tcpdump of the next trial, which may need another buffer; no frames are in transit now."""
        self.rest()
        self._prespawned_kib = max(self._prespawned_kib, min(_LARGEST_PRESPAWNED_KIB, tcpdump.buffer_kib))
        self._prespawned_tcpdump = TcpdumpProcess(self._host, with_buffer(tcpdump.command, self._prespawned_kib))

    def _end_later(self, tcpdump: TcpdumpProcess) -> None:
        tcpdump.signal_end()
        self._ending.append(tcpdump)

    def _await_ending(self) -> None:
        while self._ending:
            self._ending.pop().wait_end(_STOP_S)

    def _flush(self, tcpdump: TcpdumpProcess, limit_s: float) -> None:
        """Send flush frames until the capture contains one, and hence all frames before it."""
        target, wait_s = self._target(self._incoming), max(0.2, limit_s / 10)  # before more are sent

        def is_done() -> bool:
            if tcpdump.has_ended():
                return True
            is_seen = self._flush_live(tcpdump, wait_s) if tcpdump.live else self._flush_process.push(target, wait_s)
            self._flushed = bool(is_seen)
            return is_seen is not False  # None: the NIC is gone or down; its counters show that to the judge

        wait_until(is_done, limit_s, every_s=0)

    def _flush_live(self, tcpdump: TcpdumpProcess, wait_s: float) -> bool | None:
        """Send flush frames until one has passed the pipe; return the same values as FlushProcess.push."""
        assert tcpdump.live is not None
        for _ in range(0, FLUSH_FRAMES, _PIECE_FRAMES):
            if self._flush_process.push(None, wait_s, _PIECE_FRAMES) is None:
                return None
            if tcpdump.live.await_flush(0.0):
                return True
        return tcpdump.live.await_flush(wait_s)

    def _target(self, incoming: Incoming) -> Path | None:
        """Return the file that tcpdump writes on its host; None if its output is counted."""
        return target_of(incoming, scratch_of(self._host))

    def _is_remote(self, incoming: Incoming) -> bool:
        """Return whether tcpdump writes its capture to another machine."""
        return self._target(incoming) not in (None, capture_file(incoming))

    def _fetch(self, incoming: Incoming) -> int:
        """Copy the capture to this machine, unless it is counted on its host and not kept.

        Return the free bytes on the disk that it was written to, because tcpdump does not always report a failed write.
        """
        file = capture_file(incoming)
        if not self._is_remote(incoming):
            return _free_bytes(file)
        columns = run_checked(self._host, ["df", "-kP", scratch_of(self._host)]).splitlines()[-1].split()
        if incoming.keep or not has_netbench(self._host):
            try:
                self._host.fetch(str(self._target(incoming)), file)
            except TestbedError:
                if not self._error:
                    raise
        return int(columns[3]) * 1024

    def _counted(self, incoming: Incoming, sent: Sent) -> Received:
        """Return the counts of the capture; none if it is incomplete, because a partial count would look like loss."""
        nothing = Received(error=self._error, no_delay="the capture is incomplete")
        if self._error or sent.first_ns is None or sent.last_ns is None:
            return nothing
        where, capture = self._count_capture(incoming, settled(incoming.expected, sent), sent)
        if capture.error:
            return replace(nothing, error=capture.error)
        if not capture.is_whole or capture.frames != self._counts["captured"]:
            return replace(nothing, error=f"{where} does not contain exactly the frames that tcpdump reports")
        return capture.received

    def _count_capture(self, incoming: Incoming, expected: Expected, sent: Sent) -> tuple[str, InCapture]:
        """Return the name of the capture for messages, and its counts."""
        file, traffic, live = capture_file(incoming), incoming.traffic, self._stopped.live
        if live:
            try:
                counts = live.counts(expected)
            except UsageError as error:
                return "", InCapture(Received(), error=str(error))
            return "the output of tcpdump", InCapture(received_of(counts, sent, traffic), live.frames, is_whole(counts))
        if not self._is_counted_there:
            return str(file), count(file, expected, sent, traffic)
        target = self._target(incoming)
        assert target is not None
        where = f"{target} on {self._host}"
        try:
            return where, self._count_process.count(target, expected, sent, traffic)
        except MachineGoneError:
            raise
        except TestbedError as error:
            return "", InCapture(Received(), error=f"{where} cannot be counted: {error}")


def _largest_bytes(incoming: Incoming) -> int:
    longer = 0 if incoming.headers is None else incoming.headers.longer
    return incoming.traffic.frame_size.largest_bytes + longer


def _version_on(host: Host) -> str:
    """Return the versions of tcpdump and its library on a host; empty if it reports none."""
    try:
        done = host.run([_NAME, "--version"])
    except NetbenchError:
        return ""
    return ", ".join(line for line in (done.stdout + done.stderr).splitlines() if " version " in line)


def _free_bytes(path: Path) -> int:
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0  # a disk that cannot be queried cannot be written to either
