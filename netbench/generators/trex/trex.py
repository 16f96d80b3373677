"""Generator and sink `trex`: ports of a TRex server."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar

from pydantic import TypeAdapter

from netbench.errors import TestbedError
from netbench.generators.base import Generator, Source
from netbench.generators.trex.trex_counts import FlowCounts
from netbench.generators.trex.trex_package import (
    BEGINS_LATER_S,
    LARGEST_FRAME,
    MOST_VALUES,
    PACKAGE,
    REMEDY,
    installed_client,
    newer,
    no_client,
)
from netbench.generators.trex.trex_servers import TrexOptions, TrexServer, TrexServers
from netbench.generators.worker_source import no_netbench, wait_for_end
from netbench.hosts.base import Host, run_checked
from netbench.linux.requirements import Facility
from netbench.model.documents import plain
from netbench.model.packet import Packet
from netbench.model.received import OfSize, Received
from netbench.model.tester import Identity
from netbench.model.traffic import Sent, Stamps, Traffic, traffic_data
from netbench.packets.build import build_template, covered_payload
from netbench.sinks.base import Incoming, Sink, SinkKind

SINK_NAME = "TRex"


class _ServerUser:
    """What source and sink share: one port of a running server, or of one that netbench starts."""

    _receives: ClassVar[bool]

    def __init__(self, options: TrexOptions, servers: TrexServers) -> None:
        self._options, self._servers = options, servers
        self._server: TrexServer | None = None

    def open(self, host: Host, interface: str, cpus: Sequence[int]) -> None:
        """Acquire the port of this interface; errors as in TrexServers.join."""
        self._interface = interface
        self._server = self._servers.join(self, host, interface, cpus, receives=self._receives)

    def identity(self) -> Identity:
        """Return the identity with the versions of server and client, and the chosen options."""
        client = "" if no_client() else f"{PACKAGE} {version(PACKAGE)}"
        versions = ", ".join(text for text in (self._server.version if self._server else "", client) if text)
        options = {name: str(value) for name, value in plain(self._options, exclude_unset=True).items()}
        if self._receives:
            return Identity("trex", versions, options, cpus=())
        return Identity("trex", versions, options, threads=1)

    def close(self) -> None:
        """Give the port back; harmless when called twice."""
        server, self._server = self._server, None
        if server is not None:
            server.leave(self)

    @property
    def _opened(self) -> TrexServer:
        if self._server is None:
            kind = "sink" if self._receives else "source"
            raise TestbedError(f"a {kind} of kind trex is used before open() or after close(); open it first")
        return self._server


class TrexSource(_ServerUser, Source):
    """A source at one port.

    TRex's field engine numbers the frames. It cannot write times, so frames have none, and delay is unavailable."""

    _receives = False
    _started = 0  # the number of the request whose reply reports what was sent

    def commands(self, interface: str, cpus: Sequence[int]) -> list[str]:
        self._servers.require_port(interface)
        if self._options.path is not None and self._servers.has_sinks:
            return [f"# {interface}: a port of the TRex server that its host has for all sources and sinks"]
        return self._servers.commands({interface: False}, cpus)

    def remarks(self) -> list[str]:
        return [
            "Lateness, unevenness and delay are unknown, because TRex reports no times of single frames. The duration "
            "of sending is accurate to 20 ms, and less on a busy machine."
        ]

    def stamps(self, traffic: Traffic) -> Stamps:
        return Stamps(stamped=False, first_sequence=None if self._delay_fps else 0)

    def prepare(self, traffic: Traffic) -> None:
        """Load the streams of the next trial; TestbedError when the worker died or cannot send there."""
        template = build_template(traffic).to_json()
        more = {"traffic": traffic_data(traffic), "template": template, "delay_fps": self._delay_fps}
        self._opened.ask("prepare", self._interface, **more)

    @property
    def start_ahead_ns(self) -> int:
        return super().start_ahead_ns + round(BEGINS_LATER_S * 1e9)

    def start(self, at_monotonic_ns: int) -> None:
        self._started = self._opened.send("start", self._interface, at_monotonic_ns=at_monotonic_ns)

    def wait(self, timeout_s: float) -> Sent:
        server = self._opened
        reply, stop = partial(server.reply, self._started), partial(server.send, "stop", self._interface)
        return wait_for_end(server.worker(), reply, stop, timeout_s)

    @property
    def _delay_fps(self) -> float:
        return self._options.delay_fps if self._servers.has_sinks else 0.0


class TrexSink(_ServerUser, Sink):
    """A sink at one port of a server, which distinguishes streams by their groups, but not frames of one stream."""

    _receives = True
    _counts: FlowCounts | None = None
    _failed = ""

    def commands(self, interface: str, cpus: Sequence[int], incoming: Incoming) -> list[str]:
        self._servers.require_port(interface)
        if self._options.path is None:
            return [f"# port {self._options.ports[interface]} of the TRex server that the sources have"]
        return self._servers.commands({incoming.path.source.interface: False, interface: True}, cpus)

    def remarks(self) -> list[str]:
        remarks = [
            "Duplicates, reordering, runs of loss and frames of an earlier trial are unknown, because TRex does not "
            "distinguish frames of a stream. A duplicate hides a loss."
        ]
        if self._options.delay_fps:
            remarks.append(
                "Delay is coarse, because TRex measures it in software, for some frames, and includes the wait until "
                "it polls the receive queue. It is reported separately from the delay in captures."
            )
        return remarks

    def arm(self, incoming: Incoming) -> None:
        self._incoming, self._counts, self._failed = incoming, None, ""
        self._request("listen")

    def armed(self, timeout_s: float) -> bool:
        return not self._failed

    def stop(self, limit_s: float) -> None:
        """Read the counts of the server; later frames are not counted."""
        if self._failed:
            return
        if reply := self._request("received", of=self._incoming.path.source.interface):
            self._counts = TypeAdapter(FlowCounts).validate_python(reply["received"])

    def received(self, sent: Sent) -> Received:
        unknown = Received(counted_by=SINK_NAME, no_delay="TRex measures it in its own software only, which is coarse")
        counts, is_mix = self._counts, self._incoming.traffic.frame_size.is_mix
        if counts is None:
            return replace(unknown, error=self._failed or "the counts of TRex were not read")
        if sent.error and not sent.frames:
            return replace(unknown, error=f"the number of sent frames is unknown ({sent.error})")
        if counts.frames > sent.frames:
            return replace(
                unknown,
                error=f"the loss is unknown: TRex counted {counts.frames:,} of {sent.frames:,} sent frames, because "
                "frames were duplicated or a link was down before; sink: tcpdump counts duplicates",
                matched=counts.frames,
            )
        if counts.missed < 0:
            return replace(unknown, error="the loss is unknown: TRex's counter of receive errors went backwards")
        return replace(
            unknown,
            frames=counts.frames,
            matched=counts.frames,
            dropped=counts.missed,
            by_size={size: OfSize(frames, None) for size, frames in counts.by_size.items()} if is_mix else {},
            software_delay=counts.delay,
        )

    def _request(self, action: str, **more: object) -> Mapping[str, Any]:
        """Return the server's reply; empty after a failure, which received() reports."""
        server = self._opened
        try:
            return server.ask(action, self._interface, **more)
        except TestbedError as error:
            self._failed = str(error)
            return {}


class Trex(Generator, SinkKind):
    """A TRex server (stateless), by the packaged client lbr-trex-client: NICs that TRex owns, or veth.

    As a sink it counts only frames of TRex sources."""

    Options: ClassVar[type[TrexOptions]] = TrexOptions
    sends_mixes: ClassVar[bool] = True
    sends_packets: ClassVar[bool] = True
    counts_mixes: ClassVar[bool] = True
    counts_own_only: ClassVar[bool] = True
    may_need = (Facility("trex-client", "the generator trex: the client of TRex", REMEDY, installed_client),)

    def __init__(self, options: TrexOptions) -> None:
        self._options = options
        self._servers = TrexServers(options)

    def unsupported_part(self, packet: Packet) -> str:
        if field := covered_payload(packet):
            return f"{field}: it covers the frame's number, and the field engine of TRex does not compensate for that"
        if packet.flows > MOST_VALUES:
            fields = ", ".join(str(varying.ref) for varying in packet.vary)
            return f"{fields}: {packet.flows:,} flows; the field engine of TRex has room for {MOST_VALUES:,}"
        return ""

    @property
    def largest_frame(self) -> int | None:
        """The largest frame in bytes with FCS: limited only for a server that netbench starts."""
        return None if self._options.path is None else LARGEST_FRAME

    def unsupported_reason(self, host: Host) -> str:
        if (missing := no_client() or no_netbench(host)) or host.shares_files:
            return missing
        # This machine's client is copied to that host.
        version = run_checked(host, ["python3", "-I", "-c", "import sys; print(*sys.version_info[:2])"])
        return newer(tuple(map(int, version.split())))

    def source(self) -> TrexSource:
        return TrexSource(self._options, self._servers)

    def sink(self) -> TrexSink:
        self._servers.has_sinks = True
        return TrexSink(self._options, self._servers)
