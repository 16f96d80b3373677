"""Reads the TCP traffic of two endpoints from a capture, in one pass."""

from collections.abc import Callable, Collection
from pathlib import Path

from netbench.capture.ip_packets import KEPT_BYTES
from netbench.capture.reading import open_file, read_stream
from netbench.capture.tcp_follower import ConnectionFollower, NewBytes
from netbench.errors import UsageError
from netbench.model.flow_witness import CaptureQuality, FlowDirection, FlowEndpoints, WireTraffic


def read_connections(path: Path, *, client: str, server: str, ports: Collection[int]) -> WireTraffic:
    """Return the TCP traffic between two addresses and the server's ports (none: all) in a pcap or pcapng file.

    A file that ends within a record is read up to there. UsageError for a file that is no capture, is one of several
    interfaces, or is captured on an unsupported link type; ValueError for invalid endpoints.
    """
    return follow_connections(path, FlowEndpoints.of(client, server, ports))


def follow_connections(
    path: Path, endpoints: FlowEndpoints, on_new_bytes: Callable[[NewBytes], None] | None = None
) -> WireTraffic:
    """Return the TCP traffic of a capture, and pass on the new bytes of each batch; errors as read_connections()."""
    follower, frames = ConnectionFollower(endpoints, on_new_bytes), 0
    with open_file(path) as file:
        reader = read_stream(file, str(path), KEPT_BYTES)
        for batch in reader.batches():
            frames += len(batch.times_ns)
            follower.add(batch)
        check_interfaces(path, max(len(reader.interfaces), follower.interfaces))
    table = follower.table
    table.finish()
    unread = dict(follower.unread)
    return WireTraffic(
        to_server=follower.totals(FlowDirection.TO_SERVER),
        to_client=follower.totals(FlowDirection.TO_CLIENT),
        connections=table.result,
        opened=table.opened,
        without_handshake=table.without_handshake,
        quality=CaptureQuality(
            first_ns=follower.first_ns,
            frames=frames,
            other_frames=frames - follower.flow_frames - sum(unread.values()),
            unread=unread,
            leftover_bytes=reader.ending.leftover_bytes,
            damage=reader.ending.damage,
        ),
    )


def check_interfaces(path: Path, interfaces: int) -> None:
    """Raise UsageError for a capture of several interfaces, in which a forwarded frame is several times."""
    if interfaces > 1:
        raise UsageError(f"{path}: captured on {interfaces} interfaces; capture one link: tcpdump -i INTERFACE")
