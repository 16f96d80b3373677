"""The tcpdump command of a trial: what it catches, how large its buffer is, and where the capture goes."""

import re
from collections.abc import Sequence
from pathlib import Path

from netbench.sinks.base import Incoming

# Group addresses that no bridge forwards (IEEE 802.1Q, table 8-1): those of control frames, and of flush frames.
_LINK_LOCAL = "(ether[0:4] = 0x0180c200 and ether[4:2] & 0xfff0 = 0)"
# Of both, those of flush frames.
_FLUSH = "ether[4:2] = 0x000f"
# A frame in the ring costs its snapped bytes and headers around them (tpacket3_hdr, sockaddr_ll, padding).
_RING_OVERHEAD_BYTES = 112
_RING_SECONDS = 1.0
_MIN_RING_BYTES = 4 << 20
_MAX_RING_BYTES = 256 << 20
_UNKNOWN_RATE_RING_BYTES = 128 << 20
# The part of a host's free memory that the rings of all its sinks may take. The kernel does not swap them out.
_RINGS_PART = 4


def ring_bytes(fps: float | None, snap_length: int, most: int = _MAX_RING_BYTES) -> int:
    """Size of the kernel's capture ring: a second's worth of the expected frames, within bounds.

    `most` is what the memory there is allows, in bytes.
    """
    wanted = _UNKNOWN_RATE_RING_BYTES
    if fps is not None:
        wanted = int(fps * _RING_SECONDS * (min(snap_length, 1514) + _RING_OVERHEAD_BYTES))
    return max(_MIN_RING_BYTES, min(_MAX_RING_BYTES, most, wanted))


def most_ring_bytes(meminfo: str, sinks: int) -> int:
    """What the ring of one of so many sinks may take of the memory that /proc/meminfo says is available (proc(5))."""
    found = re.search(r"^MemAvailable:\s+(\d+) kB", meminfo, re.M)
    return int(found[1]) * 1024 // (_RINGS_PART * sinks) if found else _MAX_RING_BYTES


def tcpdump_command(
    interface: str, cpus: Sequence[int], incoming: Incoming, target: Path | None, most_ring: int = _MAX_RING_BYTES
) -> list[str]:
    """Only this stream's frames, control and flush frames, snapped, to the file `target` or to stdout.

    This stream's are those of earlier trials too, whose sources had other addresses of the same network.
    `most_ring` is as in ring_bytes.
    """
    pinned = ["taskset", "-c", ",".join(map(str, cpus))] if cpus else []
    traffic = incoming.traffic
    buffer_kib = ring_bytes(traffic.fps, incoming.snap_length, most_ring) >> 10
    # Not `inbound`: libpcap filters the first blocks of a capture once more by itself, and knows no directions there.
    ours = f"udp and src net {incoming.path.src_network} and dst host {traffic.dst_ip}"
    aside = _LINK_LOCAL
    if incoming.path.has_reverse:
        # What redirects all frames brings flush frames of the sink at the other end, which tell nothing of this one.
        own = incoming.path.sink.mac or "MAC"  # known once the testbed is up
        aside = f"({_LINK_LOCAL} and not ({_FLUSH} and not ether src {own}))"
    wanted = f"({ours}) or {aside} or ether proto 0x88cc"
    # -Z root: dropping privileges would also drop the parent-death signal that ends tcpdump with netbench.
    options = ["-n", "-p", "-Z", "root", "-s", str(incoming.snap_length), "-B", str(buffer_kib)]
    return [*pinned, "tcpdump", "-i", interface, *options, "-w", str(target or "-"), wanted]


def capture_file(incoming: Incoming) -> Path:
    """The file on this machine that a capture ends up in, unless it is counted while it is made."""
    return incoming.record.with_name(f"{incoming.record.name}.pcap")


def is_counted_live(incoming: Incoming) -> bool:
    """Whether a capture is counted while it is made, and never written to a disk.

    Both ends must be on this machine: by its clock, frames of the trial are told from late ones of earlier trials
    before the source says when it sent.
    """
    return not incoming.keep and incoming.path.source.machine is None and incoming.path.sink.machine is None


def target_of(incoming: Incoming, elsewhere: str = "/tmp") -> Path | None:
    """The file that the sink's host writes the capture to; None where it is counted while it is made.

    A host that does not share this machine's files keeps it, in a directory `elsewhere`, until it has ended.
    """
    if incoming.path.sink.machine is not None:
        return Path(elsewhere, capture_file(incoming).name)
    return None if is_counted_live(incoming) else capture_file(incoming)
