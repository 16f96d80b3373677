"""The tcpdump command of a trial: its filter, its buffer size, and the destination of the capture."""

import re
from collections.abc import Sequence
from pathlib import Path

from netbench.sinks.base import Incoming

# Group addresses that no bridge forwards (IEEE 802.1Q, table 8-1): those of control frames and of flush frames.
_LINK_LOCAL = "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0)"
# Of these, the address of flush frames.
_FLUSH = "ether[4:2] = 0x000f"
# In the ring, a frame takes its snapped bytes and headers around them (tpacket3_hdr, sockaddr_ll, padding).
_RING_OVERHEAD_BYTES = 112
_RING_SECONDS = 1.0
_MIN_RING_BYTES = 4 << 20
_MAX_RING_BYTES = 256 << 20
_UNKNOWN_RATE_RING_BYTES = 128 << 20
# The part of a host's free memory that the rings of all its sinks may take. The kernel does not swap them out.
_RINGS_PART = 4


def ring_bytes(fps: float | None, snap_length: int, most: int = _MAX_RING_BYTES) -> int:
    """Return the size of the kernel's capture ring in bytes: the frames expected in a second, within bounds.

    `most` is the limit due to the available memory, in bytes.
    """
    wanted = _UNKNOWN_RATE_RING_BYTES
    if fps is not None:
        wanted = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, most, wanted))


def most_ring_bytes(meminfo: str, sinks: int) -> int:
    """Return how many bytes the ring of one of so many sinks may take of MemAvailable in /proc/meminfo (proc(5))."""
    available = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M)
    return int(available[1]) * 1024 // (_RINGS_PART * sinks) if available else _MAX_RING_BYTES


def tcpdump_command(
    interface: str, cpus: Sequence[int], incoming: Incoming, target: Path | None, most_ring: int = _MAX_RING_BYTES
) -> list[str]:
    """Return the command that captures this stream's frames, control and flush frames to the file `target`, or stdout.

    Frames are snapped. This stream's frames include those of earlier trials, whose sources had other addresses of the
    same network. `most_ring` is the `most` of ring_bytes().
    """
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    traffic = incoming.traffic
    buffer_kib = ring_bytes(traffic.fps, incoming.snap_length, most_ring) >> 10
    # Not `inbound`: libpcap itself filters the first blocks of a capture again, without their direction.
    stream_frames = f"udp and src net {incoming.path.src_network} and dst host {traffic.dst_ip}"
    control_frames = _LINK_LOCAL
    if incoming.path.has_reverse:
        # A UUT that redirects all frames delivers flush frames of the other end's sink, which are not this sink's.
        own = incoming.path.sink.mac or "MAC"  # known once the testbed is up
        control_frames = f"({_LINK_LOCAL} and not ({_FLUSH} and not ether src {own}))"
    wanted = f"({stream_frames}) or {control_frames} or ether proto 0x88cc"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(incoming.snap_length), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(target or "-"), wanted]


def capture_file(incoming: Incoming) -> Path:
    """Return the final file of a capture on this machine; unused if it is counted while it is made."""
    return incoming.record.with_name(f"{incoming.record.name}.pcap")


def is_counted_live(incoming: Incoming) -> bool:
    """Return whether a capture is counted while it is made, and never written to a disk.

    Both ends must be on this machine: its clock separates frames of the trial from late ones of earlier trials before
    the source reports its times.
    """
    return not incoming.keep and incoming.path.source.machine is None and incoming.path.sink.machine is None


def target_of(incoming: Incoming, elsewhere: str = "/tmp") -> Path | None:
    """Return the file that the sink's host writes the capture to; None if it is counted while it is made.

    A host that does not share this machine's files stores it in the directory `elsewhere` until it has ended.
    """
    if incoming.path.sink.machine is not None:
        return Path(elsewhere, capture_file(incoming).name)
    return None if is_counted_live(incoming) else capture_file(incoming)
