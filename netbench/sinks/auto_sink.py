"""Sink `auto`: tcpdump up to the rate it can capture, bpf above it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from netbench.errors import NetbenchError
from netbench.hosts.base import Host
from netbench.model.frame_mix import FrameMix
from netbench.model.profile import NoOptions
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink, SinkKind
from netbench.sinks.bpf import Bpf, BpfOptions
from netbench.sinks.bpf_counting import NAME
from netbench.sinks.tcpdump import Tcpdump

# The rate that all tcpdumps of a trial together can be trusted to capture without a self-test, in frames/s: half of
# their measured rate on two CPUs that ran everything else as well.
TRUSTED_FPS = 300_000


class AutoSinkOptions(BaseModel, extra="forbid"):
    """With `steady` all loads use the sink for the highest ones, so that a search has one sink throughout."""

    steady: bool = False
    """Use the sink of the highest loads for all loads. Searches set it."""


class AutoSinkKind(SinkKind):
    """tcpdump for loads that it can capture, bpf above them if it works; chosen anew in every trial."""

    Options: ClassVar[type[BaseModel]] = AutoSinkOptions
    needs = Tcpdump.needs
    counts_mixes: ClassVar[bool] = True  # tcpdump does

    def __init__(self, options: AutoSinkOptions | None = None) -> None:
        self._steady = options is not None and options.steady
        self._tcpdump, self._bpf = Tcpdump(NoOptions()), Bpf(BpfOptions())

    def sink(self) -> "AutoSink":
        return AutoSink(self._tcpdump.sink(), self._bpf, steady=self._steady)


class AutoSink(Sink):
    """Either of two sinks, chosen by the load of a trial; its identity contains the reason."""

    def __init__(self, tcpdump: Sink, bpf: Bpf, *, steady: bool = False) -> None:
        self._steady = steady
        self._tcpdump, self._bpf = tcpdump, bpf.sink()
        self._kind = bpf
        self._chosen: Sink | None = None
        self._why = self._no_bpf = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        """Return the commands of the sink that is chosen for such a trial, if bpf works there."""
        return self._taken(incoming)[0].commands(interface, cpus, incoming)

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Prepare tcpdump, and determine whether bpf works."""
        self._tcpdump.open(host, interface, cpus)
        self._no_bpf = self._kind.unfit(host)
        if not self._no_bpf:
            try:
                self._bpf.open(host, interface, cpus)
            except NetbenchError as error:
                self._no_bpf = str(error)
            self._bpf.rest()  # until a trial needs it

    def identity(self) -> Identity:
        if self._chosen is None:
            return Identity(f"tcpdump, or {NAME} above what that holds")
        identity = self._chosen.identity()
        return replace(identity, options={**(identity.options or {}), "auto": self._why})

    def remarks(self) -> list[str]:
        return [f"tcpdump receives at all loads, also above what it holds: {self._no_bpf}"] if self._no_bpf else []

    def writes(self, incoming: Incoming) -> int:
        return self._taken(incoming)[0].writes(incoming)

    def arm(self, incoming: Incoming) -> None:
        self._chosen, self._why = self._taken(incoming)
        if self._chosen is self._bpf:
            self._tcpdump.rest()  # otherwise it copies each frame
        else:
            self._bpf.rest()  # otherwise, at a veth's driver, frames pass a ring before tcpdump captures them
        self._chosen.arm(incoming)

    def learn(self, mac: str) -> None:
        self._armed_one.learn(mac)

    def armed(self, timeout_s: float) -> bool:
        return self._armed_one.armed(timeout_s)

    def processes(self) -> Sequence[int]:
        return self._armed_one.processes()

    def stop(self, limit_s: float) -> None:
        self._armed_one.stop(limit_s)

    def received(self, sent: Sent) -> Received:
        return self._armed_one.received(sent)

    def close(self) -> None:
        self._tcpdump.close()
        self._bpf.close()

    @property
    def _armed_one(self) -> Sink:
        return self._chosen or self._tcpdump

    def _taken(self, incoming: Incoming) -> tuple[Sink, str]:
        """Return the sink for a trial, and the reason."""
        if isinstance(incoming.traffic.frame_size, FrameMix):
            return self._tcpdump, f"{NAME} does not count frames of a mix by their sizes"
        if self._steady:
            return (self._tcpdump, self._no_bpf) if self._no_bpf else (self._bpf, "steady: one sink for all loads")
        fps, held = incoming.traffic.fps, incoming.tcpdump_fps
        limit = TRUSTED_FPS / incoming.sinks if held is None else held
        bound = f"the {limit:,.0f} frames/s that tcpdump " + (
            "is trusted with" if held is None else "held in the self-test"
        )
        if fps is not None and fps <= limit:
            return self._tcpdump, f"within {bound}"
        if self._no_bpf:
            return self._tcpdump, f"above {bound}, but {self._no_bpf}"
        return self._bpf, f"above {bound}"
