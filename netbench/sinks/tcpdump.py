"""Sink `tcpdump`: armed before the first frame, stopped after the last one is in the capture, then counted."""

import os
import re
import select
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from pydantic import BaseModel

from netbench.capture.captured import Awaited, CaptureCounts, Expected
from netbench.capture.counting import analyze_capture
from netbench.capture.live import LiveCapture
from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host, Process, run_checked
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Received, Sink, SinkKind
from netbench.sinks.pusher import Pusher, pusher_command
from netbench.sinks.room import capture_bytes
from netbench.sinks.tcpdump_command import (
    ELSEWHERE,
    capture_file,
    is_counted_live,
    most_ring_bytes,
    target_of,
    tcpdump_command,
)

_FREE_BYTES = 16 << 10
_NAME = "tcpdump"

_CLOSING_LINE = re.compile(
    r"^(\d+) packets? (captured|received by filter|dropped by kernel|dropped by interface)", re.M
)


class TcpdumpOptions(BaseModel, extra="forbid"):
    """None."""


class Tcpdump(SinkKind):
    """tcpdump, one process a trial, whose capture is counted while it is made or from its file."""

    Options: ClassVar[type[BaseModel]] = TcpdumpOptions
    needs = frozenset({"tcpdump"})

    def __init__(self, options: TcpdumpOptions | None = None) -> None:
        pass

    def sink(self) -> "TcpdumpSink":
        return TcpdumpSink()


@dataclass(frozen=True, slots=True)
class _Ended:
    """What tcpdump said of itself when it ended; None is unknown. `live` counts the capture, unless there is a file."""

    captured: int | None
    matched: int | None
    dropped: int | None
    flushed: bool
    error: str
    disk_full: bool
    live: LiveCapture | None


class TcpdumpSink(Sink):
    """One tcpdump per trial on one NIC."""

    def __init__(self) -> None:
        self._host: Host | None = None
        self._interface = ""
        self._cpus: Sequence[int] = ()
        self._process: Process | None = None
        self._pusher: Pusher | None = None
        self._meminfo = ""
        self._incoming: Incoming | None = None
        self._live: LiveCapture | None = None
        self._ended: _Ended | None = None
        self._words = ""
        self._flushed = False

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        here = incoming.path.sink.machine is None
        own = tcpdump_command(interface, cpus, incoming, target_of(incoming))
        return [shlex.join(own), shlex.join(pusher_command(interface, shares_files=here))]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        self._host, self._interface, self._cpus = host, interface, tuple(cpus)
        self._pusher = Pusher(host, interface)
        self._meminfo = host.read("/proc/meminfo")

    def writes(self, incoming: Incoming) -> int:
        traffic = incoming.traffic
        if traffic.frames is None or is_counted_live(incoming):
            return 0
        return capture_bytes(traffic.frames, traffic.frame_size, incoming.snap_length)

    def arm(self, incoming: Incoming) -> None:
        assert self._host is not None, "open() comes first"
        assert self._pusher is not None
        self._words, self._flushed, self._ended = "", False, None
        self._incoming = incoming
        self._live = LiveCapture(_awaited(incoming)) if is_counted_live(incoming) else None
        most_ring = most_ring_bytes(self._meminfo, incoming.sinks)
        command = tcpdump_command(self._interface, self._cpus, incoming, target_of(incoming), most_ring)
        self._process = self._host.spawn(command)
        if self._live:
            assert self._process.stdout is not None
            self._live.begin(os.dup(self._process.stdout.fileno()), self._cpus)
            self._process.stdout.close()  # or whoever reads what is left at the end would share it
        self._pusher.start()

    def armed(self, timeout_s: float) -> bool:
        """Whether tcpdump says that it is listening."""
        process, _ = self._running()
        assert process.stderr is not None
        deadline = time.monotonic() + timeout_s
        while "listening on" not in self._words:
            left_s = max(0.0, deadline - time.monotonic())
            readable, _, _ = select.select([process.stderr], [], [], left_s)
            words = os.read(process.stderr.fileno(), 4096).decode(errors="replace") if readable else ""
            self._words += words
            if not words:
                return False
        return True

    def stop(self, limit_s: float) -> None:
        """Push what has arrived into the capture, end tcpdump, and take note of its closing report."""
        process, incoming = self._running()
        if "listening on" in self._words:
            self._flush(process, target_of(incoming), limit_s)
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
        free = None if self._live else self._bring_home(incoming, complete=complete)
        self._ended = _Ended(
            captured=numbers.get("captured"),
            matched=numbers.get("received by filter"),
            dropped=_sum(numbers.get("dropped by kernel"), numbers.get("dropped by interface", 0)),
            flushed=self._flushed,
            error="" if complete else _why(self._words, process.wait()),
            disk_full=(free is not None and free < _FREE_BYTES) or "No space left on device" in self._words,
            live=self._live,
        )
        self._live = None

    def received(self, sent: Sent) -> Received:
        assert self._ended is not None, "stop() comes first"
        assert self._incoming is not None
        ended, incoming = self._ended, self._incoming
        counted = _counted(ended, incoming, sent)
        no_room = ""
        if counted.frames is None and ended.disk_full:
            no_room = f"no space left for {capture_file(incoming)}; free some, or write elsewhere with -o"
        unsettled = ""
        if counted.frames is not None and not ended.flushed:
            unsettled = "the last frames may still have been in the kernel when tcpdump was stopped"
        return replace(
            counted,
            matched=ended.matched,
            dropped=ended.dropped,
            no_room=no_room,
            unsettled=unsettled,
            counted_by=_NAME,
        )

    def close(self) -> None:
        if self._pusher is not None:
            self._pusher.close()
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
            self._process = None

    def _flush(self, process: Process, target: Path | None, limit_s: float) -> None:
        """Send flush frames until one has arrived in the capture: all frames before it are then there."""
        assert self._pusher is not None
        wait_s = flush_wait_s(limit_s)
        deadline = time.monotonic() + limit_s
        while not self._flushed and process.poll() is None and time.monotonic() < deadline:
            seen = self._pusher.push(target, wait_s)
            if seen is None:
                return  # the NIC is gone or down: the judge sees that from its counters
            self._flushed = self._live.await_flush(wait_s) if self._live else seen

    def _bring_home(self, incoming: Incoming, *, complete: bool) -> int:
        """Have the capture on this machine; what is left on the disk it was written to.

        A tcpdump that failed, and so was not `complete`, need not have left one.
        """
        assert self._host is not None
        target, file = target_of(incoming), capture_file(incoming)
        if target is None or target == file:
            return _free_bytes(file)
        free = _free_bytes_of(self._host)
        try:
            self._host.fetch(str(target), file)
        except TestbedError:
            if complete:
                raise
        self._host.run(["rm", "-f", str(target)])
        return free

    def _running(self) -> tuple[Process, Incoming]:
        if self._process is None or self._incoming is None:
            raise TestbedError(f"no capture is running on {self._interface}")
        return self._process, self._incoming


def flush_wait_s(limit_s: float) -> float:
    """How long to wait for flush frames before more are sent, when `limit_s` is for all of it."""
    return max(0.2, limit_s / 10)


def _counted(ended: _Ended, incoming: Incoming, sent: Sent) -> Received:
    """What the capture holds; nothing when it is not whole: part of a count would look like loss."""
    nothing = Received(error=ended.error, no_delay="there is no whole capture")
    if ended.error or sent.first_ns is None or sent.last_ns is None:
        return nothing
    expected = Expected(
        stream=incoming.path.name,
        src_ip=incoming.traffic.src_ip,
        dst_ip=incoming.traffic.dst_ip,
        frame_size=incoming.traffic.frame_size,
        sent_frames=sent.frames,
        first_sequence=sent.first_sequence,
        sent_from_ns=sent.first_ns,
        sent_until_ns=sent.last_ns,
        stamped=sent.stamped,
        stamped_early=sent.stamped_early,
    )
    file = capture_file(incoming)
    try:
        counts = ended.live.counts(expected) if ended.live else analyze_capture(file, [expected])
    except UsageError as error:
        return replace(nothing, error=str(error))
    is_whole = not (counts.truncated or counts.damage or counts.odd_length_frames)
    if not is_whole or counts.frames != ended.captured:
        where = "what tcpdump wrote" if ended.live else str(file)
        return replace(nothing, error=f"{where} does not hold what tcpdump says it captured")
    return received_of(counts, sent)


def received_of(counts: CaptureCounts, sent: Sent) -> Received:
    """What a capture that holds one stream says was received of it.

    Of frames that are not numbered, all count as received, and nothing is known that needs telling them apart.
    """
    (stream,) = counts.streams
    plain = Received(
        frames=stream.span.frames, foreign=counts.foreign_frames, first_ns=stream.first_ns, last_ns=stream.last_ns
    )
    if not sent.numbered:
        return plain
    delay, no_delay = stream.delay, ""
    if delay is None:
        no_delay = "no two consecutive frames arrived" if sent.stamped_early else "no frame arrived"
    elif sent.stamped_early:
        delay = delay.without_zero
    return Received(
        frames=stream.received,
        duplicates=stream.duplicates,
        reordered=stream.reordered,
        foreign=counts.foreign_frames,
        loss_runs=stream.loss_runs,
        longest_loss_run=stream.longest_loss_run,
        loss_run_lengths=stream.loss_run_lengths,
        reordering_extent=stream.reordering_extent,
        first_ns=stream.first_ns,
        last_ns=stream.last_ns,
        delay=delay,
        ipdv=stream.ipdv,
        no_delay=no_delay,
    )


def _awaited(incoming: Incoming) -> Awaited:
    return Awaited(
        stream=incoming.path.name,
        src_ip=incoming.traffic.src_ip,
        dst_ip=incoming.traffic.dst_ip,
        frame_size=incoming.traffic.frame_size,
        not_before_ns=incoming.from_ns,
        stamped=incoming.stamps.stamped,
        stamped_early=incoming.stamps.stamped_early,
    )


def _free_bytes(path: Path) -> int:
    """What is left on the disk of a file: tcpdump does not always say that a write failed."""
    try:
        return shutil.disk_usage(path.parent).free
    except OSError:
        return 0  # where nothing can be asked nothing can be written


def _free_bytes_of(host: Host) -> int:
    """What is left where a host that is not this machine keeps captures (`df` of POSIX, option -P)."""
    words = run_checked(host, ["df", "-kP", str(ELSEWHERE)]).splitlines()[-1].split()
    return int(words[3]) * 1024


def _sum(one: int | None, other: int) -> int | None:
    return None if one is None else one + other


def _why(words: str, exit_code: int) -> str:
    lines = [line for line in words.splitlines() if line.strip() and not _CLOSING_LINE.match(line)]
    ending = f"killed by signal {-exit_code}" if exit_code < 0 else f"exit code {exit_code}"
    remark = f": {lines[-1].strip()}" if lines and "listening on" not in lines[-1] else ""
    return f"tcpdump ended before the trial did ({ending}){remark}"
