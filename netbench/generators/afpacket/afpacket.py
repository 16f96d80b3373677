"""The built-in source: frames through an AF_PACKET socket, from a process of its own."""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import ClassVar

from pydantic import BaseModel, Field

from netbench.errors import TestbedError
from netbench.hosts.base import Host
from netbench.hosts.lines import Lines, last_words
from netbench.model.traffic import Sent, Stamps, Traffic

# How long the worker may take to answer, in seconds. Unless the host is in trouble, it takes milliseconds.
_OPEN_S = 20.0
_PREPARE_S = 10.0
_STOP_S = 2.0
_END_S = 1.0


class AfPacketOptions(BaseModel, extra="forbid"):
    """What a profile may say about the sources."""

    threads: int = Field(default=1, ge=1, le=64)  # of one worker; more than one use more CPUs


class AfPacket:
    """AF_PACKET sockets, in a process of its own: needs nothing but Linux and the right to open them."""

    Options: ClassVar[type[BaseModel]] = AfPacketOptions

    def __init__(self, options: AfPacketOptions) -> None:
        self._options = options

    def unfit(self, host: Host) -> str:
        """Why it cannot send from this host: it runs in netbench's own Python, which only this machine has."""
        return "" if host.shares_files else f"host {host.name} is not this machine, and its worker runs only here"

    def source(self) -> "AfPacketSource":
        """A source, not open yet."""
        return AfPacketSource(self._options)


class AfPacketSource:
    """One worker process, which lives from open() to close()."""

    Options = AfPacketOptions

    def __init__(self, options: AfPacketOptions | None = None) -> None:
        self._options = options or AfPacketOptions()
        self._worker: _Worker | None = None

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        """What open() would start, for `--dry-run`."""
        return [shlex.join(_worker_command(interface, self._options.threads, cpus))]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Start the worker on `interface` of `host`, pinned to `cpus` (empty: not pinned).

        Raises TestbedError when it does not get ready to send.
        """
        self._worker = _Worker(host, interface, self._options.threads, cpus)
        try:
            self._require_ready(_OPEN_S)
        except BaseException:
            self.close()
            raise

    @property
    def kind(self) -> str:
        """It chooses nothing."""
        return "afpacket"

    def remarks(self) -> list[str]:
        """Nothing: it does what it is asked."""
        return []

    def nearest_fps(self, fps: float, frame_size: int) -> float:
        """Any rate: frame i is due at start + i/fps, to the nanosecond."""
        return fps

    def stamps(self, traffic: Traffic) -> Stamps:
        """Each frame when it is due."""
        return Stamps()

    def prepare(self, traffic: Traffic) -> None:
        """Have the frames of the next trial built; TestbedError when the worker died or cannot send there."""
        self._opened.request({"do": "prepare", "traffic": asdict(traffic)})
        self._require_ready(_PREPARE_S)

    def start(self, at_monotonic_ns: int) -> None:
        """Send from `at_monotonic_ns` (CLOCK_MONOTONIC of the source's host) on; returns at once."""
        self._opened.request({"do": "start", "at_monotonic_ns": at_monotonic_ns})

    def wait(self, timeout_s: float) -> Sent:
        """What was sent, once sending has ended; a worker that does not end in time is stopped, or killed.

        What went wrong is told by `error`, not raised. When the worker cannot tell any more what it
        sent, 0 frames stand for an unknown number.
        """
        worker = self._opened
        try:
            try:
                reply = worker.reply(timeout_s)
            except TimeoutError:
                worker.request({"do": "stop"})
                reply = worker.reply(_STOP_S)
            return worker.sent(reply)
        except (TimeoutError, TestbedError) as error:
            worker.kill()  # whatever it is doing, it is not to send on
            return _unknown(str(error))

    def close(self) -> None:
        """End the worker; harmless when called twice or before open()."""
        if self._worker is not None:
            self._worker.end()
            self._worker = None

    @property
    def _opened(self) -> "_Worker":
        if self._worker is None:
            raise TestbedError("an afpacket source is used before open() or after close(); open it first")
        return self._worker

    def _require_ready(self, timeout_s: float) -> None:
        worker = self._opened
        try:
            reply = worker.reply(timeout_s)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error
        if "failed" in reply:
            raise TestbedError(worker.failure(f"cannot send: {reply['failed']}"))
        if reply != {"ready": True}:
            raise TestbedError(worker.failure("gave an answer that makes no sense"))


def _unknown(error: str) -> Sent:
    return Sent(0, 0, 0.0, None, None, 0, 0.0, error)


def _worker_command(interface: str, threads: int, cpus: Sequence[int]) -> list[str]:
    module = "netbench.generators.afpacket.worker"
    # numpy would start a thread on every CPU, and they spin: on the CPUs that send.
    environment = ["env", "OPENBLAS_NUM_THREADS=1"]
    return [*environment, sys.executable, "-m", module, interface, str(threads), *map(str, cpus)]


class _Worker:
    """The worker process and the conversation with it (see `afpacket_worker`)."""

    def __init__(self, host: Host, interface: str, threads: int, cpus: Sequence[int]) -> None:
        self._where = f"the afpacket source on {interface} of host {host.name}"
        process = host.spawn(_worker_command(interface, threads, cpus))
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process = process
        self._stdin = process.stdin
        self._stdout = process.stdout
        self._stderr = process.stderr
        self._replies = Lines(self._stdout)

    def request(self, message: Mapping[str, object]) -> None:
        """Send a request. A worker that is no longer there shows when its reply is read."""
        with suppress(OSError):  # its reply will tell
            self._stdin.write(json.dumps(message) + "\n")
            self._stdin.flush()

    def reply(self, timeout_s: float) -> Mapping[str, object]:
        """The next reply; TimeoutError if none comes in time, TestbedError if it died or talks nonsense."""
        line = self._read_line(timeout_s)
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise TestbedError(self.failure(f"wrote {line[:80]!r} where a JSON object was expected"))
        return reply

    def sent(self, reply: Mapping[str, object]) -> Sent:
        """What a reply says was sent; TestbedError when it says something else."""
        try:
            return Sent(**reply["sent"])  # type: ignore[arg-type]  # whatever it is, checked by calling
        except (KeyError, TypeError) as error:
            raise TestbedError(self.failure("does not say what it sent")) from error

    def failure(self, what: str) -> str:
        """A message about this worker, with the last lines it wrote to its stderr."""
        said = last_words(self._stderr, 3)
        return f"{self._where} {what}" + (f"; its stderr: {said}" if said else "")

    def kill(self) -> None:
        """End the process at once."""
        self._process.kill()

    def end(self) -> None:
        """End the process: ask by closing its stdin, then SIGTERM, then SIGKILL."""
        with suppress(OSError):  # what a dead worker has not read
            self._stdin.close()
        for insist in (self._process.terminate, self._process.kill):
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                insist()
        self._process.wait()
        self._stdout.close()
        self._stderr.close()

    def _read_line(self, timeout_s: float) -> bytes:
        try:
            return self._replies.take(timeout_s)
        except TimeoutError as error:
            raise TimeoutError(self.failure(f"did not answer within {timeout_s:g} s")) from error
        except EOFError as error:
            raise TestbedError(self.failure(f"died ({self._exit()})")) from error
        except ValueError as error:
            raise TestbedError(self.failure("answers without end")) from error

    def _exit(self) -> str:
        try:
            code = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "its stdout is closed, but it still runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"
