"""UUT `forwarder`: a process that forwards and impairs frame by frame in a known way, so that answers can be checked.

Frames are duplicated, reordered, delayed or mixed with foreign ones. It is slow: about ten thousand frames/s, and the
drops of its own socket are counted.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pydantic import BaseModel

from netbench.model.documents import plain_text
from netbench.model.paths import StreamPath, inside_nics
from netbench.model.points import UUT, CounterReading
from netbench.model.virtualisation import DurationEstimate, Supports
from netbench.uut import forwarder_process
from netbench.uut.base import Assignment, Reading, Ready, Site, Step, UnitUnderTest, UutPlan
from netbench.uut.forwarder_process import Impairments
from netbench.uut.forwarding import ForwardingProcess, StartProcess, await_forwarding, require_way_back


@dataclass(frozen=True, slots=True)
class ForwarderDelays:
    """How long frames were kept, in ns, from the kernel's time stamp at the ingress NIC to the end of sending."""

    least_ns: int
    median_ns: int
    most_ns: int


class ForwarderOptions(Impairments, frozen=True):
    """The impairments of frames; `reverse`, if given, replaces them for reverse streams."""

    reverse: Impairments | None = None
    """Impairments of reverse streams instead."""

    def on(self, path: StreamPath) -> Impairments:
        """Return the impairments of a stream's frames."""
        own = {name: getattr(self, name) for name in Impairments.model_fields}
        return self.reverse if self.reverse and path.reverse_of else Impairments(**own)


class Forwarder(UnitUnderTest):
    """A process that forwards frame by frame and duplicates, reorders, delays or adds a known number of them."""

    Options: ClassVar[type[BaseModel]] = ForwarderOptions
    supports = Supports(counters=("NICs", "itself"))

    def __init__(self, options: ForwarderOptions) -> None:
        self._options = options
        self._processes: dict[str, ForwardingProcess] = {}

    def check(self, paths: Sequence[StreamPath]) -> None:
        for path in paths:
            inside_nics(path)
        require_way_back("reverse", self._options.reverse, paths)

    def plan(self, assignment: Assignment) -> UutPlan:
        started = tuple(self._start(path) for path in assignment.paths)
        return UutPlan(started, frozenset({"packet"}), pace=DurationEstimate(bring_up_s=0.5))  # Python starts

    def take(self, step: Step, site: Site) -> None:
        """Start a process; MissingError on a host without netbench."""
        assert isinstance(step, StartProcess)
        self._processes[step.name] = ForwardingProcess(site.hosts[step.host], step)

    def ready(self) -> Ready:
        """Return once every process has opened its sockets."""
        paths = self.site.paths
        await_forwarding(self.site.machine, [nic.place for path in paths for nic in inside_nics(path)])
        for process in self._processes.values():
            process.answer()
        # The frames are addressed to the sink, so this host's kernel ignores them. Some wait in the process's socket.
        delay_s = max((self._options.on(path).delay for path in paths), default=0.0)
        return Ready({path.name: path.sink.mac for path in paths}, quiet_time_s=0.1 + delay_s)

    def reset(self) -> None:
        """Restart counting at the next frame."""
        for process in self._processes.values():
            process.ask("reset")

    def read(self) -> Reading:
        """Return the frames that each process received, sent and lost."""
        counted = []
        for stream, process in self._processes.items():
            did = process.ask("read")
            counted += [
                CounterReading(stream, UUT, "taken", "passed", did["taken"]),
                CounterReading(stream, UUT, "socket full", "dropped", did["dropped"]),
                CounterReading(stream, UUT, "sent", "passed", did["sent"]),
            ]
        return Reading(tuple(counted))

    def held(self, stream: str) -> ForwarderDelays | None:
        """Return how long frames of a stream were kept since the last reset; None without frames."""
        held = self._processes[stream].ask("read")["held_ns"]
        return ForwarderDelays(*held) if held else None

    def destroy(self) -> None:
        """End the processes."""
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        super().destroy()

    def _start(self, path: StreamPath) -> StartProcess:
        ingress, egress = inside_nics(path)
        impairments = plain_text(self._options.on(path), exclude_none=True)
        arguments = ingress.interface, egress.interface, impairments
        return StartProcess(path.name, ingress.host, forwarder_process.__name__, arguments)
