"""A source whose frames are sent by a process of its own on its host, and the conversation with that process."""

import json
import shlex
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict

from netbench.errors import MissingError, TestbedError
from netbench.generators.base import Source
from netbench.hosts.base import Host, Process
from netbench.hosts.composed import has_netbench, module_command_on
from netbench.hosts.lines import Lines, last_words
from netbench.hosts.python_modules import module_command
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Traffic

# How long the worker may take to answer, in seconds. Unless the host is in trouble, it takes milliseconds.
_PREPARE_S = 10.0
_ELSEWHERE_S = 60.0  # to be ready on another host: Python and numpy are slow to start on an emulated CPU
_STOP_S = 2.0
_END_S = 1.0


def no_netbench(host: Host) -> str:
    """Why the worker of a source cannot run on a host, as `Generator.unfit` says it; empty where it can."""
    return (
        "" if has_netbench(host) else f"host {host.name} has no netbench of its own, and its worker is a part of that"
    )


class WorkerSource(Source):
    """One process, which lives from open() to close() and does what `worker_process.serve` says."""

    open_limit_s = 20.0  # for it to be ready to send

    def __init__(self, kind: str, module: str, *arguments: str) -> None:
        """`module` is run with the interface, these arguments, and the numbers of the CPUs to be pinned to."""
        self._kind = kind
        self._module = module
        self._arguments = arguments
        self._process: Process | None = None
        self._host: Host | None = None
        self.version = ""  # of what sends, as far as the worker says it

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        return [shlex.join(self._command(interface, cpus))]

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Start the worker; TestbedError when it does not get ready to send, MissingError where it knows what lacks."""
        self._where = f"the {self._kind} source on {interface} of host {host.name}"
        self._host = host
        self._process = host.spawn(self._command(interface, cpus))
        assert self._process.stdout
        self._replies = Lines(self._process.stdout)
        try:
            self._require_ready(self.open_limit_s if host.shares_files else max(self.open_limit_s, _ELSEWHERE_S))
        except BaseException:  # Ctrl-C too: the worker must not stay
            self.close()
            raise

    def identity(self) -> Identity:
        return Identity(self._kind)

    def prepare(self, traffic: Traffic) -> None:
        """Have the frames of the next trial built; TestbedError when the worker died or cannot send there."""
        self._request({"do": "prepare", "traffic": asdict(traffic)})
        self._require_ready(_PREPARE_S)

    def start(self, at_monotonic_ns: int) -> None:
        self._request({"do": "start", "at_monotonic_ns": at_monotonic_ns})

    def wait(self, timeout_s: float) -> Sent:
        """What was sent, once sending has ended; a worker that does not end in time is stopped, or killed.

        What went wrong is told by `error`, not raised. When the worker cannot tell any more what it
        sent, 0 frames stand for an unknown number.
        """
        process = self._opened
        try:
            try:
                reply = self._reply(timeout_s)
            except TimeoutError:
                self._request({"do": "stop"})
                reply = self._reply(_STOP_S)
            return self._sent(reply)
        except (TimeoutError, TestbedError) as error:
            process.kill()  # whatever it is doing, it is not to send on
            return Sent(0, 0, 0.0, None, None, 0, 0.0, str(error))

    def close(self) -> None:
        """Ask the worker to end by closing its stdin, then by SIGTERM, then by SIGKILL."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin
        assert process.stdout
        assert process.stderr
        with suppress(OSError):  # what a dead worker has not read
            process.stdin.close()
        for insist in (process.terminate, process.kill):
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                insist()
        process.wait()
        process.stdout.close()
        process.stderr.close()

    def _command(self, interface: str, cpus: Sequence[int]) -> list[str]:
        # numpy would start a thread on every CPU, and they spin: on the CPUs that send.
        words = interface, *self._arguments, *map(str, cpus)
        program = (
            module_command_on(self._host, self._module, *words) if self._host else module_command(self._module, *words)
        )
        return ["env", "OPENBLAS_NUM_THREADS=1", *program]

    @property
    def _opened(self) -> Process:
        if self._process is None:
            raise TestbedError(f"a source of kind {self._kind} is used before open() or after close(); open it first")
        return self._process

    def _request(self, message: Mapping[str, object]) -> None:
        stdin = self._opened.stdin
        assert stdin
        with suppress(OSError):  # a worker that is no longer there shows when its reply is read
            stdin.write(json.dumps(message) + "\n")
            stdin.flush()

    def _reply(self, timeout_s: float) -> Mapping[str, object]:
        """The next reply; TimeoutError if none comes in time, TestbedError if it died, talks nonsense or failed."""
        try:
            line = self._replies.take(timeout_s)
        except TimeoutError as error:
            raise TimeoutError(self._failure(f"did not answer within {timeout_s:g} s")) from error
        except EOFError as error:
            raise TestbedError(self._failure(f"died ({self._exit()})")) from error
        except ValueError as error:
            raise TestbedError(self._failure("answers without end")) from error
        try:
            reply = json.loads(line)
        except ValueError:
            reply = None
        if not isinstance(reply, dict):
            raise TestbedError(self._failure(f"wrote {line[:80]!r} where a JSON object was expected"))
        if "missing" in reply:
            raise MissingError(self._failure(f"cannot send: {reply['missing']}"))
        if "failed" in reply:
            raise TestbedError(self._failure(f"cannot send: {reply['failed']}"))
        return reply

    def _require_ready(self, timeout_s: float) -> None:
        try:
            reply = self._reply(timeout_s)
        except TimeoutError as error:
            raise TestbedError(str(error)) from error
        self.version = str(reply.get("version", self.version))
        if {**reply, "version": ""} != {"ready": True, "version": ""}:
            raise TestbedError(self._failure("gave an answer that makes no sense"))

    def _sent(self, reply: Mapping[str, object]) -> Sent:
        try:
            return Sent(**reply["sent"])  # type: ignore[arg-type]  # whatever it is, checked by calling
        except (KeyError, TypeError) as error:
            raise TestbedError(self._failure("does not say what it sent")) from error

    def _failure(self, what: str) -> str:
        """A message about the worker, with the last lines it wrote to its stderr."""
        stderr = self._opened.stderr
        assert stderr
        said = last_words(stderr, 3)
        return f"{self._where} {what}" + (f"; its stderr: {said}" if said else "")

    def _exit(self) -> str:
        try:
            code = self._opened.wait(_END_S)
        except subprocess.TimeoutExpired:
            return "its stdout is closed, but it still runs"
        return f"signal {-code}" if code < 0 else f"exit code {code}"
