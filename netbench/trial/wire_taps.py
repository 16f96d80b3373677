"""The wire as witness: taps beside client and guest capture flows, and their figures are compared with the tool's."""

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from netbench.capture.distribution import Distribution
from netbench.capture.exchanges import read_exchanges
from netbench.capture.tcp_connections import read_connections
from netbench.capture.udp_sessions import read_datagrams
from netbench.errors import TestbedError, UsageError
from netbench.hosts.base import Host, Process
from netbench.hosts.host_wrappers import confined
from netbench.hosts.pipes import Lines, end
from netbench.hosts.remote_code import output_path
from netbench.model.flow_result import CLIENT, HOST, OUTSIDE, SERVERS, FlowResult, Latencies, WireFigures, times_of_kind
from netbench.model.flow_witness import (
    BYTES_TOLERANCE,
    UNKNOWN_NS,
    Connections,
    FlowFigures,
    WireTraffic,
    disagreement,
    rank_shift,
)
from netbench.model.foreign_text import decoded
from netbench.statistics.flow_figures import PERCENTILES, has_enough
from netbench.tools.base import FlowEnds, WireView
from netbench.trial.followed_connections import connection_filter, likely_range_ns

_SNAP_BYTES = 128  # headers of IPv6 and TCP with all options, and the first bytes of a tool's message
_RING_KIB = 32 * 1024
_LISTENING = b"listening on"
_ARM_S, _STOP_S, _LAST_WORDS = 10.0, 30.0, 300
# tcpdump receives blocks of frames. The kernel hands over one that is not full after 1 s (tpacket(7), libpcap's
# timeout as tcpdump sets it); the frames in it would be lost before.
BLOCK_S = 1.1
_DROPPED = re.compile(r"^(\d+) packets? dropped by (kernel|interface)$", re.M)


class FlowAddresses(NamedTuple):
    """The IP addresses of client and server as one link sees them: translation replaces the server's."""

    client: str
    server: str


@dataclass(slots=True)
class WireTap:
    """A capture of one stream's flows on one interface; `place` is CLIENT, or one of SERVERS.

    It runs on the CPUs `cpus`; empty: any. It follows one of `one_of` connections. The capture is copied to `target` on
    this machine, and removed once it was read, unless `keep`.
    """

    place: str
    host: Host
    interface: str
    addresses: FlowAddresses
    ends: FlowEnds
    target: Path
    keep: bool = False
    cpus: tuple[int, ...] = ()
    one_of: int = 1
    process: Process | None = None
    errors: str = ""
    dropped: int | None = None
    listening: bool = field(default=False)

    @property
    def path(self) -> str:
        """The file of the capture on its host."""
        return str(output_path(self.host, self.target))

    def command(self) -> list[str]:
        """Return the command that captures."""
        options = ["-n", "-p", "-Z", "root", "-s", str(_SNAP_BYTES), "-B", str(_RING_KIB)]
        options += ["--time-stamp-precision=nano", "-w", self.path]
        pair = f"host {self.addresses.client} and host {self.addresses.server} and not arp"
        if self.one_of > 1:
            pair = f"{pair} and {connection_filter(self.addresses.client, self.one_of)}"
        return confined(["tcpdump", "-i", self.interface, *options, pair], self.cpus, "")

    def start(self) -> None:
        """Start to capture; TestbedError if that fails."""
        self.process = self.host.spawn(self.command())
        assert self.process.stderr is not None, "processes of hosts have pipes"
        lines = Lines(self.process.stderr)
        try:
            while _LISTENING not in (line := lines.take(_ARM_S)):
                self.errors += f"{decoded(line)} "
        except (EOFError, TimeoutError, ValueError) as error:
            self.abort()
            raise TestbedError(
                f"the tap on {self.interface} of {self.host} does not capture: {self.errors or error}"
            ) from error

    def stop(self) -> None:
        """Stop, and fetch the capture; harmless when it does not run. TestbedError if there is none.

        The flows must have ended BLOCK_S seconds ago.
        """
        process, self.process = self.process, None
        if process is None:
            return
        if process.poll() is not None:
            words = end(process).strip()
            raise TestbedError(
                f"the tap on {self.interface} of {self.host} ended during the trial, with exit code "
                f"{process.returncode}: {words[-_LAST_WORDS:] or 'it printed nothing'}"
            )
        process.terminate()
        try:
            words = process.communicate(timeout=_STOP_S)[1]
        except subprocess.TimeoutExpired as error:
            end(process)
            raise TestbedError(f"the tap on {self.interface} of {self.host} did not end in {_STOP_S:g} s") from error
        drops = [int(match[1]) for match in _DROPPED.finditer(words)]
        self.dropped = sum(drops) if drops else None
        if not self.host.shares_files:
            self.host.fetch(self.path, self.target)

    def abort(self) -> None:
        """End it without a result; harmless when it does not run."""
        process, self.process = self.process, None
        if process is not None:
            with suppress(TestbedError):
                end(process)
                self.remove()

    def remove(self) -> None:
        """Remove the capture, unless it is to be kept."""
        if not self.keep:
            self.target.unlink(missing_ok=True)
        if not self.host.shares_files:
            self.host.run(["rm", "-f", self.path])

    def figures(self, view: WireView, warm_up_s: float) -> WireFigures:
        """Return the figures of the capture, which must have stopped; with an error where it cannot be read.

        Times are those of requests that began `warm_up_s` seconds after the first one, or later, as a tool's are.
        """
        read = _read_udp if view.protocol == "udp" else _read_tcp
        try:
            return read(self, view, round((warm_up_s if view.warm_up_s is None else view.warm_up_s) * 1e9))
        except (UsageError, OSError) as error:
            return WireFigures(self.place, dropped_frames=self.dropped, error=str(error))


def _read_tcp(tap: WireTap, view: WireView, warm_up_ns: int) -> WireFigures:
    (client, server), ports = tap.addresses, [tap.ends.port]
    exchanges: Latencies | None = None
    if view.exchanges:
        found = read_exchanges(tap.target, client=client, server=server, ports=ports, message_bytes=view.message_bytes)
        began_ns, lasted_ns = found.exchanges.request_first_ns, found.exchanges.response_times_ns()
        is_measured = _measured(began_ns, warm_up_ns)[found.exchanges.is_complete]
        traffic, exchanges = found.traffic, latencies("exchange", lasted_ns[is_measured])
    else:
        traffic = read_connections(tap.target, client=client, server=server, ports=ports)
    connections, skipped = traffic.connections, view.control_connections
    handshakes = _handshakes(connections, skipped, warm_up_ns)
    figures = WireFigures(
        tap.place,
        frames=traffic.to_server.frames + traffic.to_client.frames,
        dropped_frames=tap.dropped,
        to_server_bytes=traffic.to_server.delivered_bytes - sum(connections.to_server_bytes[:skipped]),
        to_client_bytes=traffic.to_client.delivered_bytes - sum(connections.to_client_bytes[:skipped]),
        to_server_segments=traffic.to_server.segments,
        to_client_segments=traffic.to_client.segments,
        retransmissions=traffic.to_server.retransmissions + traffic.to_client.retransmissions,
        uncaptured_bytes=traffic.to_server.uncaptured_bytes + traffic.to_client.uncaptured_bytes,
        connections=_opened(traffic) - skipped,
        latencies=tuple(times for times in (exchanges, latencies("handshake", handshakes)) if times),
        began_ns=traffic.quality.first_ns,
        one_of=tap.one_of,
        error=traffic.quality.damage,
    )
    return figures if tap.one_of == 1 else figures.without_totals


def _handshakes(connections: Connections, skipped: int, warm_up_ns: int) -> NDArray[np.int64]:
    """Return the times from the first SYN to the ACK of connections that began after the warm-up, in ns.

    They contain the wait for a SYN that is sent again, as a client's time to connect does.
    """
    columns = connections.began_ns, connections.to_syn_ack_ns, connections.to_ack_ns
    began, there, back = (np.array(column, np.int64)[skipped:] for column in columns)
    is_known = (there != UNKNOWN_NS) & (back != UNKNOWN_NS)
    measured: NDArray[np.int64] = (there + back)[is_known & _measured(began, warm_up_ns)]
    return measured


def _opened(traffic: WireTraffic) -> int:
    return traffic.opened + traffic.without_handshake


def _read_udp(tap: WireTap, view: WireView, warm_up_ns: int) -> WireFigures:
    capture = read_datagrams(
        tap.target,
        client=tap.addresses.client,
        server=tap.addresses.server,
        ports=[tap.ends.port],
        key=view.key,
        datagram_bytes=view.message_bytes,
    )
    traffic, times = capture.traffic, None
    if capture.exchanges is not None and view.exchanges:
        found = capture.exchanges
        answered = (found.response_ns != UNKNOWN_NS) & _measured(found.request_ns, warm_up_ns)
        times = latencies("exchange", (found.response_ns - found.request_ns)[answered])
    return WireFigures(
        tap.place,
        frames=traffic.to_server.frames + traffic.to_client.frames,
        dropped_frames=tap.dropped,
        to_server_bytes=traffic.to_server.payload_bytes,
        to_client_bytes=traffic.to_client.payload_bytes,
        to_server_segments=traffic.to_server.datagrams - traffic.to_server.incomplete_datagrams,
        to_client_segments=traffic.to_client.datagrams - traffic.to_client.incomplete_datagrams,
        connections=len(traffic.sessions),
        latencies=(times,) if times else (),
        began_ns=traffic.quality.first_ns,
        error=traffic.quality.damage,
    )


def _measured(began_ns: NDArray[np.int64], warm_up_ns: int) -> NDArray[np.bool_]:
    """Return which requests began after the warm-up."""
    known = began_ns[began_ns != UNKNOWN_NS]
    return began_ns >= (int(known.min()) if len(known) else 0) + warm_up_ns


def latencies(kind: str, times_ns: NDArray[np.int64]) -> Latencies | None:
    """Return times in ns as a distribution; None for none."""
    found = Distribution()
    found.add(times_ns)
    if found.smallest is None or found.largest is None:
        return None
    return Latencies(kind, tuple(found.steps()), found.total, found.smallest, found.largest)


def differences(result: FlowResult, taps: Sequence[WireFigures], view: WireView) -> Iterator[str]:
    """Yield in words each figure in which a tool and the wire disagree.

    Bytes are compared with the tap on the receiver's side, times with that beside the client.
    """
    by_place = {tap.place: tap for tap in taps if not tap.error}
    client = by_place.get(CLIENT)
    guest = next((tap for place, tap in by_place.items() if place in SERVERS), None)
    tool = FlowFigures(
        result.run_to_server_bytes, result.run_to_client_bytes, _percentiles(result.latencies, view.compared)
    )
    # Of UDP a tool reports the datagrams that it sent: those that the link lost are in its loss, too.
    towards = client if view.protocol == "udp" else guest
    wire = FlowFigures(
        _bytes_of(towards, view, "to_server_bytes"),
        _bytes_of(client, view, "to_client_bytes"),
        _percentiles(client.latencies, view.wire_kind) if client else {},
    )
    if client and client.one_of > 1:
        wire = replace(wire, percentiles_ns=_likely(client, view.wire_kind, tool.percentiles_ns))
    elif client:
        wire = replace(wire, percentiles_ns=_beyond_neighbours(result, client, view, tool, wire))
    yield from map(str, disagreement(tool=_without_buffered(tool, wire, view.buffered_bytes), wire=wire))
    is_one_way = (result.to_server_bytes is None) != (result.to_client_bytes is None)
    if result.lost_datagrams is not None and is_one_way and client and guest:
        yield from _losses(result, result.lost_datagrams, client, guest)


def _beyond_neighbours(
    result: FlowResult, client: WireFigures, view: WireView, tool: FlowFigures, wire: FlowFigures
) -> dict[float, float]:
    """Return the percentiles on the wire in which the tool also differs from the times at neighbouring ranks.

    The warm-up ends by the intended start for a tool, and by the first byte for a tap: one of them may have a request
    more. Where times are few and far apart, as among the slowest, that shifts a percentile to the next time.
    """
    times = times_of_kind(client.latencies, view.wire_kind)
    tool_times = times_of_kind(result.latencies, view.compared)
    if times is None or tool_times is None:
        return {}
    beyond = {}
    for percent, by_wire in wire.percentiles_ns.items():
        if percent not in tool.percentiles_ns:
            continue
        rank = times.rank_of(round(1000 * percent))
        shift = rank_shift(tool_times.count, times.count, rank)
        least, most = times.times_at_ns([max(rank - shift, 1), min(rank + shift, times.count)])
        nearest = FlowFigures(percentiles_ns={percent: min(max(tool.percentiles_ns[percent], least), most)})
        if disagreement(tool=FlowFigures(percentiles_ns=tool.percentiles_ns), wire=nearest):
            beyond[percent] = by_wire
    return beyond


def _likely(client: WireFigures, kind: str, by_tool: Mapping[float, float]) -> dict[float, float]:
    """Return the percentiles of all connections that the followed ones permit, as near to those of the tool."""
    times = times_of_kind(client.latencies, kind)
    if times is None or not client.connections:
        return {}
    found = {}
    for percent, time_ns in by_tool.items():
        least, most = likely_range_ns(times, round(1000 * percent), client.connections)
        found[percent] = min(max(time_ns, least), most)
    return found


def _bytes_of(tap: WireFigures | None, view: WireView, name: str) -> int | None:
    """Return bytes by a tap; None where its capture lost datagrams. TCP acknowledges bytes that a capture lost."""
    if tap is None or (view.protocol == "udp" and tap.dropped_frames):
        return None
    number: int | None = getattr(tap, name)
    return number


def _without_buffered(tool: FlowFigures, wire: FlowFigures, buffered: int) -> FlowFigures:
    """Return the figures of a tool without the bytes that differ by no more than socket buffers may hold."""
    if tool.to_server_bytes is not None and abs(tool.to_server_bytes - (wire.to_server_bytes or 0)) <= buffered:
        tool = replace(tool, to_server_bytes=None)
    if tool.to_client_bytes is not None and abs(tool.to_client_bytes - (wire.to_client_bytes or 0)) <= buffered:
        tool = replace(tool, to_client_bytes=None)
    return tool


def _losses(result: FlowResult, lost: int, client: WireFigures, guest: WireFigures) -> Iterator[str]:
    """Yield a text if a tool reports another number of lost datagrams than was lost between the two taps."""
    sent, arrived = client.to_server_segments, guest.to_server_segments
    sender, receiver = "client", "server"
    where = f"behind the {'server' if guest.place == OUTSIDE else 'guest'}'s link: at its NIC, in its kernel, or"
    if result.to_client_bytes is not None:
        sent, arrived = guest.to_client_segments, client.to_client_segments
        sender, receiver, where = "server", "client", "behind the client's link: in its kernel, or"
    elif guest.place == HOST:
        where = "in the user networking of the host, or"
    if sent is None or arrived is None or client.dropped_frames or guest.dropped_frames:
        return
    on_link, allowed = sent - arrived, BYTES_TOLERANCE * sent
    if abs(lost - on_link) <= allowed:
        return
    parts = []
    before = max(0, (result.started or 0) - sent)
    if before > allowed:
        parts.append(f"{before:,} of the others were lost between the tool's {sender} and the tap beside it")
    behind = lost - on_link - (before if before > allowed else 0)
    if behind > allowed and result.socket_drops is None:
        others = "the others" if not parts else f"{behind:,}"
        parts.append(f"{others} were dropped {where} in the socket of the tool's {receiver}")
    elif behind > allowed:
        at_socket = max(0, min(result.socket_drops or 0, behind))
        parts.append(f"{at_socket:,} were dropped at the full socket of the tool's {receiver}, by its kernel's counter")
        if behind > at_socket:
            parts.append(f"{behind - at_socket:,} before it, or not read by its end")
    yield (
        f"{lost:,} of {result.started or 0:,} datagrams lost by the tool, {on_link:,} of {sent:,} between the taps: "
        f"{', and '.join(parts) or 'the tool reports fewer'}"
    )


def _percentiles(found: Sequence[Latencies], kind: str) -> Mapping[float, float]:
    times = times_of_kind(found, kind)
    if times is None:
        return {}
    return {part / 1000: times.percentile_ns(part) for part in PERCENTILES if has_enough(times, part)}
