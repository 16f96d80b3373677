"""Sink `auto`: the preferred kind up to the rate that it can count, else another one, as the kinds declare."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from pydantic import BaseModel

from netbench.config.plugins import SINKS, plugins
from netbench.errors import NetbenchError
from netbench.hosts.base import Host
from netbench.model.received import Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink, SinkKind


class AutoSinkOptions(BaseModel, extra="forbid"):
    """With `steady` all loads use the sink for the highest ones, so that a search has one sink throughout."""

    steady: bool = False
    """Use the sink of the highest loads for all loads. Searches set it."""


class AutoSinkKind(SinkKind):
    """tcpdump for loads that it can capture, bpf above them if it works; chosen anew in every trial."""

    Options: ClassVar[type[BaseModel]] = AutoSinkOptions
    needs = frozenset({"tcpdump"})
    counts_mixes: ClassVar[bool] = True
    counts_packets: ClassVar[bool] = True

    def __init__(self, options: AutoSinkOptions | None = None) -> None:
        self._steady = options is not None and options.steady
        kinds: dict[str, type[SinkKind]] = {name: kind for name, kind in plugins(SINKS).items() if kind.auto_sink}
        ranked = sorted(kinds, key=lambda name: _rank(kinds[name]), reverse=True)
        self._kinds = {name: kinds[name](kinds[name].Options()) for name in ranked}

    def sink(self) -> "AutoSink":
        return AutoSink(self._kinds, steady=self._steady)


class AutoSink(Sink):
    """One of several sinks, chosen by the load of a trial; its identity contains the reason."""

    def __init__(self, kinds: Mapping[str, SinkKind], *, steady: bool = False) -> None:
        """`kinds` are in the order of preference; the first must work."""
        self._steady = steady
        self._kinds = kinds
        self._sinks = {name: kind.sink() for name, kind in kinds.items()}
        self._preferred = next(iter(kinds))
        self._failures: dict[str, str] = {}
        self._chosen = self._reason = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        """Return the commands of the sink that is chosen for such a trial, if all kinds work there."""
        return self._sinks[self._choice(incoming)[0]].commands(interface, cpus, incoming)

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Open the preferred sink, and determine which others work."""
        self._failures = {}
        for name, sink in self._sinks.items():
            if name == self._preferred:
                sink.open(host, interface, cpus)
                continue
            if reason := self._kinds[name].unsupported_reason(host):
                self._failures[name] = reason
                continue
            try:
                sink.open(host, interface, cpus)
            except NetbenchError as error:
                self._failures[name] = str(error)
            sink.rest()  # until a trial needs it

    def identity(self) -> Identity:
        if not self._chosen:
            *_, highest = self._kinds
            by_load = f"{', or '.join(self._kinds)} above its rate"
            return Identity(f"{highest}, if it works" if self._steady else by_load)
        identity = self._sinks[self._chosen].identity()
        return replace(identity, options={**(identity.options or {}), "auto": self._reason})

    def remarks(self) -> list[str]:
        effect = f"{self._preferred} receives at all loads, also above its rate"
        return [f"{effect}: {failure}" for failure in self._failures.values()]

    def writes(self, incoming: Incoming) -> int:
        return self._sinks[self._choice(incoming)[0]].writes(incoming)

    def arm(self, incoming: Incoming) -> None:
        self._chosen, self._reason = self._choice(incoming)
        for name, sink in self._sinks.items():
            # Otherwise tcpdump copies each frame, and with bpf at a veth's driver frames pass a ring before tcpdump.
            if name != self._chosen:
                sink.rest()
        self._armed.arm(incoming)

    def prime_fdb(self, frames: Sequence[bytes]) -> None:
        self._armed.prime_fdb(frames)

    def armed(self, timeout_s: float) -> bool:
        return self._armed.armed(timeout_s)

    def processes(self) -> Sequence[int]:
        return self._armed.processes()

    def stop(self, limit_s: float) -> None:
        self._armed.stop(limit_s)

    def received(self, sent: Sent) -> Received:
        return self._armed.received(sent)

    def close(self) -> None:
        for sink in self._sinks.values():
            sink.close()

    @property
    def _armed(self) -> Sink:
        return self._sinks[self._chosen or self._preferred]

    def _choice(self, incoming: Incoming) -> tuple[str, str]:
        """Return the name of the sink for a trial, and the reason."""
        traffic, reasons = incoming.traffic, dict(self._failures)
        if traffic.frame_size.is_mix:
            unable = (name for name, kind in self._kinds.items() if not kind.counts_mixes)
            reasons |= {name: f"{name} does not count frames of a mix by their sizes" for name in unable}
        working, failures = [name for name in self._kinds if name not in reasons], ", and ".join(reasons.values())
        preferred = next(iter(working), self._preferred)
        unlimited = [name for name in working if self._limit_fps(name, incoming) is None]
        if self._steady:
            return (unlimited[0], "steady: one sink for all loads") if unlimited else (preferred, failures)
        limit_fps = self._limit_fps(preferred, incoming) or 0
        source = "is trusted with" if incoming.tcpdump_fps is None else "captured in the self-test"
        bound = f"the {limit_fps:,.0f} frames/s that {preferred} {source}"
        if traffic.fps is not None and traffic.fps <= limit_fps:
            return preferred, f"within {bound}"
        if unlimited:
            return unlimited[0], f"above {bound}"
        return preferred, f"above {bound}, but {failures}"

    def _limit_fps(self, name: str, incoming: Incoming) -> float | None:
        """Return the highest rate that a sink of this kind can count in this trial, in frames/s; None: any."""
        preference = self._kinds[name].auto_sink
        if preference is None or preference.trusted_fps is None:
            return None
        return preference.trusted_fps / incoming.sinks if incoming.tcpdump_fps is None else incoming.tcpdump_fps


def _rank(kind: type[SinkKind]) -> int:
    return kind.auto_sink.rank if kind.auto_sink else 0
