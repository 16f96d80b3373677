"""A sink of kind trex: the counts of a TRex server at one of its ports, of frames from another of its ports."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from netbench.errors import TestbedError
from netbench.generators.trex.flow_counts import FlowCounts, flow_counts_of
from netbench.generators.trex.trex_options import TrexOptions
from netbench.generators.trex.trex_servers import TrexServer, TrexServers
from netbench.generators.trex.trex_source import identity_of
from netbench.hosts.base import Host
from netbench.model.frame_mix import FrameMix
from netbench.model.received import OfSize, Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent
from netbench.sinks.base import Incoming, Sink

NAME = "TRex"


class TrexSink(Sink):
    """One port of a server, which distinguishes streams by their group numbers, but not frames of one stream."""

    def __init__(self, options: TrexOptions, servers: TrexServers) -> None:
        self._options, self._servers = options, servers
        self._server: TrexServer | None = None
        self._counts: FlowCounts | None = None
        self._failed = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        self._servers.require_sense(interface)
        if self._options.path is None:
            return [f"# port {self._options.ports[interface]} of the TRex server that the sources have"]
        return self._servers.commands({incoming.path.source.interface: False, interface: True}, cpus)

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Acquire the port of this interface; errors as in TrexServers.join."""
        self._interface = interface
        self._server = self._servers.join(self, host, interface, cpus, receives=True)

    def identity(self) -> Identity:
        return replace(identity_of(self._options, self._server), threads=None, cpus=())

    def remarks(self) -> list[str]:
        remarks = [
            "TRex counts what arrives of a stream, and knows no frame from another: duplicates, reordering, runs of "
            "loss and frames of an earlier trial are unknown, and a duplicate makes up for a loss"
        ]
        if self._options.delay_fps:
            remarks.append(
                "TRex measures delay by its own software, of some frames of its own: coarse, as it includes how long "
                "that took to look at what had arrived; it is told apart from delay that captures tell"
            )
        return remarks

    def arm(self, incoming: Incoming) -> None:
        self._incoming, self._counts, self._failed = incoming, None, ""
        self._ask("listen")

    def armed(self, timeout_s: float) -> bool:
        return not self._failed

    def stop(self, limit_s: float) -> None:
        """Read the counts of the server; later frames are not counted."""
        if self._failed:
            return
        if reply := self._ask("received", of=self._incoming.path.source.interface):
            self._counts = flow_counts_of(reply["received"])

    def received(self, sent: Sent) -> Received:
        known = Received(counted_by=NAME, no_delay="TRex measures it in its own software only, which is coarse")
        if self._counts is None:
            return replace(known, error=self._failed or "TRex was not asked what it has counted")
        counts, is_mix = self._counts, isinstance(self._incoming.traffic.frame_size, FrameMix)
        if sent.error and not sent.frames:
            return replace(known, error=f"what was sent is not known ({sent.error})")
        if counts.frames > sent.frames:
            return replace(
                known,
                error=f"TRex counted {counts.frames:,} frames of {sent.frames:,} that were sent, as after a link that "
                "was down, or where frames are duplicated: what was lost is not known; sink: tcpdump tells duplicates",
                matched=counts.frames,
            )
        if counts.missed < 0:
            return replace(known, error="TRex's counters of what it could not take in went backwards")
        return replace(
            known,
            frames=counts.frames,
            matched=counts.frames,
            dropped=counts.missed,
            by_size={size: OfSize(frames, None) for size, frames in counts.by_size.items()} if is_mix else {},
            software_delay=counts.delay,
        )

    def close(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            server.leave(self)

    def _ask(self, what: str, **more: object) -> Mapping[str, Any]:
        """Return the server's reply; empty after a failure, which received() reports."""
        if self._server is None:
            raise TestbedError("a sink of kind trex is used before open() or after close(); open it first")
        try:
            return self._server.ask(what, self._interface, **more)
        except TestbedError as error:
            self._failed = str(error)
            return {}
