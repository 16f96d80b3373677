"""Refresh counters that lag behind: some drivers read their NIC, or receive its counts, only every second or two.

Most drivers update them at once when their own statistics are requested (e1000 does). Drivers that receive counts from
the NIC report how often (`stats-block-usecs` of ethtool(8)). Formats: linux/ethtool.h, linux/sockios.h.
"""

import ctypes
import fcntl
import re
import socket
import struct
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

from netbench.hosts.base import Host
from netbench.linux.netns import within_each
from netbench.model.foreign_text import encoded

_SIOCETHTOOL = 0x8946
_GCOALESCE, _GSTATS, _GSSET_INFO = 0x0E, 0x1D, 0x37
_ETH_SS_STATS = 1
_SSET_INFO = struct.Struct("=IIQI")  # command, reserved, requested sets, and the size of the first one
_STATS = struct.Struct("=II")  # command, number of counters; 64 bits for each follow
_COALESCE_WORDS = 23  # ethtool_coalesce: 32 bits each
_STATS_BLOCK_USECS = 9  # the index of stats_block_coalesce_usecs
_REQUEST = struct.Struct("@16sP16x")  # ifreq: name, address
_LOOK = 'for port; do ethtool -S "$port" >/dev/null 2>&1; ethtool -c "$port" 2>/dev/null; done'
_MOST_S = 5.0  # larger intervals reported by a driver are reduced to this


def catch_up(ports: Mapping[str | None, Collection[str]]) -> None:
    """Return once the counters of these interfaces, by namespace, include all that the NICs have counted until now.

    MachineGoneError when a namespace is gone.
    """
    if any(ports.values()):
        behind_s = within_each(ports, lambda netns: max(map(_behind_s, ports[netns]), default=0.0))
        time.sleep(min(max(behind_s.values()), _MOST_S))


def catch_up_there(host: Host, ports: Collection[str]) -> None:
    """Do the same on another host, for interfaces of one namespace, by ethtool(8).

    TestbedError without an answer.
    """
    text = host.run(["sh", "-c", _LOOK, "netbench", *ports]).stdout
    behind_us = [int(line.split()[1]) for line in text.splitlines() if re.fullmatch(r"stats-block-usecs:\s+\d+", line)]
    time.sleep(min(max(behind_us, default=0) / 1e6, _MOST_S))


def _behind_s(interface: str) -> float:
    """Return how long a NIC's counters may lag after its driver was queried, in s; 0 if no value is reported."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control, suppress(OSError):  # gone, or not supported
        with suppress(OSError):  # a driver without statistics of its own
            answer = _ask(control, interface, _SSET_INFO.pack(_GSSET_INFO, 0, 1 << _ETH_SS_STATS, 0))
            *_, count = _SSET_INFO.unpack(answer)
            _ask(control, interface, _STATS.pack(_GSTATS, count) + bytes(8 * count))
        answer = _ask(control, interface, struct.pack(f"={_COALESCE_WORDS}I", _GCOALESCE, *[0] * (_COALESCE_WORDS - 1)))
        return float(struct.unpack(f"={_COALESCE_WORDS}I", answer)[_STATS_BLOCK_USECS] / 1e6)
    return 0.0


def _ask(asked: socket.socket, interface: str, question: bytes) -> bytes:
    """Return a structure that the kernel filled in; OSError when the driver does not support the request."""
    structure = ctypes.create_string_buffer(question, len(question))
    fcntl.ioctl(asked, _SIOCETHTOOL, _REQUEST.pack(encoded(interface), ctypes.addressof(structure)))
    return structure.raw
