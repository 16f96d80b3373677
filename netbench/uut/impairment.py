"""UUT `forwarder`: a process that forwards frame by frame and does a known mischief, so that the answer can be checked.

Frames are duplicated, reordered, delayed or mixed with foreign ones as `mischief` says. It is slow: some ten thousand
frames a second, and its own socket's drops are a hop.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import BaseModel

from netbench.errors import MissingError, TestbedError
from netbench.hosts.base import Host, Process
from netbench.hosts.lines import Lines, last_words
from netbench.model.entitlement import Entitlement
from netbench.model.pace import Pace
from netbench.model.paths import StreamPath
from netbench.model.points import INSIDE, HopReading, Hops
from netbench.uut import impairment_process
from netbench.uut.base import EVERYTHING, Reading, Workplace
from netbench.uut.forwarding import await_forwarding, inside_nics
from netbench.uut.impairments import Mischief

_ANSWER_S = 10.0
_END_S = 1.0


@dataclass(frozen=True, slots=True)
class Held:
    """How long a forwarder kept its frames, in ns, from the kernel's stamp at its ingress NIC to the end of sending."""

    least_ns: int
    median_ns: int
    most_ns: int


class Forwarder:
    """A process that forwards frame by frame and duplicates, reorders, delays or adds a known number of them."""

    Options: ClassVar[type[BaseModel]] = Mischief

    def __init__(self, options: Mischief) -> None:
        self._mischief = options
        self._processes: dict[str, _Conversation] = {}

    def check(self, paths: Sequence[StreamPath]) -> None:
        """UsageError for a stream without ingress and egress NICs."""
        for path in paths:
            inside_nics(path)

    def needs(self) -> frozenset[str]:
        """Packet sockets."""
        return frozenset({"packet"})

    @property
    def has_own_kernel(self) -> bool:
        """It is a process of its machine."""
        return False

    @property
    def load_needs(self) -> frozenset[str] | None:
        """None: it is there to be measured alone."""
        return None

    def commands(
        self, paths: Sequence[StreamPath], name: str = "NAME", entitlement: Entitlement = EVERYTHING
    ) -> list[str]:
        """The processes."""
        return [shlex.join(self._command(path)) for path in paths]

    def provision(self, workplace: Workplace) -> None:
        """Start the processes; MissingError in a VM, which has not netbench's Python."""
        for path in workplace.paths:
            host = workplace.hosts[inside_nics(path)[0].host]
            if not host.shares_files:
                raise MissingError(f"host {host.name} is not this machine, and a forwarder runs only here")
            self._processes[path.name] = _Conversation(host, self._command(path))
        await_forwarding(workplace.kernel, [nic.place for path in workplace.paths for nic in inside_nics(path)])

    @property
    def pace(self) -> Pace:
        """Python starts."""
        return Pace(bring_up_s=0.5)

    @property
    def patience_s(self) -> float:
        """As long as it holds frames, and what waits in its socket."""
        return 0.1 + self._mischief.delay

    def ready(self) -> None:
        """Return once every process has opened its sockets."""
        for process in self._processes.values():
            process.answer()

    def hops(self) -> Hops:
        """Nothing beside its NICs: it takes the frames off one and puts them on the other."""
        return Hops()

    def next_hop_mac(self, path: StreamPath) -> str:
        """The sink's: its kernel takes no interest in the frames then."""
        return path.sink.mac

    def reset(self) -> None:
        """Count from the first frame on."""
        for process in self._processes.values():
            process.ask("reset")

    def cpu_s(self) -> Mapping[str, float]:
        """Nobody counts it."""
        return {}

    def read(self) -> Reading:
        """What each process took, sent and lost."""
        hops = []
        for stream, process in self._processes.items():
            did = process.ask("read")
            hops += [
                HopReading(stream, INSIDE, "taken", "passed", did["taken"]),
                HopReading(stream, INSIDE, "socket full", "dropped", did["dropped"]),
                HopReading(stream, INSIDE, "sent", "passed", did["sent"]),
            ]
        return Reading(tuple(hops))

    def held(self, stream: str) -> Held | None:
        """How long the frames of a stream were kept since the last reset; None when there were none."""
        held = self._processes[stream].ask("read")["held_ns"]
        return Held(*held) if held else None

    def shell(self) -> None:
        """There is no way in."""

    def log(self) -> str:
        """It has no console."""
        return ""

    def facts(self) -> Mapping[str, str]:
        """None beside its options."""
        return {}

    def destroy(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.end()
        self._processes.clear()

    def _command(self, path: StreamPath) -> list[str]:
        ingress, egress = inside_nics(path)
        mischief = self._mischief.model_dump_json(exclude_none=True)
        return [sys.executable, "-m", impairment_process.__name__, ingress.interface, egress.interface, mischief]


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
        with suppress(OSError):  # it has ended already
            self._stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stdout.close()
        self._stderr.close()
