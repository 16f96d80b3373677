"""Sink `tcpdump`: armed before the first frame, stopped once the last one is in the capture, then counted."""

import os
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from pydantic import TypeAdapter, ValidationError

from netbench.capture.captured import Expected
from netbench.capture.live import LiveCapture
from netbench.capture.pcap import pcap_bytes
from netbench.errors import MachineGoneError, NetbenchError, TestbedError, UsageError
from netbench.hosts.base import Host, Process, run_checked
from netbench.hosts.clock import wait_until
from netbench.hosts.pipes import end
from netbench.hosts.remote_code import has_netbench, module_command_on, scratch_of
from netbench.linux.requirements import Tool
from netbench.model.frame_mix import largest_bytes
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks import count_there
from netbench.sinks.base import Incoming, Sink, SinkKind
from netbench.sinks.count_there import InCapture, count, is_whole, question
from netbench.sinks.expected import expected_of
from netbench.sinks.from_capture import received_of, settled
from netbench.sinks.pusher import FLUSH_FRAMES, Pusher, pusher_command
from netbench.sinks.tcpdump_ahead import LARGEST_AHEAD_KIB, Ahead, buffer_kib, with_buffer
from netbench.sinks.tcpdump_command import (
    capture_file,
    is_counted_live,
    most_ring_bytes,
    target_of,
    tcpdump_command,
)
from netbench.sinks.tcpdump_numbers import Inquiry, is_number, numbers_in, tells_while_running

_FREE_BYTES = 16 << 10
_NAME = "tcpdump"
_LISTENING = "listening on"
_POLL_S = 0.002
_STOP_S = 20.0
_COUNT_S = 300.0  # of a capture of minutes, on a slow host
# Time for the output of tcpdump to pass the pipe.
_READ_S = 0.2
# Flush frames are sent in pieces until one is captured: on average the kernel's block is half full.
_PIECE_FRAMES = FLUSH_FRAMES // 8 + 1


class Tcpdump(SinkKind):
    """tcpdump, one process per trial, whose capture is counted while it is made or from its file."""

    needs = frozenset({_NAME})
    counts_mixes: ClassVar[bool] = True
    program = _NAME
    may_need = (Tool(_NAME, _NAME, "capturing at the sinks", version="--version"),)

    def sink(self) -> "TcpdumpSink":
        return TcpdumpSink()


class TcpdumpSink(Sink):
    """One tcpdump per trial on one NIC. The rest of the last one stays until the next is armed.

    Starting and ending one take some 25 ms each, in which the kernel waits for all CPUs (RCU). If captures are counted
    while they are made, the next tcpdump is therefore started when a trial has drained. The last one reports its
    numbers before it ends, and is not waited for.
    """

    def __init__(self) -> None:
        self._process: Process | None = None
        self._ahead: Ahead | None = None
        # Processes that were signalled to end and have reported everything, with the readers of their output.
        self._leaving: list[tuple[Process, LiveCapture | None]] = []
        self._live: LiveCapture | None = None
        self._told: Mapping[str, int] | None = None
        self._from_ns = 0  # a tcpdump started ahead of time may capture earlier frames; the trial's came since then
        self._command: list[str] = []
        self._ahead_kib = 0
        self._pusher: Pusher | None = None
        self._incoming: Incoming | None = None
        self._interface = ""
        self._version = "the version of its host"
        self._options: dict[str, str] | None = None  # None (the usual ones) until it is armed

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        here = incoming.path.sink.machine is None
        own = tcpdump_command(interface, cpus, incoming, target_of(incoming))
        return [shlex.join(own), shlex.join(pusher_command(interface, shares_files=here))]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self._host, self._interface, self._cpus = host, interface, tuple(cpus)
        self._pusher = Pusher(host, interface)
        self._meminfo = host.read("/proc/meminfo")
        self._version = _version_on(host)

    def identity(self) -> Identity:
        """Return the identity with the buffer of the last trial."""
        return Identity(_NAME, self._version, self._options, 1)

    def writes(self, incoming: Incoming) -> int:
        traffic = incoming.traffic
        if traffic.frames is None or is_counted_live(incoming):
            return 0
        return pcap_bytes(traffic.frames, largest_bytes(traffic.frame_size), incoming.snap_length)

    def arm(self, incoming: Incoming) -> None:
        assert self._pusher is not None, "open() comes first"
        self._words, self._error, self._flushed, self._disk_full = "", "", False, False
        self._told = None
        self._incoming = incoming
        most_ring = most_ring_bytes(self._meminfo, incoming.sinks)
        target = target_of(incoming, scratch_of(self._host))
        command = tcpdump_command(self._interface, self._cpus, incoming, target, most_ring)
        ahead, self._ahead = self._ahead, None
        self._from_ns = 0
        if ahead and ahead.serves(command):
            command, self._process, self._from_ns = ahead.command, ahead.process, time.time_ns()
        else:
            if ahead:
                self._let_go(ahead.process)
            self._process = self._host.spawn(command)
        self._command = command
        self._live = LiveCapture(expected_of(incoming), self._from_ns) if is_counted_live(incoming) else None
        self._options = {"snap_length": str(incoming.snap_length), "buffer_kib": str(buffer_kib(command))}
        if self._live:
            assert self._process.stdout is not None
            self._live.begin(os.dup(self._process.stdout.fileno()), self._cpus)
            self._process.stdout.close()  # otherwise the reader of the rest at the end would share it
        self._pusher.start()

    def learn(self, mac: str) -> None:
        assert self._pusher is not None, "open() comes first"
        self._pusher.learn(mac)

    def armed(self, timeout_s: float) -> bool:
        """Return whether tcpdump reports that it is listening."""
        process, incoming = self._running()
        wait_until(lambda: self._listens(process) or process.poll() is not None, timeout_s, _POLL_S)
        if self._from_ns and not self._listens(process):  # it ended before the trial began, for any reason
            self._let_go(process, self._live)
            self.arm(incoming)
            return self.armed(timeout_s)
        return self._listens(process)

    def processes(self) -> Sequence[int]:
        process = self._process
        return (process.pid,) if isinstance(process, subprocess.Popen) else ()

    def stop(self, limit_s: float) -> None:
        """Push all arrived frames into the capture, end tcpdump, and copy the capture to this machine."""
        process, incoming = self._running()
        if _LISTENING in self._words:
            if self._live and tells_while_running(self._version):
                self._start_ahead()
            self._flush(process, target_of(incoming, scratch_of(self._host)), limit_s)
        self._part_with_those_leaving()
        if self._has_told_all(process):
            self._let_go(process, self._live)
            self._process = None
            return
        ended_early = process.poll() is not None
        process.send_signal(signal.SIGINT)  # no effect on an ended process
        self._words += end(process, _STOP_S)
        if not ended_early and process.returncode == -signal.SIGKILL:
            self._words += f"\ntcpdump did not stop within {_STOP_S:g} s of SIGINT and was killed"
        if self._live:
            self._live.end()
        self._process = None
        if process.returncode != 0 or self._numbers().get("captured") is None or ended_early:
            self._error = _why(self._words, process.returncode)
        self._disk_full = "No space left on device" in self._words
        if self._live is None:
            self._disk_full |= self._bring_home(incoming) < _FREE_BYTES

    def received(self, sent: Sent) -> Received:
        assert self._incoming is not None, "stop() comes first"
        counted, numbers = self._counted(self._incoming, sent), self._numbers()
        self._remove_there(self._incoming)
        no_room = unsettled = ""
        if counted.frames is None and self._disk_full:
            no_room = self._no_room(self._incoming)
        if counted.frames is not None and not self._flushed:
            unsettled = "the last frames may still have been in the kernel when tcpdump was stopped"
        dropped = numbers.get("dropped by kernel")
        return replace(
            counted,
            matched=numbers.get("received by filter"),
            dropped=None if dropped is None else dropped + numbers.get("dropped by interface", 0),
            no_room=no_room,
            unsettled=unsettled,
            counted_by=_NAME,
        )

    def close(self) -> None:
        if self._pusher is not None:
            self._pusher.close()
        if self._process is not None:
            end(self._process)
            self._process = None
            if self._live:
                self._live.end()
        self.rest()
        self._part_with_those_leaving()

    def rest(self) -> None:
        if self._ahead is not None:
            end(self._ahead.process)
            self._ahead = None

    def _running(self) -> tuple[Process, Incoming]:
        if self._process is None or self._incoming is None:
            raise TestbedError(f"no capture is running on {self._interface}")
        return self._process, self._incoming

    def _listens(self, process: Process) -> bool:
        """Return whether the output of tcpdump so far reports that it is listening."""
        assert process.stderr is not None
        descriptor = process.stderr.fileno()
        if select.select([descriptor], [], [], 0)[0]:
            self._words += os.read(descriptor, 4096).decode(errors="replace")
        return _LISTENING in self._words

    def _numbers(self) -> Mapping[str, int]:
        """Return the counts that tcpdump reported; empty if it did not report any."""
        return numbers_in(self._words) if self._told is None else self._told

    def _has_told_all(self, process: Process) -> bool:
        """Return whether all frames that tcpdump counted have been read, so that its end need not be awaited."""
        if not (self._live and self._flushed and tells_while_running(self._version)):
            return False
        inquiry = Inquiry(process)
        numbers = inquiry.complete_numbers()
        self._words += inquiry.words
        if numbers is not None and self._live.await_frames(numbers["captured"], _READ_S):
            self._told = numbers
        return self._told is not None

    def _start_ahead(self) -> None:
        """Start the tcpdump of the next trial, which may need another buffer; no frames are in transit now."""
        self.rest()
        self._ahead_kib = max(self._ahead_kib, min(LARGEST_AHEAD_KIB, buffer_kib(self._command)))
        command = with_buffer(self._command, self._ahead_kib)
        self._ahead = Ahead(command, self._host.spawn(command))

    def _let_go(self, process: Process, live: LiveCapture | None = None) -> None:
        """Signal the process to end, without waiting for it."""
        process.send_signal(signal.SIGINT)
        self._leaving.append((process, live))

    def _part_with_those_leaving(self) -> None:
        while self._leaving:
            process, live = self._leaving.pop()
            end(process, _STOP_S)
            if live:
                live.end()

    def _flush(self, process: Process, target: Path | None, limit_s: float) -> None:
        """Send flush frames until the capture contains one, and hence all frames before it."""
        wait_s = max(0.2, limit_s / 10)  # before more are sent

        def is_done() -> bool:
            assert self._pusher is not None
            if process.poll() is not None:
                return True
            seen = self._push_live(self._live, wait_s) if self._live else self._pusher.push(target, wait_s)
            self._flushed = bool(seen)
            return seen is not False  # None: the NIC is gone or down; its counters show that to the judge

        wait_until(is_done, limit_s, every_s=0)

    def _push_live(self, live: LiveCapture, wait_s: float) -> bool | None:
        """Send flush frames until one has passed the pipe; return the same values as Pusher.push."""
        assert self._pusher is not None
        for _ in range(0, FLUSH_FRAMES, _PIECE_FRAMES):
            if self._pusher.push(None, wait_s, _PIECE_FRAMES) is None:
                return None
            if live.await_flush(0.0):
                return True
        return live.await_flush(wait_s)

    def _bring_home(self, incoming: Incoming) -> int:
        """Copy the capture to this machine, unless it is counted on its host and not kept; return the free bytes there.

        These are the bytes left on the disk that it was written to. A failed tcpdump may have left no capture.
        """
        target, file = target_of(incoming, scratch_of(self._host)), capture_file(incoming)
        if target is None or target == file:
            return _free_bytes(file)
        free = _free_bytes_of(self._host)
        if has_netbench(self._host) and not incoming.keep:
            return free
        try:
            self._host.fetch(str(target), file)
        except TestbedError:
            if not self._error:
                raise
        return free

    def _remove_there(self, incoming: Incoming) -> None:
        """Remove the capture from another machine in any case, because its disk would fill over the trials."""
        target = target_of(incoming, scratch_of(self._host))
        if target is not None and target != capture_file(incoming):
            self._host.run(["rm", "-f", str(target)])

    def _no_room(self, incoming: Incoming) -> str:
        target, file = target_of(incoming, scratch_of(self._host)), capture_file(incoming)
        if target is None or target == file:
            return f"no space left for {file}; free some, or write elsewhere with -o"
        return f"no space left for {target} on {self._host}; free some there"

    def _counted(self, incoming: Incoming, sent: Sent) -> Received:
        """Return the counts of the capture; none if it is not whole, because a partial count would look like loss."""
        nothing = Received(error=self._error, no_delay="there is no whole capture")
        if self._error or sent.first_ns is None or sent.last_ns is None:
            return nothing
        expected = settled(expected_of(incoming), sent)
        where, capture = self._where_counted(incoming, expected, sent)
        if capture.error:
            return replace(nothing, error=capture.error)
        if not capture.is_whole or capture.frames != self._numbers()["captured"]:
            return replace(nothing, error=f"{where} does not hold what tcpdump says it captured")
        return capture.received

    def _where_counted(self, incoming: Incoming, expected: Expected, sent: Sent) -> tuple[str, InCapture]:
        """Return the name of the capture for messages, and its counts."""
        file, traffic = capture_file(incoming), incoming.traffic
        if self._live:
            try:
                counts = self._live.counts(expected)
            except UsageError as error:
                return "", InCapture(Received(), error=str(error))
            received = received_of(counts, sent, traffic)
            return "what tcpdump wrote", InCapture(received, self._live.frames, is_whole(counts))
        if self._host.shares_files or not has_netbench(self._host):
            return str(file), count(file, expected, sent, traffic)
        where = f"{target_of(incoming, scratch_of(self._host))} on {self._host}"
        try:
            return where, self._counted_there(incoming, question(expected, sent, traffic))
        except MachineGoneError:
            raise
        except TestbedError as error:
            return "", InCapture(Received(), error=f"{where} cannot be counted: {error}")

    def _counted_there(self, incoming: Incoming, asked: str) -> InCapture:
        target = str(target_of(incoming, scratch_of(self._host)))
        command = module_command_on(self._host, count_there.__name__, target)
        answer = run_checked(self._host, command, stdin=asked, timeout_s=_COUNT_S)
        try:
            return TypeAdapter(InCapture).validate_json(answer)
        except ValidationError as error:
            raise TestbedError(f"what counts there says {answer[:80].strip()!r}") from error


def _version_on(host: Host) -> str:
    """Return the versions of tcpdump and its library on a host; empty if it reports none."""
    try:
        done = host.run([_NAME, "--version"])
    except NetbenchError:
        return ""
    return ", ".join(line for line in (done.stdout + done.stderr).splitlines() if " version " in line)


def _free_bytes(path: Path) -> int:
    """Return the free bytes on the disk of a file, because tcpdump does not always report that a write failed."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0  # a disk that cannot be queried cannot be written to either


def _free_bytes_of(host: Host) -> int:
    """Return the free bytes where another host stores captures (`df` of POSIX, option -P)."""
    words = run_checked(host, ["df", "-kP", scratch_of(host)]).splitlines()[-1].split()
    return int(words[3]) * 1024


def _why(words: str, exit_code: int | None) -> str:
    lines = [line for line in words.splitlines() if line.strip() and not is_number(line)]
    if exit_code is None:
        return "tcpdump cannot be ended: its kernel waits for something"
    ending = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    remark = f": {lines[-1].strip()}" if lines and _LISTENING not in lines[-1] else ""
    return f"tcpdump ended before the trial did ({ending}){remark}"
