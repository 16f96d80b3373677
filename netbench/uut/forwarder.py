"""UUT `forwarder`: a process that forwards and impairs frame by frame in a known way, so that answers can be checked.

Frames are duplicated, reordered, delayed or mixed with foreign ones. It is slow: some ten thousand
frames a second, and its own socket's drops are counted.
"""

import json
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.lines import Lines, end, last_words
from netbench.hosts.python_modules import module_command
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import UUT, CounterReading
from netbench.uut import forwarder_process
from netbench.uut.base import Assignment, Reading, Ready, Site, Step, UnitUnderTest, UutPlan
from netbench.uut.forwarding import await_forwarding, inside_nics
from netbench.uut.impairments import Impairments

_ANSWER_S = 10.0
_END_S = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """How long frames were kept, in ns, from the kernel's stamp at the ingress NIC to the end of sending."""

    least_ns: int
    median_ns: int
    most_ns: int


@dataclass(frozen=True, slots=True)
class StartProcess:
    """The process of one stream."""

    path: StreamPath
    argv: tuple[str, ...]

    @property
    def command(self) -> str:
        return shlex.join(self.argv)


class Forwarder(UnitUnderTest):
    """A process that forwards frame by frame and duplicates, reorders, delays or adds a known number of them."""

    Options: ClassVar[type[BaseModel]] = Impairments

    def __init__(self, options: Impairments) -> None:
        self._impairments = options
        self._processes: dict[str, _Conversation] = {}

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            inside_nics(path)

    def plan(self, assignment: Assignment) -> UutPlan:
        started = tuple(self._start(path) for path in assignment.paths)
        return UutPlan(started, frozenset({"packet"}), pace=Pace(bring_up_s=0.5))  # Python starts

    def take(self, step: Step, site: Site) -> None:
        """Start a process; MissingError in a VM, which has not netbench's Python."""
        assert isinstance(step, StartProcess)
        host = site.hosts[inside_nics(step.path)[0].host]
        if not host.shares_files:
            raise MissingError(f"host {host.name} is not this machine, and a forwarder runs only here")
        self._processes[step.path.name] = _Conversation(host, step.argv)

    def ready(self) -> Ready:
        """Return once every process has opened its sockets."""
        paths = self.site.paths
        await_forwarding(self.site.machine, [nic.place for path in paths for nic in inside_nics(path)])
        for process in self._processes.values():
            process.answer()
        # Addressed to the sink, the frames are of no interest to its kernel. Some wait in its socket.
        return Ready({path.name: path.sink.mac for path in paths}, quiet_time_s=0.1 + self._impairments.delay)

    def reset(self) -> None:
        """Count from the first frame on."""
        for process in self._processes.values():
            process.ask("reset")

    def read(self) -> Reading:
        """What each process took, sent and lost."""
        counted = []
        for stream, process in self._processes.items():
            did = process.ask("read")
            counted += [
                CounterReading(stream, UUT, "taken", "passed", did["taken"]),
                CounterReading(stream, UUT, "socket full", "dropped", did["dropped"]),
                CounterReading(stream, UUT, "sent", "passed", did["sent"]),
            ]
        return Reading(tuple(counted))

    def held(self, stream: str) -> Held | None:
        """How long the frames of a stream were kept since the last reset; None when there were none."""
        held = self._processes[stream].ask("read")["held_ns"]
        return Held(*held) if held else None

    def destroy(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        super().destroy()

    def _start(self, path: StreamPath) -> StartProcess:
        ingress, egress = inside_nics(path)
        impairments = self._impairments.model_dump_json(exclude_none=True)
        program = module_command(forwarder_process.__name__, ingress.interface, egress.interface, impairments)
        return StartProcess(path, tuple(program))


class _Conversation:
    """One process, and the questions to it."""

    def __init__(self, host: Host, command: Sequence[str]) -> None:
        self._where = f"the forwarder of host {host.name}"
        process: Process = host.spawn(command)
        assert process.stdin
        assert process.stdout
        assert process.stderr
        self._process, self._stdin, self._stdout, self._stderr = process, process.stdin, process.stdout, process.stderr
        self._answers = Lines(self._stdout)

    def ask(self, request: str) -> Mapping[str, Any]:
        """The answer to `reset` or `read`; TestbedError when there is none."""
        with suppress(OSError):  # one that has ended shows when it does not answer
            self._stdin.write(request + "\n")
            self._stdin.flush()
        return self.answer()

    def answer(self) -> Mapping[str, Any]:
        """The next answer."""
        try:
            answer: Mapping[str, Any] = json.loads(self._answers.take(_ANSWER_S))
        except TimeoutError as error:
            raise TestbedError(f"{self._where} did not answer within {_ANSWER_S:g} s") from error
        except EOFError as error:
            raise TestbedError(f"{self._where} died: {last_words(self._stderr, 1) or 'no message'}") from error
        except ValueError as error:
            raise TestbedError(f"{self._where} gave an answer that makes no sense") from error
        return answer

    def end(self) -> None:
        """End it: by closing its stdin, then by SIGKILL."""
        end(self._process, _END_S)
